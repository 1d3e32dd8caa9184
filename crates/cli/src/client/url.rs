//! URLs such as `mqtt://user:password@host:port/topic`, also with TLS and WebSocket.

use std::str::FromStr;

/// A broker's address; with the `mqtt` schemes it may include a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// `true` for AMQP, `false` for MQTT; over WebSocket it is `false` for both.
    pub amqp: bool,
    pub tls: bool,
    pub websocket: bool,
    pub username: Option<String>,
    pub password: Option<String>,
    pub host: String,
    pub port: Option<u16>,
    /// Path behind the host, without the leading slash.
    pub path: String,
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, rest) =
            text.split_once("://").ok_or("a URL looks like mqtt://host:port/topic")?;
        let (amqp, tls, websocket) = match scheme {
            "mqtt" => (false, false, false),
            "mqtts" => (false, true, false),
            "amqp" => (true, false, false),
            "amqps" => (true, true, false),
            "ws" => (false, false, true),
            "wss" => (false, true, true),
            _ => return Err(format!("`{scheme}` is not one of mqtt, mqtts, ws, wss, amqp, amqps")),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (credentials, address) = match authority.rsplit_once('@') {
            Some((credentials, address)) => (Some(credentials), address),
            None => (None, authority),
        };
        let (username, password) = match credentials.map(|both| both.split_once(':')) {
            Some(Some((username, password))) => (Some(username), Some(password)),
            Some(None) => (credentials, None),
            None => (None, None),
        };
        let (host, port) = split_port(address)?;
        if host.is_empty() {
            return Err("the URL has no host".into());
        }
        Ok(Url {
            amqp,
            tls,
            websocket,
            username: username.map(decode).transpose()?,
            password: password.map(decode).transpose()?,
            host: host.into(),
            port,
            path: decode(path)?,
        })
    }
}

/// Splits `host:port`; the host may be an IPv6 address in brackets.
fn split_port(address: &str) -> Result<(&str, Option<u16>), String> {
    let (host, port) = match address.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or("the bracket `[` is not closed")?;
            (host, rest.strip_prefix(':'))
        }
        None => match address.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (address, None),
        },
    };
    let port = port
        .map(|port| port.parse().map_err(|_| format!("`{port}` is not a port number")))
        .transpose()?;
    Ok((host, port))
}

/// Decodes percent-encoding.
fn decode(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        if *first == b'%' {
            let digits = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
            let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
            bytes.push(byte.ok_or_else(|| format!("`{text}` has a % without two hex digits"))?);
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).map_err(|_| format!("`{text}` is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts() {
        let url: Url = "mqtts://acme%2Fme:p%3Aw@[::1]:8884/a/b%23".parse().unwrap();
        assert_eq!(
            url,
            Url {
                amqp: false,
                tls: true,
                websocket: false,
                username: Some("acme/me".into()),
                password: Some("p:w".into()),
                host: "::1".into(),
                port: Some(8884),
                path: "a/b#".into(),
            }
        );
        let url: Url = "ws://broker".parse().unwrap();
        assert!(url.websocket && !url.tls && url.path.is_empty() && url.port.is_none());
    }

    #[test]
    fn mistakes() {
        for (text, expected) in [
            ("localhost:1883", "a URL looks like mqtt://host:port/topic"),
            ("http://x", "`http` is not one of mqtt, mqtts, ws, wss, amqp, amqps"),
            ("mqtt:///topic", "the URL has no host"),
            ("mqtt://h:port", "`port` is not a port number"),
            ("mqtt://[::1", "the bracket `[` is not closed"),
            ("mqtt://h/a%2", "`a%2` has a % without two hex digits"),
            ("mqtt://%ff@h", "`%ff` is not UTF-8"),
        ] {
            assert_eq!(text.parse::<Url>(), Err(expected.into()));
        }
    }
}
