//! Verification of logins. It takes milliseconds by design, so it has threads of its own. Addresses take
//! turns, so a client that tries many passwords does not delay clients at other addresses.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Weak};
use std::thread;

use barid_engine::ids::ConnectionId;
use barid_engine::owner::Owner;
use hashbrown::HashMap;
use parking_lot::{Condvar, Mutex};

use crate::auth::{Users, Verdict};

/// Maximum number of waiting logins per verifying thread. Beyond it, a client is told that the server is
/// busy; otherwise it would wait for longer than its connection may take to open.
const WAITING_PER_THREAD: usize = 256;

/// The thread of a connection, as the threads that verify logins see it.
pub trait LoginOwner: Owner {
    /// Delivers the verdict on the login of a connection.
    fn authenticated(&self, connection: ConnectionId, verdict: Verdict);
}

/// A login to be verified.
pub struct Login {
    /// The users as they were when the client connected.
    pub users: Arc<Users>,
    /// Address of the client.
    pub address: IpAddr,
    /// The user name.
    pub name: String,
    /// The password.
    pub password: Vec<u8>,
    /// The client identifier.
    pub client_id: String,
    /// Dangling when the client does not wait for the verdict any more.
    pub waits: Weak<()>,
    /// The connection that sent the login.
    pub connection: ConnectionId,
    /// Receives the verdict. Not called if [`Verifier::submit`] refuses the login, or if the client does not
    /// wait any more.
    pub reply: Box<dyn FnOnce(Verdict) + Send>,
}

/// Threads that verify logins.
pub struct Verifier(Arc<Shared>);

struct Shared {
    queue: Mutex<Queue<Login>>,
    /// Notified when a login is queued, and when the queue is closed.
    changed: Condvar,
}

impl Verifier {
    /// Starts `threads` threads, which end when the verifier is dropped.
    pub fn start(threads: usize) -> Self {
        let queue = Mutex::new(Queue::new(WAITING_PER_THREAD * threads));
        let shared = Arc::new(Shared { queue, changed: Condvar::new() });
        for _ in 0..threads {
            let shared = Arc::clone(&shared);
            thread::Builder::new()
                .name("barid-login".into())
                .spawn(move || shared.verify_all())
                .expect("the operating system has room for a thread");
        }
        Self(shared)
    }

    /// Queues a login for verification. Returns false if the login is refused: too many wait, most of them
    /// from the same address. A login that is queued may displace another, whose client is told
    /// [`Verdict::Busy`].
    pub fn submit(&self, login: Login) -> bool {
        let connection = login.connection;
        let refused = self.0.queue.lock().push(login.address, login);
        let is_taken = refused.as_ref().is_none_or(|login| login.connection != connection);
        if is_taken {
            self.0.changed.notify_one();
            if let Some(login) = refused {
                (login.reply)(Verdict::Busy);
            }
        }
        is_taken
    }
}

impl Drop for Verifier {
    fn drop(&mut self) {
        self.0.queue.lock().is_closed = true;
        self.0.changed.notify_all();
    }
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verifier").finish_non_exhaustive()
    }
}

impl Shared {
    fn verify_all(&self) {
        while let Some(login) = self.next() {
            if login.waits.strong_count() > 0 {
                let verdict = login.users.verify(&login.name, &login.password, &login.client_id);
                (login.reply)(verdict);
            }
        }
    }

    /// Waits for the next login. Returns `None` when the queue is closed.
    fn next(&self) -> Option<Login> {
        let mut queue = self.queue.lock();
        while !queue.is_closed {
            match queue.pop() {
                None => self.changed.wait(&mut queue),
                login => return login,
            }
        }
        None
    }
}

/// A queue in which addresses take turns. If it is full, the address with the most items loses its last one.
struct Queue<T> {
    waiting: HashMap<IpAddr, VecDeque<T>>,
    /// The addresses that have waiting items, in the order of their turns.
    turns: VecDeque<IpAddr>,
    len: usize,
    most: usize,
    is_closed: bool,
}

impl<T> Queue<T> {
    fn new(most: usize) -> Self {
        Self { waiting: HashMap::new(), turns: VecDeque::new(), len: 0, most, is_closed: false }
    }

    /// Adds an item. Returns the item that does not fit, which may be a different one.
    fn push(&mut self, address: IpAddr, item: T) -> Option<T> {
        let address = network_of(address);
        let mut refused = None;
        if self.len >= self.most {
            let own = self.waiting.get(&address).map_or(0, VecDeque::len);
            let longest = self.waiting.iter().max_by_key(|(_, items)| items.len());
            let (longest, len) =
                longest.map_or((address, 0), |(address, items)| (*address, items.len()));
            // Refused unless the address with the most items keeps at least as many as this one gets. So no
            // address loses its only item: if every address has one, the newest would wait for longer than
            // its connection may take to open.
            if own + 1 >= len {
                return Some(item);
            }
            // The last item: those before it have waited longer.
            refused = self.waiting.get_mut(&longest).and_then(VecDeque::pop_back);
            self.len -= 1;
        }
        let items = self.waiting.entry(address).or_default();
        if items.is_empty() && !self.turns.contains(&address) {
            self.turns.push_back(address);
        }
        items.push_back(item);
        self.len += 1;
        refused
    }

    /// Takes the first item of the address whose turn it is.
    fn pop(&mut self) -> Option<T> {
        loop {
            let address = self.turns.pop_front()?;
            let Some(items) = self.waiting.get_mut(&address) else { continue };
            let item = items.pop_front();
            if items.is_empty() {
                self.waiting.remove(&address);
            } else {
                self.turns.push_back(address);
            }
            if item.is_some() {
                self.len -= 1;
                return item;
            }
        }
    }
}

/// Returns the /64 network of an IPv6 address, since a client with one of its addresses has all of them.
/// Returns an IPv4 address unchanged.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) >> 64 << 64;
            Ipv6Addr::from(network).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    fn all(queue: &mut Queue<u32>) -> Vec<u32> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn each_address_has_its_turn() {
        let mut queue = Queue::new(100);
        for number in 0..6 {
            assert_eq!(queue.push(address(1), number), None);
        }
        queue.push(address(2), 20);
        queue.push(address(3), 30);
        queue.push(address(3), 31);
        assert_eq!(all(&mut queue), [0, 20, 30, 1, 31, 2, 3, 4, 5]);
        assert_eq!((queue.len, queue.waiting.len(), queue.turns.len()), (0, 0, 0));
    }

    #[test]
    fn whoever_has_most_waiting_makes_room() {
        let mut queue = Queue::new(4);
        for number in 0..4 {
            assert_eq!(queue.push(address(1), number), None);
        }
        assert_eq!(queue.push(address(1), 4), Some(4), "its own, which came last");
        assert_eq!(queue.push(address(2), 20), Some(3));
        assert_eq!(queue.push(address(2), 21), Some(2));
        assert_eq!(queue.push(address(2), 22), Some(22), "both have as many");
        assert_eq!(all(&mut queue), [0, 20, 1, 21]);
        assert_eq!(queue.len, 0);
    }

    #[test]
    fn a_queue_without_room_takes_nothing() {
        let mut queue = Queue::new(0);
        assert_eq!(queue.push(address(1), 1), Some(1));
        assert_eq!(queue.pop(), None);
    }

    #[test]
    fn an_address_of_ipv6_is_a_network() {
        let network = |text: &str| network_of(text.parse().unwrap());
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:1"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_eq!(network("::ffff:192.0.2.1"), address(1));
        assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
    }
}
