//! A broker in this process, on a free port.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use barid_server::Broker;
use barid_server::settings::{Admin, Listener, Listeners, Settings};

/// A running broker, which is stopped on drop.
pub struct Running {
    broker: Option<Broker>,
    directory: PathBuf,
    pub address: SocketAddr,
}

impl Running {
    /// Starts a broker with the default settings.
    pub fn start() -> Self {
        Self::with(Settings::default())
    }

    /// Starts a broker with other settings. Addresses and the data directory are chosen here.
    pub fn with(settings: Settings) -> Self {
        static SERIAL: AtomicUsize = AtomicUsize::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = format!("barid-rumqttc-{}-{serial}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let free = SocketAddr::from(([127, 0, 0, 1], 0));
        let mqtt = Some(Listener::at(free));
        let broker = Broker::start(Settings {
            data_dir: directory.clone(),
            listeners: Listeners { mqtt, ..Listeners::none() },
            admin: Admin { address: free, ..Admin::default() },
            ..settings
        })
        .expect("the broker starts");
        let (_, address) = broker.listeners()[0];
        Self { broker: Some(broker), directory, address }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(broker) = self.broker.take() {
            broker.shutdown();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
