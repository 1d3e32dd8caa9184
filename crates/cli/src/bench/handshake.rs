//! The way of a connection until it is ready, and the acknowledgements after that.

use anyhow::bail;
use mqtt_proto::{
    Ack, Packet, PacketId, Properties, QoS, Subscribe, SubscribeFilter, SubscribeFiltersBuf,
    SubscriptionOptions,
};

use super::connection::Flow;
use super::scenario::Role;
use crate::client::Failure;

/// Stage of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Connecting,
    Subscribing,
    Ready,
    Closed,
}

/// Handles any packet except PUBLISH, and returns the stage after it.
pub fn advance(
    flow: &mut Flow,
    output: &mut Vec<u8>,
    role: &Role,
    qos: QoS,
    stage: Stage,
    packet: &Packet<'_>,
) -> anyhow::Result<Stage> {
    match packet {
        Packet::ConnAck(connack) if connack.reason.is_error() => {
            bail!(Failure::refused_connection(connack.reason, connack.properties));
        }
        Packet::ConnAck(connack) => {
            flow.receive_maximum = connack.properties.receive_maximum().unwrap_or(u16::MAX);
            let Role::Subscriber(filter) = role else { return Ok(Stage::Ready) };
            let options = SubscriptionOptions { qos, ..SubscriptionOptions::default() };
            let filters = SubscribeFiltersBuf::new([SubscribeFilter { filter, options }])?;
            let subscribe = Packet::Subscribe(Subscribe {
                packet_id: PacketId::MIN,
                properties: Properties::EMPTY,
                filters: filters.as_filters(),
            });
            flow.send(&subscribe, output)?;
            return Ok(Stage::Subscribing);
        }
        Packet::SubAck(suback) if suback.codes.iter().any(|code| *code >= 0x80) => {
            bail!("the broker refused the subscription");
        }
        Packet::SubAck(_) => return Ok(Stage::Ready),
        Packet::PubAck(_) | Packet::PubComp(_) => flow.acknowledged(),
        Packet::PubRec(ack) if ack.reason.is_error() => flow.acknowledged(),
        Packet::PubRec(ack) => flow.send(&Packet::PubRel(Ack::success(ack.packet_id)), output)?,
        Packet::PubRel(ack) => flow.send(&Packet::PubComp(Ack::success(ack.packet_id)), output)?,
        Packet::Disconnect(disconnect) => {
            let what = "the broker ended a connection";
            bail!(Failure::refused(what, disconnect.reason, disconnect.properties));
        }
        _ => {}
    }
    Ok(stage)
}
