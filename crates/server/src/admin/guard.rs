//! Access control: which requests are answered at all.
//!
//! Without TLS the admin API listens on loopback only. Browsers on this machine run untrusted programs, so two kinds of
//! requests from browsers are refused:
//!
//! - Requests for a name that an attacker has resolved to this machine (DNS rebinding). The name is in
//!   `Host`, and is none of those that are answered.
//! - Requests of another site's page for the address itself. They have a foreign `Origin`, or a
//!   `Sec-Fetch-Site` that says so. The browser sets both, and a page cannot change them.
//!
//! Over TLS, other machines ask, and every request has a token. There the name in `Host` has to be one of the certificate's,
//! or an address.
//!
//! Answered are the requests of the dashboard's own pages, and of programs that are no browsers.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::http::header::{HOST, HeaderMap, HeaderName, ORIGIN, TRANSFER_ENCODING};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderValue, Method, StatusCode};

use super::answer::Refusal;

/// Header that says where a browser's request comes from (Fetch Metadata Request Headers, 2.3).
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Its value for requests of a page that this address has served.
const SAME_ORIGIN: &[u8] = b"same-origin";

/// Its value for addresses that the user has entered. No page needs that for a change.
const ENTERED: &[u8] = b"none";

/// Refuses a request that is not answered, no matter what it asks for.
pub fn check(request: &Parts) -> Result<(), Refusal> {
    let host = host(request, is_loopback, |host| {
        format!(
            "only localhost, 127.0.0.1 and [::1] are accepted as Host, not {host:?}, which protects against DNS \
             rebinding. From another machine, use `admin.https`, or a tunnel: ssh -L 8081:127.0.0.1:8081 HOST"
        )
    })?;
    check_origin(request, "http", &host)?;
    check_length(request)
}

/// Refuses a request over TLS that is not answered, no matter what it asks for. `is_certified` returns whether the
/// certificate is for a host.
pub fn check_over_tls(request: &Parts, is_certified: impl Fn(&str) -> bool) -> Result<(), Refusal> {
    let is_own = |authority: &Authority| {
        !authority.as_str().contains('@')
            && (is_address(authority.host()) || is_certified(authority.host()))
    };
    let host = host(request, is_own, |host| {
        format!("the certificate is not for {host:?}, and neither is the request")
    })?;
    check_origin(request, "https", &host)?;
    check_length(request)
}

/// Whether a host is given as an address, which no attacker can have resolved.
fn is_address(host: &str) -> bool {
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    inner.map_or(host.parse::<Ipv4Addr>().is_ok(), |inner| inner.parse::<Ipv6Addr>().is_ok())
}

/// Refuses a request whose body has no length. One way to delimit a body is enough, so that no proxy can see a
/// different end of the request (RFC 9112, 6.3).
pub fn check_length(request: &Parts) -> Result<(), Refusal> {
    if request.headers.contains_key(TRANSFER_ENCODING) {
        let sentence = "send Content-Length; Transfer-Encoding is not supported";
        return Err(Refusal::of(StatusCode::LENGTH_REQUIRED, sentence));
    }
    Ok(())
}

/// Returns the host that the client addresses, which has to be this one. `foreign` says what is wrong with another one.
fn host(
    request: &Parts,
    is_own: impl Fn(&Authority) -> bool,
    foreign: impl Fn(&str) -> String,
) -> Result<Authority, Refusal> {
    let unclear = || {
        Refusal::bad_request(
            "the request must have exactly one Host header, with a host and optionally a port",
        )
    };
    let written = only(&request.headers, HOST).ok_or_else(unclear)?;
    let host = parse(written).ok_or_else(unclear)?;
    // A target in absolute form contains another host, which takes precedence (RFC 9112, 3.2.2).
    let target = request.uri.authority();
    for authority in [Some(&host), target].into_iter().flatten() {
        if !is_own(authority) {
            return Err(Refusal::forbidden(foreign(authority.host())));
        }
    }
    Ok(host)
}

/// Returns the value of a header that is present exactly once.
fn only(headers: &HeaderMap, name: HeaderName) -> Option<&HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

fn parse(host: &HeaderValue) -> Option<Authority> {
    let authority: Authority = host.to_str().ok()?.parse().ok()?;
    (!authority.as_str().contains('@') && !authority.host().is_empty()).then_some(authority)
}

fn is_loopback(authority: &Authority) -> bool {
    let host = authority.host();
    if authority.as_str().contains('@') {
        return false;
    }
    if let Some(address) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        let address = address.parse::<Ipv6Addr>();
        return address.is_ok_and(|address| address.to_canonical().is_loopback());
    }
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
}

fn check_origin(request: &Parts, scheme: &str, host: &Authority) -> Result<(), Refusal> {
    let is_change = !matches!(request.method, Method::GET | Method::HEAD | Method::OPTIONS);
    let has_origin = request.headers.contains_key(ORIGIN);
    let has_site = request.headers.contains_key(FETCH_SITE);
    let own = format!("{scheme}://{host}");
    let is_own = |origin: &HeaderValue| origin.as_bytes().eq_ignore_ascii_case(own.as_bytes());
    let is_own_site = |site: &HeaderValue| {
        site.as_bytes() == SAME_ORIGIN || !is_change && site.as_bytes() == ENTERED
    };
    if has_origin && !only(&request.headers, ORIGIN).is_some_and(is_own)
        || has_site && !only(&request.headers, FETCH_SITE).is_some_and(is_own_site)
    {
        return Err(Refusal::forbidden(
            "requests from pages of other sites are refused; enter the address in the browser yourself",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn status(method: &str, target: &str, headers: &[(&str, &str)]) -> u16 {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        check(&parts).map_or_else(|refusal| refusal.status().as_u16(), |()| 200)
    }

    #[test]
    fn only_this_machine_is_asked_for() {
        for host in [
            "localhost",
            "LocalHost:8081",
            "127.0.0.1:8081",
            "127.8.9.10",
            "[::1]",
            "[::1]:80",
            "[::ffff:127.0.0.1]:8081",
        ] {
            assert_eq!(status("GET", "/", &[("host", host)]), 200, "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.7",
            "[::2]",
            "0.0.0.0",
            "[::]",
            "evillocalhost",
            "127.1",
            "2130706433",
            "localhost,evil",
        ] {
            assert_eq!(status("GET", "/", &[("host", host)]), 403, "{host}");
        }
        for host in ["", ":8081", "me@localhost", "a b", "http://localhost"] {
            assert_eq!(status("GET", "/", &[("host", host)]), 400, "{host}");
        }
        assert_eq!(status("GET", "/", &[]), 400);
        assert_eq!(status("GET", "/", &[("host", "localhost"), ("host", "localhost")]), 400);
    }

    #[test]
    fn a_target_in_absolute_form_has_to_be_this_machine_too() {
        let host = &[("host", "localhost")];
        assert_eq!(status("GET", "http://localhost:1/healthz", host), 200);
        for target in ["http://evil.example/", "http://x@localhost/", "https://[::2]/"] {
            assert_eq!(status("GET", target, host), 403, "{target}");
        }
        assert_eq!(status("GET", "http://localhost/", &[("host", "evil.example")]), 403);
    }

    #[test]
    fn pages_of_other_sites_get_nothing_and_change_nothing() {
        let ask =
            |method, name, value| status(method, "/", &[("host", "127.0.0.1:8081"), (name, value)]);
        for (name, value, expected) in [
            ("origin", "http://127.0.0.1:8081", 200),
            ("origin", "http://127.0.0.1", 403),
            ("origin", "http://localhost:8081", 403),
            ("origin", "https://127.0.0.1:8081", 403),
            ("origin", "http://evil.example", 403),
            ("origin", "null", 403),
            ("origin", "", 403),
            ("sec-fetch-site", "none", 200),
            ("sec-fetch-site", "same-origin", 200),
            ("sec-fetch-site", "same-site", 403),
            ("sec-fetch-site", "cross-site", 403),
            ("sec-fetch-mode", "cors", 200),
        ] {
            assert_eq!(ask("GET", name, value), expected, "{name}: {value}");
            let expected = if value == "none" { 403 } else { expected };
            for method in ["PUT", "PATCH", "DELETE", "POST", "BREW"] {
                assert_eq!(ask(method, name, value), expected, "{method} with {name}: {value}");
            }
        }
        let own = [("host", "localhost:1"), ("origin", "http://localhost:1")];
        assert_eq!(status("POST", "/", &[own[0], own[1], ("sec-fetch-site", "cross-site")]), 403);
        let twice = [("host", "localhost"), ("origin", "http://localhost"), ("origin", "null")];
        assert_eq!(status("GET", "/", &twice), 403);
        assert_eq!(status("DELETE", "/", &[("host", "localhost")]), 200);
    }

    #[test]
    fn over_tls_the_name_is_one_of_the_certificate() {
        let status = |host: &str, origin: Option<&str>| {
            let mut request = Request::builder().method("POST").header("host", host);
            if let Some(origin) = origin {
                request = request.header("origin", origin);
            }
            let (parts, ()) = request.body(()).unwrap().into_parts();
            let checked = check_over_tls(&parts, |host| host == "broker.example");
            checked.map_or_else(|refusal| refusal.status().as_u16(), |()| 200)
        };
        for host in ["broker.example", "broker.example:8444", "10.0.0.7:8444", "[2001:db8::7]"] {
            assert_eq!(status(host, None), 200, "{host}");
        }
        for host in ["evil.example", "broker.example.evil.example", "localhost", "10.0.0.7.evil"] {
            assert_eq!(status(host, None), 403, "{host}");
        }
        assert_eq!(status("me@broker.example", None), 400);
        assert_eq!(status("broker.example:1", Some("https://broker.example:1")), 200);
        assert_eq!(status("broker.example:1", Some("http://broker.example:1")), 403);
        assert_eq!(status("broker.example", Some("https://evil.example")), 403);
    }

    #[test]
    fn a_body_has_one_length() {
        let chunked = [("host", "localhost"), ("transfer-encoding", "chunked")];
        assert_eq!(status("PUT", "/", &chunked), 411);
    }
}
