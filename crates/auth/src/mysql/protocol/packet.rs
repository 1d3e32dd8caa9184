//! Packets, and the fields in them.

use std::io;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};

use super::Error;
use crate::remote::printable;
use crate::remote::stream::Stream;

/// Maximum length of a packet that is read, in bytes. The longest valid one is a row with a name, a password
/// hash and rights.
pub(super) const PACKET_MAX: usize = 192 * 1024;

/// First bytes of packets.
const OK: u8 = 0x00;
const EOF: u8 = 0xfe;
const ERR: u8 = 0xff;

/// The packets of a connection.
pub(super) struct Packets {
    stream: BufReader<Stream>,
    /// Sequence number of the next packet in either direction.
    sequence: u8,
    /// Number of bytes that the server may still send in this answer.
    budget: usize,
}

impl Packets {
    /// Continues a connection whose next packet has the number `sequence`.
    pub(super) fn new(stream: Stream, sequence: u8) -> Self {
        Self { stream: BufReader::new(stream), sequence, budget: 0 }
    }

    /// Lets the server send up to `bytes` for what follows.
    pub(super) fn allow(&mut self, bytes: usize) {
        self.budget = bytes;
    }

    /// Sends a command, to which the server may answer with up to `answer_max` bytes.
    pub(super) async fn command(&mut self, payload: &[u8], answer_max: usize) -> Result<(), Error> {
        self.sequence = 0;
        self.allow(answer_max);
        self.send(payload).await
    }

    /// Sends a packet.
    pub(super) async fn send(&mut self, payload: &[u8]) -> Result<(), Error> {
        let framed = frame(payload, self.sequence)?;
        self.sequence = self.sequence.wrapping_add(1);
        self.stream.write_all(&framed).await?;
        self.stream.flush().await?;
        Ok(())
    }

    /// Receives a packet. An error of the server is an error here.
    pub(super) async fn receive(&mut self) -> Result<Vec<u8>, Error> {
        let packet = receive(&mut self.stream, &mut self.sequence, &mut self.budget).await?;
        match packet.first() {
            None => Err(Error::Malformed("a packet is empty")),
            Some(&ERR) => Err(server_error(&packet)),
            Some(_) => Ok(packet),
        }
    }

    /// Receives the packet after a list of definitions.
    pub(super) async fn receive_end(&mut self) -> Result<(), Error> {
        match is_end(&self.receive().await?) {
            true => Ok(()),
            false => Err(Error::Malformed("a list does not end")),
        }
    }

    /// Receives the answer to a command without a result.
    pub(super) async fn receive_ok(&mut self) -> Result<(), Error> {
        match self.receive().await?.first() {
            Some(&OK) => Ok(()),
            _ => Err(Error::Malformed("expected the packet OK")),
        }
    }
}

/// Returns a packet with its header.
pub(super) fn frame(payload: &[u8], sequence: u8) -> Result<Vec<u8>, Error> {
    if payload.len() > PACKET_MAX {
        return Err(Error::TooLarge("a request"));
    }
    let length = u32::try_from(payload.len()).map_err(|_| Error::TooLarge("a request"))?;
    let mut framed = Vec::with_capacity(4 + payload.len());
    framed.extend_from_slice(&length.to_le_bytes()[..3]);
    framed.push(sequence);
    framed.extend_from_slice(payload);
    Ok(framed)
}

/// Receives a packet. Memory grows with the bytes that arrive, not with the declared length.
pub(super) async fn receive(
    stream: &mut (impl tokio::io::AsyncRead + Unpin),
    sequence: &mut u8,
    budget: &mut usize,
) -> Result<Vec<u8>, Error> {
    let mut header = [0; 4];
    stream.read_exact(&mut header).await?;
    let [low, middle, high, number] = header;
    if number != *sequence {
        return Err(Error::Malformed("a packet has the wrong number"));
    }
    *sequence = sequence.wrapping_add(1);
    let length = usize::from(low) | usize::from(middle) << 8 | usize::from(high) << 16;
    if length > PACKET_MAX {
        return Err(Error::TooLarge("a packet, such as a row"));
    }
    *budget = budget.checked_sub(length + header.len()).ok_or(Error::TooLarge("all packets"))?;
    let mut packet = Vec::new();
    let declared = length as u64;
    if stream.take(declared).read_to_end(&mut packet).await? < length {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    Ok(packet)
}

/// Whether a packet ends a list of definitions or rows.
pub(super) fn is_end(packet: &[u8]) -> bool {
    packet.first() == Some(&EOF) && packet.len() < 9
}

/// Parses the packet of an error. Before the handshake it has no SQL state.
pub(super) fn server_error(packet: &[u8]) -> Error {
    let mut fields = Fields(packet);
    let parsed = (|| {
        fields.take(1)?;
        let code = fields.u16()?;
        let message = match fields.0 {
            [b'#', _, _, _, _, _, message @ ..] => message,
            message => message,
        };
        Ok(Error::Server { code, message: printable(message) })
    })();
    parsed.unwrap_or_else(|error: Error| error)
}

/// The fields of a packet, from its beginning.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) =
            self.0.split_at_checked(count).ok_or(Error::Malformed("a packet is too short"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let taken = self.take(N)?;
        taken.try_into().map_err(|_| Error::Malformed("a packet is too short"))
    }

    pub(super) fn u8(&mut self) -> Result<u8, Error> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Error> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Error> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Error> {
        self.array().map(u64::from_le_bytes)
    }

    /// Takes a number of variable length.
    pub(super) fn number(&mut self) -> Result<u64, Error> {
        match self.u8()? {
            first @ 0..=0xfa => Ok(first.into()),
            0xfc => self.u16().map(u64::from),
            0xfd => {
                let [low, middle, high] = self.array()?;
                Ok(u32::from_le_bytes([low, middle, high, 0]).into())
            }
            0xfe => self.u64(),
            _ => Err(Error::Malformed("a length is invalid")),
        }
    }

    /// Takes bytes with their length in front.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Error> {
        let length = usize::try_from(self.number()?);
        self.take(length.map_err(|_| Error::Malformed("a length is invalid"))?)
    }

    /// Takes bytes up to a NUL, which must come within `most` bytes.
    pub(super) fn until_nul(&mut self, most: usize) -> Result<&'a [u8], Error> {
        let window = &self.0[..self.0.len().min(most + 1)];
        let end = window.iter().position(|byte| *byte == 0);
        let taken = self.take(end.ok_or(Error::Malformed("a text does not end"))?)?;
        self.take(1)?;
        Ok(taken)
    }
}

/// Appends a number of variable length.
pub(super) fn put_number(out: &mut Vec<u8>, number: usize) {
    let bytes = (number as u64).to_le_bytes();
    match number {
        0..=0xfa => out.push(bytes[0]),
        0xfb..=0xffff => {
            out.push(0xfc);
            out.extend_from_slice(&bytes[..2]);
        }
        _ => {
            out.push(0xfd);
            out.extend_from_slice(&bytes[..3]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn received(bytes: &[u8], mut budget: usize) -> Result<Vec<u8>, Error> {
        receive(&mut &*bytes, &mut 0, &mut budget).await
    }

    #[tokio::test]
    async fn a_packet_must_be_whole_expected_and_small() {
        assert_eq!(received(&[2, 0, 0, 0, 7, 8, 9], 6).await.unwrap(), [7, 8]);
        for (bytes, budget) in [
            (&[3, 0, 0, 0, 7, 8][..], 100),
            (&[2, 0, 0, 1, 7, 8], 100),
            (&[2, 0, 0, 0, 7, 8], 5),
            (&[2, 0, 0], 100),
            (&[0xff, 0xff, 0xff, 0], usize::MAX),
        ] {
            assert!(received(bytes, budget).await.is_err(), "{bytes:?}");
        }
        let most = frame(&vec![1; PACKET_MAX], 0).unwrap();
        assert_eq!(received(&most, usize::MAX).await.unwrap().len(), PACKET_MAX);
        assert!(frame(&vec![1; PACKET_MAX + 1], 0).is_err());
    }

    #[test]
    fn fields_end_with_the_packet() {
        let mut fields = Fields(&[3, b'a', b'b', b'c', 0xfc, 1, 0, 9, b'x', 0, 1]);
        assert_eq!(fields.bytes().unwrap(), b"abc");
        assert_eq!(fields.bytes().unwrap(), [9]);
        assert_eq!(fields.until_nul(1).unwrap(), b"x");
        assert!(fields.u16().is_err() && fields.until_nul(9).is_err());
        assert_eq!(fields.u8().unwrap(), 1);
        for cut in [&[0xfe, 255, 255, 255, 255, 255, 255, 255, 255][..], &[0xfb], &[0xff], &[5, 1]]
        {
            assert!(Fields(cut).bytes().is_err(), "{cut:?}");
        }
    }

    #[test]
    fn numbers_are_read_as_they_are_written() {
        for number in [0, 1, 0xfa, 0xfb, 0xff, 0x100, 0xffff, 0x1_0000, PACKET_MAX] {
            let mut out = Vec::new();
            put_number(&mut out, number);
            assert_eq!(Fields(&out).number().unwrap(), number as u64);
        }
    }

    #[test]
    fn errors_of_the_server_are_told() {
        let shown = |packet: &[u8]| server_error(packet).to_string();
        assert_eq!(
            shown(b"\xff\x15\x04#28000Access denied"),
            "the server answers with error 1045: Access denied"
        );
        assert_eq!(
            shown(b"\xff\x10\x04Too many connections"),
            "the server answers with error 1040: Too many connections"
        );
        assert!(matches!(server_error(b"\xff\x10"), Error::Malformed(_)));
    }
}
