//! Execution of the commands on the keys of one partition.

use std::sync::Arc;
use std::time::Duration;

use statestore_proto::{Condition, DRIFT_MAX_MS, Hlc, Notification, Refusal, Version};

use super::answered::Answered;
use super::entries::Entries;
use super::entry::{self, Entry};
use super::expiries::Expiries;
use super::fencing::{self, FencingToken};
use super::watchers::Watchers;
use super::{
    Answer, Effects, EntryView, Exceeded, Limits, Origin, Outcome, Request, Scope, Set, Usage,
    Verdict, Watcher, holding,
};
use crate::holder::Holder;
use crate::ids::{PacketId, SessionNumber, TEXT_LEN_MAX};
use crate::state_store::{AnsweredRecord, StateRecord};
use crate::time::WallTime;

/// Maximum length of a key, in bytes: storage engines take no longer keys beside the tenant name.
pub const KEY_LEN_MAX: usize = TEXT_LEN_MAX;

/// Distance by which versions are reserved ahead, in milliseconds, when the version of a key that is not stored is
/// ahead of the wall clock. After a crash the clock of the store may be ahead by this much more.
const RESERVED_MS: u64 = 1_000;

/// Maximum number of keys that [`Partition::expire`] removes in one call. If more are due, the next alarm is due at
/// once.
pub const EXPIRED_AT_ONCE_MAX: usize = 1_000;

/// The keys of one tenant that belong to one shard.
///
/// The caller holds the lock, and time is an argument. An expired key does not exist for any command, even before
/// [`expire`](Self::expire) has removed it.
#[derive(Debug)]
pub struct Partition<W> {
    entries: Entries,
    expiries: Expiries,
    watchers: Watchers<W>,
    answered: Answered,
    /// The last batch that removes a key from the store. An answer that a key does not exist may reveal this removal,
    /// so it waits for the batch.
    removed: Option<u64>,
    /// The last batch that changes a key.
    changed: Option<u64>,
    /// The latest version that the store knows of, and the batch that stored it.
    reserved: (Version, Option<u64>),
    /// The limit because of which the last refused request was refused.
    exceeded: Option<Exceeded>,
}

impl<W> Default for Partition<W> {
    fn default() -> Self {
        Self {
            entries: Entries::default(),
            expiries: Expiries::default(),
            watchers: Watchers::default(),
            answered: Answered::default(),
            removed: None,
            changed: None,
            reserved: (Version::default(), None),
            exceeded: None,
        }
    }
}

/// A SET that may be carried out: its share of the quota has been taken.
struct Admitted<'a> {
    timestamp: Hlc<'a>,
    fencing_token: Option<FencingToken>,
    holder: Option<Arc<Holder>>,
}

/// Why a SET is not carried out.
enum Denied {
    Told(Answer),
    Over(Exceeded),
}

impl From<Answer> for Denied {
    fn from(answer: Answer) -> Self {
        Self::Told(answer)
    }
}

impl From<Refusal> for Denied {
    fn from(refusal: Refusal) -> Self {
        Self::Told(refusal.into())
    }
}

impl From<Exceeded> for Denied {
    fn from(exceeded: Exceeded) -> Self {
        Self::Over(exceeded)
    }
}

impl<W: Watcher> Partition<W> {
    /// Executes SET.
    pub fn set(
        &mut self,
        scope: &Scope<'_>,
        request: &Request<'_>,
        set: &Set<'_>,
        effects: &mut impl Effects<W>,
    ) -> Answer {
        self.expire_key(scope, set.key, effects);
        let stored = self.is_stored(request, set.key);
        let answer = match self.admit_set(scope, request, set, stored) {
            Ok(admitted) => self.put(scope, set, admitted, stored, effects),
            Err(Denied::Told(refused)) => refused,
            Err(Denied::Over(exceeded)) => self.refuse(exceeded),
        };
        self.note(scope, request, stored, answer, effects)
    }

    /// Executes GET.
    pub fn get(&mut self, scope: &Scope<'_>, key: &[u8], effects: &mut impl Effects<W>) -> Answer {
        self.expire_key(scope, key, effects);
        match self.entries.get(key) {
            Some(Entry { record, batch, .. }) => Answer {
                outcome: Outcome::Value(Arc::clone(&record.value)),
                version: Some(record.version),
                after: *batch,
            },
            None => Answer { outcome: Outcome::Absent, version: None, after: self.removed },
        }
    }

    /// Executes DEL, or VDEL if there is an `expected` value.
    pub fn delete(
        &mut self,
        scope: &Scope<'_>,
        request: &Request<'_>,
        key: &[u8],
        expected: Option<&[u8]>,
        effects: &mut impl Effects<W>,
    ) -> Answer {
        self.expire_key(scope, key, effects);
        let stored = self.is_stored(request, key);
        let answer = match self.admit_delete(scope, request, key, expected) {
            Ok(()) => {
                let (version, after) = self.remove(scope, key, effects);
                let outcome = Outcome::Verdict(Verdict::Deleted);
                Answer { outcome, version: Some(version), after }
            }
            Err(refused) => refused,
        };
        self.note(scope, request, stored, answer, effects)
    }

    /// Executes KEYNOTIFY: from now on `watcher` is told of all changes of a key. The key need not exist.
    ///
    /// The code that ends the connection must also [end](Self::forget_watcher) the watch.
    pub fn watch(&mut self, scope: &Scope<'_>, key: &[u8], watcher: W) -> Answer {
        if key.len() > KEY_LEN_MAX {
            return Refusal::QuotaExceeded.into();
        }
        match self.watchers.watch(key, watcher, scope.usage, scope.limits) {
            Ok(()) => Answer::at_once(Verdict::Ok),
            Err(exceeded) => self.refuse(exceeded),
        }
    }

    fn refuse(&mut self, exceeded: Exceeded) -> Answer {
        self.exceeded = Some(exceeded);
        Refusal::QuotaExceeded.into()
    }

    /// Returns the limit because of which a request since the last call was refused.
    pub fn take_exceeded(&mut self) -> Option<Exceeded> {
        self.exceeded.take()
    }

    /// Executes KEYNOTIFY STOP.
    pub fn unwatch(&mut self, usage: &Usage, key: &[u8], id: u64) -> Answer {
        let watched = self.watchers.unwatch(key, id, usage);
        Answer::at_once(if watched { Verdict::Ok } else { Verdict::Nothing })
    }

    /// Ends all watches of one watcher in this partition. `keys` must contain every key that it watches here; other
    /// keys are ignored.
    pub fn forget_watcher<'k>(
        &mut self,
        usage: &Usage,
        id: u64,
        keys: impl IntoIterator<Item = &'k [u8]>,
    ) {
        for key in keys {
            self.watchers.unwatch(key, id, usage);
        }
    }

    /// Returns the answer that a request got when it came before. To be called for requests with DUP that would change
    /// a key. Requests about keys of other partitions are not known here.
    pub fn answered(&self, origin: &Origin) -> Option<Answer> {
        self.answered.find(origin)
    }

    /// The sessions whose requests were answered here and may come again, in no particular order.
    pub fn answered_sessions(&self) -> impl Iterator<Item = SessionNumber> {
        self.answered.sessions()
    }

    /// Forgets the answers to a session that cannot send a request again.
    pub fn forget_session(
        &mut self,
        usage: &Usage,
        session: SessionNumber,
        effects: &mut impl Effects<W>,
    ) {
        for packet_id in self.answered.forget(usage, session) {
            effects.remove_answered(session, packet_id);
        }
    }

    /// Gives the answers of a session another number, because it has one at another broker.
    pub fn rename_session(
        &mut self,
        from: SessionNumber,
        to: SessionNumber,
        effects: &mut impl Effects<W>,
    ) {
        for (packet_id, record) in self.answered.rename(from, to) {
            effects.remove_answered(from, packet_id);
            effects.put_answered(to, packet_id, record);
        }
    }

    /// All watches: the keys, each with its watchers.
    pub fn watches(&self) -> impl Iterator<Item = (&[u8], &[W])> {
        self.watchers.all()
    }

    /// Ends all watches: another broker has them now.
    pub fn end_watches(&mut self, usage: &Usage) {
        self.watchers.clear(usage);
    }

    /// Removes expired keys, and tells their watchers. To be called at the time that [`take_alarm`](Self::take_alarm)
    /// returned last, or a little before; timers for other times that it returned are ignored. `take_alarm` must be
    /// called afterwards: this call clears the alarm.
    pub fn expire(&mut self, scope: &Scope<'_>, effects: &mut impl Effects<W>) {
        self.expiries.fire();
        for _ in 0..EXPIRED_AT_ONCE_MAX {
            let Some(key) = self.expiries.next_due(scope.now).map(Arc::clone) else { return };
            self.remove_expired(scope, &key, effects);
        }
    }

    /// Returns when [`expire`](Self::expire) must be called, if that is earlier than the time returned last. To be
    /// called after every [`set`](Self::set) and `expire`, and after recovery.
    pub fn take_alarm(&mut self) -> Option<WallTime> {
        self.expiries.take_alarm()
    }

    /// The time that [`take_alarm`](Self::take_alarm) returned last, until [`expire`](Self::expire) is called.
    pub fn alarm(&self) -> Option<WallTime> {
        self.expiries.alarm()
    }

    /// Time at which the next key expires, if any does.
    pub fn next_expiry(&self) -> Option<WallTime> {
        self.expiries.next()
    }

    /// Inserts a key that was read from the store, regardless of the quota.
    pub fn insert(&mut self, usage: &Usage, key: &[u8], record: StateRecord) {
        let (key, expires_at) = (Arc::<[u8]>::from(key), record.expires_at);
        let entry = Entry { record, stored: true, batch: None };
        let added = usage.add_key(entry.size(&key), &Limits::UNBOUNDED);
        debug_assert_eq!(added, Ok(()));
        if let Some(holder) = &entry.record.holder {
            holding::hold(holder, entry.size(&key));
        }
        if let Some(at) = expires_at {
            self.expiries.insert(at, &key);
        }
        let known = self.entries.insert(key, entry);
        debug_assert!(known.is_none(), "a store has each key once");
    }

    /// Inserts an answer that was read from the store.
    pub fn insert_answered(
        &mut self,
        usage: &Usage,
        session: SessionNumber,
        packet_id: PacketId,
        record: AnsweredRecord,
    ) {
        // The store may have more answers than are kept now, because the limit was higher once. The surplus is removed
        // from the store with its session.
        self.answered.note(usage, session, packet_id, record, (true, None));
    }

    /// Clears the partition when its shard is closed: the keys are in the store only. Watches go on.
    pub fn close(&mut self, usage: &Usage) {
        for (key, entry) in self.entries.iter() {
            give_back(usage, key, entry);
        }
        self.answered.clear(usage);
        *self = Self { watchers: std::mem::take(&mut self.watchers), ..Self::default() };
    }

    /// Fills the partition when its shard is open again, with the keys `found` in its store. Watches go on.
    pub fn open(&mut self, usage: &Usage, found: Self) {
        self.close(usage);
        *self = Self { watchers: std::mem::take(&mut self.watchers), ..found };
    }

    /// Checks whether a SET may be carried out. If so, takes the quota for its key.
    fn admit_set<'a>(
        &self,
        scope: &Scope<'_>,
        request: &Request<'a>,
        set: &Set<'_>,
        stored: bool,
    ) -> Result<Admitted<'a>, Denied> {
        let Scope { usage, limits, now, .. } = *scope;
        let timestamp = Hlc::parse(request.timestamp.ok_or(Refusal::MissingTimestamp)?)?;
        if timestamp.is_in_future(now.as_millis()) {
            return Err(Refusal::TimestampInFuture.into());
        }
        let token = fencing::read(request.fencing_token, now)?;
        let entry = self.entries.get(set.key);
        if let Some(entry) = entry {
            entry.admit(token)?;
            let applies = match set.condition {
                Condition::Always => true,
                Condition::IfAbsent => false,
                Condition::IfAbsentOrEqual => *entry.record.value == *set.value,
            };
            if !applies {
                return Err(entry.not_applied().into());
            }
        }
        if stored && request.refuses || set.key.len() > KEY_LEN_MAX {
            return Err(Refusal::QuotaExceeded.into());
        }
        if set.value.len() as u64 > limits.value_bytes {
            return Err(Exceeded::ValueBytes.into());
        }
        // A protected key cannot be changed without a token, so no earlier token has to be kept.
        let fencing_token = token.map(FencingToken::from);
        let user = request.user.as_ref();
        let holder = user.map(|user| &**user.holder);
        let size = entry::size(set.key, set.value, fencing_token.as_ref(), holder);
        match entry {
            None => usage.add_key(size, limits)?,
            Some(entry) => usage.resize_key(entry.size(set.key), size, limits)?,
        }
        let before =
            entry.and_then(|entry| Some((entry.record.holder.as_ref()?, entry.size(set.key))));
        if let Err(exceeded) = holding::pass(before, user, size) {
            match entry {
                None => usage.remove_key(size),
                Some(entry) => {
                    usage.resize_key(size, entry.size(set.key), &Limits::UNBOUNDED)?;
                }
            }
            return Err(exceeded.into());
        }
        let holder = user.map(|user| Arc::clone(user.holder));
        Ok(Admitted { timestamp, fencing_token, holder })
    }

    /// Checks whether a key may be deleted.
    fn admit_delete(
        &self,
        scope: &Scope<'_>,
        request: &Request<'_>,
        key: &[u8],
        expected: Option<&[u8]>,
    ) -> Result<(), Answer> {
        let token = fencing::read(request.fencing_token, scope.now)?;
        let Some(entry) = self.entries.get(key) else {
            return Err(Answer { after: self.removed, ..Answer::at_once(Verdict::Nothing) });
        };
        entry.admit(token)?;
        if expected.is_some_and(|expected| *entry.record.value != *expected) {
            return Err(entry.not_applied());
        }
        Ok(())
    }

    /// Applies a SET to its key.
    fn put(
        &mut self,
        scope: &Scope<'_>,
        set: &Set<'_>,
        Admitted { timestamp, fencing_token, holder }: Admitted<'_>,
        stored: bool,
        effects: &mut impl Effects<W>,
    ) -> Answer {
        let version = scope.clock.tick(scope.now, Some(timestamp));
        let value = Arc::from(set.value);
        let expires_at = set.ttl.map(|ttl| scope.now.after(Duration::from_millis(ttl.get())));
        let record = StateRecord { value, version, fencing_token, expires_at, holder };
        let (key, before) = match self.entries.get_key_value(set.key) {
            Some((key, before)) => {
                if let Some(at) = before.record.expires_at {
                    self.expiries.remove(at, key);
                }
                (Arc::clone(key), before.batch)
            }
            // The key may have been stored until a moment ago: its removal may not be durable yet.
            None => (Arc::from(set.key), self.removed),
        };
        if let Some(at) = expires_at {
            self.expiries.insert(at, &key);
        }
        let put = stored.then(|| effects.put(&key, record.clone()));
        let batch = self.note_version(scope, version, put, effects).max(before);
        self.tell(&key, Notification::Set(&record.value), version, batch, effects);
        self.entries.insert(key, Entry { record, stored, batch });
        Answer { outcome: Outcome::Verdict(Verdict::Ok), version: Some(version), after: batch }
    }

    /// Removes an existing key, and tells its watchers. Returns the version of the removal, and the batch to wait for.
    fn remove(
        &mut self,
        scope: &Scope<'_>,
        key: &[u8],
        effects: &mut impl Effects<W>,
    ) -> (Version, Option<u64>) {
        let (key, entry) = self.entries.remove(key).expect("the caller has found it");
        if let Some(at) = entry.record.expires_at {
            self.expiries.remove(at, &key);
        }
        give_back(scope.usage, &key, &entry);
        let version = scope.clock.tick(scope.now, None);
        let removed = entry.stored.then(|| effects.remove(&key));
        let after = self.note_version(scope, version, removed, effects).max(entry.batch);
        // Also if only the version has to be durable: later answers about the key must wait for it as well.
        self.removed = after.max(self.removed);
        self.tell(&key, Notification::Delete, version, after, effects);
        (version, after)
    }

    /// Stores the fact that a version was assigned, in the batch of the `change` that got it, or if the version might
    /// otherwise be assigned again. Returns the batch to wait for.
    fn note_version(
        &mut self,
        scope: &Scope<'_>,
        version: Version,
        change: Option<u64>,
        effects: &mut impl Effects<W>,
    ) -> Option<u64> {
        // Another process starts later than this moment, and so with a greater version.
        if change.is_none() && version.wall <= scope.now.as_millis() {
            return None;
        }
        if version > self.reserved.0 {
            // Versions are reserved ahead, so that requests of clients with fast clocks do not all wait for the disk.
            // The reserved version stays within the allowed drift: beyond it, readings of the clock would be refused as
            // being in the future.
            let wall = scope.now.as_millis().saturating_add(DRIFT_MAX_MS);
            let wall = wall.min(version.wall.saturating_add(RESERVED_MS));
            let ahead = Version { wall, counter: 0 }.max(version);
            let latest = if change.is_some() { version } else { ahead };
            self.reserved = (latest, Some(effects.put_clock(latest)));
        }
        let noted = change.max(self.reserved.1);
        self.changed = noted.max(self.changed);
        noted
    }

    fn tell(
        &self,
        key: &[u8],
        notification: Notification<'_>,
        version: Version,
        after: Option<u64>,
        effects: &mut impl Effects<W>,
    ) {
        let watchers = self.watchers.of(key);
        if !watchers.is_empty() {
            effects.notify(watchers, key, notification, version, after);
        }
    }

    /// Removes a key if it has expired.
    fn expire_key(&mut self, scope: &Scope<'_>, key: &[u8], effects: &mut impl Effects<W>) {
        let any_is = self.expiries.next_due(scope.now).is_some();
        if any_is && self.entries.get(key).is_some_and(|entry| entry.is_expired(scope.now)) {
            self.remove_expired(scope, key, effects);
        }
    }

    fn remove_expired(&mut self, scope: &Scope<'_>, key: &[u8], effects: &mut impl Effects<W>) {
        self.remove(scope, key, effects);
        scope.usage.count_expired();
    }

    /// Returns whether the key of a request is stored already, or is to be stored.
    fn is_stored(&self, request: &Request<'_>, key: &[u8]) -> bool {
        request.stored || self.entries.get(key).is_some_and(|entry| entry.stored)
    }

    /// Notes the answer to a request, in case the request comes again: a change must not be made twice, and a request
    /// that changed nothing must not make its change the second time.
    fn note(
        &mut self,
        scope: &Scope<'_>,
        request: &Request<'_>,
        stored: bool,
        mut answer: Answer,
        effects: &mut impl Effects<W>,
    ) -> Answer {
        let (Some(origin), &Outcome::Verdict(verdict)) = (request.origin, &answer.outcome) else {
            return answer;
        };
        if verdict.is_final() {
            return answer;
        }
        let Origin { session, packet_id, correlation, .. } = origin;
        let (version, answered_at) = (answer.version, scope.clock.latest());
        let record = AnsweredRecord { correlation, verdict, version, answered_at };
        // The refusal of a request because the store takes nothing new is not stored, so it waits for nothing.
        let is_turned_away = request.refuses && verdict == Verdict::Refused(Refusal::QuotaExceeded);
        let stored = stored && origin.stored && !is_turned_away;
        if stored {
            let noted = Some(effects.put_answered(session, packet_id, record));
            answer.after = noted.max(answer.after);
        }
        let note = (stored, answer.after);
        let gone = self.answered.note(scope.usage, session, packet_id, record, note);
        let settled = self.answered.forget_before(scope.usage, session, origin.settled);
        for packet_id in gone.into_iter().chain(settled) {
            effects.remove_answered(session, packet_id);
        }
        answer
    }
}

/// Gives back the quota of a key that is removed.
fn give_back(usage: &Usage, key: &[u8], entry: &Entry) {
    let size = entry.size(key);
    usage.remove_key(size);
    if let Some(holder) = &entry.record.holder {
        holding::let_go(holder, size);
    }
}

impl<W> Partition<W> {
    /// Returns a view of a key.
    pub fn entry(&self, now: WallTime, key: &[u8]) -> Option<EntryView<'_>> {
        let (key, entry) = self.entries.get_key_value(key)?;
        (!entry.is_expired(now)).then(|| entry.view(key))
    }

    /// Number of keys, including expired keys that have not been removed.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn all(&self) -> &Entries {
        &self.entries
    }

    /// The batch to wait for before anybody is told of what is visible now.
    pub(super) fn changed(&self) -> Option<u64> {
        self.changed
    }
}
