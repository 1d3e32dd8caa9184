//! Packets that must not leave before some batches are durable, before a queue has room, or before another broker has answered.

use std::sync::Weak;

use mqtt_proto::{Ack, ConnAck, FixedHeader, Packet, PacketType, Properties, ReasonCode, Version};

use super::Session;
use super::outlet::Outlet;
use super::requested::Requested;
use crate::durable::Commits;
use crate::owner::Farewell;
use crate::packets::Packets;
use crate::progress::{Gate, Polled};

/// Packets that an outlet keeps back. Present only while some wait.
///
/// There are two lanes, each in order: acknowledgements of what the client has sent, and deliveries to the
/// client (PUBLISH of QoS 2, PUBREL). Neither waits for the other.
#[derive(Debug, Default)]
pub(super) struct Held {
    answers: Gate<Answers>,
    deliveries: Gate<Packets>,
    bytes: usize,
    /// The CONNACK is among the answers, and nothing may leave before it.
    pub(super) opening: bool,
    /// An answer will never leave, so the connection is being closed.
    hopeless: bool,
}

/// Result of handling answers whose commit has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failed {
    /// No such answer is left, or the client has been told.
    Told,
    /// No answer can tell the client. The connection has to end; the client and the broker settle what is
    /// unfinished when the client comes back.
    Untold {
        /// Whether a DISCONNECT can tell the client.
        has_session: bool,
    },
}

/// A session whose queue was full.
#[derive(Clone, Debug)]
pub(super) struct FullRoom {
    pub(super) session: Weak<Session>,
    /// The value of [`Session::fullness`] at that time.
    pub(super) since: u32,
}

impl FullRoom {
    /// Whether the queue has been full ever since.
    fn is_full(&self) -> bool {
        self.session.upgrade().is_some_and(|session| session.fullness() == self.since)
    }
}

/// Acknowledgements that leave together.
#[derive(Debug)]
struct Answers {
    packets: Packets,
    /// Sessions whose queues were full: the publisher is held back until they have room.
    rooms: Vec<FullRoom>,
    /// Requests of the client that must be answered before.
    requested: Option<Requested>,
}

impl Answers {
    fn may_leave(&self) -> bool {
        !self.rooms.iter().any(FullRoom::is_full)
            && self.requested.as_ref().is_none_or(Requested::are_answered)
    }
}

impl Held {
    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.answers.is_empty() && self.deliveries.is_empty()
    }

    /// Whether acknowledgements wait, which later ones must not overtake.
    pub(super) fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Number of bytes that wait.
    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    /// Keeps acknowledgements back, until they are [released](Self::release).
    pub(super) fn push_answers(
        &mut self,
        commits: Commits,
        (rooms, requested): (Vec<FullRoom>, Option<Requested>),
        bytes: &[u8],
    ) {
        self.bytes += bytes.len();
        let mut packets = Packets::default();
        packets.push(bytes);
        self.answers.push(commits, Answers { packets, rooms, requested });
    }

    /// Keeps back the packets to the client that `encode` appends, until `commits` are durable.
    pub(super) fn push_delivery(&mut self, commits: &Commits, encode: impl FnOnce(&mut Packets)) {
        if self.deliveries.back().is_none_or(|(last, _)| last != commits) {
            self.deliveries.push(commits.clone(), Packets::default());
        }
        let (_, packets) = self.deliveries.back_mut().expect("it was pushed");
        let before = packets.len();
        encode(packets);
        self.bytes += packets.len() - before;
    }

    /// Moves the packets that may leave now to `unsent`. `session` is woken when more may leave.
    pub(super) fn release(&mut self, session: &Session, unsent: &mut Packets) {
        let sources = session.account.shards.sources();
        while let Polled::Ready(answers) =
            self.answers.poll(sources, &session.me, Answers::may_leave)
        {
            self.bytes -= answers.packets.len();
            unsent.append(answers.packets);
            // The CONNACK is the first answer.
            self.opening = false;
        }
        while !self.opening
            && let Polled::Ready(packets) = self.deliveries.poll(sources, &session.me, |_| true)
        {
            self.bytes -= packets.len();
            unsent.append(packets);
        }
    }

    /// Replaces each answer in front whose commits have failed by a refusal, which moves to `unsent`.
    /// Otherwise clients would wait until the disk works again.
    ///
    /// A PUBACK of MQTT 5 can refuse. A PUBREC cannot: it would end the exchange, but the message may still
    /// become durable, and would be delivered twice if its client sent it again.
    fn refuse_failed(
        &mut self,
        session: &Session,
        version: Version,
        unsent: &mut Packets,
    ) -> Failed {
        let sources = session.account.shards.sources();
        while let Some((commits, answers)) = self.answers.front().filter(|_| !self.hopeless)
            && sources.have_failed(commits)
        {
            if self.opening {
                self.hopeless = true;
                unsent.push(&refused_connack(version));
                return Failed::Untold { has_session: false };
            }
            let Some(refused) = refused(version, answers.packets.chunk()) else {
                self.hopeless = true;
                return Failed::Untold { has_session: true };
            };
            self.bytes -= answers.packets.len();
            self.answers.pop_front();
            unsent.push(&refused);
            self.release(session, unsent);
        }
        Failed::Told
    }
}

impl Outlet {
    /// Releases those held packets of `session` for which everything is durable, and refuses what cannot be
    /// made durable. The session is woken when more may leave, so a caller that has added held packets must
    /// call this.
    pub(super) fn release_held(&mut self, session: &Session) {
        let Some(held) = &mut self.held else { return };
        held.release(session, &mut self.unsent);
        if let Some(link) = &self.link {
            let failed = held.refuse_failed(session, link.version, &mut self.unsent);
            if let Failed::Untold { has_session } = failed {
                let (connection, reason) = (link.connection, ReasonCode::QuotaExceeded);
                let farewell = if has_session { Farewell::InTurn } else { Farewell::Silent };
                link.owner.close(connection, reason, farewell);
                self.is_closing = true;
            }
        }
        if held.is_empty() {
            self.held = None;
        }
    }
}

/// Returns PUBACKs that refuse what `packets` acknowledge; `None` if not all of these are PUBACKs, or if they
/// cannot refuse.
fn refused(version: Version, packets: &[u8]) -> Option<Vec<u8>> {
    let (mut refused, mut rest) = (Vec::new(), packets);
    while version == Version::V5 && !rest.is_empty() {
        let (header, body, behind) = FixedHeader::split(rest)?;
        let Packet::PubAck(ack) = Packet::decode(version, header, body).ok()? else { return None };
        let reason = if ack.reason.is_error() { ack.reason } else { ReasonCode::QuotaExceeded };
        Ack { packet_id: ack.packet_id, reason, properties: Properties::default() }
            .encode(PacketType::PubAck, version, &mut refused)
            .ok()?;
        rest = behind;
    }
    (version == Version::V5).then_some(refused)
}

fn refused_connack(version: Version) -> Vec<u8> {
    let mut packet = Vec::new();
    let (reason, properties) = (ReasonCode::QuotaExceeded, Properties::default());
    ConnAck { session_present: false, reason, properties }
        .encode(version, &mut packet)
        .expect("a CONNACK can be encoded");
    packet
}

#[cfg(test)]
mod tests {
    use super::*;
    use mqtt_proto::PacketId;

    fn acks(kinds: &[(PacketType, ReasonCode)]) -> Vec<u8> {
        let mut packets = Vec::new();
        for (id, (kind, reason)) in (1..).zip(kinds) {
            let packet_id = PacketId::new(id).unwrap();
            Ack { packet_id, reason: *reason, properties: Properties::default() }
                .encode(*kind, Version::V5, &mut packets)
                .unwrap();
        }
        packets
    }

    #[test]
    fn what_was_to_be_acknowledged_is_refused_where_a_puback_can_say_so() {
        use PacketType::{PubAck, PubRec};
        use ReasonCode::{NoMatchingSubscribers, NotAuthorized, QuotaExceeded, Success};
        let held =
            acks(&[(PubAck, Success), (PubAck, NoMatchingSubscribers), (PubAck, NotAuthorized)]);
        let expected =
            acks(&[(PubAck, QuotaExceeded), (PubAck, QuotaExceeded), (PubAck, NotAuthorized)]);
        assert_eq!(refused(Version::V5, &held), Some(expected));
        assert_eq!(refused(Version::V3_1_1, &held), None);
        assert_eq!(refused(Version::V5, &acks(&[(PubAck, Success), (PubRec, Success)])), None);
        assert_eq!(refused(Version::V5, &held[..3]), None, "not a whole packet");
    }

    #[test]
    fn who_cannot_have_a_session_is_told() {
        assert_eq!(refused_connack(Version::V5), [0x20, 3, 0, 0x97, 0]);
        assert_eq!(refused_connack(Version::V3_1_1), [0x20, 2, 0, 3]);
    }
}
