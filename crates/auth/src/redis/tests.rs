//! The cache with a Redis that follows the rules, and with one that does not.

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;

use barid_engine::amqp::Secret;
use barid_engine::clock::TimeSource;
use barid_engine::rights::Rights;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio::task::JoinHandle;

use super::*;

/// How the server behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// As Redis does.
    Honest,
    /// It reads, and never answers.
    Silent,
    /// It answers with random bytes.
    Garbage,
    /// It answers all requests with replies that are too long.
    Endless,
}

/// The part of Redis that the cache uses.
#[derive(Debug)]
struct Server {
    values: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
    published: broadcast::Sender<Vec<u8>>,
    manner: Mutex<Manner>,
    requests: AtomicUsize,
}

impl Server {
    async fn start() -> (Arc<Self>, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = Arc::new(Self {
            values: Mutex::default(),
            published: broadcast::channel(64).0,
            manner: Mutex::new(Manner::Honest),
            requests: AtomicUsize::new(0),
        });
        let accepting = Arc::clone(&server);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&accepting).serve(stream));
            }
        });
        (server, port)
    }

    async fn serve(self: Arc<Self>, stream: TcpStream) -> std::io::Result<()> {
        let (reader, writer) = stream.into_split();
        let (mut reader, writer) =
            (BufReader::new(reader), Arc::new(tokio::sync::Mutex::new(writer)));
        loop {
            let words = request(&mut reader).await?;
            self.requests.fetch_add(1, Ordering::SeqCst);
            let reply = self.reply(&words, &writer);
            let manner = *self.manner.lock();
            let reply = match manner {
                Manner::Honest => reply,
                Manner::Silent => continue,
                Manner::Garbage => random(60),
                Manner::Endless => [b"$9999999\r\n", &[b'x'; 100_000][..]].concat(),
            };
            writer.lock().await.write_all(&reply).await?;
        }
    }

    fn reply(
        &self,
        words: &[Vec<u8>],
        writer: &Arc<tokio::sync::Mutex<OwnedWriteHalf>>,
    ) -> Vec<u8> {
        let mut values = self.values.lock();
        match &*words[0] {
            b"HELLO" => b"%1\r\n$5\r\nproto\r\n:3\r\n".to_vec(),
            b"PING" => b"+PONG\r\n".to_vec(),
            b"SUBSCRIBE" => {
                let (mut messages, writer) = (self.published.subscribe(), Arc::clone(writer));
                let channel = words[1].clone();
                tokio::spawn(async move {
                    while let Ok(message) = messages.recv().await {
                        let push =
                            [&b">3\r\n$7\r\nmessage\r\n"[..], &bulk(&channel), &bulk(&message)];
                        let _ = writer.lock().await.write_all(&push.concat()).await;
                    }
                });
                [b">3\r\n$9\r\nsubscribe\r\n", &bulk(&words[1])[..], b":1\r\n"].concat()
            }
            b"GETRANGE" => {
                let last: usize = str::from_utf8(&words[3]).unwrap().parse().unwrap();
                let value = values.get(&words[1]).cloned().unwrap_or_default();
                bulk(&value[..value.len().min(last + 1)])
            }
            b"SET" => {
                let only_new = words.last().is_some_and(|word| word == b"NX");
                if only_new && values.contains_key(&words[1]) {
                    return b"_\r\n".to_vec();
                }
                values.insert(words[1].clone(), words[2].clone());
                b"+OK\r\n".to_vec()
            }
            b"PUBLISH" => {
                let _ = self.published.send(words[2].clone());
                b":1\r\n".to_vec()
            }
            other => panic!("{}", String::from_utf8_lossy(other)),
        }
    }

    fn behave(&self, manner: Manner) {
        *self.manner.lock() = manner;
    }
}

async fn request(
    reader: &mut (impl tokio::io::AsyncBufRead + Unpin),
) -> std::io::Result<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    for _ in 0..number(reader).await? {
        let mut word = vec![0; number(reader).await? + 2];
        reader.read_exact(&mut word).await?;
        word.truncate(word.len() - 2);
        words.push(word);
    }
    Ok(words)
}

async fn number(reader: &mut (impl tokio::io::AsyncBufRead + Unpin)) -> std::io::Result<usize> {
    let mut line = String::new();
    reader.read_line(&mut line).await?;
    let digits = line.get(1..).unwrap_or_default().trim_end();
    digits.parse().map_err(|_| std::io::ErrorKind::UnexpectedEof.into())
}

fn bulk(bytes: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

fn random(most: usize) -> Vec<u8> {
    std::iter::repeat_with(|| fastrand::u8(..)).take(fastrand::usize(..most)).collect()
}

/// A directory with one user, whose password hash changes.
#[derive(Debug)]
struct Behind {
    hash: Mutex<String>,
    asked: AtomicUsize,
    /// Time that it takes to answer.
    takes: Mutex<Duration>,
}

impl Directory for Behind {
    fn name(&self) -> &str {
        "main"
    }

    fn find<'a>(&'a self, user: &'a str, _: Asker<'a>) -> Found<'a> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let password = self.hash.lock().clone();
        let takes = *self.takes.lock();
        Box::pin(async move {
            tokio::time::sleep(takes).await;
            let record =
                Record { password, rights: Rights::default(), disabled: false, fast: None };
            Ok(user.ends_with("/ada").then_some(record))
        })
    }

    fn decoy(&self, _user: &str) -> Option<String> {
        Some("behind".into())
    }
}

/// A cache that runs.
struct Broker {
    cached: Arc<Cached<Behind>>,
    told: Arc<Mutex<Vec<String>>>,
    running: JoinHandle<()>,
    _secret: tempfile::NamedTempFile,
}

impl Broker {
    async fn start(port: u16) -> Self {
        Self::with(port, |_| {}).await
    }

    async fn with(port: u16, change: impl Fn(&mut RedisSettings)) -> Self {
        let secret = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(secret.path(), "s".repeat(32)).unwrap();
        let mut settings = RedisSettings {
            url: Some(Secret::new(format!("redis://127.0.0.1:{port}"))),
            secret_file: secret.path().into(),
            ..RedisSettings::default()
        };
        change(&mut settings);
        let behind = Behind {
            hash: Mutex::new("$1".into()),
            asked: AtomicUsize::new(0),
            takes: Mutex::default(),
        };
        let unix = || std::time::UNIX_EPOCH.elapsed().unwrap();
        let clock = Clock::start(TimeSource { ticks: Instant::now, unix });
        let cached = Arc::new(Cached::new(behind, settings, &[7; 32], clock).unwrap());
        let told = Arc::new(Mutex::new(Vec::new()));
        let telling = Arc::clone(&told);
        let on_change = move |changed: &Scope| telling.lock().push(format!("{changed:?}"));
        let running = tokio::spawn(Arc::clone(&cached).run(on_change));
        let broker = Self { cached, told, running, _secret: secret };
        until(|| broker.cached.counts().is_up).await;
        broker
    }

    async fn find(&self, user: &str) -> Option<Record> {
        self.cached.find(user, Asker::BROKER).await.unwrap()
    }

    fn asked(&self) -> usize {
        self.cached.inner.asked.load(Ordering::SeqCst)
    }

    fn told(&self) -> Vec<String> {
        std::mem::take(&mut self.told.lock())
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.running.abort();
    }
}

async fn until(condition: impl Fn() -> bool) {
    for _ in 0..1_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not in time");
}

const KEY: &[u8] = b"barid:user:acme/ada";
const FAST_KEY: &[u8] = b"barid:fast:acme/ada";

#[tokio::test]
async fn what_one_broker_has_read_others_find() {
    let (server, port) = Server::start().await;
    let (one, other) = (Broker::start(port).await, Broker::start(port).await);
    assert_eq!(one.find("acme/ada").await.unwrap().password, "$1");
    assert_eq!(one.find("acme/bob").await, None);
    until(|| server.values.lock().len() == 2).await;
    assert_eq!(other.cached.decoy("x/y").as_deref(), Some("behind"));
    let before = server.requests.load(Ordering::SeqCst);
    assert_eq!(other.find("acme/ada").await.unwrap().password, "$1");
    assert_eq!(other.find("acme/bob").await, None);
    assert_eq!(
        server.requests.load(Ordering::SeqCst) - before,
        4,
        "two commands in each round trip"
    );
    assert_eq!((one.asked(), other.asked()), (2, 0));
    assert_eq!(other.cached.decoy("x/y").as_deref(), Some("$1"));
    assert_eq!(other.cached.counts().hits, 2);
}

#[tokio::test]
async fn an_unknown_name_has_the_hash_of_a_user_always_the_same_one() {
    let (_server, port) = Server::start().await;
    let broker = Broker::start(port).await;
    let decoys = || -> Vec<Option<String>> {
        (0..1_000).map(|number| broker.cached.decoy(&format!("x/{number}"))).collect()
    };
    for tenant in 0..8 {
        *broker.cached.inner.hash.lock() = format!("${tenant}");
        broker.find(&format!("{tenant}/ada")).await;
    }
    let before = decoys();
    let different: std::collections::BTreeSet<_> = before.iter().collect();
    assert_eq!(different.len(), 8, "all of them are chosen");
    // Some of these are read from Redis, with the hash that they had before.
    for tenant in [3, 7, 0] {
        *broker.cached.inner.hash.lock() = format!("${tenant}");
        broker.find(&format!("{tenant}/ada")).await;
        broker.find(&format!("{tenant}/nobody")).await;
        assert_eq!(decoys(), before);
    }
}

#[tokio::test]
async fn a_fast_hash_is_found_by_others() {
    let (server, port) = Server::start().await;
    let (one, other) = (Broker::start(port).await, Broker::start(port).await);
    assert_eq!(one.find("acme/ada").await.unwrap().fast, None);
    let fast = one.cached.fast_hash("acme/ada", 7, b"secret").unwrap();
    one.cached.remember("acme/ada", fast);
    until(|| server.values.lock().len() == 2).await;
    assert_eq!(other.find("acme/ada").await.unwrap().fast, Some(fast));
    assert_eq!(other.cached.fast_hash("acme/ada", 7, b"secret"), Some(fast));
    // It stays when the record has ended.
    server.values.lock().remove(KEY);
    assert_eq!(other.find("acme/ada").await.unwrap().fast, Some(fast));
    let without = Broker::with(port, |settings| settings.fast = false).await;
    assert_eq!(without.find("acme/ada").await.unwrap().fast, None);
    assert_eq!(without.cached.fast_hash("acme/ada", 7, b"secret"), None);
}

#[tokio::test]
async fn a_change_is_told_and_nothing_older_is_used() {
    let (server, port) = Server::start().await;
    let (one, other) = (Broker::start(port).await, Broker::start(port).await);
    one.find("acme/ada").await;
    until(|| server.values.lock().contains_key(KEY)).await;
    let old = server.values.lock()[KEY].clone();
    for broker in [&one, &other] {
        *broker.cached.inner.hash.lock() = "$2".into();
    }
    one.cached.invalidate(&Scope::User("acme/ada".into())).await.unwrap();
    until(|| other.told.lock().len() == 1).await;
    assert_eq!(other.told(), [r#"User("acme/ada")"#]);
    assert!(server.values.lock()[KEY].is_empty());
    assert_eq!(other.find("acme/ada").await.unwrap().password, "$2");
    // An enemy writes the old value back.
    server.values.lock().insert(KEY.into(), old.clone());
    assert_eq!(other.find("acme/ada").await.unwrap().password, "$2");
    assert_eq!(one.find("acme/ada").await.unwrap().password, "$2");
    for (changed, told) in
        [(Scope::Tenant("acme".into()), r#"Tenant("acme")"#), (Scope::Everybody, "Everybody")]
    {
        one.cached.invalidate(&changed).await.unwrap();
        until(|| !other.told.lock().is_empty()).await;
        assert_eq!(other.told(), [told]);
    }
}

#[tokio::test]
async fn a_look_up_that_began_before_a_change_caches_nothing() {
    let (server, port) = Server::start().await;
    let broker = Broker::start(port).await;
    *broker.cached.inner.takes.lock() = Duration::from_millis(200);
    let (found, ()) = tokio::join!(broker.find("acme/ada"), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        broker.cached.forget(&Scope::User("acme/ada".into()));
    });
    assert_eq!(found.unwrap().password, "$1");
    broker.find("acme/bob").await;
    until(|| server.values.lock().contains_key(&b"barid:user:acme/bob"[..])).await;
    assert!(server.values.lock()[KEY].is_empty());
}

#[tokio::test]
async fn values_of_others_are_not_used() {
    let (server, port) = Server::start().await;
    let (broker, stranger) = (Broker::start(port).await, Broker::start(port).await);
    drop(stranger);
    broker.find("acme/ada").await;
    broker.find("globex/ada").await;
    until(|| server.values.lock().len() == 2).await;
    *broker.cached.inner.hash.lock() = "$2".into();
    let of_globex = server.values.lock()[&b"barid:user:globex/ada"[..]].clone();
    let mut forgeries = vec![
        of_globex,
        b"{\"password\":\"$forged\"}".to_vec(),
        vec![1; 100_000],
        vec![1],
        Seal::new(b"another secret").entry("acme/ada", &forged()).unwrap(),
    ];
    let count = forgeries.len();
    for forgery in forgeries.drain(..) {
        server.values.lock().insert(KEY.into(), forgery);
        server.values.lock().insert(FAST_KEY.into(), vec![7; FAST_LEN]);
        let found = broker.find("acme/ada").await.unwrap();
        assert_eq!((found.password.as_str(), found.fast), ("$2", None));
        until(|| server.values.lock()[KEY].len() > 80 && server.values.lock()[KEY].len() < 1000)
            .await;
    }
    assert!(broker.cached.counts().distrusted >= 2 * count as u64);
}

fn forged() -> Entry {
    let record = Record {
        password: "$forged".into(),
        rights: Rights::default(),
        disabled: false,
        fast: None,
    };
    Entry {
        created: WallTime::from_millis(u64::MAX - 1),
        expires: WallTime::from_millis(u64::MAX),
        record: Some(record),
    }
}

#[tokio::test]
async fn keys_of_users_and_tenants_never_meet() {
    let (server, port) = Server::start().await;
    let broker = Broker::start(port).await;
    let names = [
        "acme/ada",
        "acme/a/ada",
        "acme/\n/ada",
        "acme/\0/ada",
        "acme/ /ada",
        "acme/*/ada",
        "acme/?/ada",
        "acme/[a]/ada",
        "acme/\\/ada",
        "acme/user:/ada",
        "a/ada",
        "acm/e/ada",
        "user:/ada",
        "ada/ada",
    ];
    for user in names {
        let before = broker.asked();
        *broker.cached.inner.hash.lock() = format!("${user}");
        assert_eq!(broker.find(user).await.unwrap().password, format!("${user}"));
        assert_eq!(broker.asked(), before + 1, "{user:?}");
    }
    until(|| server.values.lock().len() == names.len()).await;
    for user in names {
        assert_eq!(broker.find(user).await.unwrap().password, format!("${user}"));
    }
    assert_eq!(broker.asked(), names.len());
}

/// A server that behaves in this manner for a while.
async fn without_redis(manner: Manner) {
    let (server, port) = Server::start().await;
    let broker = Broker::start(port).await;
    server.behave(manner);
    let began = Instant::now();
    assert!(broker.find("acme/ada").await.is_some());
    until(|| !broker.cached.counts().is_up).await;
    assert!(began.elapsed() < Duration::from_secs(2), "{manner:?}");
    for _ in 0..100 {
        let began = Instant::now();
        assert!(broker.find("acme/ada").await.is_some());
        assert!(began.elapsed() < Duration::from_millis(100), "{manner:?}");
    }
    assert!(broker.told().is_empty(), "{manner:?}");
    server.behave(Manner::Honest);
    until(|| broker.cached.counts().is_up).await;
    assert_eq!(broker.told(), ["Everybody"], "{manner:?}: messages may have been missed");
    assert!(broker.cached.counts().bypassed >= 100);
}

#[tokio::test]
async fn without_redis_the_next_directory_is_asked_at_once() {
    tokio::join!(
        without_redis(Manner::Silent),
        without_redis(Manner::Garbage),
        without_redis(Manner::Endless)
    );
}

#[tokio::test]
async fn entries_from_before_a_failure_are_read_again() {
    let (server, port) = Server::start().await;
    let broker = Broker::start(port).await;
    broker.find("acme/ada").await;
    until(|| server.values.lock().contains_key(KEY)).await;
    server.behave(Manner::Silent);
    until(|| !broker.cached.counts().is_up).await;
    *broker.cached.inner.hash.lock() = "$2".into();
    server.behave(Manner::Honest);
    until(|| broker.cached.counts().is_up).await;
    assert_eq!(broker.find("acme/ada").await.unwrap().password, "$2");
}

#[tokio::test]
async fn names_that_are_too_long_are_not_cached() {
    let (server, port) = Server::start().await;
    let broker = Broker::start(port).await;
    let before = server.requests.load(Ordering::SeqCst);
    let long = format!("acme/{}/ada", "x".repeat(NAME_MAX));
    assert!(broker.find(&long).await.is_some());
    assert_eq!(server.requests.load(Ordering::SeqCst), before);
}
