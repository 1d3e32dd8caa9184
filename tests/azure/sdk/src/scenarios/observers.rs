//! Observers of a key are notified of its changes.

use std::time::{Duration, Instant};

use azure_iot_operations_services::state_store::{ErrorKind, SetCondition};

use crate::client::{Broker, PATIENCE, expect_delete, expect_set, expect_silence, order};

pub async fn changes_are_told(broker: Broker) {
    let (observer, other) = (broker.client("observer").await, broker.client("other").await);
    let before = observer.set(b"key", b"before").await;
    let mut key = observer.observe(b"key").await;

    for (client, value) in [
        (&other, b"by another".as_slice()),
        (&observer, b"own"),
        (&observer, b"own"),
        (&other, b""),
    ] {
        let version = client.set(b"key", value).await;
        expect_set(&mut key, value, &version).await;
    }
    let (applied, version) =
        other.set_if(SetCondition::OnlyIfEqualOrDoesNotExist, b"key", b"").await;
    assert!(applied);
    expect_set(&mut key, b"", &version).await;
    assert!(other.del(b"key").await);
    assert!(order(&expect_delete(&mut key).await) > order(&before));

    let (applied, version) = other.set_if(SetCondition::OnlyIfDoesNotExist, b"key", b"new").await;
    assert!(applied);
    expect_set(&mut key, b"new", &version).await;
    assert_eq!(observer.vdel(b"key", b"new").await, 1);
    expect_delete(&mut key).await;

    assert!(!other.del(b"key").await, "absent");
    let version = other.set(b"key", b"last").await;
    assert_eq!(other.vdel(b"key", b"not it").await, -1);
    assert!(!other.set_if(SetCondition::OnlyIfDoesNotExist, b"key", b"refused").await.0);
    assert!(!other.set_if(SetCondition::OnlyIfEqualOrDoesNotExist, b"key", b"refused").await.0);
    other.get(b"key").await;
    expect_set(&mut key, b"last", &version).await;
    expect_silence(&mut key).await;
    observer.leave().await;
    other.leave().await;
}

pub async fn several_keys_and_observers(broker: Broker) {
    let (one, two) = (broker.client("one").await, broker.client("two").await);
    let binary: Vec<u8> = (0..=255).collect();
    let (mut one_shared, mut one_own) = (one.observe(b"shared").await, one.observe(&binary).await);
    let (mut two_shared, mut two_own) =
        (two.observe(b"shared").await, two.observe(b"shared2").await);

    let shared = one.set(b"shared", b"1").await;
    let ones = two.set(&binary, b"2").await;
    let twos = one.set(b"shared2", b"3").await;
    expect_set(&mut one_shared, b"1", &shared).await;
    expect_set(&mut two_shared, b"1", &shared).await;
    expect_set(&mut one_own, b"2", &ones).await;
    expect_set(&mut two_own, b"3", &twos).await;
    one.set(b"nobody's", b"4").await;
    for observation in [&mut one_shared, &mut one_own, &mut two_shared, &mut two_own] {
        expect_silence(observation).await;
    }

    // Notifications arrive in the order of the changes.
    for number in 0..200_u32 {
        two.set(b"shared", &number.to_be_bytes()).await;
    }
    for observation in [&mut one_shared, &mut two_shared] {
        let mut last = order(&shared);
        for number in 0..200_u32 {
            let told = crate::client::next(observation).await;
            assert_eq!(
                told.operation,
                azure_iot_operations_services::state_store::Operation::Set(
                    number.to_be_bytes().to_vec()
                )
            );
            assert!(order(&told.version) > last);
            last = order(&told.version);
        }
    }
    one.leave().await;
    two.leave().await;
}

pub async fn observe_and_unobserve(broker: Broker) {
    let (observer, other) = (broker.client("observer").await, broker.client("other").await);
    assert!(!observer.unobserve(b"key").await, "was not observed");
    let mut key = observer.observe(b"key").await;
    let twice =
        observer.store.observe(b"key".to_vec(), PATIENCE).await.expect_err("once at a time");
    assert!(matches!(twice.kind(), ErrorKind::DuplicateObserve));
    assert!(!other.unobserve(b"key").await, "the other does not observe it");
    let version = other.set(b"key", b"told").await;
    expect_set(&mut key, b"told", &version).await;

    assert!(observer.unobserve(b"key").await);
    assert!(!observer.unobserve(b"key").await);
    other.set(b"key", b"not told").await;
    other.del(b"key").await;
    assert!(key.recv_notification().await.is_none(), "ended, and nothing has come before");

    let mut key = observer.observe(b"key").await;
    let version = other.set(b"key", b"told again").await;
    expect_set(&mut key, b"told again", &version).await;
    expect_silence(&mut key).await;
    observer.leave().await;
    other.leave().await;
}

pub async fn expiry_is_told(broker: Broker) {
    let (observer, other) = (broker.client("observer").await, broker.client("other").await);
    let mut key = observer.observe(b"key").await;
    let begin = Instant::now();
    let time_to_live = Duration::from_millis(700);
    let version = other.set_for(time_to_live, b"key", b"value").await;
    let answered = Instant::now();
    expect_set(&mut key, b"value", &version).await;
    let deleted = expect_delete(&mut key).await;
    assert!(begin.elapsed() >= time_to_live, "not early: {:?}", begin.elapsed());
    assert!(
        answered.elapsed() < time_to_live + Duration::from_secs(3),
        "not late: {:?}",
        answered.elapsed()
    );
    assert!(order(&deleted) >= order(&version));
    assert_eq!(other.get(b"key").await, None);

    // The expiry is notified once, although a GET finds the key expired, too.
    expect_silence(&mut key).await;
    observer.leave().await;
    other.leave().await;
}
