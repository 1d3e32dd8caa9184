//! The side of the broker that has the slot.

use std::sync::Arc;
use std::time::Duration;

use barid_core::commits::Commits;
use barid_engine::cluster::{Hold, Moved, Owner, Slots};
use barid_engine::engine::Engine;
use barid_engine::managed::ManagedKind;
use barid_engine::moving::{Leaving, Records, forget, homes_have_changed, remove, stay};
use barid_peers::{Frame, FrameError, HandshakeError, Purpose, State, decode};
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};
use tracing::{error, info, warn};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    AGAIN, COUNTS_FOR, FRAME_MAX, HEARD_WITHIN, HELD_AT_MOST, HOLD, PART, RECORDS_MAX,
    RENEWED_EVERY, broken, drain, wait_until_durable,
};
use crate::cluster::{Clustering, Given, LinkStream, NotMoved, WantedMove, stored};
use crate::peering::Peering;
use crate::peering::greeting::{Greeted, NoLink, send};

/// Time in which the clients of a slot must have gone.
const QUIET_WITHIN: Duration = Duration::from_secs(5);

/// Time for a step of the other broker that writes to its disk.
const STEP_WITHIN: Duration = Duration::from_secs(60);

/// Moves slots until the broker ends, one at a time.
pub async fn move_slots(peering: Arc<Peering>, mut wanted: mpsc::Receiver<WantedMove>) {
    while let Some(WantedMove { slot, to, reply }) = wanted.recv().await {
        let outcome = give(&peering, slot, &to).await;
        match &outcome {
            Ok(given) => info!(
                slot,
                to,
                generation = given.generation,
                sessions = given.sessions,
                bytes = given.bytes,
                closed_ms = given.closed_ms,
                held_ms = given.held_ms,
                "a slot was moved to another broker"
            ),
            Err(reason) => warn!(slot, to, "a slot was not moved: {reason}"),
        }
        let _ = reply.send(outcome);
    }
}

/// Gives a slot to another broker.
async fn give(peering: &Arc<Peering>, slot: u16, to: &str) -> Result<Given, NotMoved> {
    let clustering = &peering.clustering;
    let slots = clustering.slots().ok_or_else(|| NotMoved::NotUp(to.into()))?;
    let others = check(clustering, slots, slot, to)?;
    if !slots.close(slot) {
        return Err(NotMoved::Busy(slot));
    }
    clustering.moves.begin(slot, to);
    let mut giving = Giving {
        peering,
        slots,
        slot,
        to,
        generation: slots.place(slot).generation + 1,
        closed_at: Instant::now(),
        held_at: None,
        own: None,
        target: None,
        links: Vec::new(),
        left: None,
        is_unreadable: false,
    };
    let mut outcome = match giving.prepare(others).await {
        Ok(()) => giving.decide().await,
        Err(reason) => Err(reason),
    };
    if outcome.is_err() {
        giving.stay().await;
    }
    giving.links.clear();
    drop((giving.target.take(), giving.own.take()));
    if let (Ok(given), Some(at)) = (&mut outcome, giving.held_at) {
        given.held_ms = millis(at);
        clustering.moves.count_gone();
        giving.remove().await;
    }
    clustering.moves.end(slot);
    clustering.moves.changed.send_replace(());
    outcome.map_err(NotMoved::Failed)
}

/// Checks whether a slot can be moved. Returns the names and the addresses of the brokers that are to hold.
fn check(
    clustering: &Clustering,
    slots: &Slots,
    slot: u16,
    to: &str,
) -> Result<Vec<(String, String)>, NotMoved> {
    match slots.owner(slot) {
        Owner::Here if to == clustering.name() => return Err(NotMoved::Already(slot, to.into())),
        Owner::Here => {}
        Owner::Closed => return Err(NotMoved::Busy(slot)),
        Owner::Elsewhere(broker) => return Err(NotMoved::NotHere(slot, broker.to_string())),
    }
    let members = clustering.membership.members();
    let mut others = Vec::new();
    for member in members.others() {
        let name = &member.identity.name;
        match member.state {
            State::Up => others.push((name.clone(), member.identity.address.clone())),
            State::Joining => return Err(NotMoved::Unsettled(name.clone(), "joining")),
            State::Unreachable => return Err(NotMoved::Unsettled(name.clone(), "unreachable")),
            State::Down | State::Left => {}
        }
    }
    let is_up = others.iter().any(|(name, _)| name == to);
    is_up.then_some(others).ok_or_else(|| NotMoved::NotUp(to.into()))
}

/// A slot on its way to another broker.
struct Giving<'a> {
    peering: &'a Arc<Peering>,
    slots: &'a Arc<Slots>,
    slot: u16,
    to: &'a str,
    generation: u64,
    closed_at: Instant,
    held_at: Option<Instant>,
    /// The hold of this broker.
    own: Option<Hold>,
    /// The broker that is to get the slot. It renews its hold by itself as long as it has work to do.
    target: Option<MoveLink>,
    /// The other brokers.
    links: Vec<MoveLink>,
    /// The contents of the slot, which are in the store only, and their records.
    left: Option<(Arc<Leaving>, Arc<Records>)>,
    /// Whether the contents cannot be read from the store.
    is_unreadable: bool,
}

impl Giving<'_> {
    /// Does all that comes before the decision.
    async fn prepare(&mut self, others: Vec<(String, String)>) -> Result<(), String> {
        let leaving = self.disconnect().await?;
        for (name, address) in others {
            let greeted = self.peering.dial(&address, Purpose::Move).await;
            let greeted = greeted.map_err(|error| format!("no link to {name}: {error}"))?;
            let link = MoveLink::new(name, greeted);
            match link.name == self.to {
                true => self.target = Some(link),
                false => self.links.push(link),
            }
        }
        self.hold().await?;
        let (engine, of) = (self.engine(), Arc::clone(&leaving));
        let left = spawn_blocking(move || {
            of.leave(&engine);
            wait_until_durable(&engine, &engine.shards.last_changes());
            // Keys may have expired since the others began to hold.
            let is_drained = drain(&engine);
            of.read(&engine).map(|records| (records, is_drained))
        });
        let (records, held) = self.meanwhile(left).await;
        self.is_unreadable = !matches!(records, Ok(Ok(_)));
        let records = records.map_err(|error| error.to_string())?;
        let (records, is_drained) = records.map_err(|error| error.to_string())?;
        let records = Arc::new(records);
        self.left = Some((leaving, Arc::clone(&records)));
        held?;
        if !is_drained {
            return Err("notifications to other brokers are not acknowledged".into());
        }
        if records.as_bytes().len() > RECORDS_MAX {
            return Err(too_large(records.as_bytes().len()));
        }
        self.stage(&records).await
    }

    /// Disconnects the clients of the slot, and waits until they have gone.
    async fn disconnect(&self) -> Result<Arc<Leaving>, String> {
        let (engine, slots, slot) = (self.engine(), Arc::clone(self.slots), self.slot);
        let gone = spawn_blocking(move || {
            // A session that began before the slot was closed is there when the rounds have ended.
            engine.wait_for_rounds();
            let leaving = Leaving::of(&engine, &slots, slot);
            if leaving.bytes() > RECORDS_MAX {
                return Err(too_large(leaving.bytes()));
            }
            let until = std::time::Instant::now() + QUIET_WITHIN;
            while std::time::Instant::now() < until {
                leaving.disconnect();
                if leaving.is_quiet() {
                    return Ok(Arc::new(leaving));
                }
                std::thread::sleep(AGAIN);
            }
            Err(format!("clients have not gone within {} s", QUIET_WITHIN.as_secs()))
        });
        gone.await.map_err(|error| error.to_string())?
    }

    /// Has all brokers hold, this one included.
    async fn hold(&mut self) -> Result<(), String> {
        self.held_at = Some(Instant::now());
        let engine = self.engine();
        let cluster = engine.cluster.as_ref().expect("there are other brokers");
        self.own = Some(cluster.hold(self.slot, engine.clock.now().after(HOLD)));
        for link in self.target.iter_mut().chain(&mut self.links) {
            link.ask_to_hold(self.slot).await?;
        }
        let here = Arc::clone(&engine);
        let drained = spawn_blocking(move || drain(&here)).await;
        for link in self.target.iter_mut().chain(&mut self.links) {
            link.held().await?;
        }
        // Others may have sent something before they held, which has led to something here.
        let then = spawn_blocking(move || drain(&engine)).await;
        match (drained, then) {
            (Ok(true), Ok(true)) => Ok(()),
            _ => Err("messages to other brokers are not acknowledged".into()),
        }
    }

    /// Sends the records to the target, which writes them to its disk.
    async fn stage(&mut self, records: &Records) -> Result<(), String> {
        let mut target = self.target.take().ok_or("it is not up any more")?;
        let bytes = records.as_bytes();
        let (slot, generation, hash) = (self.slot, self.generation, xxh3_64(bytes));
        let staged = async {
            for part in bytes.chunks(PART) {
                target.say(&Frame::Part(part)).await?;
            }
            target.say(&Frame::Stage { slot, generation, hash }).await?;
            target.hears(&Heard::Staged).await?;
            Ok::<_, String>(target)
        };
        let (staged, held) = self.meanwhile(staged).await;
        self.target = Some(staged?);
        held
    }

    /// Decides that the slot belongs to the target, and has it take it over.
    async fn decide(&mut self) -> Result<Given, String> {
        self.renew().await?;
        let (leaving, records) = self.left.clone().ok_or("nothing has left")?;
        let engine = self.engine();
        let moved = Moved { broker: self.to.into(), generation: self.generation };
        let (decided_by, slot) = (Arc::clone(&engine), self.slot);
        let decided = spawn_blocking(move || {
            let mut commits = Commits::default();
            let text = stored(&moved);
            let put =
                decided_by.managed.put(ManagedKind::Slot, &slot.to_string(), text, &mut commits);
            put.map(|_| wait_until_durable(&decided_by, &commits)).map_err(|it| it.to_string())
        });
        // From here on nothing may be given up: the decision may be on the disk.
        let (decided, held) = self.meanwhile(decided).await;
        decided.map_err(|error| error.to_string())??;
        self.warn_unless(held);
        let is_active = match self.activate().await {
            Ok(()) => true,
            Err(reason) => {
                warn!(slot, to = self.to, "the broker has a slot and has not said so: {reason}");
                false
            }
        };
        let (of, slots) = (Arc::clone(&leaving), Arc::clone(self.slots));
        let here = Arc::clone(&engine);
        let forgotten = spawn_blocking(move || forget(&here, &of, slots.me()));
        let (forgotten, held) = self.meanwhile(forgotten).await;
        self.warn_unless(held);
        if let Err(error) = forgotten {
            error!(slot, "cannot forget a slot that was moved: {error}");
        }
        self.tell_others().await;
        Ok(Given {
            generation: self.generation,
            sessions: leaving.sessions(),
            bytes: records.as_bytes().len(),
            closed_ms: millis(self.closed_at),
            held_ms: 0,
            is_active,
        })
    }

    /// Removes the records of the slot, which is elsewhere. Nobody waits for that, but the slot must not come back before.
    async fn remove(&mut self) {
        let Some((_, records)) = self.left.take() else { return };
        let (engine, slots, slot) = (self.engine(), Arc::clone(self.slots), self.slot);
        let removed = spawn_blocking(move || {
            let removed = remove(&engine, &records);
            wait_until_durable(&engine, &engine.shards.last_changes());
            slots.open(slot);
            removed
        });
        if let Ok(Err(reason)) = removed.await {
            warn!(slot, "cannot remove what is left of a slot that was moved: {reason}");
        }
    }

    /// Tells the target to put the contents in force.
    async fn activate(&mut self) -> Result<(), String> {
        let mut target = self.target.take().ok_or("it is not up any more")?;
        let activate = Frame::Activate { slot: self.slot, generation: self.generation };
        let active = async {
            target.say(&activate).await?;
            target.hears(&Heard::Active).await?;
            Ok::<_, String>(target)
        };
        let (active, held) = self.meanwhile(active).await;
        self.warn_unless(held);
        self.target = Some(active?);
        Ok(())
    }

    /// Waits until all others know where the slot is: what their clients ask from now on goes there.
    async fn tell_others(&mut self) {
        let activate = Frame::Activate { slot: self.slot, generation: self.generation };
        let mut links = std::mem::take(&mut self.links);
        let told = timeout(HEARD_WITHIN, async {
            for link in &mut links {
                link.problem = link.say(&activate).await.err();
            }
            for link in links.iter_mut().filter(|link| link.problem.is_none()) {
                link.problem = link.hears(&Heard::Active).await.err();
            }
        });
        if told.await.is_err() {
            self.warn_unless(Err("a broker does not say that it knows where the slot is".into()));
        }
        for problem in links.into_iter().filter_map(|link| link.problem) {
            self.warn_unless(Err(problem));
        }
    }

    /// Lets the slot stay.
    async fn stay(&mut self) {
        let (engine, slots, slot) = (self.engine(), Arc::clone(self.slots), self.slot);
        if self.is_unreadable {
            error!(
                slot,
                "the contents of a slot cannot be read: it takes no clients until the broker starts again"
            );
            return;
        }
        let left = self.left.take();
        let back = spawn_blocking(move || {
            let back = left.map_or(Ok(0), |(leaving, records)| stay(&engine, &leaving, &records));
            slots.open(slot);
            homes_have_changed(&engine);
            back
        });
        if let Ok(Err(reason)) = back.await {
            error!(slot, "the contents of a slot are not back before the next start: {reason}");
        }
    }

    /// Renews the holds until something is done. Returns its outcome, and whether all brokers have held until then.
    async fn meanwhile<T>(&mut self, work: impl Future<Output = T>) -> (T, Result<(), String>) {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return (done, Ok(())),
                () = sleep(RENEWED_EVERY) => {
                    if let Err(reason) = self.renew().await {
                        return (work.await, Err(reason));
                    }
                }
            }
        }
    }

    /// After the decision there is no way back.
    fn warn_unless(&self, held: Result<(), String>) {
        if let Err(reason) = held {
            warn!(slot = self.slot, "a broker does not hold while a slot is moved: {reason}");
        }
    }

    async fn renew(&mut self) -> Result<(), String> {
        if self.held_at.is_some_and(|at| at.elapsed() > HELD_AT_MOST) {
            return Err(format!("it takes longer than {} s", HELD_AT_MOST.as_secs()));
        }
        let now = self.engine().clock.now();
        if self.own.as_ref().is_some_and(|own| !own.extend(now, now.after(HOLD))) {
            return Err("this broker has not held long enough".into());
        }
        // The target renews its hold while it has work to do. Then its link is not here.
        for link in self.target.iter_mut().chain(&mut self.links) {
            link.ask_to_hold(self.slot).await?;
        }
        for link in self.target.iter_mut().chain(&mut self.links) {
            link.held().await?;
        }
        Ok(())
    }

    fn engine(&self) -> Arc<Engine> {
        Arc::clone(&self.peering.shared.engine)
    }
}

fn too_large(bytes: usize) -> String {
    format!("it has {} MiB, and at most {} MiB can be moved", bytes >> 20, RECORDS_MAX >> 20)
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// A move link that this broker has opened.
struct MoveLink {
    /// The name of the other broker.
    name: String,
    stream: LinkStream,
    bytes: Vec<u8>,
    asked_at: Instant,
    /// Until when the other broker holds for certain; `None`: it does not yet.
    counts_until: Option<Instant>,
    /// Why it is of no use any more.
    problem: Option<String>,
}

/// What the other broker says.
#[derive(Debug, PartialEq, Eq)]
enum Heard {
    Held,
    Staged,
    Active,
}

impl MoveLink {
    fn new(name: String, greeted: Greeted) -> Self {
        let Greeted { stream, unread, .. } = greeted;
        Self {
            name,
            stream,
            bytes: unread,
            asked_at: Instant::now(),
            counts_until: None,
            problem: None,
        }
    }

    async fn ask_to_hold(&mut self, slot: u16) -> Result<(), String> {
        self.asked_at = Instant::now();
        self.say(&Frame::Hold { slot }).await
    }

    /// Waits until the other broker holds. It must have held since it was first asked: what it has sent in between would
    /// have found no session.
    async fn held(&mut self) -> Result<(), String> {
        let heard = timeout(COUNTS_FOR, self.hears(&Heard::Held)).await;
        heard.map_err(|_| format!("{} does not answer", self.name))??;
        if self.counts_until.is_some_and(|until| until <= Instant::now()) {
            return Err(format!("{} has answered too late", self.name));
        }
        self.counts_until = Some(self.asked_at + COUNTS_FOR);
        Ok(())
    }

    async fn say(&mut self, frame: &Frame<'_>) -> Result<(), String> {
        let mut out = Vec::new();
        frame.encode(&mut out);
        let sent = timeout(STEP_WITHIN, send(&mut self.stream, &out)).await;
        match sent {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(format!("the link to {} has ended: {error}", self.name)),
            Err(_) => Err(format!("{} does not read", self.name)),
        }
    }

    async fn hears(&mut self, wanted: &Heard) -> Result<(), String> {
        let heard = timeout(STEP_WITHIN, self.next()).await;
        match heard {
            Ok(Ok(heard)) if heard == *wanted => Ok(()),
            Ok(Ok(heard)) => Err(format!("{} says {heard:?} instead of {wanted:?}", self.name)),
            Ok(Err(error)) => Err(format!("{}: {error}", self.name)),
            Err(_) => Err(format!("{} does not answer", self.name)),
        }
    }

    async fn next(&mut self) -> Result<Heard, NoLink> {
        loop {
            let decoded = decode(&self.bytes, FRAME_MAX).map_err(broken)?;
            if let Some((frame, len)) = decoded {
                let heard = match frame {
                    Frame::Held => Heard::Held,
                    Frame::Staged => Heard::Staged,
                    Frame::Active => Heard::Active,
                    Frame::Refused(refusal) => {
                        return Err(HandshakeError::Refused(refusal).into());
                    }
                    _ => return Err(broken(FrameError::Unexpected)),
                };
                self.bytes.drain(..len);
                return Ok(heard);
            }
            if self.stream.read_buf(&mut self.bytes).await? == 0 {
                return Err(broken(FrameError::CutOff));
            }
        }
    }
}
