//! Threads that wait for something other than sockets.

use std::thread::{self, JoinHandle};
use std::time::Duration;

use barid_engine::context::Context;
use barid_engine::durable::{Committing, Reading};
use barid_engine::housekeeping::Housekeeper;
use barid_engine::lanes::Runner;

/// Starts the thread that commits the batches of the shard numbered `shard`.
pub fn commit(shard: u16, mut committing: Committing) -> JoinHandle<()> {
    start(format!("barid-shard-{shard}"), move || {
        while let Some((to_do, delay)) = committing.wait() {
            sleep(delay);
            committing.act(to_do);
        }
    })
}

/// Starts the thread that reads messages back from the store of the shard numbered `shard`.
pub fn read_back(shard: u16, mut reading: Reading) -> JoinHandle<()> {
    start(format!("barid-load-{shard}"), move || {
        while let Some(mut wanted) = reading.wait() {
            while let Some(delay) = reading.read(&mut *wanted) {
                sleep(delay);
            }
        }
    })
}

/// Starts the housekeeping thread, which runs the tasks that are due.
pub fn keep_house(context: Context) -> JoinHandle<()> {
    let mut housekeeper = Housekeeper::new(context);
    let agenda = housekeeper.agenda();
    start("barid-housekeeping".into(), move || while agenda.wait(housekeeper.act()) {})
}

/// Starts the thread that publishes to MQTT the messages that bindings receive from queues and subscriptions.
pub fn run_lanes(mut runner: Runner) -> JoinHandle<()> {
    start("barid-bindings".into(), || {
        while runner.wait() {
            runner.act();
        }
        runner.end();
    })
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
