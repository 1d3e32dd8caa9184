//! Managed objects: users, settings of tenants, bans and tokens that operators change while the broker runs.
//!
//! The engine stores them as texts that it does not read. All of them are in memory, and each is stored in the
//! shard of its tenant. While a shard is closed, its objects can be read and not changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use barid_core::durable::ManagedRecord;
use barid_core::durable::keys::ManagedKey;
use barid_core::durable::records::MANAGED_TEXT_MAX;
use barid_core::ids::ShardIndex;
use thiserror::Error;

use crate::durable::{Commits, Shards};
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

/// All managed objects of a broker.
pub struct Managed {
    shards: Arc<Shards>,
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
    by_name: BTreeMap<Arc<str>, Arc<str>>,
    /// The shards that have or had an object of the kind, as marks in their stores say.
    marked: BTreeSet<ShardIndex>,
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
    pub fn new(shards: Arc<Shards>) -> Self {
        let (table, changing, subscribers) = Default::default();
        Self { shards, table, changing, subscribers }
    }

    /// Returns the text of an object.
    pub fn get(&self, kind: ManagedKind, name: &str) -> Option<Arc<str>> {
        self.table.read().of(kind).by_name.get(name).cloned()
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
        let OfKind { by_name, marked } = table.of(kind);
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
        while let Some((name, text)) = found.next().filter(|(name, _)| name.starts_with(prefix)) {
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
        /// Objects that are visited under one lock.
        const TOGETHER: usize = 1_000;
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
            // The mark is in the batch of the first object of the shard, and is never removed.
            let is_marked = self.table.read().of(kind).marked.contains(&shard.index());
            {
                let mut changed = shard.change();
                if changed.is_lost() {
                    return Err(ManagedError::Closed(kind).into());
                }
                match &after {
                    Some(text) => changed.put_managed(key, ManagedRecord { text: text.clone() }),
                    None => changed.remove_managed(key),
                }
                if !is_marked {
                    changed.put_managed(ManagedKey::mark(kind), ManagedRecord { text: "".into() });
                }
                commits.add(changed.index(), changed.batch());
            }
            let mut table = self.table.write();
            table.of_mut(kind).marked.insert(shard.index());
            table.set(kind, name, after);
            done
        };
        self.notify(kind, name);
        Ok(done)
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
                    table.set(*kind, name, None);
                }
            }
            for kind in found.marked {
                table.of_mut(kind).marked.insert(shard);
            }
            for ((kind, name), text) in found.objects {
                if table.of(kind).by_name.get(&name) != Some(&text) {
                    table.set(kind, &name, Some(text));
                    changed.push((kind, name));
                }
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

    /// Sets or removes an object, and counts it.
    fn set(&mut self, kind: ManagedKind, name: &str, text: Option<Arc<str>>) {
        let by_name = &mut self.of_mut(kind).by_name;
        let (added, removed) = match text {
            Some(text) => {
                let len = text.len();
                match by_name.get_mut(name) {
                    Some(before) => ((0, len), (0, std::mem::replace(before, text).len())),
                    None => {
                        by_name.insert(name.into(), text);
                        ((1, name.len() + len), (0, 0))
                    }
                }
            }
            None => {
                let removed = by_name.remove(name);
                ((0, 0), removed.map_or((0, 0), |text| (1, name.len() + text.len())))
            }
        };
        self.count = self.count + added.0 - removed.0;
        self.bytes = self.bytes + added.1 - removed.1;
    }
}

/// The objects and marks in the store of one shard.
#[derive(Debug, Default)]
pub(crate) struct Found {
    objects: BTreeMap<(ManagedKind, Arc<str>), Arc<str>>,
    marked: BTreeSet<ManagedKind>,
}

impl Found {
    /// Adds a record of the store.
    pub(crate) fn add(&mut self, key: ManagedKey<'_>, record: ManagedRecord) {
        if key.is_mark() {
            self.marked.insert(key.kind);
        } else {
            self.objects.insert((key.kind, key.full_name().into()), record.text);
        }
    }

    /// Number of objects.
    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    fn has(&self, kind: ManagedKind, name: &Arc<str>) -> bool {
        self.objects.contains_key(&(kind, Arc::clone(name)))
    }
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
