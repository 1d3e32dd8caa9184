//! Slots whose files are here, and what is left of slots that were moved away.

use std::sync::Arc;

use barid_engine::cluster::{Cluster, Slots};
use barid_engine::engine::Engine;
use barid_engine::moving::{
    Leaving, Records, Watches, adopt, forget, homes_have_changed, occupied, remove,
};
use tokio::task::spawn_blocking;
use tracing::{error, info, warn};

use super::{of, wait_until_durable};
use crate::cluster::{Clustering, Staged};
use crate::peering::Peering;
use crate::shared::Shared;

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
    forget_moved_away(&shared.engine, clustering, slots)
}

/// Forgets what is here of slots that were moved away: the broker ended before it had removed it, or an older state of it was
/// restored.
fn forget_moved_away(
    engine: &Engine,
    clustering: &Clustering,
    slots: &Slots,
) -> Result<(), String> {
    for slot in occupied(engine, slots) {
        let place = slots.place(slot);
        let is_elsewhere = *place.broker != *slots.me() && place.generation > 0;
        if is_elsewhere && clustering.moves.of(slot).is_none() {
            forget_slot(engine, slots, slot)?;
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
    forget(engine, &leaving, slots.me());
    remove(engine, &records).map_err(|error| error.to_string())
}

/// Puts the contents of a slot in force, which are in a file as well: the name of the broker that had it, and the records.
pub(super) fn take_over(
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
    let holds = |cluster: &Arc<Cluster>| cluster.is_held_for(slot, engine.clock.now());
    let watches = match engine.cluster.as_ref().is_some_and(holds) {
        true => Watches::Adopt,
        false => Watches::End,
    };
    let sessions = adopt(engine, &records, (&from, slots.me()), watches);
    let sessions = sessions.map_err(|it| it.to_string())?;
    wait_until_durable(engine, &engine.shards.last_changes());
    slots.open(slot);
    homes_have_changed(engine);
    clustering.staged.remove(staged).map_err(|error| error.to_string())?;
    clustering.moves.count_come();
    info!(slot, from, sessions, "a slot has come to this broker");
    Ok(())
}
