//! The options that `pub` and `sub` share: where the broker is, who we are, what our will is.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use mqtt_proto::{QoS, Version};

use super::properties::UserProperties;
use super::stream::Address;
use super::tls;
use super::url::Url;

/// How to connect
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Connection")]
pub struct ConnectArgs {
    /// The broker's host
    #[arg(short = 'h', long, default_value = "localhost")]
    host: String,
    /// The broker's port [default: 1883; 8883 with TLS, 8083 with --ws, 8084 with both]
    #[arg(short, long)]
    port: Option<u16>,
    /// All in one: mqtt://[user[:password]@]host[:port]/topic, also mqtts://, ws:// and wss://
    #[arg(short = 'L', long, conflicts_with_all = ["host", "port", "ws"])]
    url: Option<Url>,
    /// Client identifier [default: one the broker or barid chooses]
    #[arg(short, long, conflicts_with = "id_prefix")]
    id: Option<String>,
    /// Make the client identifier of this prefix and the process id
    #[arg(short = 'I', long, value_name = "PREFIX")]
    id_prefix: Option<String>,
    /// User name
    #[arg(short, long, value_name = "NAME")]
    username: Option<String>,
    /// Password; other users of this machine can see it here, so rather set the variable
    #[arg(
        short = 'P',
        long,
        value_name = "PASSWORD",
        env = "BARID_PASSWORD",
        hide_env_values = true
    )]
    pw: Option<String>,
    /// Keep Alive, in seconds; 0: none
    #[arg(short, long, value_name = "SECONDS", default_value_t = 60)]
    keepalive: u16,
    /// Continue the session of this client identifier, and keep it when we leave
    #[arg(short = 'c', long)]
    disable_clean_session: bool,
    /// Seconds the session outlives the connection, -1 for ever [default: 0; -1 with -c]
    #[arg(short = 'x', long, value_name = "SECONDS", value_parser = parse_expiry,
        allow_negative_numbers = true)]
    session_expiry_interval: Option<u32>,
    /// MQTT version: 5, 311 or 31 (also mqttv5 …). mosquitto_pub and _sub default to 311
    #[arg(short = 'V', long, value_name = "VERSION", value_parser = parse_version,
        default_value = "5")]
    protocol_version: Version,
    /// A property of MQTT 5, such as `-D publish content-type text/plain` or
    /// `-D publish user-property KEY VALUE`; may be repeated
    #[arg(short = 'D', long, num_args = 3..=4, allow_negative_numbers = true,
        value_names = ["COMMAND", "NAME", "VALUE"])]
    property: Vec<String>,
    /// MQTT over WebSocket
    #[arg(long)]
    ws: bool,
    /// Path of the WebSocket
    #[arg(long, value_name = "PATH", default_value = "/mqtt")]
    ws_path: String,
    /// Seconds to wait for the connection and for each answer
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    connect_timeout: u16,
    /// Tell on standard error what is sent and received
    #[arg(short, long)]
    debug: bool,
    #[command(flatten)]
    will: WillArgs,
    #[command(flatten)]
    tls: TlsArgs,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Will")]
struct WillArgs {
    /// Topic of the will
    #[arg(long, value_name = "TOPIC")]
    will_topic: Option<String>,
    /// Payload of the will
    #[arg(long, value_name = "TEXT", default_value = "", requires = "will_topic")]
    will_payload: String,
    /// QoS of the will
    #[arg(long, value_name = "QOS", value_parser = parse_qos, default_value = "0",
        requires = "will_topic")]
    will_qos: QoS,
    /// Whether the will is retained
    #[arg(long, requires = "will_topic")]
    will_retain: bool,
}

/// Whom to trust, and who we are
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "TLS")]
pub struct TlsArgs {
    /// Use TLS and trust the authorities of this system; implied by the other options here
    #[arg(long, alias = "tls-use-os-certs")]
    tls: bool,
    /// Trust the authorities in this PEM file
    #[arg(long, value_name = "FILE")]
    pub cafile: Option<PathBuf>,
    /// Trust the authorities in the PEM files of this directory
    #[arg(long, value_name = "DIR")]
    pub capath: Option<PathBuf>,
    /// Our certificate, a PEM file
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,
    /// The private key of our certificate, a PEM file
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
    /// Trust whatever certificate the broker shows. Never outside of tests
    #[arg(long)]
    pub insecure: bool,
    /// Protocol to name in the TLS handshake (ALPN), such as `mqtt`
    #[arg(long, value_name = "NAME")]
    tls_alpn: Option<String>,
}

/// Everything that is needed to connect, once or again.
#[derive(Clone)]
pub struct Target {
    pub address: Address,
    pub version: Version,
    pub client_id: String,
    pub username: Option<String>,
    pub password: Option<String>,
    pub keep_alive: Duration,
    pub clean_start: bool,
    pub session_expiry: u32,
    pub will: Option<Will>,
    pub properties: UserProperties,
    pub timeout: Duration,
    pub debug: bool,
    /// The topic of the URL.
    pub topic: Option<String>,
}

/// What is published if we vanish.
#[derive(Clone)]
pub struct Will {
    pub topic: String,
    pub payload: String,
    pub qos: QoS,
    pub retain: bool,
}

impl ConnectArgs {
    /// Whether `-d` was given.
    pub fn debug(&self) -> bool {
        self.debug
    }

    /// What the options mean together.
    ///
    /// # Errors
    /// They contradict each other, or a file cannot be read.
    pub fn target(&self) -> anyhow::Result<Target> {
        let version = self.protocol_version;
        if !version.is_v5() && !self.property.is_empty() {
            bail!("-D needs MQTT 5 (-V 5)");
        }
        if self.disable_clean_session && self.id.is_none() {
            bail!("-c continues the session of a client identifier; say which with -i");
        }
        if let Some(will) = &self.will.will_topic {
            mqtt_proto::topic::validate_name(will).context("--will-topic")?;
        }
        let url = self.url.as_ref();
        let username = self.username.clone().or_else(|| url.and_then(|url| url.username.clone()));
        let password = self.pw.clone().or_else(|| url.and_then(|url| url.password.clone()));
        if !version.is_v5() && password.is_some() && username.is_none() {
            bail!("a password without a user name needs MQTT 5; see -u");
        }
        let expiry_of_kept = if self.disable_clean_session { u32::MAX } else { 0 };
        Ok(Target {
            address: self.address()?,
            version,
            client_id: self.client_id(),
            username,
            password,
            keep_alive: Duration::from_secs(self.keepalive.into()),
            clean_start: !self.disable_clean_session,
            session_expiry: self.session_expiry_interval.unwrap_or(expiry_of_kept),
            will: self.will.will_topic.as_ref().map(|topic| Will {
                topic: topic.clone(),
                payload: self.will.will_payload.clone(),
                qos: self.will.will_qos,
                retain: self.will.will_retain,
            }),
            properties: UserProperties::parse(&self.property)?,
            timeout: Duration::from_secs(u64::from(self.connect_timeout.max(1))),
            debug: self.debug,
            topic: url
                .filter(|url| !url.websocket && !url.path.is_empty())
                .map(|url| url.path.clone()),
        })
    }

    fn address(&self) -> anyhow::Result<Address> {
        let url = self.url.as_ref();
        let websocket = url.map_or(self.ws, |url| url.websocket);
        let asked = self.tls.asked() || (url.is_none() && self.port == Some(8883));
        let tls = url.map_or(asked, |url| url.tls);
        if self.tls.asked() && !tls {
            bail!("the URL is one without TLS; begin it with mqtts:// or wss://");
        }
        let host = url.map_or(&self.host, |url| &url.host).clone();
        let port = match url {
            Some(url) => url.port.unwrap_or_else(|| Url::default_port(tls, websocket)),
            None => self.port.unwrap_or(match (tls, websocket) {
                (false, false) => 1883,
                (true, false) => 8883,
                (false, true) => 8083,
                (true, true) => 8084,
            }),
        };
        let path = match url {
            Some(url) if !url.path.is_empty() => format!("/{}", url.path),
            _ if self.ws_path.starts_with('/') => self.ws_path.clone(),
            _ => format!("/{}", self.ws_path),
        };
        let subprotocol = if self.protocol_version == Version::V3_1 { "mqttv3.1" } else { "mqtt" };
        let alpn = self.tls.tls_alpn.as_deref().or(websocket.then_some("http/1.1"));
        Ok(Address {
            host,
            port,
            tls: if tls { Some(tls::config(&self.tls, alpn)?) } else { None },
            websocket: websocket.then_some((path, subprotocol)),
        })
    }

    /// Empty where the broker may choose: only MQTT 5 tells the client what was chosen.
    fn client_id(&self) -> String {
        match (&self.id, &self.id_prefix) {
            (Some(id), _) => id.clone(),
            (None, Some(prefix)) => format!("{prefix}{}", std::process::id()),
            (None, None) if self.protocol_version.is_v5() => String::new(),
            (None, None) => format!("barid-{}", std::process::id()),
        }
    }
}

impl TlsArgs {
    fn asked(&self) -> bool {
        let files = [&self.cafile, &self.capath, &self.cert, &self.key];
        self.tls
            || self.insecure
            || self.tls_alpn.is_some()
            || files.iter().any(|file| file.is_some())
    }
}

/// Reads `-V`.
pub fn parse_version(text: &str) -> Result<Version, String> {
    match text.strip_prefix("mqttv").unwrap_or(text) {
        "5" | "50" | "5.0" => Ok(Version::V5),
        "311" | "3.1.1" | "4" => Ok(Version::V3_1_1),
        "31" | "3.1" | "3" => Ok(Version::V3_1),
        _ => Err("the versions are 5, 311 and 31".into()),
    }
}

/// Reads `-q`.
pub fn parse_qos(text: &str) -> Result<QoS, String> {
    let number: Option<u8> = text.parse().ok();
    number.and_then(|number| QoS::try_from(number).ok()).ok_or_else(|| "QoS is 0, 1 or 2".into())
}

fn parse_expiry(text: &str) -> Result<u32, String> {
    match text {
        "-1" | "∞" => Ok(u32::MAX),
        _ => text.parse().map_err(|_| "seconds from 0 to 4294967295, or -1 for ever".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn target(line: &str) -> Result<Target, String> {
        #[derive(Parser)]
        #[command(disable_help_flag = true)]
        struct Flags {
            #[command(flatten)]
            connect: ConnectArgs,
        }
        let words = std::iter::once("barid").chain(line.split_whitespace());
        let flags = Flags::try_parse_from(words).map_err(|error| error.to_string())?;
        flags.connect.target().map_err(|error| format!("{error:#}"))
    }

    /// `line` must lead to this host and port, with TLS or not, and with this WebSocket path.
    #[track_caller]
    fn check(line: &str, host: &str, port: u16, tls: bool, path: Option<&str>) {
        let Address { host: h, port: p, tls: t, websocket } = target(line).unwrap().address;
        let found = (h.as_str(), p, t.is_some(), websocket.as_ref().map(|(path, _)| path.as_str()));
        assert_eq!(found, (host, port, tls, path), "{line}");
    }

    #[test]
    fn addresses() {
        check("", "localhost", 1883, false, None);
        check("-h broker -p 7", "broker", 7, false, None);
        check("--insecure", "localhost", 8883, true, None);
        check("--insecure -p 1", "localhost", 1, true, None);
        check("--ws", "localhost", 8083, false, Some("/mqtt"));
        check("--ws --insecure --ws-path x", "localhost", 8084, true, Some("/x"));
        check("-L mqtt://[::1]/a/b", "::1", 1883, false, None);
        check("-L wss://h/ws/mqtt --insecure", "h", 443, true, Some("/ws/mqtt"));
        check("-L ws://h", "h", 80, false, Some("/mqtt"));
    }

    #[test]
    fn identity_and_session() {
        let found = target("-L mqtt://acme%2Fa:pw@h/t -i me -c -k 5 -V mqttv311").unwrap();
        assert_eq!(found.username.as_deref(), Some("acme/a"));
        assert_eq!(found.password.as_deref(), Some("pw"));
        assert_eq!(found.topic.as_deref(), Some("t"));
        assert_eq!((found.client_id.as_str(), found.version), ("me", Version::V3_1_1));
        assert_eq!((found.clean_start, found.session_expiry), (false, u32::MAX));
        assert_eq!(found.keep_alive, Duration::from_secs(5));
        assert_eq!(target("").unwrap().client_id, "", "the broker may choose");
        assert!(target("-V 31").unwrap().client_id.starts_with("barid-"));
        assert!(target("-I x-").unwrap().client_id.starts_with("x-"));
        assert_eq!(target("-x 60").unwrap().session_expiry, 60);
        assert_eq!(target("-x -1").unwrap().session_expiry, u32::MAX);
    }

    #[test]
    fn mistakes() {
        for (line, expected) in [
            ("-V 6", "the versions are 5, 311 and 31"),
            ("-c", "say which with -i"),
            ("-V 311 -D publish content-type x", "-D needs MQTT 5"),
            ("-V 311 -P x", "a password without a user name needs MQTT 5"),
            ("--will-topic a/#", "--will-topic: a topic name must not contain + or #"),
            ("--will-retain", "--will-topic"),
            ("--will-topic a --will-qos 3", "QoS is 0, 1 or 2"),
            ("--cert x", "--key"),
            ("-L mqtt://h --insecure", "begin it with mqtts:// or wss://"),
            ("-L mqtt://h -p 1", "cannot be used with"),
            ("-x soon", "or -1 for ever"),
            ("--cafile /no/such.pem", "--cafile /no/such.pem"),
        ] {
            let error = target(line).err().unwrap_or_default();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
