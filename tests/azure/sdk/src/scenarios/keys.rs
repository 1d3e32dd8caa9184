//! Keys, values and their versions.

use std::time::Duration;

use azure_iot_operations_services::state_store::SetCondition;
use tokio::time::sleep;

use crate::client::{Broker, expect_set, expect_silence, order};

pub async fn set_get_del(broker: Broker) {
    let client = broker.client("one").await;
    assert_eq!(client.versioned_get(b"key").await, None);
    assert!(!client.del(b"key").await, "nothing to delete");

    let first = client.set(b"key", b"first").await;
    assert_eq!(first.node_id, "StateStore");
    assert_eq!(client.versioned_get(b"key").await, Some((b"first".to_vec(), first.clone())));
    assert_eq!(
        client.versioned_get(b"key").await,
        Some((b"first".to_vec(), first.clone())),
        "reading changes nothing"
    );

    let second = client.set(b"key", b"second").await;
    assert!(order(&second) > order(&first));
    assert_eq!(client.versioned_get(b"key").await, Some((b"second".to_vec(), second.clone())));

    assert!(client.del(b"key").await);
    assert_eq!(client.get(b"key").await, None);
    let third = client.set(b"key", b"third").await;
    assert!(order(&third) > order(&second), "also across a deletion");
    client.leave().await;
}

pub async fn vdel(broker: Broker) {
    let client = broker.client("one").await;
    assert_eq!(client.vdel(b"key", b"value").await, 0);
    let version = client.set(b"key", b"value").await;
    assert_eq!(client.vdel(b"key", b"other").await, -1);
    assert_eq!(client.versioned_get(b"key").await, Some((b"value".to_vec(), version)));
    assert_eq!(client.vdel(b"key", b"value").await, 1);
    assert_eq!(client.vdel(b"key", b"value").await, 0);
    assert_eq!(client.get(b"key").await, None);
    client.leave().await;
}

pub async fn only_if_absent(broker: Broker) {
    let client = broker.client("one").await;
    let (applied, version) =
        client.set_if(SetCondition::OnlyIfDoesNotExist, b"key", b"value").await;
    assert!(applied);
    for value in [b"value".as_slice(), b"other"] {
        let (applied, stored) =
            client.set_if(SetCondition::OnlyIfDoesNotExist, b"key", value).await;
        assert!(!applied, "whether the value is the same or not");
        assert_eq!(stored, version, "a refusal tells the stored version");
    }
    assert_eq!(client.versioned_get(b"key").await, Some((b"value".to_vec(), version.clone())));
    assert!(client.del(b"key").await);
    let (applied, again) = client.set_if(SetCondition::OnlyIfDoesNotExist, b"key", b"again").await;
    assert!(applied && order(&again) > order(&version));
    client.leave().await;
}

pub async fn only_if_absent_or_equal(broker: Broker) {
    let client = broker.client("one").await;
    let (applied, first) =
        client.set_if(SetCondition::OnlyIfEqualOrDoesNotExist, b"key", b"value").await;
    assert!(applied);
    let (applied, second) =
        client.set_if(SetCondition::OnlyIfEqualOrDoesNotExist, b"key", b"value").await;
    assert!(applied && order(&second) > order(&first), "a renewal gives a new version");
    let (applied, stored) =
        client.set_if(SetCondition::OnlyIfEqualOrDoesNotExist, b"key", b"other").await;
    assert!(!applied);
    assert_eq!(stored, second);
    assert_eq!(client.versioned_get(b"key").await, Some((b"value".to_vec(), second)));
    client.leave().await;
}

pub async fn expiry(broker: Broker) {
    let client = broker.client("one").await;
    let version = client.set_for(Duration::from_secs(2), b"short", b"value").await;
    client.set_for(Duration::from_secs(2), b"renewed", b"value").await;
    client.set_for(Duration::from_secs(2), b"overwritten", b"value").await;
    assert_eq!(client.versioned_get(b"short").await, Some((b"value".to_vec(), version.clone())));
    client.set_for(Duration::from_secs(60), b"renewed", b"value").await;
    client.set_for(Duration::from_secs(60), b"overwritten", b"other").await;
    sleep(Duration::from_millis(2300)).await;

    assert_eq!(client.get(b"short").await, None);
    assert_eq!(client.get(b"renewed").await.as_deref(), Some(b"value".as_slice()));
    assert_eq!(client.get(b"overwritten").await.as_deref(), Some(b"other".as_slice()));
    let (applied, again) =
        client.set_if(SetCondition::OnlyIfDoesNotExist, b"short", b"value").await;
    assert!(
        applied && order(&again) > order(&version),
        "what has expired is absent, and its version is not given again"
    );
    client.leave().await;
}

pub async fn any_bytes(broker: Broker) {
    let client = broker.client("one").await;
    let every: Vec<u8> = (0..=255).collect();
    let samples =
        [b"".as_slice(), b"\r\n", b"\0", b"$3\r\nSET\r\n", b"-ERR \r\n", b"$-1\r\n", &every];
    for value in samples {
        let key = [b"key ".as_slice(), value].concat();
        let version = client.set(&key, value).await;
        assert_eq!(client.versioned_get(&key).await, Some((value.to_vec(), version)), "{key:?}");
    }
    for value in samples {
        assert_eq!(client.vdel(&[b"key ".as_slice(), value].concat(), value).await, 1);
    }
    client.leave().await;
}

/// Two tenants use the same client identifier and the same key.
pub async fn tenants_are_separate(broker: Broker) {
    let (here, there) = (broker.tenant("here"), broker.tenant("there"));
    let (ours, theirs) = (here.client("same").await, there.client("same").await);
    let (mut our_key, mut their_key) = (ours.observe(b"key").await, theirs.observe(b"key").await);

    let version = ours.set(b"key", b"ours").await;
    expect_set(&mut our_key, b"ours", &version).await;
    assert_eq!(theirs.get(b"key").await, None);
    let (applied, version) =
        theirs.set_if(SetCondition::OnlyIfDoesNotExist, b"key", b"theirs").await;
    assert!(applied);
    expect_set(&mut their_key, b"theirs", &version).await;
    assert!(ours.del(b"key").await);
    assert_eq!(theirs.get(b"key").await.as_deref(), Some(b"theirs".as_slice()));

    crate::client::expect_delete(&mut our_key).await;
    expect_silence(&mut our_key).await;
    expect_silence(&mut their_key).await;
    ours.leave().await;
    theirs.leave().await;
}
