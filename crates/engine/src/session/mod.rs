//! A session as the IO threads see it: who it is, its state, and the outlet to its client.

mod books;
mod delivery;
mod held;
mod outlet;
mod reading_back;
mod replay;
mod stored;
mod subscriptions;
#[cfg(test)]
mod tests;
mod writing;

pub use delivery::Offered;
pub use outlet::{Link, Replay};
pub use subscriptions::{Subscription, Subscriptions};
pub use writing::{Answers, Stint};

use std::ops::Deref;
use std::sync::{Arc, Weak};

use barid_core::drop_reason::DropReason;
use barid_core::message::Message;
use barid_core::queue::{QueueLimits, Room};
use barid_core::session::{Outbound, ReceivedIds, Waiting, WindowLimits};
use barid_core::time::MonoTime;
use barid_core::topic_index;
use mqtt_proto::ReasonCode;
use mqtt_proto::flow::OutboundAliases;

use crate::account::Account;
use crate::durable::{Commits, Durable, SessionJournal};
use crate::ids::ConnectionId;
use crate::owner::Owner;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard};
use crate::worker::Worker;
use outlet::Outlet;

/// The session of one client.
#[derive(Debug)]
pub struct Session {
    /// Unique in the life of the broker.
    pub id: u64,
    /// Whose session it is.
    pub account: Arc<Account>,
    /// The client identifier, unique in the tenant.
    pub client_id: Box<str>,
    /// As what it is stored, or was until it ended; none if it is not to survive the process.
    durable: Option<Durable>,
    /// It is in the store. Changed under the locks of state and outlet.
    stored: AtomicBool,
    /// How often its queue became full, and stopped to be; changed under the lock of the outlet.
    fullness: AtomicU32,
    /// How often something of it is on its way to other sessions.
    giving: AtomicU32,
    me: Weak<Session>,
    online: AtomicBool,
    /// It must not be resumed, and gets nothing. Changed under the lock of the state.
    ended: AtomicBool,
    /// Its shard was closed. Changed under the locks of state and outlet.
    left: AtomicBool,
    /// The connection that has, or had last, the session. Changed under the lock of the state.
    owner: AtomicU64,
    outlet: Mutex<Outlet>,
    state: Mutex<State>,
}

/// A shared reference to a session.
#[derive(Clone, Debug)]
pub struct SessionRef(Arc<Session>);

/// Session State that is not on a message's way out. Touched by the connection that owns the session
/// and at the session's end.
#[derive(Debug, Default)]
pub struct State {
    /// What the session has subscribed to.
    pub subscriptions: Subscriptions,
    /// QoS 2 messages received and not yet released.
    pub received: ReceivedIds,
    /// The Will Message of the present or last connection, until published or discarded.
    pub will: Option<Box<Will>>,
    /// The user whose session it is, when there are users: no other may have it.
    pub user: Option<Box<str>>,
    /// Session Expiry Interval in seconds; `u32::MAX`: never.
    pub expiry: u32,
    /// Since when its client is away; `None`: it is connected.
    pub away_since: Option<MonoTime>,
    /// The batch of its shard that it begins with, if it is stored; 0: it was found in the store.
    pub begins_in: u64,
    /// It has ended, and its record stays in the store until others have what it leaves them.
    pub(super) bequeaths: bool,
}

/// A Will Message (MQTT 5 §3.1.2.5).
#[derive(Clone, Debug)]
pub struct Will {
    /// What is published; its expiry starts to run when it is.
    pub message: Arc<Message>,
    /// Message Expiry Interval, in seconds.
    pub expiry: Option<u32>,
    /// Will Delay Interval, in seconds.
    pub delay: u32,
}

/// What became of a session whose connection has gone.
#[derive(Debug, PartialEq, Eq)]
pub enum Detached {
    /// Another connection has it: nothing is to be done.
    TakenOver,
    /// It is without a client since `epoch`.
    Away {
        /// Identifies this absence.
        epoch: u32,
    },
}

impl SessionRef {
    /// A new session without a client. What is `durable` is stored from the first
    /// [`Session::store`] on.
    pub fn new(id: u64, account: Arc<Account>, client_id: &str, durable: Option<Durable>) -> Self {
        Self(Arc::new_cyclic(|me| Session {
            id,
            account,
            client_id: client_id.into(),
            stored: AtomicBool::new(durable.is_some()),
            durable,
            fullness: AtomicU32::new(0),
            giving: AtomicU32::new(0),
            me: Weak::clone(me),
            online: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            left: AtomicBool::new(false),
            owner: AtomicU64::new(0),
            outlet: Mutex::default(),
            state: Mutex::default(),
        }))
    }
}

impl SessionRef {
    /// A reference that does not keep the session in memory.
    pub fn downgrade(&self) -> Weak<Session> {
        Arc::downgrade(&self.0)
    }

    /// The session, if it is still there.
    pub fn upgrade(weak: &Weak<Session>) -> Option<Self> {
        weak.upgrade().map(Self)
    }
}

impl Deref for SessionRef {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.0
    }
}

impl topic_index::Subscriber for SessionRef {
    fn key(&self) -> u64 {
        self.0.id
    }
}

impl Session {
    /// Whether a client is connected.
    pub fn is_online(&self) -> bool {
        self.online.load(Ordering::Relaxed)
    }

    /// Whether the session has ended: it must not be resumed, and messages are not for it any more. Ask while holding
    /// the state, where it must not end meanwhile.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// The session ends. Goes with the state, which it guards. False: it had ended before.
    pub fn end(&self, _state: &mut State) -> bool {
        !self.ended.swap(true, Ordering::Relaxed)
    }

    /// Whether its shard was closed: it is in the store only. What is left here is its name and its subscriptions, so that
    /// nothing that it should get is acknowledged.
    pub fn has_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }

    /// Session State that is not on a message's way out.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Whether a connection is the one that has the session. What an older one still has to say must
    /// not count; for what must count once only, ask while holding the state.
    pub fn is_owned_by(&self, connection: ConnectionId) -> bool {
        self.owner.load(Ordering::Relaxed) == connection.0
    }

    /// A connection takes the session. Goes with the state, which it guards.
    pub fn set_owner(&self, _state: &mut State, connection: ConnectionId) {
        self.owner.store(connection.0, Ordering::Relaxed);
    }

    /// Looks at what is on its way to the client, and at the link if one is connected.
    pub fn inspect<R>(&self, look: impl FnOnce(&Outbound, Option<&Link>) -> R) -> R {
        let outlet = self.outlet.lock();
        look(&outlet.outbound, outlet.link.as_ref())
    }

    /// Gives the session to a connection, which hears `connack` before any message, when `commits` are
    /// durable. Returns the epoch of the connection, and whether another one had the session until now:
    /// that one is closed.
    pub fn attach(
        &self,
        link: Link,
        window: WindowLimits,
        survives: bool,
        aliases: Option<Box<OutboundAliases>>,
        (connack, commits): (&[u8], Commits),
    ) -> (u32, bool) {
        self.with(|outlet| {
            let had_client = outlet.close_connection(ReasonCode::SessionTakenOver);
            outlet.attach(link, window, survives, aliases, connack, commits);
            self.online.store(true, Ordering::Relaxed);
            (outlet.epoch, had_client)
        })
    }

    /// The connection of `epoch` has gone.
    pub fn detach(&self, epoch: u32) -> Detached {
        let mut outlet = self.outlet.lock();
        if outlet.epoch != epoch || outlet.link.is_none() {
            return Detached::TakenOver;
        }
        self.online.store(false, Ordering::Relaxed);
        outlet.detach();
        Detached::Away { epoch: outlet.epoch }
    }

    /// Takes the session from its connection, if it has one, and closes that.
    pub fn close_connection(&self, reason: ReasonCode) {
        let mut outlet = self.outlet.lock();
        self.online.store(false, Ordering::Relaxed);
        outlet.close_connection(reason);
    }

    /// The connection of `epoch` belongs to the thread of `owner` from now on, which `give` gives it to. All that is posted
    /// for it from now on comes after it. False: it has lost the session, a post to close it is with the present owner,
    /// and there it stays.
    pub fn change_owner(&self, epoch: u32, owner: Arc<dyn Owner>, give: impl FnOnce()) -> bool {
        let mut outlet = self.outlet.lock();
        let present = outlet.epoch == epoch;
        // The request to close a connection goes to its owner, and must find it there.
        let may_move = present && !outlet.is_closing;
        match &mut outlet.link {
            Some(link) if may_move => link.owner = owner,
            _ => return false,
        }
        // A wake-up sent to the previous owner is not lost: the new owner looks in any case.
        outlet.woken = false;
        give();
        true
    }

    /// How much more fits into the queue.
    pub fn room(&self, limits: &QueueLimits) -> Room {
        self.outlet.lock().outbound.queue().room(limits)
    }

    /// Whether the client has been away ever since [`Session::detach`] told `epoch`.
    pub fn is_away_since(&self, epoch: u32) -> bool {
        let outlet = self.outlet.lock();
        outlet.epoch == epoch && outlet.link.is_none()
    }

    /// The session outlives its connection, or ends with it.
    pub fn set_survives(&self, survives: bool) {
        self.outlet.lock().outbound.set_survives(survives);
    }

    /// What waits for the client is stored whatever its class, if the session is stored; or as its class says.
    pub fn set_keeps_all(&self, keeps_all: bool) {
        self.outlet.lock().keeps_all = keeps_all;
    }

    /// What shared subscriptions may give to other members as long as this one is away; see
    /// [`Outbound::take_shared`]. `has_other` must not look into a session: this one is locked.
    pub fn take_shared(&self, has_other: impl FnMut(&Waiting) -> bool) -> Vec<Waiting> {
        self.with(|outlet| match outlet.link {
            Some(_) => Vec::new(),
            None => outlet.outbound.take_shared(has_other),
        })
    }

    /// The session has ended: what waited in it is lost, and counted.
    pub fn clear(&self, worker: &Worker) {
        let outbound = self.with(|outlet| {
            outlet.replays = None;
            std::mem::take(&mut outlet.outbound)
        });
        for lost in outbound.queue().iter() {
            self.dropped(worker, DropReason::SessionEnded, lost.topic());
        }
    }

    /// Counts a message that does not reach the client, and remembers why.
    pub fn dropped(&self, worker: &Worker, reason: DropReason, topic: Option<&str>) {
        self.account.dropped(worker, reason, topic, &self.client_id);
    }

    /// Applies acknowledgements from the connection of `epoch`. Answers whether messages wait that may
    /// leave now, and the batch that has what was noted.
    pub fn acknowledge(
        &self,
        epoch: u32,
        apply: impl FnOnce(&mut Outbound, &mut SessionJournal<'_>),
    ) -> (bool, Commits) {
        self.with(|outlet| {
            if outlet.epoch != epoch {
                return (false, Commits::default());
            }
            let mut journal = SessionJournal::new(self.durable());
            apply(&mut outlet.outbound, &mut journal);
            (!outlet.is_idle(), journal.commits())
        })
    }

    /// Appends packets that are no messages (acknowledgements, PINGRESP …) for the connection of
    /// `epoch`. False: the session is another connection's by now.
    pub fn append(&self, epoch: u32, packets: &[u8]) -> bool {
        let mut outlet = self.outlet.lock();
        let present = outlet.epoch == epoch;
        // A client that has not been told that it is connected is told nothing else.
        if present && !outlet.is_opening() {
            outlet.unsent.push(packets);
        }
        present
    }

    /// Whether the owner may read again from the client of the connection of `epoch`, which had left too
    /// much unread: no more than `most` bytes wait for it. If not, the owner is woken when all have been
    /// written.
    pub fn may_read_again(&self, epoch: u32, most: usize) -> bool {
        let mut outlet = self.outlet.lock();
        let waits = outlet.backlog() > most || outlet.waits_for_reader();
        let may = outlet.epoch != epoch || !waits;
        outlet.reader_paused |= !may;
        may
    }

    /// Whether messages wait for the client of the connection of `epoch` for no other reason than that it
    /// does not read.
    pub fn has_unread_messages(&self, epoch: u32) -> bool {
        let outlet = self.outlet.lock();
        outlet.epoch == epoch && outlet.waits_for_reader()
    }

    /// Sends the retained messages that a subscription asked for, ahead of all that comes later and
    /// outside the queue's limits, as fast as the client takes them. False: it has asked too often
    /// without taking them.
    pub fn replay(&self, replay: Replay) -> bool {
        let mut outlet = self.outlet.lock();
        outlet.replays.get_or_insert_default().push(replay)
    }
}
