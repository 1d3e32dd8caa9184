//! Requests that another broker answers: those about what belongs to a tenant as a whole, and about a session that is not here,
//! which the broker that has it answers, and those that name a broker.
//!
//! They pass over a link of their own, as a client does that belongs to another broker. That broker checks them once more:
//! it has the same tokens, keys and bans.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{CONNECTION, HeaderName, HeaderValue, TRANSFER_ENCODING};
use axum::response::{IntoResponse as _, Response};
use barid_engine::amqp::Keys as _;
use barid_engine::cluster::Owner;
use barid_peers::Protocol;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode_str;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::access::Remote;
use super::answer::Refusal;
use crate::cluster::{Guest, Wanted};
use crate::shared::Shared;

/// Time in which there must be a link to the other broker.
const LINK_WITHIN: Duration = Duration::from_secs(10);

/// Time in which the other broker must begin to answer: a request may wait for its disk.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// What the admin API has of a tenant as a whole, as the beginnings of its paths.
const OF_TENANT: [&str; 5] = [
    "/v1/tenants/{tenant}/state",
    "/v1/tenants/{tenant}/queues",
    "/v1/tenants/{tenant}/topics",
    "/v1/tenants/{tenant}/bindings",
    "/v1/tenants/{tenant}/amqp-connections",
];

/// The paths of one session. Sessions that outlive their connections are at the broker of their slot; others are where their
/// clients are, which no broker knows of the others.
pub const OF_SESSION: [&str; 2] =
    ["/v1/tenants/{tenant}/sessions/{client}", "/v1/tenants/{tenant}/clients/{client}"];

/// The path of one slot, which the broker that has it moves.
const SLOT: &str = "/v1/cluster/slots/{slot}";

/// Header that names the broker of the cluster that is to answer.
pub const BROKER: HeaderName = HeaderName::from_static("barid-broker");

/// Header of a request that needs a token, as one from another machine does, also at the broker to which it is passed on.
pub const NEEDS_TOKEN: HeaderName = HeaderName::from_static("barid-needs-token");

/// Marks a request that another broker passes on. It is answered here.
#[derive(Clone, Copy, Debug)]
pub struct PassedOn;

/// Returns the name of the broker that has to answer a request of the admin API, if that is another one. `path` is that of
/// the routes.
///
/// # Errors
/// The request names a broker that does not exist.
pub fn answers_instead(
    shared: &Shared,
    path: &str,
    request: &Request,
) -> Result<Option<Box<str>>, Refusal> {
    if request.extensions().get::<PassedOn>().is_some() {
        return Ok(None);
    }
    if path == SLOT {
        return Ok(owner_of_slot(shared, request));
    }
    if is_of_tenant(path) && shared.cluster.as_ref().is_some_and(|it| it.slots().is_some()) {
        return Ok(home_of(shared, request));
    }
    let Some(named) = request.headers().get(BROKER) else {
        let is_of_session = OF_SESSION.contains(&path);
        return Ok(is_of_session.then(|| home_of_session(shared, request)).flatten());
    };
    let named = named.to_str().unwrap_or_default();
    let cluster = shared.cluster.as_ref();
    if cluster.is_some_and(|cluster| cluster.name() == named) {
        return Ok(None);
    }
    let Some(cluster) = cluster else {
        let sentence =
            format!("there is no broker {named:?}: this one does not belong to a cluster");
        return Err(Refusal::not_found(sentence));
    };
    cluster.knows(named).then(|| Some(named.into())).ok_or_else(|| {
        Refusal::not_found(format!(
            "there is no broker {named:?} in the cluster of this one; GET /v1/cluster lists all"
        ))
    })
}

/// Whether a path, as it is in the routes, is about what a tenant has at one broker.
pub fn is_of_tenant(path: &str) -> bool {
    OF_TENANT.iter().any(|known| path.starts_with(known))
}

/// Returns the broker that has what a request is about, if that is another one.
fn home_of(shared: &Shared, request: &Request) -> Option<Box<str>> {
    // The rest of the path may be no text: names of keys are bytes.
    let (tenant, _) = tenant_of(request)?;
    shared.home_elsewhere(&tenant)
}

/// Returns the tenant in the path of a request, and the rest of the path as it is.
fn tenant_of(request: &Request) -> Option<(Cow<'_, str>, &str)> {
    let (tenant, rest) = request.uri().path().strip_prefix("/v1/tenants/")?.split_once('/')?;
    Some((percent_decode_str(tenant).decode_utf8().ok()?, rest))
}

/// Returns the broker that has the session that a request is about, if it can only be at another one.
fn home_of_session(shared: &Shared, request: &Request) -> Option<Box<str>> {
    let (tenant, rest) = tenant_of(request)?;
    let (_, client) = rest.split_once('/')?;
    let client = percent_decode_str(client).decode_utf8().ok()?;
    let of_tenant = shared.engine.tenants.get(&tenant);
    if of_tenant.is_some_and(|tenant| tenant.sessions.entry(&client).get().is_some()) {
        return None;
    }
    let cluster = shared.cluster.as_ref()?;
    let home = cluster.session_elsewhere(&tenant, &client)?;
    // Its slot is being moved otherwise.
    (*home != *cluster.name()).then(|| (*home).into())
}

/// Returns the broker that has the slot that a request is about, if that is another one.
fn owner_of_slot(shared: &Shared, request: &Request) -> Option<Box<str>> {
    let slots = shared.cluster.as_ref()?.slots()?;
    let (_, slot) = request.uri().path().rsplit_once('/')?;
    match slots.owner(slot.parse().ok().filter(|slot| *slot < slots.count())?) {
        Owner::Elsewhere(broker) => Some((*broker).into()),
        Owner::Here | Owner::Closed => None,
    }
}

/// Passes a request on to the broker of this name, and returns its answer. `listener`: the address that the client has reached.
pub async fn to_home(
    shared: &Shared,
    home: Box<str>,
    (protocol, listener): (Protocol, SocketAddr),
    request: Request,
) -> Response {
    let answered = pass_on(shared, home, (protocol, listener), request).await;
    answered.unwrap_or_else(|sentence| Refusal::unavailable(sentence).into_response())
}

async fn pass_on(
    shared: &Shared,
    home: Box<str>,
    (protocol, listener): (Protocol, SocketAddr),
    mut request: Request,
) -> Result<Response, String> {
    let broken = |error: hyper::Error| format!("the broker {home} has not answered: {error}");
    let unspecified = SocketAddr::from(([0; 4], 0));
    let address = request.extensions().get::<SocketAddr>().copied().unwrap_or(unspecified);
    if request.extensions().get::<Remote>().is_some() {
        request.headers_mut().insert(NEEDS_TOKEN, HeaderValue::from_static("yes"));
    }
    let (reply, link) = oneshot::channel();
    let reply = Box::new(move |link| drop(reply.send(link)));
    let certificate = Box::default();
    let client = Guest { home: home.clone(), address, protocol, listener, certificate };
    let cluster = shared.cluster.as_ref().expect("there are other brokers");
    let (wanted, _waiting) = Wanted::new(client, reply);
    cluster.relays.want(wanted);
    let link = match timeout(LINK_WITHIN, link).await {
        Ok(Ok(link)) => link.map_err(|reason| reason.to_string())?,
        _ => return Err(format!("no link to the broker {home} in time")),
    };
    let (mut sender, connection) = http1::handshake(TokioIo::new(link)).await.map_err(broken)?;
    // It ends with the answer, or with the other broker.
    tokio::spawn(connection);
    let answer = timeout(ANSWER_WITHIN, sender.send_request(request)).await;
    let answer = answer.map_err(|_| format!("the broker {home} has not answered in time"))?;
    let mut response = answer.map_err(broken)?;
    response.headers_mut().remove(CONNECTION);
    response.headers_mut().remove(TRANSFER_ENCODING);
    Ok(response.map(Body::new))
}
