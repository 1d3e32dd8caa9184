//! Clients of other brokers that use the state store.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use barid_core::ids::SessionNumber;
use barid_core::time::MonoTime;
use barid_peers::{Inquiry, Told, ToldKind};
use hashbrown::{HashMap, HashSet};
use xxhash_rust::xxh3::xxh3_64;

use super::{StateStore, Watching};
use crate::account::Account;
use crate::cluster::MemberRef;
use crate::sync::Mutex;

/// The upper bits of the numbers of guests. No shard has this index, so they are the numbers of no sessions of this broker.
const OF_GUESTS: u64 = 0x7fff << 48;

/// A connection of another broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    /// The broker.
    pub member: MemberRef,
    /// The number of the connection at that broker.
    pub connection: u64,
    /// The client identifier.
    pub client_id: Box<str>,
    /// The number that stands for its session here.
    pub session: SessionNumber,
    /// Whether its session is stored.
    pub is_stored: bool,
}

impl Guest {
    /// Returns the client of `broker` that has sent an inquiry.
    pub fn of(member: MemberRef, broker: &str, client_id: &str, inquiry: &Inquiry<'_>) -> Self {
        Self {
            member,
            connection: inquiry.connection,
            client_id: client_id.into(),
            session: guest_number(broker, inquiry.session),
            is_stored: inquiry.is_stored,
        }
    }

    /// Returns whom a message of this kind is for.
    pub(crate) fn told(&self, kind: ToldKind) -> Told {
        Told { connection: self.connection, session: self.session, kind }
    }

    /// The number of the connection among all watchers. Connections of this broker have smaller ones.
    pub fn id(&self) -> u64 {
        id(self.member, self.connection)
    }
}

/// Returns the number that stands for a session of another broker. If the session has been moved from broker to broker, it
/// has that number already.
pub fn guest_number(broker: &str, session: SessionNumber) -> SessionNumber {
    if session & OF_GUESTS == OF_GUESTS && session >> 63 == 0 {
        return session;
    }
    OF_GUESTS | xxh3_64(format!("{broker}/{session:x}").as_bytes()) >> 16
}

fn id(member: MemberRef, connection: u64) -> u64 {
    1 << 63 | u64::from(member.place()) << 56 | connection & !(0xff << 56)
}

/// The keys that a connection watches.
pub type Watched = Option<Box<HashSet<Box<[u8]>>>>;

/// The sessions of other brokers whose clients have asked, each with its last connection.
#[derive(Debug, Default)]
pub struct Guests(Mutex<Seats>);

#[derive(Debug, Default)]
struct Seats {
    by_session: HashMap<(MemberRef, SessionNumber), Seat>,
    /// Connections that have ended, and when.
    ended: VecDeque<(MonoTime, (MemberRef, SessionNumber), u64)>,
}

/// The last connection of a session.
#[derive(Debug)]
struct Seat {
    connection: u64,
    /// Whether that has ended. Its requests may still be under way on another link.
    has_ended: bool,
    watched: Watched,
}

/// Time for which the last connection of a session is known after its end. Requests of earlier ones, which may still be under
/// way on another link, are not carried out then.
const REMEMBERED: Duration = Duration::from_secs(60);

impl Guests {
    /// Whether a connection is the last one of its session.
    pub(super) fn is_last(&self, guest: &Guest) -> bool {
        let seats = self.0.lock();
        let seat = seats.by_session.get(&(guest.member, guest.session));
        seat.is_some_and(|seat| seat.connection == guest.connection && !seat.has_ended)
    }

    /// Whether nothing is known of a session any more.
    pub(super) fn are_gone(&self, now: MonoTime) -> bool {
        let mut seats = self.0.lock();
        seats.forget_ended(now);
        seats.by_session.is_empty()
    }
}

impl Seats {
    /// Forgets connections that have ended long ago.
    fn forget_ended(&mut self, now: MonoTime) {
        let is_over = |(at, ..): &mut (MonoTime, _, _)| at.after(REMEMBERED) <= now;
        while let Some((_, of, connection)) = self.ended.pop_front_if(is_over) {
            if self.by_session.get(&of).is_some_and(|seat| seat.connection == connection) {
                self.by_session.remove(&of);
            }
        }
    }
}

impl StateStore {
    /// Calls `ask` with the keys that a connection of another broker watches, which it may change. What an earlier connection
    /// of the session has watched is forgotten.
    pub(crate) fn with_watched<R>(
        &self,
        tenant: &Account,
        guest: &Guest,
        ask: impl FnOnce(&mut Watched) -> R,
    ) -> R {
        let of = (guest.member, guest.session);
        let mut before = None;
        let mut watched = {
            let mut seats = self.guests.0.lock();
            let (connection, has_ended) = (guest.connection, false);
            let new = || Seat { connection, has_ended, watched: None };
            let seat = seats.by_session.entry(of).or_insert_with(new);
            if seat.connection < guest.connection {
                before = Some(std::mem::replace(seat, new()));
            }
            if seat.connection == guest.connection { seat.watched.take() } else { None }
        };
        if let Some(Seat { connection, watched, .. }) = before {
            self.unwatch(tenant, guest.member, connection, &watched);
        }
        let result = ask(&mut watched);
        let mut seats = self.guests.0.lock();
        match seats.by_session.get_mut(&of) {
            Some(seat) if seat.connection == guest.connection && !seat.has_ended => {
                seat.watched = watched;
            }
            _ => {
                drop(seats);
                self.unwatch(tenant, guest.member, guest.connection, &watched);
            }
        }
        result
    }

    /// Takes over the watch of a connection of another broker, together with the key.
    pub(crate) fn adopt_guest(&self, tenant: &Account, guest: &Arc<Guest>, key: &[u8]) {
        self.with_watched(tenant, guest, |watched| {
            self.adopt_watch(tenant, Watching::Elsewhere(Arc::clone(guest)), key);
            watched.get_or_insert_default().insert(key.into());
        });
    }

    /// The connections of other brokers that watch keys.
    pub(crate) fn watching(&self) -> Vec<Arc<Guest>> {
        let mut all = HashMap::new();
        for partition in &self.partitions {
            let partition = partition.lock();
            for watching in partition.watches().flat_map(|(_, watching)| watching) {
                if let Watching::Elsewhere(guest) = watching {
                    all.entry(guest.id()).or_insert_with(|| Arc::clone(guest));
                }
            }
        }
        all.into_values().collect()
    }

    /// Forgets all watches, and all connections of other brokers: another broker has the state store now.
    pub(crate) fn forget_watches(&self) {
        for partition in &self.partitions {
            partition.lock().end_watches(&self.usage);
        }
        *self.guests.0.lock() = Seats::default();
    }

    /// Ends the watches of a connection of another broker, which has ended.
    pub(crate) fn forget_guest(&self, tenant: &Account, guest: &Guest, now: MonoTime) {
        let of = (guest.member, guest.session);
        let mut seats = self.guests.0.lock();
        seats.forget_ended(now);
        let seat = seats.by_session.get_mut(&of);
        let Some(seat) = seat.filter(|seat| seat.connection == guest.connection) else { return };
        let watched = seat.watched.take();
        seat.has_ended = true;
        seats.ended.push_back((now, of, guest.connection));
        drop(seats);
        self.unwatch(tenant, guest.member, guest.connection, &watched);
    }

    /// Ends the watches of all connections of a broker, which is down.
    pub(crate) fn forget_guests(&self, tenant: &Account, member: MemberRef) {
        let mut seats = self.guests.0.lock();
        seats.ended.retain(|(_, (of, _), _)| *of != member);
        let gone: Vec<_> =
            seats.by_session.extract_if(|(of, _), _| *of == member).map(|(_, seat)| seat).collect();
        drop(seats);
        for Seat { connection, watched, .. } in gone {
            self.unwatch(tenant, member, connection, &watched);
        }
    }

    fn unwatch(&self, tenant: &Account, member: MemberRef, connection: u64, watched: &Watched) {
        let keys = watched.iter().flat_map(|watched| watched.iter()).map(|key| &**key);
        self.forget_watcher(tenant, id(member, connection), keys);
    }
}
