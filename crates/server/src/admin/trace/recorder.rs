//! The packets of a client that wait to be sent to an operator, in bounded memory.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use barid_core::time::WallTime;
use barid_engine::clock::Clock;
use barid_engine::ids::ConnectionId;
use barid_engine::tapping::Protocol;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::Notify;

use super::super::streams::Allowance;

/// Maximum size of the records that wait, in bytes. What does not fit is counted.
const WAITING_MAX: usize = 512 * 1024;

/// What a record counts beside its bytes.
const RECORD_BYTES: usize = 128;

/// Something that has happened on a connection.
#[derive(Debug)]
pub struct Record {
    pub at: WallTime,
    pub connection: ConnectionId,
    pub protocol: Protocol,
    pub what: What,
}

#[derive(Debug)]
pub enum What {
    /// From now on packets are recorded. `begins`: because the client has connected.
    Traced { peer: SocketAddr, begins: bool },
    /// A packet or frame of so many `bytes`, of which `head` are the first.
    Packet { direction: Direction, bytes: usize, head: Vec<u8> },
    /// The connection has ended.
    Ended { reason: String },
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    Received,
    Sent,
}

/// A connection, and the protocol of its client.
pub type Who = (ConnectionId, Protocol);

/// The records of one trace.
#[derive(Debug)]
pub struct Recorder {
    clock: Clock,
    news: Arc<Notify>,
    waiting: Mutex<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    allowance: Allowance,
    records: VecDeque<Record>,
    bytes: usize,
    /// Packets that were counted instead of recorded.
    skipped: u64,
}

impl Recorder {
    pub fn new(clock: Clock, allowance: Allowance) -> Self {
        let waiting = Waiting { allowance, records: VecDeque::new(), bytes: 0, skipped: 0 };
        Self { clock, news: Arc::default(), waiting: Mutex::new(waiting) }
    }

    /// Is notified when there are records.
    pub fn news(&self) -> &Arc<Notify> {
        &self.news
    }

    /// Takes the records, and the number of packets after them that were only counted.
    pub fn take(&self) -> (VecDeque<Record>, u64) {
        let mut waiting = self.waiting.lock();
        waiting.bytes = 0;
        (std::mem::take(&mut waiting.records), std::mem::take(&mut waiting.skipped))
    }

    /// Records a packet, if there is room and the rate allows it. One that is only counted is not copied.
    pub fn packet(&self, who: Who, direction: Direction, bytes: usize, head: &[u8]) {
        let mut waiting = self.waiting.lock();
        waiting.allowance.accrue(Instant::now());
        let may = waiting.skipped == 0 && waiting.has_room(head.len()) && waiting.allowance.take();
        if may {
            let what = What::Packet { direction, bytes, head: head.to_vec() };
            waiting.push(self.clock.wall(), who, head.len(), what);
        } else {
            waiting.skipped += 1;
        }
        drop(waiting);
        self.news.notify_one();
    }

    /// Records that a connection is traced or has ended, if there is room.
    pub fn change(&self, who: Who, what: What) {
        let mut waiting = self.waiting.lock();
        if waiting.has_room(0) {
            waiting.push(self.clock.wall(), who, 0, what);
        }
        drop(waiting);
        self.news.notify_one();
    }
}

impl Waiting {
    fn has_room(&self, bytes: usize) -> bool {
        self.bytes + bytes + RECORD_BYTES <= WAITING_MAX
    }

    fn push(&mut self, at: WallTime, (connection, protocol): Who, bytes: usize, what: What) {
        self.bytes += bytes + RECORD_BYTES;
        self.records.push_back(Record { at, connection, protocol, what });
    }
}
