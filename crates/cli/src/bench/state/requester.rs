//! A client of the state store: sends requests and checks the answers.

use anyhow::{Context as _, bail};
use mqtt_proto::{
    Ack, Connect, Packet, PacketId, Properties, PropertiesBuf, Property, Publish, QoS, Subscribe,
    SubscribeFilter, SubscribeFiltersBuf, SubscriptionOptions, Version,
};
use statestore_proto::{Command, Condition, Hlc, Reply, properties, topics};

use super::super::connection::take_packets;
use super::super::load::{Dialogue, Heard, KEY, Request, Template, Templates, Verb, put_decimal};
use super::super::target::Target;
use super::Options;
use crate::client::Failure;

/// Correlation Data. The SDKs use a UUID; here it begins with the slot and the number of the request.
const CORRELATION_DATA: [u8; 16] = *b"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFFbrid";

/// Number of digits of the wall clock in a timestamp.
const WALL_DIGITS: usize = 15;

/// Message Expiry Interval of a request, in seconds.
const TIMEOUT: u32 = 10;

pub struct Requester {
    client_id: String,
    user: Option<String>,
    password: Option<String>,
    response_topic: String,
    templates: Templates<Frame>,
    /// Time that stands in the templates.
    unix_ms: u64,
    value_len: usize,
    asked: Box<[Asked]>,
    requests: u64,
}

/// An encoded request, and the positions to patch.
struct Frame {
    template: Template,
    id_at: usize,
    correlation_at: usize,
    /// Present in requests of the SDKs, and in every SET.
    wall_at: Option<usize>,
}

/// State of the request in a slot. It counts as answered once it is also acknowledged, as for users of the
/// SDKs.
#[derive(Clone, Copy)]
struct Asked {
    verb: Verb,
    is_acknowledged: bool,
    is_replied: bool,
    well: bool,
}

impl Requester {
    /// Creates requester number `index`.
    pub fn new(options: &Options, target: &Target, index: u32) -> anyhow::Result<Self> {
        let client_id = format!("bench-{}-{index}", std::process::id());
        let response_topic = format!("clients/{client_id}/services/{}/response", topics::INVOKE);
        let value = vec![b'.'; options.shape.size()];
        let set = Command::Set { key: KEY, value: &value, condition: Condition::Always, ttl: None };
        let frame =
            |command: Command<'_>| Frame::new(command, options, &client_id, &response_topic);
        let templates = Templates { set: frame(set)?, get: frame(Command::Get { key: KEY })? };
        let nothing =
            Asked { verb: Verb::Get, is_acknowledged: true, is_replied: true, well: true };
        Ok(Self {
            user: target.user.clone(),
            password: target.password.clone(),
            templates,
            unix_ms: 0,
            value_len: value.len(),
            asked: vec![nothing; options.shape.in_flight()].into(),
            requests: 0,
            client_id,
            response_topic,
        })
    }

    fn subscribe(&self, output: &mut Vec<u8>) -> anyhow::Result<()> {
        let options = SubscriptionOptions {
            qos: QoS::AtLeastOnce,
            retain_as_published: true,
            ..SubscriptionOptions::default()
        };
        let filter = SubscribeFilter { filter: &self.response_topic, options };
        let filters = SubscribeFiltersBuf::new([filter])?;
        let subscribe = Packet::Subscribe(Subscribe {
            packet_id: PacketId::MAX,
            properties: Properties::EMPTY,
            filters: filters.as_filters(),
        });
        Ok(subscribe.encode(Version::V5, output)?)
    }

    fn set_time(&mut self, unix_ms: u64) {
        let mut digits = [0; WALL_DIGITS];
        put_decimal(&mut digits, unix_ms);
        for Frame { template, wall_at, .. } in [&mut self.templates.set, &mut self.templates.get] {
            if let Some(at) = *wall_at {
                template.set(at, &digits);
            }
        }
        self.unix_ms = unix_ms;
    }
}

impl Dialogue for Requester {
    fn open(&mut self, output: &mut Vec<u8>) -> anyhow::Result<()> {
        let connect = Packet::Connect(Connect {
            version: Version::V5,
            is_bridge: false,
            clean_start: true,
            keep_alive: 0,
            client_id: &self.client_id,
            will: None,
            username: self.user.as_deref(),
            password: self.password.as_deref().map(str::as_bytes),
            properties: Properties::EMPTY,
        });
        Ok(connect.encode(Version::V5, output)?)
    }

    fn ask(&mut self, slot: usize, request: Request, unix_ms: u64, output: &mut Vec<u8>) {
        if unix_ms != self.unix_ms {
            self.set_time(unix_ms);
        }
        let Request { verb, key } = request;
        let Frame { template, id_at, correlation_at, .. } = self.templates.of(verb);
        let frame = template.append(key, output);
        frame[*id_at..id_at + 2].copy_from_slice(&(slot as u16 + 1).to_be_bytes());
        frame[*correlation_at..correlation_at + 4].copy_from_slice(&(slot as u32).to_be_bytes());
        let number_at = correlation_at + 4;
        frame[number_at..number_at + 8].copy_from_slice(&self.requests.to_be_bytes());
        self.requests += 1;
        self.asked[slot] = Asked { verb, is_acknowledged: false, is_replied: false, well: true };
    }

    fn hear(
        &mut self,
        input: &[u8],
        output: &mut Vec<u8>,
        mut heard: impl FnMut(Heard),
    ) -> anyhow::Result<usize> {
        take_packets(Version::V5, input, |packet| {
            let (slot, is_over) = match packet {
                Packet::PubAck(ack) => {
                    let slot = usize::from(ack.packet_id.get()) - 1;
                    let asked = self.asked.get_mut(slot).context(STRANGE)?;
                    asked.is_acknowledged = true;
                    asked.well &= !ack.reason.is_error();
                    // A request that is refused as a message gets no response.
                    (slot, asked.is_replied || ack.reason.is_error())
                }
                Packet::Publish(publish) => {
                    if let Some(id) = publish.packet_id {
                        Packet::PubAck(Ack::success(id)).encode(Version::V5, output)?;
                    }
                    let correlation = publish.properties.correlation_data().context(STRANGE)?;
                    let slot = *correlation.first_chunk().context(STRANGE)?;
                    let slot = u32::from_be_bytes(slot) as usize;
                    let asked = self.asked.get_mut(slot).context(STRANGE)?;
                    asked.is_replied = true;
                    asked.well &= match (asked.verb, Reply::decode(publish.payload)) {
                        (Verb::Set, Some(Reply::Ok)) => true,
                        (Verb::Get, Some(Reply::Value(value))) => value.len() == self.value_len,
                        _ => false,
                    };
                    (slot, asked.is_acknowledged)
                }
                Packet::ConnAck(connack) if connack.reason.is_error() => {
                    bail!(Failure::refused_connection(connack.reason, connack.properties));
                }
                Packet::ConnAck(_) => return self.subscribe(output),
                Packet::SubAck(suback) if suback.codes.iter().any(|code| *code >= 0x80) => {
                    bail!("the broker refused the subscription");
                }
                Packet::SubAck(_) => {
                    heard(Heard::Ready);
                    return Ok(());
                }
                Packet::Disconnect(disconnect) => {
                    let what = "the broker ended a connection";
                    bail!(Failure::refused(what, disconnect.reason, disconnect.properties));
                }
                _ => return Ok(()),
            };
            if is_over {
                heard(Heard::Answered { slot, well: self.asked[slot].well });
            }
            Ok(())
        })
    }
}

const STRANGE: &str = "the broker sent a response that matches no request";

impl Frame {
    fn new(
        command: Command<'_>,
        options: &Options,
        client_id: &str,
        response_topic: &str,
    ) -> anyhow::Result<Self> {
        let mut payload = Vec::new();
        command.encode(&mut payload);
        let timestamp = Hlc { wall: 0, counter: 0, node: client_id }.to_string();
        let mut all = PropertiesBuf::new();
        let mut push = |property| all.push(property);
        push(Property::ResponseTopic(response_topic))?;
        push(Property::CorrelationData(&CORRELATION_DATA))?;
        let has_timestamp = !options.plain || matches!(command, Command::Set { .. });
        if has_timestamp {
            push(Property::UserProperty(properties::TIMESTAMP, &timestamp))?;
        }
        if !options.plain {
            push(Property::MessageExpiryInterval(TIMEOUT))?;
            push(Property::ContentType("application/octet-stream"))?;
            push(Property::UserProperty(properties::SOURCE_ID, client_id))?;
            push(Property::UserProperty(properties::PROTOCOL_VERSION, "1.0"))?;
            push(Property::UserProperty("$partition", client_id))?;
            push(Property::UserProperty("$high_priority", ""))?;
        }
        let mut frame = Vec::new();
        let publish = Packet::Publish(Publish {
            dup: false,
            qos: QoS::AtLeastOnce,
            retain: false,
            topic: topics::INVOKE,
            packet_id: Some(PacketId::MIN),
            properties: all.as_properties(),
            payload: &payload,
        });
        publish.encode(Version::V5, &mut frame)?;
        let template = Template::new(frame)?;
        let wall_at = has_timestamp.then(|| template.find(timestamp.as_bytes())).transpose()?;
        Ok(Self {
            // The request topic itself comes first; the response topic, which contains it, follows.
            id_at: template.find(topics::INVOKE.as_bytes())? + topics::INVOKE.len(),
            correlation_at: template.find(&CORRELATION_DATA)?,
            wall_at,
            template,
        })
    }
}
