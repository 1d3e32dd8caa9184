//! HTTP for operators: health and metrics.

use std::fmt::Write as _;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::sync::oneshot;

use crate::broker::Shared;
use crate::exposition::exposition;

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
        let server = axum::serve(listener, routes);
        tokio::select! {
            result = server.into_future() => result,
            // Nobody waits for a slow scraper at the end.
            _ = stopped => Ok(()),
        }
    })
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
