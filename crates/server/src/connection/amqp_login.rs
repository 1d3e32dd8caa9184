//! Users over AMQP: the login with a name and a password, and what happens when the user changes.

use std::sync::Arc;

use barid_auth::{
    Credentials, Outcome, PASSWORD_MAX, Pending, Principal, Protocol, Standing, Version,
};
use barid_core::time::MonoTime;
use barid_engine::amqp::{Decision, Login};
use tracing::debug;

use super::amqp::{AmqpConnection, Stage};
use super::login::{changed_itself, lacks_tenant};
use super::standing::{Connected, Consequence};
use crate::logins::Changes;
use crate::shared::Shared;
use crate::turn::{IoTurn, Next};

const NAME_WITHOUT_TENANT: &str = "the user name must be {tenant}/{client}";

const REVOKED_BEFORE: &str = "the certificate of the client is revoked";

const BY_ADMINISTRATOR: &str = "An operator does not allow this client.";

const REVOKED: &str = "The certificate of the client is revoked.";

/// A login that is being verified.
#[derive(Debug)]
pub(super) struct LoggingIn {
    /// The user name, as the client has written it.
    user: Option<Box<str>>,
    /// Bytes of the login, which has copies of them.
    pub(super) bytes: usize,
    /// Keeps the login alive while the client waits for its outcome.
    _pending: Pending,
    pub(super) until: MonoTime,
}

impl AmqpConnection {
    /// Begins the login that the client has asked for, if it has.
    pub(super) fn log_in(&mut self, turn: &mut IoTurn<'_>) {
        let Some(Login { user, password }) = self.container.take_login() else { return };
        let shared = turn.shared;
        let shown = self.transport.certificate_names(self.container.peer);
        let of_passed_on = || self.passed_on.as_ref().and_then(|client| client.certificate.clone());
        let certificate = shown.or_else(of_passed_on);
        self.certificate = certificate.as_ref().and_then(|names| names.revocable);
        if certificate.is_none() && password.is_none() {
            return self.decide(turn, user.as_deref(), Decision::Anonymous);
        }
        let bytes = user.as_ref().map_or(0, |name| name.len())
            + password.as_ref().map_or(0, |password| password.len());
        // One byte more than the maximum is kept, so that a password that is too long is denied.
        let password =
            password.map(|password| password[..password.len().min(PASSWORD_MAX + 1)].into());
        let credentials = Credentials {
            user: user.as_deref().map(Credentials::full),
            password,
            // The container id comes after the login.
            client_id: Box::default(),
            address: self.container.peer.ip(),
            certificate: certificate.map(Box::new),
            protocol: Protocol::Amqp,
            is_known: false,
        };
        let name = credentials.user.as_deref();
        if let Some(tenant) = credentials.tenant()
            && let Some(ban) = shared.bans.check(name, tenant, "", credentials.address)
        {
            let decision = Decision::Denied(ban.explanation().into());
            return self.decide(turn, user.as_deref(), decision);
        }
        let (owner, id) = (Arc::clone(turn.owner), self.id());
        let begun = shared
            .logins
            .authenticator
            .begin(credentials, move |outcome| owner.authenticated(id, outcome));
        match begun {
            Ok(outcome) => {
                self.conclude(turn, user.as_deref(), outcome);
                self.handle_unread(turn);
            }
            Err(pending) => {
                let until = turn.opens_until();
                let waiting = LoggingIn { user, bytes: 2 * bytes, _pending: pending, until };
                self.stage = Stage::LoggingIn(Box::new(waiting));
            }
        }
    }

    /// Answers the login, and handles what the client has sent behind it without waiting for the answer.
    fn decide(&mut self, turn: &mut IoTurn<'_>, user: Option<&str>, decision: Decision) {
        self.container.decide(&turn.turn, user, decision);
        self.handle_unread(turn);
    }

    /// Handles the outcome of the login.
    pub fn on_outcome(
        &mut self,
        turn: &mut IoTurn<'_>,
        outcome: Outcome,
        buffer: &mut [u8],
    ) -> Next {
        if let Some(waiting) = self.leave_login(turn) {
            self.container.begin_turn(&turn.turn);
            self.conclude(turn, waiting.user.as_deref(), outcome);
        }
        self.turn(turn, buffer, false)
    }

    /// Refuses a client whose login takes too long. It may try again.
    pub(super) fn give_up_login(&mut self, turn: &mut IoTurn<'_>) {
        if let Some(waiting) = self.leave_login(turn) {
            let reason = "no back end has decided within connect_timeout".into();
            let decision = Decision::Undecided(reason);
            self.container.decide(&turn.turn, waiting.user.as_deref(), decision);
        }
    }

    /// Continues after a login: the client has to open the connection.
    fn leave_login(&mut self, turn: &IoTurn<'_>) -> Option<Box<LoggingIn>> {
        if !self.is_logging_in() {
            return None;
        }
        match std::mem::replace(&mut self.stage, Stage::Opening { until: turn.opens_until() }) {
            Stage::LoggingIn(waiting) => Some(waiting),
            _ => unreachable!("it was just seen"),
        }
    }

    /// Tells the client the outcome of its login.
    fn conclude(&mut self, turn: &IoTurn<'_>, user: Option<&str>, outcome: Outcome) {
        let peer = self.container.peer;
        if turn.shared.logins.is_revoked(self.certificate) {
            let decision = Decision::Denied(REVOKED_BEFORE.into());
            return self.container.decide(&turn.turn, user, decision);
        }
        if turn.shared.settings().strict_user_names && lacks_tenant(user, &outcome) {
            let decision = Decision::Denied(NAME_WITHOUT_TENANT.into());
            return self.container.decide(&turn.turn, user, decision);
        }
        let decision = match outcome {
            Outcome::Accepted(principal, version) if changed_itself(turn, &principal, version) => {
                Decision::Undecided("the user was changed meanwhile".into())
            }
            Outcome::Accepted(principal, version) => {
                return self.let_in(turn, user, principal, version);
            }
            Outcome::Anybody if user.is_none() => Decision::Anonymous,
            Outcome::Anybody => {
                Decision::Denied("there is no key of this name, and the tenant has no users".into())
            }
            Outcome::Denied(reason) => Decision::Denied(String::from(reason).into()),
            Outcome::Unavailable(reason) => {
                turn.shared.logins.tell_undecided(peer, &reason);
                Decision::Undecided(String::from(reason).into())
            }
            Outcome::Busy => Decision::Undecided("too many logins are waiting".into()),
        };
        self.container.decide(&turn.turn, user, decision);
    }

    fn let_in(
        &mut self,
        turn: &IoTurn<'_>,
        user: Option<&str>,
        principal: Arc<Principal>,
        version: Version,
    ) {
        // Bans are checked by the container. From here on `consequence` finds the client.
        let (name, policy) = (principal.user.clone(), Arc::clone(&principal.policy));
        self.container.decide(&turn.turn, user, Decision::Granted { user: name, policy });
        if self.container.user().is_none() {
            // A ban or a quota has kept the client out.
            return;
        }
        self.identity.prove(turn, self.id(), principal, version);
    }

    /// Returns the consequence of changes for the client; `None`: it goes on as before.
    pub fn consequence(&self, shared: &Shared, changes: &Changes) -> Option<Consequence> {
        if let Stage::Closing { .. } = self.stage {
            return None;
        }
        let user = self.container.user();
        let client = Connected {
            // A client that has proved nothing yet is checked when it does.
            tenant: self.container.tenant_name()?,
            user,
            client_id: self.container.client_id(),
            address: self.container.peer.ip(),
            certificate: self.certificate,
            has_key: user.is_none(),
        };
        client.consequence(shared, changes)
    }

    /// Applies the consequence of a change.
    pub fn apply(&mut self, turn: &mut IoTurn<'_>, consequence: &Consequence) -> Next {
        match consequence {
            Consequence::Ends(reason) => {
                self.container.deny_connection(&turn.turn, reason);
                self.disconnect(turn, BY_ADMINISTRATOR)
            }
            Consequence::Revoked => {
                self.container.deny_connection(&turn.turn, REVOKED_BEFORE);
                self.disconnect(turn, REVOKED)
            }
            // A client without a user has no rights but those of its keys.
            Consequence::OtherRules(_) => Next::Wait,
            Consequence::Renewed { must_log_in } => {
                self.identity.renew(turn, self.id(), *must_log_in);
                Next::Wait
            }
        }
    }

    fn disconnect(&mut self, turn: &mut IoTurn<'_>, reason: &str) -> Next {
        self.container.close(&mut turn.turn, reason);
        self.say_goodbye(turn)
    }

    /// Disconnects a client that may come back with other credentials.
    fn disconnect_unauthorized(&mut self, turn: &mut IoTurn<'_>, reason: &str) -> Next {
        self.container.close_unauthorized(&mut turn.turn, reason);
        self.say_goodbye(turn)
    }

    /// Handles the answer to the question whether the client may stay.
    pub fn on_renewed(
        &mut self,
        turn: &mut IoTurn<'_>,
        number: u32,
        standing: Standing,
        buffer: &mut [u8],
    ) -> Next {
        let counts = self.identity.answered(number);
        if !counts || matches!(self.stage, Stage::Closing { .. }) {
            return Next::Wait;
        }
        match standing {
            Standing::Stays(principal) => {
                self.container.begin_turn(&turn.turn);
                self.container.change_policy(&mut turn.turn, Arc::clone(&principal.policy));
                self.identity.stays(turn, self.id(), principal);
                self.turn(turn, buffer, false)
            }
            Standing::Gone { reason, may_return } => {
                self.container.deny_connection(&turn.turn, reason);
                if may_return {
                    self.disconnect_unauthorized(turn, reason)
                } else {
                    self.disconnect(turn, reason)
                }
            }
        }
    }

    /// Disconnects a client whose token or certificate has expired. It may log in again with another one.
    pub(super) fn expire(&mut self, turn: &mut IoTurn<'_>) -> Next {
        debug!(peer = %self.container.peer, "the token of the user has expired");
        self.disconnect_unauthorized(turn, "The token has expired.")
    }
}
