//! Options shared by the commands that connect to a broker: address, credentials, session and will.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use mqtt_proto::{QoS, Version};

use super::properties::UserProperties;
use super::stream::Address;
use super::tls;
use super::url::Url;
use crate::span;

/// Address and credentials: options of every command that connects to a broker as a client
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Connection")]
pub struct BrokerArgs {
    /// The broker's host (for help use --help)
    // As with mosquitto_pub and mosquitto_sub. The commands that have no host have `-h` for help.
    #[arg(short = 'h', long, default_value = "localhost")]
    host: String,
    /// The broker's port [default: that of the protocol, such as 1883 for MQTT; 8883 with TLS,
    /// 8083 with --ws, 8084 with both]
    #[arg(short, long)]
    port: Option<u16>,
    /// Address as a URL: mqtt://[user[:password]@]host[:port]/topic, also mqtts://, ws:// and wss://
    #[arg(short = 'L', long, conflicts_with_all = ["host", "port", "ws"])]
    url: Option<Url>,
    /// User name
    #[arg(short, long, alias = "user", value_name = "NAME")]
    username: Option<String>,
    /// Password. Other users of this machine can see it on the command line; the environment variable is safer
    #[arg(
        short = 'P',
        long,
        value_name = "PASSWORD",
        // One that is drawn by chance may begin with a hyphen.
        allow_hyphen_values = true,
        env = "BARID_PASSWORD",
        hide_env_values = true
    )]
    pw: Option<String>,
    /// Use WebSocket
    #[arg(long)]
    ws: bool,
    /// Path of the WebSocket [default: /mqtt; for AMQP /$servicebus/websocket]
    #[arg(long, value_name = "PATH")]
    ws_path: Option<String>,
    #[command(flatten)]
    tls: TlsArgs,
}

/// Options for connecting
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Connection")]
pub struct ConnectArgs {
    #[command(flatten)]
    broker: BrokerArgs,
    /// Client identifier [default: chosen by the broker or by barid]
    #[arg(short, long, conflicts_with = "id_prefix", help_heading = "Connection")]
    id: Option<String>,
    /// Use this prefix and the process id as the client identifier
    #[arg(short = 'I', long, value_name = "PREFIX", help_heading = "Connection")]
    id_prefix: Option<String>,
    /// Keep Alive: seconds, or 5m; 0: none
    #[arg(short, long, value_name = "TIME", default_value = "60", value_parser = parse_keep_alive,
        help_heading = "Connection")]
    keepalive: u16,
    /// Continue the session of this client identifier, and keep it after disconnecting
    #[arg(short = 'c', long, help_heading = "Connection")]
    disable_clean_session: bool,
    /// How long the session outlives the connection: seconds, or 5m, 2h, 1d; -1: for ever
    /// [default: 0; -1 with -c]
    #[arg(short = 'x', long, value_name = "TIME", value_parser = parse_expiry,
        allow_negative_numbers = true, help_heading = "Connection")]
    session_expiry_interval: Option<u32>,
    /// MQTT version: 5, 311 or 31 (also mqttv5 …). mosquitto_pub and _sub default to 311
    #[arg(short = 'V', long, value_name = "VERSION", value_parser = parse_version,
        default_value = "5", help_heading = "Connection")]
    protocol_version: Version,
    /// A property of MQTT 5, such as `-D publish content-type text/plain` or
    /// `-D publish user-property KEY VALUE`; may be repeated
    #[arg(short = 'D', long, num_args = 3..=4, allow_negative_numbers = true,
        value_names = ["COMMAND", "NAME", "VALUE"], help_heading = "Connection")]
    property: Vec<String>,
    /// How long to wait for the connection and for each answer: seconds, or 500ms, 1m
    #[arg(long, value_name = "TIME", default_value = "10", value_parser = span::parse_some,
        help_heading = "Connection")]
    connect_timeout: Duration,
    /// Log sent and received packets to standard error
    #[arg(short, long, help_heading = "Connection")]
    debug: bool,
    #[command(flatten)]
    will: WillArgs,
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

/// Certificates and other options of TLS
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "TLS")]
pub struct TlsArgs {
    /// Use TLS and trust the certificate authorities of this system; the other TLS options imply it
    #[arg(long, alias = "tls-use-os-certs")]
    tls: bool,
    /// Trust the certificate authorities in this PEM file
    #[arg(long, value_name = "FILE")]
    pub cafile: Option<PathBuf>,
    /// Trust the certificate authorities in the PEM files of this directory
    #[arg(long, value_name = "DIR")]
    pub capath: Option<PathBuf>,
    /// Client certificate, a PEM file
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,
    /// Private key of the client certificate, a PEM file
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
    /// Accept any certificate of the broker without verifying it. For tests only
    #[arg(long)]
    pub insecure: bool,
    /// Protocol to name in the TLS handshake (ALPN), such as `mqtt`
    #[arg(long, value_name = "NAME")]
    tls_alpn: Option<String>,
}

/// Everything needed to connect, and to reconnect.
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
    /// Topic in the URL.
    pub topic: Option<String>,
}

/// The will message.
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

    /// Combines the options.
    ///
    /// # Errors
    /// The options contradict each other, or a file cannot be read.
    pub fn target(&self) -> anyhow::Result<Target> {
        let version = self.protocol_version;
        if !version.is_v5() && !self.property.is_empty() {
            bail!("-D needs MQTT 5 (-V 5)");
        }
        if self.disable_clean_session && self.id.is_none() {
            bail!("-c continues the session of a client identifier; name it with -i");
        }
        if let Some(will) = &self.will.will_topic {
            mqtt_proto::topic::validate_name(will).context("--will-topic")?;
        }
        let (username, password) = self.broker.credentials(version)?;
        let expiry_of_kept = if self.disable_clean_session { u32::MAX } else { 0 };
        Ok(Target {
            address: self.broker.address(Protocol::Mqtt(version))?,
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
            timeout: self.connect_timeout,
            debug: self.debug,
            topic: self.broker.topic().map(str::to_owned),
        })
    }

    /// Returns the client identifier; empty if the broker may choose one. Only MQTT 5 tells the client
    /// the choice.
    fn client_id(&self) -> String {
        match (&self.id, &self.id_prefix) {
            (Some(id), _) => id.clone(),
            (None, Some(prefix)) => format!("{prefix}{}", std::process::id()),
            (None, None) if self.protocol_version.is_v5() => String::new(),
            (None, None) => format!("barid-{}", std::process::id()),
        }
    }
}

/// Protocol, with its version, that a command uses to talk to the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// MQTT of this version.
    Mqtt(Version),
    /// AMQP 1.0.
    Amqp,
}

impl Protocol {
    /// Returns the default port of a listener for this protocol.
    fn port(self, tls: bool, websocket: bool) -> u16 {
        match (self, tls, websocket) {
            (Self::Mqtt(_), false, false) => 1883,
            (Self::Mqtt(_), true, false) => 8883,
            (Self::Amqp, false, false) => 5672,
            (Self::Amqp, true, false) => 5671,
            (_, false, true) => 8083,
            (_, true, true) => 8084,
        }
    }

    /// Returns the default path and the subprotocol of a WebSocket for this protocol.
    fn websocket(self) -> (&'static str, &'static str) {
        match self {
            Self::Mqtt(Version::V3_1) => ("/mqtt", "mqttv3.1"),
            Self::Mqtt(_) => ("/mqtt", "mqtt"),
            Self::Amqp => ("/$servicebus/websocket", "AMQPWSB10"),
        }
    }
}

impl BrokerArgs {
    /// Returns the address of the broker and the layers around the socket.
    ///
    /// # Errors
    /// The options contradict each other, or a file cannot be read.
    pub fn address(&self, protocol: Protocol) -> anyhow::Result<Address> {
        let url = self.url.as_ref();
        if let Some(url) = url.filter(|url| !url.websocket) {
            let is_amqp = protocol == Protocol::Amqp;
            match (url.amqp, is_amqp) {
                (false, true) => {
                    bail!("this command speaks AMQP; begin the URL with amqp:// or amqps://")
                }
                (true, false) => {
                    bail!("this command speaks MQTT; begin the URL with mqtt:// or mqtts://")
                }
                _ => {}
            }
        }
        let websocket = url.map_or(self.ws, |url| url.websocket);
        let is_port_of_tls = self.port == Some(protocol.port(true, false));
        let asked = self.tls.asked() || (url.is_none() && is_port_of_tls);
        let tls = url.map_or(asked, |url| url.tls);
        if self.tls.asked() && !tls {
            bail!("TLS options need a URL with TLS; begin it with mqtts://, amqps:// or wss://");
        }
        let host = url.map_or(&self.host, |url| &url.host).clone();
        let port = match url {
            Some(url) if url.websocket => url.port.unwrap_or(if tls { 443 } else { 80 }),
            Some(url) => url.port.unwrap_or_else(|| protocol.port(tls, false)),
            None => self.port.unwrap_or_else(|| protocol.port(tls, websocket)),
        };
        let (usual_path, subprotocol) = protocol.websocket();
        let path = match (url, &self.ws_path) {
            (Some(url), _) if !url.path.is_empty() => format!("/{}", url.path),
            (_, Some(path)) if path.starts_with('/') => path.clone(),
            (_, Some(path)) => format!("/{path}"),
            _ => usual_path.into(),
        };
        let alpn = match &self.tls.tls_alpn {
            Some(alpn) => Some(alpn.as_str()),
            None if websocket => Some("http/1.1"),
            None => None,
        };
        Ok(Address {
            host,
            port,
            tls: if tls { Some(tls::config(&self.tls, alpn)?) } else { None },
            websocket: websocket.then_some((path, subprotocol)),
        })
    }

    /// Returns the user name and the password for MQTT.
    ///
    /// # Errors
    /// This version of MQTT does not allow a password without a user name.
    pub fn credentials(
        &self,
        version: Version,
    ) -> anyhow::Result<(Option<String>, Option<String>)> {
        let (username, password) = self.username_and_password();
        if !version.is_v5() && password.is_some() && username.is_none() {
            bail!("a password without a user name needs MQTT 5; see -u");
        }
        Ok((username, password))
    }

    /// Returns the user name and the password from the flags or the URL.
    pub fn username_and_password(&self) -> (Option<String>, Option<String>) {
        let url = self.url.as_ref();
        let username = self.username.clone().or_else(|| url.and_then(|url| url.username.clone()));
        let password = self.pw.clone().or_else(|| url.and_then(|url| url.password.clone()));
        (username, password)
    }

    /// Returns the topic in the URL.
    fn topic(&self) -> Option<&str> {
        let url = self.url.as_ref().filter(|url| !url.websocket && !url.path.is_empty())?;
        Some(&url.path)
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
        _ => Err("the MQTT version must be 5, 311 or 31".into()),
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
        _ => {
            let seconds = span::parse_seconds(text, u32::MAX);
            seconds.map_err(|error| format!("{error}; -1: for ever"))
        }
    }
}

fn parse_keep_alive(text: &str) -> Result<u16, String> {
    let seconds = span::parse_seconds(text, u16::MAX.into())?;
    Ok(u16::try_from(seconds).expect("it is at most u16::MAX"))
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

    /// Checks that `line` results in this host and port, with or without TLS, and with this WebSocket
    /// path.
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
        assert_eq!(target("-x 1h").unwrap().session_expiry, 3_600);
        assert_eq!(target("-k 2m").unwrap().keep_alive, Duration::from_secs(120));
        let timeout = |line| target(line).unwrap().timeout;
        assert_eq!(timeout("--connect-timeout 500ms"), Duration::from_millis(500));
        assert_eq!(timeout("--connect-timeout 2"), timeout("--connect-timeout 2s"));
        assert_eq!(target("-x -1").unwrap().session_expiry, u32::MAX);
    }

    #[test]
    fn mistakes() {
        for (line, expected) in [
            ("-V 6", "the MQTT version must be 5, 311 or 31"),
            ("-c", "name it with -i"),
            ("-V 311 -D publish content-type x", "-D needs MQTT 5"),
            ("-V 311 -P x", "a password without a user name needs MQTT 5"),
            ("--will-topic a/#", "--will-topic: a topic name must not contain + or #"),
            ("--will-retain", "--will-topic"),
            ("--will-topic a --will-qos 3", "QoS is 0, 1 or 2"),
            ("--cert x", "--key"),
            ("-L mqtt://h --insecure", "begin it with mqtts://, amqps:// or wss://"),
            ("-L mqtt://h -p 1", "cannot be used with"),
            ("-x soon", "-1: for ever"),
            ("-k 70000", "65535 seconds at most"),
            ("-L amqp://h", "begin the URL with mqtt://"),
            ("--cafile /no/such.pem", "--cafile /no/such.pem"),
        ] {
            let error = target(line).err().unwrap_or_default();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
