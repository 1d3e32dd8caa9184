//! Lost connections and a killed broker: the session continues, and each request has its effect once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use azure_iot_operations_services::state_store::SetCondition;
use futures::future::join_all;
use tokio::time::{sleep, timeout};

use crate::client::{
    Broker, Client, PATIENCE, assert_refused, expect_set, expect_silence, fault, order,
};

pub async fn cut_while_idle(broker: Broker) {
    let client = broker.client("one").await;
    let mut version = client.set(b"key", b"0").await;
    for number in 1..=5_u32 {
        fault("cut").await;
        assert_eq!(
            client.versioned_get(b"key").await.map(|(_, version)| version),
            Some(version.clone())
        );
        let next = client.set(b"key", number.to_string().as_bytes()).await;
        assert!(order(&next) > order(&version));
        version = next;
    }
    client.leave().await;
}

/// Connects a client and sends its first request. With that request the SDK subscribes, and it does not repeat
/// a SUBSCRIBE whose answer is lost with the connection.
async fn subscribed(broker: &Broker, name: &str) -> Client {
    let client = broker.client(name).await;
    client.get(b"anything").await;
    client
}

/// Tasks of one client that set new keys, each task one after the other, until they are stopped. Each SET has
/// the condition that the key does not exist, so a repeated SET that was executed again would be refused.
struct Writers {
    client: Arc<Client>,
    stopped: Arc<AtomicU32>,
    tasks: Vec<tokio::task::JoinHandle<u32>>,
}

impl Writers {
    const TASKS: u32 = 20;

    fn start(client: Client) -> Self {
        let (client, stopped) = (Arc::new(client), Arc::new(AtomicU32::new(0)));
        let tasks = (0..Self::TASKS)
            .map(|task| {
                let (client, stopped) = (client.clone(), stopped.clone());
                tokio::spawn(async move {
                    let mut written = 0_u32;
                    while stopped.load(Ordering::SeqCst) == 0 {
                        let key = format!("{task}/{written}").into_bytes();
                        let (applied, version) =
                            client.set_if(SetCondition::OnlyIfDoesNotExist, &key, &key).await;
                        assert!(applied, "nobody else sets {task}/{written}");
                        let stored = client.versioned_get(&key).await;
                        assert_eq!(
                            stored,
                            Some((key, version)),
                            "what is answered is there, with this version"
                        );
                        written += 1;
                    }
                    written
                })
            })
            .collect();
        Self { client, stopped, tasks }
    }

    /// Stops the tasks, and checks that every key is still stored whose SET was answered.
    async fn stop(self) -> Client {
        self.stopped.store(1, Ordering::SeqCst);
        let mut total = 0;
        for (task, running) in self.tasks.into_iter().enumerate() {
            let written =
                timeout(PATIENCE, running).await.expect("goes on").expect("does not fail");
            for number in 0..written {
                let key = format!("{task}/{number}").into_bytes();
                assert_eq!(self.client.get(&key).await, Some(key));
            }
            total += written;
        }
        assert!(total >= Self::TASKS * 2, "hardly anything was written: {total}");
        Arc::into_inner(self.client).expect("all tasks have ended")
    }
}

pub async fn cut_while_busy(broker: Broker) {
    let writers = Writers::start(subscribed(&broker, "one").await);
    for number in 0..10_u64 {
        sleep(Duration::from_millis(100 + 37 * number)).await;
        fault("cut").await;
    }
    sleep(Duration::from_millis(300)).await;
    writers.stop().await.leave().await;
}

/// Hundreds of requests are in flight when the connection is lost, or the broker is killed. The broker has
/// executed them, but its responses and acknowledgements are lost, so the SDK sends all of them again.
pub async fn many_in_flight_are_lost(broker: Broker) {
    const REQUESTS: u32 = 500;
    let client = subscribed(&broker, "one").await;
    for round in 0..4_u32 {
        let keys: Vec<Vec<u8>> =
            (0..REQUESTS).map(|number| format!("{round}/{number}").into_bytes()).collect();
        fault("deafen").await;
        let sets = join_all(
            keys.iter().map(|key| client.set_if(SetCondition::OnlyIfDoesNotExist, key, key)),
        );
        let lost = async {
            sleep(Duration::from_millis(500)).await;
            fault(if round % 2 == 0 { "cut" } else { "kill" }).await;
        };
        let (answers, ()) = tokio::join!(sets, lost);
        for (key, (applied, version)) in keys.iter().zip(answers) {
            assert!(applied, "applied twice: {}", String::from_utf8_lossy(key));
            assert_eq!(client.versioned_get(key).await, Some((key.clone(), version)));
        }
    }
    client.leave().await;
}

/// Observations end with the connection. Changes before the key is observed again are not notified.
pub async fn observe_again(broker: Broker) {
    let client = broker.client("one").await;
    let mut key = client.observe(b"key").await;
    let version = client.set(b"key", b"before").await;
    expect_set(&mut key, b"before", &version).await;
    for _ in 0..3 {
        fault("cut").await;
        let ended = timeout(PATIENCE, key.recv_notification()).await.expect("the loss is noticed");
        assert!(ended.is_none(), "the observation has ended");
        client.set(b"key", b"meanwhile").await;
        assert!(!client.unobserve(b"key").await, "the broker has forgotten it as well");
        key = client.observe(b"key").await;
        let version = client.set(b"key", b"after").await;
        expect_set(&mut key, b"after", &version).await;
        expect_silence(&mut key).await;
    }
    client.leave().await;
}

/// A client that waits for a lock continues to wait after its connection is lost, and gets the lock.
pub async fn lock_across_a_cut(broker: Broker) {
    let (one, two) = (broker.client("one").await, broker.client("two").await);
    let lease = Duration::from_secs(60);
    let ours = one.lock(b"lock");
    ours.lock(lease, PATIENCE, None).await.expect("free");
    let theirs = two.lock(b"lock");
    let waiting = tokio::spawn(async move { theirs.lock(lease, PATIENCE, None).await });
    sleep(Duration::from_millis(300)).await;
    fault("cut").await;
    // Waits until the second client observes the lock again. It then tries to take the lock, which causes no
    // notification.
    sleep(Duration::from_secs(2)).await;
    assert!(!waiting.is_finished(), "still held");
    ours.unlock(PATIENCE).await.expect("VDEL");
    timeout(Duration::from_secs(5), waiting)
        .await
        .expect("is woken")
        .expect("no panic")
        .expect("locks");
    one.leave().await;
    two.leave().await;
}

pub async fn broker_killed(broker: Broker) {
    let holder = broker.client("holder").await;
    let lock = holder.lock(b"lock");
    let token = lock.lock(Duration::from_secs(300), PATIENCE, None).await.expect("free");
    assert!(holder.fenced_set(b"protected", b"1", &token).await.expect("the holder's token"));
    let brief = holder.set_for(Duration::from_secs(3), b"brief", b"value").await;
    let writers = Writers::start(subscribed(&broker, "one").await);
    for number in 0..4_u64 {
        sleep(Duration::from_millis(300 + 150 * number)).await;
        fault("kill").await;
    }
    sleep(Duration::from_millis(500)).await;
    let client = writers.stop().await;

    // The lock, the fencing token and the time to live have survived the restarts.
    assert_eq!(client.versioned_get(b"lock").await, Some((b"holder".to_vec(), token.clone())));
    let old = azure_iot_operations_protocol::common::hybrid_logical_clock::HybridLogicalClock {
        counter: 0,
        timestamp: token.timestamp - Duration::from_secs(1),
        node_id: token.node_id.clone(),
    };
    let late = client.fenced_set(b"protected", b"late", &old).await;
    assert_refused!(late, FencingTokenLowerVersion);
    assert!(holder.fenced_set(b"protected", b"2", &token).await.expect("the holder's token"));
    lock.unlock(PATIENCE).await.expect("VDEL");
    let next =
        client.lock(b"lock").lock(Duration::from_secs(60), PATIENCE, None).await.expect("free");
    assert!(order(&next) > order(&token));
    for _ in 0..100 {
        match client.versioned_get(b"brief").await {
            Some((_, version)) => assert_eq!(version, brief),
            None => break,
        }
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(client.get(b"brief").await, None, "expires also after a restart");
    holder.leave().await;
    client.leave().await;
}
