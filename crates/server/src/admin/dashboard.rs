//! `/dashboard/`: the pages for operators. They are files of `dashboard/`, which the program contains; what they show
//! comes from the paths below `/v1`, with the token that the user has entered.
//!
//! A page may load only these files, talk only to this address, and be shown in no other page. Nothing in it can
//! become a script.

use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::header::{
    ACCEPT, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderName, LOCATION,
    REFERRER_POLICY, X_FRAME_OPTIONS,
};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};

use super::answer;

/// What the pages may do (Content Security Policy Level 3). Without `trusted-types`, no text can be made into HTML.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

/// Header that keeps pages of other sites from a reference to a window with a page of the dashboard.
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const PICTURE: &str = "image/svg+xml";

macro_rules! files {
    ($($kind:ident $name:literal),* $(,)?) => {
        &[$(($name, $kind, include_str!(concat!("../../dashboard/", $name)))),*]
    };
}

/// The files: name, type and contents.
const FILES: &[(&str, &str, &str)] = files![
    HTML "index.html",
    STYLE "style.css",
    PICTURE "icon.svg",
    SCRIPT "main.js",
    SCRIPT "api.js",
    SCRIPT "chart.js",
    SCRIPT "dom.js",
    SCRIPT "format.js",
    SCRIPT "stream.js",
    SCRIPT "table.js",
    SCRIPT "views/bindings.js",
    SCRIPT "views/client.js",
    SCRIPT "views/clients.js",
    SCRIPT "views/cluster.js",
    SCRIPT "views/events.js",
    SCRIPT "views/health.js",
    SCRIPT "views/overview.js",
    SCRIPT "views/queue.js",
    SCRIPT "views/queues.js",
    SCRIPT "views/sessions.js",
    SCRIPT "views/state.js",
    SCRIPT "views/tenants.js",
    SCRIPT "views/topics.js",
    SCRIPT "views/trace.js",
    SCRIPT "views/try.js",
    SCRIPT "views/why.js",
];

/// The page that all others are parts of.
pub async fn page() -> Response {
    file("index.html").expect("it is one of them")
}

/// One of its files.
pub async fn part(path: Result<Path<String>, PathRejection>, uri: Uri) -> Response {
    let found = path.ok().and_then(|Path(name)| file(&name));
    match found {
        Some(response) => response,
        None => answer::no_such_path(uri).await.into_response(),
    }
}

/// Sends browsers to the dashboard. Other programs get `otherwise`.
pub fn for_browsers(headers: &HeaderMap, otherwise: impl IntoResponse) -> Response {
    let wanted = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    if wanted.is_some_and(|accept| accept.contains("text/html")) {
        return (StatusCode::SEE_OTHER, [(LOCATION, "/dashboard/")]).into_response();
    }
    otherwise.into_response()
}

fn file(name: &str) -> Option<Response> {
    let (_, kind, contents) = FILES.iter().find(|(known, ..)| *known == name)?;
    let headers = [
        (CONTENT_TYPE, *kind),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (OPENER_POLICY, "same-origin"),
    ];
    Some((headers, *contents).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_load_is_small() {
        let bytes: usize = FILES.iter().map(|(_, _, contents)| contents.len()).sum();
        assert!(bytes < 200_000, "{bytes} bytes");
    }

    #[test]
    fn every_file_is_served() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/dashboard");
        let mut waiting = vec![std::path::PathBuf::from(directory)];
        while let Some(directory_or_file) = waiting.pop() {
            if directory_or_file.is_dir() {
                let entries = std::fs::read_dir(directory_or_file).unwrap();
                waiting.extend(entries.map(|entry| entry.unwrap().path()));
                continue;
            }
            let name = directory_or_file.strip_prefix(directory).unwrap().to_str().unwrap();
            assert!(file(name).is_some(), "{name} is not among the files");
        }
    }
}
