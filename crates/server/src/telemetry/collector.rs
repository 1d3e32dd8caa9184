//! The collector: an HTTP server that accepts OTLP.

use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use ureq::Agent;
use ureq::http::StatusCode;
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};

use crate::settings::{Secret, TelemetrySettings};

const CONNECT_WITHIN: Duration = Duration::from_secs(2);
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Largest answer that is read, in bytes. It says at most what is wrong.
const ANSWER_MAX: u64 = 16 * 1024;

/// Where metrics and spans go.
pub struct Collector {
    agent: Agent,
    endpoint: String,
    /// Headers of each request, such as those that authorise it.
    headers: Vec<(String, Secret)>,
}

/// Reason for which a request had no effect.
#[derive(Debug)]
pub struct Failure {
    pub sentence: String,
    /// Whether the same request may succeed later.
    pub may_be_repeated: bool,
}

impl Collector {
    pub fn new(settings: &TelemetrySettings) -> Self {
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .root_certs(RootCerts::Specific(authorities(settings)))
            .build();
        let agent = Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_connect(Some(CONNECT_WITHIN))
            .timeout_global(Some(ANSWER_WITHIN))
            .proxy(None)
            .build()
            .new_agent();
        let endpoint = settings.endpoint.trim_end_matches('/').to_owned();
        Self { agent, endpoint, headers: settings.headers().to_vec() }
    }

    /// Returns the address, without a path.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Sends a request (OTLP 1.x, binary Protobuf).
    pub fn send(&self, path: &str, body: &[u8]) -> Result<(), Failure> {
        let url = format!("{}{path}", self.endpoint);
        let mut request = self.agent.post(&url).header("Content-Type", "application/x-protobuf");
        for (name, value) in &self.headers {
            request = request.header(name, value.expose());
        }
        let failed = |sentence: String, may_be_repeated| Failure { sentence, may_be_repeated };
        let mut answer = request.send(body).map_err(|error| failed(error.to_string(), true))?;
        // It is read so that the connection can be used again.
        let _ = answer.body_mut().with_config().limit(ANSWER_MAX).read_to_vec();
        match answer.status() {
            status if status.is_success() => Ok(()),
            status => Err(failed(format!("it answers {status}"), is_passing(status))),
        }
    }
}

/// Whether a status says that the request may be repeated (OTLP, *Retryable Response Codes*).
fn is_passing(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}

/// The authorities that are trusted: those in the file of the settings, or those of this system.
fn authorities(settings: &TelemetrySettings) -> Arc<Vec<Certificate<'static>>> {
    if !settings.endpoint.starts_with("https://") {
        return Arc::default();
    }
    let certificates = match &settings.ca {
        Some(file) => CertificateDer::pem_file_iter(file)
            .map(|all| all.filter_map(Result::ok).collect())
            .unwrap_or_default(),
        None => rustls_native_certs::load_native_certs().certs,
    };
    Arc::new(certificates.iter().map(|one| Certificate::from_der(one).to_owned()).collect())
}
