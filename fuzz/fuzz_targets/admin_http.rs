//! Any input on a connection to the admin address: the broker does not panic, and its answers are HTTP.
//! Requests with a foreign host, or from a page of a foreign origin, are refused. No browser changes anything.
//!
//! If the first byte of an input is even, the rest is sent on a connection as it is. Otherwise the rest has
//! lines: method, target, host, origin and site, followed by the body. A request is made of them, so that more
//! inputs get past the parser.

#![no_main]

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::LazyLock;

use barid_server::Broker;
use barid_server::settings::{Listeners, Settings};
use libfuzzer_sys::fuzz_target;

/// A broker without listeners and with low limits.
static BROKER: LazyLock<Broker> = LazyLock::new(|| {
    let data_dir =
        format!("{}/target/admin_http-{}", env!("CARGO_MANIFEST_DIR"), std::process::id()).into();
    let mut settings = Settings {
        data_dir,
        listeners: Listeners::none(),
        max_tenants: 4,
        workers: 1,
        ..Settings::default()
    };
    settings.admin.address = SocketAddr::from(([127, 0, 0, 1], 0));
    settings.limits.max_entities = 8;
    settings.storage.min_free = 0;
    settings.storage.shards = 1;
    Broker::start(settings).expect("nothing is in its way")
});

fuzz_target!(|input: &[u8]| {
    match input.split_first() {
        Some((first, sent)) if first % 2 == 0 => {
            let answered = BROKER.converse(sent).expect("there is room for a runtime");
            assert!(answered.is_empty() || (200..600).contains(&status(&answered)));
        }
        Some((_, lines)) => ask(lines),
        None => {}
    }
});

fn ask(lines: &[u8]) {
    let mut lines = lines.splitn(6, |byte| *byte == b'\n');
    let mut line = || std::str::from_utf8(lines.next()?).ok();
    let (Some(method), Some(target), Some(host), Some(origin), Some(site)) =
        (line(), line(), line(), line(), line())
    else {
        return;
    };
    let body = lines.next().unwrap_or_default();
    if [method, target, host, origin, site].iter().any(|field| field.contains('\r')) {
        return;
    }
    let mut sent = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n");
    for (name, value) in [("Origin", origin), ("Sec-Fetch-Site", site)] {
        if !value.is_empty() {
            sent += &format!("{name}: {value}\r\n");
        }
    }
    let mut sent = format!("{sent}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
    sent.extend_from_slice(body);
    let answered = BROKER.converse(&sent).expect("there is room for a runtime");
    if answered.is_empty() || status(&answered) >= 400 {
        return;
    }
    let host = host.trim();
    assert!(is_this_machine(host), "answered to {host:?}");
    let changes = !matches!(method, "GET" | "HEAD" | "OPTIONS");
    let origin = origin.trim();
    assert!(
        origin.is_empty() || !changes && origin.eq_ignore_ascii_case(&format!("http://{host}")),
        "{method} for {origin:?}"
    );
    let is_own_site = matches!(site.trim(), "none" | "same-origin") && !changes;
    assert!(site.trim().is_empty() || is_own_site, "{method} for {site:?}");
    if let Some((_, rest)) = target.split_once("://")
        && !target.starts_with('/')
    {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        assert!(is_this_machine(authority), "answered to {target:?}");
    }
}

/// Returns the status of the first answer. Fails if that is not a complete HTTP response.
fn status(answered: &[u8]) -> u16 {
    let mut fields = [httparse::EMPTY_HEADER; 32];
    let mut answer = httparse::Response::new(&mut fields);
    let parsed = answer.parse(answered).expect("it is HTTP");
    assert!(parsed.is_complete(), "the head of an answer is there as a whole");
    answer.code.expect("it is complete")
}

/// Whether a host, with or without a port, is a name or an address of the loopback interface.
fn is_this_machine(host: &str) -> bool {
    if let Some(rest) = host.strip_prefix('[') {
        let (address, _) = rest.split_once(']').unwrap_or_default();
        return address
            .parse::<Ipv6Addr>()
            .is_ok_and(|address| address.to_canonical().is_loopback());
    }
    let name = host.split_once(':').map_or(host, |(name, _)| name);
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
}
