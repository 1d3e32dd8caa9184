//! Tests of MQTT clients with a broker whose threads run in any order.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::Write as _;
use std::panic;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use barid_engine::faults::{self, Rule};
use barid_races::{Broker, Client, Heard};
use mqtt_proto::{PacketType, QoS};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner, thread};

/// Number of random orders of threads that are tried for each story.
const RANDOM: usize = 2_000;

/// Number of orders that are tried for each story with a few switches between threads only.
const CHANGES: usize = 2_000;

/// Depth of the PCT scheduler, which bounds the number of switches in such an order.
const DEPTH: usize = 3;

/// Time after which an order counts as one that goes on forever. All orders of a story take a few seconds.
const FOREVER: Duration = Duration::from_secs(120);

/// Number of orders, of each kind, within which a broken rule must be noticed.
const TO_NOTICE: usize = 20_000;

const STORIES: [fn(); 10] = [
    a_connection_that_moves_misses_nothing,
    messages_for_an_absent_client_are_acknowledged,
    messages_of_two_threads_reach_a_third_in_order,
    a_client_that_reads_slowly_gets_whole_packets,
    a_retained_message_reaches_a_client_that_subscribes_meanwhile,
    a_session_that_is_taken_over_loses_nothing,
    a_client_that_goes_and_comes_back_misses_nothing,
    exactly_once_is_once_for_sessions_of_two_shards,
    || exactly_once_is_once_while_a_shard_is_closed_and_opened(false),
    || exactly_once_is_once_while_a_shard_is_closed_and_opened(true),
];

#[test]
fn promises_hold_in_any_order_of_threads() {
    let watch = Watch::begin();
    for (number, story) in STORIES.into_iter().enumerate() {
        let started = Arc::clone(&watch.started);
        let story = move || {
            started.fetch_add(1, Ordering::Relaxed);
            faults::break_rule(None);
            story();
        };
        let random = RandomScheduler::new_from_seed(watch.on(number, "random"), RANDOM);
        Runner::new(random, Config::default()).run(story.clone());
        let pct = PctScheduler::new_from_seed(watch.on(number, "PCT"), DEPTH, CHANGES);
        Runner::new(pct, Config::default()).run(story);
    }
}

/// Ends the process when an order of threads goes on forever: the scheduler sees a deadlock of the locks that it knows, and no
/// other. What it says repeats the same orders, with `SHUTTLE_RANDOM_SEED`.
struct Watch {
    /// Number of orders that were begun.
    started: Arc<AtomicU64>,
    /// The story, the scheduler and the seed.
    now: Arc<Mutex<(usize, &'static str, u64)>>,
    _ends: mpsc::Sender<()>,
}

impl Watch {
    fn begin() -> Self {
        let (_ends, ended) = mpsc::channel::<()>();
        let watch = Self { started: Arc::default(), now: Arc::new(Mutex::new((0, "", 0))), _ends };
        let (started, now) = (Arc::clone(&watch.started), Arc::clone(&watch.now));
        std::thread::spawn(move || {
            let mut before = 0;
            while ended.recv_timeout(FOREVER) == Err(RecvTimeoutError::Timeout) {
                let begun = started.load(Ordering::Relaxed);
                if begun == before {
                    let (story, scheduler, seed) = *now.lock().unwrap();
                    // Tests see nothing of what is written to `Stderr` itself.
                    let told = writeln!(
                        std::io::stderr(),
                        "story {story} hangs in order {begun}, scheduler {scheduler}, seed {seed}"
                    );
                    told.and_then(|()| std::io::stderr().flush()).unwrap();
                    std::process::abort();
                }
                before = begun;
            }
        });
        watch
    }

    /// Notes what is about to run. Returns a new seed.
    fn on(&self, story: usize, scheduler: &'static str) -> u64 {
        let seed = RandomState::new().build_hasher().finish();
        *self.now.lock().unwrap() = (story, scheduler, seed);
        seed
    }
}

#[test]
fn a_broken_rule_is_noticed() {
    // A broken rule is noticed by a panic, whose message is not printed.
    panic::set_hook(Box::new(|_| {}));
    let rules: [(Rule, fn()); 4] = [
        (Rule::WakeWhenDone, messages_for_an_absent_client_are_acknowledged),
        (Rule::OneWriter, a_client_that_reads_slowly_gets_whole_packets),
        (Rule::RetryWhenThereWasRoom, a_client_that_reads_slowly_gets_whole_packets),
        (Rule::RouteWhenRetained, a_retained_message_reaches_a_client_that_subscribes_meanwhile),
    ];
    let is_noticed = |(rule, story): (Rule, fn())| {
        let broken = move || {
            faults::break_rule(Some(rule));
            story();
        };
        panic::catch_unwind(|| shuttle::check_pct(broken, TO_NOTICE, DEPTH)).is_err()
            || panic::catch_unwind(|| shuttle::check_random(broken, TO_NOTICE)).is_err()
    };
    let unnoticed: Vec<_> =
        rules.into_iter().filter(|one| !is_noticed(*one)).map(|(rule, _)| rule).collect();
    let _ = panic::take_hook();
    assert!(unnoticed.is_empty(), "nobody notices that these are broken: {unnoticed:?}");
}

/// Receives `count` messages with QoS 1, and acknowledges each.
fn take(client: &mut Client, count: usize) -> Vec<String> {
    let mut taken = Vec::new();
    while taken.len() < count {
        match client.hear() {
            Heard::Message(payload, id, _) => {
                client.acknowledge(PacketType::PubAck, id);
                taken.push(payload);
            }
            other => panic!("the subscriber hears {other:?}"),
        }
    }
    taken
}

/// Number of messages of each publisher.
const MESSAGES: u16 = 3;

/// Publishes messages with QoS 1, and waits for their acknowledgements.
fn publish(mut client: Client, name: &'static str) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        client.open(name);
        for id in 1..=MESSAGES {
            client.publish("t", &format!("{name}{id}"), QoS::AtLeastOnce, id);
        }
        for id in 1..=MESSAGES {
            assert_eq!(client.hear(), Heard::Acknowledged(PacketType::PubAck, id));
        }
    })
}

/// Asserts that the messages of each publisher were received once and in order.
fn assert_in_order(taken: &[String], names: &[&str]) {
    for name in names {
        let of: Vec<_> = taken.iter().filter(|taken| taken.starts_with(name)).collect();
        let sent: Vec<_> = (1..=MESSAGES).map(|id| format!("{name}{id}")).collect();
        assert!(of.into_iter().eq(&sent), "{taken:?}");
    }
}

fn messages_of_two_threads_reach_a_third_in_order() {
    let broker = Broker::start(1, 2);
    let mut subscriber = broker.connect(0);
    subscriber.open("s");
    subscriber.subscribe("t", QoS::AtLeastOnce);
    let publishers = [publish(broker.connect(0), "a"), publish(broker.connect(1), "b")];
    assert_in_order(&take(&mut subscriber, 6), &["a", "b"]);
    publishers.into_iter().for_each(|publisher| publisher.join().unwrap());
    broker.stop();
}

fn messages_for_an_absent_client_are_acknowledged() {
    let broker = Broker::start(1, 2);
    let mut subscriber = broker.connect(0);
    subscriber.open("s");
    subscriber.subscribe("t", QoS::AtLeastOnce);
    subscriber.lose();
    let publishers = [publish(broker.connect(0), "a"), publish(broker.connect(1), "b")];
    publishers.into_iter().for_each(|publisher| publisher.join().unwrap());
    broker.stop();
}

fn a_client_that_reads_slowly_gets_whole_packets() {
    let broker = Broker::start(1, 2);
    let mut subscriber = broker.connect(0);
    subscriber.open("s");
    subscriber.subscribe("t", QoS::AtLeastOnce);
    subscriber.read_slowly(15);
    // With two subscribers, threads write to sockets while they route the message.
    let mut other = broker.connect(1);
    other.open("r");
    other.subscribe("t", QoS::AtMostOnce);
    let publishers = [publish(broker.connect(0), "a"), publish(broker.connect(1), "b")];
    assert_in_order(&take(&mut subscriber, 6), &["a", "b"]);
    publishers.into_iter().for_each(|publisher| publisher.join().unwrap());
    broker.stop();
}

fn a_retained_message_reaches_a_client_that_subscribes_meanwhile() {
    let broker = Broker::start(1, 2);
    let mut publisher = broker.connect(0);
    publisher.open("p");
    let mut subscriber = broker.connect(1);
    subscriber.open("s");
    let publishing = thread::spawn(move || {
        publisher.retain("t", "m");
        publisher
    });
    subscriber.ask_to_subscribe("t", QoS::AtMostOnce);
    let (mut is_subscribed, mut messages) = (false, 0);
    // It may come twice, as the retained message and as a message that is published just now.
    while !is_subscribed || messages == 0 {
        match subscriber.hear() {
            Heard::Subscribed => is_subscribed = true,
            Heard::Message(payload, ..) if payload == "m" => messages += 1,
            other => panic!("the subscriber hears {other:?}"),
        }
    }
    publishing.join().unwrap();
    broker.stop();
}

fn a_session_that_is_taken_over_loses_nothing() {
    let broker = Broker::start(1, 2);
    let mut first = broker.connect(0);
    first.open("s");
    first.subscribe("t", QoS::AtLeastOnce);
    let publisher = publish(broker.connect(1), "a");
    let mut second = broker.connect(1);
    assert!(second.open("s"));
    // The first connection has acknowledged nothing, so the second one gets all messages.
    let mut taken = take(&mut second, 3);
    taken.dedup();
    assert_in_order(&taken, &["a"]);
    publisher.join().unwrap();
    broker.stop();
}

fn a_connection_that_moves_misses_nothing() {
    let broker = Broker::start(1, 2);
    let mut subscriber = broker.connect(0);
    subscriber.open("s");
    subscriber.subscribe("t", QoS::AtLeastOnce);
    subscriber.read_slowly(15);
    let publishers = [publish(broker.connect(0), "a"), publish(broker.connect(1), "b")];
    subscriber.move_to(&broker, 1);
    let mut taken = take(&mut subscriber, 3);
    subscriber.move_to(&broker, 0);
    taken.extend(take(&mut subscriber, 3));
    assert_in_order(&taken, &["a", "b"]);
    publishers.into_iter().for_each(|publisher| publisher.join().unwrap());
    broker.stop();
}

fn a_client_that_goes_and_comes_back_misses_nothing() {
    let broker = Broker::start(2, 2);
    let mut subscriber = broker.connect(0);
    subscriber.open("s");
    subscriber.subscribe("t", QoS::AtLeastOnce);
    let publishers = [publish(broker.connect(0), "a"), publish(broker.connect(1), "b")];
    subscriber.lose();
    let mut subscriber = broker.connect(1);
    assert!(subscriber.open("s"));
    assert_in_order(&take(&mut subscriber, 6), &["a", "b"]);
    publishers.into_iter().for_each(|publisher| publisher.join().unwrap());
    broker.stop();
}

fn exactly_once_is_once_for_sessions_of_two_shards() {
    let broker = Broker::start(2, 2);
    let subscribers = ["s", "r"].map(|name| {
        let mut subscriber = broker.connect(usize::from(name == "r"));
        subscriber.open(name);
        subscriber.subscribe("t", QoS::ExactlyOnce);
        subscriber
    });
    let mut publisher = broker.connect(0);
    publisher.open("a");
    for id in 1..=MESSAGES {
        publisher.publish("t", &format!("a{id}"), QoS::ExactlyOnce, id);
    }
    let receivers = subscribers.map(|mut subscriber| {
        thread::spawn(move || assert_in_order(&take_once(&mut subscriber, 3), &["a"]))
    });
    for id in 1..=MESSAGES {
        assert_eq!(publisher.hear(), Heard::Acknowledged(PacketType::PubRec, id));
    }
    for id in 1..=MESSAGES {
        publisher.acknowledge(PacketType::PubRel, id);
        assert_eq!(publisher.hear(), Heard::Acknowledged(PacketType::PubComp, id));
    }
    receivers.into_iter().for_each(|receiver| receiver.join().unwrap());
    broker.stop();
}

/// `is_publishers` says whether the session of the publisher is in the same shard.
fn exactly_once_is_once_while_a_shard_is_closed_and_opened(is_publishers: bool) {
    let broker = Arc::new(Broker::start(2, 2));
    let reopened = broker.shard_of("s");
    let in_shard = |wanted: bool, name: &str| {
        let mut names = (0..).map(|number| format!("{name}{number}"));
        names.find(|name| (broker.shard_of(name) == reopened) == wanted).unwrap()
    };
    // Two subscribers are in the shard, so that one can be back before the other.
    let subscribers = ["s".to_owned(), in_shard(false, "r"), in_shard(true, "q")];
    for name in &subscribers {
        let mut subscriber = broker.connect(0);
        subscriber.open(name);
        subscriber.subscribe("t", QoS::ExactlyOnce);
        subscriber.lose();
    }
    let publisher = in_shard(is_publishers, "a");
    let publishing = {
        let broker = Arc::clone(&broker);
        thread::spawn(move || publish_once(&broker, &publisher))
    };
    broker.reopen(reopened);
    broker.reopen(reopened);
    let taken = publishing.join().unwrap();
    for name in &subscribers {
        let mut subscriber = broker.connect(1);
        assert!(subscriber.open(name));
        let got = take_heard(&mut subscriber, taken.len(), |it| it.hear_stored(&broker));
        assert_eq!(got, taken, "of {name}");
    }
    Arc::into_inner(broker).unwrap().stop();
}

/// Publishes messages with QoS 2, over as many connections as needed. Returns the messages that were accepted.
fn publish_once(broker: &Broker, name: &str) -> Vec<String> {
    let payload = |id: u16| format!("{name}-{id}");
    let (mut left, mut released, mut taken): (Vec<_>, Vec<_>, Vec<_>) =
        ((1..=MESSAGES).collect(), Vec::new(), Vec::new());
    let mut dup = false;
    let mut io_thread = 0;
    while !left.is_empty() || !released.is_empty() {
        // Other threads must run, so that the shard is opened.
        thread::yield_now();
        // Alternates between the threads: bytes of the previous connection may still wait on the other one.
        io_thread = 1 - io_thread;
        let mut client = broker.connect(io_thread);
        if client.try_open(name).is_none() {
            continue;
        }
        released.iter().for_each(|id| client.acknowledge(PacketType::PubRel, *id));
        for id in &left {
            client.repeat("t", &payload(*id), QoS::ExactlyOnce, *id, dup);
        }
        while !left.is_empty() || !released.is_empty() {
            match client.hear() {
                Heard::Acknowledged(PacketType::PubRec, id) => {
                    left.retain(|other| *other != id);
                    taken.push(payload(id));
                    released.push(id);
                    client.acknowledge(PacketType::PubRel, id);
                }
                // Refused: the exchange was complete, and the connection ended before its PUBCOMP arrived.
                Heard::Acknowledged(PacketType::PubComp, id)
                | Heard::Refused(PacketType::PubComp, id) => released.retain(|it| *it != id),
                Heard::Refused(PacketType::PubRec, id) => left.retain(|other| *other != id),
                Heard::Disconnected => break,
                other => panic!("the publisher hears {other:?}"),
            }
        }
        dup = true;
    }
    taken
}

/// Receives `count` messages with QoS 2, with all four packets of each exchange.
fn take_once(client: &mut Client, count: usize) -> Vec<String> {
    take_heard(client, count, Client::hear)
}

/// Receives `count` messages with QoS 2. `hear` waits for the next packet.
fn take_heard(
    client: &mut Client,
    count: usize,
    hear: impl Fn(&mut Client) -> Heard,
) -> Vec<String> {
    let (mut taken, mut completed) = (Vec::new(), 0);
    while completed < count {
        match hear(client) {
            Heard::Message(payload, id, _) => {
                client.acknowledge(PacketType::PubRec, id);
                taken.push(payload);
            }
            Heard::Acknowledged(PacketType::PubRel, id) => {
                client.acknowledge(PacketType::PubComp, id);
                completed += 1;
            }
            other => panic!("the subscriber hears {other:?}"),
        }
    }
    taken
}
