//! Requests to a service, in which nothing that a client has sent can change the meaning of the rest.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, Request, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use serde_json::{Map, Value};

use super::template::{Template, Values};
use crate::http_client::{parse_url, shown};

/// Bytes that are encoded in queries and forms: all but those that mean themselves everywhere (RFC 3986, 2.3).
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

const NOT_TEXT: &str = "the password is not UTF-8, and the service is asked in JSON";
const TOO_LONG: &str = "the service is asked in a URL, and this one would be too long";

/// Where requests go to, and what they look like.
#[derive(Debug)]
pub(super) struct Endpoint {
    /// The URL without its query.
    base: Uri,
    query: Option<Template>,
    method: Method,
    place: Place,
}

/// Where the fields of a request are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Query,
    Json,
    Form,
}

/// Name and value of a field. The value need not be UTF-8, because a password need not be.
pub(super) type Field<'a> = (&'a str, Vec<u8>);

/// Reason for which the service cannot be asked about a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotAsked(pub(super) &'static str);

impl Endpoint {
    /// # Errors
    /// A sentence about what is wrong with the URL.
    pub(super) fn new(url: &str, method: Method, place: Place) -> Result<Self, String> {
        let (base, query) = match url.split_once('?') {
            Some((base, query)) => (base, Some(Template::parse(query)?)),
            None => (url, None),
        };
        // In a path, `..` could lead elsewhere however it is encoded.
        if base.contains("${") {
            return Err("placeholders are allowed behind the ? only".into());
        }
        if url.contains('#') {
            return Err("a URL with # has no meaning for a service".into());
        }
        let endpoint = Self { base: parse_url(base)?, query, method, place };
        // All values are encoded to letters of URLs, so if one URL is valid, all are.
        let no_query = url.split_once('?').map_or("", |(_, query)| query);
        parse_url(&format!("{base}?{no_query}"))?;
        Ok(endpoint)
    }

    pub(super) fn has_user(&self) -> bool {
        self.query.as_ref().is_some_and(Template::has_user)
    }

    pub(super) fn has_placeholders(&self) -> bool {
        self.query.as_ref().is_some_and(Template::has_placeholders)
    }

    /// Returns the URL as it may be written to the log.
    pub(super) fn shown(&self) -> String {
        shown(&self.base)
    }

    /// Returns a request with these fields.
    ///
    /// # Errors
    /// JSON cannot contain what is not UTF-8, and a URL has a maximum length.
    pub(super) fn request(
        &self,
        headers: &HeaderMap,
        values: &Values<'_>,
        fields: &[Field<'_>],
    ) -> Result<Request<Full<Bytes>>, NotAsked> {
        let mut query = self.query.as_ref().map(|query| query.fill_in_with(values, encode));
        let (body, content_type) = match self.place {
            Place::Query => {
                let query = query.get_or_insert_default();
                if !query.is_empty() && !fields.is_empty() {
                    query.push(b'&');
                }
                query.extend_from_slice(&form_of(fields));
                (Vec::new(), None)
            }
            Place::Form => (form_of(fields), Some("application/x-www-form-urlencoded")),
            Place::Json => (json_of(fields)?, Some("application/json")),
        };
        let mut request = Request::new(Full::from(body));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri(query).ok_or(NotAsked(TOO_LONG))?;
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(content_type) = content_type {
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        for (name, value) in headers {
            request.headers_mut().insert(name, value.clone());
        }
        Ok(request)
    }

    fn uri(&self, query: Option<Vec<u8>>) -> Option<Uri> {
        let Some(query) = query else { return Some(self.base.clone()) };
        let query = String::from_utf8(query).ok()?;
        let mut parts = self.base.clone().into_parts();
        parts.path_and_query = format!("{}?{query}", self.base.path()).parse().ok();
        Uri::from_parts(parts).ok()
    }
}

fn encode(value: &[u8], output: &mut Vec<u8>) {
    output.extend(percent_encode(value, ENCODED).flat_map(str::bytes));
}

fn form_of(fields: &[Field<'_>]) -> Vec<u8> {
    let mut form = Vec::new();
    for (name, value) in fields {
        if !form.is_empty() {
            form.push(b'&');
        }
        encode(name.as_bytes(), &mut form);
        form.push(b'=');
        encode(value, &mut form);
    }
    form
}

fn json_of(fields: &[Field<'_>]) -> Result<Vec<u8>, NotAsked> {
    let mut object = Map::new();
    for (name, value) in fields {
        let value = str::from_utf8(value).map_err(|_| NotAsked(NOT_TEXT))?;
        object.insert((*name).into(), value.into());
    }
    Ok(Value::Object(object).to_string().into())
}
