//! Failures of a client, and the exit statuses that report them to a script.

use std::fmt;
use std::process::ExitCode;

use mqtt_proto::{Properties, ReasonCode};

/// A failure that a script may want to distinguish from other errors.
#[derive(Debug)]
pub enum Failure {
    /// The broker refused a request.
    Refused {
        /// The refused request, as the beginning of a sentence.
        what: String,
        /// Reason code.
        reason: ReasonCode,
        /// Reason string of the broker.
        text: Option<String>,
        /// Whether the connection was refused, possibly because of the credentials.
        is_login: bool,
    },
    /// A time limit was exceeded.
    Timeout(&'static str),
}

impl Failure {
    /// Creates a refusal, with the reason string of the packet that reports it.
    pub fn refused(
        what: impl Into<String>,
        reason: ReasonCode,
        properties: Properties<'_>,
    ) -> Self {
        let text = properties.reason_string().map(Into::into);
        Failure::Refused { what: what.into(), reason, text, is_login: false }
    }

    /// Creates the refusal of a CONNECT.
    pub fn refused_connection(reason: ReasonCode, properties: Properties<'_>) -> Self {
        let text = properties.reason_string().map(Into::into);
        let what = "the broker refused the connection".into();
        Failure::Refused { what, reason, text, is_login: true }
    }

    /// Whether the same request might succeed a little later.
    pub fn is_temporary(&self) -> bool {
        use ReasonCode as R;
        match self {
            Failure::Timeout(_) => true,
            Failure::Refused { reason, .. } => matches!(
                reason,
                R::UnspecifiedError
                    | R::ServerUnavailable
                    | R::ServerBusy
                    | R::ServerShuttingDown
                    | R::KeepAliveTimeout
                    | R::QuotaExceeded
                    | R::ConnectionRateExceeded
                    | R::MessageRateTooHigh
                    | R::AdministrativeAction
                    | R::MaximumConnectTime
            ),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Timeout(what) => f.write_str(what),
            Failure::Refused { what, reason, text, is_login } => {
                write!(f, "{what}: {reason}")?;
                // Some brokers only repeat the name of the code.
                if let Some(text) =
                    text.as_ref().filter(|text| !reason.to_string().starts_with(*text))
                {
                    write!(f, ", \"{text}\"")?;
                }
                match advice(*reason, *is_login) {
                    Some(advice) => write!(f, "\n  hint: {advice}"),
                    None => Ok(()),
                }
            }
        }
    }
}

impl std::error::Error for Failure {}

fn advice(reason: ReasonCode, is_login: bool) -> Option<&'static str> {
    use ReasonCode as R;
    Some(match reason {
        R::BadUserNameOrPassword => "check -u and -P",
        R::NotAuthorized if is_login => {
            "check -u and -P; the broker may also refuse a client identifier (-i) that belongs to another user"
        }
        R::NotAuthorized => {
            "the rules of the user do not allow this; in Barid `barid user show` lists them, or they are in [[users]], and \
             `barid why --client` lists what was not allowed"
        }
        R::BadAuthenticationMethod => "the broker does not know this authentication method",
        R::ClientIdentifierNotValid => "choose another client identifier with -i",
        R::UnsupportedProtocolVersion => "try another version: -V 5, -V 311 or -V 31",
        R::SessionTakenOver => {
            "another client has connected with the same client identifier; see -i"
        }
        R::QoSNotSupported => "try a lower -q",
        R::RetainNotSupported => "the broker keeps no retained messages; omit -r",
        R::PacketTooLarge => "the message is larger than the broker accepts",
        R::TopicNameInvalid => "a topic to publish to must not contain `+` or `#`",
        R::TopicFilterInvalid => {
            "`+` and `#` must each be a whole level, `#` the last one; quote them in the shell"
        }
        R::SharedSubscriptionsNotSupported => {
            "the broker has no shared subscriptions; use the topic filter after $share/…/"
        }
        R::WildcardSubscriptionsNotSupported => {
            "the broker accepts only topics without `+` and `#`"
        }
        R::ServerUnavailable | R::ServerBusy | R::ServerShuttingDown => "try again later",
        R::QuotaExceeded => {
            "a limit of the tenant, or of the user, is reached: `barid tenant show TENANT` shows both sides, \
             `barid tenant set` changes it. In a cluster a limit holds for all brokers together"
        }
        R::KeepAliveTimeout => "the connection was silent for too long; see -k",
        _ => return None,
    })
}

/// Returns the exit status for `error`: 3 if the broker refused, 27 for a time limit, 1 for
/// anything else.
pub fn exit_code(error: &anyhow::Error) -> ExitCode {
    match error.downcast_ref::<Failure>() {
        Some(Failure::Refused { .. }) => ExitCode::from(3),
        Some(Failure::Timeout(_)) => ExitCode::from(27),
        None => ExitCode::FAILURE,
    }
}
