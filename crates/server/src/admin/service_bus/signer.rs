//! The signature of a request, and the rights of its key.

use std::net::SocketAddr;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use barid_engine::amqp::{Keys as _, Right, Signed};

use crate::admin::answer::Refusal;
use crate::shared::Shared;

/// Headers with tokens for the entities to which an entity forwards its messages, and its dead letters.
static SUPPLEMENTARY: [HeaderName; 2] = [
    HeaderName::from_static("servicebussupplementaryauthorization"),
    HeaderName::from_static("servicebusdlqsupplementaryauthorization"),
];

/// The sender of a request, which has signed it.
pub struct Signer<'a> {
    signed: Signed,
    /// Valid tokens for entities to which another one forwards.
    supplementary: Vec<Signed>,
    headers: &'a HeaderMap,
}

impl<'a> Signer<'a> {
    /// Checks the token of a request from `requester` to the listener at this address.
    pub fn of(
        shared: &Shared,
        requester: Option<SocketAddr>,
        listener: SocketAddr,
        headers: &'a HeaderMap,
    ) -> Result<Self, Refusal> {
        let unauthorized = |sentence: String| Refusal::of(StatusCode::UNAUTHORIZED, sentence);
        let now = shared.engine.clock.wall();
        let check = |token: &str| Signed::check(token, shared, listener, now);
        let mut written = headers.get_all(AUTHORIZATION).iter();
        let (Some(written), None) = (written.next(), written.next()) else {
            let sentence = "sign the request with a key that has the right Manage: give the client its connection string";
            return Err(unauthorized(sentence.into()));
        };
        let signed = check(written.to_str().unwrap_or_default())
            .map_err(|invalid| unauthorized(invalid.to_string()))?;
        let banned = requester
            .and_then(|address| shared.ban(None, signed.tenant(), "", address.ip().to_canonical()));
        if let Some(reason) = banned {
            return Err(unauthorized(reason));
        }
        let supplementary = SUPPLEMENTARY.iter().filter_map(|name| {
            let token = headers.get(name)?.to_str().ok()?;
            check(token).ok().filter(|other| other.tenant() == signed.tenant())
        });
        Ok(Self { supplementary: supplementary.collect(), signed, headers })
    }

    /// The name of the key.
    pub fn key(&self) -> &str {
        self.signed.key()
    }

    /// The tenant of the key.
    pub fn tenant(&self) -> &str {
        self.signed.tenant()
    }

    /// Refuses a request with this path if the key has no right to what it names.
    pub fn check(&self, path: &str) -> Result<(), Refusal> {
        if self.signed.allows(Right::Manage, path) {
            return Ok(());
        }
        Err(Refusal::of(
            StatusCode::UNAUTHORIZED,
            format!(
                "Manage,EntityRead claims required: the key {:?} or its token may not manage {path:?}",
                self.key()
            ),
        ))
    }

    /// Refuses to let an entity forward to another one to which the sender of the request may not send.
    pub fn check_target(&self, entity: &str) -> Result<(), Refusal> {
        let mut all = self.supplementary.iter().chain([&self.signed]);
        if entity.is_empty() || all.any(|signed| signed.allows(Right::Send, entity)) {
            return Ok(());
        }
        let shown = SUPPLEMENTARY.iter().any(|name| self.headers.contains_key(name));
        let hint = if shown { " (nor the key of the supplementary token)" } else { "" };
        Err(Refusal::of(
            StatusCode::UNAUTHORIZED,
            format!(
                "the key {:?}{hint} may not send to {entity:?}, so nothing can be forwarded there",
                self.key()
            ),
        ))
    }
}
