//! A session and its store: what is noted of the session, which batches it waits for, and what it reads back.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use barid_core::commits::LOST;
use barid_core::durable::{ReplayRecord, SessionRecord, SubscriptionRecord, WillRecord};
use barid_core::ids::{EntryNumber, SessionNumber, StoredAs};
use barid_core::queue::QueueLimits;
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
use crate::queued::{Full, Whose};
use crate::worker::Worker;

impl Session {
    /// The record under which the session is stored, if it is.
    pub fn durable(&self) -> Option<&Durable> {
        self.durable.as_ref().filter(|_| self.stored.load(Ordering::Relaxed))
    }

    /// The number under which the session is stored, if it ever was.
    pub fn stored_number(&self) -> Option<SessionNumber> {
        self.durable.as_ref().map(|durable| durable.number)
    }

    /// The number under which the state store notes its responses to the session. It never changes.
    pub fn answered_as(&self) -> SessionNumber {
        // The number of a stored session begins with the index of its shard, which is small enough to leave
        // this bit 0.
        const NOT_STORED: SessionNumber = 1 << 63;
        let number = self.durable.as_ref().map(|durable| durable.number);
        number.map_or(NOT_STORED | self.id, |own| self.account.answered_as.of(own).unwrap_or(own))
    }

    /// Whether the session is stored and its shard takes nothing new.
    pub fn store_refuses(&self) -> bool {
        self.refusing_shard().is_some()
    }

    /// The shard of the session, if the session is stored and the shard takes nothing new.
    pub fn refusing_shard(&self) -> Option<&Arc<DurableShard>> {
        self.durable().map(|durable| &durable.shard).filter(|shard| shard.refuses())
    }

    /// Returns what a change of a session that [has left](Self::has_left) has to wait for: a batch that is
    /// never durable.
    pub fn lost(&self) -> Commits {
        self.durable.iter().map(|durable| (durable.shard.index(), LOST)).collect()
    }

    /// Takes the session out of service, because its shard is closed. The client is disconnected; waiting
    /// messages are in the store only.
    pub fn leave(&self) {
        let mut state = self.state();
        // Packets that its connection has not handled yet must not take effect.
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

    /// Returns whether the session would be there after a crash, in its present or an earlier state.
    pub fn is_in_store(&self, state: &State) -> bool {
        self.durable().is_some_and(|durable| durable.shard.is_durable(state.begins_in))
    }

    /// Whether the queue is full and publishers are to be held back.
    pub fn is_full(&self) -> bool {
        self.fullness() % 2 == 1
    }

    /// A counter that changes whenever the queue becomes full or stops being full; odd while it is full.
    pub fn fullness(&self) -> u32 {
        self.fullness.load(Ordering::Acquire)
    }

    /// Notes the present state of the session, except the outgoing messages, and returns the batch.
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
            user: state.user().map(Into::into),
            expiry: state.expiry,
            away_since: state.away_since,
            will,
            replays: replays.collect(),
            answered_as: self.account.answered_as.of(durable.number),
        };
        shard.put_session(durable.tenant, client_id, record);
    }

    /// Fetches the next retained messages that subscriptions have asked for, and notes them together with the
    /// progress of the walk: after a crash no message is missing, and none is sent twice. Returns false as
    /// [`Self::fetch_retained`] does.
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

    /// Notes a subscription. The caller holds the lock of the state, as for the next two methods.
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

    /// Notes the removal of a subscription.
    pub fn forget_subscription(&self, filter: &str) -> Commits {
        let mut journal = SessionJournal::new(self.durable());
        if let Some((durable, shard)) = journal.open() {
            shard.remove_subscription(durable.tenant, durable.number, filter);
        }
        journal.commits()
    }

    /// Returns the batch with everything noted so far in the shard of the session. A client that is told that
    /// something is not stored has to wait for this batch: the removal may not be durable yet.
    pub fn noted_so_far(&self) -> Commits {
        let shards = self.durable().map(|durable| &durable.shard);
        shards.into_iter().map(|shard| (shard.index(), shard.last_change())).collect()
    }

    /// Removes the notes of a QoS 2 message that was released. `shards` are those that have a note; `None` if
    /// they are not known. Returns the batches that must be durable before the client is told, and whether
    /// there was a note.
    pub fn forget_received(&self, id: u16, shards: Option<&ShardSet>) -> (Commits, bool) {
        let Some(durable) = self.durable() else { return Default::default() };
        let own = durable.shard.index();
        let all = &self.account.shards;
        let shards: SmallVec<[u16; 8]> = match shards {
            _ if !holds(Rule::ForgetEverywhere) => [own].into_iter().collect(),
            // A closed shard may have a note that an earlier release could not remove.
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
                    // The note stays, in memory as in the store.
                    commits.add(index, LOST);
                    continue;
                }
                was_noted |= shard.remove_received(durable.tenant, durable.number, id);
                commits.add(index, shard.batch());
            } else {
                // The note may have been removed a moment ago, for another connection.
                commits.add(index, shard.last_change());
            }
        }
        (commits, was_noted)
    }

    /// Notes the removal of the session, with everything that is stored of it. From now on nothing of the
    /// session is stored. If it leaves something to other sessions (`bequeaths`), its record stays under a
    /// name that no client has, and so do the messages taken from its queue, until
    /// [`Session::forget_bequest`].
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

    /// The name under which an ended session is kept for the sake of others. U+0000 never occurs in a client
    /// identifier (MQTT 5 §1.5.4).
    fn bequest(&self, number: SessionNumber) -> String {
        format!("\0{number}")
    }

    /// Begins a hand-over: something of the session goes to others, now or later.
    pub fn begin_giving(&self) {
        self.giving.fetch_add(1, Ordering::AcqRel);
    }

    /// Ends a hand-over. Returns true if no other one is in progress.
    pub fn end_giving(&self) -> bool {
        self.giving.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether something of the session is on its way to others.
    pub fn is_giving(&self) -> bool {
        self.giving.load(Ordering::Acquire) > 0
    }

    /// Whether the session has ended and left something in the store for others.
    pub fn has_bequest(&self) -> bool {
        self.state().bequeaths
    }

    /// Notes that other sessions have everything that an ended session left; `given` are the last of its
    /// entries.
    pub fn forget_bequest(&self, given: &[StoredAs]) {
        self.forget_given(given);
        if let Some(durable) = &self.durable {
            let mut shard = durable.shard.change();
            shard.remove_session(durable.tenant, &self.bequest(durable.number));
        }
    }

    /// Restores the walks through retained messages that were stored when the broker ended.
    pub fn recover_replays(&self, replays: Vec<ReplayRecord>) {
        for ReplayRecord { filter, qos, identifier, after } in replays {
            self.replay(Replay { filter, qos, identifier, after });
        }
    }

    /// Restores the deliveries that were stored when the broker ended.
    pub fn recover(&self, entries: impl IntoIterator<Item = (EntryNumber, EntryRecord)>) {
        self.with(|outlet| outlet.outbound.recover(entries));
    }

    /// Notes that publishers have to wait for room. If the queues of the tenant, or of the user, have none together, they
    /// may have to wait for room in others of these queues.
    pub(super) fn set_full(&self, limits: &QueueLimits, outlet: &Outlet) {
        if !self.is_full() {
            self.fullness.fetch_add(1, Ordering::Release);
        }
        let me = || -> Weak<dyn Full> { self.me.clone() };
        if !limits.tenant.is_some() {
            self.account.queued.note_full(Whose::Tenant, self.id, me());
        } else if let Some(holder) = outlet.holder.as_ref().filter(|_| limits.user_bytes == 0) {
            self.account.queued.note_full(holder.into(), self.id, me());
        }
    }

    /// Releases held packets that may leave, and wakes the owner to write them. The session is woken when
    /// more may leave.
    pub fn release_held(&self) {
        let mut outlet = self.outlet.lock();
        outlet.release_held(self);
        if !outlet.unsent.is_empty() {
            outlet.wake_owner();
        }
    }

    /// Registers a publisher that is woken when the queue is no longer full. Returns `None` if the queue is
    /// not full. The answer may be out of date when the caller gets it: the queue may have room, and the
    /// publisher may have been woken.
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

    /// Notes the removal of messages that other sessions have been given.
    pub fn forget_given(&self, given: &[StoredAs]) {
        let Some(durable) = &self.durable else { return };
        let mut shard = durable.shard.change();
        for stored in given {
            shard.remove_entry(durable.tenant, durable.number, *stored, false);
        }
    }

    /// Returns a delivery with its message, from memory or from the store; `None` if the message is lost.
    /// Blocks while the disk is read.
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

    /// Puts back a message that no other session has taken. Wakes the owner, because the client may be back
    /// by now.
    pub fn restore(&self, waiting: Waiting) {
        self.with(|outlet| {
            outlet.outbound.restore(waiting);
            outlet.wake_owner();
        });
    }
}

impl Waiter for Session {
    /// Wakes the owner if packets are held: something that they wait for may have happened.
    fn wake(&self) {
        let mut outlet = self.outlet.lock();
        if outlet.held.is_some() {
            outlet.wake_owner();
        }
    }
}

impl Full for Session {
    /// Lets waiting publishers go on if there is room by now.
    fn look_for_room(&self) {
        if self.is_full() {
            self.with(|_| ());
        }
    }
}
