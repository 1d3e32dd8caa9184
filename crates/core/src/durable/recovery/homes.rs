//! Traces that clients have left in other shards than their sessions', and what becomes of them when these are opened.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::{AnsweredIn, ReceivedIn, Recovered, Trace};
use crate::durable::shard::{Shard, shard_of};
use crate::ids::{SessionNumber, ShardIndex, TenantNumber};

/// The shards that are open, with their sessions, and the traces that wait for others.
///
/// Whether a trace is still worth anything is known when the shard of its session is open. Until then it stays.
#[derive(Debug, Default)]
pub struct Homes {
    open: HashMap<ShardIndex, HashMap<SessionNumber, TenantNumber, FixedState>, FixedState>,
    waiting: Vec<Trace>,
}

impl Homes {
    /// A shard is open already, with these sessions and with traces of clients whose shard is not.
    pub fn resume(
        &mut self,
        shard: ShardIndex,
        sessions: impl IntoIterator<Item = (SessionNumber, TenantNumber)>,
        traces: impl IntoIterator<Item = Trace>,
    ) {
        self.open.insert(shard, sessions.into_iter().collect());
        self.waiting.extend(traces);
    }

    /// Opens a shard that has been read. Answers the traces of which is known by that whether their session is there: those in
    /// the shard itself, and those in others that have waited for it. One whose session is not there is to be
    /// [removed](Trace::remove). Directories of versions that reserved no numbers need more: the shard of the session is to
    /// [skip its number](Shard::skip_number).
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

    /// The traces that wait for shards that are not open.
    pub fn waiting(&self) -> &[Trace] {
        &self.waiting
    }
}

impl Trace {
    /// Whose trace it is.
    pub fn session(&self) -> (TenantNumber, SessionNumber) {
        match *self {
            Self::Received(ReceivedIn { tenant, session, .. })
            | Self::Answered(AnsweredIn { tenant, session, .. }) => (tenant, session),
        }
    }

    /// Where it is.
    pub fn shard(&self) -> ShardIndex {
        match *self {
            Self::Received(ReceivedIn { shard, .. }) | Self::Answered(AnsweredIn { shard, .. }) => {
                shard
            }
        }
    }

    /// Removes it from its shard.
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
