//! Refusals of the state store, with hints.

use std::fmt;

use data_encoding::BASE64;
use statestore_proto::{Command, Refusal, Verb};

use super::key::shown;

/// A request that the state store refused.
#[derive(Debug)]
pub struct Refused {
    refusal: Refusal,
    verb: Verb,
    /// Key, or pattern of a SCAN.
    key: Vec<u8>,
}

impl Refused {
    pub fn new(refusal: Refusal, command: &Command<'_>) -> Self {
        let key = match command {
            Command::Scan { pattern, .. } => Some(*pattern),
            command => command.key(),
        };
        Self { refusal, verb: command.verb(), key: key.unwrap_or_default().to_vec() }
    }

    /// Whether the same request may succeed later. A state store whose broker is down refuses with this, too.
    pub fn may_pass(&self) -> bool {
        self.refusal == Refusal::QuotaExceeded
    }

    fn hint(&self) -> Option<String> {
        use Refusal as R;
        Some(match self.refusal {
            R::NotAuthorized => format!(
                "check -u and -P; this rule in the [[users]] of the broker's configuration \
                 allows it: {}",
                self.rule()
            ),
            R::TimestampInFuture => {
                "this machine's clock is more than a minute ahead of the broker's; set it".into()
            }
            R::FencingTokenInFuture => {
                "a fencing token is the version that setting the lock returned; if this broker \
                 issued it, this machine's clock is ahead"
                    .into()
            }
            R::FencingTokenRequired => {
                "the key is protected: give the version of the lock that you hold with --fencing"
                    .into()
            }
            R::FencingTokenTooOld => {
                "another client has taken the lock since; acquire it again and use its new version"
                    .into()
            }
            R::QuotaExceeded => {
                "a limit of the tenant is reached: delete keys, set them with --ttl, or raise \
                 max_state_keys and max_state_bytes. Or, in a cluster, the broker with the state store of the tenant is \
                 down: `barid cluster slots --tenant TENANT` names it"
                    .into()
            }
            R::MissingTimestamp | R::MalformedTimestamp => {
                "choose another client identifier with -i, without colons".into()
            }
            R::Syntax | R::UnknownCommand | R::WrongNumberOfArguments | R::EmptyKey => {
                return None;
            }
        })
    }

    /// Returns the narrowest rule that would allow the request.
    fn rule(&self) -> String {
        let access = match self.verb {
            Verb::Get | Verb::KeyNotify | Verb::Scan => "read",
            Verb::Set | Verb::Del | Verb::VDel => "write",
        };
        let (kind, key) = match std::str::from_utf8(&self.key) {
            Ok(pattern) if self.verb == Verb::Scan => ("pattern", pattern.into()),
            Ok(key) => ("string", key.into()),
            Err(_) => ("binary", BASE64.encode(&self.key)),
        };
        let key = toml::Value::String(key);
        format!(r#"state = [{{ access = "{access}", type = "{kind}", keys = [{key}] }}]"#)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} was refused: {}", self.verb, shown(&self.key), self.refusal)?;
        match self.hint() {
            Some(hint) => write!(f, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Refused {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_that_is_missing() {
        for (command, expected) in [
            (
                Command::Get { key: b"a/b" },
                r#"state = [{ access = "read", type = "string", keys = ["a/b"] }]"#,
            ),
            (
                Command::VDel { key: b"a", value: b"" },
                r#"state = [{ access = "write", type = "string", keys = ["a"] }]"#,
            ),
            (
                Command::Del { key: b"\xFF" },
                r#"state = [{ access = "write", type = "binary", keys = ["/w=="] }]"#,
            ),
            (
                Command::Scan { pattern: b"a*", token: None },
                r#"state = [{ access = "read", type = "pattern", keys = ["a*"] }]"#,
            ),
        ] {
            let message = Refused::new(Refusal::NotAuthorized, &command).to_string();
            assert!(message.ends_with(expected), "{message}");
            assert!(message.contains("was refused: not authorized\n  hint: "), "{message}");
            // The proposed rule is TOML, whatever the key.
            toml::from_str::<toml::Table>(expected).unwrap();
        }
        let odd = Command::Get { key: "\"\n'".as_bytes() };
        let message = Refused::new(Refusal::NotAuthorized, &odd).to_string();
        let rule = &message[message.find("state = ").unwrap()..];
        let rule: toml::Table = toml::from_str(rule).unwrap();
        assert_eq!(rule["state"][0]["keys"][0].as_str(), Some("\"\n'"));
    }
}
