//! A client as in an application of Azure IoT Operations: a session, with a state store client.

use std::sync::Arc;
use std::time::Duration;

use azure_iot_operations_mqtt::aio::connection_settings::MqttConnectionSettingsBuilder;
use azure_iot_operations_mqtt::session::{
    Session, SessionError, SessionExitHandle, SessionMonitor, SessionOptionsBuilder,
};
use azure_iot_operations_protocol::application::ApplicationContextBuilder;
use azure_iot_operations_protocol::common::hybrid_logical_clock::HybridLogicalClock;
use azure_iot_operations_services::leased_lock::{lease, lock};
use azure_iot_operations_services::state_store::{
    self, ClientOptionsBuilder, KeyNotification, KeyObservation, Operation, SetCondition,
    SetOptions,
};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Timeout of a request: long enough for a broker that is killed and started again in the meantime.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Time without a notification after which a test concludes that none is sent.
const SILENCE: Duration = Duration::from_millis(400);

/// The broker under test, and the tenant of a scenario.
#[derive(Clone)]
pub struct Broker {
    host: String,
    port: u16,
    tenant: String,
    password: Option<String>,
}

impl Broker {
    pub fn new(address: &str, tenant: &str, password: Option<String>) -> Self {
        let (host, port) = address.rsplit_once(':').expect("the address is HOST:PORT");
        Self {
            host: host.to_owned(),
            port: port.parse().expect("the address ends with a port"),
            tenant: tenant.to_owned(),
            password,
        }
    }

    /// Returns the same broker with another tenant, which no other scenario uses.
    pub fn tenant(&self, suffix: &str) -> Self {
        Self { tenant: format!("{}-{suffix}", self.tenant), ..self.clone() }
    }

    /// Connects a client with this identifier and the user name `{tenant}/{name}`.
    pub async fn client(&self, name: &str) -> Client {
        self.client_with_keep_alive(name, Duration::from_secs(60)).await
    }

    pub async fn client_with_keep_alive(&self, name: &str, keep_alive: Duration) -> Client {
        let settings = MqttConnectionSettingsBuilder::default()
            .client_id(name)
            .hostname(self.host.as_str())
            .tcp_port(self.port)
            .keep_alive(keep_alive)
            .username(format!("{}/{name}", self.tenant))
            .password(self.password.clone())
            .use_tls(false)
            .build()
            .expect("sound settings");
        let options = SessionOptionsBuilder::default()
            .connection_settings(settings)
            .build()
            .expect("sound options");
        let session = Session::new(options).expect("a session");
        let monitor = session.create_session_monitor();
        let exit = session.create_exit_handle();
        let store = state_store::Client::new(
            ApplicationContextBuilder::default().build().expect("a context"),
            session.create_managed_client(),
            monitor.clone(),
            ClientOptionsBuilder::default().build().expect("sound options"),
        )
        .expect("a state store client");
        let running = tokio::spawn(session.run());
        timeout(PATIENCE, monitor.connected()).await.expect("connects in time");
        Client { name: name.to_owned(), store: Arc::new(store), monitor, exit, running }
    }
}

/// Asks the process that started this program for a fault of the broker or the network, and waits until it has
/// happened.
///
/// `cut` closes all connections. `deafen` stops all data from the broker to the clients until the `cut` or
/// `kill` that must follow. `kill` kills the broker and starts it again with its data.
pub async fn fault(name: &str) {
    println!("do {name}");
    let mut line = String::new();
    BufReader::new(tokio::io::stdin()).read_line(&mut line).await.expect("standard input");
    assert_eq!(line.trim(), "done", "who started the scenario can {name}");
}

/// A connected client.
pub struct Client {
    pub name: String,
    pub store: Arc<state_store::Client>,
    pub monitor: SessionMonitor,
    exit: SessionExitHandle,
    running: JoinHandle<std::result::Result<(), SessionError>>,
}

pub type Result<T> = std::result::Result<T, state_store::Error>;

impl Client {
    /// Sets a key. Returns whether the change was applied, and the version in the response.
    pub async fn set_with(
        &self,
        key: &[u8],
        value: &[u8],
        token: Option<&HybridLogicalClock>,
        options: SetOptions,
    ) -> Result<(bool, HybridLogicalClock)> {
        let answer =
            self.store.set(key.to_vec(), value.to_vec(), PATIENCE, token.cloned(), options).await?;
        Ok((answer.response, answer.version.expect("every answer to a SET has a version")))
    }

    /// Sets a key without conditions. Returns the version.
    pub async fn set(&self, key: &[u8], value: &[u8]) -> HybridLogicalClock {
        let (applied, version) =
            self.set_with(key, value, None, SetOptions::default()).await.expect("SET");
        assert!(applied, "a SET without a condition is applied");
        version
    }

    pub async fn set_if(
        &self,
        condition: SetCondition,
        key: &[u8],
        value: &[u8],
    ) -> (bool, HybridLogicalClock) {
        let options = SetOptions { set_condition: condition, ..SetOptions::default() };
        self.set_with(key, value, None, options).await.expect("conditional SET")
    }

    pub async fn set_for(
        &self,
        time_to_live: Duration,
        key: &[u8],
        value: &[u8],
    ) -> HybridLogicalClock {
        let options = SetOptions { expires: Some(time_to_live), ..SetOptions::default() };
        self.set_with(key, value, None, options).await.expect("SET that expires").1
    }

    pub async fn fenced_set(
        &self,
        key: &[u8],
        value: &[u8],
        token: &HybridLogicalClock,
    ) -> Result<bool> {
        Ok(self.set_with(key, value, Some(token), SetOptions::default()).await?.0)
    }

    pub async fn versioned_get(&self, key: &[u8]) -> Option<(Vec<u8>, HybridLogicalClock)> {
        let answer = self.store.get(key.to_vec(), PATIENCE).await.expect("GET");
        assert_eq!(
            answer.response.is_some(),
            answer.version.is_some(),
            "what is there has a version, and nothing else"
        );
        answer.response.zip(answer.version)
    }

    pub async fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.versioned_get(key).await.map(|(value, _)| value)
    }

    pub async fn del(&self, key: &[u8]) -> bool {
        match self.store.del(key.to_vec(), None, PATIENCE).await.expect("DEL").response {
            0 => false,
            1 => true,
            other => panic!("DEL answers {other}"),
        }
    }

    /// Deletes a key if it has this value. Returns 1 if it was deleted, 0 if it does not exist, and -1 if it
    /// has another value.
    pub async fn vdel(&self, key: &[u8], value: &[u8]) -> i64 {
        self.store.vdel(key.to_vec(), value.to_vec(), None, PATIENCE).await.expect("VDEL").response
    }

    pub async fn observe(&self, key: &[u8]) -> KeyObservation {
        self.store.observe(key.to_vec(), PATIENCE).await.expect("KEYNOTIFY").response
    }

    /// Stops observing a key. Returns whether the key was observed.
    pub async fn unobserve(&self, key: &[u8]) -> bool {
        self.store.unobserve(key.to_vec(), PATIENCE).await.expect("KEYNOTIFY STOP").response
    }

    /// Returns a client of the lease `name`, whose holder name is the name of this client.
    pub fn lease(&self, name: &[u8]) -> lease::Client {
        lease::Client::new(self.store.clone(), name.to_vec(), self.name.clone().into())
            .expect("a lease client")
    }

    pub fn lock(&self, name: &[u8]) -> lock::Client {
        lock::Client::new(self.store.clone(), name.to_vec(), self.name.clone().into())
            .expect("a lock client")
    }

    /// Ends the session as an application does when it has finished. Fails if the session has ended before.
    pub async fn leave(self) {
        self.store.shutdown().await.expect("unsubscribes");
        self.exit.try_exit().expect("a session that is connected");
        let ended =
            timeout(PATIENCE, self.running).await.expect("ends in time").expect("does not panic");
        ended.expect("ends because it was asked to");
    }

    /// Ends the client like a killed process: it sends nothing more, not even DISCONNECT.
    pub fn die(self) {
        self.running.abort();
    }
}

/// Returns the part of a version by which versions are ordered.
pub fn order(version: &HybridLogicalClock) -> (std::time::SystemTime, u64) {
    (version.timestamp, version.counter)
}

/// Waits for the next notification of a key.
pub async fn next(observation: &mut KeyObservation) -> KeyNotification {
    let told =
        timeout(PATIENCE, observation.recv_notification()).await.expect("a notification in time");
    told.expect("the observation has not ended").0
}

pub async fn expect_set(
    observation: &mut KeyObservation,
    value: &[u8],
    version: &HybridLogicalClock,
) {
    let told = next(observation).await;
    assert_eq!(told.operation, Operation::Set(value.to_vec()));
    assert_eq!(told.key, observation.key);
    assert_eq!(&told.version, version, "a notification tells the version that the answer told");
}

pub async fn expect_delete(observation: &mut KeyObservation) -> HybridLogicalClock {
    let told = next(observation).await;
    assert_eq!((told.operation, told.key), (Operation::Del, observation.key.clone()));
    told.version
}

pub async fn expect_silence(observation: &mut KeyObservation) {
    let told = timeout(SILENCE, observation.recv_notification()).await;
    if let Ok(told) = told {
        panic!("nothing was to be told: {:?}", told.map(|(told, _)| told));
    }
}

/// Asserts that the state store has refused a request, for a reason that the SDK knows by type.
macro_rules! assert_refused {
    ($answer:expr, $refusal:ident $(, $message:literal)?) => {{
        use azure_iot_operations_services::state_store::{ErrorKind, ServiceError};
        let error = $answer.expect_err(stringify!($refusal));
        let refused = matches!(error.kind(), ErrorKind::ServiceError(ServiceError::$refusal));
        assert!(refused, "not {}, but {error:?}{}", stringify!($refusal), concat!($(": ", $message)?));
    }};
}
pub(crate) use assert_refused;
