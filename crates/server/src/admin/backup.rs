//! `/v1/backup`: all that is durable, written to the client while the broker continues.
//!
//! The backup is created by a thread of its own, because it reads files, and goes through a short channel to
//! the connection. So a client that reads slowly slows the thread down, and costs no memory.

use std::io::{self, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;

use axum::Extension;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::answer::Refusal;
use super::progress::Progress;
use super::{Served, facts};

/// Size of a chunk, in bytes.
const CHUNK: usize = 64 * 1024;

/// Maximum number of chunks that wait for the client.
const CHUNKS_MAX: usize = 8;

/// A message from the thread to the connection.
enum Part {
    Chunk(Bytes),
    /// The backup is complete. If this is missing, it is not, no matter what became of the thread.
    End,
    Failed(io::Error),
}

/// Makes a backup of everything durable, as one file.
#[utoipa::path(
    get, path = "/v1/backup", operation_id = "make_backup",
    responses((status = 200, content_type = "application/octet-stream", body = [u8]))
)]
pub async fn stream(
    State(served): State<Served>,
    Extension(progress): Extension<Progress>,
) -> Result<Response, Refusal> {
    let permit = Arc::clone(&served.backups)
        .try_acquire_owned()
        .map_err(|_| Refusal::unavailable("another backup is running; try again later"))?;
    let mut parts = write(move |out| facts::backup(&served.shared, out)).map_err(|error| {
        Refusal::unavailable(format!("cannot start the backup thread: {error}"))
    })?;
    // An error that occurs at once can still be reported in the status.
    let first = match parts.recv().await {
        Some(Part::Failed(error)) => return Err(Refusal::unavailable(error.to_string())),
        first => first,
    };
    let body = Backup { first, parts, progress, _permit: permit };
    Ok(([(CONTENT_TYPE, "application/octet-stream")], Body::new(body)).into_response())
}

/// Runs `export` on a thread of its own. Returns the channel on which its output arrives.
fn write(
    export: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static,
) -> io::Result<mpsc::Receiver<Part>> {
    let (parts, received) = mpsc::channel(CHUNKS_MAX);
    thread::Builder::new().name("barid-backup".into()).spawn(move || {
        let mut chunks = Chunks { filling: Vec::with_capacity(CHUNK), parts };
        let outcome = export(&mut chunks).and_then(|()| chunks.flush());
        let last = match outcome {
            Ok(()) => Part::End,
            Err(error) => {
                tracing::error!(%error, "backup failed");
                Part::Failed(error)
            }
        };
        // A client that has closed the connection need not be told.
        let _ = chunks.parts.blocking_send(last);
    })?;
    Ok(received)
}

/// The output of the thread, collected into chunks.
struct Chunks {
    filling: Vec<u8>,
    parts: mpsc::Sender<Part>,
}

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(CHUNK - self.filling.len());
        self.filling.extend_from_slice(&bytes[..taken]);
        if self.filling.len() == CHUNK {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.filling.is_empty() {
            return Ok(());
        }
        let chunk = std::mem::replace(&mut self.filling, Vec::with_capacity(CHUNK));
        self.parts.blocking_send(Part::Chunk(chunk.into())).map_err(|_| {
            io::Error::new(io::ErrorKind::BrokenPipe, "the client closed the connection")
        })
    }
}

/// The body of the response.
struct Backup {
    first: Option<Part>,
    parts: mpsc::Receiver<Part>,
    progress: Progress,
    _permit: OwnedSemaphorePermit,
}

impl HttpBody for Backup {
    type Data = Bytes;
    type Error = io::Error;

    /// An error breaks the connection off, so that the client detects that the backup is incomplete.
    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let part = match self.first.take() {
            Some(part) => Poll::Ready(Some(part)),
            None => self.parts.poll_recv(cx),
        };
        part.map(|part| match part {
            Some(Part::Chunk(bytes)) => {
                self.progress.postpone();
                Some(Ok(Frame::data(bytes)))
            }
            Some(Part::End) => None,
            Some(Part::Failed(error)) => Some(Err(error)),
            None => Some(Err(io::Error::other("the backup thread ended unexpectedly"))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    fn body(
        export: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static,
    ) -> (Vec<u8>, Option<io::Error>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let backups = Arc::new(tokio::sync::Semaphore::new(1));
            let mut body = Backup {
                first: None,
                parts: write(export).unwrap(),
                progress: Progress::new(),
                _permit: backups.try_acquire_owned().unwrap(),
            };
            let mut bytes = Vec::new();
            loop {
                match poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                    None => return (bytes, None),
                    Some(Ok(frame)) => bytes.extend_from_slice(&frame.into_data().unwrap()),
                    Some(Err(error)) => return (bytes, Some(error)),
                }
            }
        })
    }

    #[test]
    fn all_that_is_written_arrives_in_order() {
        let expected: Vec<u8> = (0..3 * CHUNK + 7).map(|n| (n % 251) as u8).collect();
        let written = expected.clone();
        let (bytes, error) =
            body(move |out| written.chunks(1_000).try_for_each(|chunk| out.write_all(chunk)));
        assert!(bytes == expected && error.is_none(), "{error:?}");
    }

    #[test]
    fn an_error_in_the_middle_is_not_the_end() {
        let (bytes, error) = body(|out| {
            out.write_all(&[7; 2 * CHUNK + 1])?;
            Err(io::Error::other("the disk is gone"))
        });
        assert_eq!(bytes.len(), 2 * CHUNK);
        assert_eq!(error.unwrap().to_string(), "the disk is gone");
    }

    #[test]
    fn a_client_that_goes_ends_the_thread() {
        let (told, outcome) = std::sync::mpsc::channel();
        let parts = write(move |out| {
            let outcome = loop {
                if let Err(error) = out.write_all(&[0; CHUNK]) {
                    break error;
                }
            };
            told.send(outcome.kind()).unwrap();
            Err(outcome)
        });
        drop(parts.unwrap());
        assert_eq!(outcome.recv().unwrap(), io::ErrorKind::BrokenPipe);
    }
}
