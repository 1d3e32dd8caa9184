use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use barid_engine::rights::{Action, Actions};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use super::*;
use crate::for_tests::{Log, Received, credentials, serve, serve_after};

fn http(settings: &Value) -> Http {
    let settings: HttpSettings = serde_json::from_value(settings.clone()).unwrap();
    Http::new("http", &settings).unwrap()
}

/// Returns a back end for a service with this URL.
fn emqx(url: &str, more: Value) -> Http {
    let mut settings = json!({"shape": "emqx", "url": format!("{url}/auth"), "timeout_ms": 1_000});
    let Value::Object(more) = more else { panic!("settings are an object") };
    settings.as_object_mut().unwrap().extend(more);
    http(&settings)
}

fn go_auth(url: &str, more: Value) -> Http {
    let mut settings = json!({"shape": "mosquitto-go-auth", "url": url, "user_uri": "/user",
        "superuser_uri": "/superuser", "timeout_ms": 1_000});
    let Value::Object(more) = more else { panic!("settings are an object") };
    settings.as_object_mut().unwrap().extend(more);
    http(&settings)
}

async fn decide(http: &Http, user: &str, password: &str) -> Answer {
    http.decide(&credentials(Some(user), password)).await
}

fn accepted(answer: Answer) -> Accepted {
    match answer {
        Answer::Accepted(accepted) => *accepted,
        other => panic!("{other:?}"),
    }
}

fn unavailable(answer: Answer) -> String {
    match answer {
        Answer::Unavailable(Unavailable(text)) => text,
        other => panic!("{other:?}"),
    }
}

fn last(log: &Log) -> Received {
    log.lock().last().unwrap().clone()
}

#[tokio::test]
async fn emqx_sends_a_json_object() {
    let (url, log) = serve(|_| (204, String::new())).await;
    let accepted =
        accepted(decide(&emqx(&url, json!({})), "acme/a\"da", "p\\w\n${clientid}").await);
    assert_eq!(
        (&*accepted.user, accepted.rights, accepted.expires),
        ("acme/a\"da", Rights::default(), None)
    );
    let request = last(&log);
    assert_eq!((request.method.as_str(), &*request.target), ("POST", "/auth"));
    assert_eq!(request.headers["content-type"], "application/json");
    let body: Value = serde_json::from_str(&request.body).unwrap();
    let expected =
        json!({"username": "acme/a\"da", "password": "p\\w\n${clientid}", "clientid": "c1"});
    assert_eq!(body, expected);
}

#[tokio::test]
async fn emqx_fields_are_configured_and_encoded() {
    let (url, log) = serve(|_| (204, String::new())).await;
    let fields = json!({"u": "${username}", "p x": "${password}", "where": "at ${peerhost}"});
    let get = emqx(
        &url,
        json!({"method": "get", "body": fields, "strip_tenant": true,
        "url": format!("{url}/auth?t=${{tenant}}&fixed")}),
    );
    accepted(decide(&get, "acme/a&admin=1#?/ü", "p&u=root \r\nX-Admin: 1").await);
    let request = last(&log);
    assert_eq!(request.method, "GET");
    assert_eq!(
        request.target,
        "/auth?t=acme&fixed&p%20x=p%26u%3Droot%20%0D%0AX-Admin%3A%201&u=a%26admin%3D1%23%3F%2F%C3%BC\
         &where=at%20192.0.2.7"
    );
    assert!(request.body.is_empty() && !request.headers.contains_key("x-admin"));
    let form = emqx(
        &url,
        json!({"params_mode": "form", "body": {"u": "${username}", "p": "${password}"}}),
    );
    accepted(decide(&form, "acme/ada", "a=b&c").await);
    let request = last(&log);
    assert_eq!((&*request.target, &*request.body), ("/auth", "p=a%3Db%26c&u=acme%2Fada"));
    assert_eq!(request.headers["content-type"], "application/x-www-form-urlencoded");
    // A form can contain any password, JSON cannot.
    let raw = credentials(Some("acme/ada"), b"\xff\x00");
    accepted(form.decide(&raw).await);
    assert_eq!(last(&log).body, "p=%FF%00&u=acme%2Fada");
    let answer = emqx(&url, json!({})).decide(&raw).await;
    assert_eq!(
        answer,
        Answer::Refused("the password is not UTF-8, and the service is asked in JSON")
    );
    let mut long = credentials(Some("acme/ada"), "");
    long.client_id = "/".repeat(60_000).into();
    let by_url =
        emqx(&url, json!({"method": "get", "body": {"u": "${username}", "c": "${clientid}"}}));
    assert!(
        matches!(by_url.decide(&long).await, Answer::Refused(reason) if reason.contains("too long"))
    );
}

#[tokio::test]
async fn headers_are_sent_and_not_shown() {
    let (url, log) = serve(|_| (204, String::new())).await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("headers");
    std::fs::write(&file, "# for the service\n\nAuthorization: Bearer hidden:1\nX-A:b\n").unwrap();
    let settings = json!({"shape": "emqx", "url": url, "headers": {"X-Source": "hidden-too", "x-a": "a"},
        "headers_file": file});
    let http = http(&settings);
    accepted(decide(&http, "ada", "pw").await);
    let headers = last(&log).headers;
    assert_eq!(headers["authorization"], "Bearer hidden:1");
    assert!(headers["x-source"] == "hidden-too" && headers["x-a"] == "b");
    let settings: HttpSettings = serde_json::from_value(settings).unwrap();
    for shown in [format!("{http:?}"), format!("{settings:?}")] {
        assert!(shown.to_lowercase().contains("x-source") && !shown.contains("hidden"), "{shown}");
    }
}

#[tokio::test]
async fn emqx_answers() {
    let answer = Arc::new(Mutex::new((200, String::new())));
    let kept = Arc::clone(&answer);
    let (url, _) = serve(move |_| kept.lock().clone()).await;
    let http = emqx(&url, json!({}));
    let decide = async |status: u16, body: &str| {
        *answer.lock() = (status, body.into());
        decide(&http, "acme/ada", "pw").await
    };
    let allowed = async |body: &str| accepted(decide(200, body).await);
    assert_eq!(allowed(r#"{"result":"allow"}"#).await.rights, Rights::default());
    let rights =
        allowed(r#"{"result":"allow","is_superuser":true,"acl":[],"client_attrs":{"a":"b"}}"#)
            .await
            .rights;
    assert_eq!(rights.rules[0].allow, Some(Actions::One(Action::All)));
    assert!(rights.rules[0].topics.is_none());
    let later = allowed(r#" {"result":"allow","is_superuser":false,"expire_at":4102444800}"#).await;
    assert_eq!(later.expires, Some(WallTime::from_millis(4_102_444_800_000)));
    let acl = r#"{"result":"allow","acl":[{"permission":"allow","action":"publish","topic":"t/${clientid}"}]}"#;
    let with_acl = allowed(acl).await;
    assert_eq!(with_acl.rights.rules[0].topics, Some(vec!["t/%c".into()]));
    assert!(with_acl.proof == allowed(acl).await.proof && with_acl.proof != later.proof);
    let nothing = allowed(r#"{"result":"allow","acl":{}}"#).await.rights;
    assert_eq!((nothing.publish, nothing.subscribe), (Some(vec![]), Some(vec![])));

    assert!(matches!(decide(200, r#"{"result":"deny"}"#).await, Answer::Refused(_)));
    assert!(matches!(decide(200, r#"{"result":"allow","expire_at":1}"#).await, Answer::Refused(_)));
    assert_eq!(decide(200, r#"{"result":"ignore","is_superuser":true}"#).await, Answer::Unknown);
    for status in [400, 401, 403, 404, 410] {
        assert_eq!(decide(status, r#"{"result":"allow"}"#).await, Answer::Unknown, "{status}");
    }
    for status in [201, 202, 301, 302, 307, 408, 429, 500, 502, 503] {
        let text = unavailable(decide(status, r#"{"result":"allow"}"#).await);
        assert!(text.contains(&format!("http: {url}/auth: status {status}")), "{text}");
    }
    for (body, expected) in [
        ("", "not a JSON object"),
        ("allow", "not a JSON object"),
        ("<html>", "not a JSON object"),
        (r#"["allow"]"#, "not a JSON object"),
        ("{}", "missing field `result`"),
        (r#"{"result":"Allow"}"#, "unknown variant `Allow`"),
        (r#"{"result":true}"#, "expected value"),
        (r#"{"result":"deny","result":"allow"}"#, "duplicate field"),
        (r#"{"result":"allow","is_superuser":"yes"}"#, "invalid type"),
        (r#"{"result":"allow","expire_at":"soon"}"#, "invalid type"),
        (r#"{"result":"allow"} x"#, "trailing characters"),
        (r#"{"result":"allow","acl":5}"#, "`acl`"),
        (
            r#"{"result":"allow","acl":[{"permission":"deny","action":"subscribe","topic":"eq #"}]}"#,
            "`acl`",
        ),
        (
            r#"{"result":"allow","acl":[{"permission":"deny","action":"publish","topic":"a/#/b"}]}"#,
            "invalid rights",
        ),
    ] {
        let text = unavailable(decide(200, body).await);
        assert!(text.starts_with("http: ") && text.contains(expected), "{body}: {text}");
    }
    let quoted = format!(r#"{{"result":"{}\n"}}"#, "x".repeat(10_000));
    let text = unavailable(decide(200, &quoted).await);
    assert!(text.len() < 400 && !text.contains('\n'), "{text}");
    let long = format!(r#"{{"result":"allow","x":"{}"}}"#, "x".repeat(200_000));
    assert!(unavailable(decide(200, &long).await).contains("limit"));
    let deep = format!(r#"{{"result":"allow","acl":{}}}"#, "[".repeat(60_000));
    unavailable(decide(200, &deep).await);
}

#[tokio::test]
async fn who_is_not_asked_about() {
    let (url, log) = serve(|_| (204, String::new())).await;
    let http = emqx(&url, json!({}));
    assert_eq!(http.decide(&credentials(None, "pw")).await, Answer::Unknown);
    let long = "x".repeat(PASSWORD_MAX + 1);
    assert_eq!(decide(&http, "ada", &long).await, Answer::Refused("the password is too long"));
    assert!(log.lock().is_empty());
    assert_eq!(http.renew("acme/ada", 1).await, Renewal::LogInAgain);
}

/// Answers `user` and `superuser` requests with these.
async fn service(user: (u16, &str), superuser: (u16, &str)) -> (String, Log) {
    let (user, superuser) = ((user.0, user.1.to_owned()), (superuser.0, superuser.1.to_owned()));
    serve(move |request| if request.target == "/user" { user.clone() } else { superuser.clone() })
        .await
}

#[tokio::test]
async fn mosquitto_go_auth_sends_two_requests() {
    let (url, log) = service((200, ""), (401, "")).await;
    let answer = accepted(decide(&go_auth(&url, json!({})), "acme/ada", "p\"w").await);
    assert_eq!((&*answer.user, answer.rights), ("acme/ada", Rights::default()));
    let requests = log.lock().clone();
    let bodies: Vec<Value> =
        requests.iter().map(|request| serde_json::from_str(&request.body).unwrap()).collect();
    assert_eq!(
        bodies,
        [
            json!({"username": "acme/ada", "password": "p\"w", "clientid": "c1"}),
            json!({"username": "acme/ada"}),
        ]
    );
    assert_eq!((requests[0].method.as_str(), &*requests[1].target), ("POST", "/superuser"));
    let form = go_auth(
        &url,
        json!({"params_mode": "form", "strip_tenant": true, "url": format!("{url}/")}),
    );
    accepted(decide(&form, "acme/a b", "p&w").await);
    let requests = log.lock().split_off(2);
    let bodies: Vec<_> = requests.iter().map(|request| &*request.body).collect();
    assert_eq!(bodies, ["username=a%20b&password=p%26w&clientid=c1", "username=a%20b"]);
    let get = go_auth(&url, json!({"method": "get"}));
    accepted(decide(&get, "acme/ada", "pw").await);
    let request = last(&log);
    assert_eq!((request.method.as_str(), &*request.body), ("GET", r#"{"username":"acme/ada"}"#));
}

#[tokio::test]
async fn mosquitto_go_auth_answers() {
    let all = unrestricted();
    for (mode, user, superuser, expected) in [
        ("status", (200, "no"), (200, ""), Some(&all)),
        ("status", (204, ""), (404, ""), Some(&Rights::default())),
        ("status", (401, "ok"), (200, ""), None),
        ("status", (403, ""), (200, ""), None),
        ("text", (200, "ok"), (200, "no"), Some(&Rights::default())),
        ("text", (200, "ok"), (200, "ok"), Some(&all)),
        ("text", (200, "ok\n"), (200, "ok"), None),
        ("text", (200, ""), (200, "ok"), None),
        ("text", (400, "ok"), (200, "ok"), None),
        (
            "json",
            (200, r#"{"ok":true,"error":""}"#),
            (200, r#"{"ok":false,"error":"no"}"#),
            Some(&Rights::default()),
        ),
        ("json", (200, r#"{"Ok":true}"#), (200, r#"{"OK":true}"#), Some(&all)),
        ("json", (200, r#"{"ok":false,"error":"who?"}"#), (200, r#"{"ok":true}"#), None),
        ("json", (401, r#"{"ok":true}"#), (200, r#"{"ok":true}"#), None),
    ] {
        let (url, log) = service(user, superuser).await;
        let answer = decide(&go_auth(&url, json!({"response_mode": mode})), "ada", "pw").await;
        match expected {
            Some(rights) => {
                assert_eq!(&accepted(answer).rights, rights, "{mode} {user:?} {superuser:?}")
            }
            None => {
                assert_eq!(
                    answer,
                    Answer::Refused("the service denies the login"),
                    "{mode} {user:?}"
                );
                assert_eq!(log.lock().len(), 1);
                let next = go_auth(&url, json!({"response_mode": mode, "next_after_denial": true}));
                assert_eq!(decide(&next, "ada", "pw").await, Answer::Unknown);
            }
        }
    }
    let rights = r#"{"ok":true,"rights":{"publish":["a/%c"]}}"#;
    let (url, _) = service((200, rights), (200, r#"{"ok":false}"#)).await;
    let json_mode = go_auth(&url, json!({"response_mode": "json"}));
    let publish = accepted(decide(&json_mode, "ada", "pw").await).rights.publish;
    assert_eq!(publish, Some(vec!["a/%c".into()]));
}

#[tokio::test]
async fn a_service_that_cannot_tell_lets_nobody_in() {
    let fine = (200, r#"{"ok":true}"#);
    for unclear in [
        (500, r#"{"ok":true}"#),
        (503, ""),
        (302, ""),
        (429, ""),
        (200, ""),
        (200, "ok"),
        (200, "{}"),
        (200, "[true]"),
        (200, r#"{"ok":"true"}"#),
        (200, r#"{"ok":true,"rights":[]}"#),
        (200, r#"{"ok":true,"rights":{"publsh":[]}}"#),
    ] {
        for (user, superuser) in [(unclear, fine), (fine, unclear)] {
            let (url, _) = service(user, superuser).await;
            let http = go_auth(&url, json!({"response_mode": "json", "next_after_denial": true}));
            unavailable(decide(&http, "ada", "pw").await);
        }
    }
    let rights = (200, r#"{"ok":true,"rights":{"publish":["a/#/b"]}}"#);
    let (url, _) = service(rights, (401, "")).await;
    let http = go_auth(&url, json!({"response_mode": "json"}));
    assert!(unavailable(decide(&http, "ada", "pw").await).contains("invalid rights"));
}

#[tokio::test]
async fn a_service_that_does_not_answer_costs_its_timeout() {
    // The kernel accepts connections, and nobody reads them.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    for http in [emqx(&url, json!({"timeout_ms": 300})), go_auth(&url, json!({"timeout_ms": 300}))]
    {
        let begin = Instant::now();
        let text = unavailable(decide(&http, "ada", "secret").await);
        let took = begin.elapsed();
        assert!(text.contains(&url) && text.contains("no answer within 0.3 s"), "{text}");
        assert!(!text.contains("secret") && took < Duration::from_secs(1), "{took:?}");
    }
    // Both requests of a login share the time.
    let (slow, log) = serve_after(Duration::from_millis(200), |_| (200, String::new())).await;
    let text = unavailable(decide(&go_auth(&slow, json!({"timeout_ms": 300})), "ada", "pw").await);
    assert!(text.contains("no answer within 0.3 s") && log.lock().len() == 2, "{text}");
    drop(silent);
    let text = unavailable(decide(&emqx(&url, json!({})), "ada", "pw").await);
    assert!(text.contains("refused"), "{text}");
}

#[tokio::test]
async fn logins_wait_for_one_another_within_the_timeout() {
    let open = Arc::new(AtomicUsize::new(0));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let counted = Arc::clone(&open);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let counted = Arc::clone(&counted);
            tokio::spawn(async move {
                counted.fetch_add(1, Ordering::SeqCst);
                while stream.read(&mut [0; 1_024]).await.is_ok_and(|len| len > 0) {}
                counted.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    let http = Arc::new(emqx(&url, json!({"timeout_ms": 300, "connections": 2})));
    let begin = Instant::now();
    let logins: Vec<_> = (0..20)
        .map(|_| {
            let http = Arc::clone(&http);
            tokio::spawn(async move { decide(&http, "ada", "pw").await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert_eq!(open.load(Ordering::SeqCst), 2);
    for login in logins {
        unavailable(login.await.unwrap());
    }
    assert!(begin.elapsed() < Duration::from_secs(1));
    // Requests that are given up leave no connections.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(open.load(Ordering::SeqCst), 0);
}

fn check(settings: Value) -> Result<(), String> {
    let settings: Result<HttpSettings, _> = serde_json::from_value(settings);
    settings.map_err(|error| error.to_string())?.check()
}

#[test]
fn settings_are_checked() {
    let directory = tempfile::tempdir().unwrap();
    let file = |text: &str| {
        let file = directory.path().join("headers");
        std::fs::write(&file, text).unwrap();
        file
    };
    assert_eq!(
        check(json!({"shape": "emqx", "url": "https://a/b?c=${clientid}&u=${username}"})),
        Ok(())
    );
    let go_auth = json!({"shape": "mosquitto-go-auth", "url": "http://a:1", "user_uri": "/u"});
    assert_eq!(check(go_auth), Ok(()));
    for (more, expected) in [
        (json!({"url": "ftp://a"}), "`url`: the URL must begin with"),
        (json!({"url": "http://u:p@a/"}), "user or password"),
        (json!({"url": "http://${username}.a/"}), "behind the ?"),
        (json!({"url": "http://a/${clientid}"}), "behind the ?"),
        (json!({"url": "http://a/?x=${what}"}), "${what} is not one of"),
        (json!({"url": "http://a/?x=a b"}), "not a URL"),
        (json!({"url": "http://a/?x#${username}"}), "#"),
        (json!({"body": {"p": "${password}"}}), "use ${username}"),
        (json!({"body": {"p": "${pw}"}}), "`body.p`: ${pw} is not one of"),
        (json!({"method": "put"}), "`post` and `get`"),
        (json!({"method": "delete"}), "unknown variant"),
        (json!({"method": "get", "params_mode": "form"}), "in the query"),
        (json!({"user_uri": "/u"}), "`user_uri` is for the shape"),
        (json!({"next_after_denial": true}), "`next_after_denial` is for the shape"),
        (json!({"timeout_ms": 50}), "`timeout_ms` is from 100 to 30000"),
        (json!({"connections": 0}), "`connections` is from 1 to 256"),
        (json!({"ca_file": "/no/such"}), "`ca_file`: /no/such"),
        (json!({"headers": {"a b": "c"}}), "the name of a header"),
        (json!({"headers": {"a": "c\r\nd: e"}}), "the value of the header `a`"),
        (json!({"headers": {"Content-Length": "0"}}), "`content-length` cannot be set"),
        (json!({"headers_file": "/no/such"}), "`headers_file`: /no/such"),
        (json!({"headers_file": file("a: b\nsecret")}), "line 2: not `Name: value`"),
        (json!({"shape": "other"}), "unknown variant"),
        (json!({"uri": "x"}), "unknown field"),
        (json!({"shape": "mosquitto-go-auth"}), "`user_uri` is missing"),
        (json!({"shape": "mosquitto-go-auth", "user_uri": "u"}), "begins with /"),
        (json!({"shape": "mosquitto-go-auth", "user_uri": "/u", "acl_uri": "/a"}), "not for each"),
        (
            json!({"shape": "mosquitto-go-auth", "user_uri": "/u?a=${username}"}),
            "for the shape `emqx`",
        ),
        (
            json!({"shape": "mosquitto-go-auth", "user_uri": "/u", "body": {}}),
            "for the shape `emqx`",
        ),
        (
            json!({"shape": "mosquitto-go-auth", "user_uri": "/u", "method": "get", "params_mode": "form"}),
            "with the method `post`",
        ),
    ] {
        let mut settings = json!({"shape": "emqx", "url": "https://a/"});
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let error = check(settings).unwrap_err();
        assert!(error.contains(expected), "{more}: {error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

proptest::proptest! {
    /// Whatever a client sends, the service reads exactly that in exactly these fields.
    #[test]
    fn fields_cannot_be_forged(user in "\\PC{0,20}", password in "\\PC{0,20}", client_id in "\\PC{0,20}") {
        let mut client = credentials(Some("acme/x"), &password);
        client.client_id = client_id.clone().into();
        let user = format!("acme/{user}");
        let values = Values::new(&user, &client, false);
        let settings = |method: &str, form: &str| -> Requests {
            let settings: HttpSettings = serde_json::from_value(json!({"shape": "emqx", "method": method,
                "params_mode": form, "url": "http://a/b?first=${clientid}"})).unwrap();
            settings.requests().unwrap()
        };
        let parse = |text: &str| -> Vec<(String, String)> {
            let decode = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8().unwrap().into_owned();
            text.split('&').map(|pair| {
                let (name, value) = pair.split_once('=').unwrap();
                (decode(name), decode(value))
            }).collect()
        };
        let expected = |names: &[&str]| -> Vec<(String, String)> {
            names.iter().map(|name| ((*name).to_owned(), match *name {
                "username" => user.clone(),
                "password" => password.clone(),
                _ => client_id.clone(),
            })).collect()
        };
        for (method, form) in [("get", "json"), ("post", "form"), ("post", "json")] {
            let Requests::Emqx { endpoint, fields } = settings(method, form) else { panic!("another shape") };
            let fields: Vec<_> =
                fields.iter().map(|(name, value)| (name.as_str(), value.fill_in(&values))).collect();
            let request = endpoint.request(&HeaderMap::new(), &values, &fields).unwrap();
            let query = request.uri().query().unwrap().to_owned();
            proptest::prop_assert_eq!(request.uri().path(), "/b");
            let body = body_of(request);
            match (method, form) {
                ("get", _) => {
                    let all = ["first", "clientid", "password", "username"];
                    proptest::prop_assert_eq!(parse(&query), expected(&all));
                }
                (_, "form") => {
                    proptest::prop_assert_eq!(parse(&query), expected(&["first"]));
                    let all = ["clientid", "password", "username"];
                    proptest::prop_assert_eq!(parse(&body), expected(&all));
                }
                _ => {
                    let body: Value = serde_json::from_str(&body).unwrap();
                    proptest::prop_assert_eq!(
                        body,
                        json!({"username": user, "password": password, "clientid": client_id})
                    );
                }
            }
        }
    }
}

/// Returns the body of a request that was not sent.
fn body_of(request: hyper::Request<http_body_util::Full<hyper::body::Bytes>>) -> String {
    use http_body_util::BodyExt;
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let body = runtime.block_on(request.into_body().collect()).unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}
