//! Tests of the program as its users run it: processes, exit statuses, signals.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn barid(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_barid"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // The environment of the tests must not matter.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("BARID_")) {
        command.env_remove(name);
    }
    command
}

fn run(args: &[&str]) -> Output {
    barid(args).output().unwrap()
}

fn status(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// A broker on free ports, which is killed when the value is dropped.
struct Broker {
    process: Child,
    _stdout: BufReader<ChildStdout>,
    directory: PathBuf,
    mqtt: String,
    ws: String,
}

impl Broker {
    /// Starts a broker with `more` as its configuration file; flags give the addresses.
    fn start(name: &str, more: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("barid-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let file = directory.join("barid.toml");
        fs::write(&file, more).unwrap();
        let data_dir = directory.join("data");
        let free = "127.0.0.1:0";
        let addresses = ["--mqtt", free, "--ws", free, "--amqp", free, "--admin", free];
        let mut process = barid(&["serve"])
            .args(addresses)
            .arg("--config")
            .arg(&file)
            .arg("--data-dir")
            .arg(&data_dir)
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        let (mut mqtt, mut ws, mut line) = (String::new(), String::new(), String::new());
        while !line.starts_with("ready in ") {
            line.clear();
            assert_ne!(stdout.read_line(&mut line).unwrap(), 0, "the broker does not start");
            match line.trim().split_once(' ') {
                Some(("mqtt", address)) => mqtt = address.trim().rsplit_once(':').unwrap().1.into(),
                Some(("ws", url)) => ws = url.trim().into(),
                _ => {}
            }
        }
        Self { process, _stdout: stdout, directory, mqtt, ws }
    }

    fn publish(&self, args: &[&str]) -> Output {
        run(&[&["pub", "-h", "127.0.0.1", "-p", &self.mqtt], args].concat())
    }

    /// Starts a subscriber, and waits until the broker has granted its subscription.
    fn subscribe(&self, args: &[&str]) -> Child {
        let common = ["sub", "-h", "127.0.0.1", "-p", &self.mqtt, "-d"];
        // A failing test must end, too.
        let args =
            &if args.contains(&"-W") { args.to_vec() } else { [args, &["-W", "20"]].concat() };
        let mut child = barid(&[&common[..], args].concat()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("SUBACK") {
            line.clear();
            assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "the subscriber does not start");
        }
        thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        child
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[test]
fn what_is_published_is_printed_in_every_version_and_quality() {
    let broker = Broker::start("round-trip", "");
    for version in ["5", "311", "31"] {
        for qos in ["0", "1", "2"] {
            let common = ["-t", "a/b", "-V", version, "-q", qos];
            let subscriber = broker.subscribe(&[&common[..], &["-v", "-C", "2"]].concat());
            let output = broker.publish(&[&common[..], &["-m", "hello", "--repeat", "2"]].concat());
            assert_eq!(status(&output), 0, "{output:?}");
            let output = subscriber.wait_with_output().unwrap();
            assert_eq!((status(&output), stdout(&output).as_str()), (0, "a/b hello\na/b hello\n"));
        }
    }
}

#[test]
fn lines_of_standard_input_and_json_over_websocket() {
    let broker = Broker::start("lines", "");
    let subscriber = broker.subscribe(&["-t", "l", "-C", "3", "-F", "%p|%C"]);
    let mut publisher = barid(&["pub", "-L", &broker.ws, "-t", "l", "-l", "-q", "1"])
        .args(["-D", "publish", "content-type", "text"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    publisher.stdin.take().unwrap().write_all(b"one\ntwo\r\nthree").unwrap();
    assert_eq!(status(&publisher.wait_with_output().unwrap()), 0);
    let output = subscriber.wait_with_output().unwrap();
    assert_eq!(stdout(&output), "one|text\ntwo|text\nthree|text\n");
}

#[test]
fn exit_statuses() {
    let broker = Broker::start("statuses", "[limits]\nmax_qos = 0\nmax_packet_size = 100\n");
    assert_eq!(status(&broker.publish(&["-t", "a", "-m", "x"])), 0);
    assert_eq!(status(&broker.publish(&["-t", "a/#", "-m", "x"])), 1, "no topic to publish to");
    assert_eq!(status(&run(&["pub", "-t", "a", "-m", "x", "-p", "1"])), 1, "nobody listens");
    assert_eq!(status(&broker.publish(&["-t", "a"])), 2, "wrong usage");
    assert_eq!(status(&broker.publish(&["-t", "a", "-m", "x", "-q", "1"])), 3, "refused");
    assert_eq!(status(&broker.publish(&["-t", "a", "-m", &"x".repeat(100)])), 3, "too large");
    let args = ["sub", "-h", "127.0.0.1", "-p", &broker.mqtt, "-t", "a", "-W", "1"];
    assert_eq!(status(&run(&args)), 27, "time is up");
}

#[test]
fn sigterm_drains_and_tells_the_clients() {
    let mut broker = Broker::start("drain", "");
    let port = broker.mqtt.clone();
    let mut subscriber = barid(&["sub", "-h", "127.0.0.1", "-p", &port, "-t", "a", "-d"])
        .arg("--no-reconnect")
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(subscriber.stderr.take().unwrap()).lines();
    assert!(stderr.any(|line| line.unwrap().contains("SUBACK")));
    signal(&broker.process, Signal::TERM);
    assert!(broker.process.wait().unwrap().success());
    assert!(stderr.any(|line| line.unwrap().contains("Server shutting down (0x8B)")));
    assert_eq!(subscriber.wait().unwrap().code(), Some(3));
}

#[test]
fn a_subscriber_leaves_with_a_disconnect_when_it_is_interrupted() {
    let broker = Broker::start("interrupt", "");
    let will = ["--will-topic", "w", "--will-payload", "gone"];
    let watcher = broker.subscribe(&["-t", "w", "-W", "1"]);
    let subscriber = broker.subscribe(&[&["-t", "a"][..], &will].concat());
    signal(&subscriber, Signal::INT);
    assert_eq!(status(&subscriber.wait_with_output().unwrap()), 0);
    assert_eq!(stdout(&watcher.wait_with_output().unwrap()), "", "the will must not be published");
}

#[test]
fn sighup_takes_over_what_it_can_and_refuses_what_is_broken() {
    let mut broker = Broker::start("reload", "");
    let file = broker.directory.join("barid.toml");
    let mut log = BufReader::new(broker.process.stderr.take().unwrap()).lines();
    let mut reload = |text: &str, expected: &str| {
        fs::write(&file, text).unwrap();
        signal(&broker.process, Signal::HUP);
        let found = log.by_ref().map(Result::unwrap).find(|line| line.contains("reloaded"));
        assert!(found.as_ref().is_some_and(|line| line.contains(expected)), "{found:?}");
    };
    let publish = || status(&broker_publish(&broker.mqtt));
    reload("[limits]\nmax_qos = 0\n", "limits");
    assert_eq!(publish(), 3, "QoS 1 is no longer accepted");
    reload("[limits]\nmax_qso = 2\n", "nothing reloaded");
    assert_eq!(publish(), 3);
    reload("", "limits");
    assert_eq!(publish(), 0);
}

fn broker_publish(port: &str) -> Output {
    run(&["pub", "-h", "127.0.0.1", "-p", port, "-t", "a", "-m", "x", "-q", "1"])
}

#[test]
fn a_hashed_password_lets_its_user_in_and_nobody_else() {
    let mut passwd =
        barid(&["passwd", "--stdin", "acme/dev"]).stdin(Stdio::piped()).spawn().unwrap();
    passwd.stdin.take().unwrap().write_all(b"secret\n").unwrap();
    let block = stdout(&passwd.wait_with_output().unwrap());
    let broker =
        Broker::start("users", &block.replace("publish = [\"#\"]", "publish = [\"ok/%c\"]"));
    let publish = |args: &[&str]| {
        let common = ["-m", "x", "-q", "1", "-i", "me"];
        status(&broker.publish(&[&common[..], args].concat()))
    };
    assert_eq!(publish(&["-u", "acme/dev", "-P", "secret", "-t", "ok/me"]), 0);
    assert_eq!(publish(&["-u", "acme/dev", "-P", "secret", "-t", "ok/you"]), 3);
    assert_eq!(publish(&["-u", "acme/dev", "-P", "wrong", "-t", "ok/me"]), 3);
    assert_eq!(publish(&["-t", "ok/me"]), 3);
}

#[test]
fn every_benchmark_loses_nothing() {
    let broker = Broker::start("bench", "");
    for (scenario, qos, copies) in [
        ("pairs", "0", 1.0),
        ("pairs", "1", 1.0),
        ("pairs", "2", 1.0),
        ("fanout", "1", 5.0),
        ("fanin", "2", 1.0),
        ("connections", "0", 0.0),
    ] {
        let output = run(&[
            "bench",
            scenario,
            "-n",
            "5",
            "-p",
            &broker.mqtt,
            "--qos",
            qos,
            "-d",
            "1",
            "--rate",
            "200",
            "--size",
            "64",
            "--json",
        ]);
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((status(&output), &result["clean"]), (0, &Value::from(true)), "{result}");
        if scenario != "connections" {
            let rate = result["delivered_per_s"].as_f64().unwrap() / copies;
            assert!((100.0..=300.0).contains(&rate), "{result}");
        }
    }
}

#[test]
fn the_benchmark_of_the_state_store_gets_the_answers_it_expects() {
    let broker = Broker::start("bench-state", "");
    let of = ["--sets", "25", "--keys", "100", "-n", "5", "--in-flight", "7", "-d", "1"];
    for properties in [&["--plain"][..], &[]] {
        let bench = [&["bench", "state", "-p", &broker.mqtt, "--json"], &of[..], properties];
        let output = run(&bench.concat());
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((status(&output), &result["errors"]), (0, &Value::from(0)), "{result}");
        assert!(result["operations_per_s"].as_u64().unwrap() > 100, "{result}");
        assert!(result["get_latency_us"]["p50"].as_u64().unwrap() > 0, "{result}");
    }
}

#[test]
fn check_config_tells_every_problem_as_json() {
    let file = std::env::temp_dir().join(format!("barid-check-{}.toml", std::process::id()));
    fs::write(&file, "wokers = 2\n[limits]\nmax_qos = 'x'\n").unwrap();
    let output = barid(&["check-config", "--json"]).arg(&file).output().unwrap();
    fs::remove_file(&file).unwrap();
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((status(&output), &result["ok"]), (1, &Value::from(false)));
    let lines: Vec<_> = result["problems"].as_array().unwrap().iter().map(|p| &p["line"]).collect();
    assert_eq!(lines, [1, 3]);
}

#[test]
fn it_is_ready_well_under_a_second() {
    // A busy machine may slow down one start, so the fastest of three counts.
    let times = (0..3).map(|_| {
        let started = Instant::now();
        let _broker = Broker::start("ready", "");
        started.elapsed()
    });
    assert!(times.min() < Some(Duration::from_secs(1)));
}

#[test]
fn the_network_needs_users() {
    let output = run(&[
        "serve",
        "--mqtt",
        "0.0.0.0:0",
        "--ws",
        "off",
        "--amqp",
        "off",
        "--admin",
        "127.0.0.1:0",
    ]);
    assert_eq!(status(&output), 1);
    assert!(String::from_utf8(output.stderr).unwrap().contains("barid passwd NAME"));
}
