//! Drives all connections from one thread.

use std::io::ErrorKind;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, bail, ensure};
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use mio::{Events, Poll, Registry};

use super::super::bar::bar;
use super::super::process::Process;
use super::super::stream::Stream;
use super::mix::{Mix, Verb};
use super::{Dialogue, Heard, Report, Shape};

/// Maximum number of connections that are being opened at once.
const CONNECTING_MAX: usize = 100;

const WARM_UP: Duration = Duration::from_secs(1);

/// Maximum wait for requests in flight, and for one answer.
const DRAIN: Duration = Duration::from_secs(3);
const ANSWER: Duration = Duration::from_secs(20);

/// Longest latency that is recorded, in microseconds; longer ones are recorded as this.
const LATENCY_MAX: u64 = 60_000_000;

/// Longest wait of a poll, so that the progress bar is updated.
const LOOK: Duration = Duration::from_millis(50);

/// Measures a server with the load that `shape` describes. `begin` opens the connection with a number, and
/// `dialogue` creates the client side of the protocol for it. `unreachable` adds the server's address to the
/// error if connecting fails.
pub fn measure<D: Dialogue>(
    shape: &Shape,
    begin: impl FnMut(&Registry, usize) -> anyhow::Result<Stream>,
    dialogue: impl FnMut(u32) -> anyhow::Result<D>,
    unreachable: impl FnOnce(anyhow::Error) -> anyhow::Error,
) -> anyhow::Result<Report> {
    let process = Process::all(&shape.pid)?;
    let mut driver = Driver::new(shape)?;
    driver.connect(begin, dialogue).map_err(unreachable)?;
    driver.fill()?;
    driver.run(process.as_ref())
}

struct Driver<'a, D> {
    shape: &'a Shape,
    poll: Poll,
    events: Events,
    scratch: Vec<u8>,
    clients: Vec<Client<D>>,
    ready: usize,
    mix: Mix,
    phase: Phase,
    begun: Instant,
    /// Wall-clock time of `begun`, in milliseconds since the Unix epoch.
    begun_unix_ms: u64,
    in_flight: usize,
    errors: u64,
    /// Microsecond at which the server was last heard.
    heard: u64,
    answered: Answered,
    freed: Vec<usize>,
}

struct Client<D> {
    stream: Stream,
    dialogue: D,
    /// The request in flight in each slot, and the microsecond at which it was sent.
    slots: Box<[Option<(Verb, u64)>]>,
}

/// Kind of request that a free slot makes next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Filling,
    Asking,
    Draining,
}

/// Answers since the counters were last reset.
#[derive(Clone)]
struct Answered {
    operations: u64,
    /// Latencies in microseconds.
    sets: Histogram<u64>,
    gets: Histogram<u64>,
}

impl Answered {
    fn nothing() -> anyhow::Result<Self> {
        let histogram = || Histogram::new_with_bounds(1, LATENCY_MAX, 3);
        Ok(Self { operations: 0, sets: histogram()?, gets: histogram()? })
    }
}

impl<'a, D: Dialogue> Driver<'a, D> {
    fn new(shape: &'a Shape) -> anyhow::Result<Self> {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        Ok(Self {
            shape,
            poll: Poll::new()?,
            events: Events::with_capacity(1_024),
            scratch: Vec::new(),
            clients: Vec::new(),
            ready: 0,
            mix: Mix::new(shape.keys, shape.sets),
            phase: Phase::Filling,
            begun: Instant::now(),
            begun_unix_ms: unix.as_millis() as u64,
            in_flight: 0,
            errors: 0,
            heard: 0,
            answered: Answered::nothing()?,
            freed: Vec::new(),
        })
    }

    /// Opens all connections.
    fn connect(
        &mut self,
        mut begin: impl FnMut(&Registry, usize) -> anyhow::Result<Stream>,
        mut dialogue: impl FnMut(u32) -> anyhow::Result<D>,
    ) -> anyhow::Result<()> {
        let all = self.shape.n as usize;
        let bar = bar(all as u64, "{msg:11} {wide_bar} {pos}/{len}");
        bar.set_message("connecting");
        while self.ready < all {
            while self.clients.len() < all && self.clients.len() - self.ready < CONNECTING_MAX {
                let index = self.clients.len();
                let mut stream = begin(self.poll.registry(), index)?;
                let mut dialogue = dialogue(index as u32)?;
                dialogue.open(&mut stream.output)?;
                let slots = vec![None; self.shape.in_flight()].into();
                self.clients.push(Client { stream, dialogue, slots });
            }
            self.poll()?;
            bar.set_position(self.ready as u64);
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Sets every key once.
    fn fill(&mut self) -> anyhow::Result<()> {
        let bar = bar(self.shape.keys.into(), "{msg:11} {wide_bar} {pos}/{len}");
        bar.set_message("setting");
        self.ask_everywhere()?;
        while self.in_flight > 0 {
            self.poll()?;
            bar.set_position(self.answered.operations);
        }
        bar.finish_and_clear();
        ensure!(
            self.errors == 0,
            "the server refused {} of the SETs that create the keys",
            self.errors
        );
        Ok(())
    }

    /// Makes requests for the duration of the shape, and waits for those in flight.
    fn run(mut self, process: Option<&Process>) -> anyhow::Result<Report> {
        let usage = || process.and_then(Process::usage);
        let end = WARM_UP + self.shape.duration;
        let bar = bar(end.as_millis() as u64, "{msg:24} {wide_bar} {elapsed_precise}");
        self.phase = Phase::Asking;
        self.ask_everywhere()?;
        let start = Instant::now();
        self.ask_until(start, WARM_UP, &bar)?;
        self.answered = Answered::nothing()?;
        let (before, own_before, measured) = (usage(), Process::own_cpu(), Instant::now());
        self.ask_until(start, end, &bar)?;
        let (after, own_after, elapsed) = (usage(), Process::own_cpu(), measured.elapsed());
        let answered = self.answered.clone();
        bar.finish_and_clear();

        self.phase = Phase::Draining;
        let give_up = Instant::now() + DRAIN;
        while self.in_flight > 0 && Instant::now() < give_up {
            self.poll()?;
        }
        Ok(Report {
            shape: self.shape.clone(),
            elapsed,
            operations: answered.operations,
            errors: self.errors,
            unanswered: self.in_flight as u64,
            sets: answered.sets,
            gets: answered.gets,
            cpu: after.zip(before).map(|(end, begin)| end.cpu.saturating_sub(begin.cpu)),
            after,
            generator_cpu: own_after.zip(own_before).map(|(end, begin)| end.saturating_sub(begin)),
        })
    }

    fn ask_until(
        &mut self,
        start: Instant,
        end: Duration,
        bar: &ProgressBar,
    ) -> anyhow::Result<()> {
        let mut told = (start.elapsed(), self.answered.operations);
        loop {
            let now = start.elapsed();
            if now >= end {
                return Ok(());
            }
            if now - told.0 > Duration::from_millis(200) {
                let answered = (self.answered.operations - told.1) as f64;
                let per_second = answered / (now - told.0).as_secs_f64();
                bar.set_message(format!("{per_second:.0} operations/s"));
                bar.set_position(now.as_millis() as u64);
                told = (now, self.answered.operations);
            }
            self.poll()?;
        }
    }

    /// Makes requests in all slots of all clients.
    fn ask_everywhere(&mut self) -> anyhow::Result<()> {
        let now = self.now();
        for index in 0..self.clients.len() {
            (0..self.shape.in_flight()).for_each(|slot| self.ask(index, slot, now));
            self.flush(index)?;
        }
        Ok(())
    }

    fn ask(&mut self, index: usize, slot: usize, now: u64) {
        let request = match self.phase {
            Phase::Filling => self.mix.fill(),
            Phase::Asking => Some(self.mix.next()),
            Phase::Draining => None,
        };
        let Some(request) = request else { return };
        let Client { stream, dialogue, slots } = &mut self.clients[index];
        slots[slot] = Some((request.verb, now));
        self.in_flight += 1;
        dialogue.ask(slot, request, self.begun_unix_ms + now / 1_000, &mut stream.output);
    }

    fn poll(&mut self) -> anyhow::Result<()> {
        let mut events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        match self.poll.poll(&mut events, Some(LOOK)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error.into()),
            _ => {}
        }
        for event in &events {
            let index = event.token().0;
            let is_closing = event.is_read_closed() || event.is_error();
            if event.is_readable() || is_closing {
                self.read(index, is_closing)?;
            }
            self.flush(index)?;
        }
        self.events = events;
        if self.now() - self.heard > ANSWER.as_micros() as u64 {
            bail!("the server does not answer");
        }
        Ok(())
    }

    fn read(&mut self, index: usize, is_closing: bool) -> anyhow::Result<()> {
        let now = self.now();
        let Client { stream, dialogue, slots } = &mut self.clients[index];
        let (answered, freed) = (&mut self.answered, &mut self.freed);
        let mut heard = |heard| match heard {
            Heard::Ready => self.ready += 1,
            Heard::Answered { slot, well } => {
                // A second answer is as wrong as a wrong one.
                let Some((verb, since)) = slots.get_mut(slot).and_then(Option::take) else {
                    self.errors += 1;
                    return;
                };
                self.errors += u64::from(!well);
                self.in_flight -= 1;
                answered.operations += 1;
                let latencies = match verb {
                    Verb::Set => &mut answered.sets,
                    Verb::Get => &mut answered.gets,
                };
                latencies.saturating_record(now - since);
                freed.push(slot);
            }
        };
        let is_open = stream.read(&mut self.scratch, is_closing, |stream, input| {
            dialogue.hear(input, &mut stream.output, &mut heard)
        })?;
        ensure!(is_open, "the server closed a connection");
        self.heard = now;
        let mut freed = std::mem::take(&mut self.freed);
        freed.drain(..).for_each(|slot| self.ask(index, slot, now));
        self.freed = freed;
        Ok(())
    }

    fn flush(&mut self, index: usize) -> anyhow::Result<()> {
        self.clients[index].stream.flush().context("cannot write to the server")
    }

    /// Returns the microseconds since the start.
    fn now(&self) -> u64 {
        self.begun.elapsed().as_micros() as u64
    }
}
