//! Threads of those who wait for something other than sockets.

use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::durable::{Committing, Reading};
use crate::housekeeping;
use crate::lanes::Runner;
use crate::lifecycle::Context;

/// The thread that commits for the shard of this number.
pub fn commit(shard: u16, mut committing: Committing) -> JoinHandle<()> {
    start(format!("barid-shard-{shard}"), move || {
        while let Some((to_do, delay)) = committing.next() {
            sleep(delay);
            committing.act(to_do);
        }
    })
}

/// The thread that reads back for the shard of this number.
pub fn read_back(shard: u16, mut reading: Reading) -> JoinHandle<()> {
    start(format!("barid-load-{shard}"), move || {
        while let Some(mut wanted) = reading.next() {
            while let Some(delay) = reading.read(&mut *wanted) {
                sleep(delay);
            }
        }
    })
}

/// The thread that does what is due.
pub fn keep_house(mut context: Context) -> JoinHandle<()> {
    start("barid-housekeeping".into(), move || housekeeping::run(&mut context))
}

/// The thread that publishes what bindings have received.
pub fn run_lanes(runner: Runner) -> JoinHandle<()> {
    start("barid-bindings".into(), || runner.run())
}

fn start(name: String, work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    let thread = thread::Builder::new().name(name).spawn(work);
    thread.expect("the operating system has room for a thread")
}

fn sleep(delay: Duration) {
    if !delay.is_zero() {
        thread::sleep(delay);
    }
}
