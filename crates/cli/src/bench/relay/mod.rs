//! `barid bench relay`: the minimum that a program must do between publishers and subscribers.
//!
//! Its cost is the cost of sockets on this machine; what a broker costs beyond that is the broker's
//! own.

mod client;

use std::io::{self, ErrorKind, Read as _};
use std::net::SocketAddr;

use anyhow::{Context as _, bail};
use barid_server::descriptors::Descriptors;
use mio::event::Event;
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};
use mqtt_proto::topic::matches;
use mqtt_proto::{
    ConnAck, FixedHeader, MAX_PACKET_LEN, Packet, PacketType, Properties, ReasonCode, SubAck,
};

use crate::output::print;
use client::Client;

/// Size of a read in bytes, unless a packet is longer.
const READ_BYTES: usize = 64 * 1024;

/// Size of a run in bytes from which writing it immediately is cheaper than gathering more.
const WRITE_AT_ONCE_BYTES: usize = 16 * 1024;

const LISTENER: Token = Token(usize::MAX);

#[derive(clap::Args)]
pub struct Args {
    /// Address to listen on
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:1884")]
    listen: SocketAddr,
}

/// Serves until the process is ended.
pub fn run(args: &Args) -> anyhow::Result<()> {
    Descriptors::raise();
    let listener = TcpListener::bind(args.listen)
        .with_context(|| format!("cannot listen on {}", args.listen))?;
    print(format!("relay on {}\n", listener.local_addr()?))?;
    let poll = Poll::new()?;
    let relay = Relay {
        poll,
        listener,
        clients: Vec::new(),
        subscriptions: Vec::new(),
        unwritten: Vec::new(),
        scratch: vec![0; READ_BYTES],
    };
    relay.serve()
}

struct Relay {
    poll: Poll,
    listener: TcpListener,
    /// Clients by token. A slot is not reused, so that no publisher reaches a later client through
    /// it.
    clients: Vec<Option<Box<Client>>>,
    /// Topic filters and their subscribers.
    subscriptions: Vec<(String, usize)>,
    /// Clients that have gained output in this turn.
    unwritten: Vec<usize>,
    scratch: Vec<u8>,
}

impl Relay {
    fn serve(mut self) -> anyhow::Result<()> {
        self.poll.registry().register(&mut self.listener, LISTENER, Interest::READABLE)?;
        let mut events = Events::with_capacity(1_024);
        loop {
            match self.poll.poll(&mut events, None) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error.into()),
                _ => {}
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.accept()?,
                    Token(index) => self.turn(index, event),
                }
            }
            while let Some(index) = self.unwritten.pop() {
                if let Some(client) = &mut self.clients[index] {
                    client.flush();
                }
            }
        }
    }

    fn accept(&mut self) -> anyhow::Result<()> {
        loop {
            let mut socket = match self.listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error).context("cannot accept connections"),
            };
            socket.set_nodelay(true)?;
            let token = Token(self.clients.len());
            let interest = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(&mut socket, token, interest)?;
            self.clients.push(Some(Box::new(Client::new(socket))));
        }
    }

    /// Reads and writes, as far as `event` allows.
    fn turn(&mut self, index: usize, event: &Event) {
        // The client is taken out of the table while others are written to: it does not receive its
        // own messages.
        let Some(mut client) = self.clients[index].take() else { return };
        if event.is_writable() {
            client.flush();
        }
        let is_closing = event.is_read_closed() || event.is_error();
        if self.read(index, &mut client, is_closing).is_ok() {
            if !client.output.is_empty() {
                client.flush();
            }
            self.clients[index] = Some(client);
        } else {
            self.subscriptions.retain(|(_, subscriber)| *subscriber != index);
        }
    }

    /// Reads all input. Any error closes the connection.
    fn read(&mut self, index: usize, client: &mut Client, is_closing: bool) -> anyhow::Result<()> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let outcome = self.read_into(&mut scratch, index, client, is_closing);
        self.scratch = scratch;
        outcome
    }

    fn read_into(
        &mut self,
        scratch: &mut Vec<u8>,
        index: usize,
        client: &mut Client,
        is_closing: bool,
    ) -> anyhow::Result<()> {
        loop {
            // The rest of an incomplete packet comes first, so that packets are always contiguous.
            let left = client.input.len();
            if scratch.len() < 2 * left {
                scratch.resize(4 * left, 0);
            }
            scratch[..left].copy_from_slice(&client.input);
            client.input.clear();
            let room = scratch.len() - left;
            let (read, is_drained) = match client.socket.read(&mut scratch[left..]) {
                Ok(0) => bail!("closed"),
                // After a read that did not fill the buffer there is nothing more, except the end.
                Ok(read) => (read, read < room && !is_closing),
                Err(error) if error.kind() == ErrorKind::Interrupted => (0, false),
                Err(error) if is_not_ready(&error) => (0, true),
                Err(error) => return Err(error.into()),
            };
            let bytes = &scratch[..left + read];
            let taken = self.take_packets(index, client, bytes)?;
            client.input.extend_from_slice(&bytes[taken..]);
            if is_drained {
                return Ok(());
            }
        }
    }

    /// Handles the whole packets at the front of `bytes`, and returns their length. A run of
    /// PUBLISH packets is forwarded in one piece.
    fn take_packets(
        &mut self,
        index: usize,
        client: &mut Client,
        bytes: &[u8],
    ) -> anyhow::Result<usize> {
        let (mut run_at, mut at) = (0, 0);
        while let Some(header) = FixedHeader::read(&bytes[at..], MAX_PACKET_LEN)? {
            let Some(packet) = bytes[at..].get(..header.packet_len()) else { break };
            let body = &packet[header.header_len..];
            if header.packet_type() == PacketType::Publish {
                self.take_publish(client, header.first, body)?;
            } else {
                self.forward(client, &bytes[run_at..at]);
                run_at = at + packet.len();
                self.answer(index, client, header, body)?;
            }
            at += packet.len();
        }
        self.forward(client, &bytes[run_at..at]);
        Ok(at)
    }

    fn take_publish(&self, client: &mut Client, first: u8, body: &[u8]) -> anyhow::Result<()> {
        let (topic, id) = topic_and_id(body).context("a PUBLISH without a topic")?;
        if client.receivers.is_none() {
            client.receivers = Some(receivers(&self.subscriptions, std::str::from_utf8(topic)?));
        }
        match (first >> 1) & 3 {
            0 => {}
            1 => {
                let id = id.context("a PUBLISH without a Packet Identifier")?;
                client.output.extend_from_slice(&[0x40, 2, id[0], id[1]]);
            }
            _ => bail!("a relay has no QoS 2"),
        }
        Ok(())
    }

    /// Forwards whole PUBLISH packets: immediately, or gathered until the end of the turn.
    fn forward(&mut self, client: &Client, run: &[u8]) {
        let Some(receivers) = client.receivers.as_deref().filter(|_| !run.is_empty()) else {
            return;
        };
        let at_once = receivers.len() > 1 || run.len() >= WRITE_AT_ONCE_BYTES;
        for &index in receivers {
            let Some(receiver) = &mut self.clients[index] else { continue };
            if receiver.output.is_empty() && !at_once {
                self.unwritten.push(index);
            }
            receiver.hand(run, at_once);
        }
    }

    /// Answers any packet except PUBLISH.
    fn answer(
        &mut self,
        index: usize,
        client: &mut Client,
        header: FixedHeader,
        body: &[u8],
    ) -> anyhow::Result<()> {
        match header.packet_type() {
            PacketType::PubAck => return Ok(()),
            PacketType::Disconnect => bail!("the client leaves"),
            _ => {}
        }
        match Packet::decode(client.version, header, body)? {
            Packet::Connect(connect) => {
                client.version = connect.version;
                let (reason, properties) = (ReasonCode::Success, Properties::EMPTY);
                client.send(&Packet::ConnAck(ConnAck {
                    session_present: false,
                    reason,
                    properties,
                }))
            }
            Packet::Subscribe(subscribe) => {
                let filters = subscribe.filters.map(|one| (one.filter.to_owned(), index));
                self.subscriptions.extend(filters);
                let codes: Vec<u8> = subscribe.filters.map(|one| one.options.qos as u8).collect();
                let (packet_id, properties) = (subscribe.packet_id, Properties::EMPTY);
                client.send(&Packet::SubAck(SubAck { packet_id, properties, codes: &codes }))
            }
            Packet::PingReq => client.send(&Packet::PingResp),
            _ => bail!("a relay does not know this packet"),
        }
    }
}

fn is_not_ready(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected)
}

/// Returns the topic of a PUBLISH and, if the body is long enough, its Packet Identifier.
fn topic_and_id(body: &[u8]) -> Option<(&[u8], Option<&[u8; 2]>)> {
    let (len, rest) = body.split_first_chunk()?;
    let (topic, rest) = rest.split_at_checked(u16::from_be_bytes(*len).into())?;
    Some((topic, rest.first_chunk()))
}

/// Returns the subscribers of `topic`, each once for every matching subscription.
fn receivers(subscriptions: &[(String, usize)], topic: &str) -> Vec<usize> {
    let matching = subscriptions.iter().filter(|(filter, _)| matches(filter, topic));
    matching.map(|(_, subscriber)| *subscriber).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_and_packet_identifier_are_found_and_short_bodies_refused() {
        let body = [0, 3, b'a', b'/', b'b', 0x12, 0x34, b'x'];
        assert_eq!(topic_and_id(&body), Some((&b"a/b"[..], Some(&[0x12, 0x34]))));
        assert_eq!(topic_and_id(&body[..6]), Some((&b"a/b"[..], None)));
        assert_eq!(topic_and_id(&body[..4]), None);
        assert_eq!(topic_and_id(&[0]), None);
    }

    #[test]
    fn receivers_are_those_whose_filter_matches() {
        let subscriptions =
            [("bench/+".to_owned(), 0), ("bench/1".to_owned(), 1), ("bench/2".to_owned(), 2)];
        assert_eq!(receivers(&subscriptions, "bench/2"), [0, 2]);
        assert!(receivers(&subscriptions, "other").is_empty());
    }
}
