//! Credentials, and an HTTP service on loopback, for tests.

use std::convert::Infallible;
use std::future::Future;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

use crate::asker::Asker;
use crate::credentials::{Credentials, Protocol};

/// Returns the credentials of a client with the identifier `c1`.
pub(crate) fn credentials(user: Option<&str>, password: impl AsRef<[u8]>) -> Credentials {
    Credentials {
        user: user.map(Credentials::full),
        password: Some(password.as_ref().into()),
        client_id: "c1".into(),
        address: Ipv4Addr::new(192, 0, 2, 7).into(),
        certificate: None,
        protocol: Protocol::Mqtt,
        is_known: true,
    }
}

/// A request that the service has received.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) method: Method,
    pub(crate) target: String,
    pub(crate) headers: hyper::HeaderMap,
    pub(crate) body: String,
}

/// The requests that a service has received.
pub(crate) type Log = Arc<Mutex<Vec<Received>>>;

/// Starts a service that answers each request with status and body, and returns its URL and its log.
pub(crate) async fn serve(
    answer: impl Fn(&Received) -> (u16, String) + Clone + Send + Sync + 'static,
) -> (String, Log) {
    serve_after(Duration::ZERO, answer).await
}

/// As [`serve`], with a delay before each answer.
pub(crate) async fn serve_after(
    delay: Duration,
    answer: impl Fn(&Received) -> (u16, String) + Clone + Send + Sync + 'static,
) -> (String, Log) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let log = Log::default();
    let kept = Arc::clone(&log);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (answer, log) = (answer.clone(), Arc::clone(&kept));
            tokio::spawn(serve_one(stream, move |received| {
                let answered = answer(&received);
                log.lock().push(received);
                async move {
                    tokio::time::sleep(delay).await;
                    answered
                }
            }));
        }
    });
    (url, log)
}

/// Serves one connection.
pub(crate) async fn serve_one<S, F>(stream: S, answer: impl Fn(Received) -> F)
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = (u16, String)>,
{
    let answer = &answer;
    let service = service_fn(|request: Request<Incoming>| async move {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let received = Received {
            method: head.method,
            target: head.uri.to_string(),
            headers: head.headers,
            body: String::from_utf8_lossy(&body).into_owned(),
        };
        let (status, body) = answer(received).await;
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = status.try_into().unwrap();
        Ok::<_, Infallible>(response)
    });
    // The client may go at any time.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// Returns a client that logs in, from an address that is the same for all.
pub(crate) fn asker(tenant: &str) -> Asker<'_> {
    Asker { tenant, address: Ipv4Addr::new(192, 0, 2, 7).into() }
}
