//! Replication links: the objects of which all brokers have replicas, users and other managed objects and retained
//! messages.
//!
//! The speaker tells changes that were made at its broker at once. When the link is opened, and from time to time, it sends
//! the digests of its objects; the hearer lists its objects in the parts that differ, and the speaker sends those of which
//! it has a later change. What the hearer has that is later comes over the link in the other direction.

use std::sync::Arc;
use std::time::Duration;

use barid_engine::cluster::MemberRef;
use barid_engine::replicating::ObjectName;
use barid_peers::{
    Comparing, Comparison, Frame, FrameError, HandshakeError, Identity, Listed, Parts, Purpose,
    decode,
};
use mqtt_proto::MAX_PACKET_LEN;
use tokio::io::AsyncReadExt as _;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, warn};

use super::Peering;
use super::greeting::{Greeted, NoLink, send};
use crate::cluster::LinkStream;

/// Maximum length of a frame: a retained message of the maximum length, with names.
const FRAME_MAX: usize = MAX_PACKET_LEN + 256 * 1024;

/// Time between two attempts to open a replication link.
const AGAIN: Duration = Duration::from_millis(250);

/// Time between two comparisons.
const COMPARED_EVERY: Duration = Duration::from_secs(10);

/// Number of bytes that are collected before they are sent.
const TOGETHER: usize = 64 * 1024;

/// Keeps a replication link to another broker open, as long as that is a member.
pub async fn replicate(peering: Arc<Peering>, peer: Identity) {
    let clustering = &peering.clustering;
    while clustering.is_member(&peer) && !peering.stop.has_stopped() {
        match peering.dial(&peer.address, Purpose::Replication).await {
            Ok(greeted) => {
                let place = clustering.place(&peer.name).expect("a member has a place");
                let mut speaker = Speaker::new(&peering, greeted, place);
                if let Err(error) = speaker.speak().await {
                    debug!(broker = peer.name, %error, "a replication link has ended");
                }
            }
            Err(error) => debug!(broker = peer.name, %error, "no replication link"),
        }
        sleep(AGAIN).await;
    }
}

/// The side of a link that sends objects.
struct Speaker<'a> {
    peering: &'a Arc<Peering>,
    place: MemberRef,
    stream: LinkStream,
    unread: Vec<u8>,
    out: Vec<u8>,
    record: Vec<u8>,
    changed: Receiver<Arc<ObjectName>>,
}

impl<'a> Speaker<'a> {
    fn new(peering: &'a Arc<Peering>, greeted: Greeted, place: MemberRef) -> Self {
        let Greeted { stream, unread, .. } = greeted;
        // Before the first comparison, so that no change falls between the two.
        let changed = peering.clustering.changed.subscribe();
        let (out, record) = Default::default();
        Self { peering, place, stream, unread, out, record, changed }
    }

    /// Sends changes and compares, until the link ends.
    async fn speak(&mut self) -> Result<(), NoLink> {
        self.compare(Comparison::First).await?;
        Frame::Compared.encode(&mut self.out);
        self.send(0).await?;
        let (mut stop, mut lives) =
            (self.peering.stop.clone(), self.peering.clustering.lives.subscribe());
        let mut compare_at = Instant::now() + COMPARED_EVERY;
        loop {
            tokio::select! {
                change = self.changed.recv() => self.tell(change).await?,
                () = sleep_until(compare_at) => {
                    self.compare(Comparison::Again).await?;
                    compare_at = Instant::now() + COMPARED_EVERY;
                }
                // The hearer says nothing of its own accord, so this is the end.
                read = self.stream.read_buf(&mut self.unread) => match read? {
                    0 => return Ok(()),
                    _ => return Err(broken(FrameError::Unexpected)),
                },
                _ = lives.changed() => return Ok(()),
                () = stop.stopped() => return Ok(()),
            }
        }
    }

    /// Sends a change, and those after it.
    async fn tell(&mut self, first: Result<Arc<ObjectName>, RecvError>) -> Result<(), NoLink> {
        // The next comparison finds the changes that a lagging link has missed.
        let mut next = first.ok();
        while let Some(object) = next {
            self.put(&object);
            self.send(TOGETHER).await?;
            next = self.changed.try_recv().ok();
        }
        self.send(0).await
    }

    /// Compares the replicas with those of the hearer, and sends those that are later here.
    async fn compare(&mut self, why: Comparison) -> Result<(), NoLink> {
        let mut comparison = why;
        loop {
            let engine = Arc::clone(&self.peering.shared.engine);
            let taken_at = engine.clock.wall_micros();
            let digests = engine.replicated.digest().to_bytes();
            Frame::Digests { comparison, digests: &digests }.encode(&mut self.out);
            self.send(0).await?;
            let Listing { differing, listed, objects, has_more } = self.listing().await?;
            let replicas = self.peering.clustering.engine().replicas(self.place);
            replicas.compared(engine.clock.now(), taken_at, &differing);
            if !listed.is_empty() {
                let later = spawn_blocking(move || {
                    let theirs = objects.into_iter().map(|it| (it.object, it.stamp)).collect();
                    engine.later_replicas(&listed, &theirs)
                });
                for object in later.await.expect("the search for later objects does not fail") {
                    self.put(&object);
                    self.send(TOGETHER).await?;
                }
                self.send(0).await?;
            }
            if !has_more {
                return Ok(());
            }
            comparison = Comparison::Next;
        }
    }

    /// Reads the answer to digests.
    async fn listing(&mut self) -> Result<Listing, NoLink> {
        let mut stop = self.peering.stop.clone();
        loop {
            match decode(&self.unread, FRAME_MAX).map_err(broken)? {
                Some((Frame::Listing { differing, listed, has_more, objects }, len)) => {
                    let objects = Listed::decode_all(objects).map_err(broken)?.collect();
                    self.unread.drain(..len);
                    return Ok(Listing { differing, listed, objects, has_more });
                }
                Some(_) => return Err(broken(FrameError::Unexpected)),
                None => {}
            }
            let read = tokio::select! {
                read = self.stream.read_buf(&mut self.unread) => read?,
                () = stop.stopped() => 0,
            };
            if read == 0 {
                return Err(broken(FrameError::CutOff));
            }
        }
    }

    /// Adds an object as it is now, if it or its tombstone is there.
    fn put(&mut self, name: &ObjectName) {
        let Self { peering, place, out, record, .. } = self;
        record.clear();
        let object = name.as_object();
        if peering.shared.engine.encode_replica(object, record) {
            Frame::Object { object, record }.encode(out);
            peering.clustering.engine().replicas(*place).sent();
        }
    }

    /// Sends what was collected, if it is more than this.
    async fn send(&mut self, least: usize) -> Result<(), NoLink> {
        if self.out.len() > least {
            send(&mut self.stream, &self.out).await?;
            self.out.clear();
            self.out.shrink_to(TOGETHER);
        }
        Ok(())
    }
}

/// What the hearer has in the parts that differ.
struct Listing {
    differing: Parts,
    listed: Parts,
    objects: Vec<Listed>,
    has_more: bool,
}

/// Takes the objects of another broker over a link that it has opened, until it ends.
pub async fn take_replicas(
    peering: &Peering,
    greeted: Greeted,
    place: MemberRef,
) -> Result<(), NoLink> {
    let Greeted { mut stream, unread: mut bytes, outcome } = greeted;
    let (mut stop, mut lives) = (peering.stop.clone(), peering.clustering.lives.subscribe());
    let mut comparing = Comparing::default();
    loop {
        let mut handled = 0;
        while let Some((frame, len)) = decode(&bytes[handled..], FRAME_MAX).map_err(broken)? {
            handled += len;
            if !peering.clustering.is_member(&outcome.peer) {
                return Ok(());
            }
            let replicas = peering.clustering.engine().replicas(place);
            match frame {
                Frame::Object { object, record } => {
                    match peering.shared.engine.merge_replica(object, record) {
                        Ok(true) => replicas.received(),
                        Ok(false) => {}
                        Err(error) => {
                            let broker = &outcome.peer.name;
                            warn!(broker, "an object of another broker cannot be read: {error}");
                            return Err(broken(FrameError::Value));
                        }
                    }
                }
                Frame::Digests { comparison, digests } => {
                    let answer = list(peering, &mut comparing, comparison, digests).await?;
                    send(&mut stream, &answer).await?;
                }
                Frame::Compared => replicas.told(),
                _ => return Err(broken(FrameError::Unexpected)),
            }
        }
        bytes.drain(..handled);
        tokio::select! {
            read = stream.read_buf(&mut bytes) => if read? == 0 { return Ok(()) },
            _ = lives.changed() => return Ok(()),
            () = stop.stopped() => return Ok(()),
        }
    }
}

/// Returns the answer to digests: the parts that differ, and the objects in them.
async fn list(
    peering: &Peering,
    comparing: &mut Comparing,
    comparison: Comparison,
    digests: &[u8],
) -> Result<Vec<u8>, NoLink> {
    let engine = Arc::clone(&peering.shared.engine);
    let digest = engine.replicated.digest();
    let differing = digest.differing(digests).map_err(broken)?;
    let (listed, has_more) = comparing.compare(comparison, differing, digest.objects());
    let mut objects = Vec::new();
    if !listed.is_empty() {
        let found = spawn_blocking(move || engine.list_replicas(&listed));
        let found = found.await.expect("the list of objects does not fail");
        found.into_iter().for_each(|one| one.encode(&mut objects));
    }
    let mut answer = Vec::new();
    Frame::Listing { differing, listed, has_more, objects: &objects }.encode(&mut answer);
    Ok(answer)
}

fn broken(error: FrameError) -> NoLink {
    HandshakeError::from(error).into()
}
