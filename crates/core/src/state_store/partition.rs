//! What the commands do with keys.

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
    Answer, Effects, EntryView, Limits, Origin, Outcome, Request, Scope, Set, Usage, Verdict,
    Watcher,
};
use crate::ids::{PacketId, SessionNumber, TEXT_LEN_MAX};
use crate::state_store::{AnsweredRecord, StateRecord};
use crate::time::WallTime;

/// The longest key, in bytes: engines take no longer ones beside the tenant.
pub const KEY_LEN_MAX: usize = TEXT_LEN_MAX;

/// How far ahead versions are noted that are not stored, and ahead of the clock on the wall, in
/// milliseconds: after a crash the clock of the store may be ahead by so much more.
const RESERVED_MS: u64 = 1_000;

/// How many keys [`Partition::expire`] removes at once. If more are due, it says so by its alarm.
pub const EXPIRED_AT_ONCE_MAX: usize = 1_000;

/// The keys of one tenant that belong to one shard.
///
/// It is locked by whoever calls, and time is an argument. A key whose time has come is gone for every
/// command, also before [`expire`](Self::expire) has removed it.
#[derive(Debug)]
pub struct Partition<W> {
    entries: Entries,
    expiries: Expiries,
    watchers: Watchers<W>,
    answered: Answered,
    /// The last batch that removes a key from the store: who is told that there is no such key is told of
    /// that, perhaps.
    removed: Option<u64>,
    /// The last batch that changes a key.
    changed: Option<u64>,
    /// The latest version that the store knows of, from this batch on.
    reserved: (Version, Option<u64>),
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
        }
    }
}

/// A SET that may be done: room has been made for it.
struct Admitted<'a> {
    timestamp: Hlc<'a>,
    fencing_token: Option<FencingToken>,
}

impl<W: Watcher> Partition<W> {
    /// SET.
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
            Err(refused) => refused,
        };
        self.note(scope, request, stored, answer, effects)
    }

    /// GET.
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

    /// DEL, or with an `expected` value VDEL.
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

    /// KEYNOTIFY: from now on `watcher` is told of all changes of a key. The key need not be there.
    ///
    /// Whoever ends the connection has to [end](Self::forget_watcher) this, too.
    pub fn watch(&mut self, scope: &Scope<'_>, key: &[u8], watcher: W) -> Answer {
        if key.len() > KEY_LEN_MAX {
            return Refusal::QuotaExceeded.into();
        }
        match self.watchers.watch(key, watcher, scope.usage, scope.limits) {
            Ok(()) => Answer::at_once(Verdict::Ok),
            Err(refusal) => refusal.into(),
        }
    }

    /// KEYNOTIFY STOP.
    pub fn unwatch(&mut self, usage: &Usage, key: &[u8], id: u64) -> Answer {
        let watched = self.watchers.unwatch(key, id, usage);
        Answer::at_once(if watched { Verdict::Ok } else { Verdict::Nothing })
    }

    /// Ends all that a watcher watches here: these keys, and perhaps others that it does not watch.
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

    /// What a request was answered when it came before. To be asked of requests with DUP that would
    /// change a key; those about no key of this partition are not known.
    pub fn answered(&self, origin: &Origin) -> Option<Answer> {
        self.answered.find(origin)
    }

    /// The sessions whose requests were answered here and may come again, in no order.
    pub fn answered_sessions(&self) -> impl Iterator<Item = SessionNumber> {
        self.answered.sessions()
    }

    /// Forgets what a session was answered. It cannot send anything again.
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

    /// Removes keys whose time has come, and tells who watches them. To be called when it is as late as
    /// [`take_alarm`](Self::take_alarm) has said last, or a little before; a timer that it told of before
    /// that has nothing to do. Then `take_alarm` is to be asked again: it forgets here what it has told.
    pub fn expire(&mut self, scope: &Scope<'_>, effects: &mut impl Effects<W>) {
        self.expiries.fire();
        for _ in 0..EXPIRED_AT_ONCE_MAX {
            let Some(key) = self.expiries.next_due(scope.now).map(Arc::clone) else { return };
            self.remove_expired(scope, &key, effects);
        }
    }

    /// When [`expire`](Self::expire) is to be called, if that is earlier than what was told last. To be
    /// asked after every [`set`](Self::set) and `expire`, and after recovery.
    pub fn take_alarm(&mut self) -> Option<WallTime> {
        self.expiries.take_alarm()
    }

    /// What [`take_alarm`](Self::take_alarm) has told last, until [`expire`](Self::expire) is called.
    pub fn alarm(&self) -> Option<WallTime> {
        self.expiries.alarm()
    }

    /// When the next key goes by itself, if any does.
    pub fn next_expiry(&self) -> Option<WallTime> {
        self.expiries.next()
    }

    /// Puts a key that was found in the store, whatever the quota.
    pub fn insert(&mut self, usage: &Usage, key: &[u8], record: StateRecord) {
        let (key, expires_at) = (Arc::<[u8]>::from(key), record.expires_at);
        let entry = Entry { record, stored: true, batch: None };
        let added = usage.add_key(entry.size(&key), &Limits::UNBOUNDED);
        debug_assert_eq!(added, Ok(()));
        if let Some(at) = expires_at {
            self.expiries.insert(at, &key);
        }
        let known = self.entries.insert(key, entry);
        debug_assert!(known.is_none(), "a store has each key once");
    }

    /// Puts an answer that was found in the store.
    pub fn insert_answered(
        &mut self,
        usage: &Usage,
        session: SessionNumber,
        packet_id: PacketId,
        record: AnsweredRecord,
    ) {
        // If there are more than are kept, since once more were, they go with their session.
        self.answered.note(usage, session, packet_id, record, (true, None));
    }

    /// The shard is closed: its keys are in the store only. Who watches them goes on.
    pub fn close(&mut self, usage: &Usage) {
        for (key, entry) in self.entries.iter() {
            usage.remove_key(entry.size(key));
        }
        self.answered.clear(usage);
        *self = Self { watchers: std::mem::take(&mut self.watchers), ..Self::default() };
    }

    /// The shard is open again, with what `found` in its store has.
    pub fn open(&mut self, usage: &Usage, found: Self) {
        self.close(usage);
        *self = Self { watchers: std::mem::take(&mut self.watchers), ..found };
    }

    /// Whether a SET may be done. If so, its key has the quota for it.
    fn admit_set<'a>(
        &self,
        scope: &Scope<'_>,
        request: &Request<'a>,
        set: &Set<'_>,
        stored: bool,
    ) -> Result<Admitted<'a>, Answer> {
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
                return Err(entry.not_applied());
            }
        }
        if stored && request.refuses
            || set.key.len() > KEY_LEN_MAX
            || set.value.len() as u64 > limits.value_bytes
        {
            return Err(Refusal::QuotaExceeded.into());
        }
        // A key that is protected is not changed without a token, so there is none to be kept.
        let fencing_token = token.map(FencingToken::from);
        let size = entry::size(set.key, set.value, fencing_token.as_ref());
        match entry {
            None => usage.add_key(size, limits)?,
            Some(entry) => usage.resize_key(entry.size(set.key), size, limits)?,
        }
        Ok(Admitted { timestamp, fencing_token })
    }

    /// Whether a key may be deleted.
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

    /// Gives a key what a SET says.
    fn put(
        &mut self,
        scope: &Scope<'_>,
        set: &Set<'_>,
        Admitted { timestamp, fencing_token }: Admitted<'_>,
        stored: bool,
        effects: &mut impl Effects<W>,
    ) -> Answer {
        let version = scope.clock.tick(scope.now, Some(timestamp));
        let value = Arc::from(set.value);
        let expires_at = set.ttl.map(|ttl| scope.now.after(Duration::from_millis(ttl.get())));
        let record = StateRecord { value, version, fencing_token, expires_at };
        let (key, before) = match self.entries.get_key_value(set.key) {
            Some((key, before)) => {
                if let Some(at) = before.record.expires_at {
                    self.expiries.remove(at, key);
                }
                (Arc::clone(key), before.batch)
            }
            // It may have been stored until a moment ago.
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

    /// Removes a key that is there, and tells who watches it. Answers the version of that, and the batch
    /// to wait for.
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
        scope.usage.remove_key(entry.size(&key));
        let version = scope.clock.tick(scope.now, None);
        let removed = entry.stored.then(|| effects.remove(&key));
        let after = self.note_version(scope, version, removed, effects).max(entry.batch);
        // Also if only a version waits: what becomes of the key next is told after that.
        self.removed = after.max(self.removed);
        self.tell(&key, Notification::Delete, version, after, effects);
        (version, after)
    }

    /// Notes that a version has been given: in the batch of the `change` that it was given to, or if it
    /// might otherwise be given again. Answers the batch to wait for.
    fn note_version(
        &mut self,
        scope: &Scope<'_>,
        version: Version,
        change: Option<u64>,
        effects: &mut impl Effects<W>,
    ) -> Option<u64> {
        // Another process begins later than this moment, and so with a greater version.
        if change.is_none() && version.wall <= scope.now.as_millis() {
            return None;
        }
        if version > self.reserved.0 {
            // Clients whose clocks are fast shall not have every request wait for the disk. But the clock
            // must not be where a reading of it would be refused as being in the future.
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

    /// Removes a key if its time has come.
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

    /// Whether a request is about a key that is stored, or to be stored.
    fn is_stored(&self, request: &Request<'_>, key: &[u8]) -> bool {
        request.stored || self.entries.get(key).is_some_and(|entry| entry.stored)
    }

    /// Notes what a request is answered, for when it comes again: what it did must not be done twice,
    /// and what it did not do must not be done then.
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
        // Who is refused because nothing new is taken is told so at once.
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

impl<W> Partition<W> {
    /// A key, to look at.
    pub fn entry(&self, now: WallTime, key: &[u8]) -> Option<EntryView<'_>> {
        let (key, entry) = self.entries.get_key_value(key)?;
        (!entry.is_expired(now)).then(|| entry.view(key))
    }

    /// How many keys there are, with those that nobody has noticed to have expired.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn all(&self) -> &Entries {
        &self.entries
    }

    /// The batch that all that can be seen now waits for.
    pub(super) fn changed(&self) -> Option<u64> {
        self.changed
    }
}
