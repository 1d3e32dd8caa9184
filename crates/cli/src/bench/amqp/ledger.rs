//! Record of the messages sent and received.

use std::collections::BTreeSet;

use anyhow::Context as _;

use super::template::Stamp;

/// Error for a message that this program has not sent.
pub const STRANGE: &str = "the queue holds messages of another run: purge it first";

/// Messages of all sessions, numbered from 0 in each session.
pub struct Ledger {
    /// Number of this run, which distinguishes its messages from those that an earlier run left.
    run: u32,
    /// Whether messages of other runs are errors.
    is_own: bool,
    /// Whether the messages of a session must arrive in order.
    is_ordered: bool,
    sessions: Vec<Session>,
    pub counts: Counts,
}

/// Counts over all sessions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub sent: u64,
    /// Messages that the broker has accepted.
    pub accepted: u64,
    /// Messages that the broker has refused.
    pub refused: u64,
    /// Messages received, without repetitions.
    pub received: u64,
    /// Messages received again.
    pub again: u64,
    /// Messages received before one that was sent earlier.
    pub disordered: u64,
    /// Messages that the broker has confirmed as removed.
    pub completed: u64,
}

#[derive(Clone, Default)]
struct Session {
    sent: u64,
    /// Messages with lower numbers have all been received.
    floor: u64,
    /// Numbers above `floor` that have been received.
    early: BTreeSet<u64>,
}

impl Ledger {
    /// Creates a ledger for run number `run`. If it `is_own`, messages of other runs are errors.
    pub fn new(run: u32, is_own: bool, sessions: u32, is_ordered: bool) -> Self {
        let sessions = vec![Session::default(); sessions as usize];
        Self { run, is_own, is_ordered, sessions, counts: Counts::default() }
    }

    /// Counts a message to be sent, and returns its stamp.
    pub fn send(&mut self, session: u32, due: u64) -> Stamp {
        let sent = &mut self.sessions[session as usize].sent;
        let number = *sent;
        *sent += 1;
        self.counts.sent += 1;
        Stamp { run: self.run, session, number, due }
    }

    /// Counts a received message. Returns `false` if it was received before.
    ///
    /// # Errors
    /// The message is of another run, or of a session that this run does not have.
    pub fn received(&mut self, stamp: &Stamp) -> anyhow::Result<bool> {
        let session = self.sessions.get_mut(stamp.session as usize);
        let session = session.filter(|_| stamp.run == self.run || !self.is_own).context(STRANGE)?;
        if stamp.number < session.floor || !session.early.insert(stamp.number) {
            self.counts.again += 1;
            return Ok(false);
        }
        self.counts.received += 1;
        self.counts.disordered += u64::from(self.is_ordered && stamp.number != session.floor);
        while session.early.remove(&session.floor) {
            session.floor += 1;
        }
        Ok(true)
    }

    /// Returns the number of messages that were accepted and never received.
    pub fn lost(&self) -> u64 {
        self.counts.accepted.saturating_sub(self.counts.received)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_counted_once() {
        let mut ledger = Ledger::new(7, true, 2, true);
        let stamps: Vec<_> = [0, 0, 0, 1].map(|session| ledger.send(session, 0)).into();
        ledger.counts.accepted = 4;
        assert!(ledger.received(&stamps[0]).unwrap());
        assert!(ledger.received(&stamps[2]).unwrap(), "before number 1");
        assert!(ledger.received(&stamps[1]).unwrap());
        assert!(!ledger.received(&stamps[2]).unwrap(), "again");
        ledger.received(&Stamp { run: 8, ..stamps[3] }).unwrap_err();
        ledger.received(&Stamp { session: 2, ..stamps[3] }).unwrap_err();
        let Counts { sent, received, again, disordered, .. } = ledger.counts;
        assert_eq!((sent, received, again, disordered), (4, 3, 1, 1));
        assert_eq!(ledger.lost(), 1);
    }
}
