//! Leases and locks: keys that expire, set by their holders.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use azure_iot_operations_services::leased_lock::{Error, ErrorKind};
use futures::future::join_all;
use tokio::time::{sleep, timeout};

use crate::client::{Broker, Client, PATIENCE, assert_refused, expect_delete, next, order};

const LONG: Duration = Duration::from_secs(60);

fn held_by_another<T: std::fmt::Debug>(answer: Result<T, Error>) -> bool {
    matches!(answer.expect_err("held by another").kind(), ErrorKind::LeaseAlreadyHeld)
}

pub async fn lease(broker: Broker) {
    let (one, two) = (broker.client("one").await, broker.client("two").await);
    let (ours, theirs) = (one.lease(b"lease"), two.lease(b"lease"));
    assert_eq!(ours.get_holder(PATIENCE).await.expect("GET"), None);
    let mut observation = theirs.observe(PATIENCE).await.expect("KEYNOTIFY");

    let first = ours.acquire(LONG, PATIENCE, None).await.expect("free");
    assert_eq!(ours.current_lease_fencing_token(), Some(first.clone()));
    assert!(held_by_another(theirs.acquire(LONG, PATIENCE, None).await));
    assert_eq!(theirs.current_lease_fencing_token(), None);
    assert_eq!(theirs.get_holder(PATIENCE).await.expect("GET").as_deref(), Some(b"one".as_slice()));
    theirs.release(PATIENCE).await.expect("releasing what another holds is no error");
    assert_eq!(
        ours.get_holder(PATIENCE).await.expect("GET").as_deref(),
        Some(b"one".as_slice()),
        "and does nothing"
    );

    let renewed = ours.acquire(LONG, PATIENCE, None).await.expect("renewal");
    assert!(order(&renewed) > order(&first) && renewed.node_id == first.node_id);
    ours.release(PATIENCE).await.expect("VDEL");
    let second = theirs.acquire(LONG, PATIENCE, None).await.expect("free again");
    assert!(order(&second) > order(&renewed), "the next holder's token is higher");
    assert_eq!(next(&mut observation).await.version, first);
    assert_eq!(next(&mut observation).await.version, renewed);
    expect_delete(&mut observation).await;
    assert_eq!(next(&mut observation).await.version, second);
    one.leave().await;
    two.leave().await;
}

pub async fn lease_renewal(broker: Broker) {
    let (one, two) = (broker.client("one").await, broker.client("two").await);
    let (ours, theirs) = (one.lease(b"lease"), two.lease(b"lease"));
    let first = ours
        .acquire(Duration::from_secs(3), PATIENCE, Some(Duration::from_millis(800)))
        .await
        .expect("free");
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(5) {
        assert!(held_by_another(theirs.acquire(LONG, PATIENCE, None).await), "kept by its renewal");
        sleep(Duration::from_millis(50)).await;
    }
    let last = ours.current_lease_fencing_token().expect("still held");
    assert!(order(&last) > order(&first) && last.node_id == first.node_id);
    ours.release(PATIENCE).await.expect("VDEL");
    // A renewal in flight at the release may take the lease once more. The lease then expires.
    let begin = Instant::now();
    while theirs.acquire(LONG, PATIENCE, None).await.is_err() {
        assert!(begin.elapsed() < Duration::from_secs(10), "was not released");
        sleep(Duration::from_millis(50)).await;
    }
    one.leave().await;
    two.leave().await;
}

pub async fn lease_expiry(broker: Broker) {
    let (one, two) = (broker.client("one").await, broker.client("two").await);
    let (ours, theirs) = (one.lease(b"lease"), two.lease(b"lease"));
    let mut observation = theirs.observe(PATIENCE).await.expect("KEYNOTIFY");
    let old = ours.acquire(Duration::from_secs(2), PATIENCE, None).await.expect("free");
    assert!(held_by_another(theirs.acquire(LONG, PATIENCE, None).await));
    next(&mut observation).await;
    expect_delete(&mut observation).await;
    let new = theirs.acquire(LONG, PATIENCE, None).await.expect("has expired");

    assert!(two.fenced_set(b"protected", b"new", &new).await.expect("the holder's token"));
    let late = one.fenced_set(b"protected", b"late", &old).await;
    assert_refused!(late, FencingTokenLowerVersion);
    assert!(held_by_another(ours.acquire(LONG, PATIENCE, None).await));
    one.leave().await;
    two.leave().await;
}

pub async fn lock_waits(broker: Broker) {
    let (one, two) = (broker.client("one").await, broker.client("two").await);
    let (ours, theirs) = (one.lock(b"lock"), two.lock(b"lock"));
    let first = ours.lock(LONG, PATIENCE, None).await.expect("free");
    assert!(
        timeout(Duration::from_millis(500), theirs.lock(LONG, PATIENCE, None)).await.is_err(),
        "waits"
    );
    // The cancelled attempt has left its observation behind, so another client waits now.
    two.die();
    let three = broker.client("three").await;
    let theirs = three.lock(b"lock");
    let waiting = tokio::spawn(async move { theirs.lock(LONG, PATIENCE, None).await });
    sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished());
    ours.unlock(PATIENCE).await.expect("VDEL");
    let second =
        timeout(PATIENCE, waiting).await.expect("is woken").expect("no panic").expect("locks");
    assert!(order(&second) > order(&first));
    one.leave().await;
    three.leave().await;
}

/// Increments the counter by a read, a pause and a write. If two clients do this at once, one increment is
/// lost.
async fn increment(
    client: &Client,
    token: &azure_iot_operations_protocol::common::hybrid_logical_clock::HybridLogicalClock,
) {
    let value = client.get(b"counter").await.map_or(0, |value| {
        String::from_utf8(value).expect("digits").parse::<u32>().expect("a number")
    });
    tokio::task::yield_now().await;
    let applied = client.fenced_set(b"counter", (value + 1).to_string().as_bytes(), token).await;
    assert!(applied.expect("the holder's token is the highest"));
}

pub async fn contended_counter(broker: Broker) {
    const CLIENTS: u32 = 6;
    const TIMES: u32 = 8;
    let inside = Arc::new(AtomicU32::new(0));
    let tasks = (0..CLIENTS).map(|number| {
        let (broker, inside) = (broker.clone(), inside.clone());
        tokio::spawn(async move {
            let client = broker.client(&format!("client{number}")).await;
            let lock = client.lock(b"lock");
            for _ in 0..TIMES {
                let token = lock.lock(LONG, PATIENCE, None).await.expect("locks");
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "nobody else is inside");
                increment(&client, &token).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                lock.unlock(PATIENCE).await.expect("unlocks");
            }
            client.leave().await;
        })
    });
    for task in join_all(tasks).await {
        task.expect("no client has failed");
    }
    let reader = broker.client("reader").await;
    assert_eq!(reader.get(b"counter").await, Some((CLIENTS * TIMES).to_string().into_bytes()));
    assert_eq!(reader.get(b"lock").await, None);
    reader.leave().await;
}

/// A holder that has renewed its lease is killed. The waiting client gets the lock when the lease expires.
pub async fn holder_dies(broker: Broker) {
    let (one, two) = (broker.client("one").await, broker.client("two").await);
    let lease = Duration::from_secs(3);
    let ours = one.lock(b"lock");
    let old = ours.lock(lease, PATIENCE, Some(Duration::from_millis(800))).await.expect("free");
    assert!(one.fenced_set(b"protected", b"old", &old).await.expect("the holder's token"));
    let theirs = two.lock(b"lock");
    let waiting = tokio::spawn(async move { theirs.lock(LONG, PATIENCE, None).await });
    sleep(lease * 2).await;
    assert!(!waiting.is_finished(), "the holder lives");

    let died = Instant::now();
    one.die();
    let new =
        timeout(PATIENCE, waiting).await.expect("is woken").expect("no panic").expect("locks");
    assert!(
        died.elapsed() < lease + Duration::from_secs(3),
        "when the lease ends: {:?}",
        died.elapsed()
    );
    assert!(order(&new) > order(&old));
    assert!(two.fenced_set(b"protected", b"new", &new).await.expect("the holder's token"));
    let late = two.fenced_set(b"protected", b"late", &old).await;
    assert_refused!(late, FencingTokenLowerVersion);
    two.leave().await;
}
