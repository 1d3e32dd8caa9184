//! Rules of the engine that a simulation can break, one at a time, to show that each of them matters and that
//! the checkers notice a violation.
//!
//! Without the feature `faults` every rule holds: [`holds`] is a constant, and the program contains no
//! switch.

use barid_core::commits::Commits;

/// A rule that the engine keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// PUBACK and PUBREC leave when the message is durable in every shard that stores it.
    AcknowledgeWhenDurable,
    /// That a session or a queue has a QoS 2 message is noted in the same batch as the message.
    NoteReceivedWithMessage,
    /// A repeated QoS 2 message is not delivered to sessions and queues that are noted to have it.
    AskWhoHasIt,
    /// The sessions of a shard get a QoS 2 message in ascending order of session numbers.
    VisitInOrder,
    /// PUBREL removes the notes of its message from all shards that have one.
    ForgetEverywhere,
    /// A repeated QoS 2 message is not refused because of full queues: some subscribers already have it.
    AdmitWhatWasReceived,
    /// The publisher's shard does not note that all its sessions have a QoS 2 message if one of them has
    /// missed it.
    NoteReceivedByAll,
    /// The PUBREC of a repeated QoS 2 message leaves when all notes of the first PUBLISH are durable.
    AcknowledgeRepetitionWhenDurable,
    /// A client is read from, and a repeated QoS 2 message is acknowledged, when other brokers have acknowledged what the
    /// client has published on earlier connections.
    AwaitEarlierMessages,
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
    /// CONNACK leaves when it is durable that the client of a session with an expiry is connected again.
    ConnectWhenNotedAsPresent,
    /// The acknowledgement of a retained message also waits for the retained message itself.
    AcknowledgeWhenRetained,
    /// The subscribers of a retained message are looked up after it was retained: a client that subscribes
    /// meanwhile gets it in one way or the other.
    RouteWhenRetained,
    /// Messages of a shared subscription go from a session to other members when its client disconnects or
    /// the session ends.
    GiveToOthers,
    /// The record of messages that were given to other members is removed when these have them durably.
    ForgetGivenWhenDurable,
    /// The response to SET and DEL leaves when the change is durable.
    TellChangesWhenDurable,
    /// The response to GET leaves when the value in it is durable.
    TellValuesWhenDurable,
    /// The response that a key does not exist leaves when its last deletion is durable.
    TellAbsenceWhenDurable,
    /// The refusal of a request leaves when the state that caused it is durable.
    TellRefusalsWhenDurable,
    /// A version ahead of the wall clock leaves when the shard has noted it durably, also if the key is not
    /// stored.
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
    /// The bytes of a message can be read while their batch is being written to the log.
    FindWhatIsOnItsWay,
    /// The numbers of locks differ from those of all earlier processes.
    NumberLocksAnew,
    /// A receiver with credit is told when its entity has a message for it.
    TellWhatIsReady,
    /// A forwarded message leaves its entity when it is durable in the next one.
    ForwardWhenDurable,
    /// The acknowledgement of a message leaves when the other brokers to which it goes have acknowledged it.
    AcknowledgeWhenDone,
    /// SUBACK leaves when all brokers that may acknowledge messages have heard of the subscription.
    AnswerSubscribeWhenHeard,
    /// Messages are acknowledged if the broker has the quorum of its cluster after they were routed.
    AcknowledgeWithQuorum,
    /// CONNACK with Session Present 0 leaves when the previous session is durably removed at the broker that has it.
    ConnectWhenGoneElsewhere,
    /// Messages of another broker are acknowledged when they are durable here.
    DoneWhenDurable,
    /// Messages that another broker sends again are handed on once.
    HandOnOnce,
    /// A broker that others hold to be down disconnects its clients and ends the sessions that end with their connections.
    EndWhatIsGivenUp,
    /// A broker that gives up its messages for others hands those of QoS 2 on once more when they are repeated.
    DoubtWhatIsGivenUp,
    /// A repeated QoS 2 message is not sent once more to another broker, unless what was sent was given up.
    SendOnce,
    /// A number counts as done before those that wait for it are woken.
    WakeWhenDone,
    /// Only one thread at a time writes to a socket.
    OneWriter,
    /// A writer that found the socket full tries again if the socket got room before the writer could report
    /// it.
    RetryWhenThereWasRoom,
    /// The owner of a session that begins to wait for a quota is told, so that it goes on when the wait is over.
    TellOwnerOfWait,
}

/// Whether this build can break rules.
pub(crate) const CAN_BREAK: bool = cfg!(feature = "faults");

/// Values that are empty when a rule is broken.
pub(crate) trait IfHolds: Default {
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

    /// Lets other threads of a simulation take a step. The caller holds no lock that such a step takes.
    #[inline(always)]
    pub(crate) const fn interleave() {}
}

#[cfg(feature = "faults")]
mod switches {
    use std::cell::{Cell, RefCell};

    use super::Rule;

    thread_local! {
        static BROKEN: Cell<Option<Rule>> = const { Cell::new(None) };
        static OTHERS: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
    }

    /// Breaks one rule on this thread from now on; `None`: no rule is broken.
    pub fn break_rule(rule: Option<Rule>) {
        BROKEN.set(rule);
    }

    /// Sets the step that `interleave` runs.
    pub fn set_others(act: Option<Box<dyn FnMut()>>) {
        OTHERS.set(act);
    }

    /// Whether a rule holds.
    pub fn holds(rule: Rule) -> bool {
        BROKEN.get() != Some(rule)
    }

    /// Lets other threads of a simulation take a step. The caller holds no lock that such a step takes.
    pub(crate) fn interleave() {
        // A step of another thread is not interrupted itself.
        let act = OTHERS.take();
        if let Some(mut act) = act {
            act();
            OTHERS.set(Some(act));
        }
    }
}

pub use switches::*;
