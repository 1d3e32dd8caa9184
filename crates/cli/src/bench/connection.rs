//! One connection of the benchmark: a socket that never blocks, with its buffers.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read as _, Write as _};

use anyhow::{Context as _, bail};
use mio::net::TcpStream;
use mqtt_proto::{
    FixedHeader, MAX_PACKET_LEN, Packet, PacketId, Properties, Publish, QoS, Version,
};

/// What each read asks the kernel for.
const READ_BYTES: usize = 64 * 1024;

/// Above this much unwritten output a publisher waits for the socket.
const OUTPUT_BYTES: usize = 256 * 1024;

/// Payloads begin with the microsecond at which they were due and the number of their publisher.
pub const STAMP_BYTES: usize = 12;

pub struct Connection {
    pub socket: TcpStream,
    version: Version,
    input: Vec<u8>,
    output: Vec<u8>,
    written: usize,
    /// The one message this client publishes.
    template: Option<Template>,
    /// Messages of QoS 1 and 2 that wait for an acknowledgement.
    unacknowledged: u16,
    /// So many of them the broker allows.
    pub receive_maximum: u16,
    next_id: PacketId,
    /// When the messages were due that are not sent yet.
    pub backlog: VecDeque<u64>,
    /// Deliveries of our messages that have not arrived yet.
    pub undelivered: u64,
}

/// An encoded PUBLISH and where to patch it.
struct Template {
    frame: Vec<u8>,
    qos: QoS,
    stamp_at: usize,
}

impl Connection {
    pub fn new(socket: TcpStream, version: Version) -> Self {
        Self {
            socket,
            version,
            input: Vec::new(),
            output: Vec::new(),
            written: 0,
            template: None,
            unacknowledged: 0,
            receive_maximum: u16::MAX,
            next_id: PacketId::MIN,
            backlog: VecDeque::new(),
            undelivered: 0,
        }
    }

    /// Makes this the publisher number `index`, of messages of `size` bytes to `topic`.
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

    /// Queues `packet` for writing.
    pub fn send(&mut self, packet: &Packet<'_>) -> anyhow::Result<()> {
        Ok(packet.encode(self.version, &mut self.output)?)
    }

    /// Queues what is due, as long as the broker and the socket keep up. Answers how many.
    pub fn send_due(&mut self) -> u64 {
        let Some(Template { frame, qos, stamp_at }) = &self.template else { return 0 };
        let mut sent = 0;
        while self.output.len() - self.written < OUTPUT_BYTES
            && (*qos == QoS::AtMostOnce || self.unacknowledged < self.receive_maximum)
            && let Some(due) = self.backlog.pop_front()
        {
            let start = self.output.len();
            self.output.extend_from_slice(frame);
            let stamp = start + stamp_at;
            self.output[stamp..stamp + 8].copy_from_slice(&due.to_be_bytes());
            if *qos != QoS::AtMostOnce {
                // The Packet Identifier is followed, in MQTT 5, by the empty properties.
                let id_at = stamp - 2 - usize::from(self.version.is_v5());
                self.output[id_at..id_at + 2].copy_from_slice(&self.next_id.get().to_be_bytes());
                self.next_id = self.next_id.next();
                self.unacknowledged += 1;
            }
            sent += 1;
        }
        sent
    }

    /// A message of ours is acknowledged for good.
    pub fn acknowledged(&mut self) {
        self.unacknowledged = self.unacknowledged.saturating_sub(1);
    }

    /// Writes as much as the socket takes.
    pub fn flush(&mut self) -> io::Result<()> {
        while self.written < self.output.len() {
            match self.socket.write(&self.output[self.written..]) {
                Ok(n) => self.written += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_not_ready(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        self.written = 0;
        Ok(())
    }

    /// Reads all there is, and hands every packet to `handle`. Answers whether the connection is
    /// still open.
    ///
    /// After a read that was not filled there is nothing more, and the call that would say so is
    /// spared. Not so if the connection `is_closing`: its end makes no second event.
    pub fn read(
        &mut self,
        scratch: &mut Vec<u8>,
        is_closing: bool,
        mut handle: impl FnMut(&mut Self, &Packet<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<bool> {
        scratch.resize(READ_BYTES, 0);
        loop {
            let read = match self.socket.read(scratch) {
                Ok(0) => return Ok(false),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if is_not_ready(&error) => return Ok(true),
                Err(_) => return Ok(false),
            };
            // Almost always the packets lie whole in what was read.
            if self.input.is_empty() {
                let taken = self.take_packets(&scratch[..read], &mut handle)?;
                self.input.extend_from_slice(&scratch[taken..read]);
            } else {
                let mut input = std::mem::take(&mut self.input);
                input.extend_from_slice(&scratch[..read]);
                let taken = self.take_packets(&input, &mut handle)?;
                input.drain(..taken);
                self.input = input;
            }
            if read < scratch.len() && !is_closing {
                return Ok(true);
            }
        }
    }

    fn take_packets(
        &mut self,
        bytes: &[u8],
        handle: &mut impl FnMut(&mut Self, &Packet<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<usize> {
        let malformed = "the broker sent a malformed packet";
        let mut taken = 0;
        while let Some(header) =
            FixedHeader::read(&bytes[taken..], MAX_PACKET_LEN).context(malformed)?
        {
            let Some(frame) = bytes[taken..].get(..header.packet_len()) else { break };
            let packet = Packet::decode(self.version, header, &frame[header.header_len..])
                .context(malformed)?;
            taken += frame.len();
            handle(self, &packet)?;
        }
        Ok(taken)
    }
}

fn is_not_ready(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected)
}

/// The moment and the publisher that a payload begins with.
pub fn stamp(payload: &[u8]) -> anyhow::Result<(u64, u32)> {
    let (Some(due), Some(publisher)) = (payload.first_chunk(), payload.get(8..STAMP_BYTES)) else {
        bail!("somebody else publishes to the topics bench/…");
    };
    let publisher = publisher.try_into().context("four bytes were taken")?;
    Ok((u64::from_be_bytes(*due), u32::from_be_bytes(publisher)))
}
