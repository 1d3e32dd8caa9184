//! Connections to an HTTP address for operators. Their number and their duration are limited, because they take file
//! descriptors that the broker's clients need.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use barid_peers::Protocol;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::RwLock;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::progress::Progress;
use super::{Served, Service};
use crate::cluster::Operator;
use crate::descriptors::Descriptors;
use crate::rate_limit::Seldom;

/// Maximum number of connections at once. If there is one more, the one is closed that has kept the broker
/// waiting longest (see [`Progress::rank`]).
const CONNECTIONS_MAX: usize = 64;

/// Maximum time for the head of a request to arrive, from the answer to the previous request on.
const HEAD_WITHIN: Duration = Duration::from_secs(5);

/// Maximum length of a head, in bytes. Keys of the state store are in paths, and percent-encoded they take up
/// most of the 65,534 bytes that a target may have.
const HEAD_MAX: usize = 72 * 1024;

/// Maximum number of header fields of a request.
const FIELDS_MAX: usize = 64;

/// Pause in accepting when the operating system has run out of a resource.
const PAUSE: Duration = Duration::from_millis(50);

/// First byte of a connection over TLS: the content type of a handshake (RFC 8446, 5.1). No HTTP request begins
/// with it.
const TLS_HANDSHAKE: u8 = 22;

/// TLS on an address.
#[derive(Clone)]
pub struct Encryption {
    /// The certificates, which can be replaced.
    pub config: Arc<RwLock<Arc<ServerConfig>>>,
    /// Whether connections without TLS are closed.
    pub is_required: bool,
}

/// A connection that is served.
struct Open {
    progress: Progress,
    task: JoinHandle<()>,
}

/// Accepts and serves connections: over TLS those that begin with it, if there is `encryption`.
pub async fn serve(
    listener: TcpListener,
    encryption: Option<Encryption>,
    service: Service,
    descriptors: Descriptors,
) -> Infallible {
    let mut all: Vec<Open> = Vec::new();
    let (mut failed, mut too_few) = (Seldom::default(), Seldom::default());
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                if let Some(times) = failed.happened(std::time::Instant::now()) {
                    tracing::warn!(%error, times, "cannot accept connections on the admin address");
                }
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        if !descriptors.are_enough_for_operator(&stream) {
            if let Some(connections) = too_few.happened(std::time::Instant::now()) {
                tracing::warn!(
                    connections,
                    "closed connections to the admin address: nearly all file descriptors are in use; \
                     raise the limit (`ulimit -n`, systemd: LimitNOFILE)"
                );
            }
            continue;
        }
        all.retain(|open| !open.task.is_finished());
        if all.len() >= CONNECTIONS_MAX {
            let first = (0..all.len()).min_by_key(|index| all[*index].progress.rank());
            all.swap_remove(first.expect("there are some")).task.abort();
        }
        let progress = Progress::new();
        let connection =
            open(stream, address, encryption.clone(), service.clone(), progress.clone());
        let task = tokio::spawn(connection);
        all.push(Open { progress, task });
        // The new connection is served before the next one can displace it.
        tokio::task::yield_now().await;
    }
}

/// Serves operators whose requests other brokers pass on. There are no more of them than those brokers have connections.
pub async fn serve_passed_on(
    mut operators: mpsc::Receiver<Operator>,
    served: &Served,
) -> Infallible {
    let admin = Service::new(served.clone()).passed_on(served);
    while let Some(operator) = operators.recv().await {
        let Operator { stream, address, protocol, listener, counted } = operator;
        let service = match protocol {
            Protocol::Management => {
                Service::of_service_bus(served.clone(), listener).passed_on(served)
            }
            _ => admin.clone(),
        };
        tokio::spawn(async move {
            let _counted = counted;
            speak(stream, Some(address), service, Progress::new()).await;
        });
    }
    std::future::pending().await
}

/// Serves one connection, with TLS if it begins with that.
async fn open(
    stream: TcpStream,
    address: SocketAddr,
    encryption: Option<Encryption>,
    service: Service,
    progress: Progress,
) {
    let Some(Encryption { config, is_required }) = encryption else {
        return speak(stream, Some(address), service, progress).await;
    };
    let mut first = [0];
    match timeout(HEAD_WITHIN, stream.peek(&mut first)).await {
        Ok(Ok(1)) if first[0] == TLS_HANDSHAKE => {}
        Ok(Ok(1)) if !is_required => return speak(stream, Some(address), service, progress).await,
        _ => return,
    }
    let acceptor = TlsAcceptor::from(Arc::clone(&config.read()));
    if let Ok(Ok(stream)) = timeout(HEAD_WITHIN, acceptor.accept(stream)).await {
        speak(stream, Some(address), service, progress).await;
    }
}

/// Serves one connection, over any stream.
async fn speak(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    requester: Option<SocketAddr>,
    service: Service,
    progress: Progress,
) {
    let answering = progress.clone();
    let answer = service_fn(move |mut request: Request<Incoming>| {
        if let Some(address) = requester {
            request.extensions_mut().insert(address);
        }
        let (service, progress) = (service.clone(), answering.clone());
        async move { Ok::<_, Infallible>(service.answer(request, progress).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        // A client may close its side after its last request, and is still answered.
        .half_close(true)
        .max_headers(FIELDS_MAX)
        .max_header_size(HEAD_MAX)
        .max_buf_size(2 * HEAD_MAX)
        .serve_connection(TokioIo::new(stream), answer);
    // Errors of a client concern only that client.
    let _ = progress.bound(connection).await;
}

/// Answers a client that sends `sent` and closes its side. Returns the answers.
pub async fn converse(sent: &[u8], service: Service) -> Vec<u8> {
    let (mut client, server) = tokio::io::duplex(HEAD_MAX);
    let serving = tokio::spawn(speak(server, None, service, Progress::new()));
    let (mut reading, mut writing) = tokio::io::split(&mut client);
    let send = async {
        // The server may have closed the connection already.
        let _ = writing.write_all(sent).await;
        let _ = writing.shutdown().await;
    };
    let mut answered = Vec::new();
    let (_, read) = tokio::join!(send, reading.read_to_end(&mut answered));
    read.expect("nothing of it is outside of this process");
    serving.await.expect("serving does not panic");
    answered
}
