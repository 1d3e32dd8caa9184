//! The bindings of a tenant.
//!
//! The bindings of the configuration are as the configuration declares them. Others are set while the broker
//! runs, and stored. If both have a binding of the same name, that of the configuration is in force.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use barid_core::durable::EntityRecord;
use barid_core::durable::records::RecordError;
use barid_core::ids::QueueNumber;
use barid_core::topic_index::{SubscribeOptions, Subscriber, TopicIndex};
use mqtt_proto::QoS;
use smallvec::SmallVec;
use thiserror::Error;

use super::binding::{Binding, BindingError, Way};
use super::bound::{Bound, Counts, Direction, Passage};
use crate::account::Account;
use crate::cluster::{Home, Remote};
use crate::durable::Commits;
use crate::entities::DeclaredBy;
use crate::sync::{Mutex, RwLock};

/// Maximum number of stored bindings of a tenant. A further one is refused with [`BindingsError::TooMany`].
const STORED_MAX: usize = 1_000;

/// The prefix of the name of a binding in the store, where entities have their path. No path of an entity
/// begins with it.
pub const STORED_UNDER: &str = "$bindings/";

/// The bindings of one tenant.
#[derive(Default)]
pub struct Bindings {
    /// Number of times that the table was replaced.
    generation: AtomicU64,
    /// The bindings that are in force. The table is replaced as a whole.
    table: RwLock<Arc<Table>>,
    /// The declarations. Locked during each change, so that changes happen one at a time.
    declared: Mutex<Declared>,
    /// The other brokers; `None`: there is no cluster.
    remote: Option<Remote>,
}

/// The bindings that are in force.
#[derive(Default)]
pub struct Table {
    /// All bindings, by name.
    all: BTreeMap<Box<str>, Arc<Bound>>,
    /// The bindings from MQTT to entities, ordered by name.
    ins: Box<[Arc<Bound>]>,
    /// The index of the bindings in `ins` by topic filter. `None`: there are none.
    by_filter: Option<TopicIndex<Place>>,
}

/// A binding has no subscription options.
const NO_OPTIONS: SubscribeOptions = SubscribeOptions {
    qos: QoS::ExactlyOnce,
    no_local: false,
    retain_as_published: false,
    identifier: None,
};

/// The place of a binding in [`Table::ins`].
#[derive(Clone, Copy, Debug)]
struct Place(usize);

impl Subscriber for Place {
    fn key(&self) -> u64 {
        self.0 as u64
    }
}

/// The declared bindings by origin, and their counters.
#[derive(Debug, Default)]
struct Declared {
    configured: Vec<Binding>,
    /// The stored bindings, each with the number of its record.
    stored: BTreeMap<Box<str>, (Binding, QueueNumber)>,
    /// The counters of bindings, including deleted ones.
    counts: BTreeMap<(Box<str>, Direction), Arc<Counts>>,
}

/// Number of counters up to which those of bindings that are no longer in force are kept by name. Above it,
/// those of deleted bindings are added to those of [`OTHERS`]. The bound is twice the number of bindings in
/// force if that is greater.
const COUNTS_MAX: usize = 2 * STORED_MAX;

/// The name in metrics of all deleted bindings whose counters are no longer kept by name. No binding can have
/// this name, because it contains a slash.
const OTHERS: &str = "/deleted";

/// The reason why a binding is not set or deleted.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum BindingsError {
    /// The binding is invalid.
    #[error("{0}\n  hint: {hint}", hint = .0.hint())]
    Binding(#[from] BindingError),
    /// The binding stands in the configuration.
    #[error("the binding {0:?} is declared in the configuration: change it there")]
    Configured(Box<str>),
    /// There is no binding of this name.
    #[error("there is no binding {0:?}")]
    NotFound(Box<str>),
    /// The maximum number of stored bindings is reached.
    #[error("the maximum of {STORED_MAX} bindings besides those of the configuration is reached")]
    TooMany,
    /// The shard of the binding is closed.
    #[error("the shard of the binding is closed: try again when it is open")]
    Closed,
}

impl Bindings {
    /// Creates the table of a tenant without bindings. If another broker has the entities of the tenant, none is in force
    /// here, whatever is declared.
    pub fn of(remote: Option<Remote>) -> Self {
        Self { remote, ..Self::default() }
    }

    /// Returns the number of changes of the bindings so far. The result of [`Self::of_topic`] is valid while
    /// this number does not change.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns the bindings that take messages of a topic, ordered by name, and their generation.
    pub fn of_topic(&self, topic: &str) -> (u64, Box<[Arc<Bound>]>) {
        // The generation is read before the table, so that bindings of an older table never have the present
        // generation.
        let generation = self.generation();
        let table = Arc::clone(&self.table.read());
        (generation, table.of_topic(topic))
    }

    /// Returns all bindings, ordered by name.
    pub fn all(&self) -> Vec<Arc<Bound>> {
        self.table.read().all.values().cloned().collect()
    }

    /// Returns the binding of this name.
    pub fn get(&self, name: &str) -> Option<Arc<Bound>> {
        self.table.read().all.get(name).cloned()
    }

    /// Whether there are no bindings in force and no counters of earlier ones.
    pub fn are_void(&self) -> bool {
        self.table.read().all.is_empty() && self.declared.lock().counts.is_empty()
    }

    /// Returns the counters of all bindings by name and direction, including those of deleted bindings.
    pub fn counts(&self) -> Vec<(Box<str>, Direction, Arc<Counts>)> {
        let declared = self.declared.lock();
        let counts = declared.counts.iter();
        counts.map(|((name, way), counts)| (name.clone(), *way, Arc::clone(counts))).collect()
    }

    /// Adds a binding that was found in the store. [`Self::configure`] puts it in force.
    ///
    /// # Errors
    /// [`RecordError`] if the record cannot be read.
    pub fn recover(&self, name: &str, record: &EntityRecord) -> Result<(), RecordError> {
        let malformed = RecordError::Malformed("a binding");
        let binding: Binding = serde_json::from_slice(&record.definition)
            .ok()
            .filter(|binding: &Binding| binding.name == name && binding.way().is_ok())
            .ok_or(malformed)?;
        self.declared.lock().stored.insert(name.into(), (binding, record.queue));
        Ok(())
    }

    /// Sets a binding, and stores it. Returns true if there was no stored binding of this name.
    ///
    /// # Errors
    /// [`BindingsError`]; nothing has changed then.
    pub fn set(
        &self,
        account: &Account,
        binding: &Binding,
        commits: &mut Commits,
    ) -> Result<bool, BindingsError> {
        binding.check()?;
        let mut declared = self.declared.lock();
        declared.check_free(&binding.name)?;
        let known = declared.stored.get(&*binding.name).map(|(_, number)| *number);
        if known.is_none() && declared.stored.len() >= STORED_MAX {
            return Err(BindingsError::TooMany);
        }
        let path = format!("{STORED_UNDER}{}", binding.name);
        {
            let shard = account.shards.of(&account.name, &path);
            let mut shard = shard.change();
            if shard.is_lost() {
                return Err(BindingsError::Closed);
            }
            let queue = known.unwrap_or_else(|| shard.new_queue_number());
            let definition = serde_json::to_vec(binding).expect("a binding has text for keys");
            let record = EntityRecord { queue, definition: definition.into() };
            shard.put_entity(account.stored_number(), &path, record);
            commits.add(shard.index(), shard.batch());
            declared.stored.insert(binding.name.as_str().into(), (binding.clone(), queue));
        }
        self.put_in_force(&mut declared);
        if let (Some(remote), Ok(Way::In { filter, .. })) = (&self.remote, binding.way()) {
            commits.join(&remote.heard_everywhere(filter));
        }
        Ok(known.is_none())
    }

    /// Deletes a stored binding.
    ///
    /// # Errors
    /// [`BindingsError`]; nothing has changed then.
    pub fn delete(
        &self,
        account: &Account,
        name: &str,
        commits: &mut Commits,
    ) -> Result<(), BindingsError> {
        let mut declared = self.declared.lock();
        declared.check_free(name)?;
        let known = declared.stored.get(name);
        let number = known.ok_or_else(|| BindingsError::NotFound(name.into()))?.1;
        let path = format!("{STORED_UNDER}{name}");
        {
            let shard = account.shards.of(&account.name, &path);
            let mut shard = shard.change();
            if shard.is_lost() {
                return Err(BindingsError::Closed);
            }
            declared.stored.remove(name);
            shard.remove_entity(account.stored_number(), &path, number);
            commits.add(shard.index(), shard.batch());
        }
        self.put_in_force(&mut declared);
        Ok(())
    }

    /// Replaces the bindings of the configuration. Stored bindings stay.
    pub fn configure(&self, bindings: Vec<Binding>) {
        let mut declared = self.declared.lock();
        declared.configured = bindings;
        self.put_in_force(&mut declared);
    }

    /// Looks up which broker has the entities of the tenant, and puts the bindings in force, or out of force.
    pub(crate) fn look_for_home(&self) {
        if let Some(remote) = &self.remote {
            let mut declared = self.declared.lock();
            remote.look_for_home();
            self.put_in_force(&mut declared);
        }
    }

    /// Forgets the stored bindings, which another broker has now.
    pub(crate) fn forget_stored(&self) {
        let mut declared = self.declared.lock();
        declared.stored.clear();
        self.put_in_force(&mut declared);
    }

    /// Puts the declared bindings in force. A binding that has not changed stays the same object; a changed
    /// one keeps its counters.
    fn put_in_force(&self, declared: &mut Declared) {
        let before = Arc::clone(&self.table.read());
        let mut all = BTreeMap::new();
        let Declared { configured, stored, counts } = declared;
        let home = self.remote.as_ref().map_or(Home::Each, Remote::home);
        let are_here = matches!(home, Home::Each | Home::Here);
        let stored =
            stored.values().filter(|_| are_here).map(|(binding, _)| (binding, DeclaredBy::Admin));
        let configured = configured.iter().filter(|_| are_here);
        let configured = configured.map(|binding| (binding, DeclaredBy::Configuration));
        for (binding, by) in stored.chain(configured) {
            let same = before
                .all
                .get(&*binding.name)
                .filter(|known| known.binding == *binding && known.declared_by == by);
            let bound = match same {
                Some(known) => Ok(Arc::clone(known)),
                None => {
                    let counts_of = |way| {
                        let of = (binding.name.as_str().into(), way);
                        Arc::clone(counts.entry(of).or_default())
                    };
                    Bound::new(binding, by, counts_of).map(Arc::new)
                }
            };
            match bound {
                Ok(bound) => drop(all.insert(binding.name.as_str().into(), bound)),
                Err(error) => {
                    tracing::error!(binding = binding.name, %error, "ignored an invalid binding")
                }
            }
        }
        declared.forget_counts(&all);
        let table = Arc::new(Table::new(all));
        *self.table.write() = Arc::clone(&table);
        self.generation.fetch_add(1, Ordering::Release);
        if let Some(remote) = self.remote.as_ref().filter(|_| home != Home::Each) {
            // Messages that are published at other brokers come here for the sake of bindings, as for that of sessions.
            table.filters().for_each(|filter| remote.subscribed(filter));
            before.filters().for_each(|filter| remote.unsubscribed(filter));
        }
    }
}

impl Table {
    fn new(all: BTreeMap<Box<str>, Arc<Bound>>) -> Self {
        let ins: Box<[_]> = all.values().filter(|bound| bound.is_in()).cloned().collect();
        let mut by_filter = None;
        for (place, bound) in ins.iter().enumerate() {
            if let Passage::In { filter, .. } = &bound.passage {
                let index: &mut TopicIndex<_> = by_filter.get_or_insert_default();
                index.subscribe(filter, &Place(place), NO_OPTIONS);
            }
        }
        Self { all, ins, by_filter }
    }

    /// The topic filters of the bindings from MQTT to entities.
    fn filters(&self) -> impl Iterator<Item = &str> {
        self.ins.iter().filter_map(|bound| match &bound.passage {
            Passage::In { filter, .. } => Some(&**filter),
            Passage::Out { .. } => None,
        })
    }

    fn of_topic(&self, topic: &str) -> Box<[Arc<Bound>]> {
        let Some(index) = &self.by_filter else { return Box::default() };
        let route = index.route(topic);
        let mut places: SmallVec<[usize; 4]> =
            route.recipients().iter().map(|found| found.subscriber.0).collect();
        places.sort_unstable();
        places.into_iter().map(|place| Arc::clone(&self.ins[place])).collect()
    }
}

impl Declared {
    /// If there are too many counters, adds surplus ones of bindings that are not in force to those of
    /// [`OTHERS`].
    fn forget_counts(&mut self, in_force: &BTreeMap<Box<str>, Arc<Bound>>) {
        let mut too_many = self.counts.len().saturating_sub(COUNTS_MAX.max(2 * in_force.len()));
        if too_many == 0 {
            return;
        }
        let mut others = [(Direction::In, 0, 0), (Direction::Out, 0, 0)];
        self.counts.retain(|(name, way), counts| {
            let is_kept = too_many == 0 || &**name == OTHERS || in_force.contains_key(name);
            if !is_kept {
                too_many -= 1;
                for (_, passed, refused) in others.iter_mut().filter(|(of, ..)| of == way) {
                    *passed += counts.passed() as usize;
                    *refused += counts.refused() as usize;
                }
            }
            is_kept
        });
        for (way, passed, refused) in others {
            if passed + refused > 0 {
                let counts = self.counts.entry((OTHERS.into(), way)).or_default();
                counts.pass(passed);
                counts.refuse(refused);
            }
        }
    }

    fn check_free(&self, name: &str) -> Result<(), BindingsError> {
        match self.configured.iter().any(|binding| binding.name == name) {
            true => Err(BindingsError::Configured(name.into())),
            false => Ok(()),
        }
    }
}
