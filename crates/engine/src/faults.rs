//! Rules of the engine that a simulation can break one at a time, to show that each of them matters and that the checkers
//! notice when it does not hold.
//!
//! Without the feature `faults` every rule holds: [`holds`] is a constant, and no switch is in the program.

use barid_core::commits::Commits;

/// One of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// PUBACK and PUBREC leave when the message is durable in every shard that stores it.
    AcknowledgeWhenDurable,
    /// A session or a queue that stores a QoS 2 message is noted in the same batch.
    NoteReceivedWithMessage,
    /// A QoS 2 message does not go to those that are noted to have it.
    AskWhoHasIt,
    /// The sessions of a shard get a QoS 2 message in ascending order of their numbers.
    VisitInOrder,
    /// PUBREL has the notes of its message removed from all shards that have one.
    ForgetEverywhere,
    /// A QoS 2 message that is repeated is not refused for full queues: some subscribers already have it.
    AdmitWhatWasReceived,
    /// That a QoS 2 message was received is not noted for all sessions of the publisher's shard if one of them has missed it.
    NoteReceivedByAll,
    /// The PUBREC of a repeated QoS 2 message leaves when all notes of the first one are durable.
    AcknowledgeRepetitionWhenDurable,
    /// PUBCOMP leaves when the note of the message is durably removed from every shard.
    CompleteWhenForgotten,
    /// A PUBLISH of QoS 2 leaves when its packet identifier is durable.
    SendQos2WhenDurable,
    /// PUBREL leaves when the receipt of PUBREC is durable.
    ReleaseWhenDurable,
    /// A packet identifier stays in use from PUBREC to PUBCOMP.
    KeepReleased,
    /// SUBACK and UNSUBACK leave when the change of the subscription is durable.
    AnswerSubscribeWhenDurable,
    /// CONNACK with Session Present 0 leaves when the previous session is durably removed.
    ConnectWhenGone,
    /// CONNACK leaves when it is durable that the client of a session with an expiry is back.
    ConnectWhenNotedAsPresent,
    /// The acknowledgement of a retained message also waits for the retained message itself.
    AcknowledgeWhenRetained,
    /// Messages of a shared subscription in a session that ends go to other members.
    GiveToOthers,
    /// The record of these messages is removed when the other members have them durably.
    ForgetGivenWhenDurable,
    /// The response to SET and DEL leaves when the change is durable.
    TellChangesWhenDurable,
    /// The response to GET leaves when the value in it is durable.
    TellValuesWhenDurable,
    /// The response that a key does not exist leaves when its last deletion is durable.
    TellAbsenceWhenDurable,
    /// The refusal of a request leaves when the state that caused it is durable.
    TellRefusalsWhenDurable,
    /// A version ahead of the wall clock leaves when the clock of the shard is durable, also if the key is not stored.
    TellVersionsWhenNoted,
    /// Notifications of a change leave when the change is durable.
    NotifyWhenDurable,
    /// A repeated request gets the first response, and is not carried out again.
    AnswerAgain,
    /// The response to a request is noted in the batch of the change.
    NoteAnswerWithChange,
    /// A version is noted in the batch of the change.
    NoteVersionWithChange,
    /// The responses noted for a session are removed with the session.
    ForgetAnswersWithSession,
    /// The acceptance of a message that was sent to an entity leaves when the message is durable.
    AcceptWhenDurable,
    /// The acceptance of a duplicate leaves when the first message is durable.
    AcceptDuplicatesWhenDurable,
    /// The response to a cancellation leaves when the scheduled message is durably removed.
    CancelWhenDurable,
    /// The answer to a settlement leaves when the settlement is durable.
    SettleWhenDurable,
    /// In the mode receive-and-delete, a message leaves when it is durably removed.
    DeliverWhenDeleted,
    /// The response to setting the state of a session leaves when the state is durable.
    SetStatesWhenDurable,
    /// The state of a session leaves when it is durable.
    TellStatesWhenDurable,
    /// All changes that a command makes to an entity are in one batch.
    OneBatchForEachCommand,
    /// The first message of an entity leaves when the reservation of its sequence numbers is durable.
    DeliverWhenReserved,
    /// The bytes of a message are found while their batch is on its way to the log.
    FindWhatIsOnItsWay,
    /// A process gives its locks other numbers than the processes before it.
    NumberLocksAnew,
    /// A receiver with credit is told when its entity has a message for it.
    TellWhatIsReady,
    /// A forwarded message leaves its entity when it is durable in the next one.
    ForwardWhenDurable,
    /// A number counts as done before those that wait for it are woken.
    WakeWhenDone,
    /// One thread at a time writes to a socket.
    OneWriter,
    /// A writer that met a full socket tries again if there was room before it could say so.
    RetryWhenThereWasRoom,
}

/// Whether a rule may be broken.
pub const CAN_BREAK: bool = cfg!(feature = "faults");

/// Values that are empty when a rule is broken.
pub trait IfHolds: Default {
    /// Returns `self` if the rule holds, and an empty value otherwise.
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

    /// Lets other threads of a simulation do a step. The caller holds no lock that such a step takes.
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

    /// Breaks one rule on this thread from now on, or none.
    pub fn break_rule(rule: Option<Rule>) {
        BROKEN.set(rule);
    }

    /// Sets the step that [`interleave`] lets others do.
    pub fn set_others(act: Option<Box<dyn FnMut()>>) {
        OTHERS.set(act);
    }

    /// Whether a rule holds.
    pub fn holds(rule: Rule) -> bool {
        BROKEN.get() != Some(rule)
    }

    /// Lets other threads of a simulation do a step. The caller holds no lock that such a step takes.
    pub fn interleave() {
        // A step of another thread is not interrupted itself.
        let act = OTHERS.take();
        if let Some(mut act) = act {
            act();
            OTHERS.set(Some(act));
        }
    }
}

pub use switches::*;
