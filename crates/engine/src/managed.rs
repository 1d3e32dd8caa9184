//! Managed objects: users, settings of tenants, bans and tokens that operators change while the broker runs.
//!
//! The engine stores them as texts that it does not read. All of them are in memory, and each is stored in the
//! shard of its tenant. While a shard is closed, its objects can be read and not changed. In a cluster all brokers have all
//! objects ([`Replicated`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use barid_core::durable::ManagedRecord;
use barid_core::durable::keys::ManagedKey;
use barid_core::durable::records::MANAGED_TEXT_MAX;
use barid_core::ids::ShardIndex;
use barid_core::stamp::Stamp;
use barid_peers::Object as Named;
use thiserror::Error;

use crate::durable::{Commits, DurableShard, Shards};
use crate::replicated::{self, MARK, Replicated};
use crate::sync::{Mutex, RwLock};

pub use barid_core::durable::keys::{MANAGED_NAME_MAX, ManagedKind};

/// Maximum number of objects, of all kinds together. Beyond it, a new one is refused.
pub const OBJECTS_MAX: usize = 1_000_000;

/// Maximum size of the names and texts of all objects, in bytes: 1 GiB. Beyond it, an object that needs more is
/// refused.
pub const BYTES_MAX: usize = 1024 * 1024 * 1024;

/// Maximum size of the texts of a [`Page`], in bytes. A page that would have more ends early, so that listing
/// takes a bounded time and a bounded memory.
const PAGE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Number of objects that are visited under one lock.
const TOGETHER: usize = 1_000;

/// All managed objects of a broker.
pub struct Managed {
    shards: Arc<Shards>,
    replicated: Arc<Replicated>,
    table: RwLock<Table>,
    /// Held while an object is changed: one at a time. Readers wait only while the table is changed.
    changing: Mutex<()>,
    subscribers: RwLock<Vec<Arc<Subscriber>>>,
}

/// A function that is called with the kind and the name of each object that has changed.
type Subscriber = dyn Fn(ManagedKind, &str) + Send + Sync;

#[derive(Debug, Default)]
struct Table {
    kinds: [OfKind; ManagedKind::ALL.len()],
    /// Number of objects.
    count: usize,
    /// Bytes of the names and texts of all objects.
    bytes: usize,
    /// The shards that were opened since the start.
    opened: BTreeSet<ShardIndex>,
}

/// The objects of one kind.
#[derive(Debug, Default)]
struct OfKind {
    by_name: BTreeMap<Arc<str>, Stamped>,
    /// The objects that were removed, as long as other brokers may have replicas of them.
    tombstones: BTreeMap<Arc<str>, Stamp>,
    /// The shards that have or had an object of the kind, as marks in their stores say.
    marked: BTreeSet<ShardIndex>,
}

/// The text of an object, and its last change.
#[derive(Clone, Debug)]
struct Stamped {
    text: Arc<str>,
    stamp: Stamp,
}

/// An object: its name and its text.
pub type Object = (Arc<str>, Arc<str>);

/// Objects of a list, sorted by name.
#[derive(Debug, PartialEq, Eq)]
pub struct Page {
    /// The objects.
    pub objects: Vec<Object>,
    /// The name of the last object, if there are more: the next page begins behind it.
    pub next: Option<Arc<str>>,
}

/// What a change has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// The object is new.
    Created,
    /// The object has another text.
    Replaced,
    /// The object is removed.
    Removed,
    /// There was no object, and there is none.
    Nothing,
}

/// Reason for which an object is not changed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ManagedError {
    /// No object of the kind can have the name.
    #[error(
        "{1:?} cannot be the name of a {kind}: a name is not empty, and has at most {MANAGED_NAME_MAX} bytes",
        kind = .0.name()
    )]
    Name(ManagedKind, Box<str>),
    /// The text is empty, or too long.
    #[error(
        "the description of the {kind} has {1} bytes, and the maximum is {MANAGED_TEXT_MAX}",
        kind = .0.name()
    )]
    Text(ManagedKind, usize),
    /// There are too many objects, or they are too large.
    #[error(
        "there is no room for the {kind}: all users, settings of tenants, bans and tokens together are at most \
         {OBJECTS_MAX}, with {BYTES_MAX} bytes",
        kind = .0.name()
    )]
    Full(ManagedKind),
    /// The shard of the object is closed.
    #[error("the shard of the {kind} is closed: try again when it is open", kind = .0.name())]
    Closed(ManagedKind),
}

impl Managed {
    /// Creates an empty table of objects that are stored in these shards.
    pub fn new(shards: Arc<Shards>, replicated: Arc<Replicated>) -> Self {
        let (table, changing, subscribers) = Default::default();
        Self { shards, replicated, table, changing, subscribers }
    }

    /// Returns the text of an object.
    pub fn get(&self, kind: ManagedKind, name: &str) -> Option<Arc<str>> {
        self.table.read().of(kind).by_name.get(name).map(|object| Arc::clone(&object.text))
    }

    /// Number of objects of a kind.
    pub fn count(&self, kind: ManagedKind) -> usize {
        self.table.read().of(kind).by_name.len()
    }

    /// Bytes of the names and texts of all objects.
    pub fn bytes(&self) -> usize {
        self.table.read().bytes
    }

    /// Whether there is or ever was an object of this kind. The removal of the last one does not change that.
    pub fn is_used(&self, kind: ManagedKind) -> bool {
        let table = self.table.read();
        let OfKind { by_name, marked, .. } = table.of(kind);
        !marked.is_empty() || !by_name.is_empty()
    }

    /// Returns objects of a kind whose names begin with `prefix` and sort behind `after`, sorted by name: at most
    /// `limit`, and fewer if their texts are long, but at least one if there is any.
    pub fn list(&self, kind: ManagedKind, prefix: &str, after: Option<&str>, limit: usize) -> Page {
        let table = self.table.read();
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let mut found = table.of(kind).by_name.range::<str, _>((from, Bound::Unbounded));
        let mut page = Page { objects: Vec::new(), next: None };
        let mut bytes = 0;
        while let Some((name, Stamped { text, .. })) =
            found.next().filter(|(name, _)| name.starts_with(prefix))
        {
            bytes += text.len();
            let is_full = page.objects.len() >= limit || bytes > PAGE_BYTES_MAX;
            if is_full && !page.objects.is_empty() {
                page.next = page.objects.last().map(|(last, _)| Arc::clone(last));
                break;
            }
            page.objects.push((Arc::clone(name), Arc::clone(text)));
        }
        page
    }

    /// Calls `each` for each object of a kind, in the order of names. Other threads can change objects meanwhile.
    pub fn for_each(&self, kind: ManagedKind, mut each: impl FnMut(&Arc<str>, &Arc<str>)) {
        let mut after: Option<Arc<str>> = None;
        loop {
            let page = self.list(kind, "", after.as_deref(), TOGETHER);
            page.objects.iter().for_each(|(name, text)| each(name, text));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }

    /// Puts an object, in place of the one with the same name.
    ///
    /// # Errors
    /// [`ManagedError`]; nothing has changed then.
    pub fn put(
        &self,
        kind: ManagedKind,
        name: &str,
        text: String,
        commits: &mut Commits,
    ) -> Result<Done, ManagedError> {
        self.change(kind, name, commits, |_| Ok(Some(text)))
    }

    /// Removes an object.
    ///
    /// # Errors
    /// [`ManagedError`]; nothing has changed then.
    pub fn remove(
        &self,
        kind: ManagedKind,
        name: &str,
        commits: &mut Commits,
    ) -> Result<Done, ManagedError> {
        self.change(kind, name, commits, |_| Ok(None))
    }

    /// Changes an object: `change` gets the present text, and returns the new one, or `None` to remove the object.
    /// No other object changes meanwhile, so `change` must be quick, and must not change objects itself. The change
    /// is in force at once, and is durable when `commits` are.
    ///
    /// # Errors
    /// [`ManagedError`], or an error of `change`; nothing has changed then.
    pub fn change<E: From<ManagedError>>(
        &self,
        kind: ManagedKind,
        name: &str,
        commits: &mut Commits,
        change: impl FnOnce(Option<&str>) -> Result<Option<String>, E>,
    ) -> Result<Done, E> {
        let key = ManagedKey::of(kind, name);
        let key = key.ok_or_else(|| ManagedError::Name(kind, shortened(name)))?;
        let done = {
            let _changing = self.changing.lock();
            let shard = self.shards.of_tenant(key.tenant);
            if !shard.is_open() {
                return Err(ManagedError::Closed(kind).into());
            }
            let before = self.get(kind, name);
            let after: Option<Arc<str>> = change(before.as_deref())?.map(Arc::from);
            self.check_room(kind, name, before.as_deref(), after.as_deref())?;
            let done = match (&before, &after) {
                (None, None) => return Ok(Done::Nothing),
                (None, Some(_)) => Done::Created,
                (Some(_), Some(_)) => Done::Replaced,
                (Some(_), None) => Done::Removed,
            };
            let stamp = self.replicated.stamp();
            self.set((key, name), &shard, (after, stamp), commits)?;
            done
        };
        self.replicated.tell(replicated::managed(kind, name));
        self.notify(kind, name);
        Ok(done)
    }

    /// Takes over the state of an object from another broker: its record, or a tombstone. Does nothing, and returns false,
    /// if the own state is later. An object without a name is the mark of its kind.
    ///
    /// # Errors
    /// [`ManagedError`]; nothing has changed then.
    pub(crate) fn merge(
        &self,
        kind: ManagedKind,
        name: &str,
        record: ManagedRecord,
        commits: &mut Commits,
    ) -> Result<bool, ManagedError> {
        if name.is_empty() {
            return self.merge_mark(kind, commits);
        }
        let key = ManagedKey::of(kind, name);
        let key = key.ok_or_else(|| ManagedError::Name(kind, shortened(name)))?;
        let ManagedRecord { text, stamp } = record;
        {
            let _changing = self.changing.lock();
            if self.table.read().last_change(kind, name).is_some_and(|own| own >= stamp) {
                return Ok(false);
            }
            let shard = self.shards.of_tenant(key.tenant);
            if !shard.is_open() {
                return Err(ManagedError::Closed(kind));
            }
            let after = (!text.is_empty()).then_some(text);
            self.check_room(kind, name, self.get(kind, name).as_deref(), after.as_deref())?;
            self.replicated.see(stamp);
            self.set((key, name), &shard, (after, stamp), commits)?;
        }
        self.notify(kind, name);
        Ok(true)
    }

    fn merge_mark(&self, kind: ManagedKind, commits: &mut Commits) -> Result<bool, ManagedError> {
        let _changing = self.changing.lock();
        if self.is_used(kind) {
            return Ok(false);
        }
        let shard = self.shards.of_tenant("");
        let mut changed = shard.change();
        if changed.is_lost() {
            return Err(ManagedError::Closed(kind));
        }
        changed.put_managed(ManagedKey::mark(kind), mark());
        commits.add(changed.index(), changed.batch());
        drop(changed);
        self.table.write().set_mark(kind, shard.index(), &self.replicated);
        Ok(true)
    }

    /// Sets or removes an object, in its shard and in the table. Objects must not change meanwhile.
    fn set(
        &self,
        (key, name): (ManagedKey<'_>, &str),
        shard: &Arc<DurableShard>,
        (after, stamp): (Option<Arc<str>>, Stamp),
        commits: &mut Commits,
    ) -> Result<(), ManagedError> {
        let kind = key.kind;
        // The mark is in the batch of the first object of the shard, and is never removed.
        let is_marked = self.table.read().of(kind).marked.contains(&shard.index());
        {
            let mut changed = shard.change();
            if changed.is_lost() {
                return Err(ManagedError::Closed(kind));
            }
            match &after {
                Some(text) => changed.put_managed(key, ManagedRecord { text: text.clone(), stamp }),
                None if self.replicated.is_shared() => changed.put_managed(key, tombstone(stamp)),
                None => changed.remove_managed(key),
            }
            if !is_marked {
                changed.put_managed(ManagedKey::mark(kind), mark());
            }
            commits.add(changed.index(), changed.batch());
        }
        let mut table = self.table.write();
        table.set_mark(kind, shard.index(), &self.replicated);
        match after {
            Some(text) => table.put(kind, name, Stamped { text, stamp }, &self.replicated),
            None => {
                table.remove(kind, name, &self.replicated);
                if self.replicated.is_shared() {
                    table.of_mut(kind).tombstones.insert(name.into(), stamp);
                }
            }
        }
        Ok(())
    }

    /// Returns the record of an object, a tombstone or a mark, for another broker.
    pub(crate) fn record(&self, kind: ManagedKind, name: &str) -> Option<ManagedRecord> {
        let table = self.table.read();
        let of = table.of(kind);
        if name.is_empty() {
            return (!of.marked.is_empty()).then(mark);
        }
        let object = of.by_name.get(name).cloned();
        let object = object.map(|Stamped { text, stamp }| ManagedRecord { text, stamp });
        object.or_else(|| of.tombstones.get(name).copied().map(tombstone))
    }

    /// Calls `each` with all objects and marks, then with all tombstones. Other threads can change objects meanwhile.
    pub(crate) fn visit(&self, mut each: impl FnMut(Named<'_>, Stamp, bool)) {
        for kind in ManagedKind::ALL {
            let is_marked = !self.table.read().of(kind).marked.is_empty();
            if is_marked {
                each(replicated::managed(kind, ""), MARK, false);
            }
            self.in_steps(
                |table| &table.of(kind).by_name,
                |name, object| {
                    each(replicated::managed(kind, name), object.stamp, false);
                },
            );
            self.in_steps(
                |table| &table.of(kind).tombstones,
                |name, stamp| {
                    each(replicated::managed(kind, name), *stamp, true);
                },
            );
        }
    }

    /// Calls `each` for each entry of a map, and releases the lock of the table from time to time.
    fn in_steps<V>(
        &self,
        map: impl Fn(&Table) -> &BTreeMap<Arc<str>, V>,
        mut each: impl FnMut(&Arc<str>, &V),
    ) {
        let mut after: Option<Arc<str>> = None;
        loop {
            let table = self.table.read();
            let from = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let mut last = None;
            for (name, value) in
                map(&table).range::<str, _>((from, Bound::Unbounded)).take(TOGETHER)
            {
                each(name, value);
                last = Some(Arc::clone(name));
            }
            after = match last {
                Some(last) => Some(last),
                None => return,
            };
        }
    }

    /// Forgets the tombstones for which `is_over` returns true, and if there are too many of a kind, the older half.
    pub(crate) fn forget_tombstones(&self, is_over: impl Fn(Named<'_>, Stamp) -> bool) {
        for kind in ManagedKind::ALL {
            let from = {
                let table = self.table.read();
                replicated::kept_from(table.of(kind).tombstones.values().copied(), false)
            };
            let mut over = Vec::new();
            self.in_steps(
                |table| &table.of(kind).tombstones,
                |name, stamp| {
                    if stamp.time < from || is_over(replicated::managed(kind, name), *stamp) {
                        over.push((Arc::clone(name), *stamp));
                    }
                },
            );
            let _changing = self.changing.lock();
            for (name, stamp) in over {
                let Some(key) = ManagedKey::of(kind, &name) else { continue };
                let mut table = self.table.write();
                if table.of(kind).tombstones.get(&name) == Some(&stamp) {
                    self.shards.of_tenant(key.tenant).change().remove_managed(key);
                    table.of_mut(kind).tombstones.remove(&name);
                }
            }
        }
    }

    fn check_room(
        &self,
        kind: ManagedKind,
        name: &str,
        before: Option<&str>,
        after: Option<&str>,
    ) -> Result<(), ManagedError> {
        let Some(after) = after else { return Ok(()) };
        if after.is_empty() || after.len() > MANAGED_TEXT_MAX {
            return Err(ManagedError::Text(kind, after.len()));
        }
        let table = self.table.read();
        let (objects, bytes) = match before {
            Some(before) => (0, after.len().saturating_sub(before.len())),
            None => (1, name.len() + after.len()),
        };
        let is_full = table.count + objects > OBJECTS_MAX || table.bytes + bytes > BYTES_MAX;
        if is_full && objects + bytes > 0 { Err(ManagedError::Full(kind)) } else { Ok(()) }
    }

    /// Adds a function that is called after each change of an object, on the thread that has changed it, and must
    /// return soon. It gets the kind and the name of the object, and may ask for the object: if the object has
    /// changed twice, the function is called twice, perhaps by two threads, and the later call finds the later
    /// state.
    pub fn on_change(&self, call: impl Fn(ManagedKind, &str) + Send + Sync + 'static) {
        self.subscribers.write().push(Arc::new(call));
    }

    fn notify(&self, kind: ManagedKind, name: &str) {
        // Without a lock: a subscriber may change other objects.
        let subscribers = self.subscribers.read().clone();
        subscribers.iter().for_each(|call| call(kind, name));
    }

    /// Puts the objects that were found in the store of a shard in place of those that the shard had before.
    pub(crate) fn open(&self, shard: ShardIndex, found: Found) {
        let changed = {
            let _changing = self.changing.lock();
            let mut table = self.table.write();
            let mut changed = Vec::new();
            if !table.opened.insert(shard) {
                let is_of_shard = |kind, name: &str| {
                    let key = ManagedKey::of(kind, name);
                    key.is_some_and(|key| self.shards.of_tenant(key.tenant).index() == shard)
                };
                for kind in ManagedKind::ALL {
                    let names = table.of(kind).by_name.keys();
                    let gone =
                        names.filter(|name| is_of_shard(kind, name) && !found.has(kind, name));
                    changed.extend(gone.map(|name| (kind, Arc::clone(name))));
                }
                for (kind, name) in &changed {
                    table.remove(*kind, name, &self.replicated);
                }
            }
            for kind in found.marked {
                table.set_mark(kind, shard, &self.replicated);
            }
            for ((kind, name), ManagedRecord { text, stamp }) in found.objects {
                self.replicated.see(stamp);
                if text.is_empty() {
                    if self.replicated.is_shared() {
                        table.of_mut(kind).tombstones.insert(name, stamp);
                    }
                    continue;
                }
                let stamp = replicated::stamp_or_of(stamp, text.as_bytes());
                if table.of(kind).by_name.get(&name).is_none_or(|object| object.text != text) {
                    changed.push((kind, Arc::clone(&name)));
                }
                table.put(kind, &name, Stamped { text, stamp }, &self.replicated);
            }
            changed
        };
        for (kind, name) in changed {
            self.notify(kind, &name);
        }
    }
}

impl Table {
    fn of(&self, kind: ManagedKind) -> &OfKind {
        &self.kinds[kind as usize - 1]
    }

    fn of_mut(&mut self, kind: ManagedKind) -> &mut OfKind {
        &mut self.kinds[kind as usize - 1]
    }

    /// The stamp of the last change of an object, which may be its removal.
    fn last_change(&self, kind: ManagedKind, name: &str) -> Option<Stamp> {
        let OfKind { by_name, tombstones, .. } = self.of(kind);
        by_name.get(name).map(|object| object.stamp).or_else(|| tombstones.get(name).copied())
    }

    /// Sets an object, and counts it.
    fn put(&mut self, kind: ManagedKind, name: &str, object: Stamped, replicated: &Replicated) {
        let of = self.of_mut(kind);
        of.tombstones.remove(name);
        let (len, stamp) = (object.text.len(), object.stamp);
        let before = match of.by_name.get_mut(name) {
            Some(before) => Some(std::mem::replace(before, object)),
            None => of.by_name.insert(name.into(), object),
        };
        match &before {
            Some(before) => self.bytes = self.bytes + len - before.text.len(),
            None => {
                self.count += 1;
                self.bytes += name.len() + len;
            }
        }
        let before = before.map(|before| before.stamp);
        replicated.note(replicated::managed(kind, name), before, Some(stamp));
    }

    /// Removes an object.
    fn remove(&mut self, kind: ManagedKind, name: &str, replicated: &Replicated) {
        if let Some(Stamped { text, stamp }) = self.of_mut(kind).by_name.remove(name) {
            self.count -= 1;
            self.bytes -= name.len() + text.len();
            replicated.note(replicated::managed(kind, name), Some(stamp), None);
        }
    }

    fn set_mark(&mut self, kind: ManagedKind, shard: ShardIndex, replicated: &Replicated) {
        let marked = &mut self.of_mut(kind).marked;
        if marked.is_empty() {
            replicated.note(replicated::managed(kind, ""), None, Some(MARK));
        }
        marked.insert(shard);
    }
}

/// The objects and marks in the store of one shard.
#[derive(Debug, Default)]
pub(crate) struct Found {
    objects: BTreeMap<(ManagedKind, Arc<str>), ManagedRecord>,
    marked: BTreeSet<ManagedKind>,
}

impl Found {
    /// Adds a record of the store.
    pub(crate) fn add(&mut self, key: ManagedKey<'_>, record: ManagedRecord) {
        if key.is_mark() {
            self.marked.insert(key.kind);
        } else {
            self.objects.insert((key.kind, key.full_name().into()), record);
        }
    }

    /// Number of objects.
    pub(crate) fn len(&self) -> usize {
        self.objects.values().filter(|record| !record.text.is_empty()).count()
    }

    fn has(&self, kind: ManagedKind, name: &Arc<str>) -> bool {
        let found = self.objects.get(&(kind, Arc::clone(name)));
        found.is_some_and(|record| !record.text.is_empty())
    }
}

fn mark() -> ManagedRecord {
    ManagedRecord { text: "".into(), stamp: Stamp::NONE }
}

fn tombstone(stamp: Stamp) -> ManagedRecord {
    ManagedRecord { text: "".into(), stamp }
}

/// Returns the beginning of a name, for an error.
fn shortened(name: &str) -> Box<str> {
    const LEN_MAX: usize = 64;
    match name.char_indices().nth(LEN_MAX) {
        Some((end, _)) => format!("{}…", &name[..end]).into(),
        None => name.into(),
    }
}

impl fmt::Debug for Managed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Managed").field("count", &self.table.read().count).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
