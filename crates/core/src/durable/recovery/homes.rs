//! Traces that clients have left in shards other than that of their session, and their handling when those shards are
//! opened.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::{AnsweredIn, ReceivedIn, Recovered, Trace};
use crate::durable::shard::{Shard, shard_of};
use crate::ids::{SessionNumber, ShardIndex, TenantNumber};

/// The open shards with their sessions, and the traces whose session is in a shard that is not open.
///
/// Whether a trace is still needed is known only when the shard of its session is open. Until then the trace is kept.
#[derive(Debug, Default)]
pub struct Homes {
    open: HashMap<ShardIndex, HashMap<SessionNumber, TenantNumber, FixedState>, FixedState>,
    waiting: Vec<Trace>,
}

impl Homes {
    /// Adds a shard that is open already, with its sessions, and with traces in it of clients whose shard is not open.
    pub fn resume(
        &mut self,
        shard: ShardIndex,
        sessions: impl IntoIterator<Item = (SessionNumber, TenantNumber)>,
        traces: impl IntoIterator<Item = Trace>,
    ) {
        self.open.insert(shard, sessions.into_iter().collect());
        self.waiting.extend(traces);
    }

    /// Opens a shard that has been read. Returns the traces for which it is now known whether their session exists (the
    /// bool): traces in this shard, and traces in other shards that have waited for this one. A trace whose session
    /// does not exist must be [removed](Trace::remove). For directories of versions that reserved no numbers, the shard
    /// of the session must in addition [skip its number](Shard::skip_number).
    pub fn open(&mut self, recovered: Recovered) -> (Shard, Vec<(Trace, bool)>) {
        let Recovered { shard, sessions, traces } = recovered;
        self.open.insert(shard.index(), sessions);
        self.waiting.extend(traces);
        let mut known = Vec::new();
        self.waiting.retain(|trace| {
            let (tenant, session) = trace.session();
            let Some(sessions) = self.open.get(&shard_of(session)) else { return true };
            known.push((*trace, sessions.get(&session) == Some(&tenant)));
            false
        });
        (shard, known)
    }

    /// The traces whose session is in a shard that is not open.
    pub fn waiting(&self) -> &[Trace] {
        &self.waiting
    }
}

impl Trace {
    /// The session of the client that left the trace.
    pub fn session(&self) -> (TenantNumber, SessionNumber) {
        match *self {
            Self::Received(ReceivedIn { tenant, session, .. })
            | Self::Answered(AnsweredIn { tenant, session, .. }) => (tenant, session),
        }
    }

    /// The shard that has the trace.
    pub fn shard(&self) -> ShardIndex {
        match *self {
            Self::Received(ReceivedIn { shard, .. }) | Self::Answered(AnsweredIn { shard, .. }) => {
                shard
            }
        }
    }

    /// Removes the trace from its shard.
    pub fn remove(&self, shard: &mut Shard) {
        debug_assert_eq!(shard.index(), self.shard());
        match *self {
            Self::Received(ReceivedIn { tenant, session, packet_id, .. }) => {
                shard.remove_received(tenant, session, packet_id);
            }
            Self::Answered(AnsweredIn { tenant, session, packet_id, .. }) => {
                shard.remove_answered(tenant, session, packet_id);
            }
        }
    }
}
