//! What a seed decides in the same way in every world.

use barid_store::memory::{Disk, Fault};
use fastrand::Rng;

use crate::history::{Event, History};

/// One of `all`, as often as its weight says.
pub fn pick<T: Copy, const N: usize>(rng: &mut Rng, all: [T; N], weights: [u32; N]) -> T {
    let mut at = rng.u32(..weights.iter().sum::<u32>());
    for (one, weight) in all.into_iter().zip(weights) {
        if at < weight {
            return one;
        }
        at -= weight;
    }
    unreachable!("it is less than the sum of all weights")
}

/// One of the disks begins to fail, or works again.
pub fn fail(rng: &mut Rng, disks: &[Disk], history: &mut History) {
    let shard = rng.usize(..disks.len());
    let (fault, what) = [
        (None, "works"),
        (None, "works"),
        (Some(Fault::Full), "is full"),
        (Some(Fault::Io), "fails"),
        (Some(Fault::IoButWritten), "fails, but writes"),
    ][rng.usize(..5)];
    disks[shard].fail(fault);
    history.note(Event::Disk(u16::try_from(shard).expect("there are few"), what));
}
