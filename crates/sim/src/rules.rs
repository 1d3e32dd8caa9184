//! What a broker has to keep to, so that it keeps its promises: when a packet may leave, what has to be in one batch, what
//! is noted and what a start brings back. A simulation may break one of these rules, to see that it matters and that the
//! checkers notice.
//!
//! Most are kept by a line of the engine, which [breaks them](barid_engine::faults) when it is told to. The others are
//! those of the log below it and of the start, which the simulated world breaks.

use barid_core::commits::Commits;
pub use barid_engine::faults::Rule as Kept;

/// One of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// One that the engine keeps.
    Of(Kept),
    /// A message leaves the store when it is acknowledged, not when it is sent.
    KeepUntilAcknowledged,
    /// A batch whose commit failed is appended again before any other.
    AppendAgainWhatFailed,
    /// A batch whose commit failed is not durable.
    FailedIsNotDurable,
    /// A start brings back what requests were answered.
    RestoreAnswers,
    /// A start brings the clock back …
    RestoreClock,
    /// … to the latest version of all shards.
    RestoreClockFromAllShards,
    /// A start brings fencing tokens back.
    RestoreFencingTokens,
    /// A start brings back when keys expire.
    RestoreExpiries,
    /// A sender hears that its message is taken when it is durable.
    AcceptWhenDurable,
    /// … also if it was sent before: the first one may not be durable yet.
    AcceptDuplicatesWhenDurable,
    /// A sender hears that its scheduled message is cancelled when it is durably gone.
    CancelWhenDurable,
    /// A receiver hears that its message is settled when that is durable.
    SettleWhenDurable,
    /// A receiver hears that the state of its session is set when it is durable.
    SetStatesWhenDurable,
    /// A receiver is told the state of its session when that is durable.
    TellStatesWhenDurable,
    /// All that follows from a command is in one batch.
    OneBatchForEachCommand,
    /// The first message leaves when it is durable that its number is reserved.
    DeliverWhenReserved,
    /// The bytes of a message are found, also while they are written.
    FindWhatIsBeingWritten,
    /// A start brings back which numbers were reserved.
    RestoreNumbers,
    /// A start brings back which messages were sent.
    RestoreSeen,
    /// A start brings back the states of sessions.
    RestoreStates,
    /// A start gives locks other numbers than those before it.
    NumberLocksAnew,
    /// What waits in a session is told to its receiver when there is more.
    TellWhatIsReady,
}

impl Rule {
    /// Its name.
    pub fn name(self) -> String {
        match self {
            Self::Of(kept) => format!("{kept:?}"),
            own => format!("{own:?}"),
        }
    }

    /// Those of messages.
    pub const OF_MESSAGES: &'static [Self] = &[
        Self::Of(Kept::AcknowledgeWhenDurable),
        Self::Of(Kept::OneBatchForEachShard),
        Self::Of(Kept::NoteReceivedWithMessage),
        Self::Of(Kept::SkipShardsThatHaveIt),
        Self::Of(Kept::AdmitWhatWasReceived),
        Self::Of(Kept::AcknowledgeRepetitionWhenDurable),
        Self::Of(Kept::CompleteWhenForgotten),
        Self::Of(Kept::SendQos2WhenDurable),
        Self::Of(Kept::ReleaseWhenDurable),
        Self::Of(Kept::KeepReleased),
        Self::KeepUntilAcknowledged,
        Self::Of(Kept::AnswerSubscribeWhenDurable),
        Self::Of(Kept::ConnectWhenGone),
        Self::Of(Kept::ConnectWhenNotedAsPresent),
        Self::Of(Kept::AcknowledgeWhenRetained),
        Self::Of(Kept::GiveToOthers),
        Self::Of(Kept::ForgetGivenWhenDurable),
        Self::AppendAgainWhatFailed,
        Self::FailedIsNotDurable,
    ];

    /// Those of the state store.
    pub const OF_STATE: &'static [Self] = &[
        Self::AppendAgainWhatFailed,
        Self::FailedIsNotDurable,
        Self::Of(Kept::TellChangesWhenDurable),
        Self::Of(Kept::TellValuesWhenDurable),
        Self::Of(Kept::TellAbsenceWhenDurable),
        Self::Of(Kept::TellRefusalsWhenDurable),
        Self::Of(Kept::NotifyWhenDurable),
        Self::Of(Kept::TellVersionsWhenNoted),
        Self::Of(Kept::AnswerAgain),
        Self::Of(Kept::NoteAnswerWithChange),
        Self::Of(Kept::NoteVersionWithChange),
        Self::RestoreAnswers,
        Self::RestoreClock,
        Self::RestoreClockFromAllShards,
        Self::RestoreFencingTokens,
        Self::RestoreExpiries,
        Self::Of(Kept::ForgetAnswersWithSession),
    ];

    /// Those of entities.
    pub const OF_ENTITIES: &'static [Self] = &[
        Self::AppendAgainWhatFailed,
        Self::FailedIsNotDurable,
        Self::AcceptWhenDurable,
        Self::AcceptDuplicatesWhenDurable,
        Self::CancelWhenDurable,
        Self::SettleWhenDurable,
        Self::SetStatesWhenDurable,
        Self::TellStatesWhenDurable,
        Self::OneBatchForEachCommand,
        Self::DeliverWhenReserved,
        Self::FindWhatIsBeingWritten,
        Self::RestoreNumbers,
        Self::RestoreSeen,
        Self::RestoreStates,
        Self::NumberLocksAnew,
        Self::TellWhatIsReady,
    ];
}

/// The rules that a history goes by: all, or all but one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    broken: Option<Rule>,
}

impl Rules {
    /// All rules but this one.
    pub fn all_but(broken: Rule) -> Self {
        Self { broken: Some(broken) }
    }

    /// The one that the engine is to break.
    pub fn of_engine(self) -> Option<Kept> {
        match self.broken? {
            Rule::Of(kept) => Some(kept),
            _ => None,
        }
    }

    /// Whether a rule holds.
    pub fn hold(self, rule: Rule) -> bool {
        self.broken != Some(rule)
    }
}

/// What is done only if a rule holds.
pub trait IfHolds: Default {
    /// This, if the rule holds; otherwise nothing.
    fn if_holds(self, rules: Rules, rule: Rule) -> Self {
        if rules.hold(rule) { self } else { Self::default() }
    }
}

impl IfHolds for Commits {}
impl<T> IfHolds for Option<T> {}
