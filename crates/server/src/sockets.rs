//! The sockets that a broker listens on: all are bound before anything else is done, and listen when all that can
//! fail has succeeded. A start that fails has let nobody in.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::StartError;
use crate::admin::{BoundAdmin, ListeningAdmin};
use crate::listener::{Acceptor, Bound, Listening};
use crate::settings::{Listener, Listeners, Settings};
use crate::strangers::Strangers;
use crate::transport::websocket::WebSocketOptions;
use crate::transport::{ListenerContext, Protocol, server_config};

/// All addresses of a broker, bound: they are taken, and nobody can connect.
pub struct BoundSockets {
    listeners: Vec<(Bound, ListenerContext)>,
    admin: BoundAdmin,
    /// As the settings have it.
    admin_address: SocketAddr,
}

/// All addresses of a broker, where clients can connect. They wait until there is a thread that accepts.
pub struct ListeningSockets {
    /// The listeners for clients, to be served.
    pub listening: Vec<Listening>,
    /// The same, and where they listen.
    pub listeners: Vec<(Arc<ListenerContext>, SocketAddr)>,
    /// The admin address, to be served.
    pub admin: ListeningAdmin,
}

impl BoundSockets {
    /// Takes all addresses.
    ///
    /// # Errors
    /// An address or a certificate cannot be used, or the admin address is not loopback.
    pub fn bind(settings: &Settings, strangers: &Arc<Strangers>) -> Result<Self, StartError> {
        let admin_address = settings.admin.address;
        if !admin_address.ip().to_canonical().is_loopback() {
            return Err(StartError::AdminExposed(admin_address));
        }
        let Listeners { mqtt, mqtts, ws, wss, amqp, amqps } = &settings.listeners;
        let all: [(&'static str, &Option<Listener>, Protocol, bool, bool); 6] = [
            ("mqtt", mqtt, Protocol::Mqtt, false, false),
            ("mqtts", mqtts, Protocol::Mqtt, true, false),
            ("ws", ws, Protocol::Mqtt, false, true),
            ("wss", wss, Protocol::Mqtt, true, true),
            ("amqp", amqp, Protocol::Amqp, false, false),
            ("amqps", amqps, Protocol::Amqp, true, false),
        ];
        let mut listeners = Vec::new();
        for (name, listener, protocol, secure, websocket) in all {
            let Some(listener) = listener else { continue };
            let tls = if secure {
                let tls = settings.tls.as_ref().ok_or(StartError::NoCertificates(name))?;
                Some(RwLock::new(Arc::new(server_config(tls, alpn(name))?)))
            } else {
                None
            };
            let address = listener.address;
            let bound =
                Bound::to(address).map_err(|source| cannot_listen(name, address, source))?;
            let context = ListenerContext {
                name,
                protocol,
                address,
                proxy_protocol: listener.proxy_protocol,
                websocket: websocket.then(|| WebSocketOptions {
                    path: listener.path.clone(),
                    origins: listener.origins.clone(),
                    secure,
                    loopback: address.ip().is_loopback(),
                }),
                tls,
                strangers: Arc::clone(strangers),
            };
            listeners.push((bound, context));
        }
        let admin = BoundAdmin::to(admin_address)
            .map_err(|source| cannot_listen("admin", admin_address, source))?;
        Ok(Self { listeners, admin, admin_address })
    }

    /// Lets clients connect to all of them.
    ///
    /// # Errors
    /// An address was taken meanwhile, or the operating system refuses.
    pub fn listen(self, acceptor: &Acceptor) -> Result<ListeningSockets, StartError> {
        let Self { listeners: bound, admin, admin_address } = self;
        let admin =
            admin.listen().map_err(|source| cannot_listen("admin", admin_address, source))?;
        let (mut listening, mut listeners) = (Vec::new(), Vec::new());
        for (index, (bound, context)) in bound.into_iter().enumerate() {
            let (name, configured, address) = (context.name, context.address, bound.address());
            let context = Arc::new(context);
            let fail = |source| cannot_listen(name, configured, source);
            let mut one = Listening::new(bound.listen().map_err(fail)?, Arc::clone(&context));
            acceptor.watch(index, &mut one)?;
            listening.push(one);
            listeners.push((context, address));
        }
        Ok(ListeningSockets { listening, listeners, admin })
    }
}

fn cannot_listen(name: &'static str, address: SocketAddr, source: io::Error) -> StartError {
    StartError::Listen { name, address, source }
}

/// The ALPN protocol of a TLS listener.
pub fn alpn(listener: &str) -> &'static str {
    match listener {
        "wss" => "http/1.1",
        "amqps" => "amqp",
        _ => "mqtt",
    }
}
