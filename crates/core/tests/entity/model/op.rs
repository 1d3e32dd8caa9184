//! Random steps of the history of an entity.

use barid_core::entity::{Outcome, Part};
use proptest::prelude::*;

use super::{SESSIONS, SLOTS};

/// The slot of a receiver.
pub type Slot = u8;
/// A delivery, given by the number of later deliveries.
pub type Back = u8;

/// A step of a history. `picks` are messages, given by their distance from the end of their part.
#[derive(Clone, Debug)]
pub enum Op {
    Send {
        session: u8,
        ttl: Option<u8>,
        delay: Option<u8>,
        id: Option<u8>,
    },
    Accept {
        slot: Slot,
        session: Option<u8>,
        wait: u8,
        delete: bool,
    },
    Open {
        slot: Slot,
        part: Part,
        delete: bool,
    },
    Take(Slot, usize),
    Settle(Back, How),
    Deferred {
        slot: Slot,
        part: Part,
        picks: Vec<u8>,
        delete: bool,
    },
    RenewSession(Slot),
    RenewMessage(Back),
    Close(Slot),
    SetState(Slot, Option<u8>),
    Cancel(Vec<u8>),
    DeadLetterIncoming(u8, Part),
    /// Lets this many milliseconds pass.
    Later(u64),
    OnTime,
    Resubmit(Part, Vec<u8>),
    Purge(Part),
    KeepInMemory(bool),
    /// Makes everything durable that was noted.
    Commit,
    /// Loses everything that was noted since the last commit, and the locks.
    Crash,
    /// Ends the process in an orderly way, and starts it again.
    Restart,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum How {
    Complete,
    Abandon,
    Defer,
    DeadLetter,
    Release,
}

impl How {
    pub fn outcome(self) -> Outcome {
        let changes = Vec::new();
        match self {
            How::Complete => Outcome::Complete,
            How::Abandon => Outcome::Abandon(changes),
            How::Defer => Outcome::Defer(changes),
            How::DeadLetter => Outcome::DeadLetter { reason: None, description: None, changes },
            How::Release => Outcome::Release,
        }
    }
}

pub fn any_op() -> impl Strategy<Value = Op> {
    let slot = || 0..SLOTS;
    let session = || 0..SESSIONS;
    let delete = || prop::bool::weighted(0.15);
    let picks = || prop::collection::vec(0u8..15, 1..3);
    let dead = || prop_oneof![Just(Part::DeadLetter), Just(Part::TransferDeadLetter)];
    let how = prop_oneof![
        4 => Just(How::Complete),
        3 => Just(How::Abandon),
        3 => Just(How::Defer),
        1 => Just(How::DeadLetter),
        2 => Just(How::Release),
    ];
    prop_oneof![
        30 => (
            session(),
            prop::option::weighted(0.3, 0u8..60),
            prop::option::weighted(0.2, 0u8..30),
            prop::option::weighted(0.2, 0u8..4),
        )
            .prop_map(|(session, ttl, delay, id)| Op::Send { session, ttl, delay, id }),
        14 => (slot(), prop::option::of(session()), 0u8..40, delete())
            .prop_map(|(slot, session, wait, delete)| Op::Accept { slot, session, wait, delete }),
        6 => (slot(), part(), delete()).prop_map(|(slot, part, delete)| Op::Open { slot, part, delete }),
        24 => (slot(), 0usize..4).prop_map(|(slot, max)| Op::Take(slot, max)),
        32 => (0u8..5, how).prop_map(|(back, how)| Op::Settle(back, how)),
        16 => (slot(), part(), picks(), delete())
            .prop_map(|(slot, part, picks, delete)| Op::Deferred { slot, part, picks, delete }),
        4 => slot().prop_map(Op::RenewSession),
        3 => (0u8..6).prop_map(Op::RenewMessage),
        4 => slot().prop_map(Op::Close),
        4 => (slot(), prop::option::of(0u8..9)).prop_map(|(slot, len)| Op::SetState(slot, len)),
        3 => picks().prop_map(Op::Cancel),
        2 => (session(), dead()).prop_map(|(session, part)| Op::DeadLetterIncoming(session, part)),
        4 => (dead(), picks()).prop_map(|(part, picks)| Op::Resubmit(part, picks)),
        10 => (1u64..12).prop_map(Op::Later),
        8 => Just(Op::OnTime),
        1 => part().prop_map(Op::Purge),
        1 => any::<bool>().prop_map(Op::KeepInMemory),
        3 => Just(Op::Commit),
        1 => Just(Op::Crash),
        1 => Just(Op::Restart),
    ]
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![5 => Just(Part::Main), 3 => Just(Part::DeadLetter), 1 => Just(Part::TransferDeadLetter)]
}
