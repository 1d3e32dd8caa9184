use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use rustls::ServerConfig;
use rustls_pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::for_tests::{Log, asker, serve, serve_after, serve_one};

const OPTIONS: Options = Options { timeout: Duration::from_secs(2), requests: 4, body_max: 1_000 };

fn client(options: Options) -> HttpClient {
    HttpClient::new(None, options).unwrap()
}

async fn send(client: &HttpClient, url: &str) -> Result<Reply, String> {
    client.send(Asker::BROKER, client.deadline(), get(url)).await.map_err(|error| error.to_string())
}

fn get(url: &str) -> Request<Full<Bytes>> {
    Request::get(url).body(Full::default()).unwrap()
}

/// Serves connections with bytes instead of HTTP. Returns the URL.
async fn serve_raw<F: Future<Output = ()> + Send>(
    serve: impl Fn(usize, TcpStream) -> F + Send + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        for number in 0.. {
            let (stream, _) = listener.accept().await.unwrap();
            serve(number, stream).await;
        }
    });
    url
}

async fn read_request(stream: &mut TcpStream) {
    let mut seen = Vec::new();
    while !seen.windows(4).any(|end| end == b"\r\n\r\n") {
        assert_ne!(stream.read_buf(&mut seen).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn an_answer_has_its_status_and_body_and_redirects_are_not_followed() {
    let (url, log) = serve(|request| match request.target.as_str() {
        "/a?b" => (404, "gone".into()),
        _ => (302, String::new()),
    })
    .await;
    let client = client(OPTIONS);
    let reply = send(&client, &format!("{url}/a?b")).await.unwrap();
    assert_eq!((reply.status.as_u16(), &*reply.body), (404, &b"gone"[..]));
    let reply = send(&client, &url).await.unwrap();
    assert_eq!(reply.status, 302);
    assert_eq!(log.lock().len(), 2);
    assert!(log.lock()[0].headers["user-agent"].to_str().unwrap().starts_with("barid/"));
}

#[tokio::test]
async fn a_body_that_is_too_long_is_an_error() {
    let (url, _) = serve(|request| (200, "x".repeat(request.target.len() - 1))).await;
    let client = client(OPTIONS);
    let path = "y".repeat(1_000);
    assert_eq!(send(&client, &format!("{url}/{path}")).await.unwrap().body.len(), 1_000);
    let error = send(&client, &format!("{url}/{path}y")).await.unwrap_err();
    assert!(error.contains("limit"), "{error}");
}

#[tokio::test]
async fn the_timeout_is_for_all_of_it() {
    let drip = serve_raw(async |_, mut stream: TcpStream| {
        read_request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n").await.unwrap();
        for _ in 0..900 {
            if stream.write_all(b"x").await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let client = client(Options { timeout: Duration::from_millis(400), ..OPTIONS });
    let begin = Instant::now();
    assert_eq!(send(&client, &drip).await.unwrap_err(), "no answer within 0.4 s");
    assert!(begin.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn requests_wait_for_a_place() {
    let at_once = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (counted, seen) = (Arc::clone(&at_once), Arc::clone(&most));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (counted, seen) = (Arc::clone(&counted), Arc::clone(&seen));
            tokio::spawn(serve_one(stream, move |_| {
                let (counted, seen) = (Arc::clone(&counted), Arc::clone(&seen));
                async move {
                    seen.fetch_max(counted.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    counted.fetch_sub(1, Ordering::SeqCst);
                    (200, String::new())
                }
            }));
        }
    });
    let client = Arc::new(client(Options { requests: 2, ..OPTIONS }));
    let sent: Vec<_> = (0..6)
        .map(|_| {
            let (client, url) = (Arc::clone(&client), url.clone());
            tokio::spawn(async move { send(&client, &url).await })
        })
        .collect();
    for one in sent {
        assert_eq!(one.await.unwrap().unwrap().status, 200);
    }
    assert_eq!(most.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn connections_are_kept_and_a_closed_one_is_replaced() {
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    let url = serve_raw(move |number, mut stream| {
        counted.store(number + 1, Ordering::SeqCst);
        async move {
            // The first connection is closed instead of its third answer.
            for _ in 0..if number == 0 { 2 } else { 9 } {
                read_request(&mut stream).await;
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            }
            read_request(&mut stream).await;
        }
    })
    .await;
    let client = client(OPTIONS);
    for expected in [1, 1, 2, 2] {
        assert_eq!(send(&client, &url).await.unwrap().status, 200);
        assert_eq!(connections.load(Ordering::SeqCst), expected);
    }
}

#[tokio::test]
async fn a_service_that_only_closes_is_an_error() {
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    let url = serve_raw(move |number, mut stream| {
        counted.store(number + 1, Ordering::SeqCst);
        async move { read_request(&mut stream).await }
    })
    .await;
    let error = send(&client(OPTIONS), &url).await.unwrap_err();
    assert!(error.contains("connection closed"), "{error}");
    assert_eq!(connections.load(Ordering::SeqCst), ATTEMPTS);
}

#[tokio::test]
async fn what_is_not_http_is_an_error() {
    for bytes in [
        b"SSH-2.0-x\r\n\r\n".to_vec(),
        [b"HTTP/1.1 200 OK\r\n".to_vec(), b"a: b\r\n".repeat(HEADERS_MAX + 1), b"\r\n".to_vec()]
            .concat(),
        [b"HTTP/1.1 200 OK\r\na: ".to_vec(), vec![b'x'; 2 * HEAD_MAX]].concat(),
        b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n".to_vec(),
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort".to_vec(),
        vec![],
    ] {
        let sent = bytes.clone();
        let url = serve_raw(move |_, mut stream| {
            let bytes = sent.clone();
            async move {
                read_request(&mut stream).await;
                let _ = stream.write_all(&bytes).await;
            }
        })
        .await;
        let answered = send(&client(OPTIONS), &url).await;
        assert!(answered.is_err(), "{:?}: {answered:?}", String::from_utf8_lossy(&bytes));
    }
}

#[tokio::test]
async fn a_port_that_nobody_listens_on_is_an_error_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/?secret", listener.local_addr().unwrap());
    drop(listener);
    let error = send(&client(OPTIONS), &url).await.unwrap_err();
    assert!(error.contains("refused") && !error.contains("secret"), "{error}");
}

#[tokio::test]
async fn names_are_looked_up_and_https_needs_a_trusted_certificate() {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let ca_file = directory.path().join("ca.pem");
    std::fs::write(&ca_file, certified.cert.pem()).unwrap();
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let provider = rustls::crypto::ring::default_provider();
    let config = ServerConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            tokio::spawn(serve_one(stream, async |_| (200, "hello".into())));
        }
    });
    let url = format!("https://localhost:{port}/");
    let trusting = HttpClient::new(Some(&ca_file), OPTIONS).unwrap();
    assert_eq!(send(&trusting, &url).await.unwrap().body, "hello");
    let error = send(&client(OPTIONS), &url).await.unwrap_err();
    assert!(error.contains("certificate"), "{error}");
    let other_name = format!("https://127.0.0.1:{port}/");
    let error = send(&trusting, &other_name).await.unwrap_err();
    assert!(error.contains("certificate"), "{error}");
}

#[test]
fn a_file_with_authorities_must_contain_some() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ca.pem");
    for text in
        [None, Some(""), Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")]
    {
        if let Some(text) = text {
            std::fs::write(&file, text).unwrap();
        }
        let error = HttpClient::new(Some(&file), OPTIONS).unwrap_err();
        assert!(error.contains("ca.pem: "), "{error}");
    }
}

#[test]
fn urls() {
    for good in ["http://a", "https://[::1]:8443/x?y=z", "HTTP://a.b/"] {
        parse_url(good).unwrap();
    }
    for (bad, expected) in [
        ("", "not a URL"),
        ("/path", "must begin"),
        ("ftp://a/", "must begin"),
        ("file:///etc/passwd", "not a URL"),
        ("http://", "not a URL"),
        ("http://u:p@a/", "user or password"),
        ("http://:80/", "no host"),
        ("http://a b/", "not a URL"),
        ("http://a/\r\nx: y", "not a URL"),
    ] {
        let error = parse_url(bad).map(|uri| uri.to_string()).unwrap_err();
        assert!(error.contains(expected), "{bad}: {error}");
    }
    let uri = parse_url("https://a:1/b?token=secret").unwrap();
    assert_eq!(shown(&uri), "https://a:1/b");
}

/// A service that answers one request after the other, and the requests that wait for it.
struct Slow {
    client: Arc<HttpClient>,
    url: String,
    log: Log,
}

impl Slow {
    async fn start(delay: Duration, timeout: Duration) -> Self {
        let (url, log) = serve_after(delay, |_| (200, String::new())).await;
        let client = Arc::new(client(Options { timeout, requests: 1, ..OPTIONS }));
        Self { client, url, log }
    }

    /// Sends requests, each with the name of its tenant in the path.
    fn flood(&self, tenant: &'static str, count: usize) -> Vec<JoinHandle<Result<Reply, NoReply>>> {
        let send = |_| {
            let (client, request) = (Arc::clone(&self.client), get(&self.path(tenant)));
            tokio::spawn(
                async move { client.send(asker(tenant), client.deadline(), request).await },
            )
        };
        (0..count).map(send).collect()
    }

    async fn send(&self, tenant: &str) -> Result<Reply, NoReply> {
        self.client.send(asker(tenant), self.client.deadline(), get(&self.path(tenant))).await
    }

    fn path(&self, tenant: &str) -> String {
        format!("{}/{tenant}", self.url)
    }
}

#[tokio::test]
async fn a_flood_of_one_tenant_does_not_delay_another() {
    let slow = Slow::start(Duration::from_millis(20), Duration::from_secs(10)).await;
    let flood = slow.flood("a", 50);
    while slow.log.lock().is_empty() {
        tokio::task::yield_now().await;
    }
    slow.send("b").await.unwrap();
    // One request was on its way, and one of the flood may have had the turn before.
    let place = slow.log.lock().iter().position(|request| request.target == "/b").unwrap();
    assert!(place <= 2, "{place}");
    for one in flood {
        one.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn whoever_floods_a_service_is_told_that_it_is_busy() {
    let slow = Slow::start(Duration::from_millis(50), Duration::from_secs(1)).await;
    let flood = slow.flood("a", WAITING_PER_REQUEST + 20);
    tokio::time::sleep(Duration::from_millis(10)).await;
    slow.send("b").await.unwrap();
    let (mut answered, mut busy) = (0, 0);
    for one in flood {
        match one.await.unwrap() {
            Ok(_) => answered += 1,
            Err(NoReply::Busy) => busy += 1,
            Err(NoReply::Failed(error)) => panic!("the service does not fail: {error}"),
        }
    }
    assert!(answered > 5 && busy > 20, "{answered}, {busy}");
}
