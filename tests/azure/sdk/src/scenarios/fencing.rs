//! Fencing tokens: a version of one key, usually of a lock, that protects another key.

use std::time::{Duration, SystemTime};

use azure_iot_operations_protocol::common::hybrid_logical_clock::HybridLogicalClock;
use azure_iot_operations_services::state_store::{SetCondition, SetOptions};

use crate::client::{Broker, PATIENCE, assert_refused};

/// Returns three tokens in ascending order, as three successive holders of a lock get them.
async fn tokens(client: &crate::client::Client) -> [HybridLogicalClock; 3] {
    [
        client.set(b"lock", b"a").await,
        client.set(b"lock", b"b").await,
        client.set(b"lock", b"c").await,
    ]
}

pub async fn fencing_tokens(broker: Broker) {
    let client = broker.client("one").await;
    let [low, middle, high] = tokens(&client).await;
    client.set(b"key", b"free").await;
    assert!(
        client
            .fenced_set(b"key", b"by middle", &middle)
            .await
            .expect("a key without a token takes any")
    );

    let answer = client.set_with(b"key", b"x", None, SetOptions::default()).await;
    assert_refused!(answer, MissingFencingToken);
    let answer = client.fenced_set(b"key", b"x", &low).await;
    assert_refused!(answer, FencingTokenLowerVersion);
    let epoch = HybridLogicalClock {
        timestamp: SystemTime::UNIX_EPOCH,
        counter: 0,
        node_id: "old".to_owned(),
    };
    let answer = client.fenced_set(b"key", b"x", &epoch).await;
    assert_refused!(answer, FencingTokenLowerVersion);
    assert_eq!(
        client.get(b"key").await.as_deref(),
        Some(b"by middle".as_slice()),
        "reading needs no token"
    );

    assert!(client.fenced_set(b"key", b"again", &middle).await.expect("the same token"));
    assert!(client.fenced_set(b"key", b"by high", &high).await.expect("a higher token"));
    let answer = client.fenced_set(b"key", b"x", &middle).await;
    assert_refused!(answer, FencingTokenLowerVersion, "the higher one has been noted");
    assert_eq!(client.get(b"key").await.as_deref(), Some(b"by high".as_slice()));

    let absent =
        SetOptions { set_condition: SetCondition::OnlyIfDoesNotExist, ..SetOptions::default() };
    client.set(b"free", b"value").await;
    let (applied, _) =
        client.set_with(b"free", b"x", Some(&high), absent).await.expect("is answered");
    assert!(!applied);
    client.set(b"free", b"no token was left by what was not applied").await;
    client.leave().await;
}

pub async fn fencing_tokens_of_deletions(broker: Broker) {
    let client = broker.client("one").await;
    let [low, middle, high] = tokens(&client).await;
    let store = &client.store;
    let (key, value) = (b"key".to_vec(), b"value".to_vec());

    client.fenced_set(b"key", b"value", &middle).await.expect("the first token");
    assert_refused!(store.del(key.clone(), None, PATIENCE).await, MissingFencingToken);
    assert_refused!(
        store.vdel(key.clone(), value.clone(), None, PATIENCE).await,
        MissingFencingToken
    );
    let answer = store.del(key.clone(), Some(low.clone()), PATIENCE).await;
    assert_refused!(answer, FencingTokenLowerVersion);
    let answer = store.vdel(key.clone(), value.clone(), Some(low), PATIENCE).await;
    assert_refused!(answer, FencingTokenLowerVersion);

    assert_eq!(
        store.del(key.clone(), Some(middle), PATIENCE).await.expect("the stored token").response,
        1
    );
    client.set(b"key", b"the token has gone with the key").await;
    client.fenced_set(b"key", b"value", &high).await.expect("any token");
    let answer = store.vdel(key.clone(), b"other".to_vec(), Some(high.clone()), PATIENCE).await;
    assert_eq!(answer.expect("the stored token").response, -1);
    assert_eq!(
        store
            .vdel(key.clone(), value, Some(high), PATIENCE)
            .await
            .expect("the stored token")
            .response,
        1
    );
    client.set(b"key", b"the token has gone with the key").await;
    client.leave().await;
}

pub async fn future_fencing_token(broker: Broker) {
    let client = broker.client("one").await;
    let ten_years = Duration::from_secs(10 * 365 * 24 * 3600);
    let future = HybridLogicalClock {
        timestamp: SystemTime::now() + ten_years,
        counter: 0,
        node_id: "early".to_owned(),
    };
    let answer = client.fenced_set(b"new", b"x", &future).await;
    assert_refused!(answer, FencingTokenSkew);
    assert_eq!(client.get(b"new").await, None);

    client.set(b"key", b"value").await;
    let answer = client.store.del(b"key".to_vec(), Some(future.clone()), PATIENCE).await;
    assert_refused!(answer, FencingTokenSkew);
    let answer =
        client.store.vdel(b"key".to_vec(), b"value".to_vec(), Some(future), PATIENCE).await;
    assert_refused!(answer, FencingTokenSkew);
    assert_eq!(client.get(b"key").await.as_deref(), Some(b"value".as_slice()));
    client.leave().await;
}
