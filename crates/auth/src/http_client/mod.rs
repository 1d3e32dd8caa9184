//! A small HTTP/1.1 client for services that the operator has configured.

mod resolver;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{HeaderValue, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tokio::time::{Instant, timeout_at};

use crate::asker::Asker;
use crate::gate::Gate;
use resolver::Resolver;

/// Range of timeouts, in milliseconds. Few clients wait longer than half a minute for the answer to a login.
pub(crate) const REQUEST_TIMEOUTS_MS: RangeInclusive<u64> = 100..=30_000;

/// Time after which an idle connection is closed. Most services keep idle connections for longer, so they rarely
/// close one at the moment at which a request is written to it.
const IDLE: Duration = Duration::from_secs(30);

/// Maximum length of the head of an answer, in bytes.
const HEAD_MAX: usize = 32 * 1024;

/// Maximum number of headers of an answer.
const HEADERS_MAX: usize = 100;

/// Number of times that a request is sent. The service may close an idle connection at the moment at which a
/// request is written to it; the request is sent once more then, over another connection.
const ATTEMPTS: usize = 2;

/// Maximum number of askers that wait until one request is answered. A service that answers within 20 ms serves so
/// many in the default timeout; more would wait in vain. Beyond it, a client is told that the server is busy.
const WAITING_PER_REQUEST: usize = 256;

/// A small HTTP/1.1 client. It keeps connections, follows no redirects, and sends no cookies.
pub(crate) struct HttpClient {
    client: Client<HttpsConnector<HttpConnector<Resolver>>, Full<Bytes>>,
    gate: Arc<Gate>,
    /// Whether the last request had no answer.
    is_failing: AtomicBool,
    options: Options,
}

/// Bounds of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// Time within which a request is answered, including the time for which it waits for its turn.
    pub(crate) timeout: Duration,
    /// Maximum number of requests at a time. Others wait in turns.
    pub(crate) requests: usize,
    /// Maximum length of the body of an answer, in bytes.
    pub(crate) body_max: usize,
}

/// The answer of a service.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

/// Reason for which there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoReply {
    /// Too many wait, most of them from the same tenant and address.
    #[error("too many requests wait")]
    Busy,
    /// The service does not answer. The phrase contains nothing of the request.
    #[error("{0}")]
    Failed(String),
}

impl HttpClient {
    /// Creates a client. Nothing is sent before the first request. `ca_file`: the authorities that it trusts,
    /// instead of those of the operating system.
    ///
    /// # Errors
    /// A sentence about the file with the authorities.
    pub(crate) fn new(ca_file: Option<&Path>, options: Options) -> Result<Self, String> {
        let mut http = HttpConnector::new_with_resolver(Resolver::default());
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(options.timeout));
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(tls(ca_file)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(options.requests)
            .http1_max_buf_size(HEAD_MAX)
            .http1_max_headers(HEADERS_MAX)
            .build(https);
        let gate = Gate::new(options.requests, WAITING_PER_REQUEST * options.requests);
        Ok(Self { client, gate, is_failing: AtomicBool::new(false), options })
    }

    /// Returns the time by which a request that is sent now must be answered.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.options.timeout
    }

    /// Sends a request when it is the turn of the asker, and returns the answer, whatever its status is.
    ///
    /// # Errors
    /// Too many wait, or there is no answer until the deadline.
    pub(crate) async fn send(
        &self,
        asker: Asker<'_>,
        deadline: Instant,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Reply, NoReply> {
        let agent = HeaderValue::from_static(concat!("barid/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().entry(USER_AGENT).or_insert(agent);
        let asked = Instant::now();
        let permit = timeout_at(deadline, self.gate.enter(asker)).await;
        let Some(_permit) = permit.ok().flatten() else { return Err(self.no_turn()) };
        let waited = asked.elapsed();
        let answer = match timeout_at(deadline, self.exchange(request)).await {
            Ok(answer) => answer,
            // The service has had little time, because the request has waited so long for its turn.
            Err(_) if waited > self.options.timeout / 2 => return Err(self.no_turn()),
            Err(_) => Err(self.no_answer()),
        };
        self.is_failing.store(answer.is_err(), Ordering::Relaxed);
        answer
    }

    /// Returns why a request was not sent in time. A client can bring that about with many logins. It is a failure only
    /// if the service has failed.
    fn no_turn(&self) -> NoReply {
        if self.is_failing.load(Ordering::Relaxed) { self.no_answer() } else { NoReply::Busy }
    }

    fn no_answer(&self) -> NoReply {
        NoReply::Failed(format!("no answer within {} s", self.options.timeout.as_secs_f32()))
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Reply, NoReply> {
        let mut attempt = 1;
        let response = loop {
            match self.client.request(request.clone()).await {
                Ok(response) => break response,
                Err(error) if attempt < ATTEMPTS && was_closed(&error) => attempt += 1,
                Err(error) => return Err(NoReply::Failed(with_causes(&error))),
            }
        };
        let (head, body) = response.into_parts();
        let body = Limited::new(body, self.options.body_max).collect().await;
        let body = body.map_err(|error| NoReply::Failed(with_causes(&*error)))?.to_bytes();
        Ok(Reply { status: head.status, body })
    }
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Parses the URL of a service.
///
/// # Errors
/// A sentence about what is wrong with the URL.
pub(crate) fn parse_url(text: &str) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|error| format!("not a URL: {error}"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err("the URL must begin with http:// or https://".into());
    }
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    if authority.contains('@') {
        return Err("the URL must not contain a user or password; use a header instead".into());
    }
    if uri.host().is_none_or(str::is_empty) {
        return Err("the URL has no host".into());
    }
    Ok(uri)
}

/// Returns a URL as it may be written to the log: without its query, which may contain secrets.
pub(crate) fn shown(uri: &Uri) -> String {
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    format!("{}://{authority}{}", uri.scheme_str().unwrap_or_default(), uri.path())
}

fn tls(ca_file: Option<&Path>) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    if let Some(file) = ca_file {
        let wrong = |error: &dyn fmt::Display| format!("{}: {error}", file.display());
        for certificate in CertificateDer::pem_file_iter(file).map_err(|error| wrong(&error))? {
            let certificate = certificate.map_err(|error| wrong(&error))?;
            roots.add(certificate).map_err(|error| wrong(&error))?;
        }
        if roots.is_empty() {
            return Err(wrong(&"the file contains no certificates"));
        }
    } else {
        // Certificates of the system that cannot be read are left out. A connection that needs one of them
        // fails, and says so.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    let provider = rustls::crypto::ring::default_provider();
    let builder = ClientConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Whether the service has closed the connection before it has answered anything.
fn was_closed(error: &(dyn Error + 'static)) -> bool {
    causes(error).any(|cause| {
        cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_incomplete_message)
    })
}

/// Returns an error and its causes in one phrase.
fn with_causes(error: &(dyn Error + 'static)) -> String {
    causes(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (**error).source())
}
