//! HTTP for operators: health, metrics, and under `/v1` the JSON API that the tools of `barid` use. On an address of
//! its own, the administration protocol of Service Bus.
//!
//! `docs/operating/admin-api.md` is the contract.

mod access;
mod amqp_connections;
mod answer;
mod backup;
mod body;
mod broker;
mod changing;
mod clients;
mod cluster;
mod connections;
mod contents;
mod dashboard;
mod denials;
mod drops;
mod entities;
mod events;
mod facts;
mod gathered;
mod guard;
mod health;
mod history;
mod logins;
mod managed;
mod observed;
mod openapi;
mod page;
mod passing_on;
mod progress;
mod publish;
mod quotas;
mod readable;
mod receivers;
mod request_rate;
mod retained;
mod rfc3339;
mod routes;
mod service_bus;
mod sessions;
mod shards;
mod state;
mod streams;
mod tenants;
mod trace;
mod users;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody, to_bytes};
use axum::extract::State;
use axum::http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderName, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Request, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use barid_engine::lanes::Lanes;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use crate::descriptors::Descriptors;
use crate::exposition::exposition;
use crate::listener::Bound;
use crate::shared::Shared;
use answer::Refusal;
pub use connections::Encryption;
use history::History;
use progress::Progress;
use request_rate::RequestRate;
use trace::Traces;

/// Maximum time for the body of a request to arrive. Beyond it, the request is refused with 408.
const BODY_WITHIN: Duration = Duration::from_secs(5);

/// Maximum length of a body, in bytes. The longest useful ones are the properties of an entity. Longer ones
/// are refused with 413.
const BODY_MAX: usize = 256 * 1024;

/// Maximum number of requests that are answered at a time, each on a thread: some visit all sessions, wait
/// for the disk, or read from it. Other requests wait.
const ANSWERED_TOGETHER: usize = 8;

/// Time that pending answers have at the end of the broker.
const FAREWELL: Duration = Duration::from_secs(1);

/// Header that keeps pages of other sites from loading an answer as an image or a script, in browsers on this
/// machine.
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// The admin address, bound but not listening, and the runtime that is to serve it.
pub struct BoundAdmin {
    bound: Bound,
    runtime: Runtime,
}

/// A further address, bound but not listening.
pub struct BoundHttp {
    pub bound: Bound,
    pub encryption: Option<Encryption>,
}

/// The admin address, listening. Clients can connect, and are not served yet.
pub struct ListeningAdmin {
    address: SocketAddr,
    listener: tokio::net::TcpListener,
    https: Option<ListeningHttp>,
    management: Option<ListeningHttp>,
    runtime: Runtime,
}

/// A further address, listening.
struct ListeningHttp {
    address: SocketAddr,
    listener: tokio::net::TcpListener,
    encryption: Option<Encryption>,
}

/// The HTTP server, on a thread of its own.
pub struct Admin {
    address: SocketAddr,
    https: Option<(SocketAddr, Option<Encryption>)>,
    management: Option<(SocketAddr, Option<Encryption>)>,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl BoundAdmin {
    /// Binds the address.
    pub fn to(address: SocketAddr) -> io::Result<Self> {
        let bound = Bound::to(address)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(2 * ANSWERED_TOGETHER)
            .thread_name("barid-answer")
            .build()?;
        Ok(Self { bound, runtime })
    }

    /// Starts to listen, so that clients can connect.
    pub fn listen(self) -> io::Result<ListeningAdmin> {
        let Self { bound, runtime } = self;
        let address = bound.address();
        let listener = {
            let _entered = runtime.enter();
            tokio::net::TcpListener::from_std(bound.listen()?)?
        };
        Ok(ListeningAdmin { address, listener, https: None, management: None, runtime })
    }
}

impl ListeningAdmin {
    /// Also starts to listen for operators who connect over TLS.
    pub fn listen_over_tls(&mut self, bound: BoundHttp) -> io::Result<()> {
        self.https = Some(self.listen_on(bound)?);
        Ok(())
    }

    /// Also starts to listen for administration clients of Service Bus.
    pub fn listen_for_management(&mut self, bound: BoundHttp) -> io::Result<()> {
        self.management = Some(self.listen_on(bound)?);
        Ok(())
    }

    fn listen_on(&self, bound: BoundHttp) -> io::Result<ListeningHttp> {
        let BoundHttp { bound, encryption } = bound;
        let address = bound.address();
        let _entered = self.runtime.enter();
        let listener = tokio::net::TcpListener::from_std(bound.listen()?)?;
        Ok(ListeningHttp { address, listener, encryption })
    }

    /// Starts the thread that serves.
    pub fn start(self, shared: Arc<Shared>, lanes: Lanes, descriptors: Descriptors) -> Admin {
        let Self { address, listener, https, management, runtime } = self;
        let serving = |one: &Option<ListeningHttp>| {
            one.as_ref().map(|one| (one.address, one.encryption.clone()))
        };
        let (over_tls, for_service_bus) = (serving(&https), serving(&management));
        let (stop, stopped) = oneshot::channel();
        let serve = move || {
            runtime.block_on(async {
                let served = Served::new(shared, lanes);
                let (shared, history) = (Arc::clone(&served.shared), Arc::clone(&served.history));
                let remote = async {
                    match https {
                        Some(ListeningHttp { listener, encryption, .. }) => {
                            let service = Service::over_tls(served.clone());
                            connections::serve(listener, encryption, service, descriptors).await
                        }
                        None => std::future::pending().await,
                    }
                };
                let manage = async {
                    match management {
                        Some(ListeningHttp { address, listener, encryption }) => {
                            let service = Service::of_service_bus(served.clone(), address);
                            connections::serve(listener, encryption, service, descriptors).await
                        }
                        None => std::future::pending().await,
                    }
                };
                let operators = shared.cluster.as_ref().and_then(|it| it.relays.take_operators());
                let passed_on = async {
                    match operators {
                        Some(operators) => connections::serve_passed_on(operators, &served).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    never = passed_on => match never {},
                    never = connections::serve(listener, None, Service::new(served.clone()), descriptors) => match never {},
                    never = remote => match never {},
                    never = manage => match never {},
                    never = history.run(&shared) => match never {},
                    // At the end, a slow client is not waited for.
                    _ = stopped => {}
                }
            });
            runtime.shutdown_timeout(FAREWELL);
        };
        let thread = thread::Builder::new()
            .name("barid-admin".into())
            .spawn(serve)
            .expect("the operating system has room for a thread");
        Admin { address, https: over_tls, management: for_service_bus, stop, thread }
    }
}

impl Admin {
    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address for administration clients of Service Bus.
    pub fn management(&self) -> Option<SocketAddr> {
        self.management.as_ref().map(|(address, _)| *address)
    }

    /// Returns the address for operators who connect over TLS.
    pub fn https(&self) -> Option<SocketAddr> {
        self.https.as_ref().map(|(address, _)| *address)
    }

    /// Returns the TLS of all these addresses.
    pub fn encryptions(&self) -> impl Iterator<Item = &Encryption> {
        [&self.https, &self.management].into_iter().flatten().filter_map(|(_, tls)| tls.as_ref())
    }

    /// Stops the server.
    pub fn stop(self) {
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

/// Answers the requests in `sent`, as if they had arrived over one connection, until there are no more. For
/// tests and fuzzing.
///
/// # Errors
/// Fails if the operating system refuses the resources of a runtime.
pub fn converse(shared: &Arc<Shared>, lanes: &Lanes, sent: &[u8]) -> io::Result<Vec<u8>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let service = Service::new(Served::new(Arc::clone(shared), lanes.clone()));
    let answered = runtime.block_on(connections::converse(sent, service));
    runtime.shutdown_background();
    Ok(answered)
}

/// State that all requests share.
#[derive(Clone)]
struct Served {
    shared: Arc<Shared>,
    /// The thread of bindings to MQTT, which is notified when bindings change.
    lanes: Lanes,
    /// Permits one backup at a time, because each keeps the store from discarding the files that it reads.
    backups: Arc<Semaphore>,
    /// A permit for each request that is answered.
    answering: Arc<Semaphore>,
    /// The same for requests that other brokers pass on. Two brokers that wait for each other need permits of two kinds.
    answering_others: Arc<Semaphore>,
    /// A permit for each stream of events.
    streams: Arc<Semaphore>,
    /// The clients that are traced.
    traces: Arc<Traces>,
    /// The requests of each token.
    rate: Arc<RequestRate>,
    /// The rates of the last hours.
    history: Arc<History>,
}

impl Served {
    fn new(shared: Arc<Shared>, lanes: Lanes) -> Self {
        let backups = Arc::new(Semaphore::new(1));
        let answering = Arc::new(Semaphore::new(ANSWERED_TOGETHER));
        let answering_others = Arc::new(Semaphore::new(ANSWERED_TOGETHER));
        let streams = Arc::new(Semaphore::new(streams::STREAMS_MAX));
        let history = Arc::new(History::new());
        Self {
            shared,
            lanes,
            backups,
            answering,
            answering_others,
            streams,
            traces: Arc::default(),
            rate: Arc::default(),
            history,
        }
    }
}

type Check = Arc<dyn Fn(&Parts) -> Result<(), Refusal> + Send + Sync>;

/// The service that answers requests, independent of the connection.
#[derive(Clone)]
struct Service {
    routes: TowerToHyperService<Router>,
    /// Refuses requests, no matter what they ask for.
    check: Check,
    /// Whether requests come over TLS, perhaps from other machines.
    is_remote: bool,
    /// Whether another broker passes the requests on.
    is_passed_on: bool,
    answering: Arc<Semaphore>,
}

impl Service {
    /// The admin API over TLS.
    fn over_tls(served: Served) -> Self {
        let shared = Arc::clone(&served.shared);
        let check = Arc::new(move |parts: &Parts| {
            guard::check_over_tls(parts, |host| shared.is_certified(host))
        });
        Self { check, is_remote: true, ..Self::new(served) }
    }

    /// The admin API, for this machine.
    fn new(served: Served) -> Self {
        let answering = Arc::clone(&served.answering);
        let routes = routes::all()
            .route_layer(from_fn_with_state(served.clone(), access::check))
            .fallback(answer::no_such_path)
            .method_not_allowed_fallback(answer::no_such_method)
            .with_state(served);
        let routes = TowerToHyperService::new(routes);
        let check = Arc::new(guard::check);
        Self { routes, check, is_remote: false, is_passed_on: false, answering }
    }

    /// The same for requests that another broker passes on, which has checked whom they are meant for.
    fn passed_on(self, served: &Served) -> Self {
        let answering = Arc::clone(&served.answering_others);
        Self { check: Arc::new(guard::check_length), is_passed_on: true, answering, ..self }
    }

    /// The administration protocol of Service Bus, on a listener with this address. Every request is signed, so
    /// none comes from a browser without its user's knowledge.
    fn of_service_bus(served: Served, listener: SocketAddr) -> Self {
        let answering = Arc::clone(&served.answering);
        let routes = service_bus::routes(served, listener);
        let routes = TowerToHyperService::new(routes);
        let check = Arc::new(guard::check_length);
        Self { routes, check, is_remote: false, is_passed_on: false, answering }
    }

    /// Answers a request. If its head or body is refused, the connection is closed after the answer, because
    /// the body has not been read.
    async fn answer<B>(&self, request: Request<B>, progress: Progress) -> Response
    where
        B: HttpBody<Data = Bytes, Error: Into<axum::BoxError>> + Send + 'static,
    {
        let (parts, body) = request.into_parts();
        let body = match (self.check)(&parts) {
            Ok(()) => read(body).await,
            Err(refusal) => Err(refusal),
        };
        let mut response = match body {
            Ok(body) => {
                progress.answers();
                let mut request = Request::from_parts(parts, Body::from(body));
                request.extensions_mut().insert(progress.clone());
                let needs_token = request.headers().contains_key(passing_on::NEEDS_TOKEN);
                if self.is_remote || self.is_passed_on && needs_token {
                    request.extensions_mut().insert(access::Remote);
                }
                if self.is_passed_on {
                    request.extensions_mut().insert(passing_on::PassedOn);
                }
                let response = self.dispatch(request).await;
                progress.waits();
                response
            }
            Err(refusal) => {
                let mut response = refusal.into_response();
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                response
            }
        };
        let headers = response.headers_mut();
        for (name, value) in [
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (RESOURCE_POLICY, "same-origin"),
            (CACHE_CONTROL, "no-store"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }

    /// Answers a request on a thread. Questions for the broker's health are answered at once, no matter how
    /// many requests wait for a thread.
    async fn dispatch(&self, request: Request<Body>) -> Response {
        let routes = self.routes.clone();
        if matches!(request.uri().path(), "/healthz" | "/health") {
            let Ok(response) = routes.call(request).await;
            return response;
        }
        let permit = Arc::clone(&self.answering).acquire_owned().await;
        let runtime = Handle::current();
        let answering = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let Ok(response) = runtime.block_on(routes.call(request));
            response
        });
        answering
            .await
            .unwrap_or_else(|_| Refusal::unavailable("the broker is stopping").into_response())
    }
}

/// Reads the body of a request, within [`BODY_WITHIN`].
async fn read<B>(body: B) -> Result<Bytes, Refusal>
where
    B: HttpBody<Data = Bytes, Error: Into<axum::BoxError>> + Send + 'static,
{
    if body.size_hint().lower() > BODY_MAX as u64 {
        let sentence = format!("the body has more than {BODY_MAX} bytes");
        return Err(Refusal::of(StatusCode::PAYLOAD_TOO_LARGE, sentence));
    }
    match timeout(BODY_WITHIN, to_bytes(Body::new(body), BODY_MAX)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(_)) => Err(Refusal::bad_request("the body is incomplete")),
        Err(_) => {
            let sentence = format!("the body did not arrive within {} s", BODY_WITHIN.as_secs());
            Err(Refusal::of(StatusCode::REQUEST_TIMEOUT, sentence))
        }
    }
}

/// Tells all metrics, in the text format of Prometheus.
#[utoipa::path(
    get, path = "/metrics", operation_id = "show_metrics",
    responses((status = 200, content_type = "text/plain", body = String))
)]
async fn metrics(State(served): State<Served>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], exposition(&served.shared))
}
