//! The subscriber: connects, subscribes, prints and acknowledges messages, and reconnects.

use std::collections::BTreeSet;
use std::io::{self, BufWriter, Stdout, Write as _};
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;
use mqtt_proto::{
    Packet, PacketId, Publish, QoS, ReasonCode, RetainHandling, Subscribe, SubscribeFilter,
    SubscribeFiltersBuf, SubscriptionOptions, Unsubscribe, UnsubscribeFiltersBuf, topic,
};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::Args;
use super::format::Format;
use crate::client::{Connection, Failure, Frame, Session, Target};
use crate::timestamp::Timestamp;

/// Longest wait; a signal is noticed after it.
const WAIT: Duration = Duration::from_secs(1);

/// First and longest pause before connecting again; each pause is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

pub struct Subscriber<'a> {
    args: &'a Args,
    target: Target,
    filters: Vec<String>,
    format: Format,
    out: BufWriter<Stdout>,
    stop: Arc<AtomicBool>,
    deadline: Option<Instant>,
    printed: u64,
    /// Packet Identifiers of QoS 2 messages that were printed and are not yet released.
    received: BTreeSet<PacketId>,
    /// Whether the subscriptions have been granted once.
    subscribed: bool,
}

/// Exit status of a subscriber that ends without an error.
type End = ExitCode;

impl<'a> Subscriber<'a> {
    pub fn new(
        args: &'a Args,
        target: Target,
        filters: Vec<String>,
        format: Format,
    ) -> anyhow::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // The second signal ends the program immediately.
            signal_hook::flag::register_conditional_shutdown(signal, 130, stop.clone())?;
            signal_hook::flag::register(signal, stop.clone())?;
        }
        Ok(Self {
            args,
            target,
            filters,
            format,
            out: BufWriter::new(io::stdout()),
            stop,
            deadline: args.timeout.map(|timeout| Instant::now() + timeout),
            printed: 0,
            received: BTreeSet::new(),
            subscribed: false,
        })
    }

    /// Runs until there is a reason to exit.
    pub fn run(mut self) -> anyhow::Result<ExitCode> {
        let mut pause = FIRST_PAUSE;
        loop {
            let subscribed_before = self.subscribed;
            self.subscribed = false;
            let error = match self.run_once() {
                Ok(end) => return Ok(end),
                Err(error) if is_broken_pipe(&error) => return Ok(ExitCode::SUCCESS),
                Err(error) => error,
            };
            if self.subscribed {
                pause = FIRST_PAUSE;
            }
            self.subscribed |= subscribed_before;
            let lasting =
                error.downcast_ref().is_some_and(|failure: &Failure| !failure.is_temporary());
            // A connection that never worked will hardly work in a second.
            if lasting || !self.subscribed || self.args.no_reconnect {
                return Err(error);
            }
            eprintln!("barid: {error:#}\nbarid: connecting again in {} ms", pause.as_millis());
            if let Some(end) = self.sleep(pause) {
                return Ok(end);
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn run_once(&mut self) -> anyhow::Result<End> {
        let (mut connection, session) = Connection::open(&self.target)?;
        self.resume(&session);
        let end = self.serve(&mut connection);
        self.out.flush()?;
        let end = end?;
        connection.disconnect(&self.target.properties.disconnect);
        Ok(end)
    }

    /// Makes the next connection continue the session, if the session may outlive its connection.
    fn resume(&mut self, session: &Session) {
        if !session.present {
            self.received.clear();
        }
        if self.target.session_expiry > 0 {
            self.target.clean_start = false;
            self.target.client_id.clone_from(&session.client_id);
        }
    }

    fn serve(&mut self, connection: &mut Connection) -> anyhow::Result<End> {
        if !self.args.unsubscribe.is_empty() {
            self.unsubscribe(connection)?;
        }
        if let ControlFlow::Break(end) = self.subscribe(connection)? {
            return Ok(end);
        }
        self.subscribed = true;
        if self.args.exit_after_subscribing {
            return Ok(ExitCode::SUCCESS);
        }
        loop {
            match self.next(connection)? {
                ControlFlow::Break(end) => return Ok(end),
                ControlFlow::Continue(frame) => {
                    if let ControlFlow::Break(end) = self.handle(connection, &frame.packet()?)? {
                        return self.complete(connection, end);
                    }
                }
            }
        }
    }

    fn unsubscribe(&mut self, connection: &mut Connection) -> anyhow::Result<()> {
        let filters = self.args.unsubscribe.iter().map(String::as_str);
        connection.send(&Packet::Unsubscribe(Unsubscribe {
            packet_id: PacketId::MAX,
            properties: self.target.properties.unsubscribe.as_properties(),
            filters: UnsubscribeFiltersBuf::new(filters)?.as_filters(),
        }))
    }

    /// Subscribes, and waits for the SUBACK. Messages may arrive before it.
    fn subscribe(&mut self, connection: &mut Connection) -> anyhow::Result<ControlFlow<End>> {
        let options = SubscriptionOptions {
            qos: self.args.qos,
            no_local: self.args.no_local,
            retain_as_published: self.args.retain_as_published,
            retain_handling: if self.args.no_retained {
                RetainHandling::DoNotSend
            } else {
                RetainHandling::SendAtSubscribe
            },
        };
        let packet_id = PacketId::MIN;
        let filters = self.filters.iter().map(|filter| SubscribeFilter { filter, options });
        connection.send(&Packet::Subscribe(Subscribe {
            packet_id,
            properties: self.target.properties.subscribe.as_properties(),
            filters: SubscribeFiltersBuf::new(filters)?.as_filters(),
        }))?;
        let deadline = Instant::now() + self.target.timeout;
        while Instant::now() < deadline {
            let frame = match self.next_until(connection, deadline)? {
                ControlFlow::Break(end) => return Ok(ControlFlow::Break(end)),
                ControlFlow::Continue(None) => continue,
                ControlFlow::Continue(Some(frame)) => frame,
            };
            match frame.packet()? {
                Packet::SubAck(suback) if suback.packet_id == packet_id => {
                    let properties = suback.properties;
                    let granted = suback.codes.iter().map(|code| ReasonCode::from_u8(*code));
                    for (filter, code) in self.filters.iter().zip(granted) {
                        let code = code.unwrap_or(ReasonCode::UnspecifiedError);
                        if code.is_error() {
                            let what = format!("the subscription to {filter} was refused");
                            bail!(Failure::refused(what, code, properties));
                        }
                    }
                    return Ok(ControlFlow::Continue(()));
                }
                packet => {
                    if let ControlFlow::Break(end) = self.handle(connection, &packet)? {
                        return self.complete(connection, end).map(ControlFlow::Break);
                    }
                }
            }
        }
        bail!(Failure::Timeout("the broker did not answer the SUBSCRIBE in time"))
    }

    fn next(&mut self, connection: &mut Connection) -> anyhow::Result<ControlFlow<End, Frame>> {
        loop {
            let wait = Instant::now() + WAIT;
            match self.next_until(connection, wait)? {
                ControlFlow::Break(end) => return Ok(ControlFlow::Break(end)),
                ControlFlow::Continue(Some(frame)) => return Ok(ControlFlow::Continue(frame)),
                ControlFlow::Continue(None) => {}
            }
        }
    }

    fn next_until(
        &mut self,
        connection: &mut Connection,
        until: Instant,
    ) -> anyhow::Result<ControlFlow<End, Option<Frame>>> {
        if let Some(end) = self.end() {
            return Ok(ControlFlow::Break(end));
        }
        if !connection.has_input() {
            self.out.flush()?;
        }
        let until = self.deadline.map_or(until, |deadline| deadline.min(until));
        connection.receive(until).map(ControlFlow::Continue)
    }

    fn handle(
        &mut self,
        connection: &mut Connection,
        packet: &Packet<'_>,
    ) -> anyhow::Result<ControlFlow<End>> {
        match packet {
            Packet::Publish(publish) => self.handle_publish(connection, publish),
            Packet::PubRel(ack) => {
                self.received.remove(&ack.packet_id);
                connection.acknowledge(Packet::PubComp, ack.packet_id)?;
                Ok(ControlFlow::Continue(()))
            }
            _ => Ok(ControlFlow::Continue(())),
        }
    }

    fn handle_publish(
        &mut self,
        connection: &mut Connection,
        publish: &Publish<'_>,
    ) -> anyhow::Result<ControlFlow<End>> {
        let is_new = match (publish.qos, publish.packet_id) {
            (QoS::ExactlyOnce, Some(packet_id)) => self.received.insert(packet_id),
            _ => true,
        };
        let end = if is_new { self.print(publish)? } else { ControlFlow::Continue(()) };
        if is_new && self.args.remove_retained && publish.retain {
            connection.send(&Packet::Publish(Publish {
                dup: false,
                qos: QoS::AtMostOnce,
                retain: true,
                topic: publish.topic,
                packet_id: None,
                properties: mqtt_proto::Properties::EMPTY,
                payload: &[],
            }))?;
        }
        // Messages are acknowledged only after they were printed.
        if publish.qos != QoS::AtMostOnce {
            self.out.flush()?;
        }
        match (publish.qos, publish.packet_id) {
            (QoS::AtLeastOnce, Some(packet_id)) => {
                connection.acknowledge(Packet::PubAck, packet_id)?;
            }
            (QoS::ExactlyOnce, Some(packet_id)) => {
                connection.acknowledge(Packet::PubRec, packet_id)?;
            }
            _ => {}
        }
        Ok(end)
    }

    fn print(&mut self, publish: &Publish<'_>) -> anyhow::Result<ControlFlow<End>> {
        if self.args.retained_only && !publish.retain {
            return Ok(ControlFlow::Break(ExitCode::SUCCESS));
        }
        let hidden = (self.args.no_retained && publish.retain)
            || self.args.filter_out.iter().any(|filter| topic::matches(filter, publish.topic));
        if hidden {
            return Ok(ControlFlow::Continue(()));
        }
        self.format.write(publish, Timestamp::now(), &mut self.out)?;
        if !self.args.no_eol {
            self.out.write_all(b"\n")?;
        }
        self.printed += 1;
        let is_last = self.args.count == Some(self.printed);
        Ok(if is_last { ControlFlow::Break(ExitCode::SUCCESS) } else { ControlFlow::Continue(()) })
    }

    /// Waits briefly for the PUBREL of printed QoS 2 messages, so that the broker does not keep
    /// them.
    fn complete(&mut self, connection: &mut Connection, end: End) -> anyhow::Result<End> {
        let deadline = Instant::now() + WAIT;
        while !self.received.is_empty() && Instant::now() < deadline {
            if let Some(frame) = connection.receive(deadline)?
                && let Packet::PubRel(ack) = frame.packet()?
            {
                self.received.remove(&ack.packet_id);
                connection.acknowledge(Packet::PubComp, ack.packet_id)?;
            }
        }
        Ok(end)
    }

    /// Returns the exit status if a signal or the time-out ends the program.
    fn end(&self) -> Option<End> {
        if self.stop.load(Ordering::Relaxed) {
            return Some(ExitCode::SUCCESS);
        }
        let is_late = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        is_late.then(|| ExitCode::from(27))
    }

    fn sleep(&self, pause: Duration) -> Option<End> {
        let until = Instant::now() + pause;
        while self.end().is_none() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(50));
        }
        self.end()
    }
}

/// Whether the reader of the output has closed it, as with `barid sub … | head`.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .root_cause()
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
        && error.chain().count() == 1
}
