//! Who a connected client is, and what changes of users and bans mean for it.

use std::net::IpAddr;
use std::sync::Arc;

use barid_auth::{Inquiry, Principal, Revocable, Version};
use barid_core::time::MonoTime;
use barid_engine::access::Policy;
use barid_engine::ids::ConnectionId;

use crate::logins::Changes;
use crate::shared::Shared;
use crate::turn::IoTurn;

/// The user that the client of a connection has proved to be.
#[derive(Debug, Default)]
pub(super) struct Identity {
    /// The user; `None`: the client has not logged in, or has no user.
    pub principal: Option<Arc<Principal>>,
    /// The time at which the token or certificate of the client expires.
    pub expires: Option<MonoTime>,
    /// The question whether the user may stay. The answer comes to the thread that has asked, so the connection stays
    /// there meanwhile.
    inquiry: Option<Inquiry>,
    /// The number of the question.
    number: u32,
    /// Whether the user is looked up once more after the answer, because of a change since the question; as in
    /// [`Consequence::Renewed`].
    again: Option<bool>,
}

/// The consequence of a change for a connected client.
#[derive(Clone, Debug)]
pub enum Consequence {
    /// The client is disconnected: it is banned, or it needs a user now and has none. The text is for operators.
    Ends(String),
    /// The client is disconnected: its certificate is revoked.
    Revoked,
    /// The client has no user, and the rules of its tenant have changed.
    OtherRules(Arc<Policy>),
    /// The user of the client is looked up again.
    Renewed {
        /// Whether a user that cannot be looked up without its credentials has to log in again.
        must_log_in: bool,
    },
}

/// A connected client, as changes see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connected<'a> {
    pub tenant: &'a str,
    /// The user, as `{tenant}/{client}`.
    pub user: Option<&'a str>,
    /// The MQTT client identifier or the AMQP container id.
    pub client_id: &'a str,
    pub address: IpAddr,
    /// What revocation lists say of the client's certificate, if it has shown one.
    pub certificate: Option<Revocable>,
    /// Whether a client without a user may be there because of a shared access key.
    pub has_key: bool,
}

impl Identity {
    /// Notes what the client has proved with a login. A user that has changed since the login began is looked up.
    pub(super) fn prove(
        &mut self,
        turn: &IoTurn<'_>,
        id: ConnectionId,
        principal: Arc<Principal>,
        version: Version,
    ) {
        let authenticator = &turn.shared.logins.authenticator;
        let missed = authenticator.changed_since(version, &principal.user);
        self.expires = authenticator.expiry(&principal);
        self.principal = Some(principal);
        // An answer about what the client had proved before does not count any more.
        (self.inquiry, self.again) = (None, None);
        if let Some(must_log_in) = missed {
            self.renew(turn, id, must_log_in);
        }
    }

    /// Returns the name of the user, `{tenant}/{client}`.
    pub(super) fn user(&self) -> Option<&str> {
        self.principal.as_ref().map(|principal| &*principal.user)
    }

    /// Whether the token or certificate has expired.
    pub(super) fn is_expired(&self, now: MonoTime) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    /// Asks the authenticator whether the user may stay, and with which rights. The thread of the connection is told.
    pub(super) fn renew(&mut self, turn: &IoTurn<'_>, id: ConnectionId, must_log_in: bool) {
        let Some(principal) = self.principal.clone() else { return };
        if let Some(inquiry) = &self.inquiry {
            if must_log_in {
                inquiry.must_log_in();
            }
            self.again = Some(must_log_in || self.again == Some(true));
            return;
        }
        self.number = self.number.wrapping_add(1);
        let (owner, number) = (Arc::clone(turn.owner), self.number);
        let authenticator = &turn.shared.logins.authenticator;
        self.inquiry = Some(authenticator.renew(principal, must_log_in, move |standing| {
            owner.renewed(id, number, standing);
        }));
    }

    /// Notes the answer to the question with this number. Returns whether it counts.
    pub(super) fn answered(&mut self, number: u32) -> bool {
        self.number == number && self.inquiry.take().is_some()
    }

    /// Notes that the user may stay, as this principal.
    pub(super) fn stays(&mut self, turn: &IoTurn<'_>, id: ConnectionId, principal: Arc<Principal>) {
        self.principal = Some(principal);
        if let Some(must_log_in) = self.again.take() {
            self.renew(turn, id, must_log_in);
        }
    }

    /// Whether an answer of the authenticator is on its way.
    pub(super) fn is_awaited(&self) -> bool {
        self.inquiry.is_some()
    }
}

impl Connected<'_> {
    /// Returns the consequence of changes for the client; `None`: it goes on as before.
    pub(super) fn consequence(&self, shared: &Shared, changes: &Changes) -> Option<Consequence> {
        let Self { tenant, user, client_id, address, certificate, has_key } = *self;
        if certificate.is_some_and(|certificate| changes.revoke(&certificate)) {
            return Some(Consequence::Revoked);
        }
        if changes.are_of_bans()
            && let Some(ban) = shared.bans.check(user, tenant, client_id, address)
        {
            return Some(Consequence::Ends(ban.explanation()));
        }
        match user {
            Some(user) => {
                changes.concern(user).map(|must_log_in| Consequence::Renewed { must_log_in })
            }
            None if has_key || !changes.concern_all_of(tenant) => None,
            None => {
                let authenticator = &shared.logins.authenticator;
                Some(match authenticator.allows_anybody(tenant) {
                    true => Consequence::OtherRules(
                        authenticator
                            .policy_for_anybody(tenant)
                            .unwrap_or_else(|| Arc::new(Policy::everything())),
                    ),
                    false => Consequence::Ends(
                        "the tenant has users now, and the client has not logged in as one".into(),
                    ),
                })
            }
        }
    }
}
