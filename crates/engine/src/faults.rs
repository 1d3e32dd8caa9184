//! Rules that a line of the engine keeps, each of which a simulation can break: to see that it matters, and that the checkers
//! notice.
//!
//! Without the feature `faults` all of them hold, and nothing here is in the program.

use barid_core::commits::Commits;

/// One of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// PUBACK and PUBREC leave when the message is durable in every shard that it has touched.
    AcknowledgeWhenDurable,
    /// What is noted of a QoS 2 message in a shard, and that it was received, is in one batch. So a
    /// batch is not taken while such a message passes through its shard.
    OneBatchForEachShard,
    /// That a QoS 2 message was received is noted in every shard that stores it, with the message.
    NoteReceivedWithMessage,
    /// A QoS 2 message that comes again after a crash goes only to shards that do not have it.
    SkipShardsThatHaveIt,
    /// … and is not refused, whatever is full: some have got it.
    AdmitWhatWasReceived,
    /// A QoS 2 message that comes again is acknowledged when all that was noted of the first one is
    /// durable.
    AcknowledgeRepetitionWhenDurable,
    /// PUBCOMP leaves when every shard has forgotten durably that the message was received.
    CompleteWhenForgotten,
    /// A PUBLISH of QoS 2 leaves when it is durable that it has its packet identifier.
    SendQos2WhenDurable,
    /// PUBREL leaves when it is durable that PUBREC has come.
    ReleaseWhenDurable,
    /// After PUBREC the packet identifier is kept until PUBCOMP.
    KeepReleased,
    /// SUBACK and UNSUBACK leave when the subscription is durable, or durably gone.
    AnswerSubscribeWhenDurable,
    /// A CONNACK with Session Present 0 leaves when the session before is durably gone.
    ConnectWhenGone,
    /// A CONNACK leaves when it is durable that the client of a session that expires is back.
    ConnectWhenNotedAsPresent,
    /// The acknowledgement of a retained message waits for the message, too.
    AcknowledgeWhenRetained,
    /// What a shared subscription sent to a session that ends goes to other members.
    GiveToOthers,
    /// … and leaves the store when they have it durably.
    ForgetGivenWhenDurable,
    /// Who changes a key of the state store hears of it when the change is durable.
    TellChangesWhenDurable,
    /// The answer to GET leaves when the value that it tells is durable.
    TellValuesWhenDurable,
    /// Who hears that there is no such key hears it when the last deletion is durable.
    TellAbsenceWhenDurable,
    /// Who is refused hears it when what he was refused for is durable.
    TellRefusalsWhenDurable,
    /// A version ahead of the clock on the wall leaves when it is durable that it was given, also if the
    /// key that has it is not stored.
    TellVersionsWhenNoted,
    /// Who watches a key hears of a change when it is durable.
    NotifyWhenDurable,
    /// A request that comes again is answered as it was, and not done again.
    AnswerAgain,
    /// What a request was answered is in the batch of what it has changed.
    NoteAnswerWithChange,
    /// A version is noted in the batch of the change that has it.
    NoteVersionWithChange,
    /// What a session was answered goes with the session.
    ForgetAnswersWithSession,
}

/// Whether a rule may be broken.
pub const CAN_BREAK: bool = cfg!(feature = "faults");

/// What is done only if a rule holds.
pub trait IfHolds: Default {
    /// This, if the rule holds; otherwise nothing.
    #[must_use]
    fn if_holds(self, rule: Rule) -> Self {
        if holds(rule) { self } else { Self::default() }
    }
}

impl IfHolds for Commits {}
impl<T> IfHolds for Option<T> {}

#[cfg(not(feature = "faults"))]
mod switches {
    use super::Rule;

    /// Whether a rule holds.
    #[inline(always)]
    pub const fn holds(_: Rule) -> bool {
        true
    }

    /// Between two steps of one thread, where it holds no lock of a session or an entity: others may do something.
    #[inline(always)]
    pub const fn interleave() {}
}

#[cfg(feature = "faults")]
mod switches {
    use std::cell::{Cell, RefCell};

    use super::Rule;

    thread_local! {
        static BROKEN: Cell<Option<Rule>> = const { Cell::new(None) };
        static OTHERS: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
    }

    /// From now on this rule is broken on this thread, or none.
    pub fn break_rule(rule: Option<Rule>) {
        BROKEN.set(rule);
    }

    /// What others may do between two steps of this thread.
    pub fn set_others(act: Option<Box<dyn FnMut()>>) {
        OTHERS.set(act);
    }

    /// Whether a rule holds.
    pub fn holds(rule: Rule) -> bool {
        BROKEN.get() != Some(rule)
    }

    /// Between two steps of one thread, where it holds no lock of a session or an entity: others may do something.
    pub fn interleave() {
        // Not while they do.
        let act = OTHERS.take();
        if let Some(mut act) = act {
            act();
            OTHERS.set(Some(act));
        }
    }
}

pub use switches::*;
