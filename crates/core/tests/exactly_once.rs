//! Exhaustive search of everything that can happen to two messages of QoS 2 with one Packet Identifier, on their way to
//! sessions and queues in two shards: the order in which batches become durable, where the process crashes, when
//! packets are lost and repeated.
//!
//! The search ends when there are no new states. It implements the rules of `docs/adr/0012-exactly-once.md` and
//! `docs/adr/0023-who-has-it.md`, and breaks each rule in turn, to check that the rule is necessary.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::hash::BuildHasher as _;

use barid_core::durable::ReceivedRecord;

/// The sessions, the queue and the client of one search. One search with all of them would have too many states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct World {
    /// The numbers of the sessions, by shard. The publisher's own session is in the first shard.
    sessions: [&'static [u64]; 2],
    has_queue: bool,
    has_newcomer: bool,
    /// Number of messages that the client publishes.
    messages: u8,
    crashes: u8,
}

const WORLDS: [World; 4] = [
    World {
        sessions: [&[1], &[1, 2]],
        has_queue: false,
        has_newcomer: false,
        messages: 2,
        crashes: 1,
    },
    World { sessions: [&[], &[1]], has_queue: true, has_newcomer: false, messages: 2, crashes: 1 },
    World { sessions: [&[1], &[]], has_queue: true, has_newcomer: false, messages: 1, crashes: 2 },
    World {
        sessions: [&[1], &[1, 2]],
        has_queue: false,
        has_newcomer: true,
        messages: 1,
        crashes: 2,
    },
];

/// A session of the second shard that subscribes at any time.
const NEWCOMER: u64 = 3;

/// A queue in the second shard that gets two copies of each message, on two different paths.
const QUEUE: u64 = 9;
const QUEUE_SHARD: usize = 1;
const COPIES: usize = 2;

/// The rule that is broken in a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// No recipient is asked whether it has the message.
    NeverAsk,
    /// Only the publisher's own shard is asked; its answer is taken for all shards.
    AskHomeOnly,
    /// The first recipient of a shard that gets a message has it noted for all recipients of the shard.
    NoteAllAtOnce,
    /// Sessions get the message in descending order of their numbers.
    Descend,
    /// One copy in a queue is taken for all copies.
    CountNoCopies,
    /// The note is in the batch after that of the message.
    NoteLater,
    /// PUBREC does not wait for the disk.
    AcknowledgeEarly,
    /// PUBCOMP does not wait for the disk.
    CompleteEarly,
    /// PUBREL takes effect in the publisher's own shard only.
    ReleaseAtHome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Target {
    Session(usize, u64),
    Queue,
}

impl Target {
    fn shard(self) -> usize {
        match self {
            Self::Session(shard, _) => shard,
            Self::Queue => QUEUE_SHARD,
        }
    }

    fn copies(self) -> usize {
        if self == Self::Queue { COPIES } else { 1 }
    }
}

/// A recipient, a message that it has, and a number that distinguishes repeated deliveries of that message.
type Entry = (Target, u8, u8);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Content {
    /// The encoded note of the one Packet Identifier.
    note: Option<Vec<u8>>,
    entries: BTreeSet<Entry>,
}

impl Content {
    fn note(&self) -> ReceivedRecord {
        let decoded = |bytes: &Vec<u8>| ReceivedRecord::decode(bytes).expect("it was encoded");
        self.note.as_ref().map(decoded).unwrap_or_default()
    }

    fn set_note(&mut self, note: &ReceivedRecord) {
        let mut bytes = Vec::new();
        note.encode(&mut bytes);
        self.note = Some(bytes);
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Shard {
    durable: Content,
    now: Content,
    /// A note that goes into the next batch, if the rule is broken.
    later: Option<Vec<u8>>,
    is_dirty: bool,
}

/// The action of the process for the publisher.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Doing {
    Nothing,
    /// Hands a message on to these recipients, the last one first.
    HandOn(Vec<Target>),
    /// Waits for the disk, and sends PUBREC.
    Receive,
    /// Waits for the disk, and sends PUBCOMP.
    Complete,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    world: World,
    shards: [Shard; 2],
    /// Whether the publisher's session has handed the message on; lost when the process crashes.
    is_handed_on: bool,
    /// The message that the client is publishing, and whether the client has PUBREC for it.
    client: (u8, bool),
    doing: Doing,
    newcomer: bool,
    /// Entries that their subscribers have acknowledged.
    delivered: BTreeSet<Entry>,
    crashes: u8,
}

impl State {
    fn new(world: World) -> Self {
        Self {
            world,
            shards: Default::default(),
            is_handed_on: false,
            client: (0, false),
            doing: Doing::Nothing,
            newcomer: false,
            delivered: BTreeSet::new(),
            crashes: world.crashes,
        }
    }

    /// The orders in which a message may reach all recipients.
    fn orders(&self, broken: Broken) -> Vec<Vec<Target>> {
        let sessions = self.world.sessions.iter().enumerate();
        let mut sessions: Vec<_> = sessions
            .flat_map(|(shard, all)| all.iter().map(move |number| Target::Session(shard, *number)))
            .collect();
        if self.newcomer {
            sessions.push(Target::Session(1, NEWCOMER));
        }
        if broken == Broken::Descend {
            sessions.reverse();
        }
        if !self.world.has_queue {
            sessions.reverse();
            return vec![sessions];
        }
        // Queues come before all sessions, but a queue may also be reached after them.
        let before = [&[Target::Queue, Target::Queue][..], &sessions].concat();
        let around = [&[Target::Queue][..], &sessions, &[Target::Queue]].concat();
        [before, around].map(|order| order.into_iter().rev().collect()).into()
    }

    /// Hands the message to the next recipient, unless that already has it.
    fn hand_on(&mut self, broken: Broken) {
        let Doing::HandOn(left) = &mut self.doing else { unreachable!() };
        let Some(target) = left.pop() else {
            let home = &mut self.shards[0];
            home.now.set_note(&ReceivedRecord::All);
            home.is_dirty = true;
            self.is_handed_on = true;
            self.doing = Doing::Receive;
            return;
        };
        // Whether this is the second copy for the queue in this run.
        let again = !left.contains(&Target::Queue) && target == Target::Queue;
        let message = self.client.0;
        let is_home = target.shard() == 0;
        let shard = &mut self.shards[target.shard()];
        let mut note = shard.now.note();
        let asks = match broken {
            Broken::NeverAsk => false,
            Broken::AskHomeOnly => is_home,
            _ => true,
        };
        let copies = note.copies_in(QUEUE);
        let has_it = match target {
            Target::Session(_, number) => note.has_session(number),
            // The notes of this run are included: a copy that this run has put was missing before.
            Target::Queue if broken == Broken::CountNoCopies => copies > 0,
            Target::Queue => copies > usize::from(again),
        };
        if asks && has_it {
            return;
        }
        let known = shard.now.entries.iter().chain(&shard.durable.entries).chain(&self.delivered);
        let generations = known.filter(|(of, about, _)| (*of, *about) == (target, message));
        let generation = generations.map(|(.., generation)| generation + 1).max().unwrap_or(0);
        shard.now.entries.insert((target, message, generation));
        match target {
            _ if broken == Broken::NoteAllAtOnce => note = ReceivedRecord::All,
            Target::Session(_, number) => note.add_session(number),
            Target::Queue => note.add_queue(QUEUE),
        }
        if broken == Broken::NoteLater {
            let mut bytes = Vec::new();
            note.encode(&mut bytes);
            shard.later = Some(bytes);
        } else {
            shard.now.set_note(&note);
        }
        shard.is_dirty = true;
    }

    fn release(&mut self, broken: Broken) {
        for (index, shard) in self.shards.iter_mut().enumerate() {
            if broken == Broken::ReleaseAtHome && index != 0 {
                continue;
            }
            shard.is_dirty |= shard.now.note.take().is_some();
        }
        self.is_handed_on = false;
        self.doing = Doing::Complete;
    }

    fn is_durable(&self) -> bool {
        self.shards.iter().all(|shard| !shard.is_dirty)
    }

    /// All states that can follow.
    fn next(&self, broken: Broken) -> Vec<Self> {
        let mut next = Vec::new();
        let mut then = |change: &dyn Fn(&mut Self)| {
            let mut state = self.clone();
            change(&mut state);
            next.push(state);
        };
        for (index, shard) in self.shards.iter().enumerate() {
            if shard.is_dirty {
                then(&|state| {
                    let shard = &mut state.shards[index];
                    shard.durable = shard.now.clone();
                    shard.is_dirty = false;
                    if let Some(note) = shard.later.take() {
                        shard.now.note = Some(note);
                        shard.is_dirty = true;
                    }
                });
            }
            for entry in shard.now.entries.intersection(&shard.durable.entries) {
                then(&|state| {
                    state.shards[index].now.entries.remove(entry);
                    state.shards[index].is_dirty = true;
                    state.delivered.insert(*entry);
                });
            }
        }
        if self.world.has_newcomer && !self.newcomer {
            then(&|state| state.newcomer = true);
        }
        match &self.doing {
            Doing::Nothing if self.client.0 == self.world.messages => {}
            Doing::Nothing if self.client.1 => then(&|state| state.release(broken)),
            Doing::Nothing if self.is_handed_on => then(&|state| state.doing = Doing::Receive),
            Doing::Nothing => {
                for order in self.orders(broken) {
                    then(&|state| state.doing = Doing::HandOn(order.clone()));
                }
            }
            Doing::HandOn(_) => then(&|state| state.hand_on(broken)),
            Doing::Receive => {
                if self.is_durable() || broken == Broken::AcknowledgeEarly {
                    then(&|state| (state.client.1, state.doing) = (true, Doing::Nothing));
                }
                // The connection breaks, and the client sends its last packet again.
                then(&|state| state.doing = Doing::Nothing);
            }
            Doing::Complete => {
                if self.is_durable() || broken == Broken::CompleteEarly {
                    let client = (self.client.0 + 1, false);
                    then(&|state| (state.client, state.doing) = (client, Doing::Nothing));
                }
                then(&|state| state.doing = Doing::Nothing);
            }
        }
        if self.crashes > 0 {
            then(&|state| {
                for shard in &mut state.shards {
                    shard.now = shard.durable.clone();
                    (shard.later, shard.is_dirty) = (None, false);
                }
                (state.is_handed_on, state.doing) = (false, Doing::Nothing);
                state.crashes -= 1;
            });
        }
        next
    }

    /// Returns the guarantee that is violated, if one is.
    fn wrong(&self) -> Option<String> {
        let (message, is_received) = self.client;
        for number in 0..self.world.messages {
            let acknowledged = number < message || (number == message && is_received);
            let all = self.world.sessions.iter().enumerate();
            let sessions = all.flat_map(|(shard, all)| {
                all.iter().map(move |session| (Target::Session(shard, *session), true))
            });
            let others =
                [(Target::Queue, self.world.has_queue), (Target::Session(1, NEWCOMER), false)];
            for (target, must) in sessions.chain(others) {
                let of = |entry: &&Entry| (entry.0, entry.1) == (target, number);
                let delivered = self.delivered.iter().filter(of).count();
                let waiting = &self.shards[target.shard()].now.entries;
                let had: BTreeSet<_> = self.delivered.union(waiting).filter(of).collect();
                if delivered > target.copies() {
                    return Some(format!("{target:?} has message {number} {delivered} times"));
                }
                if must && acknowledged && had.len() < target.copies() {
                    return Some(format!("{target:?} misses message {number}"));
                }
            }
        }
        None
    }
}

/// Returns the number of states, and the violation in the first state that has one.
fn search(broken: Broken, world: World) -> (usize, Option<String>) {
    let first = State::new(world);
    // Only hashes are kept. Two different states with the same hash are practically impossible: the chance is one in
    // 10^18.
    let hasher = foldhash::quality::FixedState::default();
    let mut seen = HashSet::from([hasher.hash_one(&first)]);
    let mut left = VecDeque::from([first]);
    while let Some(state) = left.pop_front() {
        if let Some(wrong) = state.wrong() {
            return (seen.len(), Some(wrong));
        }
        for next in state.next(broken) {
            if seen.insert(hasher.hash_one(&next)) {
                left.push_back(next);
            }
        }
    }
    (seen.len(), None)
}

#[test]
fn each_gets_a_message_once() {
    for world in WORLDS {
        let (states, wrong) = search(Broken::Nothing, world);
        println!("{states} states of {world:?}");
        assert_eq!(wrong, None, "{world:?}");
        assert!(states > 1_000, "that is not all: {states} states of {world:?}");
    }
}

#[test]
fn each_rule_matters() {
    for broken in [
        Broken::NeverAsk,
        Broken::AskHomeOnly,
        Broken::NoteAllAtOnce,
        Broken::Descend,
        Broken::CountNoCopies,
        Broken::NoteLater,
        Broken::AcknowledgeEarly,
        Broken::CompleteEarly,
        Broken::ReleaseAtHome,
    ] {
        let noticed = WORLDS.iter().find_map(|world| search(broken, *world).1);
        println!("{broken:?}: {noticed:?}");
        assert!(noticed.is_some(), "{broken:?} does not matter");
    }
}
