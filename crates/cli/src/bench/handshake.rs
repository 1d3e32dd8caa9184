//! From connecting to being ready, and the acknowledgements after that.

use anyhow::bail;
use mqtt_proto::{
    Ack, Packet, PacketId, Properties, QoS, Subscribe, SubscribeFilter, SubscriptionOptions,
};

use super::connection::Connection;
use super::scenario::Role;
use crate::client::Failure;

/// Where a connection is on its way to being ready.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Connecting,
    Subscribing,
    Ready,
    Closed,
}

/// Handles everything but a PUBLISH: the stage after it.
pub fn advance(
    connection: &mut Connection,
    role: &Role,
    qos: QoS,
    stage: Stage,
    packet: &Packet<'_>,
) -> anyhow::Result<Stage> {
    match packet {
        Packet::ConnAck(connack) if connack.reason.is_error() => {
            let what = "the broker refused the connection";
            bail!(Failure::refused(what, connack.reason, connack.properties));
        }
        Packet::ConnAck(connack) => {
            connection.receive_maximum = connack.properties.receive_maximum().unwrap_or(u16::MAX);
            let Role::Subscriber(filter) = role else { return Ok(Stage::Ready) };
            let options = SubscriptionOptions { qos, ..SubscriptionOptions::default() };
            connection.send(&Packet::Subscribe(Subscribe {
                packet_id: PacketId::MIN,
                properties: Properties::EMPTY,
                filters: vec![SubscribeFilter { filter, options }],
            }))?;
            return Ok(Stage::Subscribing);
        }
        Packet::SubAck(suback) if suback.codes.iter().any(|code| *code >= 0x80) => {
            bail!("the broker refused the subscription");
        }
        Packet::SubAck(_) => return Ok(Stage::Ready),
        Packet::PubAck(_) | Packet::PubComp(_) => connection.acknowledged(),
        Packet::PubRec(ack) if ack.reason.is_error() => connection.acknowledged(),
        Packet::PubRec(ack) => connection.send(&Packet::PubRel(Ack::success(ack.packet_id)))?,
        Packet::PubRel(ack) => connection.send(&Packet::PubComp(Ack::success(ack.packet_id)))?,
        Packet::Disconnect(disconnect) => {
            let what = "the broker ended a connection";
            bail!(Failure::refused(what, disconnect.reason, disconnect.properties));
        }
        _ => {}
    }
    Ok(stage)
}
