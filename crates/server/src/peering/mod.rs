//! The links to the other brokers of the cluster.
//!
//! One thread with a runtime has a task for each address of another broker, and one for each link that another broker
//! opens. It hands message links to the IO threads when their handshake is over.
//!
//! | file | what is there |
//! | --- | --- |
//! | `encryption.rs` | TLS between brokers |
//! | `greeting.rs` | the handshake over a socket |
//! | `control.rs` | the control links, in both directions |
//! | `carrying.rs` | the message links of the IO threads |
//! | `replicating.rs` | the replication links: the objects of which all brokers have replicas |
//! | `moving.rs` | the move links: slots that change their broker |
//! | `relaying.rs` | the client links: clients that have their sessions at another broker |

mod carrying;
mod control;
mod encryption;
mod greeting;
mod moving;
mod relaying;
mod replicating;

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use barid_engine::lanes::Lanes;
use barid_peers::{Event, Identity, Members, Purpose, Timing};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tracing::{debug, warn};

use crate::cluster::Clustering;
use crate::descriptors::Descriptors;
use crate::event_loop::IoThreads;
use crate::listener::Bound;
use crate::shared::Shared;
use crate::system;
use carrying::{carry, hand_in};
use control::{hear, speak};
pub use encryption::LinkEncryption;
use greeting::{Greeted, NoLink, answer, dial};
pub use moving::settle;
use moving::{move_slots, settle_slots, take_slots};
use relaying::{open_links, take_over};
use replicating::{replicate, take_replicas};

/// Maximum number of handshakes at a time with brokers that open links.
const GREETED_TOGETHER: usize = 1_024;

/// Time between two attempts to reach a broker.
const AGAIN: Duration = Duration::from_millis(500);

/// Time between two attempts when the broker at an address is reached over another one, or is refused.
const LATER: Duration = Duration::from_secs(5);

/// The time that links have at the end to say that the broker leaves.
const FAREWELL: Duration = Duration::from_secs(1);

/// The address for other brokers, bound but not listening.
pub struct BoundCluster {
    bound: Bound,
    encryption: LinkEncryption,
}

/// The address for other brokers, listening, and the runtime that is to serve it.
pub struct ListeningCluster {
    listener: TcpListener,
    encryption: LinkEncryption,
    runtime: Runtime,
}

/// The running thread of the cluster.
pub struct ClusterThread {
    encryption: LinkEncryption,
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
}

/// Waits for the end of the broker.
#[derive(Clone)]
pub struct Stop(watch::Receiver<bool>);

/// What all tasks of the thread share.
pub struct Peering {
    clustering: Arc<Clustering>,
    shared: Arc<Shared>,
    lanes: Lanes,
    threads: IoThreads,
    descriptors: Descriptors,
    encryption: LinkEncryption,
    /// The addresses in the configuration.
    configured: Vec<String>,
    /// The addresses that have a task, which is woken when the broker there has said hello: it can be reached now.
    addresses: Mutex<HashMap<String, Arc<Notify>>>,
    /// The brokers to which there is a control link, and those whose message links have tasks.
    spoken_to: Mutex<HashSet<String>>,
    carried: Mutex<HashSet<(String, u64)>>,
    stop: Stop,
}

impl BoundCluster {
    /// Binds the address.
    pub fn to(address: SocketAddr, encryption: LinkEncryption) -> io::Result<Self> {
        Ok(Self { bound: Bound::to(address)?, encryption })
    }

    /// Returns the bound address.
    pub fn address(&self) -> SocketAddr {
        self.bound.address()
    }

    /// Starts to listen. Links wait until the thread has been started.
    pub fn listen(self) -> io::Result<ListeningCluster> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _entered = runtime.enter();
            TcpListener::from_std(self.bound.listen()?)?
        };
        Ok(ListeningCluster { listener, encryption: self.encryption, runtime })
    }
}

impl ListeningCluster {
    /// Starts the thread, which also opens links to `peers`.
    pub fn start(
        self,
        clustering: Arc<Clustering>,
        (shared, lanes): (Arc<Shared>, Lanes),
        threads: IoThreads,
        descriptors: Descriptors,
        peers: Vec<String>,
    ) -> ClusterThread {
        let Self { listener, encryption, runtime } = self;
        let (stop, stopped) = watch::channel(false);
        let peering = Arc::new(Peering {
            clustering,
            shared,
            lanes,
            threads,
            descriptors,
            encryption: encryption.clone(),
            configured: peers,
            addresses: Mutex::default(),
            spoken_to: Mutex::default(),
            carried: Mutex::default(),
            stop: Stop(stopped),
        });
        let thread = thread::Builder::new()
            .name("barid-cluster".into())
            .spawn(move || run(&runtime, &peering, listener))
            .expect("the operating system has room for a thread");
        ClusterThread { encryption, stop, thread }
    }
}

impl ClusterThread {
    /// The TLS of the links.
    pub fn encryption(&self) -> &LinkEncryption {
        &self.encryption
    }

    /// Tells the other brokers that this one leaves, and ends the thread.
    pub fn stop(self) {
        self.stop.send_replace(true);
        let _ = self.thread.join();
    }
}

impl Stop {
    fn has_stopped(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits for the end of the broker.
    pub async fn stopped(&mut self) {
        let _ = self.0.wait_for(|stopped| *stopped).await;
    }
}

fn run(runtime: &Runtime, peering: &Arc<Peering>, listener: TcpListener) {
    runtime.block_on(async {
        tokio::spawn(listen(Arc::clone(peering), listener));
        if let Some(wanted) = peering.clustering.relays.take_wanted() {
            tokio::spawn(open_links(Arc::clone(peering), wanted));
        }
        if let Some(wanted) = peering.clustering.moves.take_wanted() {
            tokio::spawn(move_slots(Arc::clone(peering), wanted));
            tokio::spawn(settle_slots(Arc::clone(peering)));
        }
        for address in &peering.configured {
            peering.reach(address.clone());
        }
        let mut ticks = interval(Timing::default().heartbeat);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stop = peering.stop.clone();
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = stop.stopped() => break,
            }
            peering.clustering.tick(&peering.shared.engine);
            for address in peering.known_addresses() {
                peering.reach(address);
            }
        }
        let farewell = async {
            while !peering.spoken_to.lock().is_empty() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        let _ = timeout(FAREWELL, farewell).await;
    });
}

impl Peering {
    fn change(
        &self,
        change: impl FnOnce(&mut Members, barid_core::time::MonoTime, &mut Vec<Event>),
    ) {
        self.clustering.change(&self.shared.engine, change);
    }

    /// Opens a link to the broker at an address.
    async fn dial(&self, address: &str, purpose: Purpose) -> Result<Greeted, NoLink> {
        let (me, secret) = (self.clustering.me(), &self.clustering.secret);
        dial((address, &self.encryption), me, purpose, secret, system::RANDOM).await
    }

    /// The addresses of all brokers that are in the cluster. One that is down or has left comes back by itself.
    fn known_addresses(&self) -> Vec<String> {
        let members = self.clustering.membership.members();
        let others = members.others().filter(|member| member.state.is_in_cluster());
        let others = others.map(|member| member.identity.address.as_str());
        others.chain(members.named()).map(str::to_owned).collect()
    }

    /// Whether there is to be a link to an address: it is in the configuration, or that of a broker in the cluster.
    /// Otherwise its task is to end.
    fn is_wanted(&self, address: &str) -> bool {
        let is_wanted = self.configured.iter().any(|known| known == address)
            || self.known_addresses().iter().any(|known| known == address);
        if !is_wanted {
            self.addresses.lock().remove(address);
            self.clustering.note_success(address);
        }
        is_wanted
    }

    /// Starts a task for an address that has none.
    fn reach(self: &Arc<Self>, address: String) {
        let mut addresses = self.addresses.lock();
        if !addresses.contains_key(&address) {
            let said_hello = Arc::default();
            addresses.insert(address.clone(), Arc::clone(&said_hello));
            tokio::spawn(keep_speaking(Arc::clone(self), address, said_hello));
        }
    }

    /// The broker at an address has said hello, so there should be a link to it as well.
    fn reach_back(self: &Arc<Self>, address: &str) {
        self.reach(address.to_owned());
        if let Some(said_hello) = self.addresses.lock().get(address) {
            said_hello.notify_one();
        }
    }

    /// Starts tasks for the message links and the replication link to a broker.
    fn carry_to(self: &Arc<Self>, peer: &Identity) {
        let mut carried = self.carried.lock();
        carried
            .retain(|(name, incarnation)| *name != peer.name || *incarnation == peer.incarnation);
        if carried.insert((peer.name.clone(), peer.incarnation)) {
            tokio::spawn(replicate(Arc::clone(self), peer.clone()));
            for thread in (0..).take(self.threads.iter().count()) {
                tokio::spawn(carry(Arc::clone(self), peer.clone(), thread));
            }
        }
    }
}

/// Keeps a control link to the broker at an address.
async fn keep_speaking(peering: Arc<Peering>, address: String, said_hello: Arc<Notify>) {
    let stop = peering.stop.clone();
    loop {
        let incarnation = peering.clustering.me().incarnation;
        if stop.has_stopped() || !peering.is_wanted(&address) {
            return;
        }
        let pause = match speak_to(&peering, &address).await {
            Ok(true) => {
                peering.clustering.note_success(&address);
                AGAIN
            }
            Ok(false) => LATER,
            Err(error) if error.is_itself() => {
                peering.clustering.note_success(&address);
                return;
            }
            Err(error) => {
                if error.is_refused() {
                    peering
                        .change(|members, now, events| members.on_refused(now, &address, events));
                }
                if error.is_condemned() {
                    let (clustering, engine) = (&peering.clustering, &peering.shared.engine);
                    let watching = clustering.watching(engine);
                    clustering.membership.condemned(engine, &address, incarnation, &watching);
                }
                peering.clustering.note_problem(&address, &error.to_string());
                if error.is_lasting() { LATER } else { AGAIN }
            }
        };
        tokio::select! {
            () = sleep(pause) => {}
            () = said_hello.notified() => {}
        }
    }
}

/// Opens a control link to an address, and speaks until it ends. Returns false if there is one to the same broker.
async fn speak_to(peering: &Arc<Peering>, address: &str) -> Result<bool, NoLink> {
    let clustering = &peering.clustering;
    let greeted = peering.dial(address, Purpose::Control).await?;
    let peer = greeted.outcome.peer.clone();
    clustering.admits(&peer).map_err(barid_peers::HandshakeError::Refuses)?;
    if !peering.spoken_to.lock().insert(peer.name.clone()) {
        return Ok(false);
    }
    clustering.note_success(address);
    clustering.on_hello(&peering.shared.engine, &peer);
    peering.carry_to(&peer);
    let place = clustering.place(&peer.name).expect("a member has a place");
    let stop = peering.stop.clone();
    let ended = speak(clustering, &peering.shared.engine, greeted, place, stop).await;
    peering.spoken_to.lock().remove(&peer.name);
    ended.map(|()| true)
}

/// Accepts the links that other brokers open.
async fn listen(peering: Arc<Peering>, listener: TcpListener) {
    let greeting = Arc::new(Semaphore::new(GREETED_TOGETHER));
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                // Beyond the bound, a connection is closed at once: the other broker tries again.
                let Ok(permit) = Arc::clone(&greeting).try_acquire_owned() else { continue };
                let peering = Arc::clone(&peering);
                tokio::spawn(async move {
                    let greeted = greet(&peering, stream).await;
                    drop(permit);
                    if let Err(error) = serve(&peering, greeted).await {
                        match error {
                            // An address of this broker may be among `peers`.
                            error if error.is_own() => {}
                            error if error.is_lasting() => warn!(%from, "refused a link: {error}"),
                            error => debug!(%from, %error, "a link of another broker has ended"),
                        }
                    }
                });
            }
            Err(error) => {
                warn!(%error, "cannot accept links of other brokers");
                sleep(AGAIN).await;
            }
        }
    }
}

async fn greet(peering: &Arc<Peering>, stream: TcpStream) -> Result<Greeted, NoLink> {
    let clustering = &peering.clustering;
    let admit = |outcome: &barid_peers::Outcome| clustering.admits(&outcome.peer);
    answer(
        (stream, &peering.encryption),
        clustering.me(),
        &clustering.secret,
        system::RANDOM,
        admit,
    )
    .await
}

async fn serve(peering: &Arc<Peering>, greeted: Result<Greeted, NoLink>) -> Result<(), NoLink> {
    let greeted = greeted?;
    let (clustering, peer) = (&peering.clustering, &greeted.outcome.peer);
    match greeted.outcome.purpose {
        Purpose::Control => {
            let place = clustering.place(&peer.name).expect("a member has a place");
            peering.reach_back(&peer.address);
            hear(clustering, &peering.shared.engine, greeted, place, peering.stop.clone()).await
        }
        Purpose::Messages(thread) => {
            clustering.on_hello(&peering.shared.engine, peer);
            hand_in(peering, thread, greeted)
        }
        Purpose::Client => take_over(peering, greeted).await,
        Purpose::Move => take_slots(peering, greeted).await,
        Purpose::Replication => {
            clustering.on_hello(&peering.shared.engine, peer);
            let place = clustering.place(&peer.name).expect("a member has a place");
            take_replicas(peering, greeted, place).await
        }
    }
}
