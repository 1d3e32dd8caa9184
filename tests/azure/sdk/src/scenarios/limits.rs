//! Refusals because of the broker's settings.

use azure_iot_operations_services::state_store::SetOptions;

use crate::client::{Broker, PATIENCE, assert_refused};

/// The broker has `max_state_keys = 10`.
pub async fn key_quota(broker: Broker) {
    let client = broker.client("one").await;
    for number in 0..10_u8 {
        client.set(&[b'a' + number], b"value").await;
    }
    let answer = client.set_with(b"one more", b"value", None, SetOptions::default()).await;
    assert_refused!(answer, KeyQuotaExceeded);
    client.set(b"a", b"other").await;
    assert!(client.del(b"b").await);
    client.set(b"one more", b"value").await;
    client.leave().await;
}

/// The broker has users: `reader` may read `shared/*` and write nothing; `writer` may write its own keys and
/// read nothing.
pub async fn key_rules(broker: Broker) {
    let (reader, writer) = (broker.client("reader").await, broker.client("writer").await);
    writer.set(b"shared/writer", b"value").await;
    assert_eq!(reader.get(b"shared/writer").await.as_deref(), Some(b"value".as_slice()));
    let mut key = reader.observe(b"shared/writer").await;
    let version = writer.set(b"shared/writer", b"again").await;
    crate::client::expect_set(&mut key, b"again", &version).await;

    let denied = [
        reader.set_with(b"shared/reader", b"x", None, SetOptions::default()).await.map(|_| ()),
        reader.store.del(b"shared/writer".to_vec(), None, PATIENCE).await.map(|_| ()),
        reader
            .store
            .vdel(b"shared/writer".to_vec(), b"again".to_vec(), None, PATIENCE)
            .await
            .map(|_| ()),
        reader.store.get(b"private".to_vec(), PATIENCE).await.map(|_| ()),
        reader.store.observe(b"private".to_vec(), PATIENCE).await.map(|_| ()),
        writer.set_with(b"shared/other", b"x", None, SetOptions::default()).await.map(|_| ()),
        writer.store.get(b"shared/writer".to_vec(), PATIENCE).await.map(|_| ()),
        writer.store.observe(b"shared/writer".to_vec(), PATIENCE).await.map(|_| ()),
    ];
    for answer in denied {
        assert_refused!(answer, NotAuthorized);
    }
    assert_eq!(reader.get(b"shared/writer").await.as_deref(), Some(b"again".as_slice()));
    reader.leave().await;
    writer.leave().await;
}
