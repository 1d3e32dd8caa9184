//! Packets and frames in a stream of bytes.

use barid_amqp::frame::{AMQP_HEADER, HEADER_SIZE};
use barid_engine::tapping::Protocol;
use mqtt_proto::FixedHeader;

/// Number of bytes of a packet that traces of clients show. The rest is counted.
pub const HEAD_MAX: usize = 16 * 1024;

/// Finds packets in bytes that arrive in pieces.
#[derive(Debug)]
pub struct Framer {
    protocol: Protocol,
    /// Number of bytes of a packet that are kept.
    kept: usize,
    /// The beginning of the present packet.
    head: Vec<u8>,
    /// The length of the present packet; `None`: not known yet.
    length: Option<usize>,
    /// Bytes of it that have arrived.
    arrived: usize,
    /// The bytes are no packets, and are not looked at any more.
    is_lost: bool,
}

impl Framer {
    /// Creates a framer that keeps this many bytes of each packet.
    pub fn new(protocol: Protocol, kept: usize) -> Self {
        Self { protocol, kept, head: Vec::new(), length: None, arrived: 0, is_lost: false }
    }

    /// Passes the beginning and the length of each packet that ends in `bytes` to `each`.
    pub fn feed(&mut self, mut bytes: &[u8], mut each: impl FnMut(&[u8], usize)) {
        while !bytes.is_empty() && !self.is_lost {
            let Some(length) = self.length else {
                self.head.push(bytes[0]);
                (self.arrived, bytes) = (self.arrived + 1, &bytes[1..]);
                match length(self.protocol, &self.head) {
                    Ok(length) => self.length = length,
                    Err(()) => self.is_lost = true,
                }
                self.end(&mut each);
                continue;
            };
            let (now, rest) = bytes.split_at(bytes.len().min(length - self.arrived));
            let kept = now.len().min(self.kept.saturating_sub(self.head.len()));
            self.head.extend_from_slice(&now[..kept]);
            (self.arrived, bytes) = (self.arrived + now.len(), rest);
            self.end(&mut each);
        }
    }

    fn end(&mut self, each: &mut impl FnMut(&[u8], usize)) {
        if let Some(length) = self.length.filter(|length| *length == self.arrived) {
            each(&self.head, length);
            self.head.clear();
            self.head.shrink_to(1024);
            (self.length, self.arrived) = (None, 0);
        }
    }
}

/// Returns the length of the packet that begins with `head`; `None` if that is too short to know.
fn length(protocol: Protocol, head: &[u8]) -> Result<Option<usize>, ()> {
    match protocol {
        Protocol::Mqtt(_) => match FixedHeader::read(head, usize::MAX) {
            Ok(header) => Ok(header.map(|header| header.packet_len())),
            Err(_) => Err(()),
        },
        // Protocol headers are no frames.
        Protocol::Amqp if head.starts_with(&AMQP_HEADER[..4]) => Ok(Some(HEADER_SIZE)),
        Protocol::Amqp => barid_amqp::frame::length(head).map_err(|_| ()),
    }
}

#[cfg(test)]
mod tests {
    use mqtt_proto::Version;

    use super::*;

    fn packets(protocol: Protocol, pieces: &[&[u8]]) -> Vec<(Vec<u8>, usize)> {
        let (mut framer, mut found) = (Framer::new(protocol, HEAD_MAX), Vec::new());
        for piece in pieces {
            framer.feed(piece, |head, length| found.push((head.to_vec(), length)));
        }
        found
    }

    #[test]
    fn packets_are_found_in_pieces_of_any_size() {
        let stream = [&[0xC0, 0][..], &[0x40, 2, 0, 7], &[0xD0, 0]].concat();
        let expected = [(vec![0xC0, 0], 2), (vec![0x40, 2, 0, 7], 4), (vec![0xD0, 0], 2)];
        for size in 1..=stream.len() {
            let pieces: Vec<_> = stream.chunks(size).collect();
            assert_eq!(packets(Protocol::Mqtt(Version::V5), &pieces), expected, "{size}");
        }
    }

    #[test]
    fn of_a_long_packet_the_beginning_is_kept() {
        let mut packet = vec![0x30];
        packet.extend([0x80, 0x80, 0x04]); // 65,536 bytes
        packet.resize(4 + 65_536, b'x');
        packet.extend([0xD0, 0]);
        let found = packets(Protocol::Mqtt(Version::V5), &[&packet]);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].0.len(), found[0].1), (HEAD_MAX, 4 + 65_536));
        assert_eq!(found[1], (vec![0xD0, 0], 2));
    }

    #[test]
    fn frames_follow_a_protocol_header() {
        let mut stream = AMQP_HEADER.to_vec();
        barid_amqp::frame::encode_empty(&mut stream);
        let lengths: Vec<_> =
            packets(Protocol::Amqp, &[&stream]).into_iter().map(|(_, length)| length).collect();
        assert_eq!(lengths, [8, 8]);
    }

    #[test]
    fn bytes_that_are_no_packets_end_it() {
        assert_eq!(packets(Protocol::Mqtt(Version::V5), &[&[0x00, 0, 0xC0, 0]]), []);
        assert_eq!(packets(Protocol::Amqp, &[&[0, 0, 0, 1, 0, 0, 0, 0]]), []);
    }
}
