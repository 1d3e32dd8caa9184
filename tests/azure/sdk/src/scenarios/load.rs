//! Large values, many requests at once, and a connection that is kept alive without traffic.

use std::time::Duration;

use futures::future::join_all;
use tokio::time::sleep;

use crate::client::{Broker, expect_set};

pub async fn large_values(broker: Broker) {
    let (client, observer) = (broker.client("one").await, broker.client("observer").await);
    let mut key = observer.observe(b"key").await;
    for size in [0, 1, 65_000, 65_536, 1 << 20] {
        let value: Vec<u8> = (0..size).map(|at: u32| (at % 251) as u8).collect();
        let version = client.set(b"key", &value).await;
        assert_eq!(
            client.versioned_get(b"key").await,
            Some((value.clone(), version.clone())),
            "{size} bytes"
        );
        expect_set(&mut key, &value, &version).await;
        assert_eq!(client.vdel(b"key", &value).await, 1);
        crate::client::expect_delete(&mut key).await;
    }

    let long_key = vec![b'k'; 6_500];
    let mut key = observer.observe(&long_key).await;
    let version = client.set(&long_key, b"value").await;
    expect_set(&mut key, b"value", &version).await;
    assert_eq!(client.get(&long_key).await.as_deref(), Some(b"value".as_slice()));
    client.leave().await;
    observer.leave().await;
}

/// More requests are in flight than a usual Receive Maximum of the broker would allow: the SDK ignores the
/// Receive Maximum.
pub async fn many_in_flight(broker: Broker) {
    const REQUESTS: u32 = 500;
    let client = broker.client("one").await;
    let keys: Vec<Vec<u8>> =
        (0..REQUESTS).map(|number| format!("key {number}").into_bytes()).collect();
    for round in 0..3_u32 {
        let value = round.to_be_bytes();
        join_all(keys.iter().map(|key| client.set(key, &value))).await;
        for answer in join_all(keys.iter().map(|key| client.get(key))).await {
            assert_eq!(answer.as_deref(), Some(value.as_slice()));
        }
    }
    let deleted = join_all(keys.iter().map(|key| client.del(key))).await;
    assert!(deleted.into_iter().all(|deleted| deleted));
    client.leave().await;
}

/// The SDK closes a connection on which PINGRESP takes more than two seconds.
pub async fn keep_alive(broker: Broker) {
    let client = broker.client_with_keep_alive("one", Duration::from_secs(1)).await;
    let mut key = client.observe(b"key").await;
    let busy = broker.client("busy").await;
    let keys: Vec<Vec<u8>> =
        (0..50_u32).map(|number| format!("busy {number}").into_bytes()).collect();
    let value = vec![0; 10_000];
    tokio::select! {
        () = client.monitor.disconnected() => panic!("the connection was lost"),
        () = sleep(Duration::from_secs(6)) => {}
        () = async {
            loop {
                join_all(keys.iter().map(|key| busy.set(key, &value))).await;
            }
        } => {}
    }
    let version = client.set(b"key", b"value").await;
    expect_set(&mut key, b"value", &version).await;
    client.leave().await;
    busy.leave().await;
}
