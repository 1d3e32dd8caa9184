//! Entries, feeds and errors.

use std::fmt::Display;

use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};

use super::xml::{ATOM, Writer};
use crate::admin::answer::Refusal;

/// A time that is not known, as .NET writes it (`DateTime.MinValue`).
pub const UNKNOWN_TIME: &str = "0001-01-01T00:00:00Z";

/// What the answer to a request contains of the request.
pub struct Context {
    /// The host and port that the client has addressed.
    pub authority: String,
    /// The version of the protocol that the client has asked for.
    version: String,
}

impl Context {
    /// Takes what is needed from a request.
    pub fn of(headers: &HeaderMap, uri: &Uri) -> Self {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost");
        let mut parameters = uri.query().unwrap_or_default().split('&');
        let version = parameters.find_map(|one| one.strip_prefix("api-version="));
        Self { authority: host.into(), version: version.unwrap_or("2021-05").into() }
    }

    /// Whether the version of the protocol has `MaxMessageSizeInKilobytes`.
    pub fn has_message_size(&self) -> bool {
        *self.version >= *"2021-05"
    }

    fn address(&self, path: &str) -> String {
        format!("https://{}/{path}?api-version={}", self.authority, self.version)
    }
}

/// An entity as an entry.
pub struct Entry<'a> {
    /// The path of the entity below the namespace.
    pub path: String,
    /// The name, within what the entity belongs to.
    pub title: String,
    /// Writes the description of the entity.
    pub description: Box<dyn Fn(&mut Writer) + 'a>,
}

impl Entry<'_> {
    fn write(&self, xml: &mut Writer, attributes: &[(&str, &str)], context: &Context) {
        xml.element("entry", attributes, |xml| {
            let address = context.address(&self.path);
            xml.text("id", &address);
            xml.element("title", &[("type", "text")], |xml| xml.raw_text(&self.title));
            xml.text("published", UNKNOWN_TIME);
            xml.text("updated", UNKNOWN_TIME);
            xml.element("author", &[], |xml| xml.text("name", &context.authority));
            xml.element("link", &[("rel", "self"), ("href", &address)], |_| {});
            xml.element("content", &[("type", "application/xml")], |xml| (self.description)(xml));
        });
    }
}

/// Answers with one entity.
pub fn entry(status: StatusCode, entry: &Entry<'_>, context: &Context) -> Response {
    let mut xml = Writer::default();
    entry.write(&mut xml, &[("xmlns", ATOM)], context);
    answer(status, "entry", xml)
}

/// Answers with a page of entities. `next`: the number of entities before the next page, and the size of a page, if
/// there are more.
pub fn feed<'a>(
    path: &str,
    entries: impl Iterator<Item = Entry<'a>>,
    next: Option<(usize, usize)>,
    context: &Context,
) -> Response {
    let mut xml = Writer::default();
    xml.element("feed", &[("xmlns", ATOM)], |xml| {
        let address = context.address(path);
        xml.text("id", &address);
        xml.element("title", &[("type", "text")], |xml| xml.raw_text(path));
        xml.text("updated", UNKNOWN_TIME);
        xml.element("link", &[("rel", "self"), ("href", &address)], |_| {});
        if let Some((skip, top)) = next {
            let address = format!("{address}&$skip={skip}&$top={top}");
            xml.element("link", &[("rel", "next"), ("href", &address)], |_| {});
        }
        for entry in entries {
            entry.write(xml, &[], context);
        }
    });
    answer(StatusCode::OK, "feed", xml)
}

/// Answers with an error, in the form of Service Bus.
pub fn error(refusal: &Refusal) -> Response {
    let mut xml = Writer::default();
    xml.element("Error", &[], |xml| {
        xml.text("Code", refusal.status().as_u16());
        xml.text("Detail", refusal.sentence());
    });
    (refusal.status(), [(CONTENT_TYPE, "application/xml; charset=utf-8")], xml.finish())
        .into_response()
}

fn answer(status: StatusCode, kind: impl Display, xml: Writer) -> Response {
    let kind = format!("application/atom+xml;type={kind};charset=utf-8");
    (status, [(CONTENT_TYPE, kind)], xml.finish()).into_response()
}
