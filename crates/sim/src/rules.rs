//! What a broker has to keep to, so that it keeps its promises: when a packet may leave, what has to be in one batch, what
//! is noted and what a start brings back. A simulation may break one of these rules, to see that it matters and that the
//! checkers notice.
//!
//! Most are kept by a line of the engine, which [breaks them](barid_engine::faults) when it is told to. The others are
//! those of the log below it and of the start, which the simulated world breaks.

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
    /// A start brings back which numbers were reserved.
    RestoreNumbers,
    /// A start brings back which messages were sent.
    RestoreSeen,
    /// A start brings back the states of sessions.
    RestoreStates,
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
        Self::Of(Kept::NoteReceivedWithMessage),
        Self::Of(Kept::AskWhoHasIt),
        Self::Of(Kept::VisitInOrder),
        Self::Of(Kept::ForgetEverywhere),
        Self::Of(Kept::AdmitWhatWasReceived),
        Self::Of(Kept::NoteReceivedByAll),
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
        Self::Of(Kept::AcceptWhenDurable),
        Self::Of(Kept::AcceptDuplicatesWhenDurable),
        Self::Of(Kept::CancelWhenDurable),
        Self::Of(Kept::SettleWhenDurable),
        Self::Of(Kept::DeliverWhenDeleted),
        Self::Of(Kept::SetStatesWhenDurable),
        Self::Of(Kept::TellStatesWhenDurable),
        Self::Of(Kept::OneBatchForEachCommand),
        Self::Of(Kept::DeliverWhenReserved),
        Self::Of(Kept::FindWhatIsOnItsWay),
        Self::RestoreNumbers,
        Self::RestoreSeen,
        Self::RestoreStates,
        Self::Of(Kept::NumberLocksAnew),
        Self::Of(Kept::TellWhatIsReady),
        Self::Of(Kept::ForwardWhenDurable),
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
