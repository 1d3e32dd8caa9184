//! A session and its store: what is written of it, what it waits for, what it reads back.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use barid_core::commits::LOST;
use barid_core::durable::{ReplayRecord, SessionRecord, SubscriptionRecord, WillRecord};
use barid_core::ids::{EntryNumber, SessionNumber, StoredAs};
use barid_core::queue::Room;
use barid_core::session::{Delivery, EntryRecord, Outbound, ShardSet, Waiting};
use barid_store::StoreError;
use mqtt_proto::ReasonCode;
use smallvec::SmallVec;

use super::held::FullRoom;
use super::outlet::Outlet;
use super::{Replay, Session, State, Subscription};
use crate::durable::{Commits, Durable, DurableShard, SessionJournal};
use crate::faults::{Rule, holds};
use crate::ids::ConnectionId;
use crate::progress::Waiter;
use crate::queued::Full;
use crate::worker::Worker;

impl Session {
    /// As what it is stored, if it is.
    pub fn durable(&self) -> Option<&Durable> {
        self.durable.as_ref().filter(|_| self.stored.load(Ordering::Relaxed))
    }

    /// The number under which it is stored, if it ever was.
    pub fn stored_number(&self) -> Option<SessionNumber> {
        self.durable.as_ref().map(|durable| durable.number)
    }

    /// The number under which is noted what the state store has answered it; always the same one.
    pub fn answered_as(&self) -> SessionNumber {
        // Numbers of sessions that are stored begin with a shard, of which there are not so many.
        const NOT_STORED: SessionNumber = 1 << 63;
        self.durable.as_ref().map_or(NOT_STORED | self.id, |durable| durable.number)
    }

    /// Whether it is stored, and its store takes nothing new.
    pub fn store_refuses(&self) -> bool {
        self.refusing_shard().is_some()
    }

    /// Its shard, if it is stored there and the shard takes nothing new.
    pub fn refusing_shard(&self) -> Option<&Arc<DurableShard>> {
        self.durable().map(|durable| &durable.shard).filter(|shard| shard.refuses())
    }

    /// What has to be durable before anybody is told of something that is noted of a session that [has left](Self::has_left).
    pub fn lost(&self) -> Commits {
        self.durable.iter().map(|durable| (durable.shard.index(), LOST)).collect()
    }

    /// Its shard is closed. Its client is disconnected; what waits for it is in the store only.
    pub fn leave(&self) {
        let mut state = self.state();
        // What its connection still has to say does not count.
        self.set_owner(&mut state, ConnectionId::NONE);
        self.with(|outlet| {
            self.left.store(true, Ordering::Relaxed);
            self.online.store(false, Ordering::Relaxed);
            outlet.close_connection(ReasonCode::ServerBusy);
            outlet.outbound = Outbound::default();
            outlet.outbound.set_survives(false);
            outlet.replays = None;
        });
    }

    /// Whether a crash would leave it, as it is or as it was.
    pub fn is_in_store(&self, state: &State) -> bool {
        self.durable().is_some_and(|durable| durable.shard.is_durable(state.begins_in))
    }

    /// Whether its queue is full and its publishers are to be held back.
    pub fn is_full(&self) -> bool {
        self.fullness() % 2 == 1
    }

    /// Changes whenever its queue becomes full, or stops to be; odd: it is full.
    pub fn fullness(&self) -> u32 {
        self.fullness.load(Ordering::Acquire)
    }

    /// Notes the session, but for what is on its way to the client, as it is now.
    pub fn store(&self, state: &State) -> Commits {
        let outlet = self.outlet.lock();
        if self.has_left() {
            return self.lost();
        }
        let mut journal = SessionJournal::new(self.durable());
        self.put_record(state, &outlet, &mut journal);
        journal.commits()
    }

    fn put_record(&self, state: &State, outlet: &Outlet, journal: &mut SessionJournal<'_>) {
        self.put_record_as(&self.client_id, state, outlet, journal);
    }

    fn put_record_as(
        &self,
        client_id: &str,
        state: &State,
        outlet: &Outlet,
        journal: &mut SessionJournal<'_>,
    ) {
        let Some((durable, shard)) = journal.open() else { return };
        let will = state.will.as_ref().map(|will| WillRecord {
            message: Arc::clone(&will.message),
            expiry: will.expiry,
            delay: will.delay,
        });
        let replays = outlet.replays.iter().flat_map(|replays| replays.iter());
        let replays = replays.map(|replay| ReplayRecord {
            filter: replay.filter.clone(),
            qos: replay.qos,
            identifier: replay.identifier,
            after: replay.after.clone(),
        });
        let record = SessionRecord {
            number: durable.number,
            user: state.user.clone(),
            expiry: state.expiry,
            away_since: state.away_since,
            will,
            replays: replays.collect(),
        };
        shard.put_session(durable.tenant, client_id, record);
    }

    /// Fetches the next retained messages that subscriptions have asked for, and notes them together with
    /// how far that has come: after a crash none is missing, and none comes twice. False: see
    /// [`Self::fetch_retained`].
    pub(super) fn fetch_and_store_retained(
        &self,
        worker: &Worker,
        epoch: u32,
        steps: &mut usize,
    ) -> bool {
        let state = self.state();
        self.with(|outlet| {
            if outlet.epoch != epoch {
                return true;
            }
            let mut journal = SessionJournal::new(self.durable());
            let fetched = self.fetch_retained(worker, outlet, &mut journal, steps);
            if fetched {
                self.put_record(&state, outlet, &mut journal);
                let noted = outlet.replays.as_ref().map_or(0, |replays| replays.len());
                *steps = steps.saturating_sub(noted / 4);
            }
            fetched
        })
    }

    /// Notes a subscription. Under the lock of the state, like the two below.
    pub fn store_subscription(&self, subscription: &Subscription) -> Commits {
        let mut journal = SessionJournal::new(self.durable());
        if let Some((durable, shard)) = journal.open() {
            let record = SubscriptionRecord {
                qos: subscription.qos,
                no_local: subscription.no_local,
                retain_as_published: subscription.retain_as_published,
                identifier: subscription.identifier,
            };
            shard.put_subscription(durable.tenant, durable.number, &subscription.filter, record);
        }
        journal.commits()
    }

    /// Notes that a subscription has gone.
    pub fn forget_subscription(&self, filter: &str) -> Commits {
        let mut journal = SessionJournal::new(self.durable());
        if let Some((durable, shard)) = journal.open() {
            shard.remove_subscription(durable.tenant, durable.number, filter);
        }
        journal.commits()
    }

    /// Everything noted so far in the shard of the session. Whoever is told that something is not stored has to wait for that:
    /// its removal may not be durable yet.
    pub fn noted_so_far(&self) -> Commits {
        let shards = self.durable().map(|durable| &durable.shard);
        shards.into_iter().map(|shard| (shard.index(), shard.last_change())).collect()
    }

    /// Removes the notes of a QoS 2 message that was released from the `shards` that have one; `None`: it is not known which
    /// these are. Answers what has to be durable before the client is told, and whether there was a note.
    pub fn forget_received(&self, id: u16, shards: Option<&ShardSet>) -> (Commits, bool) {
        let Some(durable) = self.durable() else { return Default::default() };
        let own = durable.shard.index();
        let all = &self.account.shards;
        let shards: SmallVec<[u16; 8]> = match shards {
            _ if !holds(Rule::ForgetEverywhere) => [own].into_iter().collect(),
            // A closed shard may have a note that could not be removed the last time.
            Some(shards) if all.any_refuses() => {
                let is_closed = |shard: &Arc<DurableShard>| !shard.is_open();
                let is_known = |index: &u16| shards.iter().any(|known| known == *index);
                let closed = all.iter().filter(is_closed).map(|shard| shard.index());
                shards.iter().chain(closed.filter(|index| !is_known(index))).collect()
            }
            Some(shards) => shards.iter().collect(),
            None => all.iter().map(|shard| shard.index()).collect(),
        };
        let (mut commits, mut was_noted) = (Commits::default(), false);
        for index in shards {
            let shard = all.get(index);
            if shard.has_received(durable.number, id) {
                let mut shard = shard.change();
                if shard.is_lost() {
                    // It stays noted, here as in the store.
                    commits.add(index, LOST);
                    continue;
                }
                was_noted |= shard.remove_received(durable.tenant, durable.number, id);
                commits.add(index, shard.batch());
            } else {
                // It may have been removed a moment ago, for another connection.
                commits.add(index, shard.last_change());
            }
        }
        (commits, was_noted)
    }

    /// Notes that the session has gone, with all that was stored of it. From now on nothing of it is
    /// stored any more. If it leaves something for others (`bequeaths`), its record stays under a name that
    /// no client has, and so does what was taken from its queue, until [`Session::forget_bequest`].
    pub fn forget(&self, bequeaths: bool) -> Commits {
        let mut state = self.state();
        let outlet = self.outlet.lock();
        let mut journal = SessionJournal::new(self.durable());
        let Some((durable, shard)) = journal.open() else { return Commits::default() };
        let (tenant, number) = (durable.tenant, durable.number);
        shard.remove_session(tenant, &self.client_id);
        for subscription in state.subscriptions.iter() {
            shard.remove_subscription(tenant, number, &subscription.filter);
        }
        for (stored, released) in outlet.outbound.stored() {
            shard.remove_entry(tenant, number, stored, released);
        }
        if bequeaths {
            state.bequeaths = true;
            state.expiry = 0;
            self.put_record_as(&self.bequest(number), &state, &outlet, &mut journal);
        }
        let mut commits = journal.commits();
        drop(journal);
        for (id, shards) in state.received.iter() {
            commits.join(&self.forget_received(id, Some(shards)).0);
        }
        self.stored.store(false, Ordering::Relaxed);
        commits
    }

    /// The name under which a session that has ended is kept for others' sake: U+0000 is in no client
    /// identifier (MQTT 5 §1.5.4).
    fn bequest(&self, number: SessionNumber) -> String {
        format!("\0{number}")
    }

    /// Something of it goes to others, now or later.
    pub fn begin_giving(&self) {
        self.giving.fetch_add(1, Ordering::AcqRel);
    }

    /// Others have it. True: nothing else is on its way.
    pub fn end_giving(&self) -> bool {
        self.giving.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether something of it is on its way to others.
    pub fn is_giving(&self) -> bool {
        self.giving.load(Ordering::Acquire) > 0
    }

    /// Whether it has ended and left something in the store for others.
    pub fn has_bequest(&self) -> bool {
        self.state().bequeaths
    }

    /// Notes that all that an ended session has left is with others now.
    pub fn forget_bequest(&self, given: &[StoredAs]) {
        self.forget_given(given);
        if let Some(durable) = &self.durable {
            let mut shard = durable.shard.change();
            shard.remove_session(durable.tenant, &self.bequest(durable.number));
        }
    }

    /// Puts back which retained messages its client had still to get.
    pub fn recover_replays(&self, replays: Vec<ReplayRecord>) {
        for ReplayRecord { filter, qos, identifier, after } in replays {
            self.replay(Replay { filter, qos, identifier, after });
        }
    }

    /// Puts back what was stored of its deliveries when the broker ended.
    pub fn recover(&self, entries: impl IntoIterator<Item = (EntryNumber, EntryRecord)>) {
        self.with(|outlet| outlet.outbound.recover(entries));
    }

    /// Notes that publishers have to wait for room, perhaps for room in the tenant's other queues.
    pub(super) fn set_full(&self, tenant: Room) {
        if !self.is_full() {
            self.fullness.fetch_add(1, Ordering::Release);
        }
        if !tenant.is_some() {
            let me: Weak<dyn Full> = self.me.clone();
            self.account.queued.note_full(self.id, me);
        }
    }

    /// Lets what was held back and may leave be written, now or when it may.
    pub fn release_held(&self) {
        let mut outlet = self.outlet.lock();
        outlet.release_held(self);
        if !outlet.unsent.is_empty() {
            outlet.wake_owner();
        }
    }

    /// Has a publisher woken when the queue is not full any more. `None`: it is not. What is answered may
    /// be over when the caller has it, and the publisher have been woken.
    pub(super) fn wake_when_not_full(&self, publisher: Weak<Session>) -> Option<FullRoom> {
        self.with(|outlet| {
            let since = self.fullness();
            if since.is_multiple_of(2) {
                return None;
            }
            outlet.room_waiters.get_or_insert_default().0.push(publisher);
            Some(FullRoom { session: Weak::clone(&self.me), since })
        })
    }

    /// Removes from the store what other sessions have been given.
    pub fn forget_given(&self, given: &[StoredAs]) {
        let Some(durable) = &self.durable else { return };
        let mut shard = durable.shard.change();
        for stored in given {
            shard.remove_entry(durable.tenant, durable.number, *stored, false);
        }
    }

    /// A delivery with its message, wherever that is; `None`: it is lost. Blocks for the disk.
    ///
    /// # Errors
    /// Those of [`DurableShard::message`](crate::durable::DurableShard::message).
    pub fn read_back(&self, waiting: Waiting) -> Result<Option<Delivery>, StoreError> {
        let (stored, durable) = match (&waiting, &self.durable) {
            (Waiting::Away(stub), Some(durable)) => (stub.stored, durable),
            _ => return Ok(waiting.here().cloned()),
        };
        let message = durable.shard.message(durable.tenant, &self.account.name, stored.message)?;
        Ok(message.and_then(|message| waiting.with_message(message)))
    }

    /// Takes back what no other session could be given. Its client may be back by now.
    pub fn restore(&self, waiting: Waiting) {
        self.with(|outlet| {
            outlet.outbound.restore(waiting);
            outlet.wake_owner();
        });
    }
}

impl Waiter for Session {
    /// Something that the outlet waits for has happened, perhaps.
    fn wake(&self) {
        let mut outlet = self.outlet.lock();
        if outlet.held.is_some() {
            outlet.wake_owner();
        }
    }
}

impl Full for Session {
    /// Lets publishers go on that wait for room, if there is some by now.
    fn look_for_room(&self) {
        if self.is_full() {
            self.with(|_| ());
        }
    }
}
