//! Messages for a broker that is down: other members of shared subscriptions get theirs, and the others are lost.

use barid_peers::{Destination, Run};
use hashbrown::HashMap;
use mqtt_proto::{FixedHeader, QoS};

/// Number of lost messages of a tenant that operators can see with topic and publisher, of those given up at one time.
const SEEN_MAX: usize = 32;

/// Messages that waited for a broker when it went down, and are not sent any more.
#[derive(Debug, Default)]
pub struct GivenUp {
    /// The number of runs.
    pub runs: usize,
    /// Those for other members of shared subscriptions.
    pub left: Vec<LeftRun>,
    /// By tenant, messages that sessions of the broker will not get, and nobody else.
    pub lost: HashMap<String, Lost>,
}

/// Messages of a tenant that are lost.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Their number.
    pub messages: u64,
    /// The topics and publishers of the first of them.
    pub seen: Vec<(Box<str>, Box<str>)>,
}

impl GivenUp {
    /// Notes a run that is given up.
    pub(super) fn note(&mut self, run: &Run<'_>) {
        match (run.to, LeftRun::of(run)) {
            (Destination::Shared(_), Some(left)) => self.left.push(left),
            (Destination::Shared(_) | Destination::Sessions, _) => self.note_lost(run),
            _ => {}
        }
    }

    fn note_lost(&mut self, run: &Run<'_>) {
        let lost = self.lost.entry_ref(run.tenant).or_default();
        let mut rest = run.packets;
        while let Some((topic, behind)) = split_publish(rest) {
            rest = behind;
            lost.messages += 1;
            if lost.seen.len() < SEEN_MAX {
                lost.seen.push((topic.into(), run.publisher.into()));
            }
        }
    }
}

/// Returns the topic of the first PUBLISH, and what is behind it.
fn split_publish(packets: &[u8]) -> Option<(&str, &[u8])> {
    let (_, body, behind) = FixedHeader::split(packets)?;
    let (len, body) = body.split_first_chunk::<2>()?;
    let topic = body.get(..usize::from(u16::from_be_bytes(*len)))?;
    Some((std::str::from_utf8(topic).ok()?, behind))
}

/// A run for a shared subscription that the other broker has not acknowledged. It may have handed it on, so messages of QoS 1
/// may come twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftRun {
    tenant: Box<str>,
    publisher: Box<str>,
    shared: Box<str>,
    is_v5: bool,
    pub(crate) packets: Vec<u8>,
}

impl LeftRun {
    /// Copies a run. Returns `None` for messages of QoS 2: a client may have one of them, and then no other may get it
    /// (MQTT 5 §4.8.2).
    pub(super) fn of(run: &Run<'_>) -> Option<Self> {
        let Destination::Shared(shared) = run.to else { return None };
        let flags = run.packets.first()?;
        (flags >> 1 & 0b11 != QoS::ExactlyOnce as u8).then(|| Self {
            tenant: run.tenant.into(),
            publisher: run.publisher.into(),
            shared: shared.into(),
            is_v5: run.is_v5,
            packets: run.packets.to_vec(),
        })
    }

    /// Returns the run, without its packets.
    pub(crate) fn as_run(&self) -> Run<'_> {
        let Self { tenant, publisher, shared, is_v5, .. } = self;
        Run::unnumbered(tenant, publisher, Destination::Shared(shared), *is_v5, &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_up_is_counted() {
        let packets = *b"\x30\x06\0\x03a/bx\x30\x06\0\x03a/bz";
        let mut given_up = GivenUp::default();
        for tenant in ["acme", "acme", "other"] {
            given_up.note(&Run::unnumbered(tenant, "p", Destination::Sessions, false, &packets));
        }
        let shared = Destination::Shared("$share/g/a/b");
        given_up.note(&Run::unnumbered("acme", "p", shared, false, &packets));
        let once = *b"\x34\x08\0\x03a/b\0\x01x";
        given_up.note(&Run::unnumbered("once", "p", shared, false, &once));
        let seen = |count| vec![("a/b".into(), "p".into()); count];
        assert_eq!(given_up.lost["acme"], Lost { messages: 4, seen: seen(4) });
        assert_eq!(given_up.lost["other"], Lost { messages: 2, seen: seen(2) });
        assert_eq!(given_up.lost["once"], Lost { messages: 1, seen: seen(1) });
        assert_eq!((given_up.lost.len(), given_up.left.len()), (3, 1));
    }
}
