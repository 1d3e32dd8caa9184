//! The sockets that a broker listens on. All are bound before anything else is done, and start to listen when
//! every other step that can fail has succeeded. A broker that fails to start has accepted no client.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::StartError;
use crate::admin::{BoundAdmin, BoundHttp, Encryption, ListeningAdmin};
use crate::listener::{Acceptor, Bound, Listening};
use crate::peering::{BoundCluster, LinkEncryption, ListeningCluster};
use crate::settings::{Listener, Listeners, Management, Settings};
use crate::strangers::Strangers;
use crate::transport::websocket::WebSocketOptions;
use crate::transport::{ListenerContext, Protocol, server_config};

/// All addresses of a broker, bound but not listening: no client can connect.
pub struct BoundSockets {
    listeners: Vec<(Bound, ListenerContext)>,
    admin: BoundAdmin,
    cluster: Option<(BoundCluster, SocketAddr)>,
    /// The admin address in the settings.
    admin_address: SocketAddr,
    https: Option<(BoundHttp, SocketAddr)>,
    management: Option<(BoundHttp, SocketAddr)>,
}

/// All addresses of a broker, listening. Clients can connect; their connections wait in the backlog until a
/// thread accepts them.
pub struct ListeningSockets {
    /// The listeners for clients, for the thread that accepts.
    pub listening: Vec<Listening>,
    /// The context of each of these listeners, and the address that it is bound to.
    pub listeners: Vec<(Arc<ListenerContext>, SocketAddr)>,
    /// The admin address, for the thread that serves it.
    pub admin: ListeningAdmin,
    /// The address for other brokers, for the thread of the cluster.
    pub cluster: Option<ListeningCluster>,
}

impl BoundSockets {
    /// Binds all addresses.
    ///
    /// # Errors
    /// Fails if an address or a certificate cannot be used, or if the admin address is not a loopback
    /// address.
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
        let management = match &settings.management {
            Some(Management { address }) => {
                let is_required = !address.ip().to_canonical().is_loopback();
                Some((bind_http(settings, ("management", *address), is_required)?, *address))
            }
            None => None,
        };
        let https = match settings.admin.https {
            Some(address) => Some((bind_http(settings, ("admin.https", address), true)?, address)),
            None => None,
        };
        let cluster = match &settings.cluster {
            Some(cluster) => {
                let encryption = LinkEncryption::of(cluster.tls.as_ref())?;
                let bound = BoundCluster::to(cluster.listen, encryption)
                    .map_err(|source| cannot_listen("cluster", cluster.listen, source))?;
                Some((bound, cluster.listen))
            }
            None => None,
        };
        Ok(Self { listeners, admin, cluster, admin_address, https, management })
    }

    /// The address for other brokers.
    pub fn cluster_address(&self) -> Option<SocketAddr> {
        self.cluster.as_ref().map(|(bound, _)| bound.address())
    }

    /// Starts to listen on all addresses, and registers the listeners for clients with `acceptor`.
    ///
    /// # Errors
    /// Fails if another process has taken an address meanwhile, or if the operating system refuses.
    pub fn listen(self, acceptor: &Acceptor) -> Result<ListeningSockets, StartError> {
        let Self { listeners: bound, admin, cluster, admin_address, https, management } = self;
        let mut admin =
            admin.listen().map_err(|source| cannot_listen("admin", admin_address, source))?;
        if let Some((bound, address)) = https {
            admin
                .listen_over_tls(bound)
                .map_err(|source| cannot_listen("admin.https", address, source))?;
        }
        if let Some((bound, address)) = management {
            admin
                .listen_for_management(bound)
                .map_err(|source| cannot_listen("management", address, source))?;
        }
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
        let cluster = match cluster {
            Some((bound, address)) => {
                Some(bound.listen().map_err(|source| cannot_listen("cluster", address, source))?)
            }
            None => None,
        };
        Ok(ListeningSockets { listening, listeners, admin, cluster })
    }
}

/// Binds an address for HTTP. It has TLS if there are certificates.
fn bind_http(
    settings: &Settings,
    (name, address): (&'static str, SocketAddr),
    is_required: bool,
) -> Result<BoundHttp, StartError> {
    let encryption = match &settings.tls {
        Some(tls) => {
            let config = server_config(tls, alpn(name))?;
            Some(Encryption { config: Arc::new(RwLock::new(Arc::new(config))), is_required })
        }
        None if is_required => return Err(StartError::NoCertificates(name)),
        None => None,
    };
    let bound = Bound::to(address).map_err(|source| cannot_listen(name, address, source))?;
    Ok(BoundHttp { bound, encryption })
}

fn cannot_listen(name: &'static str, address: SocketAddr, source: io::Error) -> StartError {
    StartError::Listen { name, address, source }
}

/// Returns the ALPN protocol of a TLS listener.
pub fn alpn(listener: &str) -> &'static str {
    match listener {
        "wss" | "management" | "admin.https" => "http/1.1",
        "amqps" => "amqp",
        _ => "mqtt",
    }
}
