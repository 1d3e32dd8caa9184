//! One connection of the benchmark, and its messages in flight.

use std::collections::VecDeque;

use anyhow::{Context as _, bail};
use mqtt_proto::{
    FixedHeader, MAX_PACKET_LEN, Packet, PacketId, Properties, Publish, QoS, Version,
};

use super::stream::Stream;

/// Unwritten output, in bytes, above which a publisher waits for the socket.
const OUTPUT_BYTES: usize = 256 * 1024;

/// Size of a payload's stamp in bytes: the microsecond at which the message was due, and the
/// publisher's number.
pub const STAMP_BYTES: usize = 12;

pub struct Connection {
    pub stream: Stream,
    pub flow: Flow,
}

/// The messages that a client publishes, and their progress.
pub struct Flow {
    version: Version,
    /// The message that this client publishes, again and again.
    template: Option<Template>,
    /// Number of QoS 1 and 2 messages that wait for an acknowledgement.
    unacknowledged: u16,
    /// Maximum of `unacknowledged` that the broker allows.
    pub receive_maximum: u16,
    next_id: PacketId,
    /// Times at which the messages that are not yet sent were due.
    pub backlog: VecDeque<u64>,
    /// Number of deliveries of this client's messages that have not arrived yet.
    pub undelivered: u64,
}

/// An encoded PUBLISH, and the position of its stamp.
struct Template {
    frame: Vec<u8>,
    qos: QoS,
    stamp_at: usize,
}

impl Connection {
    pub fn new(stream: Stream, version: Version) -> Self {
        let flow = Flow {
            version,
            template: None,
            unacknowledged: 0,
            receive_maximum: u16::MAX,
            next_id: PacketId::MIN,
            backlog: VecDeque::new(),
            undelivered: 0,
        };
        Self { stream, flow }
    }

    /// Queues `packet` for writing.
    pub fn send(&mut self, packet: &Packet<'_>) -> anyhow::Result<()> {
        self.flow.send(packet, &mut self.stream.output)
    }

    /// Queues the messages that are due, as long as the broker and the socket keep up. Returns
    /// their number.
    pub fn send_due(&mut self) -> u64 {
        let Self { stream, flow } = self;
        let Some(Template { frame, qos, stamp_at }) = &flow.template else { return 0 };
        let mut sent = 0;
        while stream.unwritten() < OUTPUT_BYTES
            && (*qos == QoS::AtMostOnce || flow.unacknowledged < flow.receive_maximum)
            && let Some(due) = flow.backlog.pop_front()
        {
            let output = &mut stream.output;
            let stamp = output.len() + stamp_at;
            output.extend_from_slice(frame);
            output[stamp..stamp + 8].copy_from_slice(&due.to_be_bytes());
            if *qos != QoS::AtMostOnce {
                // The Packet Identifier is followed, in MQTT 5, by the empty properties.
                let id_at = stamp - 2 - usize::from(flow.version.is_v5());
                output[id_at..id_at + 2].copy_from_slice(&flow.next_id.get().to_be_bytes());
                flow.next_id = flow.next_id.next();
                flow.unacknowledged += 1;
            }
            sent += 1;
        }
        sent
    }

    /// Reads all input, and passes every packet to `handle`, together with the buffer for answers.
    /// Returns whether the connection is still open.
    pub fn read(
        &mut self,
        scratch: &mut Vec<u8>,
        is_closing: bool,
        mut handle: impl FnMut(&mut Flow, &mut Vec<u8>, &Packet<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<bool> {
        let Self { stream, flow } = self;
        stream.read(scratch, is_closing, |stream, bytes| {
            take_packets(flow.version, bytes, |packet| handle(flow, &mut stream.output, packet))
        })
    }
}

impl Flow {
    /// Makes this client publisher number `index`, of messages of `size` bytes to `topic`.
    pub fn publish_to(
        &mut self,
        topic: &str,
        qos: QoS,
        size: usize,
        index: u32,
    ) -> anyhow::Result<()> {
        let mut payload = vec![b'.'; size];
        payload[8..STAMP_BYTES].copy_from_slice(&index.to_be_bytes());
        let mut frame = Vec::new();
        let packet = Packet::Publish(Publish {
            dup: false,
            qos,
            retain: false,
            topic,
            packet_id: (qos != QoS::AtMostOnce).then_some(PacketId::MIN),
            properties: Properties::EMPTY,
            payload: &payload,
        });
        packet.encode(self.version, &mut frame)?;
        let stamp_at = frame.len() - size;
        self.template = Some(Template { frame, qos, stamp_at });
        Ok(())
    }

    /// Appends `packet`.
    pub fn send(&self, packet: &Packet<'_>, output: &mut Vec<u8>) -> anyhow::Result<()> {
        Ok(packet.encode(self.version, output)?)
    }

    /// Notes that a message was acknowledged completely.
    pub fn acknowledged(&mut self) {
        self.unacknowledged = self.unacknowledged.saturating_sub(1);
    }
}

/// Passes every whole packet at the front of `bytes` to `handle`. Returns the number of bytes
/// taken.
pub fn take_packets(
    version: Version,
    bytes: &[u8],
    mut handle: impl FnMut(&Packet<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<usize> {
    let malformed = "the broker sent a malformed packet";
    let mut taken = 0;
    while let Some(header) =
        FixedHeader::read(&bytes[taken..], MAX_PACKET_LEN).context(malformed)?
    {
        let Some(frame) = bytes[taken..].get(..header.packet_len()) else { break };
        let packet =
            Packet::decode(version, header, &frame[header.header_len..]).context(malformed)?;
        taken += frame.len();
        handle(&packet)?;
    }
    Ok(taken)
}

/// Returns the time and the publisher that a payload begins with.
pub fn stamp(payload: &[u8]) -> anyhow::Result<(u64, u32)> {
    let (Some(due), Some(publisher)) = (payload.first_chunk(), payload.get(8..STAMP_BYTES)) else {
        bail!("another client publishes to the topics bench/…");
    };
    let publisher = publisher.try_into().context("four bytes were taken")?;
    Ok((u64::from_be_bytes(*due), u32::from_be_bytes(publisher)))
}
