//! The server's side of the opening handshake of a WebSocket (RFC 6455 §4.2).

use memchr::memmem;
use tungstenite::handshake::machine::TryParse;
use tungstenite::handshake::server::{Request, create_response, write_response};
use tungstenite::http::header::{HOST, HeaderName, HeaderValue, ORIGIN, SEC_WEBSOCKET_PROTOCOL};
use tungstenite::http::{Response, StatusCode, Uri};

use super::super::Protocol;
use super::WebSocketOptions;

/// Maximum length of an upgrade request, in bytes. Longer ones are refused with 431.
const REQUEST_MAX: usize = 16 * 1024;

const END_OF_REQUEST: &[u8] = b"\r\n\r\n";

/// The subprotocols of MQTT: `mqtt` for 3.1.1 and 5, `mqttv3.1` for 3.1.
const MQTT: &[&str] = &["mqtt", "mqttv3.1"];

/// The subprotocol of AMQP 1.0 (AMQP WebSocket Binding 1.0 §2.1).
const AMQP: &[&str] = &["AMQPWSB10"];

/// Path at which clients of Service Bus expect AMQP.
const AMQP_PATH: &str = "/$servicebus/websocket";

/// Buffers an upgrade request and answers it.
#[derive(Debug, Default)]
pub struct Handshake {
    request: Vec<u8>,
}

/// The state of a handshake after some bytes.
#[derive(Debug)]
pub enum Outcome {
    /// The request has not arrived completely.
    Incomplete,
    /// The request is accepted. The WebSocket is open as soon as the client has the response.
    Accepted {
        /// The protocol that is to be spoken.
        protocol: Protocol,
        /// The bytes of the response.
        response: Vec<u8>,
        /// The bytes that the client has sent after its request.
        rest: Vec<u8>,
    },
    /// The request is refused. The connection ends with the response.
    Refused {
        /// The bytes of the response.
        response: Vec<u8>,
        /// The reason of the refusal, as a sentence.
        reason: String,
        /// Whether the request comes from a page in a browser whose origin may not connect.
        is_foreign: bool,
    },
}

/// The refusal of a request: status and reason.
#[derive(Debug)]
struct Refusal(StatusCode, String);

impl Handshake {
    /// Number of bytes that are buffered.
    pub(super) fn len(&self) -> usize {
        self.request.len()
    }

    /// Handles bytes from the client. Work and memory are linear in the number of bytes, no matter how they
    /// are split.
    pub fn receive(&mut self, bytes: &[u8], options: &WebSocketOptions) -> Outcome {
        let seen = self.request.len();
        let (taken, beyond) = bytes.split_at(bytes.len().min(REQUEST_MAX - seen));
        self.request.extend_from_slice(taken);
        // The end may span bytes that arrived before and bytes that arrived now.
        let unseen = seen.saturating_sub(END_OF_REQUEST.len() - 1);
        let end = memmem::find(&self.request[unseen..], END_OF_REQUEST)
            .map(|found| unseen + found + END_OF_REQUEST.len());
        // With such a byte the client speaks MQTT, TLS or AMQP without a WebSocket. The end of a request
        // would never arrive.
        let head = &self.request[seen..end.unwrap_or(self.request.len())];
        if head.iter().any(|byte| is_never_in_a_request(*byte)) {
            let reason = "not an HTTP request; this listener accepts MQTT and AMQP over WebSocket";
            return Refusal(StatusCode::BAD_REQUEST, reason.into()).into();
        }
        let Some(end) = end else {
            if self.request.len() < REQUEST_MAX {
                return Outcome::Incomplete;
            }
            let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            let reason = format!("the request is longer than {REQUEST_MAX} bytes");
            return Refusal(status, reason).into();
        };
        match accept(&self.request[..end], options) {
            Ok((protocol, response)) => {
                let rest = [&self.request[end..], beyond].concat();
                Outcome::Accepted { protocol, response, rest }
            }
            Err(refusal) => refusal.into(),
        }
    }
}

/// Whether a byte can be neither in a request line nor in a header (RFC 9112 §2, §5).
fn is_never_in_a_request(byte: u8) -> bool {
    byte.is_ascii_control() && !matches!(byte, b'\r' | b'\n' | b'\t')
}

/// Checks a complete request. Returns the protocol that is to be spoken, and the response.
fn accept(request: &[u8], options: &WebSocketOptions) -> Result<(Protocol, Vec<u8>), Refusal> {
    let bad = |reason: String| Refusal(StatusCode::BAD_REQUEST, reason);
    let request = match Request::try_parse(request) {
        Ok(Some((length, parsed))) if length == request.len() => parsed,
        // The parser accepts a bare LF as the end of a line, and then takes the rest for frames. A proxy may
        // not.
        Ok(Some(_)) => return Err(bad("a line of the request ends without CR".into())),
        Ok(None) => return Err(bad("the request is incomplete".into())),
        Err(error) => return Err(bad(error.to_string())),
    };
    if request.headers().get("Upgrade").is_none() {
        let reason = "this listener accepts only WebSocket connections, for MQTT and AMQP";
        return Err(Refusal(StatusCode::UPGRADE_REQUIRED, reason.into()));
    }
    let mut response = create_response(&request).map_err(|error| bad(error.to_string()))?;
    let (protocol, known) = match request.uri().path() {
        AMQP_PATH => (Protocol::Amqp, AMQP),
        path if path == options.path => (Protocol::Mqtt, MQTT),
        _ => {
            let reason = format!("no such path; MQTT is at {}, AMQP at {AMQP_PATH}", options.path);
            return Err(Refusal(StatusCode::NOT_FOUND, reason));
        }
    };
    check_origin(&request, options)?;
    let offered = request
        .headers()
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim);
    let chosen = offered.filter_map(|offer| known.iter().find(|ours| **ours == offer)).next();
    let chosen = chosen.ok_or_else(|| {
        bad(match protocol {
            Protocol::Mqtt => {
                "Sec-WebSocket-Protocol must offer the subprotocol mqtt (MQTT-6.0.0-3)".into()
            }
            Protocol::Amqp => "Sec-WebSocket-Protocol must offer the subprotocol AMQPWSB10".into(),
        })
    })?;
    response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(chosen));
    let mut bytes = Vec::new();
    write_response(&mut bytes, &response).map_err(|error| bad(error.to_string()))?;
    Ok((protocol, bytes))
}

/// Refuses pages of other origins (RFC 6455 §10.2). A browser opens a WebSocket to any address for any page,
/// including addresses that only its own machine can reach. Clients other than browsers send no Origin.
fn check_origin(request: &Request, options: &WebSocketOptions) -> Result<(), Refusal> {
    let text = |name: HeaderName| {
        let mut values = request.headers().get_all(name).iter();
        match (values.next(), values.next()) {
            (None, _) => Ok(None),
            (Some(one), None) => Ok(one.to_str().ok().or(Some(""))),
            (Some(_), Some(_)) => Err(()),
        }
    };
    let (Ok(origin), Ok(host)) = (text(ORIGIN), text(HOST)) else {
        let reason = "the request has more than one Origin or Host header";
        return Err(Refusal(StatusCode::BAD_REQUEST, reason.into()));
    };
    let Some(origin) = origin else { return Ok(()) };
    let is_listed = options.origins.iter().any(|known| known == "*" || known == origin);
    if is_listed || host.is_some_and(|host| is_same_origin(origin, host, options)) {
        return Ok(());
    }
    let reason = format!(
        "the origin {} is not allowed; add it to `origins` of the listener",
        origin.escape_debug()
    );
    Err(Refusal(StatusCode::FORBIDDEN, reason))
}

/// Whether a page of `origin` that connects to `host` was loaded from there.
fn is_same_origin(origin: &str, host: &str, options: &WebSocketOptions) -> bool {
    let authority = |text: &str| {
        let uri: Uri = text.parse().ok()?;
        let default = if options.secure { 443 } else { 80 };
        let port = uri.port_u16().unwrap_or(default);
        Some((uri.host()?.to_ascii_lowercase(), port))
    };
    let scheme = if options.secure { "https://" } else { "http://" };
    let (Some(page), Some(asked)) =
        (origin.strip_prefix(scheme).and_then(authority), authority(host))
    else {
        return false;
    };
    // On loopback a matching name proves nothing, because an attacker's name server can resolve it to this
    // machine (DNS rebinding).
    page == asked && (!options.loopback || is_loopback(&page.0))
}

/// Whether a host can only mean this machine.
fn is_loopback(host: &str) -> bool {
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || literal.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

impl From<Refusal> for Outcome {
    fn from(Refusal(status, reason): Refusal) -> Self {
        let body = format!("{reason}\n");
        let mut response = Response::new(());
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert("Connection", HeaderValue::from_static("close"));
        headers.insert("Content-Type", HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert("Content-Length", HeaderValue::from(body.len()));
        if status == StatusCode::UPGRADE_REQUIRED {
            headers.insert("Upgrade", HeaderValue::from_static("websocket"));
        }
        let mut bytes = Vec::new();
        write_response(&mut bytes, &response).expect("a vector takes everything");
        bytes.extend_from_slice(body.as_bytes());
        let is_foreign = status == StatusCode::FORBIDDEN;
        Self::Refused { response: bytes, reason, is_foreign }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> WebSocketOptions {
        WebSocketOptions {
            path: "/mqtt".into(),
            origins: Vec::new(),
            secure: false,
            loopback: true,
        }
    }

    fn request(path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
        let mut text = format!(
            "GET {path} HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        );
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        (text + "\r\n").into_bytes()
    }

    const SUBPROTOCOL: (&str, &str) = ("Sec-WebSocket-Protocol", "mqttv3.1, mqtt");

    /// Returns the status of the response.
    fn answer(request: &[u8], options: &WebSocketOptions) -> u16 {
        status_of(Handshake::default().receive(request, options))
    }

    fn status_of(outcome: Outcome) -> u16 {
        match outcome {
            Outcome::Incomplete => 0,
            Outcome::Accepted { response, .. } | Outcome::Refused { response, .. } => {
                let text = String::from_utf8(response).unwrap();
                text.split(' ').nth(1).unwrap().parse().unwrap()
            }
        }
    }

    #[test]
    fn a_request_is_found_however_it_is_cut_and_frames_may_follow_at_once() {
        let whole = [request("/mqtt", &[("Host", "h"), SUBPROTOCOL]), b"frames".to_vec()].concat();
        for cut in 0..whole.len() {
            let mut handshake = Handshake::default();
            let first = handshake.receive(&whole[..cut], &options());
            let outcome = match first {
                Outcome::Incomplete => handshake.receive(&whole[cut..], &options()),
                done => {
                    let Outcome::Accepted { rest, .. } = &done else { panic!("{done:?}") };
                    assert!(b"frames".starts_with(rest), "{cut}");
                    continue;
                }
            };
            let Outcome::Accepted { protocol, response, rest } = outcome else {
                panic!("{outcome:?}")
            };
            assert_eq!((protocol, &rest[..]), (Protocol::Mqtt, &b"frames"[..]));
            let response = String::from_utf8(response).unwrap().to_lowercase();
            assert!(response.starts_with("http/1.1 101 "), "{response}");
            assert!(response.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="));
            assert!(response.contains("sec-websocket-protocol: mqttv3.1"), "{response}");
        }
    }

    #[test]
    fn a_wrong_request_has_one_answer_however_it_is_cut() {
        let upgrade = request("/mqtt", &[("Host", "localhost:8083"), SUBPROTOCOL]);
        let get = b"GET /mqtt HTTP/1.1\r\nHost: localhost:8083\n\n".to_vec();
        for (whole, status) in [
            // For a parser that accepts LF as the end of a line, the request ends with an empty line, and
            // more bytes follow.
            ([&get[..], b"\x01\r\n\r\n"].concat(), 400),
            ([&get[..], b"more\r\n\r\n"].concat(), 400),
            ([&get[..], &upgrade].concat(), 400),
            ([&upgrade[..upgrade.len() - 2], b"A: \x01\r\n\r\n"].concat(), 400),
        ] {
            for cut in 0..=whole.len() {
                let mut handshake = Handshake::default();
                let outcome = match handshake.receive(&whole[..cut], &options()) {
                    Outcome::Incomplete => handshake.receive(&whole[cut..], &options()),
                    refused => refused,
                };
                assert_eq!(status_of(outcome), status, "{}, cut at {cut}", whole.escape_ascii());
            }
        }
    }

    #[test]
    fn what_is_wrong_has_a_status_that_says_so() {
        let host = ("Host", "localhost:8083");
        assert_eq!(answer(&request("/mqtt", &[host, SUBPROTOCOL]), &options()), 101);
        assert_eq!(answer(&request("/", &[host, SUBPROTOCOL]), &options()), 404);
        assert_eq!(answer(&request("/mqtt", &[host]), &options()), 400);
        assert_eq!(answer(b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\n\r\n", &options()), 426);
        assert_eq!(answer(b"\x10\x0c\0\x04MQTT\r\n\r\n", &options()), 400);
        assert_eq!(answer(b"\x10\x0c\0\x04MQTT", &options()), 400, "nothing is waited for");
        assert_eq!(answer(b"AMQP\0\x01\0\0", &options()), 400);
        assert_eq!(answer(&vec![b'x'; REQUEST_MAX - 1], &options()), 0);
        assert_eq!(answer(&vec![b'x'; 3 * REQUEST_MAX], &options()), 431);
    }

    #[test]
    fn pages_connect_from_their_own_origin_or_a_listed_one() {
        let status = |host: &str, origin: &str, options: &WebSocketOptions| {
            answer(&request("/mqtt", &[("Host", host), ("Origin", origin), SUBPROTOCOL]), options)
        };
        let local = options();
        for (host, origin) in [
            ("localhost:8083", "http://localhost:8083"),
            ("LOCALHOST:8083", "http://localhost:8083"),
            ("127.0.0.1", "http://127.0.0.1:80"),
            ("[::1]:8083", "http://[::1]:8083"),
        ] {
            assert_eq!(status(host, origin, &local), 101, "{origin} of {host}");
        }
        for (host, origin) in [
            ("localhost:8083", "http://evil.example"),
            ("localhost:8083", "http://localhost:3000"),
            ("localhost:8083", "https://localhost:8083"),
            ("localhost:8083", "null"),
            ("localhost:8083", ""),
            ("localhost:8083", "http://"),
            // The attacker's name resolves to this machine by now.
            ("evil.example:8083", "http://evil.example:8083"),
        ] {
            assert_eq!(status(host, origin, &local), 403, "{origin} of {host}");
        }
        let public = WebSocketOptions { loopback: false, secure: true, ..options() };
        assert_eq!(status("mq.example", "https://mq.example", &public), 101);
        assert_eq!(status("mq.example:443", "https://mq.example", &public), 101);
        assert_eq!(status("mq.example", "http://mq.example", &public), 403);
        let listed = WebSocketOptions { origins: vec!["http://app.example".into()], ..options() };
        assert_eq!(status("localhost", "http://app.example", &listed), 101);
        assert_eq!(status("localhost", "http://app.example.evil.example", &listed), 403);
        let open = WebSocketOptions { origins: vec!["*".into()], ..options() };
        assert_eq!(status("localhost", "null", &open), 101);
        let two = [("Host", "h"), ("Origin", "http://h"), ("Origin", "http://evil"), SUBPROTOCOL];
        assert_eq!(answer(&request("/mqtt", &two), &open), 400);
    }
}
