//! The objects of which every broker of a cluster has a replica: managed objects and retained messages.
//!
//! Each change of such an object has a stamp. Brokers tell each other their changes, and compare
//! [digests](barid_peers::Digest) of what they have. Of two changes of one object the later one wins everywhere. A removal
//! leaves a *tombstone*: the name of the object with the stamp of the removal, so that an older replica of another broker
//! does not bring the object back.

use std::sync::Arc;

use barid_core::durable::keys::ManagedKind;
use barid_core::stamp::{Stamp, Stamps};
use barid_peers::{Digest, Object};
use xxhash_rust::xxh3::xxh3_64;

use crate::clock::Clock;
use crate::names::is_local;
use crate::sync::Mutex;

/// The kind of retained messages among all replicated objects. Those of managed objects are the numbers of
/// [`ManagedKind`].
pub const RETAINED: u8 = 128;

/// The stamp of a [mark](barid_core::durable::keys::ManagedKey::mark), which never changes.
pub(crate) const MARK: Stamp = Stamp { time: 0, origin: 1 };

/// Number of tombstones, of each kind of managed objects and of the retained messages of each tenant, beyond which a sweep
/// forgets the older half.
const TOMBSTONES_KEPT: usize = 50_000;

/// Called with each object that has changed here.
pub type OnChange = Box<dyn Fn(Object<'_>) + Send + Sync>;

/// The stamps and the digest of all replicated objects of this broker.
pub struct Replicated {
    clock: Clock,
    stamps: Mutex<Stamps>,
    digest: Digest,
    /// Tells the other brokers; `None`: there is no cluster.
    on_change: Option<OnChange>,
}

impl Replicated {
    /// Creates the state of a broker without objects. In a cluster, `origin` tells the stamps of this broker from those of
    /// others, and `on_change` tells the others.
    pub(crate) fn new(clock: Clock, origin: u64, on_change: Option<OnChange>) -> Arc<Self> {
        let stamps = Mutex::new(Stamps::of(origin));
        Arc::new(Self { clock, stamps, digest: Digest::default(), on_change })
    }

    /// Creates the state of a broker that belongs to no cluster.
    pub fn alone(clock: Clock) -> Arc<Self> {
        Self::new(clock, 0, None)
    }

    /// Whether there are other brokers, which have replicas.
    pub(crate) fn is_shared(&self) -> bool {
        self.on_change.is_some()
    }

    /// Returns the stamp of a change that is made here now.
    pub(crate) fn stamp(&self) -> Stamp {
        self.stamps.lock().next(self.clock.wall_micros())
    }

    /// Notes a stamp that was not given here: later changes get greater ones.
    pub(crate) fn see(&self, stamp: Stamp) {
        self.stamps.lock().see(stamp);
    }

    /// Notes the last change of an object, before and now. `None`: it does not exist.
    pub(crate) fn note(&self, object: Object<'_>, before: Option<Stamp>, now: Option<Stamp>) {
        if self.is_shared() && before != now {
            self.digest.change(object.hash(), before, now);
        }
    }

    /// Tells the other brokers of a change that was made here.
    pub(crate) fn tell(&self, object: Object<'_>) {
        if let Some(tell) = &self.on_change {
            tell(object);
        }
    }

    /// The digests of all objects.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }
}

/// The retained messages of one tenant, as far as they have replicas.
pub(crate) struct OfTenant {
    pub replicated: Arc<Replicated>,
    pub tenant: Box<str>,
}

impl OfTenant {
    /// Whether the retained message of a topic has replicas.
    pub fn has(topic: &str) -> bool {
        !is_local(topic)
    }

    /// Returns those of a tenant of a cluster, if the retained message of a topic is among them.
    pub fn of<'a>(own: &'a Option<Self>, topic: &str) -> Option<&'a Self> {
        own.as_ref().filter(|_| Self::has(topic))
    }

    /// [`Replicated::note`], for the retained message of a topic.
    pub fn note(&self, topic: &str, before: Option<Stamp>, now: Option<Stamp>) {
        self.replicated.note(retained(&self.tenant, topic), before, now);
    }
}

/// The name of a retained message among all replicated objects.
pub(crate) fn retained<'a>(tenant: &'a str, topic: &'a str) -> Object<'a> {
    Object { kind: RETAINED, tenant, name: topic }
}

/// The name of a managed object among all replicated objects.
pub(crate) fn managed(kind: ManagedKind, name: &str) -> Object<'_> {
    Object { kind: kind as u8, tenant: "", name }
}

/// Returns the stamp of an object that was stored with this one. Objects that were stored without a stamp get one that is
/// less than those of all changes, and the same for the same contents.
pub(crate) fn stamp_or_of(stamp: Stamp, contents: &[u8]) -> Stamp {
    match stamp {
        Stamp::NONE => Stamp { time: 0, origin: xxh3_64(contents).max(2) },
        stamp => stamp,
    }
}

/// Returns the time from which on tombstones are kept: if there are more than [`TOMBSTONES_KEPT`], or `too_large` says so, that
/// of the younger half.
pub(crate) fn kept_from(stamps: impl ExactSizeIterator<Item = Stamp>, too_large: bool) -> u64 {
    if stamps.len() <= TOMBSTONES_KEPT && !(too_large && stamps.len() > 0) {
        return 0;
    }
    let mut times: Vec<_> = stamps.map(|stamp| stamp.time).collect();
    let middle = times.len() / 2;
    *times.select_nth_unstable(middle).1
}

impl std::fmt::Debug for Replicated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replicated").field("digest", &self.digest).finish_non_exhaustive()
    }
}
