//! HTTP for operators: health and metrics.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::{Semaphore, oneshot};

use crate::broker::Shared;
use crate::exposition::exposition;

/// Connections at once.
const CONNECTIONS_MAX: usize = 64;

/// How long a request may take to arrive.
const HEADERS_WITHIN: Duration = Duration::from_secs(5);

/// How long a connection may stay, whatever is asked on it.
const CONNECTION_AT_MOST: Duration = Duration::from_secs(60);

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

fn serve(
    listener: TcpListener,
    shared: Arc<Shared>,
    stopped: oneshot::Receiver<()>,
) -> io::Result<()> {
    let routes = Router::new()
        .route("/", get(index))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/metrics", get(metrics))
        .with_state(shared);
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
        let service = TowerToHyperService::new(routes.clone());
        tokio::spawn(async move {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADERS_WITHIN)
                .serve_connection(TokioIo::new(stream), service);
            // What a client of the admin address does wrong is its own affair.
            let _ = tokio::time::timeout(CONNECTION_AT_MOST, connection).await;
            drop(permit);
        });
    }
}

async fn index() -> String {
    let mut text = String::new();
    for (path, what) in [
        ("/healthz", "200 when the broker accepts connections"),
        ("/metrics", "Prometheus text format"),
    ] {
        let _ = writeln!(text, "{path:10} {what}");
    }
    text
}

async fn metrics(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], exposition(&shared))
}
