//! Settings from flags, environment and file. A flag overrides the environment, which overrides the
//! file, which overrides the default.

mod auth;
mod bindings;
mod cluster;
mod document;
mod durability;
mod emulator;
mod entities;
mod exposed;
mod files;
mod hints;
mod keys;
mod limits;
mod problem;
mod telemetry;
#[cfg(test)]
mod tests;
mod users;
pub mod validate;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use barid_server::settings::{Listener, LogFormat, Management, Settings};
use clap::Args;

use document::Document;
pub use exposed::warnings;
use problem::{Objection, Place};
pub use problem::{Problem, Problems};

/// Settings from flags and environment, which override the file.
#[derive(Args, Clone, Debug, Default)]
pub struct Overrides {
    /// Directory for durable data
    #[arg(long, value_name = "DIR", env = "BARID_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// MQTT over TCP: IP:PORT, or `off` [default: 127.0.0.1:1883]
    #[arg(long, value_name = "ADDR", env = "BARID_MQTT", value_parser = parse_switch)]
    pub mqtt: Option<Switch>,
    /// MQTT over TLS: IP:PORT, or `off`; needs [tls] in the file [default: off]
    #[arg(long, value_name = "ADDR", env = "BARID_MQTTS", value_parser = parse_switch)]
    pub mqtts: Option<Switch>,
    /// MQTT over WebSocket: IP:PORT, or `off` [default: 127.0.0.1:8083]
    #[arg(long, value_name = "ADDR", env = "BARID_WS", value_parser = parse_switch)]
    pub ws: Option<Switch>,
    /// MQTT over secure WebSocket: IP:PORT, or `off`; needs [tls] [default: off]
    #[arg(long, value_name = "ADDR", env = "BARID_WSS", value_parser = parse_switch)]
    pub wss: Option<Switch>,
    /// AMQP 1.0 over TCP: IP:PORT, or `off` [default: 127.0.0.1:5672]
    #[arg(long, value_name = "ADDR", env = "BARID_AMQP", value_parser = parse_switch)]
    pub amqp: Option<Switch>,
    /// AMQP 1.0 over TLS: IP:PORT, or `off`; needs [tls] [default: off]
    #[arg(long, value_name = "ADDR", env = "BARID_AMQPS", value_parser = parse_switch)]
    pub amqps: Option<Switch>,
    /// File that declares queues and topics, in the format of the emulator's Config.json
    #[arg(long, value_name = "FILE", env = "BARID_ENTITIES")]
    pub entities: Option<PathBuf>,
    /// HTTP for operators, /healthz and /metrics: IP:PORT [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDR", env = "BARID_ADMIN", value_parser = parse_address)]
    pub admin: Option<SocketAddr>,
    /// The same over TLS, also for other machines: IP:PORT, or `off`; needs [tls] and tokens [default: off]
    #[arg(long, value_name = "ADDR", env = "BARID_ADMIN_HTTPS", value_parser = parse_switch)]
    pub admin_https: Option<Switch>,
    /// Administration clients of Service Bus, over HTTP: IP:PORT, or `off`; the emulator's is 127.0.0.1:5300 [default: off]
    #[arg(long, value_name = "ADDR", env = "BARID_MANAGEMENT", value_parser = parse_switch)]
    pub management: Option<Switch>,
    /// IO threads; 0: one for each core [default: 0]
    #[arg(long, value_name = "N", env = "BARID_WORKERS")]
    pub workers: Option<usize>,
    /// Log level: error, warn, info, debug, trace, or a filter [default: info]
    #[arg(long, value_name = "LEVEL", env = "BARID_LOG")]
    pub log: Option<String>,
    /// Lines of the log: text, or json with a JSON object in each line [default: text]
    #[arg(long, value_name = "FORMAT", env = "BARID_LOG_FORMAT", value_parser = parse_format)]
    pub log_format: Option<LogFormat>,
}

fn parse_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("text or json".into()),
    }
}

/// A listener on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// Switches the listener off.
    Off,
    /// Makes it listen on this address.
    At(SocketAddr),
}

fn parse_switch(text: &str) -> Result<Switch, String> {
    if text == "off" { Ok(Switch::Off) } else { parse_address(text).map(Switch::At) }
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| hints::ADDRESS_HINT.into())
}

impl Overrides {
    fn apply(&self, settings: &mut Settings) {
        if let Some(data_dir) = &self.data_dir {
            settings.data_dir.clone_from(data_dir);
        }
        let listeners = &mut settings.listeners;
        for (switch, listener) in [
            (self.mqtt, &mut listeners.mqtt),
            (self.mqtts, &mut listeners.mqtts),
            (self.ws, &mut listeners.ws),
            (self.wss, &mut listeners.wss),
            (self.amqp, &mut listeners.amqp),
            (self.amqps, &mut listeners.amqps),
        ] {
            match switch {
                None => {}
                Some(Switch::Off) => *listener = None,
                // The path and other settings stay as in the file.
                Some(Switch::At(address)) => {
                    listener.get_or_insert_with(|| Listener::at(address)).address = address;
                }
            }
        }
        if let Some(entities) = &self.entities {
            settings.entities = Some(entities.clone());
        }
        if let Some(admin) = self.admin {
            settings.admin.address = admin;
        }
        match self.admin_https {
            None => {}
            Some(Switch::Off) => settings.admin.https = None,
            Some(Switch::At(address)) => settings.admin.https = Some(address),
        }
        match self.management {
            None => {}
            Some(Switch::Off) => settings.management = None,
            Some(Switch::At(address)) => settings.management = Some(Management { address }),
        }
        if let Some(workers) = self.workers {
            settings.workers = workers;
        }
        if let Some(log) = &self.log {
            settings.log.level.clone_from(log);
        }
        if let Some(format) = self.log_format {
            settings.log.format = format;
        }
    }

    /// Returns the flag and the variable that set `place`, if one of them did.
    fn origin_of(&self, place: &Place) -> Option<&'static str> {
        let is = |keys: &[&str]| *place == Place::of(keys);
        let listener = |name| is(&["listeners", name, "address"]) || is(&["listeners", name]);
        if self.data_dir.is_some() && is(&["data_dir"]) {
            Some("--data-dir (BARID_DATA_DIR)")
        } else if self.mqtt.is_some() && listener("mqtt") {
            Some("--mqtt (BARID_MQTT)")
        } else if self.mqtts.is_some() && listener("mqtts") {
            Some("--mqtts (BARID_MQTTS)")
        } else if self.ws.is_some() && listener("ws") {
            Some("--ws (BARID_WS)")
        } else if self.wss.is_some() && listener("wss") {
            Some("--wss (BARID_WSS)")
        } else if self.amqp.is_some() && listener("amqp") {
            Some("--amqp (BARID_AMQP)")
        } else if self.amqps.is_some() && listener("amqps") {
            Some("--amqps (BARID_AMQPS)")
        } else if self.admin.is_some() && is(&["admin", "address"]) {
            Some("--admin (BARID_ADMIN)")
        } else if self.admin_https.is_some() && is(&["admin", "https"]) {
            Some("--admin-https (BARID_ADMIN_HTTPS)")
        } else if self.management.is_some() && is(&["management", "address"]) {
            Some("--management (BARID_MANAGEMENT)")
        } else if self.workers.is_some() && is(&["workers"]) {
            Some("--workers (BARID_WORKERS)")
        } else if self.log.is_some() && is(&["log", "level"]) {
            Some("--log (BARID_LOG)")
        } else {
            None
        }
    }
}

/// Reads `file`, applies `overrides` to it, and checks the result.
///
/// # Errors
/// All problems, each with its place.
pub fn load(file: Option<&Path>, overrides: &Overrides) -> Result<Settings, Problems> {
    let Some(file) = file else {
        return resolve("defaults", "", overrides);
    };
    let origin = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::NotFound => {
                Some("without --config and BARID_CONFIG, barid starts with its defaults".into())
            }
            std::io::ErrorKind::InvalidData => Some("the file must be UTF-8".into()),
            _ => None,
        };
        Problems(vec![Problem::elsewhere(&origin, format!("cannot be read: {error}"), hint)])
    })?;
    resolve(&origin, &text, overrides)
}

/// Reads a text as a configuration file without flags and environment, and checks it. `origin`: the name of the file
/// in the problems.
///
/// # Errors
/// As [`load`].
pub fn parse(origin: &str, text: &str) -> Result<Settings, Problems> {
    resolve(origin, text, &Overrides::default())
}

fn resolve(origin: &str, text: &str, overrides: &Overrides) -> Result<Settings, Problems> {
    let document = Document::parse(origin, text).map_err(Problems::sorted)?;
    let mut settings = document.settings().map_err(Problems::sorted)?;
    overrides.apply(&mut settings);
    let objections = validate::validate(&settings);
    if objections.is_empty() {
        keys::read_secrets(&mut settings);
        cluster::read_secret(&mut settings);
        telemetry::read_headers(&mut settings);
        if let Some(file) = settings.entities.clone() {
            emulator::declare(&file, &mut settings).map_err(Problems::sorted)?;
        }
        return Ok(settings);
    }
    let problem = |objection: Objection| {
        let Objection { place, message, hint } = objection;
        if let Some(flag) = overrides.origin_of(&place) {
            return Problem::elsewhere(flag, message, hint);
        }
        match document.locate(&place) {
            Some(span) => Problem::in_text(origin, text, span, message, hint),
            // Not written in the file: a default that is wrong in combination with other settings.
            None => Problem::elsewhere(origin, format!("{place}: {message}"), hint),
        }
    };
    Err(Problems::sorted(objections.into_iter().map(problem).collect()))
}
