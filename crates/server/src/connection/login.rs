//! CONNECT, and the verification of the login in it, before the client is admitted.

use std::io::Write as _;
use std::sync::Arc;

use barid_auth::{
    Credentials, Method, Outcome, PASSWORD_MAX, Pending, Principal, Protocol, Standing,
};
use barid_core::time::MonoTime;
use barid_engine::access::Permissions;
use barid_engine::mqtt::{
    Arrival, End, Enhanced, Refusal, admit, assigned_client_id, refuse, say_refusal,
};
use barid_engine::names::{full_name, given_name, tenant_of};
use mqtt_proto::{
    ConnAck, Connect, DecodeError, FixedHeader, MAX_PACKET_LEN, PropertiesBuf, Property,
    ReasonCode, Version,
};

use super::mqtt::{Connection, Stage};
use super::standing::{Connected, Consequence};
use crate::logins::Changes;
use crate::shared::Shared;
use crate::strangers::{Collected, Delayed};
use crate::turn::{IoTurn, Next};

pub(super) const WRONG_LOGIN: Refusal =
    Refusal::new(ReasonCode::BadUserNameOrPassword, "user name or password is wrong");

/// Refusal of a client whose login is not verified, because most of the waiting logins come from its address.
const TOO_MANY_LOGINS: Refusal =
    Refusal::new(ReasonCode::ServerBusy, "too many logins are waiting");

/// Refusal of a client whose back end cannot tell whether it may connect.
const CANNOT_TELL: Refusal = Refusal::new(
    ReasonCode::ServerUnavailable,
    "the login cannot be verified at present: try again",
);

/// User property of a CONNECT with which a client asks to be referred to the broker with its session, instead of being passed on.
const REDIRECT: &str = "barid-redirect";

/// The end of a client that was referred to another broker.
pub(super) const REFERRED: (ReasonCode, &str) =
    (ReasonCode::UseAnotherServer, "the session of the client is at another broker");

/// Maximum number of client identifiers that are tried for one whose session is at this broker: 32 times as many as there
/// may be brokers.
const IDENTIFIERS_MAX: usize = 1_024;

const NAME_WITHOUT_TENANT: Refusal =
    Refusal::new(ReasonCode::BadUserNameOrPassword, "the user name must be {tenant}/{client}");

const BANNED: Refusal = Refusal::new(ReasonCode::Banned, "banned");

const BY_ADMINISTRATOR: End =
    End::Refused(ReasonCode::AdministrativeAction, "an operator does not allow this client");

const REVOKED: End =
    End::Refused(ReasonCode::AdministrativeAction, "the certificate of the client is revoked");

const REVOKED_BEFORE: Refusal =
    Refusal::new(ReasonCode::NotAuthorized, "the certificate of the client is revoked");

/// Refusal of a client whose back end has found another tenant than its user name has: the broker with its session was
/// found by the user name.
const OTHER_TENANT: Refusal = Refusal::new(
    ReasonCode::NotAuthorized,
    "in this cluster the user name must be {tenant}/{client}, with the tenant of the user",
);

const UNKNOWN_METHOD: Refusal = Refusal::new(
    ReasonCode::BadAuthenticationMethod,
    "this authentication method is not supported",
);

/// A CONNECT whose login is being verified.
#[derive(Debug)]
pub(super) struct Waiting {
    /// The packet, which is decoded again after the verdict.
    pub(super) header: FixedHeader,
    pub(super) body: Box<[u8]>,
    /// The client identifier that was assigned to a client without one.
    pub(super) assigned: Option<String>,
    /// Keeps the login alive while the client waits for its outcome.
    pub(super) pending: Option<Pending>,
    /// Counts `body`, the login, which has copies of parts of it, and the bytes that the client has sent
    /// after its CONNECT.
    collected: Collected,
    pub(super) until: MonoTime,
}

/// Returns the rights of a user in a session with this client identifier.
pub(super) fn permissions_of(principal: &Principal, client_id: &str) -> Arc<Permissions> {
    let user = given_name(&principal.user);
    Arc::new(Permissions::new(Arc::clone(&principal.policy), user, client_id))
}

/// Whether a user itself has changed since its login began.
pub(super) fn changed_itself(
    turn: &IoTurn<'_>,
    principal: &Principal,
    version: barid_auth::Version,
) -> bool {
    let authenticator = &turn.shared.logins.authenticator;
    authenticator.changed_since(version, &principal.user) == Some(true)
}

/// Whether a client is in the tenant `default` only because its user name has no tenant, or would be if it were let in.
/// A back end may have found another name, for which the given one does not count.
pub(super) fn lacks_tenant(given: Option<&str>, outcome: &Outcome) -> bool {
    let Some(given) = given.filter(|name| !name.contains('/')) else { return false };
    match outcome {
        Outcome::Accepted(principal, _) => *principal.user == *full_name(given),
        Outcome::Anybody | Outcome::Denied(_) => true,
        Outcome::Unavailable(_) | Outcome::Busy => false,
    }
}

/// Whether the session of a client may outlive its connection, or may be one that has.
fn outlives(connect: &Connect<'_>) -> bool {
    !connect.clean_start || connect.properties.session_expiry_interval().is_some_and(|it| it > 0)
}

/// Returns the broker that has the session of a client, if that is another one. If that is this one, the session is being
/// moved.
fn placed_elsewhere(shared: &Shared, tenant: &str, client_id: &str) -> Option<Arc<str>> {
    shared.cluster.as_ref()?.session_elsewhere(tenant, client_id)
}

impl Waiting {
    /// Sets the number of bytes that the client has sent after its CONNECT.
    pub(super) fn count_unread(&mut self, bytes: usize) -> std::io::Result<()> {
        self.collected.set(2 * self.body.len() + bytes)
    }
}

impl Connection {
    /// Returns the broker that has the session of the client that sends this CONNECT, if that is another one. A client
    /// whose session ends with its connection has it where it is connected.
    pub(super) fn home_elsewhere<'a>(
        &self,
        turn: &IoTurn<'_>,
        header: FixedHeader,
        body: &'a [u8],
    ) -> Option<(Box<str>, Connect<'a>)> {
        let cluster = turn.shared.cluster.as_ref()?;
        // A banned address is told so by the broker that it has reached.
        let is_banned = || turn.shared.bans.is_address_banned(self.peer.ip());
        let slots = cluster.slots().filter(|_| !is_banned())?;
        let connect = Connect::decode(header, body).ok().filter(outlives)?;
        if connect.client_id.is_empty() {
            // The broker that assigns the identifier assigns one of its own.
            let leaves = !self.is_passed_on() && !slots.has_any();
            return leaves.then(|| ((*slots.place(0).broker).into(), connect));
        }
        let tenant = tenant_of(connect.username)?;
        let home = placed_elsewhere(turn.shared, tenant, connect.client_id)?;
        // Another broker has passed the client on because it has not heard yet where the session is. It must not come back
        // to that broker.
        let home = if self.is_passed_on() { cluster.name() } else { &home };
        Some((home.into(), connect))
    }

    /// Refers a client that asks for it to the broker with its session (MQTT 5 §4.11), if that broker says where clients reach it.
    /// Returns whether the client has been told; otherwise it is passed on.
    pub(super) fn refer(&mut self, turn: &IoTurn<'_>, home: &str, connect: &Connect<'_>) -> bool {
        let follows = || connect.properties.user_properties().any(|(name, _)| name == REDIRECT);
        let Some(cluster) = turn.shared.cluster.as_ref().filter(|_| follows()) else {
            return false;
        };
        let Some(reference) = cluster.server_reference_of_up(home) else { return false };
        let mut properties = PropertiesBuf::default();
        properties.push(Property::ServerReference(&reference)).expect("an address is short");
        let mut packet = Vec::new();
        let properties = properties.as_properties();
        ConnAck { session_present: false, reason: REFERRED.0, properties }
            .encode(connect.version, &mut packet)
            .expect("a CONNACK can be encoded");
        let most = connect.properties.maximum_packet_size().unwrap_or(u32::MAX);
        if packet.len() > most as usize {
            return false;
        }
        // A failed write is ignored: the connection closes anyway.
        let _ = self.transport.write(&packet);
        true
    }

    /// Assigns a client identifier to a client without one: if its session is to outlive the connection, one whose
    /// session is at this broker.
    fn assigned_client_id(
        &self,
        turn: &IoTurn<'_>,
        connect: &Connect<'_>,
    ) -> Result<Option<String>, Refusal> {
        let mut assigned = assigned_client_id(connect, turn.turn.context.engine.random)?;
        let Some(tenant) = tenant_of(connect.username).filter(|_| outlives(connect)) else {
            return Ok(assigned);
        };
        for _ in 0..IDENTIFIERS_MAX {
            let Some(client_id) = &assigned else { break };
            if placed_elsewhere(turn.shared, tenant, client_id).is_none() {
                break;
            }
            assigned = assigned_client_id(connect, turn.turn.context.engine.random)?;
        }
        Ok(assigned)
    }

    /// Handles CONNECT, the first packet.
    pub(super) fn on_connect(
        &mut self,
        turn: &mut IoTurn<'_>,
        header: FixedHeader,
        body: &[u8],
    ) -> Result<(), End> {
        let connect = match Connect::decode(header, body) {
            Ok(connect) => connect,
            Err(error) => {
                let version = Connect::refusal_version(body);
                // A 3.x client is answered only if a return code fits (MQTT-3.1.4-1 of 3.1.1).
                if version == Version::V5 || error == DecodeError::UnsupportedVersion {
                    let refusal = Refusal::new(error.reason_code(), "");
                    say_refusal(&mut self.transport, version, &refusal, MAX_PACKET_LEN);
                }
                return Err(error.into());
            }
        };
        let shared = turn.shared;
        // The rules of the user may contain the client identifier, so it has to be known first.
        let assigned = match self.assigned_client_id(turn, &connect) {
            Ok(assigned) => assigned,
            Err(refusal) => return Err(self.refuse(turn, &connect, &refusal)),
        };
        let shown = self.transport.certificate_names(self.peer).map(Box::new);
        self.certificate = shown.or(self.certificate.take());
        // One byte more than the maximum is kept, so that a password that is too long is denied.
        let password = connect.password.map(|all| &all[..all.len().min(PASSWORD_MAX + 1)]);
        let client_id = assigned.as_deref().unwrap_or(connect.client_id);
        let credentials = Credentials {
            user: connect.username.map(Credentials::full),
            password: password.map(Into::into),
            client_id: client_id.into(),
            address: self.peer.ip(),
            certificate: self.certificate.clone(),
            protocol: Protocol::Mqtt,
            is_known: false,
        };
        let user = credentials.user.as_deref();
        if let Some(tenant) = credentials.tenant()
            && let Some(ban) = shared.bans.check(user, tenant, client_id, credentials.address)
        {
            return Err(self.refuse(turn, &connect, &BANNED.because(ban.explanation())));
        }
        let pending = match self.begin(turn, &connect, credentials)? {
            Ok(outcome) => {
                return self.admit(turn, &connect, body.len(), outcome, assigned, (None, None));
            }
            Err(pending) => pending,
        };
        let mut collected = Collected::new(&self.listener.strangers);
        if collected.set(2 * body.len()).is_err() {
            let refusal = Refusal::new(
                ReasonCode::ServerBusy,
                "too many bytes of logins are waiting for verification",
            );
            return Err(self.refuse(turn, &connect, &refusal));
        }
        let until = turn.opens_until();
        self.stage = Stage::Authenticating(Box::new(Waiting {
            header,
            body: body.into(),
            assigned,
            pending: Some(pending),
            collected,
            until,
        }));
        Ok(())
    }

    /// Handles the outcome of a login. `named`: as in [`admit`](Self::admit).
    pub(super) fn accept(
        &mut self,
        turn: &mut IoTurn<'_>,
        waiting: &Waiting,
        outcome: Outcome,
        named: Option<&str>,
    ) -> Result<(), End> {
        let connect = Connect::decode(waiting.header, &waiting.body)?;
        let (len, assigned) = (waiting.body.len(), waiting.assigned.clone());
        self.admit(turn, &connect, len, outcome, assigned, (named, None))
    }

    /// Refuses a client whose login takes too long. It may try again.
    pub(super) fn give_up_login(&mut self, turn: &mut IoTurn<'_>) -> Next {
        let Some(waiting) = self.take_waiting(turn) else { return Next::Wait };
        let end = match Connect::decode(waiting.header, &waiting.body) {
            Ok(connect) => {
                let refusal = CANNOT_TELL.because("no back end has decided within connect_timeout");
                self.refuse(turn, &connect, &refusal)
            }
            Err(error) => error.into(),
        };
        self.end(turn, &end)
    }

    /// Begins to decide on the login in a CONNECT, by the method that it names.
    fn begin(
        &mut self,
        turn: &mut IoTurn<'_>,
        connect: &Connect<'_>,
        mut credentials: Credentials,
    ) -> Result<Result<Outcome, Pending>, End> {
        let (owner, id) = (Arc::clone(turn.owner), self.id);
        let authenticator = &turn.shared.logins.authenticator;
        let reply = {
            let owner = Arc::clone(&owner);
            move |outcome| owner.authenticated(id, outcome)
        };
        let Some(name) = connect.properties.authentication_method() else {
            return Ok(authenticator.begin(credentials, reply));
        };
        let is_open = authenticator.asks_nobody_about(credentials.user.as_deref());
        let method = Method::named(name).filter(|_| !is_open);
        let data = connect.properties.authentication_data().unwrap_or_default();
        match method {
            None => Err(self.refuse(turn, connect, &UNKNOWN_METHOD)),
            Some(Method::Token) => {
                credentials.password = Some(data[..data.len().min(PASSWORD_MAX + 1)].into());
                Ok(authenticator.begin(credentials, reply))
            }
            Some(Method::Scram) => {
                let reply = move |step| owner.stepped(id, step);
                Ok(Err(authenticator.begin_exchange(credentials, data.into(), reply)))
            }
        }
    }

    /// Admits a client whose login has this outcome. `named`: the user whom the client has named in its
    /// Authentication Data. `data`: the last Authentication Data for the client.
    pub(super) fn admit(
        &mut self,
        turn: &mut IoTurn<'_>,
        connect: &Connect<'_>,
        len: usize,
        outcome: Outcome,
        assigned: Option<String>,
        (named, data): (Option<&str>, Option<&[u8]>),
    ) -> Result<(), End> {
        let certificate = self.certificate.as_ref().and_then(|names| names.revocable);
        if turn.shared.logins.is_revoked(certificate) {
            return Err(self.refuse(turn, connect, &REVOKED_BEFORE));
        }
        if turn.shared.settings().strict_user_names
            && (lacks_tenant(connect.username, &outcome)
                || (connect.username.is_none() && matches!(outcome, Outcome::Anybody)))
        {
            return Err(self.refuse(turn, connect, &NAME_WITHOUT_TENANT));
        }
        let proved = match outcome {
            // The client may have taken its time, as in an exchange of SCRAM, and would get messages at once.
            Outcome::Accepted(principal, version) if changed_itself(turn, &principal, version) => {
                let refusal = CANNOT_TELL.because("the user was changed meanwhile");
                return Err(self.refuse(turn, connect, &refusal.of(Some(&principal.user))));
            }
            Outcome::Accepted(principal, version) => Some((principal, version)),
            Outcome::Anybody => None,
            Outcome::Denied(reason) => {
                return Err(self.refuse(turn, connect, &WRONG_LOGIN.because(reason).of(named)));
            }
            Outcome::Unavailable(reason) => {
                turn.shared.logins.tell_undecided(self.peer, &reason);
                return Err(self.refuse(turn, connect, &CANNOT_TELL.because(reason).of(named)));
            }
            Outcome::Busy => return Err(self.refuse(turn, connect, &TOO_MANY_LOGINS.of(named))),
        };
        let client_id = assigned.as_deref().unwrap_or(connect.client_id);
        // Checked again here: a ban may have come since, and the back end may have found another user. From here
        // on `consequence` finds the client.
        let principal = proved.as_ref().map(|(principal, _)| principal);
        let user = principal.map(|principal| &*principal.user);
        if let Some(tenant) = tenant_of(user.or(connect.username))
            && let Some(ban) = turn.shared.bans.check(user, tenant, client_id, self.peer.ip())
        {
            let refusal = BANNED.because(ban.explanation()).of(user);
            return Err(self.refuse(turn, connect, &refusal));
        }
        if let Some(tenant) = tenant_of(user.or(connect.username))
            && outlives(connect)
            && placed_elsewhere(turn.shared, tenant, client_id).is_some()
        {
            return Err(self.refuse(turn, connect, &OTHER_TENANT.of(user)));
        }
        let permissions = match principal {
            Some(principal) => Some(permissions_of(principal, client_id)),
            None => tenant_of(connect.username)
                .and_then(|tenant| turn.shared.logins.authenticator.policy_for_anybody(tenant))
                .map(|policy| Arc::new(Permissions::new(policy, "", client_id))),
        };
        let arrival = Arrival {
            id: self.id,
            peer: self.peer,
            listener: self.listener.name,
            owner: turn.owner.clone(),
            wire: self.transport.wire(),
            user,
            permissions,
            enhanced: connect
                .properties
                .authentication_method()
                .filter(|_| principal.is_some())
                .map(|method| Enhanced { method, data }),
            assigned,
        };
        match admit(&mut turn.turn, &mut self.transport, arrival, connect, len) {
            Ok(client) => {
                self.stage = Stage::Active(Box::new(client));
            }
            Err(refusal) => return Err(self.refuse(turn, connect, &refusal.of(user))),
        }
        if let Some((principal, version)) = proved {
            self.identity.prove(turn, self.id, principal, version);
        }
        Ok(())
    }

    /// Returns the consequence of changes for the client; `None`: it goes on as before.
    pub fn consequence(&self, shared: &Shared, changes: &Changes) -> Option<Consequence> {
        let Stage::Active(client) = &self.stage else { return None };
        let client = Connected {
            tenant: client.tenant_name(),
            user: self.identity.user(),
            client_id: client.client_id(),
            address: self.peer.ip(),
            certificate: self.certificate.as_ref().and_then(|names| names.revocable),
            has_key: false,
        };
        client.consequence(shared, changes)
    }

    /// Applies the consequence of a change.
    pub fn apply(&mut self, turn: &mut IoTurn<'_>, consequence: &Consequence) -> Next {
        match consequence {
            Consequence::Ends(reason) => self.end_by_operator(turn, reason, &BY_ADMINISTRATOR),
            Consequence::Revoked => {
                self.end_by_operator(turn, "the certificate of the client is revoked", &REVOKED)
            }
            Consequence::OtherRules(policy) => {
                if let Stage::Active(client) = &mut self.stage {
                    let permissions =
                        Arc::new(Permissions::new(Arc::clone(policy), "", client.client_id()));
                    client.change_permissions(&mut turn.turn, &permissions);
                }
                Next::Wait
            }
            Consequence::Renewed { must_log_in } => {
                self.identity.renew(turn, self.id, *must_log_in);
                Next::Wait
            }
        }
    }

    /// Handles the answer to the question whether the client may stay.
    pub fn on_renewed(&mut self, turn: &mut IoTurn<'_>, number: u32, standing: Standing) -> Next {
        let counts = self.identity.answered(number);
        let Stage::Active(client) = &mut self.stage else { return Next::Wait };
        if !counts {
            return Next::Wait;
        }
        match standing {
            Standing::Stays(principal) => {
                let permissions = permissions_of(&principal, client.client_id());
                client.change_permissions(&mut turn.turn, &permissions);
                self.identity.stays(turn, self.id, principal);
                Next::Wait
            }
            Standing::Gone { reason, may_return } => {
                let end = if may_return {
                    End::Refused(ReasonCode::NotAuthorized, reason)
                } else {
                    End::Refused(ReasonCode::AdministrativeAction, reason)
                };
                self.end_by_operator(turn, reason, &end)
            }
        }
    }

    /// Ends the connection of a client that an operator does not allow any more.
    fn end_by_operator(&mut self, turn: &mut IoTurn<'_>, reason: &str, end: &End) -> Next {
        if let Stage::Active(client) = &self.stage {
            client.deny_connection(&turn.turn, reason);
        }
        self.end(turn, end)
    }

    pub(super) fn refuse(
        &mut self,
        turn: &IoTurn<'_>,
        connect: &Connect<'_>,
        refusal: &Refusal,
    ) -> End {
        let shared = turn.shared;
        let is_configured = |tenant: &str| shared.logins.know_tenant(&shared.settings(), tenant);
        let context = &turn.turn.context;
        if refusal.code == ReasonCode::ConnectionRateExceeded
            && let Some(place) = Delayed::new(&self.listener.strangers)
        {
            let mut answer = Vec::new();
            let end = refuse(context, &mut answer, self.peer, connect, refusal, is_configured);
            self.delayed = Some(Box::new((answer, place)));
            return end;
        }
        refuse(context, &mut self.transport, self.peer, connect, refusal, is_configured)
    }
}
