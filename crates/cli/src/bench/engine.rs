//! Drives all connections of a benchmark from one thread.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use mio::{Events, Poll};
use mqtt_proto::{Ack, Connect, Packet, PropertiesBuf, Property, QoS};

use super::Options;
use super::bar::bar;
use super::connection::{Connection, stamp};
use super::handshake::{Stage, advance};
use super::process::{Process, Usage};
use super::report::{Setup, Traffic};
use super::scenario::{Plan, Role};
use super::target::Target;
use crate::client::Failure;

/// Maximum number of connections that are being opened at once.
const CONNECTING_MAX: usize = 100;

const WARM_UP: Duration = Duration::from_secs(1);

/// Maximum wait for messages in flight, and for one answer.
const DRAIN: Duration = Duration::from_secs(3);
const ANSWER: Duration = Duration::from_secs(20);

/// Session Expiry Interval of a persistent MQTT 5 session, in seconds.
const SESSION_EXPIRY: u32 = 60;

/// Sleep between polls while the next message is due in less than a millisecond: the poll waits
/// whole milliseconds only.
const NAP: Duration = Duration::from_micros(100);

struct Client {
    connection: Connection,
    stage: Stage,
    begun: Instant,
}

pub struct Engine<'a> {
    options: &'a Options,
    plan: &'a Plan,
    process: Option<Process>,
    poll: Poll,
    events: Events,
    scratch: Vec<u8>,
    clients: Vec<Client>,
    ready: usize,
    connect_times: Histogram<u64>,
    /// Reason why the first connection was lost, if known.
    lost: Option<anyhow::Error>,
    begun: Instant,
    counts: Counts,
}

/// Counts since the start.
struct Counts {
    sent: u64,
    received: u64,
    dropped: usize,
    /// Microseconds between which a message must have been due for its latency to be recorded.
    measured: std::ops::Range<u64>,
    latencies: Histogram<u64>,
}

impl<'a> Engine<'a> {
    pub fn new(
        options: &'a Options,
        plan: &'a Plan,
        process: Option<Process>,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            options,
            plan,
            process,
            poll: Poll::new()?,
            events: Events::with_capacity(1_024),
            scratch: Vec::new(),
            clients: Vec::with_capacity(plan.clients.len()),
            ready: 0,
            connect_times: Histogram::new(3)?,
            lost: None,
            begun: Instant::now(),
            counts: Counts {
                sent: 0,
                received: 0,
                dropped: 0,
                measured: 0..0,
                latencies: Histogram::new(3)?,
            },
        })
    }

    /// Opens all connections and makes all subscriptions.
    pub fn connect(&mut self, target: &Target) -> anyhow::Result<Setup> {
        let before = self.usage();
        let all = self.plan.clients.len();
        let bar = bar(all as u64, "{msg:11} {wide_bar} {pos}/{len} {per_sec}");
        bar.set_message("connecting");
        self.begun = Instant::now();
        let mut last_progress = (Instant::now(), 0);
        while self.ready < all {
            while self.clients.len() < all && self.clients.len() - self.ready < CONNECTING_MAX {
                self.begin(target)?;
            }
            self.poll(Duration::from_millis(100))?;
            if self.counts.dropped > 0 {
                let lost = self.lost.take().unwrap_or_else(|| anyhow!("it closed a connection"));
                return Err(target.unreachable(lost));
            }
            if self.ready > last_progress.1 {
                last_progress = (Instant::now(), self.ready);
            } else if last_progress.0.elapsed() > ANSWER {
                bail!(Failure::Timeout("the broker does not answer"));
            }
            bar.set_position(self.ready as u64);
        }
        bar.finish_and_clear();
        Ok(Setup {
            connections: all,
            elapsed: self.begun.elapsed(),
            times: self.connect_times.clone(),
            before,
            after: self.usage(),
        })
    }

    fn begin(&mut self, target: &Target) -> anyhow::Result<()> {
        let index = self.clients.len();
        let is_subscriber = matches!(self.plan.clients[index], Role::Subscriber(_));
        let target = target.of(is_subscriber);
        let stream = target.begin(self.poll.registry(), index)?;
        let version = self.options.version;
        let mut connection = Connection::new(stream, version);
        let is_kept = self.options.persistent && is_subscriber;
        let mut properties = PropertiesBuf::new();
        if is_kept && version.is_v5() {
            properties.push(Property::SessionExpiryInterval(SESSION_EXPIRY))?;
        }
        // A fleet: each client has a user of its own.
        let user = target.user.as_ref().map(|user| user.replace("%n", &index.to_string()));
        connection.send(&Packet::Connect(Connect {
            version,
            // In MQTT 3 Clean Session decides both whether a session begins anew and whether it is
            // kept.
            is_bridge: false,
            clean_start: !is_kept || version.is_v5(),
            keep_alive: 0,
            client_id: &format!("bench-{}-{index}", std::process::id()),
            will: None,
            username: user.as_deref(),
            password: target.password.as_deref().map(str::as_bytes),
            properties: properties.as_properties(),
        }))?;
        if let Role::Publisher(topic) = &self.plan.clients[index] {
            let size = self.options.size as usize;
            connection.flow.publish_to(topic, self.options.qos, size, index as u32)?;
        }
        self.clients.push(Client { connection, stage: Stage::Connecting, begun: Instant::now() });
        Ok(())
    }

    /// Publishes for the duration of the options, and waits for messages in flight.
    pub fn measure(&mut self) -> anyhow::Result<Traffic> {
        let duration = self.options.duration;
        self.begun = Instant::now();
        self.counts.measured = micros(WARM_UP)..micros(WARM_UP + duration);
        let bar = bar(duration.as_millis() as u64, "{msg:24} {wide_bar} {elapsed_precise}");
        self.publish_until(WARM_UP, &bar)?;
        let generator = Process::own_cpu();
        let (before, start, received) = (self.usage(), self.begun.elapsed(), self.counts.received);
        self.publish_until(WARM_UP + duration, &bar)?;
        let (after, elapsed) = (self.usage(), self.begun.elapsed() - start);
        let generator_cpu =
            Process::own_cpu().zip(generator).map(|(end, begin)| end.saturating_sub(begin));
        let delivered = self.counts.received - received;
        bar.finish_and_clear();

        let give_up = Instant::now() + DRAIN;
        let expected = |counts: &Counts, copies: u32| counts.sent * u64::from(copies);
        while self.counts.received < expected(&self.counts, self.plan.copies)
            && Instant::now() < give_up
        {
            self.poll(Duration::from_millis(10))?;
        }
        let expected = expected(&self.counts, self.plan.copies);
        Ok(Traffic {
            elapsed,
            delivered,
            sent: self.counts.sent,
            lost: expected.saturating_sub(self.counts.received),
            surplus: self.counts.received.saturating_sub(expected),
            unsent: self
                .clients
                .iter()
                .map(|client| client.connection.flow.backlog.len() as u64)
                .sum(),
            dropped: self.counts.dropped,
            latencies: self.counts.latencies.clone(),
            before,
            after,
            generator_cpu,
        })
    }

    fn publish_until(&mut self, end: Duration, bar: &ProgressBar) -> anyhow::Result<()> {
        let publishers: Vec<usize> = (0..self.clients.len())
            .filter(|index| matches!(self.plan.clients[*index], Role::Publisher(_)))
            .collect();
        let mut told = (self.begun.elapsed(), self.counts.received);
        loop {
            let now = self.begun.elapsed();
            if now >= end {
                return Ok(());
            }
            let wait = match self.options.rate {
                Some(rate) => self.schedule(now, rate, &publishers),
                None => self.fill_windows(now, &publishers),
            };
            for &index in &publishers {
                self.send(index)?;
            }
            if now - told.0 > Duration::from_millis(200) {
                let per_second =
                    (self.counts.received - told.1) as f64 / (now - told.0).as_secs_f64();
                bar.set_message(format!("{per_second:.0} messages/s"));
                bar.set_position(now.saturating_sub(WARM_UP).as_millis() as u64);
                told = (now, self.counts.received);
            }
            if self.counts.dropped == self.clients.len() {
                bail!("the broker closed all connections");
            }
            if wait >= Duration::from_millis(1) {
                // Wait whole milliseconds only: the poll rounds up, and a message would be late.
                self.poll(Duration::from_millis(wait.as_millis().min(20) as u64))?;
            } else {
                self.poll(Duration::ZERO)?;
                std::thread::sleep(wait.min(NAP));
            }
        }
    }

    /// Open loop: messages are sent when they are due, whatever becomes of earlier ones. Returns the
    /// time until the next is due.
    fn schedule(&mut self, now: Duration, rate: u32, publishers: &[usize]) -> Duration {
        let due_at = |message: u64| message * 1_000_000 / u64::from(rate);
        let backlog = |client: &Client| client.connection.flow.backlog.len() as u64;
        let mut next =
            self.counts.sent + publishers.iter().map(|i| backlog(&self.clients[*i])).sum::<u64>();
        while due_at(next) <= micros(now) {
            let publisher = publishers[next as usize % publishers.len()];
            self.clients[publisher].connection.flow.backlog.push_back(due_at(next));
            next += 1;
        }
        Duration::from_micros(due_at(next) - micros(now))
    }

    /// Closed loop: a message is sent when an earlier one has reached all subscribers.
    fn fill_windows(&mut self, now: Duration, publishers: &[usize]) -> Duration {
        let copies = u64::from(self.plan.copies);
        let window = u64::from(self.options.window.max(1)) * copies;
        for &publisher in publishers {
            let flow = &mut self.clients[publisher].connection.flow;
            let waiting = flow.backlog.len() as u64 * copies;
            let room = window.saturating_sub(flow.undelivered + waiting) / copies;
            flow.backlog.extend((0..room).map(|_| micros(now)));
        }
        Duration::from_millis(20)
    }

    fn send(&mut self, index: usize) -> anyhow::Result<()> {
        let client = &mut self.clients[index];
        if client.stage == Stage::Closed || client.connection.flow.backlog.is_empty() {
            return Ok(());
        }
        let sent = client.connection.send_due();
        client.connection.flow.undelivered += sent * u64::from(self.plan.copies);
        self.counts.sent += sent;
        self.flush(index);
        Ok(())
    }

    fn flush(&mut self, index: usize) {
        if let Err(error) = self.clients[index].connection.stream.flush() {
            self.lost.get_or_insert(error);
            self.close(index);
        }
    }

    fn close(&mut self, index: usize) {
        let client = &mut self.clients[index];
        if client.stage != Stage::Closed {
            client.stage = Stage::Closed;
            self.counts.dropped += 1;
            client.connection.stream.deregister(self.poll.registry());
        }
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
            // Also writes the answers that reading has produced.
            self.flush(index);
        }
        self.events = events;
        Ok(())
    }

    fn read(&mut self, index: usize, is_closing: bool) -> anyhow::Result<()> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let Client { stage, begun, .. } = self.clients[index];
        if stage == Stage::Closed {
            return Ok(());
        }
        let (mut stage_now, mut deliveries) = (stage, Vec::new());
        let client = &mut self.clients[index];
        let role = &self.plan.clients[index];
        let qos = self.options.qos;
        let is_open = client.connection.read(
            &mut scratch,
            is_closing,
            |flow, output, packet| match packet {
                Packet::Publish(publish) => {
                    if let Some(id) = publish.packet_id {
                        let ack = Ack::success(id);
                        let answer = match publish.qos {
                            QoS::ExactlyOnce => Packet::PubRec(ack),
                            _ => Packet::PubAck(ack),
                        };
                        flow.send(&answer, output)?;
                    }
                    deliveries.push(stamp(publish.payload)?);
                    Ok(())
                }
                other => {
                    stage_now = advance(flow, output, role, qos, stage_now, other)?;
                    Ok(())
                }
            },
        )?;
        client.stage = stage_now;
        if stage != Stage::Ready && stage_now == Stage::Ready {
            self.ready += 1;
            self.connect_times.record(micros(begun.elapsed()))?;
        }
        self.deliver(&deliveries)?;
        self.scratch = scratch;
        if !is_open {
            self.close(index);
        }
        Ok(())
    }

    fn deliver(&mut self, deliveries: &[(u64, u32)]) -> anyhow::Result<()> {
        let now = micros(self.begun.elapsed());
        for &(due, publisher) in deliveries {
            self.counts.received += 1;
            if self.counts.measured.contains(&due) {
                self.counts.latencies.record(now.saturating_sub(due).max(1))?;
            }
            let publisher = self.clients.get_mut(publisher as usize);
            let flow =
                &mut publisher.context("received a message of another benchmark")?.connection.flow;
            flow.undelivered = flow.undelivered.saturating_sub(1);
        }
        Ok(())
    }

    fn usage(&self) -> Option<Usage> {
        self.process.as_ref().and_then(Process::usage)
    }
}

fn micros(duration: Duration) -> u64 {
    duration.as_micros() as u64
}
