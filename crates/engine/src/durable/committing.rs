//! The committer of a shard: takes the noted changes, as one batch after the other, and appends each batch to the
//! log.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use barid_store::Batch;
use barid_store::changelog::Sink;
use tracing::error;

use super::DurableShard;
use super::shard::ToDo;
use crate::clock::Clock;

/// Delay before a failed commit is tried again.
const RETRY: Duration = Duration::from_millis(200);

/// Interval at which a shard without changes checks whether there is free space. Others fill disks, too, and a
/// change that meets a full disk fares worse than a publish that is refused in time.
const ROOM_INTERVAL: Duration = Duration::from_secs(1);

/// Time for which a commit is tried again before those who wait for it are told that it has failed. Short
/// disturbances, as when a file cannot be opened, are not reported to anybody.
const PATIENCE: Duration = Duration::from_secs(1);

/// Threshold of cancelled changes: if the last batch had at least this many, and they were a good part of it, the
/// next batch is delayed. Changes cancel each other when clients take their messages at once, and cancelled changes need
/// not be written. Clients that wait alone, or for clients that are away, do not wait longer.
const BUSY: usize = 128;

/// Delay of the next batch after one with many cancelled changes of queues, see [`BUSY`].
const LINGER: Duration = Duration::from_millis(6);

/// Time for which the next batch accumulates after one with many cancelled changes of sessions, see [`BUSY`]. Then it is
/// sealed, and appended [`RIPEN`] later: clients take its last messages meanwhile.
const ACCUMULATE: Duration = Duration::from_millis(4);

/// Time from the sealing of a batch until it is appended. Most clients acknowledge a message sooner. With 2 ms a
/// tenth of the bytes of all messages are written in a closed loop, without sealing a quarter.
const RIPEN: Duration = Duration::from_millis(2);

/// Threshold of changes: if the last batch had at least this many, the next one begins no earlier than [`PACE`]
/// after it. Many clients wait then, and one sync for more of them costs less. Clients that wait alone, or with
/// few others, do not wait longer.
const CROWD: usize = 16;

/// Minimum time from the beginning of a batch with many changes to that of the next, see [`CROWD`].
const PACE: Duration = Duration::from_micros(500);

/// Commits the changes of one shard.
#[derive(Default)]
pub(super) struct Committer {
    /// Batches that were appended and are not known to be durable, in order.
    sent: VecDeque<(u64, Arc<Batch>)>,
    /// A batch whose memory can be used again.
    spare: Batch,
    last: Option<Last>,
}

/// The last batch.
struct Last {
    /// Number of its changes.
    changes: usize,
    /// Number of changes that were cancelled before it was taken.
    spared_of_sessions: usize,
    spared_of_queues: usize,
    /// The time when it was taken.
    begun: Instant,
}

impl Last {
    /// Whether so many cancelled changes are many for this batch.
    fn is_busy(&self, spared: usize) -> bool {
        spared >= BUSY && spared >= self.changes / 4
    }
}

impl DurableShard {
    /// Commits the noted changes, in tests that have no committer.
    #[cfg(test)]
    pub fn commit_now(self: &Arc<Self>) {
        let mut committer = self.committer.lock();
        let committer = committer.as_mut().expect("the committer has not been taken");
        if let Some(to_do) = self.wait(Duration::ZERO) {
            committer.act(self, to_do, Instant::now());
        }
    }

    /// Returns the committer of this shard.
    ///
    /// # Panics
    /// If it is called twice.
    pub fn committing(self: &Arc<Self>, clock: Clock) -> Committing {
        let committer = self.committer.lock().take().expect("it is called once");
        Committing { shard: Arc::clone(self), clock, committer, failing_since: None }
    }
}

/// Commits the changes of a shard, step by step.
pub struct Committing {
    shard: Arc<DurableShard>,
    clock: Clock,
    committer: Committer,
    failing_since: Option<Instant>,
}

impl Committing {
    /// Waits for the next step. Returns it and the delay before it, or `None` when there will be no more.
    pub fn wait(&mut self) -> Option<(ToDo, Duration)> {
        self.wait_for(if self.shard.refuses() { RETRY } else { ROOM_INTERVAL })
    }

    /// Commits the changes that were noted at the start, so that the numbers that are assigned from now on are
    /// reserved. For logs that report the outcome of a batch at once. Returns false if the changes are not known
    /// to be durable.
    pub fn begin(&mut self) -> bool {
        let noted = self.shard.last_change();
        if let Some((to_do, _)) = self.poll() {
            self.act(to_do);
        }
        self.shard.is_durable(noted)
    }

    /// Returns the next step as [`Self::wait`] does, without waiting.
    pub fn poll(&mut self) -> Option<(ToDo, Duration)> {
        self.wait_for(Duration::ZERO)
    }

    fn wait_for(&mut self, patience: Duration) -> Option<(ToDo, Duration)> {
        let Self { shard, clock, committer, failing_since } = self;
        let to_do = shard.wait(patience)?;
        let delay = match to_do {
            ToDo::Commit if shard.has_sealed() => RIPEN,
            ToDo::Commit if committer.seals() => return Some((ToDo::Seal, ACCUMULATE)),
            ToDo::Commit | ToDo::Seal => committer.pause(clock.instant()),
            ToDo::AppendAgain => {
                let now = clock.instant();
                if now - *failing_since.get_or_insert(now) >= PATIENCE {
                    shard.give_up();
                }
                if shard.gives_up() {
                    error!(
                        shard = shard.index(),
                        "cannot commit the last changes: changes that were not acknowledged are not stored"
                    );
                    return None;
                }
                RETRY
            }
            ToDo::Look => Duration::ZERO,
        };
        Some((to_do, delay))
    }

    /// Seals the batch that has accumulated, as `ToDo::Seal` does.
    pub fn seal(&self) {
        self.shard.seal();
    }

    /// Carries out a step.
    pub fn act(&mut self, to_do: ToDo) {
        let Self { shard, clock, committer, failing_since } = self;
        committer.act(shard, to_do, clock.instant());
        // Changes whose clients were told of a failure are committed before publishers are let in again.
        let has_recovered = failing_since.is_none() || !shard.has_changes();
        if committer.sent.is_empty() && has_recovered {
            *failing_since = None;
            match shard.log.room() {
                Ok(()) => shard.accept_again(),
                Err(error) => shard.refuse(&error),
            }
        }
    }
}

impl Committer {
    /// Carries out a step, and forgets the batches that are durable by then.
    fn act(&mut self, shard: &Arc<DurableShard>, to_do: ToDo, now: Instant) {
        match to_do {
            ToDo::Seal => shard.seal(),
            ToDo::Commit => self.commit(shard, now),
            ToDo::AppendAgain => self.append_again(shard),
            ToDo::Look => {}
        }
        self.forget_done(shard);
    }

    /// Whether the next batch is sealed before it is appended.
    fn seals(&self) -> bool {
        self.last.as_ref().is_some_and(|last| last.is_busy(last.spared_of_sessions))
    }

    /// Returns the delay before the next batch: see [`BUSY`] and [`CROWD`].
    fn pause(&self, now: Instant) -> Duration {
        match &self.last {
            Some(last) if last.is_busy(last.spared_of_queues) => LINGER,
            Some(last) if last.changes >= CROWD => PACE.saturating_sub(now - last.begun),
            _ => Duration::ZERO,
        }
    }

    /// Appends the accumulated changes as a batch.
    fn commit(&mut self, shard: &Arc<DurableShard>, begun: Instant) {
        let (number, writes, names) = shard.take();
        let mut batch = std::mem::take(&mut self.spare);
        batch.clear();
        writes.encode(&names, &mut batch);
        // When there is too little space, new publishes are refused. Changes that are noted already are written
        // nevertheless, and so are those that clients need to take the messages that wait for them: the reserve is
        // for that.
        batch.set_urgent();
        if !batch.is_empty() {
            shard.commits.fetch_add(1, Ordering::Relaxed);
        }
        self.last = Some(Last {
            changes: batch.len(),
            spared_of_sessions: writes.spared_of_sessions(),
            spared_of_queues: writes.spared_of_queues(),
            begun,
        });
        drop(writes);
        let batch = Arc::new(batch);
        self.sent.push_back((number, Arc::clone(&batch)));
        shard.log.append(number, &batch, &as_sink(shard));
    }

    /// Appends the batches in doubt again.
    fn append_again(&mut self, shard: &Arc<DurableShard>) {
        let sink = as_sink(shard);
        // Batches that were done before the doubt arose are not appended again.
        self.forget_done(shard);
        shard.end_doubt();
        for (number, batch) in &self.sent {
            shard.log.append(*number, batch, &sink);
        }
    }

    fn forget_done(&mut self, shard: &DurableShard) {
        while let Some((_, batch)) = self.sent.pop_front_if(|(number, _)| shard.is_durable(*number))
        {
            if let Some(batch) = Arc::into_inner(batch) {
                self.spare = batch;
            }
        }
    }
}

fn as_sink(shard: &Arc<DurableShard>) -> Arc<dyn Sink> {
    Arc::clone(shard) as Arc<dyn Sink>
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ops::ControlFlow;

    use barid_core::durable::records::decode_message;
    use barid_core::durable::{RetainedRecord, keys};
    use barid_core::ids::TenantNumber;
    use barid_core::message::{Message, Publication};
    use barid_store::changelog::Changelog;
    use barid_store::changelog::simulated::{Fate, SimulatedLog};
    use barid_store::memory::MemoryStore;
    use barid_store::{Change, Store};
    use mqtt_proto::QoS;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::clock::tests::stopped;
    use crate::progress::State;

    const TENANT: TenantNumber = TenantNumber(0);

    /// A shard over a simulated log. Its committer carries out a step when it is told to.
    struct World {
        log: SimulatedLog,
        shard: Arc<DurableShard>,
        committer: Committer,
        /// The batch of each change; all changes have different keys.
        noted: BTreeMap<String, u64>,
        is_fenced: bool,
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Note,
        Seal,
        Commit,
        Decide(Fate),
        Fence,
    }

    impl World {
        fn new(window: usize) -> Self {
            let log = SimulatedLog::default();
            let store: Arc<dyn Store> = Arc::new(MemoryStore::new(keys::NAMES.len()));
            let shard = Arc::new(DurableShard::new(0, Box::new(log.open(window)), store));
            shard.name_tenant(TENANT, "t");
            let committer = Committer::default();
            Self { log, shard, committer, noted: BTreeMap::new(), is_fenced: false }
        }

        fn act(&mut self, step: Step) {
            match step {
                Step::Note => {
                    let topic = format!("{:04}", self.noted.len());
                    let mut shard = self.shard.change();
                    let message = Arc::new(message(&topic));
                    shard.set_retained(
                        TENANT,
                        RetainedRecord { message, holder: None, stamp: Default::default() },
                    );
                    self.noted.insert(topic, shard.batch());
                }
                Step::Seal => self.shard.seal(),
                Step::Commit => match self.shard.wait(Duration::ZERO) {
                    Some(to_do) => self.committer.act(&self.shard, to_do, stopped().instant()),
                    None => self.committer.forget_done(&self.shard),
                },
                Step::Decide(fate) => {
                    self.log.land_late();
                    self.log.decide(fate);
                }
                Step::Fence => {
                    self.log.open(1);
                    self.is_fenced = true;
                }
            }
        }

        /// Returns all changes in the log, in their order.
        fn landed(&self) -> Vec<String> {
            let mut landed = Vec::new();
            let reader = self.log.reader();
            let from = reader.positions().expect("it can be asked").start;
            let read = reader.read(from, &mut |_, batch| {
                let mut together: Vec<_> = batch.iter().map(|change| topic_of(&change)).collect();
                together.sort();
                landed.append(&mut together);
                ControlFlow::Continue(())
            });
            read.expect("it can be read");
            landed
        }

        fn check(&self) {
            let landed = self.landed();
            assert!(self.noted.keys().take(landed.len()).eq(&landed), "in their order, each once");
            let durable = |(_, batch): &(&String, &u64)| self.shard.is_durable(**batch);
            assert!(self.noted.iter().filter(durable).count() <= landed.len(), "told too early");
            assert!(self.committer.sent.len() <= self.shard.log.window());
        }
    }

    fn message(topic: &str) -> Message {
        Message::new(&Publication {
            topic,
            payload: b"1",
            properties: &[],
            qos: QoS::AtLeastOnce,
            retain: true,
            expires_at: None,
        })
    }

    fn topic_of(change: &Change<'_>) -> String {
        let Change::Put(keys::RETAINED, _, value) = change else {
            panic!("{change:?} was not noted")
        };
        let message = decode_message(value).expect("it is as it was written");
        message.publication().topic.to_owned()
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => Just(Step::Note),
            3 => Just(Step::Seal),
            8 => Just(Step::Commit),
            8 => Just(Step::Decide(Fate::Land)),
            2 => Just(Step::Decide(Fate::LandUnheard)),
            2 => Just(Step::Decide(Fate::Lose)),
            2 => Just(Step::Decide(Fate::Delay)),
        ]
    }

    proptest! {
        #[test]
        fn what_is_durable_has_landed(
            steps in vec(step(), 0..200),
            window in 1..5_usize,
            fenced_at in proptest::option::of(0..200_usize),
        ) {
            let mut world = World::new(window);
            for (at, step) in steps.into_iter().enumerate() {
                if fenced_at == Some(at) {
                    world.act(Step::Fence);
                }
                world.act(step);
                world.check();
            }
            let before = world.landed().len();
            world.shard.close();
            for _ in 0..2 * world.noted.len() + 2 {
                world.act(Step::Commit);
                while world.log.on_their_way() > 0 {
                    world.act(Step::Decide(Fate::Land));
                }
                world.check();
            }
            if world.is_fenced {
                assert_eq!(world.landed().len(), before, "nobody is told of what another has");
            } else {
                assert_eq!(world.landed().len(), world.noted.len(), "in the end all is there");
                assert_eq!(world.shard.wait(Duration::ZERO), None);
                assert!(world.noted.values().all(|batch| world.shard.is_durable(*batch)));
            }
        }
    }

    #[test]
    fn what_is_on_its_way_is_found() {
        let mut world = World::new(2);
        let body: Arc<[u8]> = Arc::from(*b"body");
        world.shard.change().put_queue_body(TENANT, 1, 5, Arc::clone(&body));
        world.act(Step::Commit);
        world.act(Step::Note);
        world.act(Step::Commit);
        assert_eq!(world.log.on_their_way(), 2);
        assert_eq!(world.shard.body(TENANT, "t", 1, 5).expect("no disk is asked"), Some(body));
    }

    #[test]
    fn who_waits_behind_what_is_in_doubt_is_told_as_well() {
        let mut world = World::new(1);
        let steps = [Step::Note, Step::Commit, Step::Decide(Fate::Lose), Step::Note];
        steps.into_iter().for_each(|step| world.act(step));
        world.shard.give_up();
        let states = |world: &World| {
            let state = |batch: &u64| world.shard.progress().state(*batch);
            world.noted.values().map(state).collect::<Vec<_>>()
        };
        assert_eq!(states(&world), [State::Failed, State::Failed]);
        assert!(world.shard.has_changes(), "and so it is not let in again before that is there");
        for _ in 0..2 {
            world.act(Step::Commit);
            world.act(Step::Decide(Fate::Land));
        }
        assert_eq!(states(&world), [State::Done, State::Done]);
        assert!(!world.shard.has_changes());
    }
}
