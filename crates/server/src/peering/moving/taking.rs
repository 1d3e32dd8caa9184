//! The side of the brokers that do not have the slot: all of them hold, and one takes it.

use std::sync::Arc;

use barid_core::commits::Commits;
use barid_engine::cluster::{Hold, Moved};
use barid_engine::managed::ManagedKind;
use barid_engine::moving::{Records, check_watches, homes_have_changed};
use barid_peers::{Frame, FrameError, decode};
use tokio::io::AsyncReadExt as _;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};
use tracing::warn;
use xxhash_rust::xxh3::xxh3_64;

use super::settling::take_over;
use super::{
    AGAIN, FRAME_MAX, HEARD_WITHIN, HELD_AT_MOST, HOLD, RECORDS_MAX, RENEWED_EVERY, broken, drain,
    of, wait_until_durable,
};
use crate::cluster::{Staged, stored};
use crate::peering::Peering;
use crate::peering::greeting::{Greeted, NoLink, send};
use crate::shared::Shared;

/// Serves a move link that another broker has opened: holds as long as it is open and renewed, and takes a slot.
pub async fn take_slots(peering: &Arc<Peering>, greeted: Greeted) -> Result<(), NoLink> {
    let Greeted { mut stream, unread: mut bytes, outcome } = greeted;
    let mut taking = Taking {
        peering,
        from: outcome.peer.name,
        hold: None,
        records: Vec::new(),
        staged: None,
        taken: None,
    };
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
    /// The slot that has come.
    taken: Option<u16>,
}

impl Taking<'_> {
    async fn on_frame(&mut self, frame: Frame<'_>) -> Result<Option<Frame<'static>>, String> {
        let engine = Arc::clone(&self.peering.shared.engine);
        let cluster = engine.cluster.as_ref().ok_or("there is no cluster")?;
        let until = || engine.clock.now().after(HOLD);
        match frame {
            Frame::Hold { slot } => {
                let is_first = self.hold.is_none();
                self.hold.get_or_insert_with(|| (cluster.hold(slot, until()), Instant::now()));
                self.extend()?;
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
                self.extend()?;
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
                let Some((own, records)) = self.staged.take() else {
                    self.meanwhile(hears_of(&shared, staged)).await??;
                    return Ok(Some(Frame::Active));
                };
                // Before anything is taken over.
                self.extend()?;
                if own != staged {
                    return Err("it is not here".into());
                }
                let from = self.from.clone();
                let active = spawn_blocking(move || activate(&shared, staged, (from, records)));
                self.meanwhile(active).await?.map_err(|error| error.to_string())??;
                self.taken = Some(slot);
                Ok(Some(Frame::Active))
            }
            _ => Err("it sends a frame that is not allowed here".into()),
        }
    }

    /// Holds longer. The hold must not be over: what was sent in between would have found no session.
    fn extend(&self) -> Result<(), String> {
        let Some((hold, since)) = &self.hold else { return Ok(()) };
        let now = self.peering.shared.engine.clock.now();
        let until = if since.elapsed() < HELD_AT_MOST { now.after(HOLD) } else { now };
        match hold.extend(now, until) {
            true => Ok(()),
            false => Err("this broker has not held long enough".into()),
        }
    }

    /// Holds until something is done.
    async fn meanwhile<T>(&self, work: impl Future<Output = T>) -> Result<T, String> {
        let mut work = std::pin::pin!(work);
        loop {
            self.extend()?;
            tokio::select! {
                done = &mut work => {
                    self.extend()?;
                    return Ok(done);
                }
                () = sleep(RENEWED_EVERY) => {}
            }
        }
    }
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        // The link ends when all brokers know of the slot, or are about to.
        if let (Some(slot), Some((_, slots))) = (self.taken, of(&self.peering.shared)) {
            check_watches(&self.peering.shared.engine, slots, slot);
        }
    }
}

/// Waits until this broker has heard that a slot has moved to another one.
async fn hears_of(shared: &Shared, Staged { slot, generation }: Staged) -> Result<(), String> {
    let (_, slots) = of(shared).ok_or("this broker has no slots")?;
    let until = Instant::now() + HEARD_WITHIN;
    while slots.place(slot).generation < generation {
        if Instant::now() > until {
            return Err("this broker does not hear where the slot is".into());
        }
        sleep(AGAIN).await;
    }
    // Whoever notes the place has perhaps not come to all tenants yet.
    homes_have_changed(&shared.engine);
    Ok(())
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
