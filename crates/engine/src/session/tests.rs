//! Tests of which thread writes held packets, over a socket that takes as many bytes as a test says.

mod pacing;

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use barid_core::durable::keys;
use barid_core::time::MonoTime;
use barid_store::Store;
use barid_store::memory::MemoryStore;
use mqtt_proto::{ReasonCode, Version};

use super::{Answers, Link, SessionRef};
use crate::account::{Account, TenantSettings};
use crate::durable::{Commits, Shards, Storage};
use crate::ids::ConnectionId;
use crate::owner::{Farewell, Owner};
use crate::random::tests::COUNTING;
use crate::sync::Mutex;
use crate::wire::Wire;
use crate::worker::Worker;

const WORKER: Worker = Worker { id: 0, now: MonoTime::from_millis(0) };

/// A socket that takes `room` bytes, and then no more.
#[derive(Debug, Default)]
struct Pipe {
    room: AtomicUsize,
    written: Mutex<Vec<u8>>,
}

impl Wire for Pipe {
    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.room.load(Ordering::Relaxed));
        if count == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.room.fetch_sub(count, Ordering::Relaxed);
        self.written.lock().extend_from_slice(&bytes[..count]);
        Ok(count)
    }
}

/// An owner that counts how often it is woken, and notes how connections are to be closed.
#[derive(Debug, Default)]
struct Told(AtomicUsize, Mutex<Vec<Farewell>>);

impl Owner for Told {
    fn drain(&self, _: ConnectionId) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn close(&self, _: ConnectionId, _: ReasonCode, farewell: Farewell) {
        self.1.lock().push(farewell);
    }
}

/// A session with a client, over one shard.
struct World {
    shards: Arc<Shards>,
    session: SessionRef,
    epoch: u32,
    pipe: Arc<Pipe>,
    owner: Arc<Told>,
}

impl World {
    fn new() -> Self {
        Self::with(TenantSettings::default())
    }

    fn with(settings: TenantSettings) -> Self {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(keys::NAMES.len()));
        let shards = Arc::new(Shards::new(Storage::local(&[store]), 0));
        let account = Account::new(
            (0, "t"),
            settings,
            Arc::clone(&shards),
            (1, COUNTING),
            None,
            (None, Arc::default()),
        );
        let session = SessionRef::new(1, Arc::new(account), "c", None);
        let (pipe, owner) = (Arc::<Pipe>::default(), Arc::<Told>::default());
        let link = Link {
            version: Version::V5,
            max_packet_size: u32::MAX,
            wire: Some(Arc::clone(&pipe) as Arc<dyn Wire>),
            owner: Arc::clone(&owner) as Arc<dyn Owner>,
            connection: ConnectionId(1),
            peer: ([127, 0, 0, 1], 1).into(),
            listener: "mqtt",
            keep_alive: 0,
            rights: None,
        };
        let (epoch, _) = session.attach(link, 10.into(), false, None, (b"", Commits::default()));
        Self { shards, session, epoch, pipe, owner }
    }

    /// Notes a change, and returns its batch.
    fn note(&self) -> Commits {
        let shard = self.shards.get(0);
        let shard = shard.change();
        Commits::one(shard.index(), shard.batch())
    }

    /// Sends an answer, as the owner, that waits for `commits`.
    fn answer(&self, text: &[u8], commits: &Commits) {
        let answers =
            Answers { ordered: text.to_vec(), commits: commits.clone(), ..Answers::default() };
        let write = |bytes: &[u8]| self.pipe.write(bytes);
        self.session.answer(&WORKER, self.epoch, &answers, usize::MAX, write);
    }

    fn commit(&self) {
        self.shards.get(0).commit_now();
    }

    /// Gives the owner a turn.
    fn drain(&self, is_writable: bool) {
        let write = |bytes: &[u8]| self.pipe.write(bytes);
        self.session.drain(&WORKER, self.epoch, is_writable, super::Stint::SHORT, write);
    }

    fn written(&self) -> Vec<u8> {
        std::mem::take(&mut self.pipe.written.lock())
    }

    fn room(&self, bytes: usize) {
        self.pipe.room.store(bytes, Ordering::Relaxed);
    }

    fn told(&self) -> usize {
        self.owner.0.swap(0, Ordering::Relaxed)
    }

    /// Closes the connection, while a thread writes `packet` if there is one, of which the socket takes `taken` bytes. Returns
    /// how it was closed.
    fn close(&self, packet: &[u8], taken: usize) -> Farewell {
        self.room(taken);
        self.session.append(self.epoch, packet);
        let mut first = true;
        let write = |bytes: &[u8]| {
            if std::mem::take(&mut first) {
                self.session.close_connection(ReasonCode::SessionTakenOver);
                assert!(self.owner.1.lock().is_empty(), "the writer has not finished");
            }
            self.pipe.write(bytes)
        };
        self.session.drain(&WORKER, self.epoch, false, super::Stint::SHORT, write);
        self.session.close_connection(ReasonCode::SessionTakenOver);
        let closed = std::mem::take(&mut *self.owner.1.lock());
        assert_eq!(closed.len(), 1);
        closed[0]
    }
}

#[test]
fn a_client_is_told_why_its_connection_is_closed_between_two_packets() {
    let silent = |world: World, packet, taken| world.close(packet, taken) == Farewell::Silent;
    let with_connack = || {
        let world = World::new();
        world.room(100);
        world.answer(b"connack", &Commits::default());
        world
    };
    assert!(silent(World::new(), b"", 0), "nothing comes before CONNACK");
    assert!(!silent(with_connack(), b"", 0));
    assert!(!silent(with_connack(), b"packet", 100), "the write in progress ends with the packet");
    assert!(silent(with_connack(), b"packet", 3), "half a packet was written");
    let world = with_connack();
    world.room(3);
    world.answer(b"packet", &Commits::default());
    assert!(silent(world, b"", 100), "half a packet was written before");
    // A packet is dropped if none of its bytes have been written.
    let world = with_connack();
    assert!(world.session.append(world.epoch, b"packet"));
    world.session.close_connection(ReasonCode::SessionTakenOver);
    assert_eq!(*world.owner.1.lock(), [Farewell::AtOnce]);
    assert_eq!(world.written(), b"connack");
}

#[test]
fn what_waited_for_a_commit_is_written_by_the_owner_when_it_is_told() {
    let world = World::new();
    world.room(100);
    let noted = world.note();
    world.answer(b"one", &noted);
    world.answer(b"two", &Commits::default());
    assert_eq!((world.written(), world.told()), (b"".to_vec(), 0), "nothing overtakes");
    world.commit();
    assert_eq!((world.written(), world.told()), (b"".to_vec(), 1), "it is told once");
    world.drain(false);
    assert_eq!(world.written(), b"onetwo");
}

#[test]
fn what_a_full_socket_does_not_take_is_written_when_the_kernel_tells_of_room() {
    let world = World::new();
    world.room(2);
    world.answer(b"answer", &Commits::default());
    world.answer(b"!", &Commits::default());
    assert_eq!(world.written(), b"an");
    world.room(100);
    world.answer(b"!", &Commits::default());
    assert_eq!(world.written(), b"", "nobody asks a socket that was full");
    world.drain(true);
    assert_eq!((world.written(), world.told()), (b"swer!!".to_vec(), 0));
}
