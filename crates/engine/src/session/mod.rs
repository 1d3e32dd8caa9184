//! Sessions as the IO threads see them: identity, Session State, and the outlet to the client.

mod belonging;
mod books;
mod delivery;
mod held;
mod outlet;
mod pacing;
mod reading_back;
mod replay;
mod requested;
mod stored;
mod subscriptions;
mod tapped;
#[cfg(test)]
mod tests;
mod writing;

pub use delivery::Offered;
pub use outlet::{Link, Replay};
pub use requested::{Requested, Requests};
pub use subscriptions::{Subscription, Subscriptions};
pub use writing::{Answers, Stint};

use std::ops::Deref;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use barid_core::drop_reason::DropReason;
use barid_core::message::Message;
use barid_core::queue::{QueueLimits, Room};
use barid_core::session::{Outbound, ReceivedIds, Waiting, WindowLimits};
use barid_core::time::{MonoTime, WallTime};
use barid_core::topic_index;
use mqtt_proto::ReasonCode;
use mqtt_proto::flow::OutboundAliases;

use crate::access::Permissions;
use crate::account::Account;
use crate::client_traffic::{ClientTraffic, Passed};
use crate::durable::{Commits, Durable, SessionJournal};
use crate::ids::ConnectionId;
use crate::owner::Owner;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard};
use crate::worker::Worker;
use belonging::Belonging;
use outlet::Outlet;

/// The session of one client.
#[derive(Debug)]
pub struct Session {
    /// Identifies the session; unique during the life of the process.
    pub id: u64,
    /// The account of the tenant that the session belongs to.
    pub account: Arc<Account>,
    /// The client identifier, unique in the tenant.
    pub client_id: Box<str>,
    /// The record under which the session is, or was last, stored; `None` if the session does not survive the
    /// process.
    durable: Option<Durable>,
    /// Whether the session is stored; false once its removal is noted. Changed under the locks of state and
    /// outlet.
    stored: AtomicBool,
    /// Number of times that the queue became full or stopped being full. Changed under the lock of the
    /// outlet.
    fullness: AtomicU32,
    /// Number of hand-overs in progress from this session to other sessions.
    giving: AtomicU32,
    me: Weak<Session>,
    online: AtomicBool,
    /// The session has ended: it must not be resumed, and gets no messages. Changed under the lock of the
    /// state.
    ended: AtomicBool,
    /// The session's shard was closed. Changed under the locks of state and outlet.
    left: AtomicBool,
    /// The session gets no messages for now.
    muted: AtomicBool,
    /// The connection that has the session, or had it last. Changed under the lock of the state.
    owner: AtomicU64,
    outlet: Mutex<Outlet>,
    state: Mutex<State>,
    /// The messages of the present or last connection. Made for the first of them: a session without it fits a smaller
    /// class of the allocator.
    traffic: OnceLock<Box<ClientTraffic>>,
}

/// A shared reference to a session.
#[derive(Clone, Debug)]
pub struct SessionRef(Arc<Session>);

/// Session State, except the outgoing messages. Used mostly by the connection that owns the session, and at
/// the session's end.
#[derive(Debug, Default)]
pub struct State {
    /// The subscriptions of the session.
    pub subscriptions: Subscriptions,
    /// QoS 2 messages received and not yet released.
    pub received: ReceivedIds,
    /// What must be done before other brokers have all messages of QoS 1 and 2 that the client has published; `None`: there
    /// never was one for them.
    pub owed: Option<Box<Commits>>,
    /// The Will Message of the present or last connection, until published or discarded.
    pub will: Option<Box<Will>>,
    /// The user to whom the session belongs, if there are users.
    belongs: Option<Belonging>,
    /// Session Expiry Interval in seconds; `u32::MAX`: the session does not expire.
    pub expiry: u32,
    /// When the present or last client connected.
    pub connected_since: WallTime,
    /// The same by the fastest clock of the cluster, in microseconds since the Unix epoch: it orders the connections of a client.
    pub connected_at: u64,
    /// Time since which the client is away; `None` while it is connected.
    pub away_since: Option<MonoTime>,
    /// The batch of its shard in which the session begins, if it is stored; 0 if the session was found in the
    /// store.
    pub begins_in: u64,
    /// Whether the session has ended while its record stays in the store, until other sessions have what it
    /// leaves to them.
    pub(super) bequeaths: bool,
}

impl State {
    /// Returns the time at which the session expires (MQTT 5 §3.1.2.11.2). `None`: its client is connected, or it does not
    /// expire.
    pub fn expires_at(&self) -> Option<MonoTime> {
        let interval = Duration::from_secs(self.expiry.into());
        self.away_since.filter(|_| self.expiry != u32::MAX).map(|since| since.after(interval))
    }
}

/// A Will Message (MQTT 5 §3.1.2.5).
#[derive(Clone, Debug)]
pub struct Will {
    /// The message to publish. Its expiry starts to run when it is published.
    pub message: Arc<Message>,
    /// Message Expiry Interval, in seconds.
    pub expiry: Option<u32>,
    /// Will Delay Interval, in seconds.
    pub delay: u32,
}

/// Result of detaching a connection from its session.
#[derive(Debug, PartialEq, Eq)]
pub enum Detached {
    /// The connection had lost the session before: there is nothing to do.
    TakenOver,
    /// The session has had no client since `epoch`.
    Away {
        /// Identifies this absence.
        epoch: u32,
    },
}

impl SessionRef {
    /// Creates a session without a client. If it is `durable`, it is stored from the first [`Session::store`]
    /// on.
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
            muted: AtomicBool::new(false),
            owner: AtomicU64::new(0),
            outlet: Mutex::default(),
            state: Mutex::default(),
            traffic: OnceLock::new(),
        }))
    }
}

impl SessionRef {
    /// Returns a reference that does not keep the session in memory.
    pub fn downgrade(&self) -> Weak<Session> {
        Arc::downgrade(&self.0)
    }

    /// Returns the session, if it is still in memory.
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

    /// Whether the session has ended: it must not be resumed, and gets no more messages. A caller for which
    /// the session must not end meanwhile has to hold the lock of the state.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Marks the session as ended. The caller holds the locked state, which guards the mark. Returns false if
    /// the session had ended before.
    pub fn end(&self, state: &mut State) -> bool {
        if let Some(belongs) = &mut state.belongs {
            belongs.release();
        }
        !self.ended.swap(true, Ordering::Relaxed)
    }

    /// Whether the session's shard was closed, so that the session is in the store only. Its name and its
    /// subscriptions stay in memory, so that no message that it should get is acknowledged.
    pub fn has_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }

    /// The count of messages of the present connection.
    #[inline]
    pub(crate) fn traffic(&self) -> &ClientTraffic {
        self.traffic.get_or_init(Box::default)
    }

    /// Returns what has been received from the client since it has connected, and what it was sent.
    pub fn passed(&self) -> (Passed, Passed) {
        self.traffic.get().map(|traffic| traffic.get()).unwrap_or_default()
    }

    /// Keeps messages from the session, or ends that. Its owner is told how many it [misses](Owner::missed).
    pub fn mute(&self, muted: bool) {
        self.muted.store(muted, Ordering::Relaxed);
    }

    fn is_muted(&self) -> bool {
        self.muted.load(Ordering::Relaxed)
    }

    /// Locks the Session State, except the outgoing messages.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Returns whether a connection has the session. Packets of an older connection must not take effect. A
    /// caller whose action must take effect only once has to hold the lock of the state.
    pub fn is_owned_by(&self, connection: ConnectionId) -> bool {
        self.owner.load(Ordering::Relaxed) == connection.0
    }

    /// Gives the session to a connection. The caller holds the locked state, which guards the owner.
    pub fn set_owner(&self, _state: &mut State, connection: ConnectionId) {
        self.owner.store(connection.0, Ordering::Relaxed);
    }

    /// Calls `look` with the outgoing messages, and with the link if a client is connected. The outlet is
    /// locked meanwhile.
    pub fn inspect<R>(&self, look: impl FnOnce(&Outbound, Option<&Link>) -> R) -> R {
        let outlet = self.outlet.lock();
        look(&outlet.outbound, outlet.link.as_ref())
    }

    /// Attaches a connection to the session. `connack` is sent before any message, when `commits` are
    /// durable. Returns the epoch of the connection, and whether another connection had the session until
    /// now; that connection is closed.
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
            self.tap_outlet(outlet, true);
            if let Some(traffic) = self.traffic.get() {
                traffic.clear();
            }
            self.online.store(true, Ordering::Relaxed);
            (outlet.epoch, had_client)
        })
    }

    /// Has the messages that wait for the client of the connection of `epoch` checked with these permissions.
    pub fn check_waiting(&self, epoch: u32, permissions: &Arc<Permissions>) {
        let mut outlet = self.outlet.lock();
        if outlet.epoch == epoch
            && let Some(link) = &mut outlet.link
        {
            link.rights = Some(Arc::clone(permissions));
        }
    }

    /// Changes the limits of the messages in flight to the client of the connection of `epoch`. The connection
    /// must be drained next, because more messages may be sent now.
    pub fn set_window(&self, epoch: u32, window: WindowLimits) {
        let mut outlet = self.outlet.lock();
        if outlet.epoch == epoch {
            outlet.outbound.set_window(window);
        }
    }

    /// Detaches the connection of `epoch`, which has ended and [owns](Self::is_owned_by) the session. It may have been
    /// [closed](Self::close_connection) before.
    pub fn detach(&self, epoch: u32) -> Detached {
        let mut outlet = self.outlet.lock();
        if outlet.link.is_some() {
            if outlet.epoch != epoch {
                return Detached::TakenOver;
            }
            self.online.store(false, Ordering::Relaxed);
            outlet.detach();
        }
        Detached::Away { epoch: outlet.epoch }
    }

    /// Takes the session from its connection, if it has one, and closes the connection. The session counts as away when the
    /// connection has ended.
    pub fn close_connection(&self, reason: ReasonCode) {
        let mut outlet = self.outlet.lock();
        self.online.store(false, Ordering::Relaxed);
        outlet.close_connection(reason);
    }

    /// Moves the connection of `epoch` to the thread of `owner`; `give` passes the connection to that thread.
    /// All later posts for the connection arrive there after it. Returns false, and moves nothing, if the
    /// connection has lost the session or is to be closed: then a post to close it is with the present owner.
    pub fn change_owner(&self, epoch: u32, owner: Arc<dyn Owner>, give: impl FnOnce()) -> bool {
        let mut outlet = self.outlet.lock();
        let present = outlet.epoch == epoch;
        // A request to close the connection was sent to its present owner, and must find the connection
        // there.
        let may_move = present && !outlet.is_closing;
        match &mut outlet.link {
            Some(link) if may_move => link.owner = owner,
            _ => return false,
        }
        // A wake-up sent to the previous owner is not lost: the new owner checks the outlet when it takes the
        // connection over.
        outlet.woken = false;
        give();
        true
    }

    /// Returns how much more fits into the queue, with limits that are so many `times` as high as set.
    pub fn room(&self, limits: &QueueLimits, times: usize) -> Room {
        let outlet = self.outlet.lock();
        let user_bytes = self.user_bytes(&outlet, times);
        outlet.outbound.queue().room(&QueueLimits { user_bytes, ..*limits })
    }

    /// Returns how many bytes more fit into all queues of the user to whom the session belongs, if its limit were so many
    /// times as high.
    pub fn user_room(&self, times: usize) -> usize {
        self.user_bytes(&self.outlet.lock(), times)
    }

    /// The limits of the queue, with the room that the tenant and the user have left.
    fn queue_limits(&self, outlet: &Outlet) -> QueueLimits {
        self.account.queue_limits_of(outlet.holder.as_deref())
    }

    fn user_bytes(&self, outlet: &Outlet, times: usize) -> usize {
        let holder = outlet.holder.as_ref();
        holder.map_or(usize::MAX, |holder| self.account.queue_room_of(holder, times))
    }

    /// Returns whether the client has been away since [`Session::detach`] returned `epoch`.
    pub fn is_away_since(&self, epoch: u32) -> bool {
        let outlet = self.outlet.lock();
        outlet.epoch == epoch && outlet.link.is_none()
    }

    /// Sets whether the session survives its connection.
    pub fn set_survives(&self, survives: bool) {
        self.outlet.lock().outbound.set_survives(survives);
    }

    /// Sets whether waiting messages of QoS 1 and 2 are stored whatever their durability class, if the
    /// session is stored. Otherwise the class decides.
    pub fn set_keeps_all(&self, keeps_all: bool) {
        self.outlet.lock().keeps_all = keeps_all;
    }

    /// Takes the messages that shared subscriptions may give to other members while this client is away; see
    /// [`Outbound::take_shared`]. `has_other` must not look into a session, because this one is locked.
    pub fn take_shared(&self, has_other: impl FnMut(&Waiting) -> bool) -> Vec<Waiting> {
        self.with(|outlet| match outlet.link {
            Some(_) => Vec::new(),
            None => outlet.outbound.take_shared(has_other),
        })
    }

    /// Discards the outgoing messages of a session that has ended, and counts those in its queue as dropped.
    pub fn clear(&self, worker: &Worker) {
        let outbound = self.with(|outlet| {
            outlet.replays = None;
            std::mem::take(&mut outlet.outbound)
        });
        for lost in outbound.queue().iter() {
            self.dropped(worker, DropReason::SessionEnded, lost.topic());
        }
    }

    /// Counts a message that does not reach the client, and remembers the reason.
    pub fn dropped(&self, worker: &Worker, reason: DropReason, topic: Option<&str>) {
        self.account.dropped(worker, reason, topic, &self.client_id);
    }

    /// Applies acknowledgements from the connection of `epoch`. Returns whether messages wait that may leave
    /// now, and the batch in which the changes are noted.
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

    /// Appends packets that carry no message, such as DISCONNECT, for the connection of `epoch`. Returns
    /// false if another connection has the session by now.
    pub fn append(&self, epoch: u32, packets: &[u8]) -> bool {
        let mut outlet = self.outlet.lock();
        let present = outlet.epoch == epoch;
        // No packet may leave before the CONNACK.
        if present && !outlet.is_opening() {
            outlet.unsent.push(packets);
        }
        present
    }

    /// Returns whether the owner may read again from the client of the connection of `epoch`, which had left
    /// too much unread. It may if no more than `most` bytes wait for the client, and no messages wait only
    /// because the client does not read; also if the connection has lost the session. Otherwise the owner is
    /// woken when all bytes have been written.
    pub fn may_read_again(&self, epoch: u32, most: usize) -> bool {
        let mut outlet = self.outlet.lock();
        let waits = outlet.backlog() > most || outlet.waits_for_reader();
        let may = outlet.epoch != epoch || !waits;
        outlet.reader_paused |= !may;
        may
    }

    /// Returns whether messages wait for the client of the connection of `epoch` only because the client does
    /// not read.
    pub fn has_unread_messages(&self, epoch: u32) -> bool {
        let outlet = self.outlet.lock();
        outlet.epoch == epoch && outlet.waits_for_reader()
    }

    /// Sends the retained messages that a subscription asked for: ahead of all later messages, outside the
    /// queue's limits, and as fast as the client takes them. Returns false if too many such requests of the
    /// session are unfinished.
    pub fn replay(&self, replay: Replay) -> bool {
        let mut outlet = self.outlet.lock();
        outlet.replays.get_or_insert_default().push(replay)
    }
}
