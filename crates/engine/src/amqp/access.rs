//! Rights of a client: the keys that it has proved to possess, the paths that they are for, and the user that it
//! has proved to be.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use barid_core::time::{MonoTime, WallTime};
use thiserror::Error;

use super::keys::{Key, Keys, Right};
use super::sas::{InvalidToken, Token};
use crate::access::{Permissions, Policy};
use crate::context::Context;
use crate::entities::{Address, entity_of};
use crate::limits::Quota;
use crate::names::{full_name, given_name, tenant_of};
use crate::quotas::{Metered, Pace};
use crate::rights::Action;
use crate::tenant::Tenant;
use crate::user_limits::UserLimits;
use crate::worker::Worker;

/// Maximum number of valid tokens on one connection. A client has one or two for each entity that it uses. Further
/// ones are denied.
const GRANTS_MAX: usize = 4_096;

/// Maximum length of the path that a token is for, in bytes. No entity has a longer path.
const SCOPE_MAX: usize = 512;

/// The reason for which a client without a user does not have a right.
pub(super) const NO_TOKEN: &str = "no valid token with the right to do that";

/// Time until which a right without an end is valid.
const FOREVER: MonoTime = MonoTime::from_millis(u64::MAX);

/// The rights that the client of a connection has proved so far.
#[derive(Debug, Default)]
pub struct Access {
    /// The tenant of the user or of the first key, and the quotas that the connection is under. Keys of other
    /// tenants are denied.
    admitted: Option<Admitted>,
    grants: Vec<Grant>,
    user: Option<User>,
}

/// A client that asks for access, and what decides on that.
#[derive(Clone, Copy)]
pub struct Applicant<'a> {
    context: &'a Context,
    keys: &'a dyn Keys,
    listener: SocketAddr,
    peer: IpAddr,
    client_id: &'a str,
}

/// The user that a client has proved to be.
#[derive(Debug)]
struct User {
    /// The name, `{tenant}/{client}`.
    name: Box<str>,
    policy: Arc<Policy>,
    permissions: Permissions,
}

/// A tenant that has admitted the connection.
#[derive(Debug)]
pub struct Admitted {
    /// The tenant.
    pub tenant: Arc<Tenant>,
    /// The quotas that the connection is under.
    pub metered: Metered,
    /// The pace of what is sent to the client; `None`: no quota limits it.
    pub outbound: Option<Box<Pace>>,
    /// Whether the bytes that were read before the connection was admitted, and handled afterwards, are counted.
    pub is_counted: bool,
}

/// A key that the client has proved to possess, and the limits of its use.
#[derive(Debug)]
struct Grant {
    key: Key,
    /// The canonical path that the key is limited to; empty: all of the tenant.
    entity: String,
    /// The canonical path that the token is limited to; empty: all of the tenant.
    scope: String,
    until: MonoTime,
}

/// Reason for which a client is not given access.
#[derive(Debug, Error)]
pub enum Denied {
    /// The token or key is invalid.
    #[error(transparent)]
    Token(#[from] InvalidToken),
    /// The key belongs to another tenant than the connection.
    #[error("the key belongs to another tenant than this connection")]
    OtherTenant,
    /// The name of the user has no tenant.
    #[error("the name of the user has no tenant")]
    NoTenant,
    /// The client is banned.
    #[error("{0}")]
    Banned(String),
    /// A quota has no room for the connection.
    #[error("the limit of connections {0} is reached: try again later")]
    Quota(Quota),
    /// The path of the token is longer than that of any entity, so the token would be kept in vain.
    #[error("the path in the token has more than {SCOPE_MAX} bytes: sign the path of an entity")]
    Scope,
    /// The broker with this name has the entities of the tenant.
    #[error("the entities of the tenant are at the broker {0}")]
    Elsewhere(Box<str>),
    /// The connection has too many tokens, or the broker has too many tenants.
    #[error("the connection has too many tokens, or the broker too many tenants (max_tenants)")]
    TooMany,
}

impl<'a> Applicant<'a> {
    /// Creates an applicant: a client with this address and container id, on a listener with these keys.
    pub fn new(
        context: &'a Context,
        (keys, listener): (&'a dyn Keys, SocketAddr),
        (peer, client_id): (IpAddr, &'a str),
    ) -> Self {
        Self { context, keys, listener, peer, client_id }
    }
}

impl Denied {
    /// Whether the client may be given access later, with the same credentials.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Quota(_) | Self::TooMany)
    }
}

impl Access {
    /// The tenant whose entities the client may reach; `None` before the client has proved who it is.
    pub fn tenant(&self) -> Option<&Arc<Tenant>> {
        self.admitted.as_ref().map(|admitted| &admitted.tenant)
    }

    /// The tenant and the quotas; `None` before the client has proved who it is.
    pub fn admitted(&self) -> Option<&Admitted> {
        self.admitted.as_ref()
    }

    /// As [`Self::admitted`], to be changed.
    pub fn admitted_mut(&mut self) -> Option<&mut Admitted> {
        self.admitted.as_mut()
    }

    /// The name of the key that the client has proved most recently.
    pub fn key(&self) -> Option<&str> {
        self.grants.last().map(|grant| &*grant.key.name)
    }

    /// The name of the user that the client has proved to be, `{tenant}/{client}`.
    pub fn user(&self) -> Option<&str> {
        self.user.as_ref().map(|user| &*user.name)
    }

    /// Checks a token, and adds its rights. `wall` is the present wall time.
    pub fn put_token(
        &mut self,
        applicant: Applicant<'_>,
        token: &str,
        wall: WallTime,
    ) -> Result<(), Denied> {
        let Applicant { context, keys, listener, .. } = applicant;
        let (key, scope, until) = verify(token, keys, listener, wall)?;
        let scope = canonical(&scope);
        if scope.len() > SCOPE_MAX {
            return Err(Denied::Scope);
        }
        self.grant(applicant, key, scope, context.engine.clock.when(until))
    }

    /// Checks the text of a key (SASL PLAIN), and adds the rights of the key.
    pub fn put_key(
        &mut self,
        applicant: Applicant<'_>,
        key: Key,
        text: &str,
    ) -> Result<(), Denied> {
        // The hashes are compared, so that the time of the comparison reveals nothing about the key.
        let digest = |text: &str| ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
        if digest(key.secret.expose()).as_ref() != digest(text).as_ref() {
            return Err(InvalidToken::Signature.into());
        }
        self.grant(applicant, key, String::new(), FOREVER)
    }

    /// Adds the rights of a user, whose identity the client has proved.
    pub fn put_user(
        &mut self,
        applicant: Applicant<'_>,
        name: Box<str>,
        policy: Arc<Policy>,
    ) -> Result<(), Denied> {
        let tenant = tenant_of(Some(&name)).ok_or(Denied::NoTenant)?;
        self.admit(applicant, tenant, &name, Some((&name, policy.limits())))?;
        // Rules with the client identifier apply when the client has said it.
        let permissions = Permissions::new(Arc::clone(&policy), given_name(&name), "");
        self.user = Some(User { name, policy, permissions });
        Ok(())
    }

    /// Replaces the policy of the user, for a client with this client identifier.
    pub fn change_policy(&mut self, worker: &Worker, policy: Arc<Policy>, client_id: &str) {
        if let Some(user) = &mut self.user {
            if let Some(admitted) = &mut self.admitted {
                admitted.set_own(worker, policy.limits());
            }
            user.permissions =
                Permissions::new(Arc::clone(&policy), given_name(&user.name), client_id);
            user.policy = policy;
        }
    }

    /// Applies the rules with a client identifier, now that the client has said what its identifier is.
    pub fn identify(&mut self, client_id: &str) {
        if let Some(user) = &mut self.user {
            user.permissions =
                Permissions::new(Arc::clone(&user.policy), given_name(&user.name), client_id);
        }
    }

    /// Admits the connection to a tenant, unless it is in one already. `name`: that of the key or user. `user`: the
    /// user, and its limits.
    fn admit(
        &mut self,
        Applicant { context, keys, peer, client_id, .. }: Applicant<'_>,
        tenant: &str,
        name: &str,
        user: Option<(&str, &UserLimits)>,
    ) -> Result<(), Denied> {
        match self.tenant() {
            Some(present) if *present.name != *tenant => Err(Denied::OtherTenant),
            Some(_) => Ok(()),
            None => {
                let name_of_user = user.map(|(name, _)| name);
                if let Some(reason) = keys.ban(name_of_user, tenant, client_id, peer) {
                    return Err(Denied::Banned(reason));
                }
                if let Some(home) = keys.home_elsewhere(tenant) {
                    return Err(Denied::Elsewhere(home));
                }
                let tenant = context.engine.tenants.get_or_create(tenant, |_| ());
                let tenant = tenant.ok_or_else(|| {
                    context.refused_tenant(client_id);
                    Denied::TooMany
                })?;
                let own = user.map(|(_, limits)| limits);
                self.admitted = Some(Admitted::new(context, tenant, (name, own))?);
                Ok(())
            }
        }
    }

    fn grant(
        &mut self,
        applicant: Applicant<'_>,
        key: Key,
        scope: String,
        until: MonoTime,
    ) -> Result<(), Denied> {
        let tenant = tenant_of(Some(&key.name)).ok_or(InvalidToken::Signature)?;
        self.admit(applicant, tenant, &full_name(&key.name), None)?;
        let now = applicant.context.engine.clock.now();
        let is_renewed = |grant: &Grant| grant.scope == scope && grant.key.name == key.name;
        self.grants.retain(|grant| grant.until > now && !is_renewed(grant));
        if self.grants.len() >= GRANTS_MAX {
            return Err(Denied::TooMany);
        }
        let entity = key.entity.as_deref().map(canonical).unwrap_or_default();
        self.grants.push(Grant { key, entity, scope, until });
        Ok(())
    }

    /// Returns why the client does not have a right to this canonical path, as a part of a sentence.
    pub fn why_not(&self, right: Right, path: &str) -> String {
        match &self.user {
            Some(user) => user.permissions.why_not_use(right.action(), entity_of(path)),
            None => NO_TOKEN.into(),
        }
    }

    /// Returns the time until which the client has one of these rights to this canonical path; `None`: it has none.
    pub fn allows_any(&self, rights: &[Right], path: &str, now: MonoTime) -> Option<MonoTime> {
        rights.iter().filter_map(|right| self.allows(*right, path, now)).max()
    }

    /// Returns the time until which the client has a right to this canonical path; `None`: it has not.
    pub fn allows(&self, right: Right, path: &str, now: MonoTime) -> Option<MonoTime> {
        let grants = self.grants.iter().filter(|grant| {
            grant.until > now
                && grant.key.allows(right)
                && is_within(path, &grant.scope)
                && is_within(path, &grant.entity)
        });
        let of_keys = grants.map(|grant| grant.until).max();
        let of_user = self.user.as_ref().filter(|user| user.may(right, path)).map(|_| FOREVER);
        of_keys.max(of_user)
    }
}

impl User {
    /// Whether the rules allow something. Those for an entity are for its sub-queues and its `$management`, too.
    fn may(&self, right: Right, path: &str) -> bool {
        self.permissions.may_use(right.action(), entity_of(path))
    }
}

impl Right {
    /// Returns the action in the rules of users for which the right stands.
    fn action(self) -> Action {
        match self {
            Self::Send => Action::Send,
            Self::Listen => Action::Receive,
            Self::Manage => Action::Manage,
        }
    }
}

impl Admitted {
    /// Admits a connection, unless a quota of the tenant has no room for it.
    fn new(
        context: &Context,
        tenant: Arc<Tenant>,
        (name, own): (&str, Option<&UserLimits>),
    ) -> Result<Self, Denied> {
        let (worker, limits) = (&context.worker, tenant.limits());
        let permit = tenant.quotas.admit(worker.now, &limits, (name, own), false);
        let permit = permit.and_then(|permit| {
            // Its bytes are counted when the frames that were read together with the login have been handled.
            permit.pay(worker.now, 0, 0)?;
            Ok(permit)
        });
        let permit = permit.map_err(|quota| {
            tenant.refused_to(worker, quota, own.unwrap_or(&UserLimits::NONE), name);
            Denied::Quota(quota)
        })?;
        let metered = Metered::new(&tenant.quotas, permit, name);
        let outbound = metered.outbound();
        Ok(Self { tenant, metered, outbound, is_counted: false })
    }

    /// Gives the user other limits of its own, which apply at once.
    fn set_own(&mut self, worker: &Worker, own: &UserLimits) {
        if self.metered.set_own(worker.now, &self.tenant.quotas, own) {
            self.check_quotas(worker);
        }
    }

    /// Applies the quotas as they are now, if they have changed.
    pub fn check_quotas(&mut self, worker: &Worker) {
        let Self { tenant, metered, outbound, .. } = self;
        if metered.is_outdated(&tenant.quotas) {
            metered.paces().for_each(|pace| tenant.cut_short(worker, pace));
            metered.refresh(worker.now, &tenant.quotas, || tenant.limits());
            // The old one gives back what it has not used, before the new one asks.
            if let Some(mut before) = outbound.take() {
                tenant.cut_short(worker, &mut before);
            }
            *outbound = metered.outbound();
        }
    }
}

/// Checks a token that a client of the listener at this address has signed. Returns its key, its scope as the client has
/// written it, and the time until which it is valid.
pub(super) fn verify(
    token: &str,
    keys: &dyn Keys,
    listener: SocketAddr,
    now: WallTime,
) -> Result<(Key, String, WallTime), InvalidToken> {
    let token = Token::parse(token)?;
    let key = keys.find(listener, &token.key_name).ok_or(InvalidToken::Signature)?;
    let until = token.verify(key.secret.expose(), now)?;
    Ok((key, token.scope()?, until))
}

pub(super) fn canonical(address: &str) -> String {
    Address::parse(address).to_string()
}

/// Whether a path is equal to a scope, or below it. An empty scope includes all paths.
pub(super) fn is_within(path: &str, scope: &str) -> bool {
    scope.is_empty()
        || path.strip_prefix(scope).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_ends_between_segments() {
        assert_eq!(canonical("sb://localhost:5672/Orders/"), "orders");
        assert_eq!(canonical("amqps://h"), "");
        assert_eq!(canonical("/a/B"), "a/b");
        assert!(is_within("orders", "orders") && is_within("orders/$management", "orders"));
        assert!(is_within("orders", ""));
        assert!(!is_within("orders2", "orders") && !is_within("order", "orders"));
    }
}
