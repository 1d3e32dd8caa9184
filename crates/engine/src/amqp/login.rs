//! SASL: clients that log in with a key, or as a user.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use barid_amqp::{Error, SaslOutcome};

use super::access::{Applicant, Denied};
use super::container::Container;
use super::link::Link;
use crate::access::Policy;
use crate::turn::Turn;

/// Maximum length of a container id that rules and bans are about, in bytes: as long as the client identifier of an
/// MQTT client may be by default. For them, a client with a longer one has none.
const CLIENT_ID_MAX: usize = 1_024;

/// A login as a user, which the caller of the [`Container`] decides on.
pub struct Login {
    /// The user name, as the client has written it. `None`: the client's certificate has it.
    pub user: Option<Box<str>>,
    /// The password of SASL PLAIN. `None`: with SASL EXTERNAL, the client's certificate proves who it is.
    pub password: Option<Box<[u8]>>,
}

/// The decision about a [`Login`].
#[derive(Debug)]
pub enum Decision {
    /// The client is this user.
    Granted {
        /// The name of the user, `{tenant}/{client}`.
        user: Box<str>,
        /// The rights of the user.
        policy: Arc<Policy>,
    },
    /// The client is no user, and has to send a token to `$cbs`.
    Anonymous,
    /// The client is not let in. The text is for operators.
    Denied(Cow<'static, str>),
    /// Nobody can tell at present whether the client is the user: it may try again. The text is for operators.
    Undecided(Cow<'static, str>),
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Container {
    /// Checks the credentials of a client. A client that presents none is accepted here, and has to send a token
    /// to `$cbs`. Returns `None` if the client logs in as a user, about which the caller has to decide.
    pub(super) fn authenticate(
        &mut self,
        turn: &Turn<'_>,
        mechanism: &str,
        response: Option<&[u8]>,
    ) -> Option<SaslOutcome> {
        let response = response.unwrap_or_default();
        match mechanism {
            "PLAIN" => {}
            "ANONYMOUS" | "MSSBCBS" => return Some(SaslOutcome::Ok),
            "EXTERNAL" => {
                // The response is an authorization identity (RFC 4422, appendix A), or empty.
                let user = std::str::from_utf8(response).ok().filter(|name| !name.is_empty());
                self.login = Some(Login { user: user.map(Into::into), password: None });
                return None;
            }
            _ => return Some(SaslOutcome::Auth),
        }
        let Some((name, password)) = plain(response) else {
            let reason = "the response of SASL PLAIN is not [authzid] NUL authcid NUL passwd";
            self.deny_login(turn, None, None, reason);
            return Some(SaslOutcome::Auth);
        };
        let Some(key) = self.keys.find(self.listener, name) else {
            let password = Some(password.as_bytes().into());
            self.login = Some(Login { user: Some(name.into()), password });
            return None;
        };
        let applicant = Applicant::new(
            turn.context,
            (&*self.keys, self.listener),
            (self.peer.ip(), &self.client_id),
        );
        let put = self.access.put_key(applicant, key, password);
        self.outcome(turn, name, put)
    }

    /// Returns the login that the caller has to decide on with [`Self::decide`]. Nothing more is received from the
    /// client before.
    pub fn take_login(&mut self) -> Option<Login> {
        self.login.take()
    }

    /// Answers a login of `user`, the name that the client has written.
    pub fn decide(&mut self, turn: &Turn<'_>, user: Option<&str>, decision: Decision) {
        let outcome = match decision {
            Decision::Granted { user: name, policy } => {
                let applicant = Applicant::new(
                    turn.context,
                    (&*self.keys, self.listener),
                    (self.peer.ip(), &self.client_id),
                );
                let put = self.access.put_user(applicant, name.clone(), policy);
                let Some(outcome) = self.outcome(turn, user.unwrap_or(&name), put) else { return };
                outcome
            }
            Decision::Anonymous => SaslOutcome::Ok,
            Decision::Denied(reason) => {
                self.deny_login(turn, user, None, &reason);
                SaslOutcome::Auth
            }
            Decision::Undecided(reason) => {
                self.deny_login(turn, user, None, &reason);
                SaslOutcome::SysTemp
            }
        };
        self.engine.sasl_outcome(outcome);
    }

    /// Returns what a client is told whose credentials are valid, after the attempt to give it access. `None`: nothing, as
    /// another broker tells it.
    fn outcome(
        &mut self,
        turn: &Turn<'_>,
        name: &str,
        put: Result<(), Denied>,
    ) -> Option<SaslOutcome> {
        Some(match put {
            Ok(()) => {
                self.welcome();
                SaslOutcome::Ok
            }
            Err(Denied::Elsewhere(home)) => {
                self.leaves = Some(home);
                return None;
            }
            Err(denied) => {
                self.deny_login(turn, Some(name), None, &denied.to_string());
                if denied.is_temporary() { SaslOutcome::SysTemp } else { SaslOutcome::Auth }
            }
        })
    }

    /// Notes the container id of the client, for rules and bans. A client that is banned is disconnected.
    pub(super) fn identify(&mut self, turn: &mut Turn<'_>, container_id: &str) {
        if container_id.len() > CLIENT_ID_MAX {
            return;
        }
        self.client_id = container_id.into();
        self.access.identify(container_id);
        let Some(tenant) = self.tenant_name() else { return };
        let (user, address) = (self.access.user(), self.peer.ip());
        if let Some(reason) = self.keys.ban(user, tenant, container_id, address) {
            self.deny_login(turn, user.or(self.access.key()), None, &reason);
            let error = Error::new("amqp:connection:forced", "The client is banned.");
            self.engine.close_at_once(error);
            self.forget_all(turn);
        }
    }

    /// Returns the name of the user that the client is, `{tenant}/{client}`.
    pub fn user(&self) -> Option<&str> {
        self.access.user()
    }

    /// Returns the container id of the client; empty before the client has opened the connection, and if the
    /// container id is longer than any client identifier.
    pub fn client_id(&self) -> &str {
        &self.client_id
    }

    /// Replaces the rights and limits of the user, and ends the links that it is not allowed any more.
    pub fn change_policy(&mut self, turn: &mut Turn<'_>, policy: Arc<Policy>) {
        let worker = &turn.context.worker;
        self.access.change_policy(worker, policy, &self.client_id);
        let now = worker.now;
        let is_allowed = |link: &Link| {
            let needs = link.needs();
            needs
                .is_none_or(|(rights, path, _)| self.access.allows_any(rights, path, now).is_some())
        };
        let revoked = self.links.iter().filter(|(_, link)| !is_allowed(link));
        let mut revoked: Vec<_> = revoked.map(|(link, _)| *link).collect();
        // Sorted, so that the effects do not depend on the order of the hash table.
        revoked.sort_unstable();
        for link in revoked {
            let reason = "the rules of the user have changed, and the link is ended";
            self.end_denied(turn, link, reason, "The rules of the user have changed.");
        }
    }
}

/// Parses a message of SASL PLAIN (RFC 4616): `[authzid] NUL authcid NUL passwd`. Returns the name and the
/// password. No client acts for another one here, so an authorization identity must be equal to the name.
fn plain(message: &[u8]) -> Option<(&str, &str)> {
    let mut fields = message.split(|byte| *byte == 0);
    let mut text = || std::str::from_utf8(fields.next()?).ok();
    let (acts_for, name, password) = (text()?, text()?, text()?);
    let is_whole = fields.next().is_none();
    (is_whole && (acts_for.is_empty() || acts_for == name)).then_some((name, password))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_has_three_fields_and_one_identity() {
        assert_eq!(plain(b"\0acme/workers\0key"), Some(("acme/workers", "key")));
        assert_eq!(plain(b"workers\0workers\0key"), Some(("workers", "key")));
        assert_eq!(plain(b"\0workers\0"), Some(("workers", "")));
        for wrong in [
            &b""[..],
            b"workers",
            b"workers\0key",
            b"\0workers\0key\0",
            b"\0workers\0key\0more",
            b"other\0workers\0key",
            b"\0workers\0\xff",
            b"\xff\0workers\0key",
        ] {
            assert_eq!(plain(wrong), None, "{wrong:?}");
        }
    }
}
