//! Addresses of host names.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use tokio::sync::{Mutex, oneshot};

/// Looks up the host names of one back end with the resolver of the operating system.
///
/// The resolver blocks a thread until a name server answers, which may take longer than anybody waits, and cannot
/// be interrupted. So look-ups have threads of their own and take none of those that verify passwords, and each
/// back end has one look-up at a time: a name server that hangs holds one thread for each back end, and no back
/// end waits for the names of another. There is no timeout here: callers have one.
#[derive(Clone, Debug)]
pub(crate) struct LookUp {
    resolve: fn(&str) -> io::Result<Vec<SocketAddr>>,
    /// The last result. Locked during a look-up.
    last: Arc<Mutex<Option<Found>>>,
}

#[derive(Debug)]
struct Found {
    host: Box<str>,
    addresses: Vec<SocketAddr>,
    since: Instant,
}

impl Default for LookUp {
    fn default() -> Self {
        Self::with(|host| Ok((host, 0).to_socket_addrs()?.collect()))
    }
}

impl LookUp {
    fn with(resolve: fn(&str) -> io::Result<Vec<SocketAddr>>) -> Self {
        Self { resolve, last: Arc::default() }
    }

    /// Returns the addresses of a host, with port 0. An IP address is its own address and waits for nobody.
    pub(crate) async fn addresses(&self, host: &str) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![(address, 0).into()]);
        }
        let began = Instant::now();
        let mut last = Arc::clone(&self.last).lock_owned().await;
        // A result that has come while this caller waited is also for it.
        if let Some(found) = last.as_ref().filter(|found| found.since >= began)
            && *found.host == *host
        {
            return Ok(found.addresses.clone());
        }
        let (resolve, host) = (self.resolve, Box::from(host));
        let (sender, receiver) = oneshot::channel();
        thread::Builder::new().name("barid-names".into()).spawn(move || {
            let result = resolve(&host);
            if let Ok(addresses) = &result {
                *last = Some(Found { host, addresses: addresses.clone(), since: Instant::now() });
            }
            // The next look-up begins when the resolver has returned, whether or not anybody waits for it.
            drop(last);
            // An error means that nobody does.
            let _ = sender.send(result);
        })?;
        receiver.await.map_err(io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const SHORT: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn addresses_are_found_and_errors_are_told() {
        let names = LookUp::default();
        let addresses = names.addresses("localhost").await.unwrap();
        assert!(addresses.iter().all(|address| address.ip().is_loopback()), "{addresses:?}");
        assert!(!addresses.is_empty());
        let names = LookUp::with(|_| Err(io::ErrorKind::NotFound.into()));
        assert_eq!(names.addresses("a").await.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[tokio::test]
    async fn a_resolver_that_hangs_holds_one_thread_and_no_other_back_end() {
        static HANGS: AtomicBool = AtomicBool::new(true);
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        let names = LookUp::with(|_| {
            THREADS.fetch_add(1, Ordering::SeqCst);
            while HANGS.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(1));
            }
            Ok(vec![([192, 0, 2, 1], 0).into()])
        });
        for _ in 0..5 {
            assert!(timeout(SHORT, names.addresses("db.example")).await.is_err());
        }
        assert_eq!(THREADS.load(Ordering::SeqCst), 1);
        for literal in ["192.0.2.7", "2001:db8::7"] {
            let address = names.addresses(literal).await.unwrap();
            assert_eq!(address[0].ip().to_string(), literal);
        }
        assert!(LookUp::default().addresses("localhost").await.is_ok(), "another back end");
        HANGS.store(false, Ordering::SeqCst);
        assert!(names.addresses("db.example").await.is_ok(), "it is used again");
    }

    #[tokio::test]
    async fn those_who_wait_share_one_result_for_the_same_name() {
        static CALLS: AtomicUsize = AtomicUsize::new(0);
        let names = LookUp::with(|host| {
            CALLS.fetch_add(1, Ordering::SeqCst);
            thread::sleep(SHORT);
            let last = host.bytes().map(|byte| byte - b'a').sum();
            Ok(vec![([192, 0, 2, last], 0).into()])
        });
        let found = |host| {
            let names = &names;
            async move { names.addresses(host).await.unwrap()[0].ip() }
        };
        let ip = |last| IpAddr::from([192, 0, 2, last]);
        let all = tokio::join!(found("a"), found("a"), found("b"), found("b"));
        assert_eq!(all, (ip(0), ip(0), ip(1), ip(1)));
        assert_eq!(CALLS.load(Ordering::SeqCst), 2);
        found("b").await;
        assert_eq!(CALLS.load(Ordering::SeqCst), 3, "no result is kept for later");
    }
}
