//! The frames of a message link, at both ends.

use std::sync::Arc;
use std::time::Duration;

use barid_core::stamp::Stamp;
use barid_core::time::MonoTime;
use barid_peers::{Destination, Frame, FrameError, Inquiry, Retaining, Run, Told, decode};
use mqtt_proto::MAX_PACKET_LEN;
use thiserror::Error;

use crate::arriving::Malformed;
use crate::cluster::{Inbound, Link};
use crate::faults::{IfHolds as _, Rule, holds};
use crate::ids::ConnectionId;
use crate::owner::Owner;
use crate::progress::Sources;
use crate::turn::Turn;

/// Maximum length of a frame, in bytes: a packet of the maximum length, or a read buffer full of packets, with names.
const FRAME_MAX: usize = MAX_PACKET_LEN + 256 * 1024;

/// Time for which runs may be acknowledged late that [nobody waits for](Run::is_awaited), and their bytes. Under load, one
/// acknowledgement is for many of them: each costs a system call at both ends.
const LATE: Duration = Duration::from_millis(10);
const LATE_BYTES: usize = 64 * 1024;

/// One end of the connection of a message link.
#[derive(Debug)]
pub struct Carrier {
    side: Side,
    /// Acknowledgements that have not been sent.
    unsent: Vec<u8>,
    /// The last acknowledgement.
    acknowledged: u64,
    /// The last run that somebody waits for.
    awaited: u64,
    /// The bytes of the runs since the last acknowledgement, and when the first of them was handled.
    late: (usize, Option<MonoTime>),
    names: Names,
}

/// The direction in which messages go.
#[derive(Debug)]
pub enum Side {
    /// To the other broker.
    Outgoing(Arc<Link>),
    /// From the other broker.
    Incoming(Arc<Inbound>),
}

/// The frames that were handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handled {
    /// Their length, in bytes.
    pub len: usize,
    /// Whether others have arrived, for which the turn was too short.
    pub is_interrupted: bool,
}

/// Why a link ends: the other broker has broken the protocol.
#[derive(Debug, Error)]
pub enum CarrierError {
    /// A frame is not what a message link carries.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A run has other packets than it should.
    #[error(transparent)]
    Packets(#[from] Malformed),
}

impl Carrier {
    /// Creates the end of a connection.
    pub fn new(side: Side) -> Self {
        let (unsent, names) = (Vec::new(), Names::default());
        Self { side, unsent, acknowledged: 0, awaited: 0, late: (0, None), names }
    }

    /// The connection begins. `owner` is the thread that has it.
    pub fn begin(&self, owner: &Arc<dyn Owner>, connection: ConnectionId) {
        match &self.side {
            Side::Outgoing(link) => link.attach(owner, connection),
            Side::Incoming(inbound) => {
                if let Some(before) = inbound.attach(owner, connection) {
                    owner.drain(before);
                }
            }
        }
    }

    /// Whether another connection has taken the place of this one, which must not handle any more frames.
    pub fn is_replaced(&self, connection: ConnectionId) -> bool {
        match &self.side {
            Side::Outgoing(link) => !link.is_attached(connection),
            Side::Incoming(inbound) => !inbound.is_attached(connection),
        }
    }

    /// The connection has ended.
    pub fn end(&self, connection: ConnectionId) {
        if let Side::Outgoing(link) = &self.side {
            link.detach(connection);
        }
    }

    /// Handles the complete frames at the front of `bytes`, as long as the turn lasts.
    ///
    /// # Errors
    /// The other broker has broken the protocol.
    pub fn handle(
        &mut self,
        turn: &mut Turn<'_>,
        bytes: &mut [u8],
    ) -> Result<Handled, CarrierError> {
        let mut at = 0;
        while let Some((frame, len)) = decode(&bytes[at..], FRAME_MAX)? {
            match (&self.side, frame) {
                (Side::Outgoing(link), Frame::Done(sequence)) => {
                    if !link.acknowledge(sequence) {
                        return Err(FrameError::Value.into());
                    }
                }
                (Side::Incoming(inbound), Frame::Run(run)) => {
                    let (sequence, end) = (run.sequence, at + len);
                    let packets = end - run.packets.len()..end;
                    if run.is_awaited() {
                        self.awaited = sequence;
                    }
                    self.late.0 += len;
                    self.late.1.get_or_insert(turn.context.worker.now);
                    if inbound.arrives(sequence) || !holds(Rule::HandOnOnce) {
                        // The names are copied, because the packets are changed where they lie.
                        self.names.copy(&run);
                        let run = self.names.as_run(sequence);
                        let (scratch, budget) = (&mut turn.scratch.run, &mut turn.budget);
                        let packets = &mut bytes[packets];
                        let from = inbound.member();
                        let commits =
                            turn.context.deliver_here((from, &run), packets, scratch, budget)?;
                        inbound.handed_on(sequence, commits.if_holds(Rule::DoneWhenDurable));
                    }
                }
                _ => return Err(FrameError::Unexpected.into()),
            }
            at += len;
            if turn.budget.is_spent() {
                return Ok(Handled { len: at, is_interrupted: at < bytes.len() });
            }
        }
        Ok(Handled { len: at, is_interrupted: false })
    }

    /// Returns the time at which the next acknowledgement is due, at the latest.
    pub fn deadline(&self) -> Option<MonoTime> {
        self.late.1.map(|since| since.after(LATE))
    }

    /// Writes what waits, messages or acknowledgements: calls `put` with bytes until it takes fewer than it got, or until
    /// nothing is left. `put` must return at once.
    ///
    /// # Errors
    /// That of `put`.
    pub fn write<E>(
        &mut self,
        (sources, now): (&Sources, MonoTime),
        mut put: impl FnMut(&[u8]) -> Result<usize, E>,
    ) -> Result<(), E> {
        match &self.side {
            Side::Outgoing(link) => link.write(sources, put),
            Side::Incoming(inbound) => {
                let done = inbound.done(sources);
                let is_due = self.awaited > self.acknowledged
                    || self.late.0 >= LATE_BYTES
                    || self.deadline().is_none_or(|at| at <= now);
                if is_due {
                    if done > self.acknowledged {
                        self.acknowledged = done;
                        Frame::Done(done).encode(&mut self.unsent);
                    }
                    // The owner is woken when the others are done.
                    self.late = (0, None);
                }
                if !self.unsent.is_empty() {
                    let count = put(&self.unsent)?;
                    self.unsent.drain(..count);
                }
                Ok(())
            }
        }
    }
}

/// A copy of what a run says about its messages.
#[derive(Debug)]
struct Names {
    /// Tenant, publisher, and the text that belongs to the destination, or the user of the retained message.
    text: String,
    tenant: usize,
    publisher: usize,
    to: To,
    stamp: Option<Stamp>,
    is_v5: bool,
}

/// A destination, without its text.
#[derive(Debug)]
enum To {
    Sessions,
    Shared,
    StateStore(Inquiry<'static>),
    Inquirer(Told),
    OldSession(u64),
}

impl Names {
    fn copy(&mut self, run: &Run<'_>) {
        let user = run.retaining.map_or("", |retaining| retaining.user);
        let (to, last) = match run.to {
            Destination::Sessions => (To::Sessions, user),
            Destination::Shared(group) => (To::Shared, group),
            Destination::StateStore(inquiry) => {
                (To::StateStore(Inquiry { user: "", ..inquiry }), inquiry.user)
            }
            Destination::Inquirer(told) => (To::Inquirer(told), ""),
            Destination::OldSession(at) => (To::OldSession(at), ""),
        };
        self.text.clear();
        self.text.extend([run.tenant, run.publisher, last]);
        (self.tenant, self.publisher) = (run.tenant.len(), run.publisher.len());
        (self.to, self.is_v5) = (to, run.is_v5);
        // Messages for others than sessions are not retained once more.
        let retaining = run.retaining.filter(|_| run.to == Destination::Sessions);
        self.stamp = retaining.map(|retaining| retaining.stamp);
    }

    /// Returns the run, without its packets.
    fn as_run(&self, sequence: u64) -> Run<'_> {
        let (tenant, rest) = self.text.split_at(self.tenant);
        let (publisher, last) = rest.split_at(self.publisher);
        let to = match self.to {
            To::Sessions => Destination::Sessions,
            To::Shared => Destination::Shared(last),
            To::StateStore(inquiry) => Destination::StateStore(Inquiry { user: last, ..inquiry }),
            To::Inquirer(told) => Destination::Inquirer(told),
            To::OldSession(at) => Destination::OldSession(at),
        };
        let retaining = self.stamp.map(|stamp| Retaining { stamp, user: last });
        Run { sequence, tenant, publisher, to, is_v5: self.is_v5, retaining, packets: &[] }
    }
}

impl Default for Names {
    fn default() -> Self {
        let (text, to) = (String::new(), To::Sessions);
        Self { text, tenant: 0, publisher: 0, to, stamp: None, is_v5: false }
    }
}
