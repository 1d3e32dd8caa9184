//! One MQTT connection driven by one thread: sends and receives packets, and keeps the connection
//! alive.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use mqtt_proto::flow::InboundAliases;
use mqtt_proto::{
    Ack, ConnAck, Connect, DecodeError, Disconnect, FixedHeader, MAX_PACKET_LEN, Packet, PacketId,
    PropertiesBuf, Property, PropertyId, QoS, ReasonCode, Version, Will,
};

use super::args::Target;
use super::failure::Failure;
use super::stream::Stream;

const READ_BYTES: usize = 64 * 1024;

/// Properties of the connection that the broker granted.
#[derive(Clone, Debug)]
pub struct Session {
    /// Whether the broker had a session of this client.
    pub present: bool,
    /// Client identifier, chosen by the client or by the broker.
    pub client_id: String,
    /// Maximum number of QoS 1 and 2 messages that may be unacknowledged at once.
    pub receive_maximum: u16,
    /// Maximum size of a packet to the broker, in bytes.
    pub max_packet_size: usize,
    /// Highest QoS that the broker accepts.
    pub maximum_qos: QoS,
    /// Whether the broker keeps retained messages.
    pub retain_available: bool,
}

/// A packet that arrived.
pub struct Frame {
    version: Version,
    header: FixedHeader,
    bytes: Vec<u8>,
    /// Topic of a PUBLISH that carries only a Topic Alias.
    aliased: Option<String>,
}

impl Frame {
    /// Decodes the packet.
    ///
    /// # Errors
    /// The broker sent a malformed packet.
    pub fn packet(&self) -> anyhow::Result<Packet<'_>> {
        let body = &self.bytes[self.header.header_len..];
        let mut packet = Packet::decode(self.version, self.header, body)
            .context("the broker sent a malformed packet")?;
        if let (Packet::Publish(publish), Some(topic)) = (&mut packet, &self.aliased) {
            publish.topic = topic;
        }
        Ok(packet)
    }
}

/// A connection that the broker has accepted.
pub struct Connection {
    stream: Stream,
    version: Version,
    keep_alive: Duration,
    last_sent: Instant,
    ping_unanswered_since: Option<Instant>,
    next_packet_id: PacketId,
    aliases: InboundAliases,
    debug: bool,
    input: Vec<u8>,
    /// Number of bytes at the front of `input` that are consumed.
    taken: usize,
    output: Vec<u8>,
}

impl Connection {
    /// Connects to `target` and waits for the CONNACK.
    ///
    /// # Errors
    /// A network error, or a [`Failure`] if the broker refuses or does not answer.
    pub fn open(target: &Target) -> anyhow::Result<(Self, Session)> {
        let stream = Stream::connect(&target.address, target.timeout)?;
        let asked = target.properties.connect.as_properties();
        let mut connection = Self {
            stream,
            version: target.version,
            keep_alive: target.keep_alive,
            last_sent: Instant::now(),
            ping_unanswered_since: None,
            next_packet_id: PacketId::MIN,
            aliases: InboundAliases::new(asked.topic_alias_maximum().unwrap_or(0)),
            debug: target.debug,
            input: Vec::new(),
            taken: 0,
            output: Vec::new(),
        };
        connection.send_connect(target)?;
        let deadline = Instant::now() + target.timeout;
        let frame = connection
            .receive(deadline)
            .map_err(|error| {
                let is_lost = error.to_string() == LOST;
                if error.is::<DecodeError>() {
                    error
                        .context("the answer is not MQTT; is it a port for TLS, WebSocket or HTTP?")
                } else if is_lost {
                    error.context(
                        "the broker closed the connection without an answer; is it a port for TLS, \
                         WebSocket (--ws) or HTTP?",
                    )
                } else {
                    error
                }
            })?
            .ok_or(Failure::Timeout("the broker did not answer the CONNECT in time"))?;
        let Packet::ConnAck(connack) = frame.packet()? else {
            bail!("the broker answered the CONNECT with a packet other than CONNACK");
        };
        let session = connection.accept(target, &connack)?;
        Ok((connection, session))
    }

    fn send_connect(&mut self, target: &Target) -> anyhow::Result<()> {
        let mut properties = target.properties.connect.clone();
        let asked = properties.as_properties();
        if asked.session_expiry_interval().is_none() && target.session_expiry > 0 {
            properties.push(Property::SessionExpiryInterval(target.session_expiry))?;
        }
        self.send(&Packet::Connect(Connect {
            version: target.version,
            is_bridge: false,
            clean_start: target.clean_start,
            keep_alive: target.keep_alive.as_secs() as u16,
            client_id: &target.client_id,
            will: target.will.as_ref().map(|will| Will {
                qos: will.qos,
                retain: will.retain,
                topic: &will.topic,
                payload: will.payload.as_bytes(),
                properties: target.properties.will.as_properties(),
            }),
            username: target.username.as_deref(),
            password: target.password.as_deref().map(str::as_bytes),
            properties: properties.as_properties(),
        }))
    }

    fn accept(&mut self, target: &Target, connack: &ConnAck<'_>) -> anyhow::Result<Session> {
        let granted = connack.properties;
        if connack.reason.is_error() {
            bail!(Failure::refused_connection(connack.reason, granted));
        }
        if let Some(seconds) = granted.server_keep_alive() {
            self.keep_alive = Duration::from_secs(seconds.into());
        }
        let client_id = granted.assigned_client_identifier().unwrap_or(&target.client_id);
        Ok(Session {
            present: connack.session_present,
            client_id: client_id.into(),
            receive_maximum: granted.receive_maximum().unwrap_or(u16::MAX),
            max_packet_size: granted
                .maximum_packet_size()
                .map_or(MAX_PACKET_LEN, |bytes| bytes as usize),
            maximum_qos: granted.maximum_qos().unwrap_or(QoS::ExactlyOnce),
            retain_available: granted.retain_available().unwrap_or(true),
        })
    }

    /// Returns the next Packet Identifier; the identifiers wrap around.
    pub fn packet_id(&mut self) -> PacketId {
        let id = self.next_packet_id;
        self.next_packet_id = id.next();
        id
    }

    /// Sends `packet`.
    pub fn send(&mut self, packet: &Packet<'_>) -> anyhow::Result<()> {
        self.output.clear();
        packet.encode(self.version, &mut self.output)?;
        self.log("sent", packet);
        self.stream.write_all(&self.output).context(LOST)?;
        self.stream.flush().context(LOST)?;
        self.last_sent = Instant::now();
        Ok(())
    }

    /// Sends a PUBACK, PUBREC, PUBREL or PUBCOMP with the reason code Success.
    pub fn acknowledge(
        &mut self,
        kind: fn(Ack<'static>) -> Packet<'static>,
        packet_id: PacketId,
    ) -> anyhow::Result<()> {
        self.send(&kind(Ack::success(packet_id)))
    }

    /// Whether input was read that `receive` has not returned yet.
    pub fn has_input(&self) -> bool {
        self.taken < self.input.len()
    }

    /// Waits until `deadline` for a packet, and keeps the connection alive meanwhile. Returns
    /// `None` at the deadline or after a signal.
    ///
    /// # Errors
    /// The connection is lost, or the broker ended it ([`Failure`]).
    pub fn receive(&mut self, deadline: Instant) -> anyhow::Result<Option<Frame>> {
        loop {
            while let Some(frame) = self.take_frame()? {
                match frame.packet()? {
                    Packet::PingResp => self.ping_unanswered_since = None,
                    Packet::Disconnect(Disconnect { reason, properties }) => {
                        bail!(Failure::refused(
                            "the broker ended the connection",
                            reason,
                            properties
                        ))
                    }
                    _ => return Ok(Some(frame)),
                }
            }
            let now = Instant::now();
            let wake = self.keep_alive(now)?.map_or(deadline, |ping| ping.min(deadline));
            self.stream.set_read_timeout(wake.saturating_duration_since(now))?;
            match self.read() {
                Ok(0) => bail!(LOST),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(None),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    if Instant::now() >= deadline {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(error).context(LOST),
            }
        }
    }

    fn read(&mut self) -> io::Result<usize> {
        self.input.drain(..self.taken);
        self.taken = 0;
        let filled = self.input.len();
        self.input.resize(filled + READ_BYTES, 0);
        let read = self.stream.read(&mut self.input[filled..]);
        self.input.truncate(filled + read.as_ref().map_or(0, |n| *n));
        read
    }

    /// Removes the first whole packet from the input.
    fn take_frame(&mut self) -> anyhow::Result<Option<Frame>> {
        let malformed = "the broker sent a malformed packet";
        let input = &self.input[self.taken..];
        let Some(header) = FixedHeader::read(input, MAX_PACKET_LEN).context(malformed)? else {
            return Ok(None);
        };
        let Some(bytes) = input.get(..header.packet_len()).map(<[u8]>::to_vec) else {
            return Ok(None);
        };
        self.taken += bytes.len();
        let mut frame = Frame { version: self.version, header, bytes, aliased: None };
        let packet = frame.packet()?;
        self.log("received", &packet);
        if let Packet::Publish(publish) = &packet
            && let alias @ Some(_) = publish.properties.topic_alias()
        {
            let topic = self.aliases.resolve(alias, publish.topic).context(malformed)?.to_owned();
            frame.aliased = Some(topic);
        }
        Ok(Some(frame))
    }

    /// Sends a PINGREQ if one is due, and returns when the next one will be.
    fn keep_alive(&mut self, now: Instant) -> anyhow::Result<Option<Instant>> {
        if self.keep_alive.is_zero() {
            return Ok(None);
        }
        if let Some(since) = self.ping_unanswered_since
            && now > since + self.keep_alive
        {
            bail!(Failure::Timeout("the broker does not answer pings"));
        }
        if now >= self.last_sent + self.keep_alive {
            self.send(&Packet::PingReq)?;
            self.ping_unanswered_since.get_or_insert(now);
        }
        Ok(Some(self.last_sent + self.keep_alive))
    }

    /// Sends a DISCONNECT. An error at this point no longer matters.
    pub fn disconnect(mut self, properties: &PropertiesBuf) {
        let disconnect =
            Disconnect { reason: ReasonCode::Success, properties: properties.as_properties() };
        let _ = self.send(&Packet::Disconnect(disconnect));
    }

    fn log(&self, direction: &str, packet: &Packet<'_>) {
        if !self.debug {
            return;
        }
        let name = packet.packet_type().name();
        match packet {
            Packet::Publish(publish) => eprintln!(
                "{direction} {name} (dup {}, QoS {}, retain {}, packet id {}, topic '{}', {} bytes)",
                u8::from(publish.dup),
                publish.qos as u8,
                u8::from(publish.retain),
                publish.packet_id.map_or(0, PacketId::get),
                publish.topic,
                publish.payload.len(),
            ),
            Packet::ConnAck(connack) => eprintln!(
                "{direction} {name} ({}, session present {}){}",
                connack.reason,
                u8::from(connack.session_present),
                listed(connack.properties.iter()),
            ),
            Packet::PubAck(ack)
            | Packet::PubRec(ack)
            | Packet::PubRel(ack)
            | Packet::PubComp(ack) => {
                eprintln!("{direction} {name} (packet id {}, {})", ack.packet_id.get(), ack.reason);
            }
            Packet::Connect(connect) => {
                eprintln!("{direction} {name} (client identifier '{}')", connect.client_id);
            }
            Packet::Disconnect(disconnect) => {
                eprintln!("{direction} {name} ({})", disconnect.reason)
            }
            _ => eprintln!("{direction} {name}"),
        }
    }
}

const LOST: &str = "the connection to the broker is lost";

fn listed<'a>(properties: impl Iterator<Item = Property<'a>>) -> String {
    properties
        .filter(|property| property.id() != PropertyId::AuthenticationData)
        .map(|property| format!(", {property:?}"))
        .collect()
}
