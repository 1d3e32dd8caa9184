//! Connections to the admin address: a bounded number at once, and none for long. They take file descriptors that
//! the broker's clients need.

use std::convert::Infallible;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::Service;
use super::progress::Progress;
use crate::descriptors::Descriptors;
use crate::rate_limit::Seldom;

/// Connections at once. One more, and the one goes that has kept the broker waiting longest.
const CONNECTIONS_MAX: usize = 64;

/// How long the head of a request may take to arrive, counted from when the one before was answered.
const HEAD_WITHIN: Duration = Duration::from_secs(5);

/// Bytes of the longest head: keys of the state store stand in paths, and percent-encoded take up most of the
/// 65,534 bytes that a target may have.
const HEAD_MAX: usize = 72 * 1024;

/// Header fields of a request.
const FIELDS_MAX: usize = 64;

/// How long nothing is accepted when the operating system has run out of something.
const PAUSE: Duration = Duration::from_millis(50);

/// A connection that is served.
struct Open {
    progress: Progress,
    task: JoinHandle<()>,
}

/// Serves all who come.
pub async fn serve(
    listener: TcpListener,
    service: Service,
    descriptors: Descriptors,
) -> Infallible {
    let mut all: Vec<Open> = Vec::new();
    let (mut failed, mut too_few) = (Seldom::default(), Seldom::default());
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                if let Some(times) = failed.happened(std::time::Instant::now()) {
                    tracing::warn!(%error, times, "accepting on the admin address");
                }
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        if !descriptors.are_enough_for_operator(&stream) {
            if let Some(connections) = too_few.happened(std::time::Instant::now()) {
                tracing::warn!(
                    connections,
                    "closed on the admin address: nearly all file descriptors are in use"
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
        let task = tokio::spawn(speak(stream, service.clone(), progress.clone()));
        all.push(Open { progress, task });
        // Whoever is accepted is served before the next one can push it out.
        tokio::task::yield_now().await;
    }
}

/// Serves one connection, over whatever carries it.
async fn speak(stream: impl AsyncRead + AsyncWrite + Unpin, service: Service, progress: Progress) {
    let answering = progress.clone();
    let answer = service_fn(move |request| {
        let (service, progress) = (service.clone(), answering.clone());
        async move { Ok::<_, Infallible>(service.answer(request, progress).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        // A client that has asked for all it wants may say so, and is answered.
        .half_close(true)
        .max_headers(FIELDS_MAX)
        .max_header_size(HEAD_MAX)
        .max_buf_size(2 * HEAD_MAX)
        .serve_connection(TokioIo::new(stream), answer);
    // What a client of the admin address does wrong is its own affair.
    let _ = progress.bound(connection).await;
}

/// Has a client send some bytes and then nothing more, and returns what it is answered.
pub async fn converse(sent: &[u8], service: Service) -> Vec<u8> {
    let (mut client, server) = tokio::io::duplex(HEAD_MAX);
    let serving = tokio::spawn(speak(server, service, Progress::new()));
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
