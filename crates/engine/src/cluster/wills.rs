//! Wills that brokers keep for each other.
//!
//! A session that is not stored is in the memory of one broker, and its will would be lost with that broker. So two others
//! keep the will, the *keepers*: the first one publishes it when the broker is down or has left, the second one if the first
//! one is down as well, or was down a moment ago. Nobody waits until a will is kept.
//!
//! A client that has connected again, anywhere, is not gone: its kept will is forgotten. So is an *orphan*, a will that is to be
//! published because its broker is down.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use barid_core::durable::records::encode_message;
use barid_core::message::Message;
use barid_core::time::MonoTime;
use barid_peers::{Announced, Frame, Part, Will};

use super::{Cluster, MemberRef};
use crate::sync::Mutex;

/// Maximum length of a will that is kept, in bytes, with its topic and properties.
const LENGTH_MAX: usize = 4 * 1024;

/// Maximum memory for the wills of one other broker, in bytes.
const MEMORY_MAX: usize = 64 * 1024 * 1024;

/// What a kept will needs beside its message and the name of its client, in bytes, about.
const OVERHEAD: usize = 200;

/// Maximum number of wills in a part of what another broker is told.
const PART: usize = 32;

/// Time within which a broker and the first keeper of its wills must be down for the second one to publish them. After it, the
/// first one has published them, or has been told them once more.
const AT_ONCE: Duration = Duration::from_secs(60);

/// A will that does not need its session to be published.
#[derive(Clone, Debug)]
pub struct KeptWill {
    /// When the client connected, in microseconds since the Unix epoch.
    pub connected_at: u64,
    /// The user to whom the message belongs if it is retained; empty: none.
    pub user: Box<str>,
    /// The message. Its expiry starts to run when it is published.
    pub message: Arc<Message>,
    /// Message Expiry Interval, in seconds.
    pub expiry: Option<u32>,
}

/// The will of a client whose broker is down.
#[derive(Debug)]
pub struct Orphan {
    /// The tenant of the client.
    pub tenant: Box<str>,
    /// The client identifier.
    pub client_id: Box<str>,
    /// The will.
    pub will: KeptWill,
}

/// The wills of this broker's clients.
#[derive(Default)]
pub(super) struct Wills {
    own: Mutex<Announced<KeptWill>>,
    /// The brokers that keep them, the first one first.
    keepers: Mutex<Vec<MemberRef>>,
    /// Number of wills that were too large, or for which there was no room, here and of other brokers.
    refused: AtomicU64,
    /// Number of wills that are kept for other brokers, orphans included.
    kept: AtomicU64,
    /// The wills that this broker is to publish.
    orphans: Mutex<ByTenant>,
}

/// How far one other broker has been told of the wills.
#[derive(Debug, Default)]
pub struct WillsTold {
    /// Whether it has been told anything.
    has_begun: bool,
    /// The name of the first keeper, empty if that is the other broker; `None`: it keeps no wills.
    first: Option<String>,
    told: Part,
}

/// The wills of clients of one tenant, each with the number of the snapshot in which it was told.
type OfTenant = HashMap<Box<str>, (u32, KeptWill)>;
type ByTenant = HashMap<Box<str>, OfTenant>;

/// The wills of another broker.
#[derive(Debug, Default)]
pub(super) struct Kept {
    wills: ByTenant,
    snapshot: u32,
    /// The name of the first keeper; empty: this broker.
    first: Box<str>,
    /// When the first keeper was last held down.
    first_down_at: Option<MonoTime>,
    /// When the broker was held down, if the first keeper was not.
    down_at: Option<MonoTime>,
    memory: usize,
    count: usize,
}

impl Cluster {
    /// A client has connected whose session is not stored: other brokers keep its will, in place of an earlier one.
    pub(super) fn keep_will(&self, tenant: &Arc<str>, client_id: &str, will: KeptWill) {
        if will.message.size() > LENGTH_MAX {
            self.wills.refused.fetch_add(1, Ordering::Relaxed);
            self.wills.own.lock().remove(tenant, client_id, |_| true);
        } else {
            self.wills.own.lock().set(tenant, client_id, |_| will);
        }
        self.teller.news_to_tell();
    }

    /// A will has been published or discarded.
    pub(super) fn will_is_over(&self, tenant: &Arc<str>, client_id: &str, message: &Arc<Message>) {
        let is_it = |will: &mut KeptWill| Arc::ptr_eq(&will.message, message);
        if self.wills.own.lock().remove(tenant, client_id, is_it) {
            self.teller.news_to_tell();
        }
    }

    /// Sets which brokers keep the wills of this one's clients, the first one first.
    pub fn set_keepers(&self, keepers: impl Iterator<Item = MemberRef>) {
        let mut known = self.wills.keepers.lock();
        known.clear();
        known.extend(keepers);
    }

    /// Gives the next part of the wills to another broker, if it keeps them. Returns whether something is left.
    pub fn tell_wills(
        &self,
        member: MemberRef,
        told: &mut WillsTold,
        mut tell: impl FnMut(&Frame<'_>),
    ) -> bool {
        let first = self.first_keeper_for(member);
        if told.first != first || !told.has_begun {
            *told = WillsTold { has_begun: true, first, told: Part::Nothing };
            if told.first.is_none() {
                // An empty snapshot: it forgets what it has kept, perhaps of an earlier link.
                tell(&Frame::WillsBegin { first: "" });
                tell(&Frame::WillsTold);
            }
        }
        let Some(first) = &told.first else { return false };
        if told.told == Part::Nothing {
            tell(&Frame::WillsBegin { first });
        }
        let was_whole = matches!(told.told, Part::Changes(_));
        let mut message = Vec::new();
        let has_more = self.wills.own.lock().tell(&mut told.told, PART, |tenant, client, will| {
            let Some(will) = will else {
                tell(&Frame::NoWill { tenant, client });
                return;
            };
            message.clear();
            encode_message(&will.message, &mut message);
            let (at, user, expiry) = (will.connected_at, &*will.user, will.expiry);
            tell(&Frame::Will(Will { tenant, client, at, user, expiry, message: &message }));
        });
        if !was_whole && matches!(told.told, Part::Changes(_)) {
            tell(&Frame::WillsTold);
        }
        has_more
    }

    /// The name of the first keeper, empty if it is this broker; `None`: the broker keeps no wills.
    fn first_keeper_for(&self, member: MemberRef) -> Option<String> {
        let keepers = self.wills.keepers.lock();
        match keepers.iter().position(|keeper| *keeper == member)? {
            0 => Some(String::new()),
            _ => self.name_of(keepers[0]),
        }
    }

    /// Another broker begins to tell the wills that this one keeps. `first`: the name of the first keeper; empty: this broker.
    pub fn on_wills(&self, member: MemberRef, first: &str) {
        let mut kept = self.at(member).kept.lock();
        kept.snapshot = kept.snapshot.wrapping_add(1);
        kept.first = first.into();
        (kept.first_down_at, kept.down_at) = (None, None);
    }

    /// Another broker has told the will of a client.
    pub fn on_will(&self, member: MemberRef, tenant: &str, client_id: &str, will: KeptWill) {
        let mut kept = self.at(member).kept.lock();
        let memory = memory(tenant, client_id, &will);
        self.forget_kept(&mut kept, tenant, client_id);
        if will.message.size() > LENGTH_MAX || kept.memory + memory > MEMORY_MAX {
            self.wills.refused.fetch_add(1, Ordering::Relaxed);
            return;
        }
        kept.memory += memory;
        kept.count += 1;
        self.wills.kept.fetch_add(1, Ordering::SeqCst);
        let entry = (kept.snapshot, will);
        match kept.wills.get_mut(tenant) {
            Some(of_tenant) => of_tenant.insert(client_id.into(), entry),
            None => kept.wills.entry(tenant.into()).or_default().insert(client_id.into(), entry),
        };
    }

    /// A client of another broker has no will any more.
    pub fn on_no_will(&self, member: MemberRef, tenant: &str, client_id: &str) {
        self.forget_kept(&mut self.at(member).kept.lock(), tenant, client_id);
    }

    /// Another broker has told all wills that this one keeps.
    pub fn on_wills_told(&self, member: MemberRef) {
        let mut kept = self.at(member).kept.lock();
        let snapshot = kept.snapshot;
        let is_old = |told: u32| told != snapshot;
        drop(self.take_kept(&mut kept, is_old));
    }

    /// A client has connected to a broker, at a wall time in microseconds since the Unix epoch: it is not gone, whatever
    /// becomes of the broker to which it was connected before.
    pub(crate) fn is_back(&self, tenant: &str, client_id: &str, at: u64) {
        if self.wills.kept.load(Ordering::SeqCst) == 0 {
            return;
        }
        for place in &self.members {
            let mut kept = place.kept.lock();
            let will = kept.wills.get(tenant).and_then(|of_tenant| of_tenant.get(client_id));
            if will.is_some_and(|(_, will)| will.connected_at < at) {
                self.forget_kept(&mut kept, tenant, client_id);
            }
        }
        let mut orphans = self.wills.orphans.lock();
        let orphan = orphans.get(tenant).and_then(|of_tenant| of_tenant.get(client_id));
        if orphan.is_some_and(|(_, will)| will.connected_at < at) {
            take(&mut orphans, tenant, client_id);
            self.wills.kept.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// A broker is down or has left. Wills that this one is to publish become orphans; returns whether there are any.
    /// `is_in_cluster` tells whether another broker, given by its name, can publish them.
    pub(crate) fn is_orphaned(
        &self,
        member: MemberRef,
        now: MonoTime,
        is_in_cluster: impl Fn(&str) -> bool,
    ) -> bool {
        let is_recent = |at: Option<MonoTime>| at.is_some_and(|at| now < at.after(AT_ONCE));
        let name = self.name_of(member).unwrap_or_default();
        for (index, place) in (0..).zip(&self.members) {
            let mut kept = place.kept.lock();
            let is_due = if MemberRef(index) == member {
                kept.down_at = Some(now);
                kept.first.is_empty()
                    || !is_in_cluster(&kept.first)
                    || is_recent(kept.first_down_at)
            } else if *kept.first == *name {
                kept.first_down_at = Some(now);
                is_recent(kept.down_at)
            } else {
                false
            };
            if is_due {
                let taken = self.take_kept(&mut kept, |_| true);
                self.wills.kept.fetch_add(taken.len() as u64, Ordering::SeqCst);
                let mut orphans = self.wills.orphans.lock();
                taken.into_iter().for_each(|orphan| self.put_orphan(&mut orphans, orphan));
            }
        }
        !self.wills.orphans.lock().is_empty()
    }

    /// Takes some orphans, at most `most`, to publish them.
    pub(crate) fn take_orphans(&self, most: usize) -> Vec<Orphan> {
        let mut taken = Vec::new();
        let mut orphans = self.wills.orphans.lock();
        orphans.retain(|tenant, of_tenant| {
            let some = of_tenant.extract_if(|_, _| true).take(most - taken.len());
            let orphan =
                |(client_id, (_, will))| Orphan { tenant: tenant.clone(), client_id, will };
            taken.extend(some.map(orphan));
            !of_tenant.is_empty()
        });
        self.wills.kept.fetch_sub(taken.len() as u64, Ordering::SeqCst);
        taken
    }

    /// Orphans cannot be published now.
    pub(crate) fn return_orphans(&self, returned: Vec<Orphan>) {
        self.wills.kept.fetch_add(returned.len() as u64, Ordering::SeqCst);
        let mut orphans = self.wills.orphans.lock();
        returned.into_iter().for_each(|orphan| self.put_orphan(&mut orphans, orphan));
    }

    /// Adds an orphan. Of two of a client, the one of the later connection counts.
    fn put_orphan(&self, orphans: &mut ByTenant, Orphan { tenant, client_id, will }: Orphan) {
        match orphans.entry(tenant).or_default().entry(client_id) {
            Entry::Vacant(place) => {
                place.insert((0, will));
            }
            Entry::Occupied(mut known) => {
                if known.get().1.connected_at < will.connected_at {
                    known.insert((0, will));
                }
                self.wills.kept.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }

    /// Forgets the wills of brokers that have been down for a while: others have published them.
    pub(crate) fn forget_published(&self, now: MonoTime) {
        for place in &self.members {
            let mut kept = place.kept.lock();
            if kept.down_at.is_some_and(|at| at.after(AT_ONCE) <= now) {
                kept.down_at = None;
                drop(self.take_kept(&mut kept, |_| true));
            }
        }
    }

    /// Forgets the wills of all other brokers, because this one begins a new life: it has not heard which clients are back.
    /// What brokers that go on still have, they tell again.
    pub(crate) fn forget_all_kept(&self) {
        for place in &self.members {
            drop(self.take_kept(&mut place.kept.lock(), |_| true));
        }
    }

    /// Number of wills that this broker keeps for another one.
    pub fn wills_of(&self, member: MemberRef) -> usize {
        self.at(member).kept.lock().count
    }

    /// Number of wills of this broker's clients that others keep, or are about to.
    pub fn wills(&self) -> usize {
        self.wills.own.lock().len()
    }

    /// Number of wills that were too large to be kept, or for which there was no room, here and of other brokers.
    pub fn wills_refused(&self) -> u64 {
        self.wills.refused.load(Ordering::Relaxed)
    }

    fn forget_kept(&self, kept: &mut Kept, tenant: &str, client_id: &str) {
        let Some(will) = take(&mut kept.wills, tenant, client_id) else { return };
        kept.memory -= memory(tenant, client_id, &will);
        kept.count -= 1;
        self.wills.kept.fetch_sub(1, Ordering::SeqCst);
    }

    /// Takes the wills for whose snapshot `is_taken` returns true.
    fn take_kept(&self, kept: &mut Kept, is_taken: impl Fn(u32) -> bool) -> Vec<Orphan> {
        let mut taken = Vec::new();
        kept.wills.retain(|tenant, of_tenant| {
            for (client_id, (_, will)) in of_tenant.extract_if(|_, (told, _)| is_taken(*told)) {
                taken.push(Orphan { tenant: tenant.clone(), client_id, will });
            }
            !of_tenant.is_empty()
        });
        for Orphan { tenant, client_id, will } in &taken {
            kept.memory -= memory(tenant, client_id, will);
        }
        kept.count -= taken.len();
        self.wills.kept.fetch_sub(taken.len() as u64, Ordering::SeqCst);
        taken
    }
}

/// Takes the will of a client.
fn take(wills: &mut ByTenant, tenant: &str, client_id: &str) -> Option<KeptWill> {
    let of_tenant = wills.get_mut(tenant)?;
    let (_, will) = of_tenant.remove(client_id)?;
    if of_tenant.is_empty() {
        wills.remove(tenant);
    }
    Some(will)
}

/// What a kept will needs, in bytes, about.
fn memory(tenant: &str, client_id: &str, will: &KeptWill) -> usize {
    OVERHEAD + tenant.len() + client_id.len() + will.user.len() + will.message.size()
}

#[cfg(test)]
mod tests {
    use barid_core::message::Publication;
    use mqtt_proto::QoS;

    use super::super::ClusterSize;
    use super::super::tests::Silent;
    use super::*;
    use crate::random::tests::COUNTING;

    fn cluster() -> Cluster {
        let size = ClusterSize { members: 3, threads: 1, origin: 1 };
        let cluster = Cluster::new(size, 1, COUNTING, Box::new(Silent), None);
        assert_eq!(["a", "b"].map(|name| cluster.place(name)), [Some(A), Some(B)]);
        cluster
    }

    const A: MemberRef = MemberRef(0);
    const B: MemberRef = MemberRef(1);

    fn will(connected_at: u64, payload: &[u8]) -> KeptWill {
        let publication = Publication {
            topic: "gone",
            payload,
            properties: &[],
            qos: QoS::AtLeastOnce,
            retain: false,
            expires_at: None,
        };
        let message = Arc::new(Message::new(&publication));
        KeptWill { connected_at, user: "".into(), message, expiry: None }
    }

    /// The clients whose wills this broker publishes.
    fn published(cluster: &Cluster) -> Vec<String> {
        let taken = cluster.take_orphans(100);
        let mut clients: Vec<_> = taken.iter().map(|orphan| orphan.client_id.to_string()).collect();
        clients.sort_unstable();
        clients
    }

    fn is_empty(cluster: &Cluster) -> bool {
        let of_members = cluster.members.iter().map(|place| {
            let kept = place.kept.lock();
            kept.count + kept.memory + kept.wills.len()
        });
        of_members.sum::<usize>() == 0 && cluster.wills.kept.load(Ordering::SeqCst) == 0
    }

    #[test]
    fn the_first_keeper_publishes_and_who_is_back_is_not_gone() {
        let cluster = cluster();
        let now = MonoTime::from_millis(1_000);
        cluster.on_wills(A, "");
        for client in ["one", "two", "three", "four"] {
            cluster.on_will(A, "acme", client, will(10, b"first"));
        }
        cluster.on_will(A, "acme", "one", will(20, b"second"));
        cluster.on_no_will(A, "acme", "two");
        cluster.on_wills_told(A);
        cluster.is_back("acme", "one", 15);
        cluster.is_back("acme", "three", 15);
        assert_eq!(cluster.wills_of(A), 2, "one has connected once more since");
        assert!(!cluster.is_orphaned(B, now, |_| true));
        assert!(cluster.is_orphaned(A, now, |_| true));
        cluster.is_back("acme", "one", 15);
        cluster.is_back("acme", "four", 30);
        assert_eq!(published(&cluster), ["one"]);
        assert!(is_empty(&cluster));
    }

    #[test]
    fn the_second_keeper_publishes_if_the_first_one_is_or_was_down() {
        let at = MonoTime::from_millis;
        let is_second = |cluster: &Cluster| {
            cluster.on_wills(A, "b");
            cluster.on_will(A, "acme", "one", will(10, b"x"));
            cluster.on_wills_told(A);
        };
        // First the broker and then the keeper, both orders with the keeper back at once, and too late.
        for (is_first_down, down_again, is_published) in [
            (false, Some(2_000), true),
            (false, Some(62_000), false),
            (true, None, true),
            (false, None, false),
        ] {
            let cluster = cluster();
            is_second(&cluster);
            if is_first_down {
                assert!(!cluster.is_orphaned(B, at(500), |_| true));
            }
            let is_due = cluster.is_orphaned(A, at(1_000), |_| true);
            let is_due =
                down_again.map_or(is_due, |when| cluster.is_orphaned(B, at(when), |_| true));
            assert_eq!(is_due, is_published);
            assert_eq!(published(&cluster).len(), usize::from(is_published));
            cluster.forget_published(at(61_000));
            assert!(is_empty(&cluster));
        }
        let cluster = cluster();
        is_second(&cluster);
        assert!(cluster.is_orphaned(A, at(1_000), |name| name != "b"));
        cluster.return_orphans(cluster.take_orphans(1));
        assert_eq!(published(&cluster), ["one"]);
    }

    #[test]
    fn a_snapshot_replaces_what_was_kept() {
        let cluster = cluster();
        cluster.on_wills(A, "");
        cluster.on_will(A, "acme", "one", will(10, b"x"));
        cluster.on_will(A, "acme", "two", will(10, b"x"));
        cluster.on_wills(A, "");
        cluster.on_will(A, "acme", "one", will(10, b"x"));
        assert_eq!(cluster.wills_of(A), 2, "as long as it has not come as a whole");
        cluster.on_wills_told(A);
        assert_eq!(cluster.wills_of(A), 1);
        cluster.on_will(A, "acme", "one", will(10, &[0; LENGTH_MAX]));
        assert_eq!((cluster.wills_of(A), cluster.wills_refused()), (0, 1), "too large");
        let (mut count, large) = (0, [0; LENGTH_MAX - 4]);
        while cluster.wills_refused() == 1 {
            cluster.on_will(A, "acme", &count.to_string(), will(10, &large));
            count += 1;
        }
        assert!((14_000..16_384).contains(&cluster.wills_of(A)), "64 MiB");
        cluster.forget_all_kept();
        assert!(is_empty(&cluster));
    }

    #[test]
    fn a_broker_tells_its_keepers_and_makes_others_forget() {
        let cluster = cluster();
        let acme: Arc<str> = "acme".into();
        let one = will(10, b"x");
        cluster.set_keepers([B].into_iter());
        cluster.keep_will(&acme, "one", one.clone());
        cluster.keep_will(&acme, "two", will(11, &[0; LENGTH_MAX]));
        let tell = |member, told: &mut WillsTold| {
            let mut frames = Vec::new();
            while cluster.tell_wills(member, told, |frame| {
                frames.push(
                    format!("{frame:?}").split([' ', '(']).next().unwrap_or_default().to_owned(),
                );
            }) {}
            frames
        };
        let (mut to_a, mut to_b) = (WillsTold::default(), WillsTold::default());
        assert_eq!(tell(A, &mut to_a), ["WillsBegin", "WillsTold"]);
        assert_eq!(tell(B, &mut to_b), ["WillsBegin", "Will", "WillsTold"]);
        assert!(tell(A, &mut to_a).is_empty() && tell(B, &mut to_b).is_empty());
        cluster.will_is_over(&acme, "one", &will(10, b"x").message);
        assert!(tell(B, &mut to_b).is_empty(), "another will of the same client");
        cluster.will_is_over(&acme, "one", &one.message);
        assert_eq!(tell(B, &mut to_b), ["NoWill"]);
        cluster.set_keepers([A, B].into_iter());
        assert_eq!(tell(A, &mut to_a), ["WillsBegin", "WillsTold"]);
        assert_eq!(tell(B, &mut to_b), ["WillsBegin", "WillsTold"], "the second one from now on");
    }
}
