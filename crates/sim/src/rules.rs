//! The rules that a broker must follow to keep its promises: when a packet may leave, which changes share a
//! batch, what is noted, and what a start restores. A simulation may break one of these rules, to show that it
//! matters and that the checkers notice.
//!
//! Most rules are kept by a line of the engine, which [breaks them](barid_engine::faults) on request. The
//! others are rules of the log below the engine and of the start, which the simulated world breaks.

pub use barid_engine::faults::Rule as Kept;

/// A rule that a simulation can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A rule that the engine keeps.
    Of(Kept),
    /// A message leaves the store when it is acknowledged, not when it is sent.
    KeepUntilAcknowledged,
    /// A batch whose commit failed is appended again before any other.
    AppendAgainWhatFailed,
    /// A batch whose commit failed is not reported as durable.
    FailedIsNotDurable,
    /// A start restores the responses to requests.
    RestoreAnswers,
    /// A start restores the hybrid logical clock.
    RestoreClock,
    /// A start restores the clock to the latest version of all shards, not of the first one only.
    RestoreClockFromAllShards,
    /// A start restores fencing tokens.
    RestoreFencingTokens,
    /// A start restores the expiry times of keys.
    RestoreExpiries,
    /// A start restores which sequence numbers were reserved.
    RestoreNumbers,
    /// A start restores the message ids that duplicate detection remembers.
    RestoreSeen,
    /// A start restores the states of message sessions.
    RestoreStates,
    /// A stored session is opened at one broker only, wherever its client has connected.
    OpenAtHome,
}

impl Rule {
    /// Returns the name of the rule.
    pub fn name(self) -> String {
        match self {
            Self::Of(kept) => format!("{kept:?}"),
            own => format!("{own:?}"),
        }
    }

    /// The rules that histories of messages check.
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
        Self::Of(Kept::TellOwnerOfWait),
        Self::AppendAgainWhatFailed,
        Self::FailedIsNotDurable,
    ];

    /// The rules that histories of the state store check.
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

    /// The rules that histories of entities check.
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

    /// The rules that histories of several brokers check.
    pub const OF_CLUSTERS: &'static [Self] = &[
        Self::Of(Kept::AcknowledgeWhenDone),
        Self::Of(Kept::AwaitEarlierMessages),
        Self::Of(Kept::AnswerSubscribeWhenHeard),
        Self::Of(Kept::AcknowledgeWithQuorum),
        Self::Of(Kept::ConnectWhenGoneElsewhere),
        Self::Of(Kept::DoneWhenDurable),
        Self::Of(Kept::HandOnOnce),
        Self::Of(Kept::EndWhatIsGivenUp),
        Self::Of(Kept::DoubtWhatIsGivenUp),
        Self::Of(Kept::SendOnce),
        Self::Of(Kept::AnswerAgain),
        Self::Of(Kept::NoteAnswerWithChange),
        Self::Of(Kept::NotifyWhenDurable),
        Self::RestoreAnswers,
        Self::OpenAtHome,
    ];
}

/// The rules that a history follows: all, or all but one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    broken: Option<Rule>,
}

impl Rules {
    /// Returns all rules except `broken`.
    pub fn all_but(broken: Rule) -> Self {
        Self { broken: Some(broken) }
    }

    /// Returns the broken rule, if it is one that the engine keeps.
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
