//! What joins the rules of the core to a broker that keeps its promises.
//!
//! The core says what has to be written, and the store makes it durable. When a packet may leave,
//! what has to be in one batch, and what a start has to bring back is for whoever joins them: here, in a
//! list. A simulation may break one of
//! them, to see that it matters and that the checkers notice.

use barid_core::commits::Commits;

/// One of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// PUBACK and PUBREC leave when the message is durable in every shard that it has touched.
    AcknowledgeWhenDurable,
    /// A client's next packet is handled when its last message has been handed on.
    HandOnInOrder,
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
    /// … and not before the first one has been handed on to all.
    AcknowledgeRepetitionWhenHandedOn,
    /// PUBCOMP leaves when every shard has forgotten durably that the message was received.
    CompleteWhenForgotten,
    /// A PUBLISH of QoS 2 leaves when it is durable that it has its packet identifier.
    SendQos2WhenDurable,
    /// PUBREL leaves when it is durable that PUBREC has come.
    ReleaseWhenDurable,
    /// After PUBREC the packet identifier is kept until PUBCOMP.
    KeepReleased,
    /// A message leaves the store when it is acknowledged, not when it is sent.
    KeepUntilAcknowledged,
    /// SUBACK and UNSUBACK leave when the subscription is durable, or durably gone.
    AnswerSubscribeWhenDurable,
    /// A CONNACK with Session Present 0 leaves when the session before is durably gone.
    ConnectWhenGone,
    /// A CONNACK leaves when it is durable that the client of a session that expires is back.
    ConnectWhenNotedAsPresent,
    /// The acknowledgement of a retained message waits for the message, too.
    AcknowledgeWhenRetained,
    /// A batch whose commit failed is appended again before any other.
    AppendAgainWhatFailed,
    /// A batch whose commit failed is not durable.
    FailedIsNotDurable,
    /// Who changes a key of the state store hears of it when the change is durable.
    TellChangesWhenDurable,
    /// The answer to GET leaves when the value that it tells is durable.
    TellValuesWhenDurable,
    /// Who hears that there is no such key hears it when the last deletion is durable.
    TellAbsenceWhenDurable,
    /// Who is refused hears it when what he was refused for is durable.
    TellRefusalsWhenDurable,
    /// Who watches a key hears of a change when it is durable.
    NotifyWhenDurable,
    /// A version ahead of the clock on the wall leaves when it is durable that it was given, also if the
    /// key that has it is not stored.
    TellVersionsWhenNoted,
    /// A request that comes again is answered as it was, and not done again.
    AnswerAgain,
    /// What a request was answered is in the batch of what it has changed.
    NoteAnswerWithChange,
    /// A version is noted in the batch of the change that has it.
    NoteVersionWithChange,
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
    /// What a session was answered goes with the session.
    ForgetAnswersWithSession,
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
    /// Those of messages.
    pub const OF_MESSAGES: &'static [Self] = &[
        Self::AcknowledgeWhenDurable,
        Self::HandOnInOrder,
        Self::OneBatchForEachShard,
        Self::NoteReceivedWithMessage,
        Self::SkipShardsThatHaveIt,
        Self::AdmitWhatWasReceived,
        Self::AcknowledgeRepetitionWhenDurable,
        Self::AcknowledgeRepetitionWhenHandedOn,
        Self::CompleteWhenForgotten,
        Self::SendQos2WhenDurable,
        Self::ReleaseWhenDurable,
        Self::KeepReleased,
        Self::KeepUntilAcknowledged,
        Self::AnswerSubscribeWhenDurable,
        Self::ConnectWhenGone,
        Self::ConnectWhenNotedAsPresent,
        Self::AcknowledgeWhenRetained,
        Self::AppendAgainWhatFailed,
        Self::FailedIsNotDurable,
    ];

    /// Those of the state store.
    pub const OF_STATE: &'static [Self] = &[
        Self::AppendAgainWhatFailed,
        Self::FailedIsNotDurable,
        Self::TellChangesWhenDurable,
        Self::TellValuesWhenDurable,
        Self::TellAbsenceWhenDurable,
        Self::TellRefusalsWhenDurable,
        Self::NotifyWhenDurable,
        Self::TellVersionsWhenNoted,
        Self::AnswerAgain,
        Self::NoteAnswerWithChange,
        Self::NoteVersionWithChange,
        Self::RestoreAnswers,
        Self::RestoreClock,
        Self::RestoreClockFromAllShards,
        Self::RestoreFencingTokens,
        Self::RestoreExpiries,
        Self::ForgetAnswersWithSession,
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
