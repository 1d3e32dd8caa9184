//! The bindings of a tenant.
//!
//! Those of the configuration are as it has them. Others are set while the broker runs, and stored. A name
//! that both have means that of the configuration.

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

use super::binding::{Binding, BindingError};
use super::bound::{Bound, Counts, Direction, Passage};
use crate::account::Account;
use crate::durable::Commits;
use crate::entities::DeclaredBy;
use crate::sync::{Mutex, RwLock};

/// The most bindings of a tenant that are stored.
const STORED_MAX: usize = 1_000;

/// What stands before the name of a binding where entities have their path in the store. No entity's path
/// begins with it.
pub const STORED_UNDER: &str = "$bindings/";

/// The bindings of one tenant.
#[derive(Default)]
pub struct Bindings {
    /// How often the table was replaced.
    generation: AtomicU64,
    /// The bindings that are in force. Replaced as a whole.
    table: RwLock<Arc<Table>>,
    /// Held by who changes them: one at a time.
    declared: Mutex<Declared>,
}

/// The bindings that are in force.
#[derive(Default)]
pub struct Table {
    /// By name.
    all: BTreeMap<Box<str>, Arc<Bound>>,
    /// The bindings from MQTT, in order of their names.
    ins: Box<[Arc<Bound>]>,
    /// The same by topic filter, if there are any.
    by_filter: Option<TopicIndex<Place>>,
}

/// A binding has none of the options of a subscription.
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

/// Who has declared what.
#[derive(Debug, Default)]
struct Declared {
    configured: Vec<Binding>,
    /// With the number under which the store has each.
    stored: BTreeMap<Box<str>, (Binding, QueueNumber)>,
    /// What has passed, also of bindings that were deleted.
    counts: BTreeMap<(Box<str>, Direction), Arc<Counts>>,
}

/// Names of bindings whose counts are kept when they are not in force any more. What has passed others is added to
/// [`OTHERS`] when they are deleted.
const COUNTS_MAX: usize = 2 * STORED_MAX;

/// Stands in metrics for bindings that were deleted and have no series of their own. Nobody can give a binding this
/// name, because it has a slash.
const OTHERS: &str = "/deleted";

/// Why a binding is not set or deleted.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum BindingsError {
    /// It makes no sense.
    #[error("{0}\n  hint: {hint}", hint = .0.hint())]
    Binding(#[from] BindingError),
    /// The configuration has it.
    #[error("the binding {0:?} stands in the configuration: change it there")]
    Configured(Box<str>),
    /// There is none of this name.
    #[error("there is no binding {0:?}")]
    NotFound(Box<str>),
    /// There are as many as there may be.
    #[error("there may be {STORED_MAX} bindings besides those of the configuration, and no more")]
    TooMany,
    /// Where it is, or would be, is closed.
    #[error("the shard of the binding is closed: try again when it is open")]
    Closed,
}

impl Bindings {
    /// Number of changes of the bindings so far: what [`Self::of_topic`] returned holds as long as this number does.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns the bindings that take what is published to a topic, by name, and their generation.
    pub fn of_topic(&self, topic: &str) -> (u64, Box<[Arc<Bound>]>) {
        // Before the table is read, so that bindings of an older table never have the present generation.
        let generation = self.generation();
        let table = Arc::clone(&self.table.read());
        (generation, table.of_topic(topic))
    }

    /// All of them, by name.
    pub fn all(&self) -> Vec<Arc<Bound>> {
        self.table.read().all.values().cloned().collect()
    }

    /// One of them.
    pub fn get(&self, name: &str) -> Option<Arc<Bound>> {
        self.table.read().all.get(name).cloned()
    }

    /// Whether there is none, and nothing was ever counted.
    pub fn are_void(&self) -> bool {
        self.table.read().all.is_empty() && self.declared.lock().counts.is_empty()
    }

    /// What has passed bindings, by name and direction; also those that were deleted.
    pub fn counts(&self) -> Vec<(Box<str>, Direction, Arc<Counts>)> {
        let declared = self.declared.lock();
        let counts = declared.counts.iter();
        counts.map(|((name, way), counts)| (name.clone(), *way, Arc::clone(counts))).collect()
    }

    /// A binding was found in the store.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn recover(&self, name: &str, record: &EntityRecord) -> Result<(), RecordError> {
        let malformed = RecordError::Malformed("a binding");
        let binding: Binding = serde_json::from_slice(&record.definition)
            .ok()
            .filter(|binding: &Binding| binding.name == name && binding.way().is_ok())
            .ok_or(malformed)?;
        self.declared.lock().stored.insert(name.into(), (binding, record.queue));
        Ok(())
    }

    /// Sets a binding, and stores it. True: there was none of its name.
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
        Ok(known.is_none())
    }

    /// Deletes a binding that was set.
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

    /// Has all bindings that a configuration has, beside those that are stored, and no others.
    pub fn configure(&self, bindings: Vec<Binding>) {
        let mut declared = self.declared.lock();
        declared.configured = bindings;
        self.put_in_force(&mut declared);
    }

    /// What is as it was goes on with what it is doing. What was changed goes on with its counts.
    fn put_in_force(&self, declared: &mut Declared) {
        let before = Arc::clone(&self.table.read());
        let mut all = BTreeMap::new();
        let Declared { configured, stored, counts } = declared;
        let stored = stored.values().map(|(binding, _)| (binding, DeclaredBy::Admin));
        let configured = configured.iter();
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
                Err(error) => tracing::error!(binding = binding.name, %error, "left out"),
            }
        }
        declared.forget_counts(&all);
        *self.table.write() = Arc::new(Table::new(all));
        self.generation.fetch_add(1, Ordering::Release);
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

    fn of_topic(&self, topic: &str) -> Box<[Arc<Bound>]> {
        let Some(index) = &self.by_filter else { return Box::default() };
        let route = index.route(topic);
        let mut places: SmallVec<[usize; 4]> =
            route.recipients().iter().map(|target| target.subscriber.0).collect();
        places.sort_unstable();
        places.into_iter().map(|place| Arc::clone(&self.ins[place])).collect()
    }
}

impl Declared {
    /// Adds counts of bindings that are not in force any more to those of [`OTHERS`], as many as are too many.
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
