//! Users, settings of tenants and bans over the admin API of a broker.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::net::SocketAddr;
use std::path::PathBuf;

use barid_server::Broker;
use barid_server::settings::{Listeners, Settings};
use serde_json::{Value, json};

/// A broker that nobody but its admin API can be reached by.
struct Running {
    broker: Option<Broker>,
    data_dir: PathBuf,
}

impl Running {
    fn start(name: &str) -> Self {
        let name = format!("barid-managed-{name}-{}", std::process::id());
        let data_dir = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&data_dir);
        let mut running = Self { broker: None, data_dir };
        running.restart();
        running
    }

    fn restart(&mut self) {
        if let Some(broker) = self.broker.take() {
            broker.shutdown();
        }
        let data_dir = self.data_dir.clone();
        let mut settings =
            Settings { data_dir, listeners: Listeners::none(), workers: 1, ..Settings::default() };
        settings.admin.address = SocketAddr::from(([127, 0, 0, 1], 0));
        settings.storage.min_free = 0;
        settings.storage.shards = 3;
        self.broker = Some(Broker::start(settings).unwrap());
    }

    /// Sends a request. Returns the status and the body of the answer.
    fn ask(&self, method: &str, path: &str, body: &str, headers: &str) -> (u16, Value) {
        let length = body.len();
        let sent = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             {headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        let answered = self.broker.as_ref().unwrap().converse(sent.as_bytes()).unwrap();
        let answered = String::from_utf8(answered).unwrap();
        assert!(!answered.contains("$argon2"), "{answered}");
        let (head, body) = answered.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or(Value::Null))
    }

    fn get(&self, path: &str) -> (u16, Value) {
        self.ask("GET", path, "", "")
    }

    fn put(&self, path: &str, body: &Value) -> (u16, Value) {
        self.ask("PUT", path, &body.to_string(), "")
    }

    fn patch(&self, path: &str, body: &Value) -> (u16, Value) {
        self.ask("PATCH", path, &body.to_string(), "")
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.ask("POST", path, &body.to_string(), "")
    }

    fn delete(&self, path: &str) -> u16 {
        self.ask("DELETE", path, "", "").0
    }

    /// Sends a request that is refused with `status`. Returns the sentence.
    fn refused(&self, status: u16, method: &str, path: &str, body: &Value) -> String {
        let (found, answer) = self.ask(method, path, &body.to_string(), "");
        assert_eq!(found, status, "{answer}");
        answer["error"].as_str().unwrap().to_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(broker) = self.broker.take() {
            broker.shutdown();
        }
        let _ = std::fs::remove_dir_all(&self.data_dir);
    }
}

fn device(password: &str) -> Value {
    json!({ "password": password, "cost": "device" })
}

fn names(list: &Value, of: &str, member: &str) -> Vec<String> {
    let items = list[of].as_array().unwrap().iter();
    items.map(|item| item[member].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_user_is_created_changed_and_removed() {
    let mut broker = Running::start("user");
    let path = "/v1/users/acme/sensor-7";
    assert_eq!(broker.get(path).0, 404);
    let (status, created) = broker.put(path, &device("secret"));
    assert_eq!(status, 201);
    assert_eq!((&created["user"], &created["disabled"]), (&json!("acme/sensor-7"), &json!(false)));
    assert_eq!(broker.get(path), (200, created.clone()));
    let only_new = broker.ask("PUT", path, &device("x").to_string(), "If-None-Match: *\r\n");
    assert_eq!(only_new.0, 412);

    let (status, changed) =
        broker.patch(path, &json!({ "disabled": true, "publish": ["a/%c"], "note": "pump" }));
    assert_eq!(status, 200);
    assert_eq!(changed["publish"], json!(["a/%c"]));
    assert_eq!((&changed["disabled"], &changed["note"]), (&json!(true), &json!("pump")));
    assert_eq!(changed["created_at"], created["created_at"]);
    let (_, changed) =
        broker.patch(path, &json!({ "publish": null, "password": "other", "cost": "device" }));
    assert!(changed.get("publish").is_none() && changed["note"] == "pump", "{changed}");

    broker.restart();
    assert_eq!(broker.get(path), (200, changed.clone()));
    // The answer of GET with a password is a body of PUT.
    let mut again = changed.clone();
    again["password"] = "third".into();
    again["cost"] = "device".into();
    assert_eq!(broker.put(path, &again), (200, changed));
    assert_eq!(broker.delete(path), 204);
    assert_eq!(broker.delete(path), 404);
    broker.restart();
    assert_eq!(broker.get(path).0, 404);
}

#[test]
fn a_user_name_may_have_slashes_and_any_character() {
    let broker = Running::start("names");
    for (path, name) in [
        ("/v1/users/acme/plant-2/sensor-7", "acme/plant-2/sensor-7"),
        ("/v1/users/acme/a%2Fb%20%C3%BC", "acme/a/b ü"),
        ("/v1/users/acme//x", "acme//x"),
    ] {
        let (status, created) = broker.put(path, &device("secret"));
        assert_eq!((status, &created["user"]), (201, &json!(name)));
        assert_eq!(broker.get(path).0, 200);
    }
    for path in ["/v1/users/acme/", "/v1/users/acme", "/v1/users/a%20b/c", "/v1/users/%2Fa/b"] {
        let (status, answer) = broker.put(path, &device("secret"));
        assert!(matches!(status, 400 | 404), "{path}: {status} {answer}");
    }
    let long = format!("/v1/users/acme/{}", "x".repeat(1_100));
    assert!(broker.refused(400, "PUT", &long, &device("x")).contains("at most 1024 bytes"));
}

#[test]
fn a_wrong_user_is_refused_with_a_sentence() {
    let broker = Running::start("wrong");
    let path = "/v1/users/acme/a";
    let hash = "$argon2id$v=19$m=256,t=1,p=1$abc";
    for (body, expected) in [
        (json!({}), "needs `password` or `password_hash`"),
        (json!({ "password": "a", "password_hash": hash }), "not both"),
        (json!({ "password_hash": "plain" }), "`password_hash`: not a"),
        (json!({ "password": "a", "cost": "device", "publish": ["a/#/b"] }), "not a topic filter"),
        (json!({ "password": "a", "cost": "device", "pubish": ["a"] }), "unknown field `pubish`"),
        (json!({ "password": "a", "cost": "device", "rules": [{}] }), "needs `allow` or `deny`"),
        (json!({ "password": "a", "cost": "device", "user": "acme/b" }), "differs from the path"),
    ] {
        let sentence = broker.refused(400, "PUT", path, &body);
        assert!(sentence.contains(expected), "{body}: {sentence}");
    }
    assert!(broker.refused(404, "PATCH", path, &json!({})).contains("no user \"acme/a\""));
    let rules: Vec<_> = (0..900)
        .map(|number| json!({ "allow": "publish", "topics": [format!("{number}/{}", "x".repeat(100))] }))
        .collect();
    let large = json!({ "password": "a", "cost": "device", "rules": rules });
    assert!(broker.refused(400, "PUT", path, &large).contains("the maximum is 65536"));
    assert_eq!(broker.get(path).0, 404);
}

#[test]
fn users_are_listed_by_tenant_and_page() {
    let broker = Running::start("list");
    for name in ["acme/c", "acme/a", "acme/b", "zeta/a", "acme2/a"] {
        assert_eq!(broker.put(&format!("/v1/users/{name}"), &device("x")).0, 201);
    }
    let list = |question: &str| {
        let (status, list) = broker.get(&format!("/v1/users{question}"));
        assert_eq!(status, 200, "{list}");
        (names(&list, "users", "user"), list["next"].clone())
    };
    let all = ["acme/a", "acme/b", "acme/c", "acme2/a", "zeta/a"].map(str::to_owned);
    assert_eq!(list(""), (all.to_vec(), Value::Null));
    assert_eq!(list("?tenant=acme"), (all[..3].to_vec(), Value::Null));
    assert_eq!(list("?tenant=acme&limit=2"), (all[..2].to_vec(), json!("acme/b")));
    assert_eq!(list("?tenant=acme&limit=2&after=acme/b"), (all[2..3].to_vec(), Value::Null));
    assert_eq!(list("?tenant=none"), (vec![], Value::Null));
    assert_eq!(broker.get("/v1/users?limit=0").0, 400);
    assert_eq!(broker.get("/v1/users?tenant=a%2Fb").0, 400);
}

#[test]
fn a_tenant_has_settings_that_change() {
    let mut broker = Running::start("tenant");
    let path = "/v1/tenants/acme";
    let sentence = broker.refused(404, "GET", path, &json!({}));
    assert!(sentence.contains("no tenant \"acme\""), "{sentence}");
    let settings = json!({ "limits": { "max_connections": 5 }, "auth": ["store"] });
    let (status, put) = broker.put(path, &settings);
    assert_eq!((status, &put["settings"]), (201, &settings));
    let (status, patched) = broker.patch(path, &json!({ "limits": { "max_qos": 1 } }));
    assert_eq!(status, 200);
    assert_eq!(patched["settings"]["limits"], json!({ "max_connections": 5, "max_qos": 1 }));
    let listed = |broker: &Running| {
        let (_, list) = broker.get("/v1/tenants");
        let of = |tenant: &Value| (tenant["name"].clone(), tenant["has_settings"].clone());
        list["tenants"].as_array().unwrap().iter().map(of).collect::<Vec<_>>()
    };
    let both = vec![(json!("acme"), json!(true)), (json!("default"), json!(false))];
    assert_eq!(listed(&broker), both);
    let (_, page) = broker.get("/v1/tenants?limit=1");
    assert_eq!(
        (names(&page, "tenants", "name"), &page["next"]),
        (vec!["acme".into()], &json!("acme"))
    );
    let (_, page) = broker.get("/v1/tenants?limit=1&after=acme");
    assert_eq!(
        (names(&page, "tenants", "name"), &page["next"]),
        (vec!["default".into()], &Value::Null)
    );

    broker.restart();
    assert_eq!(broker.get(path), (200, patched));
    let sentence = broker.refused(400, "PUT", path, &json!({ "limits": { "max_qos": 7 } }));
    assert!(sentence.contains("max_qos is 7"), "{sentence}");
    broker.refused(400, "PUT", "/v1/tenants/a%20b", &json!({}));
    assert_eq!(broker.delete(path), 204);
    assert_eq!(broker.delete(path), 404);
    assert_eq!(listed(&broker), both[1..]);
}

#[test]
fn limits_of_a_tenant_are_in_force_at_once() {
    let broker = Running::start("limits");
    let queue = |name: &str| broker.put(&format!("/v1/tenants/acme/queues/{name}"), &json!({})).0;
    assert_eq!(queue("a"), 201);
    let settings = |most| json!({ "limits": { "max_entities": most } });
    assert_eq!(broker.put("/v1/tenants/acme", &settings(1)).0, 201);
    assert_eq!(queue("b"), 409);
    assert_eq!(broker.put("/v1/tenants/acme", &settings(2)).0, 200);
    assert_eq!(queue("b"), 201);
    assert_eq!(queue("c"), 409);
    // A tenant that is created later has its limits, too.
    assert_eq!(broker.put("/v1/tenants/zeta", &settings(0)).0, 201);
    assert_eq!(broker.put("/v1/tenants/zeta/queues/a", &json!({})).0, 409);
    assert_eq!(broker.delete("/v1/tenants/acme"), 204);
    assert_eq!(queue("c"), 201);
}

#[test]
fn bans_are_made_listed_and_removed() {
    let mut broker = Running::start("bans");
    let (status, user) = broker
        .post("/v1/bans", &json!({ "user": "acme/a", "reason": "stolen", "for_seconds": 600 }));
    assert_eq!(status, 201);
    assert!(user["id"].as_str().unwrap().starts_with("acme/"), "{user}");
    assert!(user["until"].as_str() > user["created_at"].as_str());
    let (_, address) = broker.post("/v1/bans", &json!({ "address": "192.0.2.7/24" }));
    assert_eq!((&address["address"], &address["until"]), (&json!("192.0.2.0/24"), &Value::Null));
    let (_, short) =
        broker.post("/v1/bans", &json!({ "client": "c", "tenant": "zeta", "for_seconds": 1 }));
    let ids = |broker: &Running, question: &str| {
        let (status, list) = broker.get(&format!("/v1/bans{question}"));
        assert_eq!(status, 200, "{list}");
        names(&list, "bans", "id")
    };
    let id = |ban: &Value| ban["id"].as_str().unwrap().to_owned();
    let mut all = vec![id(&user), id(&address), id(&short)];
    all.sort();
    assert_eq!(ids(&broker, ""), all);
    assert_eq!(ids(&broker, "?tenant=acme"), [id(&user)]);
    assert_eq!(broker.get(&format!("/v1/bans/{}", id(&user))), (200, user.clone()));

    std::thread::sleep(std::time::Duration::from_millis(1_100));
    broker.restart();
    assert!(!ids(&broker, "").contains(&id(&short)), "it has ended");
    assert_eq!(broker.get(&format!("/v1/bans/{}", id(&short))).0, 404);
    for ban in [&user, &address] {
        assert_eq!(broker.delete(&format!("/v1/bans/{}", id(ban))), 204);
        assert_eq!(broker.delete(&format!("/v1/bans/{}", id(ban))), 404);
    }
    assert_eq!(ids(&broker, ""), Vec::<String>::new());
    let sentence = broker.refused(400, "POST", "/v1/bans", &json!({ "client": "c" }));
    assert!(sentence.contains("needs the `tenant`"), "{sentence}");
}

#[test]
fn nothing_changes_while_its_shard_is_closed() {
    let broker = Running::start("closed");
    let path = "/v1/users/acme/a";
    assert_eq!(broker.put(path, &device("x")).0, 201);
    for shard in 0..3 {
        let closed = broker.patch(&format!("/v1/shards/{shard}"), &json!({ "state": "closed" }));
        assert_eq!(closed.0, 200);
    }
    assert!(
        broker.refused(503, "PUT", path, &device("y")).contains("the shard of the user is closed")
    );
    broker.refused(503, "POST", "/v1/bans", &json!({ "user": "acme/a" }));
    assert_eq!(broker.get(path).0, 200);
    for shard in 0..3 {
        let opened = broker.patch(&format!("/v1/shards/{shard}"), &json!({ "state": "open" }));
        assert_eq!(opened.0, 200);
    }
    assert_eq!(broker.put(path, &device("y")).0, 200);
}
