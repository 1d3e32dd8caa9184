//! Look-ups at real servers, which the environment names:
//!
//! - `BARID_TEST_MYSQL`: URL of an empty database of MariaDB or MySQL;
//! - `BARID_TEST_SQL`: a shell command that executes SQL from its standard input there;
//! - `BARID_TEST_REDIS`: URL of an empty database of Redis;
//! - `BARID_TEST_CA`, if the servers accept TLS: the PEM file of their authority.
//!
//! `cargo test -p barid-auth --test servers -- --ignored --test-threads 1`

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::env;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use barid_auth::mysql::schema::{self, Created};
use barid_auth::mysql::{ChangesSettings, Mysql, MysqlSettings, Parameter};
use barid_auth::redis::{Cached, RedisSettings};
use barid_auth::{Asker, Directory as _, Scope};
use barid_engine::amqp::Secret;
use barid_engine::clock::{Clock, TimeSource};

fn sql(statements: &str) {
    let command = env::var("BARID_TEST_SQL").expect("BARID_TEST_SQL");
    let mut running =
        Command::new("sh").args(["-c", &command]).stdin(Stdio::piped()).spawn().unwrap();
    running.stdin.take().unwrap().write_all(statements.as_bytes()).unwrap();
    assert!(running.wait().unwrap().success(), "{statements}");
}

fn ca_file() -> Option<PathBuf> {
    env::var("BARID_TEST_CA").ok().filter(|path| !path.is_empty()).map(Into::into)
}

fn settings() -> MysqlSettings {
    let url = Some(Secret::new(env::var("BARID_TEST_MYSQL").expect("BARID_TEST_MYSQL")));
    MysqlSettings { url, ca_file: ca_file(), ..MysqlSettings::default() }
}

fn directory(settings: MysqlSettings) -> Mysql {
    Mysql::new("main", settings, &[7; 32]).unwrap()
}

/// Creates the default schema without users.
fn empty() {
    sql("DROP TABLE IF EXISTS barid_users;");
    assert_eq!(schema::create(&settings()), Ok(Created::Now));
    assert_eq!(schema::create(&settings()), Ok(Created::Before));
}

async fn hash_of(directory: &Mysql, user: &str) -> Option<String> {
    directory.find(user, Asker::BROKER).await.unwrap().map(|record| record.password)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
#[ignore = "needs a database: see above"]
fn users_of_the_default_schema() {
    empty();
    sql(r#"INSERT INTO barid_users (name, password_hash, rights, enabled) VALUES
        ('acme/ada', '$1', NULL, 1),
        ('acme/Ada', '$2', '{"publish": ["up/%c/#"]}', 1),
        ('acme/äda ☃ 𝄞', '$3', NULL, 0),
        ('acme/o''neill"; --', '$4', NULL, 1),
        ('acme/none', NULL, NULL, 1),
        ('acme/bad', '$5', '{"publsh": []}', 1);"#);
    runtime().block_on(async {
        let users = directory(settings());
        assert_eq!(hash_of(&users, "acme/ada").await.as_deref(), Some("$1"));
        let other = users.find("acme/Ada", Asker::BROKER).await.unwrap().unwrap();
        assert_eq!((other.password.as_str(), other.rights.publish.unwrap().len()), ("$2", 1));
        let third = users.find("acme/äda ☃ 𝄞", Asker::BROKER).await.unwrap().unwrap();
        assert!(third.disabled && third.password == "$3");
        assert_eq!(hash_of(&users, "acme/o'neill\"; --").await.as_deref(), Some("$4"));
        assert!(users.find("acme/none", Asker::BROKER).await.unwrap().unwrap().disabled);
        let error = users.find("acme/bad", Asker::BROKER).await.unwrap_err().to_string();
        assert_eq!(error, "mysql back end `main`: column `rights` has the unknown key `publsh`");
        for unknown in [
            "acme/aDA",
            "acme/ada ",
            "acme/àda",
            "acme/ada\0",
            "acme/%",
            "acme/' OR '1'='1",
            "acme/ada'; DROP TABLE barid_users; --",
            "acme/ada\\",
            "?",
            "",
            &"x".repeat(65_535),
        ] {
            assert_eq!(users.find(unknown, Asker::BROKER).await, Ok(None), "{unknown:?}");
        }
        assert_eq!(hash_of(&users, "acme/ada").await.as_deref(), Some("$1"));
    });
}

#[test]
#[ignore = "needs a database: see above"]
fn an_existing_schema_that_compares_as_databases_do() {
    sql("DROP TABLE IF EXISTS people; CREATE TABLE people (org VARCHAR(64), login VARCHAR(64), pw TEXT, \
         active BIT(1), weight DOUBLE, born DATE, paid DECIMAL(10, 2)) DEFAULT CHARSET latin1;
         INSERT INTO people VALUES ('acme', 'jürgen', '$1', b'1', 0.5, '2000-01-01', 1.5), \
         ('acme', 'twice', '$2', b'1', 0, NULL, 0), ('acme', 'TWICE', '$3', b'1', 0, NULL, 0), \
         ('acme', 'off', '$4', b'0', 0, NULL, 0);");
    runtime().block_on(async {
        let users = directory(MysqlSettings {
            query:
                "SELECT CONCAT(org, '/', login) AS name, pw AS password_hash, active AS enabled, \
                    weight, born, paid FROM people WHERE org = ? AND login = ?"
                    .into(),
            parameters: vec![Parameter::Tenant, Parameter::Client],
            ..settings()
        });
        assert_eq!(hash_of(&users, "acme/jürgen").await.as_deref(), Some("$1"));
        for unknown in
            ["acme/JÜRGEN", "acme/jurgen", "acme/jürgen ", "ACME/jürgen", "acme/x", "jürgen"]
        {
            assert_eq!(users.find(unknown, Asker::BROKER).await, Ok(None), "{unknown:?}");
        }
        assert!(users.find("acme/off", Asker::BROKER).await.unwrap().unwrap().disabled);
        let error = users.find("acme/twice", Asker::BROKER).await.unwrap_err().to_string();
        assert!(error.contains("more than one row"), "{error}");
        for (query, expected) in [
            ("SELECT 1 AS name FROM nothing WHERE 1 = ?", "error 1146"),
            ("SELECT ? AS name", "column `password_hash`"),
            ("UPDATE people SET pw = pw WHERE login = ?", "no SELECT"),
            ("SELECT ?, ?", "has 2 `?`"),
            ("SELEC ?", "error 1064"),
            (
                "SELECT 'acme/off' AS name, REPEAT('x', 1025) AS password_hash, ? AS p",
                "more than 1024",
            ),
            (
                "SELECT 'acme/off' AS name, REPEAT('x', 1000000) AS password_hash, ? AS p",
                "too large",
            ),
        ] {
            let users = directory(MysqlSettings { query: query.into(), ..settings() });
            let error = users.find("acme/off", Asker::BROKER).await.unwrap_err().to_string();
            assert!(error.contains(expected), "{query}: {error}");
        }
    });
    sql("DROP TABLE people;");
}

#[test]
#[ignore = "needs a database: see above"]
fn changes_are_told_within_a_second() {
    empty();
    sql(
        "INSERT INTO barid_users (name, password_hash) VALUES ('acme/ada', '$1'), ('acme/bob', '$1');",
    );
    let told = Arc::new(Mutex::new(Vec::new()));
    let wait = async |expected: &[&str]| {
        let began = Instant::now();
        loop {
            let mut all: Vec<String> = told.lock().unwrap().clone();
            all.sort();
            if all == expected {
                told.lock().unwrap().clear();
                return began.elapsed();
            }
            assert!(began.elapsed() < Duration::from_secs(5), "{all:?} instead of {expected:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    runtime().block_on(async {
        let changes = Some(ChangesSettings::default());
        let users = Arc::new(directory(MysqlSettings { changes, ..settings() }));
        let watched = Arc::clone(&users);
        let telling = Arc::clone(&told);
        let watching = tokio::spawn(async move {
            let on_change = move |changed: &Scope| {
                telling.lock().unwrap().push(match changed {
                    Scope::User(user) => user.to_string(),
                    other => format!("{other:?}"),
                });
            };
            watched.watch(on_change).await;
        });
        wait(&["acme/ada", "acme/bob"]).await;
        sql("UPDATE barid_users SET enabled = 0 WHERE name = 'acme/bob';");
        assert!(wait(&["acme/bob"]).await < Duration::from_millis(1_500));
        sql("UPDATE barid_users SET enabled = 0 WHERE name = 'acme/bob';");
        // A transaction that ends after later ones.
        let late = std::thread::spawn(|| {
            sql("BEGIN; UPDATE barid_users SET password_hash = '$2' WHERE name = 'acme/ada'; DO SLEEP(3); COMMIT;");
        });
        tokio::time::sleep(Duration::from_millis(500)).await;
        sql("INSERT INTO barid_users (name, password_hash) VALUES ('acme/eve', '$1');");
        wait(&["acme/eve"]).await;
        wait(&["acme/ada"]).await;
        late.join().unwrap();
        sql("INSERT INTO barid_users (name) SELECT CONCAT('acme/', seq) FROM seq_1_to_2000;");
        wait(&["Everybody"]).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        sql("UPDATE barid_users SET enabled = 0 WHERE name = 'acme/7';");
        wait(&["acme/7"]).await;
        watching.abort();
    });
}

#[test]
#[ignore = "needs a database and Redis: see above"]
fn a_warm_redis_answers_thousands_of_logins() {
    const USERS: usize = 2_000;
    empty();
    sql(r#"INSERT INTO barid_users (name, password_hash, rights)
        SELECT CONCAT('acme/', seq), CONCAT('$argon2id$v=19$m=256,t=1,p=1$c2FsdHNhbHQ$', SHA2(seq, 256)),
        '{"publish": ["up/%c/#"], "subscribe": ["down/%c/#"]}' FROM seq_0_to_1999;"#);
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), "0123456789abcdef0123456789abcdef").unwrap();
    let url = Secret::new(env::var("BARID_TEST_REDIS").expect("BARID_TEST_REDIS"));
    let redis = RedisSettings {
        url: Some(url),
        ca_file: ca_file(),
        secret_file: secret.path().into(),
        prefix: format!("test-{}:", std::process::id()),
        ..RedisSettings::default()
    };
    let clock = Clock::start(TimeSource {
        ticks: Instant::now,
        unix: || std::time::UNIX_EPOCH.elapsed().unwrap(),
    });
    runtime().block_on(async {
        let cached = Arc::new(Cached::new(directory(settings()), redis, &[7; 32], clock).unwrap());
        let running = tokio::spawn(Arc::clone(&cached).run(|_: &Scope| {}));
        while !cached.counts().is_up {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        for what in ["cold", "warm"] {
            let began = Instant::now();
            let logins = (0..USERS).map(|number| {
                let cached = Arc::clone(&cached);
                tokio::spawn(async move {
                    let user = format!("acme/{number}");
                    let record = cached.find(&user, Asker::BROKER).await.unwrap().unwrap();
                    let fast = cached.fast_hash(&user, 7, b"a random secret of a device").unwrap();
                    if record.fast != Some(fast) {
                        cached.remember(&user, fast);
                    }
                    record.fast.is_some()
                })
            });
            let mut fast = 0;
            for login in logins.collect::<Vec<_>>() {
                fast += usize::from(login.await.unwrap());
            }
            let rate = USERS as f64 / began.elapsed().as_secs_f64();
            println!("{what}: {rate:.0} a second, {fast} fast, {:?}", cached.counts());
            tokio::time::sleep(Duration::from_millis(500)).await;
            if what == "warm" {
                assert!(fast > USERS * 9 / 10 && rate > 2_000.0);
            }
        }
        running.abort();
    });
}
