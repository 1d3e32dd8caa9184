//! The administration protocol of Service Bus: queues, topics, subscriptions and rules as Atom entries over HTTP.
//! `ServiceBusAdministrationClient` of Microsoft's SDKs speaks it.
//!
//! It has a listener of its own, as in Microsoft's emulator. Each request is signed with a key of AMQP clients that
//! has the right `Manage`; the key decides on the tenant. `docs/operating/service-bus-administration.md` is the
//! contract.
//!
//! | file | contents |
//! | --- | --- |
//! | `target.rs` | the paths of requests |
//! | `signer.rs` | the signature of a request, and the rights of its key |
//! | `reading.rs`, `writing.rs` | answers to GET, and to PUT and DELETE |
//! | `properties.rs` | the elements of a description, and the properties of an entity |
//! | `rule.rs` | rules as XML, in both directions |
//! | `atom.rs` | entries, feeds and errors |
//! | `xml.rs` | elements, read and written |

mod atom;
mod properties;
mod reading;
mod rule;
mod signer;
mod target;
mod writing;
mod xml;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::body::{Body, Bytes};
use axum::extract::{Extension, Query, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use barid_engine::amqp::Keys as _;
use barid_peers::Protocol;
use parking_lot::Mutex;
use tracing::info;

use super::answer::Refusal;
use super::passing_on::{self, PassedOn};
use super::{Served, health};
use crate::rate_limit::Seldom;
use atom::Context;
use reading::Paging;
use signer::Signer;
use target::Target;

/// What answers the requests of a listener.
#[derive(Clone)]
struct Administration {
    served: Served,
    /// The address of the listener, on which the valid keys depend.
    listener: SocketAddr,
    /// Limits the lines of the log about requests whose signature is not accepted, which anybody can send.
    refused: Arc<Mutex<Seldom>>,
}

/// Returns what answers requests on a listener with this address.
pub fn routes(served: Served, listener: SocketAddr) -> Router {
    Router::new().fallback(answer).with_state(Administration {
        served,
        listener,
        refused: Arc::default(),
    })
}

async fn answer(
    State(administration): State<Administration>,
    requester: Option<Extension<SocketAddr>>,
    passed_on: Option<Extension<PassedOn>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let Administration { served, listener, refused } = administration;
    if is_health_check(&method, &uri, &headers) {
        let (status, Json(health)) = health::health(State(served)).await;
        return (status, Json(health)).into_response();
    }
    let requester = requester.map(|Extension(address)| address);
    let signer = match Signer::of(&served.shared, requester, listener, &headers) {
        Ok(signer) => signer,
        Err(refusal) => {
            if let Some(requests) = refused.lock().happened(Instant::now()) {
                let address = requester.map(tracing::field::display);
                let (path, reason) = (uri.path(), refusal.sentence());
                info!(requests, address, %method, path, reason, "refused requests to the administration of Service Bus; this is the last one");
            }
            return atom::error(&refusal);
        }
    };
    let home = served.shared.home_elsewhere(signer.tenant()).filter(|_| passed_on.is_none());
    if let Some(home) = home {
        let mut request = Request::new(Body::from(body));
        if let Some(address) = requester {
            request.extensions_mut().insert(address);
        }
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        let to = (Protocol::Management, listener);
        return passing_on::to_home(&served.shared, home, to, request).await;
    }
    let answered = dispatch(&served, &signer, &method, &uri, &headers, &body).await;
    let response = answered.unwrap_or_else(|refusal| atom::error(&refusal));
    if method != Method::GET {
        let (address, status) = (requester.map(tracing::field::display), response.status());
        info!(by = signer.key(), address, %method, path = uri.path(), status = status.as_u16(), "request for a change of an entity");
    }
    response
}

/// Whether a request asks for the health of the broker. It is not signed, so it is none for an entity of that name.
fn is_health_check(method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
    method == Method::GET
        && uri.path() == "/health"
        && !headers.contains_key(axum::http::header::AUTHORIZATION)
}

async fn dispatch(
    served: &Served,
    signer: &Signer<'_>,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    body: &Bytes,
) -> Result<Response, Refusal> {
    let path = target::decode(uri.path())?;
    let target = Target::parse(&path)?;
    signer.check(&path)?;
    let context = Context::of(headers, uri);
    match *method {
        Method::GET => {
            let Query(paging) = Query::<Paging>::try_from_uri(uri)?;
            reading::read(served, signer.tenant(), &target, &paging, &context)
        }
        Method::PUT => writing::put(served, signer, &target, headers, body, &context).await,
        Method::DELETE => writing::delete(served, signer.tenant(), &target).await,
        _ => Err(Refusal::of(
            StatusCode::METHOD_NOT_ALLOWED,
            format!("entities do not support {method}"),
        )),
    }
}
