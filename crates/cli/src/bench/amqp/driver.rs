//! Drives all connections from one thread.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use mio::{Events, Poll};

use super::super::bar::bar;
use super::super::process::Process;
use super::super::target::Target;
use super::connection::{Connection, Heard};
use super::ledger::Ledger;
use super::receiver::{Measured, Receiver};
use super::report::{Report, Span};
use super::sender::Sender;
use super::{Options, Scenario};

const WARM_UP: Duration = Duration::from_secs(1);

/// Maximum wait for messages in flight, and for one answer.
const DRAIN: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(20);

/// Longest latency that is recorded, in microseconds; longer ones are recorded as this.
const LATENCY_MAX: u64 = 60_000_000;

/// Longest wait of a poll.
const LOOK: Duration = Duration::from_millis(10);

/// Sleep between polls while the next message is due in less than a millisecond: the poll waits
/// whole milliseconds only.
const NAP: Duration = Duration::from_micros(100);

/// Measures a broker.
pub fn measure(options: &Options, target: &Target) -> anyhow::Result<Report> {
    let process = Process::all(&options.pid)?;
    let process = process.as_ref();
    let mut driver = Driver::new(options)?;
    driver.connect(target, Part::senders(options)).map_err(|error| match target.refused() {
        Some(_) => target.unreachable(error),
        None => error,
    })?;
    let stored = match options.stored_first() {
        0 => None,
        messages => Some(driver.store(messages, process)?),
    };
    driver.connect(target, Part::receivers(options))?;
    let span = driver.run(process)?;
    driver.drain()?;
    driver.close();
    let first_accepted = driver.first_accepted.map(Duration::from_micros);
    Ok(Report {
        options: options.clone(),
        stored,
        span,
        counts: driver.ledger.counts,
        lost: driver.ledger.lost(),
        stored_in: driver.latencies.stored,
        received_in: driver.latencies.received,
        accepted_in: driver.latencies.accepted,
        first_accepted,
        after: process.and_then(Process::usage),
    })
}

struct Driver<'a> {
    options: &'a Options,
    poll: Poll,
    events: Events,
    scratch: Vec<u8>,
    clients: Vec<Client>,
    ready: usize,
    begun: Instant,
    heard: u64,
    ledger: Ledger,
    latencies: Latencies,
    first_accepted: Option<u64>,
    completed: Vec<u32>,
    /// Number of messages still to be sent; `u64::MAX` without a limit. `scheduled` counts those
    /// sent at a fixed rate.
    left: u64,
    scheduled: u64,
}

struct Client {
    connection: Connection,
    part: Part,
}

enum Part {
    Sender(Box<Sender>),
    Receiver(Box<Receiver>),
}

/// Latencies in microseconds.
struct Latencies {
    stored: Histogram<u64>,
    received: Histogram<u64>,
    accepted: Histogram<u64>,
}

impl Part {
    fn senders(options: &Options) -> Vec<Self> {
        (0..options.senders).map(|index| Self::Sender(Sender::new(options, index).into())).collect()
    }

    fn receivers(options: &Options) -> Vec<Self> {
        let part = |index| Self::Receiver(Receiver::new(options, index).into());
        (0..options.receivers).map(part).collect()
    }
}

impl Latencies {
    fn nothing() -> anyhow::Result<Self> {
        let histogram = || Histogram::new_with_bounds(1, LATENCY_MAX, 3);
        Ok(Self { stored: histogram()?, received: histogram()?, accepted: histogram()? })
    }
}

impl<'a> Driver<'a> {
    fn new(options: &'a Options) -> anyhow::Result<Self> {
        let begun = Instant::now();
        let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
        let run = unix.as_micros() as u32;
        Ok(Self {
            options,
            poll: Poll::new()?,
            events: Events::with_capacity(1_024),
            scratch: Vec::new(),
            clients: Vec::new(),
            ready: 0,
            begun,
            heard: 0,
            ledger: Ledger::new(run, !options.no_store, options.sessions, !options.plain),
            latencies: Latencies::nothing()?,
            first_accepted: None,
            completed: Vec::new(),
            left: 0,
            scheduled: 0,
        })
    }

    /// Opens a connection for each of `parts`.
    fn connect(&mut self, target: &Target, parts: Vec<Part>) -> anyhow::Result<()> {
        let all = self.clients.len() + parts.len();
        self.heard = self.now();
        for part in parts {
            let index = self.clients.len();
            let stream = target.begin(self.poll.registry(), index)?;
            self.clients.push(Client { connection: Connection::new(stream, target), part });
            // At most as many at a time as a listener's backlog holds.
            while self.clients.len() - self.ready > 100 {
                self.poll(LOOK)?;
            }
        }
        while self.ready < all {
            self.poll(LOOK)?;
        }
        Ok(())
    }

    /// Stores `messages` messages, as fast as the broker takes them.
    fn store(&mut self, messages: u64, process: Option<&Process>) -> anyhow::Result<Span> {
        let bar = bar(messages, "{msg:11} {wide_bar} {pos}/{len} {per_sec}");
        bar.set_message("storing");
        self.left = messages;
        let before = Mark::now(process, 0);
        loop {
            let counts = self.ledger.counts;
            if counts.refused > 0 {
                bail!("the broker refused messages; its log may say why");
            }
            if counts.accepted == messages {
                break;
            }
            self.send_all()?;
            self.poll(LOOK)?;
            bar.set_position(counts.accepted);
        }
        bar.finish_and_clear();
        Ok(before.until(process, messages))
    }

    /// Sends and receives for the duration of the options, or until nothing is left to do.
    fn run(&mut self, process: Option<&Process>) -> anyhow::Result<Span> {
        let is_live = self.options.scenario == Scenario::Live;
        let warm_up = if is_live { WARM_UP } else { Duration::ZERO };
        let end = warm_up + self.options.duration;
        let bar = bar(end.as_millis() as u64, "{msg:24} {wide_bar} {elapsed_precise}");
        self.left = if is_live { u64::MAX } else { 0 };
        let start = self.now();
        self.run_until(start, warm_up, &bar)?;
        if is_live {
            self.latencies = Latencies::nothing()?;
        }
        let before = Mark::now(process, self.ledger.counts.completed);
        self.run_until(start, end, &bar)?;
        bar.finish_and_clear();
        self.left = 0;
        Ok(before.until(process, self.ledger.counts.completed))
    }

    fn run_until(&mut self, start: u64, end: Duration, bar: &ProgressBar) -> anyhow::Result<()> {
        let mut told = (self.now(), self.ledger.counts.completed);
        loop {
            let now = self.now();
            let is_over = self.left == 0 && !self.options.no_store && self.is_done();
            if now - start >= micros(end) || is_over {
                return Ok(());
            }
            if now - told.0 > 200_000 {
                let completed = self.ledger.counts.completed;
                let per_second = (completed - told.1) as f64 * 1e6 / (now - told.0) as f64;
                bar.set_message(format!("{per_second:.0} messages/s"));
                bar.set_position((now - start) / 1_000);
                told = (now, completed);
            }
            let wait = match self.options.rate {
                Some(rate) if self.left > 0 => self.send_due(rate, start)?,
                _ => {
                    self.send_all()?;
                    LOOK
                }
            };
            self.look()?;
            if wait >= Duration::from_millis(1) {
                self.poll(wait)?;
            } else {
                self.poll(Duration::ZERO)?;
                std::thread::sleep(wait.min(NAP));
            }
        }
    }

    /// Waits for messages in flight.
    fn drain(&mut self) -> anyhow::Result<()> {
        let give_up = Instant::now() + DRAIN;
        while self.options.scenario == Scenario::Live && !self.is_done() && Instant::now() < give_up
        {
            self.look()?;
            self.poll(LOOK)?;
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        let counts = &self.ledger.counts;
        counts.accepted + counts.refused == counts.sent && counts.completed >= counts.accepted
    }

    /// Closed loop: a message is sent when an earlier one has been received and completed.
    fn send_all(&mut self) -> anyhow::Result<()> {
        let now = self.now();
        let is_live = self.options.scenario == Scenario::Live;
        for client in &mut self.clients {
            let Part::Sender(sender) = &mut client.part else { continue };
            let Connection { stream, session, .. } = &mut client.connection;
            let had = self.left;
            while self.left > 0 && sender.window > 0 && sender.can_send(session, stream.unwritten())
            {
                sender.send(now, session, &mut self.ledger, &mut stream.output);
                self.left -= 1;
                sender.window -= u32::from(is_live);
            }
            if self.left < had {
                stream.flush().context("cannot write to the broker")?;
            }
        }
        Ok(())
    }

    /// Open loop: messages are sent when they are due, whatever becomes of earlier ones. Returns the
    /// time until the next is due.
    fn send_due(&mut self, rate: u32, start: u64) -> anyhow::Result<Duration> {
        let now = self.now();
        let due_at = |message: u64| start + message * 1_000_000 / u64::from(rate);
        let senders = self.options.senders as usize;
        while due_at(self.scheduled) <= now {
            // The senders have the first connections.
            let client = &mut self.clients[self.scheduled as usize % senders];
            let Part::Sender(sender) = &mut client.part else { break };
            let Connection { stream, session, .. } = &mut client.connection;
            if !sender.can_send(session, stream.unwritten()) {
                break;
            }
            sender.send(due_at(self.scheduled), session, &mut self.ledger, &mut stream.output);
            self.scheduled += 1;
        }
        for client in &mut self.clients[..senders] {
            client.connection.stream.flush().context("cannot write to the broker")?;
        }
        Ok(Duration::from_micros(due_at(self.scheduled).saturating_sub(now)).min(LOOK))
    }

    fn look(&mut self) -> anyhow::Result<()> {
        let now = self.now();
        for client in &mut self.clients {
            if let Part::Receiver(receiver) = &mut client.part {
                let stream = &mut client.connection.stream;
                receiver.look(now, &mut stream.output);
                stream.flush().context("cannot write to the broker")?;
            }
        }
        Ok(())
    }

    fn poll(&mut self, timeout: Duration) -> anyhow::Result<()> {
        let mut events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        match self.poll.poll(&mut events, Some(timeout)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error.into()),
            _ => {}
        }
        for event in &events {
            let index = event.token().0;
            let is_closing = event.is_read_closed() || event.is_error();
            if event.is_readable() || is_closing {
                self.read(index, is_closing)?;
            }
            let stream = &mut self.clients[index].connection.stream;
            stream.flush().context("cannot write to the broker")?;
        }
        self.events = events;
        if self.now() - self.heard > micros(ANSWER) {
            bail!("the broker does not answer");
        }
        Ok(())
    }

    fn read(&mut self, index: usize, is_closing: bool) -> anyhow::Result<()> {
        let now = self.now();
        self.heard = now;
        let (options, ready) = (self.options, &mut self.ready);
        let (ledger, latencies) = (&mut self.ledger, &mut self.latencies);
        let completed = &mut self.completed;
        let Client { connection, part } = &mut self.clients[index];
        connection.read(&mut self.scratch, is_closing, |session, output, heard| {
            match (&mut *part, heard) {
                (Part::Sender(sender), Heard::Begun) => sender.begin(options, session, output)?,
                (Part::Sender(sender), Heard::Link(performative, _)) => {
                    let stored = &mut latencies.stored;
                    *ready += usize::from(sender.hear(&performative, now, stored, ledger)?);
                }
                (Part::Receiver(receiver), Heard::Begun) => {
                    receiver.begin(options.links(), now, output);
                    *ready += 1;
                }
                (Part::Receiver(receiver), Heard::Link(performative, payload)) => {
                    let Latencies { received, accepted, .. } = &mut *latencies;
                    let mut measured = Measured { received, accepted, completed, ledger };
                    receiver.hear(performative, payload, now, session, &mut measured, output)?;
                }
            }
            Ok(())
        })?;
        if self.first_accepted.is_none() && !self.latencies.accepted.is_empty() {
            self.first_accepted = Some(self.now());
        }
        let senders = options.senders;
        for session in self.completed.drain(..) {
            // Sessions are dealt out to the senders, which have the first connections.
            if let Part::Sender(sender) = &mut self.clients[(session % senders) as usize].part {
                sender.window += 1;
            }
        }
        Ok(())
    }

    /// Closes all connections, so that nothing stays locked.
    fn close(&mut self) {
        for client in &mut self.clients {
            client.connection.close();
            // A connection that is gone needs no close.
            let _ = client.connection.stream.flush();
        }
    }

    /// Returns the microseconds since the start.
    fn now(&self) -> u64 {
        micros(self.begun.elapsed())
    }
}

/// Begin of a span.
struct Mark {
    count: u64,
    at: Instant,
    cpu: Option<Duration>,
    own: Option<Duration>,
}

impl Mark {
    fn now(process: Option<&Process>, count: u64) -> Self {
        let cpu = process.and_then(Process::usage).map(|usage| usage.cpu);
        Self { count, at: Instant::now(), cpu, own: Process::own_cpu() }
    }

    fn until(&self, process: Option<&Process>, count: u64) -> Span {
        let end = Self::now(process, count);
        let between =
            |begin: Option<Duration>, end: Option<Duration>| Some(end?.saturating_sub(begin?));
        Span {
            messages: count - self.count,
            elapsed: end.at - self.at,
            cpu: between(self.cpu, end.cpu),
            generator_cpu: between(self.own, end.own),
        }
    }
}

fn micros(duration: Duration) -> u64 {
    duration.as_micros() as u64
}
