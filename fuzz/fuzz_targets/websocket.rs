//! Any input of a WebSocket client, divided into any pieces: no panic, at most one read of the socket for each
//! read of the WebSocket, and the same payload as by a plain implementation of RFC 6455.
//!
//! The first byte of an input gives the size of the pieces. If it is even, a handshake is sent before the
//! input; otherwise the input includes the handshake.

#![no_main]

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

use barid_server::strangers::{Collected, Strangers};
use barid_server::transport::websocket::{WebSocket, WebSocketOptions};
use libfuzzer_sys::fuzz_target;

const REQUEST: &[u8] = b"GET /mqtt HTTP/1.1\r\nHost: localhost:8083\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n";

fuzz_target!(|input: &[u8]| {
    let Some((first, sent)) = input.split_first() else { return };
    let piece = 1 + usize::from(first >> 1);
    if first % 2 == 0 {
        let (read, said) = converse(&[REQUEST, sent].concat(), piece);
        assert!(said.starts_with(b"HTTP/1.1 101 "));
        let (expected, is_valid) = payload(sent);
        // Payload that arrives in the same read as a refused frame is lost with the connection.
        assert!(expected.starts_with(&read) && (!is_valid || read == expected), "{sent:02X?}");
    } else {
        let (read, said) = converse(sent, piece);
        if !said.is_empty() {
            let mut fields = [httparse::EMPTY_HEADER; 32];
            let mut answer = httparse::Response::new(&mut fields);
            assert!(answer.parse(&said).expect("it is HTTP").is_complete());
            assert!(read.is_empty() || answer.code == Some(101));
        }
        // The answer does not depend on how the request is divided.
        let (read_whole, said_whole) = converse(sent, usize::MAX);
        assert!(read.starts_with(&read_whole) || read_whole.starts_with(&read));
        assert_eq!(said.get(..12), said_whole.get(..12));
    }
});

/// Sends an input in pieces. Returns the payload that is read, and all bytes that are written.
fn converse(sent: &[u8], piece: usize) -> (Vec<u8>, Vec<u8>) {
    let options = WebSocketOptions {
        path: "/mqtt".into(),
        origins: vec!["https://app.example".into()],
        secure: false,
        loopback: true,
    };
    let socket = Socket { sent, piece, reads: 0, said: Vec::new() };
    let collected = Collected::new(&Arc::new(Strangers::new(1 << 20)));
    let (mut heard, mut read, mut reads) = (socket, Vec::new(), 0);
    let mut websocket = WebSocket::new(&mut heard, options, collected);
    let mut buffer = [0; 4096];
    loop {
        reads += 1;
        match websocket.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => read.extend_from_slice(&buffer[..n]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    drop(websocket);
    assert!(heard.reads <= reads);
    (read, heard.said)
}

/// A peer that sends its bytes in pieces and then ends the stream. It counts the reads.
struct Socket<'a> {
    sent: &'a [u8],
    piece: usize,
    reads: usize,
    said: Vec<u8>,
}

impl Read for &mut Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reads += 1;
        let n = self.sent.len().min(self.piece).min(buffer.len());
        let (now, later) = self.sent.split_at(n);
        buffer[..n].copy_from_slice(now);
        self.sent = later;
        Ok(n)
    }
}

impl Write for &mut Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.said.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the payload of all frames before the first one that is invalid or a close frame, and whether no
/// frame is invalid.
fn payload(mut sent: &[u8]) -> (Vec<u8>, bool) {
    let (mut payload, mut in_message) = (Vec::new(), false);
    while let [first, second, rest @ ..] = sent {
        let (fin, opcode, length) = (first & 0x80 != 0, first & 0x0F, second & 0x7F);
        let is_control = opcode >= 8;
        let is_valid = match opcode {
            0 => in_message,
            2 => !in_message,
            8..=10 => fin && length <= 125,
            _ => false,
        };
        if !is_valid || first & 0x70 != 0 || second & 0x80 == 0 {
            return (payload, false);
        }
        let extended = match length {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let Some((digits, rest)) = rest.split_at_checked(extended) else { break };
        let Some((mask, rest)) = rest.split_at_checked(4) else { break };
        let length = match extended {
            0 => u64::from(length),
            _ => digits.iter().fold(0, |length, digit| length << 8 | u64::from(*digit)),
        };
        if length >> 63 != 0 {
            return (payload, false);
        }
        if !is_control {
            in_message = !fin;
        }
        let here = rest.len().min(usize::try_from(length).unwrap_or(usize::MAX));
        if !is_control {
            payload
                .extend(rest[..here].iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key));
        } else if opcode == 8 && here as u64 == length {
            break;
        }
        sent = &rest[here..];
    }
    (payload, true)
}
