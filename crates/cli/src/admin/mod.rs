//! HTTP client for the admin address of a running broker.

pub mod answers;
pub mod events;
mod moment;
mod table;

pub use moment::{Moment, ends_in, now, span};
pub use table::{Column, Table, bytes, printable};

use std::fmt;
use std::fmt::Write as _;
use std::fs;
use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use serde::de::DeserializeOwned;
use serde_json::Value;
use ureq::http::{HeaderValue, Response, StatusCode};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, TlsProvider, parse_pem};
use ureq::{Agent, Body, RequestBuilder};

/// Time-outs for connecting and for the beginning of an answer.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// Largest answer that is read into memory, in bytes.
const ANSWER_MAX: u64 = 64 * 1024 * 1024;

const JSON: &str = "application/json";

/// Address of the running broker.
#[derive(Args)]
pub struct AdminArgs {
    /// Admin address of the running broker; `https://HOST:PORT` for the one over TLS
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "BARID_TOOLS_ADMIN",
        default_value = "127.0.0.1:8081",
        value_parser = NonEmptyStringValueParser::new()
    )]
    admin: String,
    /// File with a token of `barid token create`, which the broker asks for as soon as it has one
    #[arg(long, value_name = "FILE", env = "BARID_TOOLS_TOKEN_FILE", value_parser = read_token)]
    token_file: Option<Token>,
    /// File with the certificate authority of the broker, in PEM, for `https://` [default: those of this system]
    #[arg(long, value_name = "FILE", env = "BARID_TOOLS_ADMIN_CA", value_parser = read_authorities)]
    admin_ca: Option<Authorities>,
    /// Broker of the cluster that is to answer, by its name [default: the one that is asked; with lists of clients, sessions and tenants: all]
    #[arg(long = "broker", value_name = "NAME", env = "BARID_TOOLS_BROKER", value_parser = HeaderValue::from_str)]
    broker: Option<HeaderValue>,
}

/// Certificate authorities, read from their file.
#[derive(Clone)]
struct Authorities(Arc<Vec<Certificate<'static>>>);

fn read_authorities(file: &str) -> Result<Authorities, String> {
    let text = fs::read(file).map_err(|error| format!("{file}: {error}"))?;
    let found: Result<Vec<_>, _> = parse_pem(&text)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(Ok(certificate)),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        })
        .collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(Authorities(Arc::new(found))),
        Ok(_) => Err(format!("{file}: there is no certificate in it (PEM)")),
        Err(error) => Err(format!("{file}: {error}")),
    }
}

/// A token, read from its file.
#[derive(Clone)]
struct Token(String);

/// Reads the first line of a file.
fn read_token(file: &str) -> Result<Token, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let line = text.lines().next().unwrap_or_default().trim();
    if line.is_empty() || !line.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(format!("{file}: the first line is no token of `barid token create`"));
    }
    Ok(Token(line.into()))
}

/// Broker to ask, and output format.
#[derive(Args)]
pub struct Output {
    #[command(flatten)]
    pub admin: AdminArgs,
    /// Print the broker's answer as JSON
    #[arg(long)]
    pub json: bool,
}

/// The tenant of a request, and the output format.
#[derive(Args)]
pub struct TenantArgs {
    #[command(flatten)]
    admin: AdminArgs,
    /// The tenant
    #[arg(long, default_value = "default", value_parser = NonEmptyStringValueParser::new())]
    pub tenant: String,
    /// Print the broker's answer as JSON
    #[arg(long)]
    pub json: bool,
}

impl AdminArgs {
    /// Creates a client for this address.
    pub fn connect(&self) -> Admin {
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .root_certs(RootCerts::Specific(self.authorities()))
            .build();
        let agent = Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_WITHIN))
            .timeout_recv_response(Some(ANSWER_WITHIN))
            // The address is on the operator's own machine or network.
            .proxy(None)
            .build()
            .new_agent();
        let authorization = self.token_file.as_ref().map(|Token(token)| format!("Bearer {token}"));
        let broker = self.broker.clone();
        Admin { agent, address: self.admin.clone(), authorization, broker }
    }
}

impl AdminArgs {
    /// The authorities that are trusted: those of this system, if no others are named.
    fn authorities(&self) -> Arc<Vec<Certificate<'static>>> {
        if let Some(Authorities(own)) = &self.admin_ca {
            return Arc::clone(own);
        }
        if !self.admin.starts_with("https://") {
            return Arc::default();
        }
        let system = rustls_native_certs::load_native_certs().certs;
        Arc::new(system.iter().map(|one| Certificate::from_der(one).to_owned()).collect())
    }
}

impl TenantArgs {
    /// Creates a client, and returns it with the path of the tenant's resources.
    pub fn connect(&self) -> (Admin, String) {
        (self.admin.connect(), format!("/v1/tenants/{}", encode(&self.tenant)))
    }
}

/// Client of a broker's admin address.
#[derive(Clone)]
pub struct Admin {
    agent: Agent,
    address: String,
    authorization: Option<String>,
    /// The broker that is to answer; `None`: the one that is asked.
    broker: Option<HeaderValue>,
}

/// Error: the broker does not have the requested resource.
#[derive(Debug)]
pub struct Missing(String);

/// Error: the broker already has a resource of this name.
#[derive(Debug)]
pub struct Present(String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Present {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}
impl std::error::Error for Present {}

impl Admin {
    /// Whether a certain broker of the cluster is to answer, named by `--broker`.
    pub fn asks_certain_broker(&self) -> bool {
        self.broker.is_some()
    }

    /// Returns a client for this broker of the cluster, over the same address.
    pub fn of(&self, broker: &str) -> Self {
        Self { broker: HeaderValue::from_str(broker).ok(), ..self.clone() }
    }

    /// Gets a JSON answer. A resource that the broker does not have is the error [`Missing`].
    pub fn get(&self, path: &str) -> anyhow::Result<Value> {
        let answer = self.call(path, self.prepared(self.agent.get(self.url(path))).call())?;
        self.json(path, answer)
    }

    /// Gets the back ends that are asked about the users of a tenant, in this order; none: any client may connect. `None`
    /// instead of an error: nobody can log in, or the broker does not know the request.
    pub fn back_ends(&self, tenant: &str) -> Option<Vec<String>> {
        let answer = self.get(&format!("/v1/tenants/{}/logins", encode(tenant))).ok()?;
        self.read(answer).ok().map(|answers::Logins { back_ends }| back_ends)
    }

    /// Gets a JSON answer like [`Admin::get`]; `None` instead of [`Missing`].
    pub fn find(&self, path: &str) -> anyhow::Result<Option<Value>> {
        match self.get(path) {
            Err(error) if error.is::<Missing>() => Ok(None),
            found => found.map(Some),
        }
    }

    /// Converts an answer of [`Admin::get`] to a type.
    pub fn read<T: DeserializeOwned>(&self, answer: Value) -> anyhow::Result<T> {
        serde_json::from_value(answer).with_context(|| self.not_barid("this"))
    }

    /// Deletes a resource.
    pub fn delete(&self, path: &str) -> anyhow::Result<()> {
        self.call(path, self.prepared(self.agent.delete(self.url(path))).call()).map(drop)
    }

    /// Deletes a resource, and returns the broker's answer.
    pub fn clear(&self, path: &str) -> anyhow::Result<Value> {
        let request = self.prepared(self.agent.delete(self.url(path)));
        let answer = self.call(path, request.call())?;
        self.json(path, answer)
    }

    /// Creates a resource. An existing one is the error [`Present`].
    pub fn create(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let request = self.prepared(self.agent.put(self.url(path))).header("If-None-Match", "*");
        let answer = self.call(path, request.content_type(JSON).send(body.to_string()))?;
        self.json(path, answer)
    }

    /// Creates a resource, or replaces an existing one.
    pub fn put(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let request = self.prepared(self.agent.put(self.url(path))).content_type(JSON);
        let answer = self.call(path, request.send(body.to_string()))?;
        self.json(path, answer)
    }

    /// Creates a resource whose name the broker chooses.
    pub fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let request = self.prepared(self.agent.post(self.url(path))).content_type(JSON);
        let answer = self.call(path, request.send(body.to_string()))?;
        self.json(path, answer)
    }

    /// Changes a part of a resource.
    pub fn change(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let request = self.prepared(self.agent.patch(self.url(path))).content_type(JSON);
        let answer = self.call(path, request.send(body.to_string()))?;
        self.json(path, answer)
    }

    /// Gets an answer of any length as a stream. If the answer breaks off, the reader returns an
    /// error.
    pub fn stream(&self, path: &str) -> anyhow::Result<impl Read + use<>> {
        let answer = self.call(path, self.prepared(self.agent.get(self.url(path))).call())?;
        Ok(answer.into_body().into_reader())
    }

    /// Adds what each request has.
    fn prepared<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        let request = match &self.authorization {
            Some(authorization) => request.header("Authorization", authorization),
            None => request,
        };
        match &self.broker {
            Some(broker) => request.header("Barid-Broker", broker),
            None => request,
        }
    }

    fn url(&self, path: &str) -> String {
        match self.address.contains("://") {
            true => format!("{}{path}", self.address.trim_end_matches('/')),
            false => format!("http://{}{path}", self.address),
        }
    }

    fn call(
        &self,
        path: &str,
        answer: Result<Response<Body>, ureq::Error>,
    ) -> anyhow::Result<Response<Body>> {
        let answer = answer.map_err(|error| self.unreachable(&error))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let sentence = serde_json::from_str(&self.text(answer)?)
            .ok()
            .and_then(|answer: Value| Some(answer.get("error")?.as_str()?.to_owned()));
        match sentence {
            Some(sentence) if status == StatusCode::NOT_FOUND => {
                let hint = lister(path).map(|list| format!("\n  hint: `{list}` lists what exists"));
                bail!(Missing(sentence + &hint.unwrap_or_default()))
            }
            Some(sentence) if status == StatusCode::PRECONDITION_FAILED => bail!(Present(sentence)),
            Some(sentence) => bail!(sentence),
            None => bail!("{}: it answered {status}", self.not_barid("this")),
        }
    }

    fn json(&self, path: &str, answer: Response<Body>) -> anyhow::Result<Value> {
        let text = self.text(answer)?;
        serde_json::from_str(&text).with_context(|| self.not_barid(path))
    }

    fn text(&self, mut answer: Response<Body>) -> anyhow::Result<String> {
        let text = answer.body_mut().with_config().limit(ANSWER_MAX).read_to_string();
        text.with_context(|| format!("the answer of {} is incomplete", self.address))
    }

    fn not_barid(&self, path: &str) -> String {
        format!(
            "{} does not answer {path} like the admin address of this version of Barid",
            self.address
        )
    }

    fn unreachable(&self, error: &ureq::Error) -> anyhow::Error {
        let is_answered = match error {
            ureq::Error::Protocol(_) => true,
            ureq::Error::Io(error) => {
                matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof)
            }
            _ => false,
        };
        let (what, hint) = match is_answered {
            true => {
                ("nothing answers as an admin address does at", "is it that of another listener?")
            }
            false => ("cannot reach", "is the broker running?"),
        };
        anyhow!(
            "{what} {}: {error}\n  hint: {hint} `barid serve` prints its \
             admin address; name it with --admin HOST:PORT or BARID_TOOLS_ADMIN{}",
            self.url(""),
            // `BARID_ADMIN` is an obvious but wrong guess for the variable of the tools.
            match std::env::var_os("BARID_ADMIN") {
                Some(_) => ". (BARID_ADMIN is where `barid serve` listens)",
                None => "",
            }
        )
    }
}

/// Returns the command that lists the resources of the kind that a path names.
fn lister(path: &str) -> Option<&'static str> {
    let path = path.split('?').next().unwrap_or_default();
    [
        ("/subscriptions/", "barid topic subscription list TOPIC"),
        ("/topics/", "barid topic list"),
        ("/queues/", "barid queue list"),
        ("/bindings/", "barid binding list"),
        ("/amqp-connections/", "barid session list"),
        ("/sessions/", "barid session list"),
        ("/shards/", "barid shard list"),
        ("/v1/users/", "barid user list"),
        ("/v1/bans/", "barid ban list"),
        ("/v1/tokens/", "barid token list"),
    ]
    .into_iter()
    .find(|(part, _)| path.contains(part))
    .map(|(_, list)| list)
    .or_else(|| {
        let tenant = path.strip_prefix("/v1/tenants/")?;
        (!tenant.contains('/')).then_some("barid tenant list")
    })
}

/// Returns the path of a list, of one tenant or of all.
pub fn of_tenant(path: &str, tenant: Option<&str>) -> String {
    match tenant {
        Some(tenant) => format!("{path}?tenant={}", encode(tenant)),
        None => path.into(),
    }
}

/// Encodes a text for use in a path or query.
pub fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("a String takes everything");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_identifier_may_have_any_character() {
        assert_eq!(encode("a-b_c.d~9"), "a-b_c.d~9");
        assert_eq!(encode("a/b?c=ä%"), "a%2Fb%3Fc%3D%C3%A4%25");
    }

    #[test]
    fn who_names_what_is_not_there_is_told_what_lists_the_others() {
        assert_eq!(lister("/v1/tenants/a/queues/q?x=1"), Some("barid queue list"));
        assert_eq!(lister("/v1/tenants/a/topics/t"), Some("barid topic list"));
        let subscription = lister("/v1/tenants/a/topics/t/subscriptions/s/messages");
        assert_eq!(subscription, Some("barid topic subscription list TOPIC"));
        assert_eq!(lister("/v1/users/a/b"), Some("barid user list"));
        assert_eq!(lister("/v1/tenants/a"), Some("barid tenant list"));
        assert_eq!(lister("/v1/tenants/a/queues"), None);
    }
}
