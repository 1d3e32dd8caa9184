use super::*;

const HASH: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHQxMjM0$iWh06vD8Fy27wf9npn6FXWiCX4K6pW6Ue1Bnzz07Z8A";

/// Checks that `toml` is refused with exactly these problems, each "line:column message" and, after
/// an arrow, a part of the hint.
#[track_caller]
fn check(toml: &str, expected: &[&str]) {
    check_with(toml, &[], expected);
}

/// Checks `toml` with `flags` on the command line. A problem outside the file is "origin message".
#[track_caller]
fn check_with(toml: &str, flags: &[&str], expected: &[&str]) {
    let problems = match resolve("b.toml", &toml.replace("HASH", HASH), &overrides(flags)) {
        Ok(settings) => panic!("accepted: {settings:?}"),
        Err(Problems(problems)) => problems,
    };
    for (problem, expected) in problems.iter().zip(expected) {
        let place = match (problem.line, problem.column) {
            (Some(line), Some(column)) => format!("{line}:{column}"),
            _ => problem.origin.clone(),
        };
        let (message, hint) = expected.split_once(" -> ").unwrap_or((expected, ""));
        assert_eq!(format!("{place} {}", problem.message), message);
        let found = problem.hint.as_deref().unwrap_or_default();
        assert!(found.contains(hint), "`{hint}` is not in `{found}`");
    }
    assert_eq!(problems.len(), expected.len(), "{}", Problems(problems));
}

#[track_caller]
fn accept(toml: &str, flags: &[&str]) -> Settings {
    resolve("b.toml", &toml.replace("HASH", HASH), &overrides(flags))
        .unwrap_or_else(|problems| panic!("{problems}"))
}

fn overrides(flags: &[&str]) -> Overrides {
    #[derive(clap::Parser)]
    struct Flags {
        #[command(flatten)]
        overrides: Overrides,
    }
    let flags = std::iter::once(&"barid").chain(flags);
    <Flags as clap::Parser>::try_parse_from(flags).unwrap().overrides
}

#[test]
fn nothing_is_a_whole_configuration() {
    assert_eq!(accept("", &[]), Settings::default());
}

#[test]
fn a_problem_shows_its_line_and_marks_it() {
    let Err(problems) = resolve("b.toml", "[limits]\n\tmax_qso = 1\n", &Overrides::default())
    else {
        panic!("accepted");
    };
    assert_eq!(
        problems.to_string(),
        "b.toml:2:2: unknown key `max_qso`\n  \
         |\n2 | \tmax_qso = 1\n  | \t^^^^^^^\n  hint: did you mean `max_qos`?"
    );
}

#[test]
fn a_password_is_never_shown() {
    let toml = "[[users]]\nname = 'a'\npassword = 'hunter2'\n";
    let Err(problems) = resolve("b.toml", toml, &Overrides::default()) else {
        panic!("accepted");
    };
    assert!(!problems.to_string().contains("hunter2"));
}

#[test]
fn syntax() {
    check("a = [1\nb = \n", &["2:1 missing comma between array elements, expected `,`"]);
    check("workers = 1\nworkers = 2", &["2:1 this key occurs twice in its table -> keep one"]);
    check("workers = ", &["1:11 string values must be quoted, expected literal string"]);
}

#[test]
fn keys_and_types_and_all_of_them_at_once() {
    check(
        "workers = \"4\"\nlimts = 3\n[limits]\nmax_qos = -1\nreceive_maximum = 70000\n",
        &[
            "1:11 string \"4\" in place of a whole number, 0 or more",
            "2:1 unknown key `limts` -> did you mean `limits`?",
            "4:11 integer `-1` in place of a whole number from 0 to 255",
            "5:19 integer `70000` in place of a whole number from 0 to 65535",
        ],
    );
    check("colour = 1", &["1:1 unknown key `colour` -> known here: data_dir, storage, durability"]);
    check("users = 3", &["1:9 integer `3` in place of a list -> [\"one\", \"two\"]"]);
    check("workers = 1.5", &["1:11 floating point `1.5` in place of a whole number, 0 or more"]);
    check(
        "[tenants.x]\nlimit = 3\n[tenants.y.limits]\nmaxqos = 1",
        &[
            "2:1 unknown key `limit` -> `limits`?",
            "4:1 unknown key `maxqos` -> did you mean `max_qos`?",
        ],
    );
    check(
        "[limits]\nqueue_overflow = \"drop-old\"\n[shared_subscriptions]\nstrategy = 'random'",
        &[
            "2:18 unknown value `drop-old` -> did you mean `drop-oldest`?",
            "4:12 unknown value `random` -> known here: round-robin, least-in-flight",
        ],
    );
}

#[test]
fn listeners() {
    check("[listeners.ws]\npath = '/x'", &["1:1 the key `address` is missing -> `address = …`"]);
    check(
        "[listeners]\nmqtt = true\nws = '127.0.0.1:1'",
        &[
            "2:8 boolean `true` in place of a listener -> or false for none",
            "3:6 string \"127.0.0.1:1\" in place of a listener -> is a table",
        ],
    );
    check(
        "[listeners.mqtt]\naddress = \"localhost:1883\"",
        &["2:11 not an address to listen on -> 127.0.0.1:1883"],
    );
    check(
        "[admin]\naddress = '127.0.0.1:1883'",
        &["2:11 127.0.0.1:1883 is already the address of the mqtt listener -> a port of its own"],
    );
    check(
        "[listeners]\nmqtt = false\nws = false\namqp = false\n",
        &["1:2 every listener is switched off -> nobody can connect"],
    );
    check(
        "listeners.ws = { address = '127.0.0.1:1', path = 'mqtt' }",
        &["1:50 the path must begin with `/` -> \"/mqtt\""],
    );
    for path in ["/a b", "/ä", "/mqtt?x", "/#"] {
        let toml = format!("listeners.ws = {{ address = '127.0.0.1:1', path = '{path}' }}");
        check(
            &toml,
            &[
                "1:50 no client can request this path: it may have only visible ASCII characters except ? and # -> /mqtt",
            ],
        );
    }
    assert_eq!(accept("listeners.ws = false", &[]).listeners.ws, None);
}

#[test]
fn the_network_needs_users() {
    let message = |address: &str| {
        format!("{address} can be reached from the network, and no [[users]] say who may connect")
    };
    check(
        "listeners.mqtt.address = '0.0.0.0:1883'\nadmin.address = '192.0.2.1:1'",
        &[
            &format!("1:26 {} -> barid passwd", message("0.0.0.0:1883")),
            "2:17 192.0.2.1:1 can be reached from the network, and the admin API has no password -> `https` in [admin]",
        ],
    );
    let flags = ["--mqtt", "[::]:1883"];
    check_with("", &flags, &[&format!("--mqtt (BARID_MQTT) {}", message("[::]:1883"))]);
    accept("", &["--mqtt", "[::1]:1883", "--ws", "[::ffff:127.0.0.1]:1"]);
    accept("[[users]]\nname = 'a'\npassword = 'HASH'", &flags);
    accept("[auth]\nchain = ['store']", &flags);
}

#[test]
fn an_empty_list_of_back_ends_is_for_one_machine() {
    let users = "[[users]]\nname = 'a'\npassword = 'HASH'";
    let flags = ["--mqtt", "0.0.0.0:1883"];
    let none = format!("[auth]\nchain = []\n{users}");
    let message =
        "0.0.0.0:1883 can be reached from the network, and no [[users]] say who may connect";
    check_with(&none, &flags, &[&format!("--mqtt (BARID_MQTT) {message}")]);
    accept(&none, &[]);
    let of_tenant = format!("[tenants.acme]\nauth = []\n{users}");
    let message = "2:1 without back ends any client may connect to the tenant, \
                   and 0.0.0.0:1883 can be reached from the network -> leave `auth` out";
    check_with(&of_tenant, &flags, &[message]);
    accept(&of_tenant, &[]);
    // AMQP clients without a key or a user have no rights.
    accept(&of_tenant, &["--amqp", "0.0.0.0:5672"]);
}

#[test]
fn the_admin_address_is_loopback_whatever_users_there_are() {
    let users = "[[users]]\nname = 'a'\npassword = 'HASH'";
    for address in ["0.0.0.0:8081", "[::]:8081", "10.0.0.7:8081"] {
        let message = format!(
            "--admin (BARID_ADMIN) {address} can be reached from the network, and the admin API has no password -> 127.0.0.1"
        );
        check_with(users, &["--admin", address], &[&message]);
    }
    for address in ["127.0.0.2:8081", "[::1]:8081", "[::ffff:127.0.0.1]:8081"] {
        accept(users, &["--admin", address]);
    }
}

#[test]
fn amqp_on_the_network_needs_keys() {
    let keys = "[[keys]]\nname = 'acme/a'\nkey = 's'\nrights = ['Send']";
    let message = "0.0.0.0:5672 can be reached from the network, and no [[keys]] or [[users]] say who may connect";
    let flags = ["--amqp", "0.0.0.0:5672"];
    check_with("", &flags, &[&format!("--amqp (BARID_AMQP) {message} -> 127.0.0.1")]);
    accept("[[users]]\nname = 'a'\npassword = 'HASH'", &flags);
    let settings = accept(keys, &flags);
    assert_eq!(settings.keys[0].key.as_ref().unwrap().expose(), "s");
    check(
        "listeners.amqps.address = '127.0.0.1:5671'",
        &["1:27 the amqps listener has no certificate -> add a [tls] table"],
    );
    assert_eq!(accept("", &["--amqp", "off"]).listeners.amqp, None);
    assert_eq!(accept("listeners.amqp = false", &[]).listeners.amqp, None);
}

#[test]
fn keys() {
    check(
        "[[keys]]\nname = 'a'\nkey = 's'\nrights = []\n\
         [[keys]]\nname = 'default/a'\nkey = ''\nrights = ['Listen']\n\
         [[keys]]\nname = '/b'\nkey = 's'\nkey_file = 'f'\nrights = ['Manage']\nentity = '/q'\n\
         [[keys]]\nname = 'c'\nkey_file = '/no/such'\nrights = ['Send']\n\
         [[keys]]\nname = 'd'\nrights = ['Send']",
        &[
            "4:1 a key without rights allows nothing -> Manage",
            "6:8 the key `default/a` is declared twice -> of its own",
            "7:7 the secret is empty -> key_file",
            "10:8 not a valid name of a key -> {tenant}/{name}",
            "12:12 `key` and `key_file` exclude each other",
            "14:10 not a valid path of an entity -> queue or topic",
            "17:12 cannot read /no/such: No such file or directory (os error 2)",
            "20:8 the key `d` has no secret -> openssl",
        ],
    );
    check(
        "[[keys]]\nname = 'a'\nkey = 's'\nrights = ['Recieve', 'send']",
        &["4:11 unknown value `Recieve`", "4:22 unknown value `send` -> did you mean `Send`?"],
    );
    let file = std::env::temp_dir().join(format!("barid-key-{}", std::process::id()));
    std::fs::write(&file, " secret\n").unwrap();
    let key = format!("[[keys]]\nname = 'a'\nrights = ['Send']\nkey_file = '{}'", file.display());
    assert_eq!(accept(&key, &[]).keys[0].key.as_ref().unwrap().expose(), "secret");
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn a_key_is_never_shown() {
    for toml in [
        "[[keys]]\nname = 'a'\nkey = 'hunter2\nrights = ['Send']",
        "keys = [{ name = 'a', key = 'hunter2', rights = [], colour = 1 }]",
        "keys = [{ \"key\" = 'hunter2', name = '/', rights = ['Send'] }]",
        "keys = [{ key_file = '/no/such', key = 'hunter2', name = '/', rights = ['Send'] }]",
    ] {
        let Err(problems) = resolve("b.toml", toml, &Overrides::default()) else {
            panic!("accepted");
        };
        assert!(!problems.to_string().contains("hunter2"), "{problems}");
    }
}

#[test]
fn queues_and_topics() {
    check(
        "[[queues]]\nname = 'a'\nproperties = { LockDurration = 'PT1M' }\n\
         [[queues]]\nname = 'b'\nproperties = { LockDuration = '1M', MaxDeliveryCount = 'x' }\n\
         [[topics]]\nname = 'c'\nsubscription = []",
        &[
            "3:16 unknown key `LockDurration` -> did you mean `LockDuration`?",
            "6:31 `1M` is no duration: a duration is written like PT30S, PT5M, PT1H30M or P14D",
            "6:56 string \"x\" in place of a whole number from 0 to 4294967295",
            "9:1 unknown key `subscription` -> `subscriptions`?",
        ],
    );
    check(
        "[[queues]]\nname = 'a b'\n\
         [[queues]]\nname = 'b'\ntenant = 'x/y'\nproperties = { LockDuration = 'P2D' }\n\
         [[topics]]\nname = 'c'\n[[topics.subscriptions]]\nname = 's'\n\
         rules = [{ name = 'r', properties = { SqlFilter = { SqlExpression = 'a =' } } }]\n\
         [[topics.subscriptions]]\nname = 't'\nproperties = { MaxDeliveryCount = 0 }",
        &[
            "2:8 \"a b\" is not the name of a queue: letters and digits of ASCII, '.', '-', '_', '~' and '/' are allowed",
            "5:10 a tenant's name cannot contain '/' -> `default`",
            "6:31 queue \"b\": LockDuration is P2D, but must be from PT1S to P1D -> entities.md",
            "11:10 rule \"r\": the filter cannot be understood, at 4: expected a value, found the end",
            "14:35 subscription \"t\" of topic \"c\": MaxDeliveryCount is 0, but must be from 1 to 2147483647",
        ],
    );
    check(
        "[[queues]]\nname = 'a'\n[[topics]]\nname = 'A'",
        &["1:3 tenant default: \"A\" is declared twice"],
    );
    let settings = accept(
        "[[queues]]\nname = 'a/b'\n[[queues]]\nname = 'a/b'\ntenant = 'acme'\n\
         properties = { RequiresSession = true }",
        &[],
    );
    assert!(settings.declared()["acme"].queues[0].properties.requires_session);
}

#[test]
fn bindings() {
    check(
        "[[bindings]]\nname = 'a'\nfilter = 'a/+'\nqueue = 'q'\nsession = '{3}'\n\
         [[bindings]]\nname = 'b'\nfilter = 'a'\n\
         [[bindings]]\nname = 'c'\nfilter = 'a'\nqueue = 'q'\ntenant = 'a/b'\n\
         [[bindings]]\nname = 'd'\nfrom_queue = 'q'\npublish = 'p'\n\
         [[bindings]]\nname = 'd'\nfrom_queue = 'q'\npublish = 'p'",
        &[
            "5:11 `{3}`: topics of `a/+` have 2 levels -> {property:NAME}",
            "6:1 neither `queue` nor `topic` is there -> from MQTT to a queue",
            "13:10 a tenant's name cannot contain '/' -> `default`",
            "19:8 the binding `d` is declared twice -> of its own",
        ],
    );
    check(
        "[[bindings]]\nname = 'a'\nfilter = 'a'\nqueue = 'q'\nsession = '{clinet}'",
        &["5:11 `{clinet}` means nothing here"],
    );
    check(
        "[[bindings]]\nname = 'a'\nfilter = 'a'\nqueue = 'no such'\n\
         [[bindings]]\nname = \"a\\tb\"\nfrom_queue = 'q'\npublish = 'p'",
        &[
            "4:9 \"no such\" is not the name of a queue: letters and digits of ASCII, '.', '-', '_', '~' and '/' are allowed -> entities.md",
            "6:8 the name of a binding has 128 bytes at most, and no control characters",
        ],
    );
    let settings = accept(
        "[[bindings]]\nname = 'd'\nfilter = 'd/+/t'\nqueue = 'q'\nsession = '{2}'\n\
         [[bindings]]\nname = 'd'\ntenant = 'acme'\nfrom_queue = 'q'\npublish = 'd/{session}'",
        &[],
    );
    assert_eq!(settings.bindings.len(), 2);
}

#[test]
fn tls() {
    check(
        "listeners.mqtts.address = '127.0.0.1:8883'",
        &["1:27 the mqtts listener has no certificate -> add a [tls] table"],
    );
    check("[tls]\ncertificate = 'c.pem'", &["1:1 the key `key` is missing"]);
    let not_pem = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    check(
        &format!(
            "[tls]\ncertificate = '/no/such.pem'\nkey = '{not_pem}'\n\
             require_client_certificate = true"
        ),
        &[
            "2:15 cannot read /no/such.pem: No such file or directory (os error 2) -> relative",
            &format!("3:7 there is no private key in {not_pem} -> must be PEM"),
            "4:30 client certificates are required, but no authority is named that issues them -> client_ca",
        ],
    );
    check(
        &format!("[tls]\ncertificate = '{not_pem}'\nkey = '/no/such.pem'"),
        &[
            &format!("2:15 there is no certificate in {not_pem}"),
            "3:7 cannot read /no/such.pem: No such file or directory (os error 2)",
        ],
    );
}

#[test]
fn certificate_and_key_belong_together() {
    let directory = std::env::temp_dir().join(format!("barid-config-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    for name in ["a", "b"] {
        let pair = rcgen::generate_simple_self_signed(["localhost".into()]).unwrap();
        std::fs::write(directory.join(format!("{name}.pem")), pair.cert.pem()).unwrap();
        let key = pair.signing_key.serialize_pem();
        std::fs::write(directory.join(format!("{name}.key")), key).unwrap();
    }
    let tls = |certificate: &str, key: &str| {
        let directory = directory.display();
        format!("[tls]\ncertificate = '{directory}/{certificate}'\nkey = '{directory}/{key}'")
    };
    accept(&tls("a.pem", "a.key"), &[]);
    let message = "3:7 this is not the private key of the certificate -> first certificate";
    check(&tls("a.pem", "b.key"), &[message]);
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn limits_and_tenants() {
    check(
        "[limits]\nmax_qos = 3\nreceive_maximum = 0\nmax_packet_size = 10\nconnect_timeout = 0\n\
         [tenants.acme.limits]\nmax_qos = 3\nmax_packet_size = 268435461",
        &[
            "2:11 max_qos is 3; the maximum is 2 -> 0, 1 or 2",
            "3:19 receive_maximum is 0; the minimum is 1 -> max_qos = 1",
            "4:19 max_packet_size is 10; the minimum is 64",
            "5:19 connect_timeout is 0; the minimum is 1",
            "8:19 max_packet_size is 268435461; the maximum is 268435460",
        ],
    );
    check(
        "[limits]\nmax_client_id_bytes = 1\nmax_sessions = 0",
        &[
            "2:23 max_client_id_bytes is 1; the minimum is 23 -> 23 bytes",
            "3:16 max_sessions is 0; the minimum is 1",
        ],
    );
    accept("[limits]\nmax_packet_size = 268435460\nmax_qos = 0\nreceive_maximum = 1", &[]);
    check("[tenants.'a/b']", &["1:10 a tenant's name cannot contain '/' -> {tenant}/{client}"]);
    check("max_tenants = 0", &["1:15 with no tenant at all nobody can connect"]);
    check("workers = 2000", &["1:11 2000 threads are too many -> the maximum is 1024"]);
}

#[test]
fn durability() {
    check(
        "[limits]\ndurability = 'replicated'\n[tenants.a.limits]\ndurability = 'replicated'\n\
         [[durability]]\nfilter = 'a#'\nclass = 'memory'\n\
         [[durability]]\nfilter = '$share/g/a'\nclass = 'replicated'\ntenant = 'a/b'\n\
         [storage]\nshards = 257\n[tenants.b.limits]\nmax_tenant_queued_bytes = 0",
        &[
            "2:14 `replicated` needs a cluster, which this version does not have -> `local`",
            "4:14 `replicated` needs a cluster, which this version does not have -> `local`",
            "6:10 not a topic filter: + and # need a level of their own, and # must be the last -> #",
            "9:10 a shared subscription cannot have a durability class -> topics",
            "10:9 `replicated` needs a cluster, which this version does not have -> `local`",
            "11:10 a tenant's name cannot contain '/' -> all tenants",
            "13:10 257 shards are too many -> 64",
            "15:27 max_tenant_queued_bytes is 0; the minimum is 1 -> wait",
        ],
    );
    check("limits.durability = 'lokal'", &["1:21 unknown value `lokal` -> did you mean `local`?"]);
    check("[[durability]]\nfilter = 'a'", &["1:1 the key `class` is missing -> class"]);
    check(
        "[[durability]]\nfilter = 'a'\nclass = 'memory'\n\
         [[durability]]\nfilter = 'a'\ntenant = 'acme'\nclass = 'memory'\n\
         [[durability]]\nfilter = 'a'\nclass = 'local'",
        &["8:1 an earlier rule is for the same topics or keys -> keep one"],
    );
    accept("[[durability]]\nfilter = 'a/#'\nclass = 'memory'\ntenant = 'acme'", &[]);
}

#[test]
fn users() {
    check("[[users]]\nname = 'a'", &["1:1 the key `password` is missing"]);
    check("[[users]]\nname = 'a'\npassword = 5", &["3:12 integer `5` in place of a string"]);
    check(
        "[[users]]\nname = 'a'\npassword = 'HASH'\npublish = ['ok/%c/#', 'a#']\n\
         [[users]]\nname = 'a'\npassword = 'plain'\n\
         [[users]]\nname = '/b'\npassword = '$md5$YWJjZGVmZ2g$YWJjZGVmZ2hpamtsbW5v'",
        &[
            "4:23 not a topic filter: + and # need a level of their own, and # must be the last -> %c",
            "6:8 the user `a` is declared twice",
            "7:12 not a password hash; the password itself must not be stored -> barid passwd",
            "9:8 a tenant needs a name",
            "10:12 a password hash of an unknown kind",
        ],
    );
}

#[test]
fn a_user_has_one_block_however_its_name_is_written() {
    let two = |one: &str, other: &str| {
        format!(
            "[[users]]\nname = '{one}'\npassword = 'HASH'\n\
             [[users]]\nname = '{other}'\npassword = 'HASH'"
        )
    };
    let message = "5:8 `default/x` and `x` are one user, declared twice -> one [[users]]";
    check(&two("x", "default/x"), &[message]);
    check(&two("default/x", "x"), &["5:8 the user `x` is declared twice -> one [[users]]"]);
    accept(&two("x", "acme/x"), &[]);
    accept(&two("default/x", "default/x/y"), &[]);
}

#[test]
fn what_can_never_log_in_is_refused() {
    let long = "t".repeat(65);
    for (name, message) in [
        ("", "the user name is empty"),
        ("acme/", "the user name is empty"),
        ("/x", "a tenant needs a name"),
        ("a b/x", "a tenant's name cannot contain ' '"),
        ("a+b/x", "a tenant's name cannot contain '+'"),
        (&format!("{long}/x"), "a tenant's name has at most 64 bytes, and this one has 65"),
        ("\\u0000", "a user name cannot contain '\\0'"),
        (&"x".repeat(65_536), "a user name has at most 65535 bytes, and this one has 65536"),
    ] {
        let toml = format!("[[users]]\nname = \"{name}\"\npassword = 'HASH'");
        check(&toml, &[&format!("2:8 {message} -> {{tenant}}/{{client}}")]);
    }
    for (hash, message) in [
        (
            "$argon2id$v=19$m=1,t=1,p=1$c29tZXNhbHQxMjM0$iWh06vD8Fy27wf9npn6FXWiCX4K6pW6Ue1Bnzz07Z8A",
            "not a valid argon2 hash",
        ),
        (
            "$argon2id$v=19$m=4194304,t=1,p=1$c29tZXNhbHQxMjM0$iWh06vD8Fy27wf9npn6FXWiCX4K6pW6Ue1Bnzz07Z8A",
            "1 GiB",
        ),
    ] {
        let toml = format!("[[users]]\nname = 'x'\npassword = '{hash}'");
        let Err(problems) = resolve("b.toml", &toml, &Overrides::default()) else {
            panic!("accepted: {hash}");
        };
        assert!(problems.to_string().contains(message), "{problems}");
    }
    let long = format!("[tenants.{long}.limits]\nmax_qos = 1");
    check(&long, &["1:10 a tenant's name has at most 64 bytes, and this one has 65 -> user name"]);
    check(
        "[[users]]\nname = 'a/#'\npassword = 'HASH'\npublish = ['x/%c', 'all/%u']",
        &["4:20 %u stands for the user name, whose + or # would be wildcards -> another name"],
    );
    check(
        "[[keys]]\nname = 'a%2Fb'\nkey = 's'\nrights = ['Send']\nentity = 'a//b'",
        &[
            "2:8 not a valid name of a key -> without %",
            "5:10 not a valid path of an entity -> queue or topic",
        ],
    );
    accept(
        "[[keys]]\nname = 'a'\nkey = 's'\nrights = ['Send']\n\
         entity = 'events/Subscriptions/billing/$DeadLetterQueue'",
        &[],
    );
}

#[test]
fn log_levels() {
    check("log.level = 'inof'", &["1:13 unknown log level `inof` -> did you mean `info`?"]);
    check_with("", &["--log", "x=loud"], &["--log (BARID_LOG) unknown log level `loud` -> known"]);
    accept("log.level = 'info,barid_server=debug'", &[]);
}

#[test]
fn a_flag_stands_over_the_file_and_keeps_the_rest_of_its_listener() {
    let file = "data_dir = 'there'\nworkers = 3\n\
                listeners.ws = { address = '127.0.0.1:1', path = '/x', proxy_protocol = true }";
    let settings =
        accept(file, &["--workers", "2", "--ws", "127.0.0.1:9", "--mqtt", "off", "--log", "warn"]);
    assert_eq!((settings.workers, settings.data_dir), (2, "there".into()));
    assert_eq!(settings.log.level, "warn");
    assert_eq!(settings.listeners.mqtt, None);
    let ws = settings.listeners.ws.unwrap();
    assert_eq!((ws.address.port(), ws.path.as_str(), ws.proxy_protocol), (9, "/x", true));
}

#[test]
fn a_file_that_is_not_there() {
    let Err(problems) = load(Some(Path::new("/no/such.toml")), &Overrides::default()) else {
        panic!("accepted");
    };
    assert!(problems.to_string().starts_with("/no/such.toml: cannot be read: No such file"));
}
