//! HTTP for operators: health and metrics, and under `/v1` what the tools of `barid` ask for, in JSON.
//!
//! `docs/operating/admin-api.md` is the contract.

mod amqp_connections;
mod answer;
mod backup;
mod deadline;
mod denials;
mod drops;
mod entities;
mod facts;
mod health;
mod rfc3339;
mod sessions;
mod state;
mod tenants;

use std::convert::Infallible;
use std::fmt::Write as _;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::{delete, get};
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::{Semaphore, oneshot};

use crate::broker::Shared;
use crate::exposition::exposition;
use deadline::Deadline;

/// Connections at once.
const CONNECTIONS_MAX: usize = 64;

/// How long a request may take to arrive.
const HEADERS_WITHIN: Duration = Duration::from_secs(5);

/// How long nothing is accepted when the operating system has run out of something.
const PAUSE: Duration = Duration::from_millis(50);

/// The HTTP server, on a thread of its own.
pub struct Admin {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Admin {
    /// Starts to serve.
    pub fn start(shared: Arc<Shared>) -> Result<Self, crate::StartError> {
        let wanted = shared.settings().admin.address;
        let listener = TcpListener::bind(wanted).map_err(|source| crate::StartError::Listen {
            name: "admin",
            address: wanted,
            source,
        })?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name("barid-admin".into()).spawn(move || {
            if let Err(error) = serve(listener, shared, stopped) {
                tracing::error!(%error, "the admin address is not served any more");
            }
        })?;
        Ok(Self { address, stop, thread })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops.
    pub fn stop(self) {
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

/// What all requests share.
#[derive(Clone)]
struct Served {
    shared: Arc<Shared>,
    /// One backup at a time: each holds back the store from forgetting what it is reading.
    backups: Arc<Semaphore>,
}

fn serve(
    listener: TcpListener,
    shared: Arc<Shared>,
    stopped: oneshot::Receiver<()>,
) -> io::Result<()> {
    let routes = Router::new()
        .route("/", get(index))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/health", get(health::health))
        .route("/metrics", get(metrics))
        .route("/v1/tenants", get(tenants::list))
        .route("/v1/tenants/{tenant}/sessions", get(sessions::list))
        .route("/v1/tenants/{tenant}/sessions/{client}", get(sessions::show).delete(sessions::end))
        .route("/v1/tenants/{tenant}/drops", get(drops::list))
        .route("/v1/tenants/{tenant}/denials", get(denials::list))
        .route("/v1/tenants/{tenant}/amqp-connections", get(amqp_connections::list))
        .route("/v1/tenants/{tenant}/amqp-connections/{id}", delete(amqp_connections::close))
        .route("/v1/tenants/{tenant}/state", get(state::list))
        .route("/v1/tenants/{tenant}/state/{key}", get(state::show))
        .nest("/v1/tenants/{tenant}", entities::routes())
        .route("/v1/backup", get(backup::stream))
        .fallback(answer::no_such_path)
        .method_not_allowed_fallback(answer::no_such_method)
        .with_state(Served { shared, backups: Arc::new(Semaphore::new(1)) });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        tokio::select! {
            never = accept(listener, routes) => match never {},
            // Nobody waits for a slow scraper at the end.
            _ = stopped => Ok(()),
        }
    })
}

/// Serves all who come, a bounded number at once and none for long: they take file descriptors that the
/// broker's clients need.
async fn accept(listener: tokio::net::TcpListener, routes: Router) -> Infallible {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let permit = Arc::clone(&room).acquire_owned().await.expect("nobody closes it");
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "accepting on the admin address");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let deadline = Deadline::default();
        let routes = routes.clone().layer(Extension(deadline.clone()));
        let service = TowerToHyperService::new(routes);
        tokio::spawn(async move {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADERS_WITHIN)
                .serve_connection(TokioIo::new(stream), service);
            // What a client of the admin address does wrong is its own affair.
            let _ = deadline.bound(connection).await;
            drop(permit);
        });
    }
}

async fn index() -> String {
    let mut text = String::new();
    for (path, what) in [
        ("/healthz", "200 when the broker accepts connections"),
        ("/health", "the same, as the emulator for Service Bus has it"),
        ("/metrics", "Prometheus text format"),
        ("/v1/tenants", "tenants; JSON, like all below /v1"),
        ("/v1/tenants/{tenant}/sessions", "its sessions, by client identifier"),
        ("/v1/tenants/{tenant}/sessions/{client}", "one session; DELETE ends it"),
        ("/v1/tenants/{tenant}/drops", "messages that were dropped, and why"),
        ("/v1/tenants/{tenant}/denials", "what clients were not allowed to do, and why"),
        (
            "/v1/tenants/{tenant}/amqp-connections",
            "clients connected over AMQP; DELETE …/{id} closes one",
        ),
        ("/v1/tenants/{tenant}/state", "keys of its state store"),
        ("/v1/tenants/{tenant}/state/{key}", "one key, with its value"),
        ("/v1/tenants/{tenant}/queues", "its queues"),
        ("/v1/tenants/{tenant}/queues/{queue}", "one queue; PUT, PATCH and DELETE change it"),
        ("/v1/tenants/{tenant}/queues/{queue}/messages", "what lies in it; DELETE removes it"),
        ("/v1/tenants/{tenant}/queues/{queue}/sessions", "sessions of it"),
        ("/v1/tenants/{tenant}/topics", "its topics"),
        ("/v1/tenants/{tenant}/topics/{topic}", "one topic; PUT, PATCH and DELETE change it"),
        (
            "/v1/tenants/{tenant}/topics/{topic}/subscriptions",
            "its subscriptions, each like a queue",
        ),
        ("…/subscriptions/{subscription}/rules/{rule}", "one rule; PUT and DELETE change it"),
        ("/v1/tenants/{tenant}/bindings/{binding}", "what joins MQTT clients and entities"),
        ("/v1/backup", "all that is durable, as one file"),
    ] {
        let _ = writeln!(text, "{path:40} {what}");
    }
    text
}

async fn metrics(State(served): State<Served>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], exposition(&served.shared))
}
