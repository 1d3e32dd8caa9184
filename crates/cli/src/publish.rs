//! `barid pub`: publishes messages, in the manner of mosquitto_pub.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, Read as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::ArgGroup;
use mqtt_proto::{Packet, PacketId, Publish, QoS, ReasonCode, topic};

use crate::client::{ConnectArgs, Connection, Failure, Session, Target, parse_qos};
use crate::span;

/// Publish messages, in the manner of mosquitto_pub
#[derive(clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  barid pub -t sensors/kitchen -m 21.5
  barid pub -t config/kitchen -q 1 -r -f config.json
  dmesg -w | barid pub -t logs/kernel -l
  barid pub -L mqtts://user:password@broker.example/status -m up --cafile ca.pem
  barid pub -t jobs -m run -q 1 -D publish response-topic done -D publish user-property id 7

Exit status: 0 all is published and, with QoS 1 and 2, acknowledged; 1 an error; 2 wrong usage;
3 the broker refused; 27 the broker did not answer in time."
)]
#[command(group = ArgGroup::new("source").required(true))]
pub struct Args {
    /// Topic to publish to
    #[arg(short, long, required_unless_present = "url")]
    topic: Option<String>,
    /// Message text
    #[arg(short, long, value_name = "TEXT", group = "source", allow_hyphen_values = true)]
    message: Option<String>,
    /// Send the content of a file as one message
    #[arg(short, long, value_name = "FILE", group = "source")]
    file: Option<PathBuf>,
    /// Send a message without payload; with -r it removes the retained message
    #[arg(short, long, group = "source")]
    null_message: bool,
    /// Send all of standard input as one message
    #[arg(short, long, group = "source")]
    stdin_file: bool,
    /// Send each line of standard input as a message
    #[arg(short = 'l', long, group = "source")]
    stdin_line: bool,
    /// Quality of Service: 0, 1 or 2
    #[arg(short, long, value_parser = parse_qos, default_value = "0")]
    qos: QoS,
    /// Retain the message for clients that subscribe later
    #[arg(short, long)]
    retain: bool,
    /// Number of times to publish the message
    #[arg(long, value_name = "COUNT", default_value_t = 1, conflicts_with = "stdin_line")]
    repeat: u64,
    /// Time between two repetitions: seconds, such as 0.5, or 500ms, 5m
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = span::parse,
        requires = "repeat")]
    repeat_delay: Duration,
    /// Maximum number of unacknowledged QoS 1 and 2 messages
    #[arg(short = 'M', long, value_name = "COUNT", default_value_t = 20)]
    max_inflight: u16,
    /// Print nothing but errors that end the program
    #[arg(long)]
    quiet: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    #[command(flatten)]
    connect: ConnectArgs,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let target = args.connect.target()?;
    let name = args.topic.as_ref().or(target.topic.as_ref());
    let name = name.context("the URL has no topic; name one with -t")?;
    if target.properties.publish.as_properties().topic_alias().is_some() {
        bail!("-D publish topic-alias: barid pub does not use topic aliases");
    }
    topic::validate_name(name).with_context(|| format!("-t {name}"))?;
    let delay = args.repeat_delay;
    let payload = payload(args)?;

    let mut publisher = Publisher::connect(args, &target, name)?;
    match payload {
        Some(payload) => {
            for i in 0..args.repeat {
                if i > 0 && !delay.is_zero() {
                    publisher.wait(Instant::now() + delay)?;
                }
                publisher.publish(&payload)?;
            }
        }
        None => publish_lines(&mut publisher)?,
    }
    publisher.finish(&target)
}

/// Returns the one message to send; `None` if the lines of standard input are the messages.
fn payload(args: &Args) -> anyhow::Result<Option<Vec<u8>>> {
    Ok(Some(if let Some(text) = &args.message {
        text.clone().into_bytes()
    } else if let Some(file) = &args.file {
        std::fs::read(file).with_context(|| format!("-f {}", file.display()))?
    } else if args.stdin_file {
        let mut bytes = Vec::new();
        io::stdin().read_to_end(&mut bytes).context("reading standard input")?;
        bytes
    } else if args.stdin_line {
        return Ok(None);
    } else {
        Vec::new()
    }))
}

/// Publishes the lines of standard input. A separate thread reads, so that acknowledgements and
/// pings continue while no input arrives.
fn publish_lines(publisher: &mut Publisher<'_>) -> anyhow::Result<()> {
    let (sender, lines) = mpsc::sync_channel(1_024);
    std::thread::spawn(move || {
        for line in io::stdin().lock().split(b'\n') {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    loop {
        match lines.recv_timeout(Duration::from_millis(200)) {
            Ok(line) => {
                let mut line = line.context("reading standard input")?;
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                publisher.publish(&line)?;
            }
            Err(RecvTimeoutError::Timeout) => publisher.wait(Instant::now())?,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

/// Packet that a message of QoS 1 or 2 waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Awaited {
    Ack,
    Rec,
    Comp,
}

struct Publisher<'a> {
    connection: Connection,
    session: Session,
    topic: &'a str,
    args: &'a Args,
    target: &'a Target,
    in_flight: BTreeMap<PacketId, Awaited>,
    refused: u64,
}

impl<'a> Publisher<'a> {
    fn connect(args: &'a Args, target: &'a Target, topic: &'a str) -> anyhow::Result<Self> {
        let (connection, session) = Connection::open(target)?;
        if args.qos > session.maximum_qos {
            let properties = mqtt_proto::Properties::EMPTY;
            bail!(Failure::refused("-q", ReasonCode::QoSNotSupported, properties));
        }
        if args.retain && !session.retain_available {
            let properties = mqtt_proto::Properties::EMPTY;
            bail!(Failure::refused("-r", ReasonCode::RetainNotSupported, properties));
        }
        let in_flight = BTreeMap::new();
        Ok(Self { connection, session, topic, args, target, in_flight, refused: 0 })
    }

    fn publish(&mut self, payload: &[u8]) -> anyhow::Result<()> {
        let packet_id = match self.args.qos {
            QoS::AtMostOnce => None,
            _ => Some(self.free_packet_id()?),
        };
        let packet = Packet::Publish(Publish {
            dup: false,
            qos: self.args.qos,
            retain: self.args.retain,
            topic: self.topic,
            packet_id,
            properties: self.target.properties.publish.as_properties(),
            payload,
        });
        let mut bytes = Vec::with_capacity(payload.len() + self.topic.len() + 16);
        packet.encode(self.target.version, &mut bytes)?;
        if bytes.len() > self.session.max_packet_size {
            let what = format!("a packet of {} bytes", bytes.len());
            let properties = mqtt_proto::Properties::EMPTY;
            bail!(Failure::refused(what, ReasonCode::PacketTooLarge, properties));
        }
        self.connection.send(&packet)?;
        if let Some(packet_id) = packet_id {
            let awaited = match self.args.qos {
                QoS::ExactlyOnce => Awaited::Rec,
                _ => Awaited::Ack,
            };
            self.in_flight.insert(packet_id, awaited);
        }
        Ok(())
    }

    /// Returns an unused Packet Identifier, after waiting for room in the window.
    fn free_packet_id(&mut self) -> anyhow::Result<PacketId> {
        let window = self.session.receive_maximum.min(self.args.max_inflight.max(1));
        while self.in_flight.len() >= usize::from(window) {
            self.handle_answer()?;
        }
        loop {
            let packet_id = self.connection.packet_id();
            if !self.in_flight.contains_key(&packet_id) {
                return Ok(packet_id);
            }
        }
    }

    /// Handles all packets that arrive before `until`.
    fn wait(&mut self, until: Instant) -> anyhow::Result<()> {
        loop {
            while let Some(frame) = self.connection.receive(until)? {
                self.handle(&frame.packet()?)?;
            }
            // A signal may have ended the wait early.
            if Instant::now() >= until {
                return Ok(());
            }
        }
    }

    fn handle_answer(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + self.target.timeout;
        loop {
            if let Some(frame) = self.connection.receive(deadline)? {
                return self.handle(&frame.packet()?);
            }
            if Instant::now() >= deadline {
                bail!(Failure::Timeout("the broker did not acknowledge in time"));
            }
        }
    }

    fn handle(&mut self, packet: &Packet<'_>) -> anyhow::Result<()> {
        let (ack, awaited) = match packet {
            Packet::PubAck(ack) => (ack, Awaited::Ack),
            Packet::PubRec(ack) => (ack, Awaited::Rec),
            Packet::PubComp(ack) => (ack, Awaited::Comp),
            // A continued session may have subscriptions that an earlier program made.
            _ => return Ok(()),
        };
        if self.in_flight.get(&ack.packet_id) != Some(&awaited) {
            return Ok(());
        }
        if ack.reason.is_error() {
            self.in_flight.remove(&ack.packet_id);
            self.refused += 1;
            if !self.args.quiet {
                let what = format!("a message to {} was refused", self.topic);
                eprintln!("barid: {}", Failure::refused(what, ack.reason, ack.properties));
            }
        } else if awaited == Awaited::Rec {
            self.connection.acknowledge(Packet::PubRel, ack.packet_id)?;
            self.in_flight.insert(ack.packet_id, Awaited::Comp);
        } else {
            self.in_flight.remove(&ack.packet_id);
            if ack.reason == ReasonCode::NoMatchingSubscribers && self.args.connect.debug() {
                eprintln!("nobody subscribes to {}", self.topic);
            }
        }
        Ok(())
    }

    fn finish(mut self, target: &Target) -> anyhow::Result<ExitCode> {
        while !self.in_flight.is_empty() {
            let missing = self.in_flight.len();
            self.handle_answer()
                .with_context(|| format!("messages not acknowledged: {missing}"))?;
        }
        self.connection.disconnect(&target.properties.disconnect);
        Ok(if self.refused == 0 { ExitCode::SUCCESS } else { ExitCode::from(3) })
    }
}
