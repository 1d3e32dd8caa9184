//! Look-ups at a server that follows a script, also one that lies.

use std::sync::Mutex as StdMutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use barid_engine::amqp::Secret;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::pool::WAITING_PER_CONNECTION;
use super::*;
use crate::for_tests::asker;

/// What a server sends: first its greeting, then an answer to each packet of the client.
type Script = Vec<Vec<Vec<u8>>>;

const OK: &[u8] = &[0, 0, 0, 2, 0, 0, 0];
const END: &[u8] = &[0xfe, 0, 0, 2, 0];

fn bytes(text: &[u8]) -> Vec<u8> {
    let length = u16::try_from(text.len()).expect("a short text").to_le_bytes();
    [&[0xfc], &length[..], text].concat()
}

fn column(name: &str, kind: u8) -> Vec<u8> {
    let names = [&b"def"[..], b"barid", b"u", b"u", name.as_bytes(), name.as_bytes()].map(bytes);
    [names.concat(), vec![12, 45, 0, 0, 1, 0, 0, kind, 0, 0, 0, 0, 0]].concat()
}

fn row(name: &[u8], hash: &[u8], enabled: u8) -> Vec<u8> {
    [vec![0, 0], bytes(name), bytes(hash), vec![enabled]].concat()
}

/// A server that lets the client in, and answers a look-up with these rows.
fn script(rows: Vec<Vec<u8>>) -> Script {
    let mut greeting = b"\x0a8.0.36\0\x01\0\0\0ABCDEFGH\0\x00\x82\x2d\x02\0\x08\0\x15".to_vec();
    greeting.extend_from_slice(&[0; 10]);
    greeting.extend_from_slice(b"IJKLMNOPQRST\0mysql_native_password\0");
    let columns = [column("name", 253), column("password_hash", 253), column("enabled", 1)];
    let prepared = vec![0, 1, 0, 0, 0, 3, 0, 1, 0, 0, 0, 0];
    let definitions = [&columns[..], &[END.to_vec()]].concat();
    let preparing = [vec![prepared, column("?", 253), END.to_vec()], definitions.clone()].concat();
    let answer = [vec![vec![3]], definitions, rows, vec![END.to_vec()]].concat();
    vec![vec![greeting], vec![OK.to_vec()], vec![OK.to_vec()], preparing, answer]
}

/// Follows the script on one connection, and closes it at the end of the script.
async fn follow(mut stream: TcpStream, script: Script) -> std::io::Result<()> {
    let mut sequence: u8 = 0;
    stream.set_nodelay(true)?;
    for (at, answer) in script.iter().enumerate() {
        if at > 0 {
            let mut header = [0; 4];
            stream.read_exact(&mut header).await?;
            let length = u32::from_le_bytes([header[0], header[1], header[2], 0]);
            stream.read_exact(&mut vec![0; usize::try_from(length).expect("small")]).await?;
            sequence = header[3].wrapping_add(1);
        }
        let mut framed = Vec::new();
        for packet in answer {
            let length = u32::try_from(packet.len()).expect("small").to_le_bytes();
            framed.extend_from_slice(&length[..3]);
            framed.push(sequence);
            framed.extend_from_slice(packet);
            sequence = sequence.wrapping_add(1);
        }
        stream.write_all(&framed).await?;
    }
    Ok(())
}

/// A server on a port of its own, that follows a script on each connection.
struct Server {
    port: u16,
    connections: Arc<AtomicUsize>,
}

impl Server {
    async fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(follow(stream, script.clone()));
            }
        });
        Self { port, connections }
    }

    fn directory(&self) -> Mysql {
        self.directory_within(400)
    }

    fn directory_within(&self, timeout_ms: u64) -> Mysql {
        self.directory_with(timeout_ms, MysqlSettings::default().pool)
    }

    fn directory_with(&self, timeout_ms: u64, pool: usize) -> Mysql {
        let url = Secret::new(format!("mysql://barid:hidden@127.0.0.1:{}/barid", self.port));
        let settings =
            MysqlSettings { url: Some(url), timeout_ms, pool, ..MysqlSettings::default() };
        Mysql::new("main", settings, &[7; 32]).unwrap()
    }
}

async fn find(script: Script) -> Result<Option<Record>, NoAnswer> {
    let server = Server::start(script).await;
    server.directory().find("acme/ada", Asker::BROKER).await
}

#[tokio::test]
async fn a_user_is_found() {
    let server = Server::start(script(vec![row(b"acme/ada", b"$hash", 1)])).await;
    let directory = server.directory();
    assert_eq!(directory.decoy("acme/ada").as_deref(), Some(DECOY));
    let record = directory.find("acme/ada", Asker::BROKER).await.unwrap().unwrap();
    assert_eq!((record.password.as_str(), record.disabled), ("$hash", false));
    assert_eq!(directory.decoy("acme/ada").as_deref(), Some("$hash"));
    assert!(!format!("{directory:?}").contains("hidden"));
    assert_eq!(find(script(vec![])).await, Ok(None));
    assert_eq!(find(script(vec![row(b"acme/Ada", b"$hash", 1)])).await, Ok(None));
    assert!(find(script(vec![row(b"acme/ada", b"$hash", 0)])).await.unwrap().unwrap().disabled);
}

#[tokio::test]
async fn more_than_one_row_lets_nobody_in() {
    let two = vec![row(b"acme/Ada", b"$hash", 1), row(b"acme/ada", b"$hash", 1)];
    let error = find(script(two)).await.unwrap_err().to_string();
    assert!(
        error.starts_with("mysql back end `main`: the query returns more than one row"),
        "{error}"
    );
}

#[tokio::test]
async fn rows_and_answers_without_end_are_refused() {
    let many = find(script(vec![row(b"acme/ada", &[b'x'; 2000], 1); 4000])).await.unwrap_err();
    assert!(many.to_string().contains("more than one row"), "{many}");
    let mut large = script(vec![row(b"acme/ada", b"$hash", 1)]);
    large[4][4] = vec![0; 200_000];
    assert!(find(large).await.unwrap_err().to_string().contains("too large"));
    let mut columns = script(vec![]);
    columns[3].splice(3..3, std::iter::repeat_n(vec![1; 4000], 100));
    assert!(find(columns).await.is_err());
}

#[tokio::test]
async fn a_server_that_wants_a_file_gets_none() {
    let mut wanting = script(vec![]);
    wanting[4] = vec![b"\xfb/etc/passwd".to_vec()];
    let error = find(wanting).await.unwrap_err().to_string();
    assert!(error.contains("no SELECT"), "{error}");
}

#[tokio::test]
async fn errors_of_the_server_name_the_back_end_and_not_the_password() {
    let mut denying = script(vec![]);
    denying[1] = vec![b"\xff\x15\x04#28000Access denied\nfor user".to_vec()];
    let error = find(denying).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "mysql back end `main`: the server answers with error 1045: Access denied for user"
    );
    let mut switching = script(vec![]);
    switching[1] = vec![b"\xfemysql_clear_password\0".to_vec()];
    let error = find(switching).await.unwrap_err().to_string();
    assert!(error.contains("mysql_clear_password") && error.contains("TLS"), "{error}");
}

#[tokio::test]
async fn a_server_that_is_slow_gone_or_no_database_is_unavailable_in_time() {
    for greeting in
        [&b""[..], b"220 mail.example ESMTP\r\n", b"\x01\0\0\0\x0a", &[0xff; 64], &[0; 64]]
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = Server { port, connections: Arc::default() };
        let directory = server.directory();
        let serving = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(greeting).await.unwrap();
            std::future::pending::<()>().await;
        });
        let began = Instant::now();
        assert!(directory.find("acme/ada", Asker::BROKER).await.is_err(), "{greeting:?}");
        assert!(began.elapsed() < Duration::from_secs(2), "{greeting:?}");
        // The next login does not wait.
        let began = Instant::now();
        assert!(directory.find("acme/ada", Asker::BROKER).await.is_err());
        assert!(began.elapsed() < Duration::from_millis(200), "{greeting:?}");
        serving.abort();
    }
}

#[tokio::test]
async fn a_connection_that_the_server_has_closed_is_replaced() {
    // Each connection ends after one look-up.
    let server = Server::start(script(vec![row(b"acme/ada", b"$hash", 1)])).await;
    let directory = server.directory();
    for _ in 0..3 {
        assert!(directory.find("acme/ada", Asker::BROKER).await.unwrap().is_some());
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_login_that_is_given_up_does_not_cost_its_connection() {
    let mut twice = script(vec![row(b"acme/ada", b"$hash", 1)]);
    twice.push(twice[4].clone());
    let server = Server::start(twice).await;
    let directory = server.directory();
    {
        let mut given_up = directory.find("acme/ada", Asker::BROKER);
        // As soon as it waits for the server, it has got its connection.
        std::future::poll_fn(|context| {
            let _ = given_up.as_mut().poll(context);
            std::task::Poll::Ready(())
        })
        .await;
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(directory.find("acme/ada", Asker::BROKER).await.unwrap().is_some());
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
}

/// Starts a server that follows the script of the moment on each connection.
async fn serve_current(current: Arc<StdMutex<Script>>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let script = current.lock().unwrap().clone();
            tokio::spawn(follow(stream, script));
        }
    });
    Server { port, connections: Arc::default() }
}

#[tokio::test]
async fn an_unknown_name_has_the_hash_of_a_user_always_the_same_one() {
    let current = Arc::new(StdMutex::new(script(vec![])));
    let server = serve_current(Arc::clone(&current)).await;
    let directory = server.directory();
    let read = async |user: usize, hash: Option<&str>| {
        let name = format!("acme/{user}");
        let row = hash.map(|hash| row(name.as_bytes(), hash.as_bytes(), 1));
        *current.lock().unwrap() = script(row.into_iter().collect());
        let found = directory.find(&name, Asker::BROKER).await.unwrap();
        assert_eq!(found.map(|record| record.password).as_deref(), hash);
    };
    let decoys = || -> Vec<String> {
        (0..1_000).map(|number| directory.decoy(&format!("x/{number}")).unwrap()).collect()
    };
    for user in 0..8 {
        read(user, Some(&format!("$hash {user}"))).await;
    }
    let before = decoys();
    for user in [5, 0, 7] {
        read(user, Some(&format!("$hash {user}"))).await;
        assert_eq!(decoys(), before);
    }
    read(5, Some("$other")).await;
    let with_other = |hash: &String| if hash == "$hash 5" { "$other".into() } else { hash.clone() };
    assert!(before.contains(&"$hash 5".into()));
    assert_eq!(decoys(), before.iter().map(with_other).collect::<Vec<_>>());
    read(5, None).await;
    assert!(!decoys().contains(&"$other".into()));
}

/// A directory with one connection, to a server that takes a while for each look-up, and who was answered.
struct Slow {
    directory: Arc<Mysql>,
    answered: Arc<StdMutex<Vec<String>>>,
}

impl Slow {
    async fn start(takes: Duration, timeout_ms: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    tokio::time::sleep(takes).await;
                    follow(stream, script(vec![])).await
                });
            }
        });
        let server = Server { port, connections: Arc::default() };
        let directory = Arc::new(server.directory_with(timeout_ms, 1));
        Self { directory, answered: Arc::default() }
    }

    fn flood(
        &self,
        asker: Asker<'static>,
        count: usize,
    ) -> Vec<JoinHandle<Result<Option<Record>, NoAnswer>>> {
        let find = |_| {
            let (directory, answered) = (Arc::clone(&self.directory), Arc::clone(&self.answered));
            tokio::spawn(async move {
                let found = directory.find("acme/ada", asker).await;
                if found.is_ok() {
                    answered.lock().unwrap().push(asker.tenant.to_owned());
                }
                found
            })
        };
        (0..count).map(find).collect()
    }
}

#[tokio::test]
async fn a_flood_of_logins_of_one_tenant_does_not_delay_another_nor_the_broker() {
    let slow = Slow::start(Duration::from_millis(20), 5_000).await;
    let flood = slow.flood(asker("a"), 30);
    while slow.answered.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let others = [slow.flood(asker("b"), 1), slow.flood(Asker::BROKER, 1)];
    for one in others.into_iter().flatten() {
        assert_eq!(one.await.unwrap(), Ok(None));
    }
    // One look-up of the flood was answered, one was on its way, and one may have had the turn before.
    let answered = slow.answered.lock().unwrap().clone();
    let place = |asker: Asker<'_>| answered.iter().position(|tenant| tenant == asker.tenant);
    let places = [place(asker("b")).unwrap(), place(Asker::BROKER).unwrap()];
    assert!(places.iter().all(|place| *place <= 4), "{answered:?}");
    for one in flood {
        assert_eq!(one.await.unwrap(), Ok(None));
    }
}

#[tokio::test]
async fn whoever_floods_the_database_is_told_that_it_is_busy() {
    let slow = Slow::start(Duration::from_millis(50), 1_000).await;
    let flood = slow.flood(asker("a"), WAITING_PER_CONNECTION + 20);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(slow.directory.find("b/bob", asker("b")).await, Ok(None));
    let mut busy = 0;
    for one in flood {
        busy += usize::from(one.await.unwrap() == Err(NoAnswer::Busy));
    }
    // Some are displaced at once, and others have waited too long. One was on its way.
    assert!((1..WAITING_PER_CONNECTION + 20).contains(&busy), "{busy}");
}

/// Changes a packet as a lying server, or a disturbed connection, would.
fn disturb(packet: &mut Vec<u8>) {
    let at = |packet: &Vec<u8>| fastrand::usize(..packet.len().max(1));
    match fastrand::u8(..6) {
        0 => packet.truncate(at(packet)),
        1 => {
            let (at, byte) = (at(packet), fastrand::u8(..));
            packet.get_mut(at).into_iter().for_each(|place| *place = byte);
        }
        2 => {
            let (at, byte) = (at(packet), [0, 0xfb, 0xfc, 0xfd, 0xfe, 0xff][fastrand::usize(..6)]);
            packet.get_mut(at).into_iter().for_each(|place| *place = byte);
        }
        3 => {
            *packet =
                std::iter::repeat_with(|| fastrand::u8(..)).take(fastrand::usize(..40)).collect()
        }
        4 => {
            packet.extend(std::iter::repeat_with(|| fastrand::u8(..)).take(fastrand::usize(1..20)))
        }
        _ => packet.clear(),
    }
}

#[tokio::test]
async fn no_answer_of_a_server_ends_the_process_or_gives_another_user() {
    let honest = script(vec![row(b"acme/ada", b"$hash", 1)]);
    let disturbed = Arc::new(StdMutex::new(honest.clone()));
    let server = serve_current(Arc::clone(&disturbed)).await;
    let (mut found, mut failed) = (0, 0);
    for round in 0..2000 {
        fastrand::seed(round);
        let mut script = honest.clone();
        for _ in 0..fastrand::usize(1..3) {
            let answer = fastrand::usize(..script.len());
            let packet = fastrand::usize(..script[answer].len());
            disturb(&mut script[answer][packet]);
        }
        *disturbed.lock().unwrap() = script;
        match server.directory_within(40).find("acme/ada", Asker::BROKER).await {
            Ok(Some(record)) if record.password == "$hash" => found += 1,
            Ok(_) => {}
            Err(_) => failed += 1,
        }
    }
    assert!(found > 100 && failed > 1000, "{found} {failed}");
}
