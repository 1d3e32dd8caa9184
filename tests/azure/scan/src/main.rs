//! Stores thousands of keys in a broker's state store, lists them, and checks that each is listed once.
//!
//!     azure-scan ADDRESS TENANT

use std::collections::BTreeSet;
use std::time::Duration;

use azure_iot_operations_mqtt::aio::connection_settings::MqttConnectionSettingsBuilder;
use azure_iot_operations_mqtt::session::{Session, SessionOptionsBuilder};
use azure_iot_operations_protocol::application::ApplicationContextBuilder;
use azure_iot_operations_services::state_store::{Client, ClientOptionsBuilder, SetOptions};

const PATIENCE: Duration = Duration::from_secs(30);
const KEYS: usize = 3_000;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, tenant] = arguments.as_slice() else {
        panic!("usage: azure-scan ADDRESS TENANT");
    };
    let (host, port) = address.rsplit_once(':').expect("the address is HOST:PORT");
    let settings = MqttConnectionSettingsBuilder::default()
        .client_id("scanner")
        .hostname(host)
        .tcp_port(port.parse::<u16>().expect("a port"))
        .username(format!("{tenant}/scanner"))
        .use_tls(false)
        .build()
        .expect("sound settings");
    let options = SessionOptionsBuilder::default().connection_settings(settings).build();
    let session = Session::new(options.expect("sound options")).expect("a session");
    let exit = session.create_exit_handle();
    let client = Client::new(
        ApplicationContextBuilder::default().build().expect("a context"),
        session.create_managed_client(),
        session.create_session_monitor(),
        ClientOptionsBuilder::default().build().expect("sound options"),
    )
    .expect("a state store client");
    let running = tokio::spawn(session.run());

    assert_eq!(list(&client, b"*").await, (BTreeSet::new(), 1), "nothing is there");
    let odd = b"odd \r\n\0\xFF".to_vec();
    let mut all: BTreeSet<Vec<u8>> =
        (0..KEYS).map(|at| format!("key {at:04}").into_bytes()).collect();
    all.insert(odd.clone());
    for key in &all {
        let set = client.set(key.clone(), vec![], PATIENCE, None, SetOptions::default()).await;
        assert!(set.expect("SET").response);
    }

    let (listed, pages) = list(&client, b"*").await;
    assert_eq!(listed, all);
    assert!(pages > 1, "{KEYS} keys on {pages} page");
    assert_eq!(list(&client, b"odd*").await.0, BTreeSet::from([odd]));
    assert_eq!(list(&client, b"key 001?").await.0.len(), 10);
    assert_eq!(list(&client, b"key 1[0-4]*").await.0.len(), 500);
    assert_eq!(list(&client, b"none*").await.0, BTreeSet::new());
    client.shutdown().await.expect("unsubscribes");
    exit.try_exit().expect("a session that is connected");
    running.await.expect("no panic").expect("ends because it was asked to");
    println!("ok scan");
}

/// Returns all keys that match, and the number of pages. Fails if a key is listed twice.
async fn list(client: &Client, pattern: &[u8]) -> (BTreeSet<Vec<u8>>, usize) {
    let mut pager = client.list_keys(pattern.to_vec(), PATIENCE).expect("a pattern");
    let (mut all, mut pages) = (BTreeSet::new(), 0);
    while let Some(keys) = pager.next().await.expect("SCAN") {
        pages += 1;
        for key in keys {
            assert!(all.insert(key.clone()), "told twice: {key:?}");
        }
    }
    (all, pages)
}
