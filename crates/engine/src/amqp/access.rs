//! What a client may do: which keys it has proved to have, and what they are for.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use barid_core::time::{MonoTime, WallTime};
use thiserror::Error;

use super::keys::{Key, Keys, Right};
use super::sas::{InvalidToken, Token};
use crate::engine::Engine;
use crate::entities::Address;
use crate::names::tenant_of;
use crate::tenant::Tenant;

/// Tokens that count for one connection. A client has one or two for each entity it has to do with.
const GRANTS_MAX: usize = 4_096;

/// The longest path, in bytes, that a token may be for: no entity has a longer one.
const SCOPE_MAX: usize = 512;

/// What the client of a connection has proved so far.
#[derive(Debug, Default)]
pub struct Access {
    /// The tenant of its keys; the first decides.
    tenant: Option<Arc<Tenant>>,
    grants: Vec<Grant>,
}

#[derive(Debug)]
struct Grant {
    key: Key,
    /// The canonical path of what the key is for; empty: all.
    entity: String,
    /// That of what the token is for; empty: all.
    scope: String,
    until: MonoTime,
}

/// Why a client is not given access.
#[derive(Debug, Error)]
pub enum Denied {
    /// Its token does not count.
    #[error(transparent)]
    Token(#[from] InvalidToken),
    /// It had a key of another tenant before.
    #[error("the key belongs to another tenant than the first one of this connection")]
    OtherTenant,
    /// The tenant has its most connections.
    #[error("the tenant has as many connections as it may (max_connections)")]
    Connections,
    /// It would be kept for nothing.
    #[error("the token is for more than {SCOPE_MAX} bytes of path: sign the path of an entity")]
    Scope,
    /// There is no more room.
    #[error("too many tokens on one connection, or too many tenants")]
    TooMany,
}

impl Access {
    /// The tenant whose entities the client may reach; `None` before it has proved anything.
    pub fn tenant(&self) -> Option<&Arc<Tenant>> {
        self.tenant.as_ref()
    }

    /// The name of the key that it has proved last to have.
    pub fn key(&self) -> Option<&str> {
        self.grants.last().map(|grant| &*grant.key.name)
    }

    /// Takes a token of a client that connected to a listener at `address`. `wall`: what other clocks show now.
    pub fn put_token(
        &mut self,
        (engine, keys): (&Engine, &dyn Keys),
        address: SocketAddr,
        token: &str,
        wall: WallTime,
    ) -> Result<(), Denied> {
        let token = Token::parse(token)?;
        let key = keys.find(address, &token.key_name).ok_or(InvalidToken::Signature)?;
        let until = token.verify(key.secret.expose(), wall)?;
        let scope = canonical(&token.scope()?);
        if scope.len() > SCOPE_MAX {
            return Err(Denied::Scope);
        }
        self.grant(engine, key, scope, engine.clock.when(until))
    }

    /// Takes the name and the text of a key (SASL PLAIN).
    pub fn put_key(
        &mut self,
        (engine, keys): (&Engine, &dyn Keys),
        address: SocketAddr,
        name: &str,
        text: &str,
    ) -> Result<(), Denied> {
        let key = keys.find(address, name).ok_or(InvalidToken::Signature)?;
        // Compared by their hashes, so that the time it takes says nothing of the key.
        let digest = |text: &str| ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
        if digest(key.secret.expose()).as_ref() != digest(text).as_ref() {
            return Err(InvalidToken::Signature.into());
        }
        self.grant(engine, key, String::new(), MonoTime::from_millis(u64::MAX))
    }

    fn grant(
        &mut self,
        engine: &Engine,
        key: Key,
        scope: String,
        until: MonoTime,
    ) -> Result<(), Denied> {
        let name = tenant_of(Some(&key.name)).ok_or(InvalidToken::Signature)?;
        match &self.tenant {
            Some(tenant) if *tenant.name != *name => return Err(Denied::OtherTenant),
            Some(_) => {}
            None => {
                let tenant = engine.tenants.get_or_create(name, |_| ());
                let tenant = tenant.ok_or(Denied::TooMany)?;
                let most = tenant.limits().max_connections;
                if tenant.connections.fetch_add(1, Ordering::Relaxed) >= most {
                    tenant.connections.fetch_sub(1, Ordering::Relaxed);
                    return Err(Denied::Connections);
                }
                self.tenant = Some(tenant);
            }
        }
        let now = engine.clock.now();
        let is_renewed = |grant: &Grant| grant.scope == scope && grant.key.name == key.name;
        self.grants.retain(|grant| grant.until > now && !is_renewed(grant));
        if self.grants.len() >= GRANTS_MAX {
            return Err(Denied::TooMany);
        }
        let entity = key.entity.as_deref().map(canonical).unwrap_or_default();
        self.grants.push(Grant { key, entity, scope, until });
        Ok(())
    }

    /// Until when the client may do something with what has this canonical path; `None`: it may not.
    pub fn allows(&self, right: Right, path: &str, now: MonoTime) -> Option<MonoTime> {
        let grants = self.grants.iter().filter(|grant| {
            grant.until > now
                && grant.key.allows(right)
                && is_within(path, &grant.scope)
                && is_within(path, &grant.entity)
        });
        grants.map(|grant| grant.until).max()
    }
}

impl Drop for Access {
    fn drop(&mut self) {
        if let Some(tenant) = &self.tenant {
            tenant.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn canonical(address: &str) -> String {
    Address::parse(address).to_string()
}

/// Whether a path is a scope, or below it.
fn is_within(path: &str, scope: &str) -> bool {
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
