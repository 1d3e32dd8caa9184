//! Move links: slots that change their broker.
//!
//! ```text
//!  the broker that has the slot          the one that gets it        the others
//!    disconnects the clients
//!    Hold                        ──►     ──────────────────────►
//!                                ◄──     ◄──────────────────────    Held
//!    Part …, Stage               ──►     writes a file
//!                                ◄──     Staged
//!    stores where the slot is
//!    Activate                    ──►     adopts the contents
//!                                ◄──     Active
//!    forgets the contents
//!    (closes the links)                  publishes again            publishes again
//! ```
//!
//! While all brokers hold, no message is under way, so none misses the sessions of the slot, and none reaches them twice.
//! The stored line is the decision. Before it, the slot stays whatever fails; after it, the slot is at the other broker, and
//! its file has the contents, whoever crashes.

use std::sync::Arc;
use std::time::Duration;

use barid_core::commits::Commits;
use barid_engine::cluster::{Hold, Moved, Owner, Slots};
use barid_engine::engine::Engine;
use barid_engine::managed::ManagedKind;
use barid_engine::moving::{Leaving, Records, adopt, forget, homes_have_changed, remove, stay};
use barid_peers::{Frame, FrameError, HOLD_MS, HandshakeError, Purpose, State, decode};
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};
use tracing::{error, info, warn};
use xxhash_rust::xxh3::xxh3_64;

use super::Peering;
use super::greeting::{Greeted, NoLink, send};
use crate::cluster::{
    Clustering, Given, LinkStream, NotMoved, Staged, WantedMove, note_move, stored,
};
use crate::shared::Shared;

/// Maximum length of a frame, in bytes: a part with what precedes it.
const FRAME_MAX: usize = PART + 1024;

/// Length of a part, in bytes.
const PART: usize = 256 * 1024;

/// Maximum size of the records of a slot, in bytes.
const RECORDS_MAX: usize = 1 << 30;

/// Time in which the clients of a slot must have gone.
const QUIET_WITHIN: Duration = Duration::from_secs(5);

/// Time in which all brokers must hold.
const HELD_WITHIN: Duration = Duration::from_secs(2);

/// Time after which a hold is renewed, and the time for which one that was asked for counts: less than it lasts, since
/// clocks have different rates.
const RENEWED_EVERY: Duration = Duration::from_millis(750);
const COUNTS_FOR: Duration = Duration::from_millis(HOLD_MS - 500);

/// Time for which a move lets nobody publish at most. A disk that does not answer must not stop the cluster.
const HELD_AT_MOST: Duration = Duration::from_secs(30);

/// Time for a step of the other broker that writes to its disk.
const STEP_WITHIN: Duration = Duration::from_secs(60);

/// Time between two looks at something that is waited for.
const AGAIN: Duration = Duration::from_millis(2);

/// Time for which a broker holds.
const HOLD: Duration = Duration::from_millis(HOLD_MS);

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

/// Adopts slots whose files are here, whenever it turns out that this broker has them.
pub async fn settle_slots(peering: Arc<Peering>) {
    let mut changed = peering.clustering.moves.changed.subscribe();
    let mut stop = peering.stop.clone();
    loop {
        let settling = Arc::clone(&peering);
        let settled = spawn_blocking(move || {
            for tenant in settling.shared.engine.tenants.all() {
                settling.lanes.changed(&tenant);
            }
            settle(&settling.shared)
        });
        if let Ok(Err(reason)) = settled.await {
            error!("cannot take over a slot: {reason}");
        }
        tokio::select! {
            _ = changed.changed() => {}
            () = stop.stopped() => return,
        }
    }
}

/// Adopts the slots whose files are here and that belong to this broker; removes the files of those that belong to others;
/// forgets what is here of slots that were moved away.
pub fn settle(shared: &Shared) -> Result<(), String> {
    let Some((clustering, slots)) = of(shared) else { return Ok(()) };
    let _one = clustering.adopting.lock();
    for staged in clustering.staged.all().map_err(|error| error.to_string())? {
        let Staged { slot, generation } = staged;
        let place = slots.place(slot);
        if *place.broker == *slots.me() && place.generation == generation {
            let contents = clustering.staged.read(staged).map_err(|error| error.to_string())?;
            take_over(shared, clustering, slots, staged, contents)?;
        } else if place.generation >= generation {
            clustering.staged.remove(staged).map_err(|error| error.to_string())?;
            slots.open(slot);
        } else {
            slots.close(slot);
        }
    }
    Ok(())
}

/// Forgets what a broker has of slots that were moved away: it ended before it had forgotten it. To be called before
/// clients connect.
pub fn forget_moved_away(shared: &Shared) -> Result<(), String> {
    let Some((_, slots)) = of(shared) else { return Ok(()) };
    for slot in 0..slots.count() {
        let place = slots.place(slot);
        if *place.broker != *slots.me() && place.generation > 0 {
            forget_slot(&shared.engine, slots, slot)?;
        }
    }
    Ok(())
}

/// Forgets everything in a slot.
fn forget_slot(engine: &Engine, slots: &Slots, slot: u16) -> Result<(), String> {
    let leaving = Leaving::of(engine, slots, slot);
    leaving.leave(engine);
    let records = leaving.read(engine).map_err(|error| error.to_string())?;
    if !records.as_bytes().is_empty() {
        warn!(slot, bytes = records.as_bytes().len(), "forgets the rest of a slot that was moved");
    }
    forget(&leaving, slots.me());
    remove(engine, &records).map_err(|error| error.to_string())
}

fn of(shared: &Shared) -> Option<(&Arc<Clustering>, &Arc<Slots>)> {
    let clustering = shared.cluster.as_ref()?;
    Some((clustering, clustering.slots()?))
}

/// Puts the contents of a slot in force, which are in a file as well: the name of the broker that had it, and the records.
fn take_over(
    shared: &Shared,
    clustering: &Clustering,
    slots: &Slots,
    staged: Staged,
    (from, records): (String, Records),
) -> Result<(), String> {
    let (engine, slot) = (&*shared.engine, staged.slot);
    slots.close(slot);
    // A crash may have left a part of it.
    forget_slot(engine, slots, slot)?;
    let sessions = adopt(engine, &records, (&from, slots.me())).map_err(|it| it.to_string())?;
    wait_until_durable(engine, &engine.shards.last_changes());
    slots.open(slot);
    homes_have_changed(engine);
    clustering.staged.remove(staged).map_err(|error| error.to_string())?;
    clustering.moves.count_come();
    info!(slot, from, sessions, "a slot has come to this broker");
    Ok(())
}

/// Waits until all this is durable, or heard.
fn wait_until_durable(engine: &Engine, commits: &Commits) {
    while !engine.shards.sources().are_done(commits) {
        std::thread::sleep(AGAIN);
    }
}

/// Holds this broker: nothing is published when this returns, and nothing is under way. Returns false if something still
/// is after a while.
fn drain(engine: &Engine) -> bool {
    engine.wait_for_rounds();
    let Some(cluster) = &engine.cluster else { return true };
    let until = std::time::Instant::now() + HELD_WITHIN;
    while !cluster.is_drained() {
        if std::time::Instant::now() > until {
            return false;
        }
        std::thread::sleep(AGAIN);
    }
    true
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
    let members = clustering.members.lock();
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
    /// What has left memory.
    left: Option<(Arc<Leaving>, Arc<Records>)>,
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
            of.read(&engine)
        });
        let (records, held) = self.meanwhile(left).await;
        // What has left has to come back, even if it could not be read.
        let (records, is_read) = match records.map_err(|error| error.to_string())? {
            Ok(records) => (Arc::new(records), Ok(())),
            Err(error) => (Arc::default(), Err(error.to_string())),
        };
        self.left = Some((leaving, Arc::clone(&records)));
        held.and(is_read)?;
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
        self.own = Some(cluster.hold(engine.clock.now().after(HOLD)));
        for link in self.target.iter_mut().chain(&mut self.links) {
            link.ask_to_hold().await?;
        }
        let here = Arc::clone(&engine);
        let drained = spawn_blocking(move || drain(&here)).await;
        for link in self.target.iter_mut().chain(&mut self.links) {
            link.held().await?;
        }
        // Others may have sent something before they held, which has led to something here.
        match drained {
            Ok(true) if cluster.is_drained() => Ok(()),
            _ => Err("messages to other brokers are not acknowledged".into()),
        }
    }

    /// Has the target write the records to its disk.
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
        if self.links.iter().any(|link| link.counts_until <= Instant::now()) {
            return Err("a broker has not answered in time".into());
        }
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
        let forgotten = spawn_blocking(move || forget(&of, slots.me()));
        let (forgotten, held) = self.meanwhile(forgotten).await;
        self.warn_unless(held);
        if let Err(error) = forgotten {
            error!(slot, "cannot forget a slot that was moved: {error}");
        }
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

    /// Has the target put the contents in force.
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

    /// Lets the slot stay.
    async fn stay(&mut self) {
        let (engine, slots, slot) = (self.engine(), Arc::clone(self.slots), self.slot);
        let left = self.left.take();
        let back = spawn_blocking(move || {
            // What was not read is read when the broker starts again.
            let back = left.map_or(Ok(0), |(_, records)| stay(&engine, &records));
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
        if let Some(own) = &self.own {
            own.extend(self.engine().clock.now().after(HOLD));
        }
        for link in &mut self.links {
            link.ask_to_hold().await?;
        }
        for link in &mut self.links {
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
    /// Until when the other broker holds for certain.
    counts_until: Instant,
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
        let now = Instant::now();
        Self { name, stream, bytes: unread, asked_at: now, counts_until: now }
    }

    async fn ask_to_hold(&mut self) -> Result<(), String> {
        self.asked_at = Instant::now();
        self.say(&Frame::Hold).await
    }

    /// Waits until the other broker holds.
    async fn held(&mut self) -> Result<(), String> {
        self.hears(&Heard::Held).await?;
        self.counts_until = self.asked_at + COUNTS_FOR;
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

/// Serves a move link that another broker has opened: holds as long as it is open and renewed, and takes a slot.
pub async fn take_slots(peering: &Arc<Peering>, greeted: Greeted) -> Result<(), NoLink> {
    let Greeted { mut stream, unread: mut bytes, outcome } = greeted;
    let mut taking =
        Taking { peering, from: outcome.peer.name, hold: None, records: Vec::new(), staged: None };
    let mut stop = peering.stop.clone();
    loop {
        let mut handled = 0;
        while let Some((frame, len)) = decode(&bytes[handled..], FRAME_MAX).map_err(broken)? {
            handled += len;
            let answer = taking.on_frame(frame).await.map_err(|reason| {
                warn!(broker = taking.from, "a slot does not come: {reason}");
                broken(FrameError::Value)
            })?;
            if let Some(answer) = answer {
                let mut out = Vec::new();
                answer.encode(&mut out);
                send(&mut stream, &out).await?;
            }
        }
        bytes.drain(..handled);
        tokio::select! {
            read = stream.read_buf(&mut bytes) => if read? == 0 { return Ok(()) },
            () = stop.stopped() => return Ok(()),
        }
    }
}

/// A slot that may come from another broker.
struct Taking<'a> {
    peering: &'a Arc<Peering>,
    /// The name of that broker.
    from: String,
    /// The hold, and when it began.
    hold: Option<(Hold, Instant)>,
    /// The parts that have come.
    records: Vec<u8>,
    /// The records that are in a file as well.
    staged: Option<(Staged, Records)>,
}

impl Taking<'_> {
    async fn on_frame(&mut self, frame: Frame<'_>) -> Result<Option<Frame<'static>>, String> {
        let engine = Arc::clone(&self.peering.shared.engine);
        let cluster = engine.cluster.as_ref().ok_or("there is no cluster")?;
        let until = || engine.clock.now().after(HOLD);
        match frame {
            Frame::Hold => {
                let is_first = self.hold.is_none();
                self.hold.get_or_insert_with(|| (cluster.hold(until()), Instant::now()));
                self.extend();
                if is_first {
                    let here = Arc::clone(&engine);
                    let drained = spawn_blocking(move || drain(&here));
                    if !self.meanwhile(drained).await?.unwrap_or(false) {
                        return Err("messages to other brokers are not acknowledged".into());
                    }
                }
                Ok(Some(Frame::Held))
            }
            Frame::Part(part) => {
                if self.records.len() + part.len() > RECORDS_MAX {
                    return Err("it is too large".into());
                }
                self.extend();
                self.records.extend_from_slice(part);
                Ok(None)
            }
            Frame::Stage { slot, generation, hash } => {
                let records = std::mem::take(&mut self.records);
                if xxh3_64(&records) != hash {
                    return Err("its records were damaged on their way".into());
                }
                let shared = Arc::clone(&self.peering.shared);
                let (from, staged) = (self.from.clone(), Staged { slot, generation });
                let kept = spawn_blocking(move || keep(&shared, &from, staged, records));
                let records = self.meanwhile(kept).await?.map_err(|error| error.to_string())??;
                self.staged = Some((staged, records));
                Ok(Some(Frame::Staged))
            }
            Frame::Activate { slot, generation } => {
                let shared = Arc::clone(&self.peering.shared);
                let staged = Staged { slot, generation };
                let (_, records) =
                    self.staged.take().filter(|(own, _)| *own == staged).ok_or("it is not here")?;
                let from = self.from.clone();
                let active = spawn_blocking(move || activate(&shared, staged, (from, records)));
                self.meanwhile(active).await?.map_err(|error| error.to_string())??;
                Ok(Some(Frame::Active))
            }
            _ => Err("it sends a frame that is not allowed here".into()),
        }
    }

    fn extend(&self) {
        if let Some((hold, since)) = &self.hold
            && since.elapsed() < HELD_AT_MOST
        {
            hold.extend(self.peering.shared.engine.clock.now().after(HOLD));
        }
    }

    /// Holds until something is done.
    async fn meanwhile<T>(&self, work: impl Future<Output = T>) -> Result<T, String> {
        let mut work = std::pin::pin!(work);
        loop {
            self.extend();
            tokio::select! {
                done = &mut work => {
                    self.extend();
                    return Ok(done);
                }
                () = sleep(RENEWED_EVERY) => {}
            }
        }
    }
}

/// Writes the records of a slot to a file.
fn keep(shared: &Shared, from: &str, staged: Staged, records: Vec<u8>) -> Result<Records, String> {
    let (clustering, slots) = of(shared).ok_or("this broker has no slots")?;
    let _one = clustering.adopting.lock();
    let place = slots.place(staged.slot);
    if *place.broker != *from || place.generation + 1 != staged.generation {
        return Err(format!("the slot {} belongs to {}", staged.slot, place.broker));
    }
    if clustering.moves.of(staged.slot).is_some() {
        return Err(format!("the slot {} is still being removed here", staged.slot));
    }
    // A broker that has forgotten a move may have kept a file.
    for old in clustering.staged.all().map_err(|error| error.to_string())? {
        if old.slot == staged.slot && old != staged {
            clustering.staged.remove(old).map_err(|error| error.to_string())?;
        }
    }
    let records = Records::from_bytes(records);
    clustering.staged.keep(staged, from, &records).map_err(|error| error.to_string())?;
    slots.close(staged.slot);
    Ok(records)
}

/// Takes over a slot whose records are in a file. Returns when all brokers have heard of its subscriptions.
fn activate(shared: &Shared, staged: Staged, contents: (String, Records)) -> Result<(), String> {
    let (clustering, slots) = of(shared).ok_or("this broker has no slots")?;
    let engine = &shared.engine;
    let moved = Moved { broker: slots.me().into(), generation: staged.generation };
    let mut commits = Commits::default();
    let name = staged.slot.to_string();
    let put = engine.managed.put(ManagedKind::Slot, &name, stored(&moved), &mut commits);
    put.map_err(|error| error.to_string())?;
    {
        // Whoever settles slots must not do the same.
        let _one = clustering.adopting.lock();
        note_move(engine, slots, staged.slot, moved, &clustering.moves.changed);
        wait_until_durable(engine, &commits);
        let is_here = clustering.staged.all().map_err(|error| error.to_string())?.contains(&staged);
        if is_here {
            take_over(shared, clustering, slots, staged, contents)?;
        }
    }
    if let Some(cluster) = &engine.cluster {
        wait_until_durable(engine, &cluster.all_heard());
    }
    Ok(())
}

fn broken(error: FrameError) -> NoLink {
    HandshakeError::from(error).into()
}
