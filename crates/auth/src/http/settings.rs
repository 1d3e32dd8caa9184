//! Settings of the HTTP back end: plain data.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HeaderMap, HeaderName, HeaderValue, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use serde::Deserialize;

use super::request::{Endpoint, Place};
use super::template::Template;
use crate::http_client::{HttpClient, Options, REQUEST_TIMEOUTS_MS};

/// Range of the number of requests at a time.
const CONNECTIONS: RangeInclusive<usize> = 1..=256;

/// Maximum length of the body of an answer, in bytes: a thousand rules, each with a topic of 60 bytes.
const BODY_MAX: usize = 128 * 1024;

/// Settings of the HTTP back end.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct HttpSettings {
    /// The requests that the service understands.
    pub shape: Shape,
    /// URL of the service. `emqx`: that of the request; may have placeholders in its query.
    /// `mosquitto-go-auth`: what comes before the paths.
    pub url: String,
    /// Method of the requests.
    #[serde(default)]
    pub method: Method,
    /// Encoding of the fields of a request that has a body.
    #[serde(default)]
    pub params_mode: ParamsMode,
    /// `emqx`: the fields of the request, with placeholders.
    #[serde(default)]
    pub body: Option<BTreeMap<String, String>>,
    /// `mosquitto-go-auth`: path of the request that checks user name and password.
    #[serde(default)]
    pub user_uri: Option<String>,
    /// `mosquitto-go-auth`: path of the request that asks whether a user may do everything.
    #[serde(default)]
    pub superuser_uri: Option<String>,
    /// `mosquitto-go-auth`: path of the request that checks a topic. It cannot be used, see
    /// [`check`](Self::check).
    #[serde(default)]
    pub acl_uri: Option<String>,
    /// `mosquitto-go-auth`: what answers consist of.
    #[serde(default)]
    pub response_mode: ResponseMode,
    /// Headers of all requests.
    #[serde(default)]
    pub headers: Headers,
    /// File with more headers, one a line, as `Name: value`.
    #[serde(default)]
    pub headers_file: Option<PathBuf>,
    /// PEM file with the authorities that the server is trusted by; absent: those of the operating system.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// Time within which a login is decided, in milliseconds.
    #[serde(default = "default_timeout")]
    pub timeout_ms: u64,
    /// Maximum number of requests at a time. Others wait.
    #[serde(default = "default_connections")]
    pub connections: usize,
    /// Whether the service is given user names without the tenant.
    #[serde(default)]
    pub strip_tenant: bool,
    /// `mosquitto-go-auth`: whether a user that the service denies may be known to the next back end.
    #[serde(default)]
    pub next_after_denial: bool,
    /// Whether an accepted login is accepted again for a while without a request.
    #[serde(default)]
    pub remember: bool,
}

/// The requests that a service understands.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Those of the HTTP authenticator of EMQX 5.
    Emqx,
    /// Those of the back end `http` of mosquitto-go-auth.
    MosquittoGoAuth,
}

/// Method of a request.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// POST.
    #[default]
    Post,
    /// GET.
    Get,
    /// PUT.
    Put,
}

/// Encoding of the fields of a request.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum ParamsMode {
    /// A JSON object.
    #[default]
    Json,
    /// The form of a web page.
    Form,
}

/// What an answer of mosquitto-go-auth consists of.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum ResponseMode {
    /// Its status.
    #[default]
    Status,
    /// Its status, and a JSON object with `ok` and `error`.
    Json,
    /// Its status, and the text `ok`.
    Text,
}

/// Headers by name. Their values may be secrets, so Debug output does not show them.
#[derive(Clone, Default, Deserialize, PartialEq)]
#[serde(transparent)]
pub struct Headers(pub BTreeMap<String, String>);

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

fn default_timeout() -> u64 {
    5_000
}

fn default_connections() -> usize {
    16
}

/// The requests of a back end.
#[derive(Debug)]
pub(super) enum Requests {
    Emqx { endpoint: Endpoint, fields: Vec<(String, Template)> },
    MosquittoGoAuth { user: Endpoint, superuser: Option<Endpoint>, response: ResponseMode },
}

impl HttpSettings {
    /// Returns the files that the settings name.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        [&self.headers_file, &self.ca_file].into_iter().flatten().map(|file| &**file)
    }

    /// Checks what the types do not, and that the files are there. It is an error to name `acl_uri`: rights are
    /// checked many times a second and without waiting, so a service cannot be asked for each topic, and
    /// without being asked it would not protect anything.
    ///
    /// # Errors
    /// A sentence about the first thing that is wrong.
    pub fn check(&self) -> Result<(), String> {
        self.requests()?;
        self.headers()?;
        if !REQUEST_TIMEOUTS_MS.contains(&self.timeout_ms) {
            let (least, most) = REQUEST_TIMEOUTS_MS.into_inner();
            return Err(format!("`timeout_ms` is from {least} to {most}"));
        }
        if !CONNECTIONS.contains(&self.connections) {
            let (least, most) = CONNECTIONS.into_inner();
            return Err(format!("`connections` is from {least} to {most}"));
        }
        if self.ca_file.is_some() {
            self.client()?;
        }
        Ok(())
    }

    pub(super) fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }

    pub(super) fn client(&self) -> Result<HttpClient, String> {
        let options =
            Options { timeout: self.timeout(), requests: self.connections, body_max: BODY_MAX };
        HttpClient::new(self.ca_file.as_deref(), options)
            .map_err(|error| format!("`ca_file`: {error}"))
    }

    pub(super) fn requests(&self) -> Result<Requests, String> {
        match self.shape {
            Shape::Emqx => self.emqx(),
            Shape::MosquittoGoAuth => self.mosquitto_go_auth(),
        }
    }

    fn emqx(&self) -> Result<Requests, String> {
        let others = [
            ("user_uri", self.user_uri.is_some()),
            ("superuser_uri", self.superuser_uri.is_some()),
            ("acl_uri", self.acl_uri.is_some()),
            ("response_mode", self.response_mode != ResponseMode::default()),
            ("next_after_denial", self.next_after_denial),
        ];
        if let Some((key, _)) = others.into_iter().find(|(_, is_set)| *is_set) {
            return Err(format!("`{key}` is for the shape `mosquitto-go-auth`"));
        }
        let place = match (self.method, self.params_mode) {
            (Method::Put, _) => return Err("`method`: EMQX knows `post` and `get`".into()),
            (Method::Get, ParamsMode::Form) => {
                return Err("`params_mode`: a GET request has its fields in the query".into());
            }
            (Method::Get, ParamsMode::Json) => Place::Query,
            (Method::Post, ParamsMode::Json) => Place::Json,
            (Method::Post, ParamsMode::Form) => Place::Form,
        };
        let endpoint = Endpoint::new(&self.url, self.method.into(), place)
            .map_err(|error| format!("`url`: {error}"))?;
        let fields = match &self.body {
            None => ["username", "password", "clientid"]
                .map(|name| (name.to_owned(), format!("${{{name}}}")))
                .into(),
            Some(body) => body.clone(),
        };
        let parse = |(name, text): (String, String)| match Template::parse(&text) {
            Ok(template) => Ok((name, template)),
            Err(error) => Err(format!("`body.{name}`: {error}")),
        };
        let fields: Vec<_> = fields.into_iter().map(parse).collect::<Result<_, _>>()?;
        let has_user = endpoint.has_user() || fields.iter().any(|(_, value)| value.has_user());
        if !has_user {
            return Err("neither `body` nor `url` says who the client is: use ${username}".into());
        }
        Ok(Requests::Emqx { endpoint, fields })
    }

    fn mosquitto_go_auth(&self) -> Result<Requests, String> {
        if self.body.is_some() {
            return Err("`body` is for the shape `emqx`".into());
        }
        if self.acl_uri.is_some() {
            return Err("`acl_uri` cannot be used: a service is asked when a client logs in, and not for each \
                        topic; put the rules into `rights` of its JSON answers or into the rules of the tenant, \
                        and remove the key"
                .into());
        }
        let place = match (self.params_mode, self.method) {
            (ParamsMode::Json, _) => Place::Json,
            (ParamsMode::Form, Method::Post) => Place::Form,
            (ParamsMode::Form, _) => {
                return Err("`params_mode`: a form is sent with the method `post`".into());
            }
        };
        let endpoint = |key: &str, path: &str| {
            if !path.starts_with('/') {
                return Err(format!("`{key}` is a path, and begins with /"));
            }
            let url = format!("{}{path}", self.url.trim_end_matches('/'));
            let endpoint = Endpoint::new(&url, self.method.into(), place);
            let endpoint = endpoint.map_err(|error| format!("`url` with `{key}`: {error}"))?;
            if endpoint.has_placeholders() {
                return Err(format!("`{key}`: placeholders are for the shape `emqx`"));
            }
            Ok(endpoint)
        };
        let user = self.user_uri.as_deref().ok_or("`user_uri` is missing")?;
        let user = endpoint("user_uri", user)?;
        let superuser = self.superuser_uri.as_deref();
        let superuser = superuser.map(|path| endpoint("superuser_uri", path)).transpose()?;
        Ok(Requests::MosquittoGoAuth { user, superuser, response: self.response_mode })
    }

    /// Returns the headers of all requests. Their values are marked as secrets.
    pub(super) fn headers(&self) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers.0 {
            add(&mut headers, name, value).map_err(|error| format!("`headers`: {error}"))?;
        }
        let Some(file) = &self.headers_file else { return Ok(headers) };
        let wrong =
            |error: &dyn fmt::Display| format!("`headers_file`: {}: {error}", file.display());
        let text = fs::read_to_string(file).map_err(|error| wrong(&error))?;
        for (number, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let added = match line.split_once(':') {
                Some((name, value)) => add(&mut headers, name, value.trim()),
                None => Err("not `Name: value`".into()),
            };
            added.map_err(|error| wrong(&format!("line {}: {error}", number + 1)))?;
        }
        Ok(headers)
    }
}

/// Adds a header. Errors contain its name at most.
fn add(headers: &mut HeaderMap, name: &str, value: &str) -> Result<(), String> {
    let header: HeaderName =
        name.parse().map_err(|_| "the name of a header is malformed".to_owned())?;
    // These say how the message is transferred, which is the business of the client.
    let own = [CONNECTION, CONTENT_LENGTH, EXPECT, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];
    if own.contains(&header) {
        return Err(format!("the header `{header}` cannot be set"));
    }
    let mut value: HeaderValue =
        value.parse().map_err(|_| format!("the value of the header `{header}` is malformed"))?;
    value.set_sensitive(true);
    headers.insert(header, value);
    Ok(())
}

impl From<Method> for hyper::Method {
    fn from(method: Method) -> Self {
        match method {
            Method::Post => Self::POST,
            Method::Get => Self::GET,
            Method::Put => Self::PUT,
        }
    }
}
