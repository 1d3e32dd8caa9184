use std::fs;
use std::path::Path;

use barid_engine::rights::{Action, Actions, Rule};
use barid_server::settings::{Settings, User};
use tempfile::TempDir;

use super::mosquitto::translate;
use super::notes::Notes;
use crate::config;

/// A hash that mosquitto_passwd 2.0.11 has written, of `secret`.
const HASH: &str = "$7$101$yUpV0oQeTdthmbHO$KMBnEWNoeP9lpAsDTIJ26Rwei0DegLF8Sb7+WxsbvfU8drBT7Ulz1IVa/te+5jHsPtx9oTGKHofR0fL9tTfaQQ==";

/// What a migration has produced.
struct Migrated {
    text: String,
    settings: Settings,
    notes: String,
    _directory: TempDir,
}

impl Migrated {
    fn user(&self, name: &str) -> &User {
        self.settings.users.iter().find(|user| user.name == name).expect("there is such a user")
    }

    /// Checks that there is a note with these parts.
    #[track_caller]
    fn tells(&self, parts: &[&str]) {
        let found = |line: &str| parts.iter().all(|part| line.contains(part));
        assert!(self.notes.lines().any(found), "{parts:?}\n{}", self.notes);
        assert!(self.text.lines().filter(|line| line.starts_with('#')).any(found), "{}", self.text);
    }
}

/// Writes files, and migrates `mosquitto.conf`. HASH in a file is a hash, and DIR the directory of the files.
fn migrate_files(files: &[(&str, &str)]) -> Result<Migrated, String> {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().display().to_string();
    for (name, text) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text.replace("HASH", HASH).replace("DIR", &root)).unwrap();
    }
    let mut notes = Notes::default();
    let text = translate(&directory.path().join("mosquitto.conf"), &mut notes)
        .map_err(|error| format!("{error:#}"))?;
    let notes: Vec<_> = notes.iter().map(|note| note.replace(&format!("{root}/"), "")).collect();
    let settings =
        config::parse("barid.toml", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    Ok(Migrated { text, settings, notes: notes.join("\n"), _directory: directory })
}

#[track_caller]
fn migrate(files: &[(&str, &str)]) -> Migrated {
    migrate_files(files).unwrap()
}

/// Migrates one file, for users that a password file has.
#[track_caller]
fn migrate_conf(conf: &str) -> Migrated {
    let conf = format!("{conf}\npassword_file DIR/passwd\n");
    migrate(&[("mosquitto.conf", &conf), ("passwd", "ada:HASH\n")])
}

#[track_caller]
fn refused(files: &[(&str, &str)]) -> String {
    match migrate_files(files) {
        Ok(migrated) => panic!("accepted:\n{}", migrated.text),
        Err(error) => error,
    }
}

fn rule(rule: &str) -> Rule {
    toml::from_str(rule).unwrap()
}

/// The file that Debian installs, with a file in conf.d as the guides of the distribution describe it.
#[test]
fn a_configuration_of_debian() {
    let conf = "\
# Place your local configuration in /etc/mosquitto/conf.d/
#
# A full description of the configuration file is at
# /usr/share/doc/mosquitto/examples/mosquitto.conf.example

pid_file /run/mosquitto/mosquitto.pid

persistence true
persistence_location /var/lib/mosquitto/

log_dest file /var/log/mosquitto/mosquitto.log

include_dir DIR/conf.d
";
    let local = "\
listener 1883
allow_anonymous false
password_file DIR/passwd
acl_file DIR/acl
max_packet_size 100000
max_queued_messages 0
max_inflight_messages 50
log_type error
log_type notice
";
    let migrated = migrate(&[
        ("mosquitto.conf", conf),
        ("conf.d/local.conf", local),
        ("conf.d/not-read.txt", "listener 99999\n"),
        ("passwd", "ada:HASH\n# eve:HASH\n\nbob:HASH\r\nplain:hunter2\n"),
        (
            "acl",
            "\
topic read public/#

user ada
topic readwrite home/#
topic deny home/safe/#
topic read $SYS/#

user dora
topic secret

pattern write devices/%c/up
pattern read users/%u/#
pattern deny devices/%c/up/raw
",
        ),
    ]);
    let settings = &migrated.settings;
    assert_eq!(settings.listeners.mqtt.as_ref().unwrap().address.to_string(), "[::]:1883");
    assert!(settings.listeners.ws.is_none() && settings.listeners.amqp.is_none());
    assert_eq!(settings.limits.max_packet_size, 100_000);
    assert_eq!(settings.limits.max_queued_messages, 100_000_000);
    assert_eq!(settings.limits.max_inflight, 50);
    assert_eq!(settings.log.level, "info");
    let names: Vec<_> = settings.users.iter().map(|user| &*user.name).collect();
    assert_eq!(names, ["ada", "bob"]);
    assert_eq!(migrated.user("ada").password, HASH);
    let patterns = |user: &str| {
        [
            rule("deny = ['publish', 'subscribe']\ntopics = ['devices/%c/up/raw']"),
            rule(&format!("allow = 'subscribe'\ntopics = ['users/{user}/#']")),
            rule("allow = 'publish'\ntopics = ['devices/%c/up']"),
        ]
    };
    let own = [
        rule("deny = ['publish', 'subscribe']\ntopics = ['home/safe/#']"),
        rule("allow = 'subscribe'\ntopics = ['$SYS/#']"),
        rule("allow = ['publish', 'subscribe']\ntopics = ['home/#']"),
    ];
    assert_eq!(migrated.user("ada").rules, [&own[..], &patterns("ada")].concat());
    assert_eq!(migrated.user("bob").rules, patterns("bob"));
    migrated.tells(&["mosquitto.conf:6: pid_file", "systemd"]);
    migrated.tells(&["mosquitto.conf:9: persistence_location", "mosquitto.db"]);
    migrated.tells(&["mosquitto.conf:11: log_dest"]);
    migrated.tells(&["local.conf:6: max_queued_messages", "100000000"]);
    migrated.tells(&["passwd:5: user \"plain\"", "not a password hash"]);
    migrated.tells(&["acl:1: 1 topic before the first user"]);
    migrated.tells(&["acl:8: user \"dora\"", "no password"]);
    migrated.tells(&["when a client subscribes"]);
    assert!(!migrated.text.contains("hunter2"), "{}", migrated.text);
}

#[test]
fn nothing_at_all() {
    let migrated = migrate(&[("mosquitto.conf", "# nothing\n")]);
    let settings = &migrated.settings;
    assert_eq!(settings.listeners.mqtt.as_ref().unwrap().address.to_string(), "127.0.0.1:1883");
    assert!(settings.users.is_empty());
}

#[test]
fn whoever_was_kept_out_stays_out() {
    // Nobody can log in: neither users nor anonymous clients.
    for conf in ["listener 1883\n", "listener 1883\nplugin /usr/lib/dynsec.so\n"] {
        let migrated = migrate(&[("mosquitto.conf", conf)]);
        assert_eq!(migrated.user("replace-me").rights(), barid_engine::rights::Rights::default());
        migrated.tells(&["nobody knows"]);
    }
    // All users are left out.
    let migrated = migrate(&[
        ("mosquitto.conf", "listener 1883\npassword_file passwd\n"),
        ("passwd", "ada:plain\n"),
    ]);
    assert_eq!(migrated.settings.users.len(), 1);
    migrated.user("replace-me");
    // A user without a line in the ACL file may do nothing.
    let migrated = migrate(&[
        ("mosquitto.conf", "listener 1883\npassword_file passwd\nacl_file acl\n"),
        ("passwd", "ada:HASH\n"),
        ("acl", "user bob\ntopic #\n"),
    ]);
    assert_eq!(migrated.user("ada").rules, [Rule::everywhere(false, Action::All)]);
    // Without users the network must not reach the broker.
    let migrated = migrate(&[("mosquitto.conf", "listener 1884\nallow_anonymous true\n")]);
    assert_eq!(
        migrated.settings.listeners.mqtt.as_ref().unwrap().address.to_string(),
        "127.0.0.1:1884"
    );
    migrated.tells(&["mosquitto.conf:1: listener 1884", "127.0.0.1 only"]);
    let missing = refused(&[("mosquitto.conf", "listener 1883\npassword_file nowhere\n")]);
    assert!(missing.contains("reading") && missing.contains("nowhere"), "{missing}");
    let missing =
        refused(&[("mosquitto.conf", "listener 1883\nallow_anonymous true\nacl_file nowhere\n")]);
    assert!(missing.contains("nowhere"), "{missing}");
    refused(&[("mosquitto.conf", "include_dir nowhere\n")]);
}

#[test]
fn listeners_of_each_kind() {
    let parameters = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    let signing_key = rcgen::KeyPair::generate().unwrap();
    let certificate = parameters.self_signed(&signing_key).unwrap();
    let (pem, key) = (certificate.pem(), signing_key.serialize_pem());
    let list = rcgen::CertificateRevocationListParams {
        this_update: rcgen::date_time_ymd(2026, 1, 1),
        next_update: rcgen::date_time_ymd(2096, 1, 1),
        crl_number: 1_u64.into(),
        issuing_distribution_point: None,
        revoked_certs: Vec::new(),
        key_identifier_method: rcgen::KeyIdMethod::Sha256,
    };
    let issuer = rcgen::Issuer::new(parameters, signing_key);
    let list = list.signed_by(&issuer).unwrap().pem().unwrap();
    let conf = "\
listener 1883 localhost # for programs on this machine
listener 8883 192.0.2.7
certfile DIR/cert.pem
keyfile DIR/key.pem
cafile DIR/ca.pem
require_certificate true
crlfile DIR/crl.pem
tls_version tlsv1.3
max_connections 100
listener 9001
protocol websockets
socket_domain ipv4
enable_proxy_protocol 2
listener 8081 ::
protocol websockets
certfile DIR/cert.pem
keyfile DIR/key.pem
websockets_origin https://app.example
listener 1884
listener 0 /run/mosquitto.sock
listener 8884
psk_hint hint
max_connections 1
listener 8885
certfile DIR/cert.pem
keyfile DIR/key.pem
require_certificate true
capath /etc/ssl/certs
password_file DIR/passwd
";
    let migrated = migrate(&[
        ("mosquitto.conf", conf),
        ("passwd", "ada:HASH\n"),
        ("cert.pem", &pem),
        ("ca.pem", &pem),
        ("crl.pem", &list),
        ("key.pem", &key),
    ]);
    let listeners = &migrated.settings.listeners;
    let of = |listener: &Option<barid_server::settings::Listener>| {
        let listener = listener.as_ref().unwrap();
        (listener.address.to_string(), listener.proxy_protocol, listener.origins.join(" "))
    };
    assert_eq!(of(&listeners.mqtt), ("127.0.0.1:1883".into(), false, String::new()));
    assert_eq!(of(&listeners.mqtts), ("192.0.2.7:8883".into(), false, String::new()));
    assert_eq!(of(&listeners.ws), ("0.0.0.0:9001".into(), true, "*".into()));
    assert_eq!(of(&listeners.wss), ("[::]:8081".into(), false, "https://app.example".into()));
    assert_eq!(migrated.settings.admin.address.to_string(), "127.0.0.1:18081");
    let tls = migrated.settings.tls.as_ref().unwrap();
    assert!(tls.certificate.ends_with("cert.pem") && tls.key.ends_with("key.pem"));
    assert!(tls.crl.len() == 1 && tls.crl[0].ends_with("crl.pem"));
    assert!(tls.require_client_certificate && tls.client_ca.as_ref().unwrap().ends_with("ca.pem"));
    assert_eq!(migrated.settings.limits.max_connections, 1_000_000);
    migrated.tells(&["mosquitto.conf:8: tls_version"]);
    migrated.tells(&["mosquitto.conf:9: max_connections", "not for all listeners"]);
    migrated.tells(&["mosquitto.conf:16: certfile", "all listeners have the certificate"]);
    migrated.tells(&["mosquitto.conf:19: listener 1884", "`mqtt` is 127.0.0.1:1883"]);
    migrated.tells(&["mosquitto.conf:20: listener 0", "Unix"]);
    migrated.tells(&["mosquitto.conf:22: listener 8884", "pre-shared"]);
    migrated.tells(&["mosquitto.conf:28: listener 8885", "cafile"]);
    migrated.tells(&["path /mqtt"]);
    migrated.tells(&["pages of all sites"]);
}

#[test]
fn listeners_for_the_clients_of_different_authorities() {
    let certificate = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (pem, key) = (certificate.cert.pem(), certificate.signing_key.serialize_pem());
    let tls = "certfile DIR/a.pem\nkeyfile DIR/key.pem\n";
    let requiring =
        |authority: &str| format!("{tls}cafile DIR/{authority}\nrequire_certificate 1\n");
    let conf = |one: &str, other: &str| {
        format!(
            "listener 8883\n{one}listener 8884\nprotocol websockets\n{other}password_file DIR/passwd\n"
        )
    };
    let migrated = |conf: &str| {
        migrate(&[
            ("mosquitto.conf", conf),
            ("passwd", "ada:HASH\n"),
            ("a.pem", &pem),
            ("b.pem", &pem),
            ("key.pem", &key),
        ])
    };
    let different = migrated(&conf(&requiring("a.pem"), &requiring("b.pem")));
    assert!(different.settings.listeners.wss.is_none());
    different.tells(&["mosquitto.conf:6: listener 8884", "left out", "same authorities"]);
    for conf in [conf(&requiring("a.pem"), tls), conf(tls, &requiring("a.pem"))] {
        let one = migrated(&conf);
        assert!(one.settings.listeners.wss.is_some());
        assert!(one.settings.tls.as_ref().unwrap().require_client_certificate);
        one.tells(&["certfile", "require client certificates if one does"]);
    }
}

#[test]
fn limits() {
    let migrated = migrate_conf(
        "\
listener 1883
max_connections 70
max_qos 1
max_topic_alias 5
max_topic_alias_broker 6
global_max_connections 60
message_size_limit 1000
max_queued_bytes 5000
max_keepalive 600
retain_available false
persistent_client_expiration 2w
sys_interval 30
log_type all
max_inflight_bytes 1",
    );
    let settings = &migrated.settings;
    let limits = &settings.limits;
    assert_eq!((limits.max_connections, limits.max_qos), (60, 1));
    assert_eq!((limits.topic_alias_maximum, limits.max_outbound_topic_aliases), (5, 6));
    assert_eq!((limits.max_packet_size, limits.max_queued_bytes), (67_000, 5000));
    assert_eq!((limits.max_keep_alive, limits.retain_available), (600, false));
    assert_eq!((limits.max_session_expiry, settings.sys.interval), (14 * 86_400, 30));
    assert_eq!(settings.log.level, "debug");
    migrated.tells(&["mosquitto.conf:14: max_inflight_bytes"]);
    migrated.tells(&["mosquitto.conf:7: message_size_limit", "67000"]);
}

#[test]
fn values_that_make_no_sense() {
    let migrated = migrate_conf(
        "\
listener 1883
max_packet_size 20
max_inflight_messages many
retain_available maybe
persistent_client_expiration 14
max_keepalive 70000
max_inflight_messages 0
colour blue",
    );
    let limits = &migrated.settings.limits;
    assert_eq!((limits.max_packet_size, limits.max_inflight), (64, 65_535));
    assert_eq!((limits.max_keep_alive, limits.retain_available), (65_535, true));
    migrated.tells(&["mosquitto.conf:2: max_packet_size", "64"]);
    migrated.tells(&["mosquitto.conf:3: max_inflight_messages", "not a number"]);
    migrated.tells(&["mosquitto.conf:4: retain_available", "neither true nor false"]);
    migrated.tells(&["mosquitto.conf:5: persistent_client_expiration", "14d"]);
    migrated.tells(&["mosquitto.conf:8: colour", "not an option"]);
}

#[test]
fn connections_are_named_without_their_passwords() {
    let migrated = migrate_conf(
        "\
listener 1883
connection cloud
address broker.example:8883
remote_username acme
remote_password hunter2
topic # out 1
bridge_cafile /etc/ca.pem
connection other
address other.example",
    );
    migrated.tells(&["mosquitto.conf:2: connection cloud with 5 options"]);
    migrated.tells(&["mosquitto.conf:8: connection other with 1 option:"]);
    assert!(!migrated.text.contains("hunter2"));
}

#[test]
fn users_of_one_listener() {
    let conf = "\
per_listener_settings true
listener 1883 127.0.0.1
allow_anonymous true
listener 8080
protocol websockets
password_file DIR/passwd
acl_file DIR/acl
listener 1999
password_file DIR/others
";
    let migrated = migrate(&[
        ("mosquitto.conf", conf),
        ("passwd", "ada:HASH\n"),
        ("others", "eve:HASH\n"),
        ("acl", "user ada\ntopic a\n"),
    ]);
    assert_eq!(migrated.settings.users.len(), 1);
    let both = Actions::Many(vec![Action::Publish, Action::Subscribe]);
    assert_eq!(migrated.user("ada").rules[0].allow, Some(both));
    let listeners = &migrated.settings.listeners;
    assert_eq!(listeners.mqtt.as_ref().unwrap().address.to_string(), "127.0.0.1:1883");
    assert_eq!(listeners.ws.as_ref().unwrap().address.port(), 8080);
    migrated.tells(&["mosquitto.conf:2: listener 1883", "without a user name"]);
    migrated.tells(&["mosquitto.conf:8: listener 1999", "other users"]);
    // A closed listener does not become an open one.
    let migrated = migrate(&[(
        "mosquitto.conf",
        "per_listener_settings true\nlistener 1883\nallow_anonymous true\nlistener 9001\nprotocol websockets\n",
    )]);
    assert!(migrated.settings.listeners.ws.is_none() && migrated.settings.users.is_empty());
}

#[test]
fn names_and_variables() {
    let migrated = migrate(&[
        ("mosquitto.conf", "listener 1883\npassword_file passwd\nacl_file acl\n"),
        (
            "passwd",
            "a b:HASH\nplant/x:HASH\nx y/z:HASH\n100%c:HASH\na+b:HASH\nada:HASH\ndefault/ada:HASH\nada:HASH\n",
        ),
        (
            "acl",
            "\
pattern read users/%u/%c
pattern deny secret/%u
user a b
topic read with space/#
topic read
user plant/x
topic write a/%c
topic deny b/%u/c
user a+b
topic own
",
        ),
    ]);
    let names: Vec<_> = migrated.settings.users.iter().map(|user| &*user.name).collect();
    assert_eq!(names, ["a b", "plant/x", "100%c", "a+b", "ada"]);
    let topics = |user: &str| {
        let rules = migrated.user(user).rules.iter();
        let topics = rules.map(|rule| {
            let sign = if rule.deny.is_some() { "-" } else { "+" };
            format!("{sign}{}", rule.topics.clone().unwrap_or_default().join(","))
        });
        topics.collect::<Vec<_>>()
    };
    assert_eq!(topics("a b"), ["+with space/#", "+read", "-secret/a b", "+users/a b/%c"]);
    assert_eq!(topics("plant/x"), ["-b/+/c", "-secret/plant/x", "+users/plant/x/%c"]);
    // Here %c would be the client identifier, so the pattern cannot be expressed.
    assert_eq!(topics("100%c"), ["-secret/+"]);
    assert_eq!(topics("a+b"), ["+own"]);
    migrated.tells(&["passwd:3: user \"x y/z\"", "left out"]);
    migrated.tells(&["passwd:7: user \"default/ada\"", "such a user before"]);
    migrated.tells(&["passwd:8: user \"ada\"", "such a user before"]);
    migrated.tells(&["user \"plant/x\"", "name of a tenant"]);
    migrated.tells(&["acl:7: topic \"a/%c\" of user \"plant/x\"", "left out"]);
    migrated.tells(&["acl:8: topic \"b/%u/c\" of user \"plant/x\"", "denies \"b/+/c\""]);
    migrated.tells(&["acl:1: topic \"users/100%c/%c\" of user \"100%c\"", "left out"]);
}

#[test]
fn what_mosquitto_does_not_read() {
    for (acl, expected) in [
        ("user\n", "acl:1: `user` needs a value"),
        ("\ntopic\n", "acl:2: `topic` needs a value"),
        ("topic write-only a\n", "none of read, write, readwrite and deny"),
        ("topics a\n", "none of user, topic and pattern"),
        ("topic read a/#/b\n", "not a topic filter"),
    ] {
        let conf = "listener 1883\nallow_anonymous true\nacl_file DIR/acl\n";
        let error = refused(&[("mosquitto.conf", conf), ("acl", acl)]);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn files_are_included_in_the_order_of_mosquitto() {
    let level = |text: &str| format!("sys_interval {text}\n");
    let migrated = migrate(&[
        ("mosquitto.conf", "sys_interval 1\ninclude_dir DIR/d\nlistener 1883\nlistener 8883\n"),
        ("d/00.conf", "include_dir /etc\nlistener 1999 127.0.0.1\n"),
        ("d/A.conf", &level("2")),
        ("d/a.conf", &level("3")),
        ("d/B.conf", &level("4")),
        ("d/.conf", &level("5")),
    ]);
    assert_eq!(migrated.settings.sys.interval, 4);
    assert_eq!(migrated.settings.listeners.mqtt.as_ref().unwrap().address.port(), 1999);
    migrated.tells(&["00.conf:1: include_dir", "only the main file"]);
}

#[test]
fn a_file_that_cannot_be_read() {
    let error = translate(Path::new("/nowhere/mosquitto.conf"), &mut Notes::default());
    assert!(format!("{:#}", error.unwrap_err()).contains("reading /nowhere/mosquitto.conf"));
}
