//! Requests outside of AMQP that are signed with the keys of AMQP clients.

use std::net::SocketAddr;

use barid_core::time::WallTime;

use super::access::{canonical, is_within, verify};
use super::keys::{Key, Keys, Right};
use super::sas::InvalidToken;
use crate::names::tenant_of;

/// A token that was accepted: a client has signed it with a key.
#[derive(Debug)]
pub struct Signed {
    key: Key,
    tenant: Box<str>,
    /// The canonical path that the key is limited to; empty: all of the tenant.
    entity: String,
    /// The canonical path that the token is limited to; empty: all of the tenant.
    scope: String,
}

impl Signed {
    /// Checks a token. `listener`: the address that the client has connected to. `now`: the present wall time.
    ///
    /// # Errors
    /// [`InvalidToken`].
    pub fn check(
        token: &str,
        keys: &dyn Keys,
        listener: SocketAddr,
        now: WallTime,
    ) -> Result<Self, InvalidToken> {
        let (key, scope, _) = verify(token, keys, listener, now)?;
        let tenant = tenant_of(Some(&key.name)).ok_or(InvalidToken::Signature)?.into();
        let entity = key.entity.as_deref().map(canonical).unwrap_or_default();
        let path = scope.split_once('?').map_or(&*scope, |(path, _)| path);
        let scope = canonical(without_port(path));
        Ok(Self { key, tenant, entity, scope })
    }

    /// The name of the key.
    pub fn key(&self) -> &str {
        &self.key.name
    }

    /// The tenant of the key.
    pub fn tenant(&self) -> &str {
        &self.tenant
    }

    /// Whether the client has a right to what has this path: an entity, what belongs to it, or a list.
    pub fn allows(&self, right: Right, path: &str) -> bool {
        let path = canonical(path);
        self.key.allows(right) && is_within(&path, &self.scope) && is_within(&path, &self.entity)
    }
}

/// Returns a scope without the host and port in front of it, which the SDK for JavaScript writes without a scheme. Only
/// a port tells a host from an entity, whose name cannot contain a colon.
fn without_port(scope: &str) -> &str {
    let (first, rest) = scope.split_once('/').unwrap_or((scope, ""));
    let is_host = first.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
    });
    if is_host { rest } else { scope }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use data_encoding::BASE64;
    use ring::hmac;

    use super::*;
    use crate::amqp::Secret;

    #[derive(Debug)]
    struct One(Key);

    impl Keys for One {
        fn find(&self, _: SocketAddr, name: &str) -> Option<Key> {
            (name == self.0.name).then(|| self.0.clone())
        }

        fn are_in(&self, _: &str) -> bool {
            true
        }

        fn ban(&self, _: Option<&str>, _: &str, _: &str, _: IpAddr) -> Option<String> {
            None
        }
    }

    fn signed(scope: &str, entity: Option<&str>) -> Signed {
        let scope = scope.replace(':', "%3A").replace('/', "%2F");
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"secret");
        let signature = BASE64.encode(hmac::sign(&key, format!("{scope}\n99").as_bytes()).as_ref());
        let signature = signature.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
        let token = format!("SharedAccessSignature sr={scope}&sig={signature}&se=99&skn=acme%2Fk");
        let keys = One(Key {
            name: "acme/k".into(),
            secret: Secret::new("secret"),
            rights: vec![Right::Manage],
            entity: entity.map(Into::into),
        });
        let listener = SocketAddr::from(([127, 0, 0, 1], 5300));
        Signed::check(&token, &keys, listener, WallTime::from_millis(98_999)).unwrap()
    }

    #[test]
    fn a_key_and_a_token_may_each_be_limited() {
        const LIST: &str = "$Resources/queues";
        for all in ["localhost:5300", "[::1]:443/", "amqps://h"] {
            assert!(signed(all, None).allows(Right::Manage, LIST), "{all}");
        }
        for one in ["localhost", "a:b", ":1", "1:"] {
            assert!(!signed(one, None).allows(Right::Manage, LIST), "{one}");
        }
        let all = signed("https://localhost:5300", None);
        assert_eq!((all.key(), all.tenant()), ("acme/k", "acme"));
        assert!(all.allows(Right::Manage, "Orders") && all.allows(Right::Manage, LIST));
        for limited in [
            signed("https://h/Orders", None),
            signed("https://h", Some("orders")),
            signed("sb://h/orders", Some("Orders")),
        ] {
            assert!(limited.allows(Right::Manage, "Orders"));
            assert!(limited.allows(Right::Manage, "orders/Subscriptions/s"));
            assert!(!limited.allows(Right::Manage, "orders2"));
            assert!(!limited.allows(Right::Manage, LIST) && !limited.allows(Right::Manage, ""));
        }
        // The SDK for JavaScript signs the address of each request.
        let list = signed("https://h:5300/$resources/queues?api-version=2021-05", None);
        assert!(list.allows(Right::Manage, LIST) && !list.allows(Right::Manage, "orders"));
        assert!(!signed("https://h/orders", Some("others")).allows(Right::Manage, "orders"));
    }
}
