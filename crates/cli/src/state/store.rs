//! A client of the state store: requests, responses, and notifications about watched keys.
//!
//! A request is a PUBLISH with a Response Topic of this client and Correlation Data. It is done
//! when both its PUBACK and its response have arrived, in either order.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, anyhow, bail};
use mqtt_proto::{
    Packet, PropertiesBuf, Property, Publish, QoS, ReasonCode, RetainHandling, Subscribe,
    SubscribeFilter, SubscribeFiltersBuf, SubscriptionOptions, topic,
};
use statestore_proto::{Command, Hlc, Notification, Reply, Version, properties, topics};

use super::refused::Refused;
use crate::client::{Connection, Failure, Session, Target};

/// A connection on which requests are sent one after the other.
pub struct Store {
    target: Target,
    connection: Connection,
    session: Session,
    response_topic: String,
    clock: Clock,
    requests: u64,
    changes: VecDeque<Change>,
}

/// Options of a request besides its command.
#[derive(Clone, Copy, Default)]
pub struct Extras<'a> {
    /// Fencing token.
    pub fencing: Option<&'a str>,
    /// Whether the key must outlive the broker's process.
    pub persist: bool,
}

/// A response that is not a refusal.
pub struct Answer {
    payload: Vec<u8>,
    /// Version of the key.
    pub version: Option<String>,
}

/// A change of a watched key.
#[derive(Debug)]
pub struct Change {
    pub key: Vec<u8>,
    /// `None` if the key was deleted or has expired.
    pub value: Option<Vec<u8>>,
    pub version: Option<String>,
}

impl Store {
    /// Connects, and subscribes to the responses.
    pub fn connect(target: &Target) -> anyhow::Result<Self> {
        Self::open(target, false)
    }

    /// Connects, and subscribes to the responses and to the notifications about watched keys.
    pub fn connect_to_watch(target: &Target) -> anyhow::Result<Self> {
        Self::open(target, true)
    }

    fn open(target: &Target, watches: bool) -> anyhow::Result<Self> {
        let (connection, session) = Connection::open(target).map_err(|error| {
            let refused = error
                .chain()
                .filter_map(|cause| cause.downcast_ref::<io::Error>())
                .any(|error| error.kind() == io::ErrorKind::ConnectionRefused);
            match refused {
                true => anyhow!(
                    "{error:#}\n  hint: is a broker running there? `barid serve` starts one; see -h and -p"
                ),
                false => error,
            }
        })?;
        let client_id = &session.client_id;
        let response_topic = format!("clients/{client_id}/services/{}/response", topics::INVOKE);
        topic::validate_name(&response_topic).with_context(|| {
            format!("the client identifier `{client_id}` cannot be part of a topic; choose another with -i")
        })?;
        let mut store = Self {
            target: target.clone(),
            connection,
            clock: Clock::of(client_id),
            session,
            response_topic,
            requests: 0,
            changes: VecDeque::new(),
        };
        store.subscribe(watches)?;
        Ok(store)
    }

    /// Returns the client identifier, chosen by the client or by the broker.
    pub fn client_id(&self) -> &str {
        &self.session.client_id
    }

    fn subscribe(&mut self, watches: bool) -> anyhow::Result<()> {
        let mut filters = vec![self.response_topic.clone()];
        if watches {
            filters.push(topics::notify_filter(self.client_id()));
        }
        let options = SubscriptionOptions {
            qos: QoS::AtLeastOnce,
            no_local: false,
            retain_as_published: false,
            retain_handling: RetainHandling::DoNotSend,
        };
        let packet_id = self.connection.packet_id();
        let wanted = filters.iter().map(|filter| SubscribeFilter { filter, options });
        self.connection.send(&Packet::Subscribe(Subscribe {
            packet_id,
            properties: self.target.properties.subscribe.as_properties(),
            filters: SubscribeFiltersBuf::new(wanted)?.as_filters(),
        }))?;
        let deadline = Instant::now() + self.target.timeout;
        loop {
            let Some(frame) = self.connection.receive(deadline)? else {
                in_time(deadline, "the broker did not answer the SUBSCRIBE in time")?;
                continue;
            };
            match frame.packet()? {
                Packet::SubAck(suback) if suback.packet_id == packet_id => {
                    for (filter, code) in filters.iter().zip(suback.codes) {
                        let code =
                            ReasonCode::from_u8(*code).unwrap_or(ReasonCode::UnspecifiedError);
                        if code.is_error() {
                            let what = format!("the subscription to {filter} was refused");
                            bail!(Failure::refused(what, code, suback.properties));
                        }
                    }
                    return Ok(());
                }
                // A message that remained in a continued session.
                Packet::Publish(publish) => self.acknowledge(&publish)?,
                _ => {}
            }
        }
    }

    /// Sends `command` to the store and waits for the answer.
    ///
    /// # Errors
    /// A [`Refused`] if the store refuses, a [`Failure`] if the broker does not let the request
    /// through.
    pub fn request(&mut self, command: &Command<'_>, extras: Extras<'_>) -> anyhow::Result<Answer> {
        let correlation = self.correlation();
        let properties = self.properties(&correlation, extras)?;
        let mut payload = Vec::new();
        command.encode(&mut payload);
        let packet_id = self.connection.packet_id();
        self.publish(&Packet::Publish(Publish {
            dup: false,
            qos: QoS::AtLeastOnce,
            retain: false,
            topic: topics::INVOKE,
            packet_id: Some(packet_id),
            properties: properties.as_properties(),
            payload: &payload,
        }))?;

        let deadline = Instant::now() + self.target.timeout;
        let mut is_acknowledged = false;
        let mut answer = None;
        loop {
            if is_acknowledged && let Some(answer) = answer.take() {
                return accept(answer, command);
            }
            let Some(frame) = self.connection.receive(deadline)? else {
                in_time(
                    deadline,
                    "the state store did not answer in time; does this broker have one?",
                )?;
                continue;
            };
            match frame.packet()? {
                Packet::PubAck(ack) if ack.packet_id == packet_id => {
                    if ack.reason.is_error() {
                        let what = format!("a request to {} was refused", topics::INVOKE);
                        bail!(Failure::refused(what, ack.reason, ack.properties));
                    }
                    is_acknowledged = true;
                }
                Packet::Publish(publish) => {
                    self.acknowledge(&publish)?;
                    let is_ours = publish.topic == self.response_topic
                        && publish.properties.correlation_data() == Some(&correlation[..]);
                    if is_ours {
                        answer = Some(Response::of(&publish));
                    } else {
                        self.note(&publish);
                    }
                }
                _ => {}
            }
        }
    }

    /// Returns the next change of the watched keys; `None` if there is none until `until`, or if a
    /// signal arrived.
    pub fn change(&mut self, until: Instant) -> anyhow::Result<Option<Change>> {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return Ok(Some(change));
            }
            let Some(frame) = self.connection.receive(until)? else { return Ok(None) };
            if let Packet::Publish(publish) = frame.packet()? {
                self.acknowledge(&publish)?;
                self.note(&publish);
            }
        }
    }

    /// Disconnects.
    pub fn disconnect(self) {
        self.connection.disconnect(&self.target.properties.disconnect);
    }

    /// Returns Correlation Data that differs for each request of this client, those of earlier
    /// processes included.
    fn correlation(&mut self) -> [u8; 16] {
        self.requests += 1;
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut data = [0; 16];
        data[..8].copy_from_slice(&(since_epoch.as_nanos() as u64).to_be_bytes());
        data[8..].copy_from_slice(&self.requests.to_be_bytes());
        data
    }

    fn properties(
        &mut self,
        correlation: &[u8],
        extras: Extras<'_>,
    ) -> anyhow::Result<PropertiesBuf> {
        let timestamp = self.clock.read(milliseconds_since_epoch());
        let expiry = u32::try_from(self.target.timeout.as_secs()).unwrap_or(u32::MAX).max(1);
        let mut buf = PropertiesBuf::new();
        buf.push(Property::ResponseTopic(&self.response_topic))?;
        buf.push(Property::CorrelationData(correlation))?;
        // A request that nobody waits for any more should not be carried out.
        buf.push(Property::MessageExpiryInterval(expiry))?;
        buf.push(Property::UserProperty(properties::TIMESTAMP, &timestamp))?;
        buf.push(Property::UserProperty(properties::SOURCE_ID, &self.session.client_id))?;
        buf.push(Property::UserProperty(properties::PROTOCOL_VERSION, "1.0"))?;
        if let Some(token) = extras.fencing {
            buf.push(Property::UserProperty(properties::FENCING_TOKEN, token))?;
        }
        if extras.persist {
            buf.push(Property::UserProperty(properties::PERSIST, "true"))?;
        }
        Ok(buf)
    }

    fn publish(&mut self, packet: &Packet<'_>) -> anyhow::Result<()> {
        let mut bytes = Vec::new();
        packet.encode(self.target.version, &mut bytes)?;
        if bytes.len() > self.session.max_packet_size {
            let what = format!("a request of {} bytes", bytes.len());
            let properties = mqtt_proto::Properties::EMPTY;
            bail!(Failure::refused(what, ReasonCode::PacketTooLarge, properties));
        }
        self.connection.send(packet)
    }

    fn acknowledge(&mut self, publish: &Publish<'_>) -> anyhow::Result<()> {
        match publish.packet_id {
            Some(packet_id) if publish.qos == QoS::AtLeastOnce => {
                self.connection.acknowledge(Packet::PubAck, packet_id)
            }
            _ => Ok(()),
        }
    }

    /// Keeps a notification about a watched key; other messages are ignored.
    fn note(&mut self, publish: &Publish<'_>) {
        let Some(key) = topics::key_of(publish.topic) else { return };
        let value = match Notification::decode(publish.payload) {
            Some(Notification::Set(value)) => Some(value.to_vec()),
            Some(Notification::Delete) => None,
            None => return,
        };
        let version = user_property(publish, properties::TIMESTAMP).map(Into::into);
        self.changes.push_back(Change { key, value, version });
    }
}

impl Answer {
    /// Returns the decoded answer.
    pub fn reply(&self) -> Reply<'_> {
        Reply::decode(&self.payload).expect("it was read before")
    }
}

/// A response as it was received.
struct Response {
    payload: Vec<u8>,
    version: Option<String>,
    status: Option<String>,
}

impl Response {
    fn of(publish: &Publish<'_>) -> Self {
        let text = |name| user_property(publish, name).map(String::from);
        Self {
            payload: publish.payload.to_vec(),
            version: text(properties::TIMESTAMP),
            status: text(properties::STATUS),
        }
    }
}

fn accept(response: Response, command: &Command<'_>) -> anyhow::Result<Answer> {
    let Response { payload, version, status } = response;
    if let Some(status) = status.filter(|status| status != properties::STATUS_OK) {
        bail!("the state store answered with status {status}");
    }
    match Reply::decode(&payload) {
        Some(Reply::Refused(refusal)) => bail!(Refused::new(refusal, command)),
        Some(_) => Ok(Answer { payload, version }),
        None => bail!(
            "the state store sent an unknown answer: {}",
            String::from_utf8_lossy(&payload).escape_debug()
        ),
    }
}

/// Returns the error for an answer that does not fit the command.
pub fn unexpected(reply: &Reply<'_>) -> anyhow::Error {
    anyhow!("the answer of the state store does not fit the request: {reply:?}")
}

fn user_property<'a>(publish: &Publish<'a>, name: &str) -> Option<&'a str> {
    publish.properties.user_properties().find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// Fails at the deadline. Before it, the caller continues a wait that a signal ended early.
fn in_time(deadline: Instant, failure: &'static str) -> anyhow::Result<()> {
    match Instant::now() >= deadline {
        true => bail!(Failure::Timeout(failure)),
        false => Ok(()),
    }
}

/// Hybrid logical clock that stamps the requests. It does not follow the store's clock, because the
/// store's versions are greater in any case.
struct Clock {
    last: Version,
    node: String,
}

impl Clock {
    /// Creates a clock whose node is the client identifier, with colons replaced: a node must not
    /// contain any.
    fn of(client_id: &str) -> Self {
        Self { last: Version::default(), node: client_id.replace(':', "-") }
    }

    /// Returns the next reading, greater than all before.
    fn read(&mut self, now_ms: u64) -> String {
        self.last = self.last.next(now_ms, None);
        Hlc { wall: self.last.wall, counter: self.last.counter, node: &self.node }.to_string()
    }
}

fn milliseconds_since_epoch() -> u64 {
    let since: Duration = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_only_goes_forward() {
        let mut clock = Clock::of("a:b");
        assert_eq!(clock.read(1_696_374_425_000), "001696374425000:00000:a-b");
        assert_eq!(clock.read(1_696_374_425_000), "001696374425000:00001:a-b");
        assert_eq!(clock.read(1_696_374_424_999), "001696374425000:00002:a-b");
        assert_eq!(clock.read(1_696_374_425_001), "001696374425001:00000:a-b");
    }

    #[test]
    fn answers() {
        let command = Command::Get { key: b"k" };
        let accept = |payload: &[u8], status: Option<&str>| {
            let status = status.map(String::from);
            accept(Response { payload: payload.to_vec(), version: None, status }, &command)
        };
        assert_eq!(accept(b"$1\r\na\r\n", Some("200")).unwrap().reply(), Reply::Value(b"a"));
        assert_eq!(accept(b"$-1\r\n", None).unwrap().reply(), Reply::Absent);
        for (payload, status, expected) in [
            (&b"-ERR not authorized\r\n"[..], "200", "GET `k` was refused: not authorized"),
            (b"-ERR odd\r\n", "200", r"sent an unknown answer: -ERR odd\r\n"),
            (b"", "200", "sent an unknown answer"),
            (b"$1\r\na\r\n", "500", "answered with status 500"),
        ] {
            let error = format!("{:#}", accept(payload, Some(status)).err().unwrap());
            assert!(error.contains(expected), "{error}");
        }
        assert!(accept(b"-ERR syntax error\r\n", None).err().unwrap().is::<Refused>());
    }
}
