//! A broker, its clients, the network between them and the disks below, and what happens to them.

use barid_store::memory::Disk;
use fastrand::Rng;

use super::broker::{Broker, Settings};
use super::client::{Client, Receiver};
use super::packet::{
    ENTITIES, EntityId, Handle, How, MessageNumber, ONCE, Packet, SESSIONS, SessionId, Source,
    Transfer,
};
use super::promises::{From, Promises};
use crate::Outcome;
use crate::chance::{fail, pick};
use crate::history::{Event, History};
use crate::network::Network;
use crate::network::{ClientId, LinkId};
use crate::rules::Rules;

/// Steps after which a world without failures must have come to rest.
const REST_STEPS: u32 = 30_000;

/// Messages in a history.
const MESSAGES_MAX: u32 = 60;

/// So many messages a receiver takes at most before it settles them.
const CREDIT_MAX: usize = 4;

/// The world of one history.
pub struct World {
    rng: Rng,
    chances: Chances,
    settings: Settings,
    history: History,
    promises: Promises,
    disks: Vec<Disk>,
    broker: Broker,
    clients: Vec<Client>,
    /// Messages that were told to be scheduled or deferred, with their numbers.
    scheduled: Vec<(EntityId, MessageNumber, u64)>,
    deferred: Vec<(EntityId, SessionId, u64)>,
    /// The sessions that nobody has looked at since nothing fails any more.
    to_see: Vec<(EntityId, SessionId)>,
    last_handle: Handle,
    last_note: u32,
    network: Network<Packet>,
    /// Milliseconds.
    now: u64,
    crashes: u32,
    /// From here on nothing fails.
    healed: bool,
}

/// How often things happen in a history: each has its own, some of them never.
struct Chances {
    steps: u32,
    weights: [u32; Doing::ALL.len()],
    send: f64,
    schedule: f64,
    detach: f64,
}

/// What can happen next.
#[derive(Clone, Copy)]
enum Doing {
    Deliver,
    Act,
    Commit,
    Cut,
    Notice,
    Wait,
    Tick,
    Crash,
    Fail,
    Audit,
}

impl Doing {
    const ALL: [Self; 10] = [
        Self::Deliver,
        Self::Act,
        Self::Commit,
        Self::Cut,
        Self::Notice,
        Self::Wait,
        Self::Tick,
        Self::Crash,
        Self::Fail,
        Self::Audit,
    ];
}

impl Chances {
    fn new(rng: &mut Rng) -> Self {
        let mut some = |choices: [u32; 4]| choices[rng.usize(..4)];
        let weights = [
            some([200, 300, 300, 500]),
            some([80, 150, 200, 300]),
            some([20, 40, 80, 150]),
            some([0, 2, 6, 12]),
            some([2, 10, 10, 30]),
            some([2, 5, 10, 20]),
            some([2, 10, 10, 20]),
            some([0, 2, 4, 8]),
            some([0, 0, 0, 6]),
            some([0, 1, 1, 2]),
        ];
        Self {
            steps: rng.u32(100..1_500),
            weights,
            send: [0.2, 0.4, 0.6][rng.usize(..3)],
            schedule: [0.0, 0.1, 0.4][rng.usize(..3)],
            detach: [0.0, 0.02, 0.1][rng.usize(..3)],
        }
    }
}

impl World {
    /// The world of a seed. `readable`: its history keeps lines to read.
    pub fn new(seed: u64, rules: Rules, readable: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        let chances = Chances::new(&mut rng);
        let disks: Vec<Disk> = (0..rng.usize(1..=2)).map(|_| Disk::new()).collect();
        let patient = rng.bool();
        let settings = Settings {
            rules,
            lock_duration: [50, 300, 1_000][rng.usize(..3)],
            max_delivery_count: if patient { u32::MAX } else { 2 },
            time_to_live: if patient { None } else { [None, Some(300)][rng.usize(..2)] },
            keeps: rng.bool(),
        };
        let now = 1_000_000;
        let sessions = |entity| (0..SESSIONS.len()).map(move |session| (entity, session));
        Self {
            broker: Broker::start(&disks, settings, 0, now),
            clients: (0..rng.usize(2..=4)).map(|_| Client::default()).collect(),
            rng,
            chances,
            settings,
            history: History::new(readable),
            promises: Promises::new(patient),
            disks,
            scheduled: Vec::new(),
            deferred: Vec::new(),
            to_see: (0..ENTITIES.len()).flat_map(sessions).collect(),
            last_handle: 0,
            last_note: 0,
            network: Network::default(),
            now,
            crashes: 0,
            healed: false,
        }
    }

    /// Lets it all happen.
    pub fn run(mut self) -> Outcome {
        while self.history.steps() < self.chances.steps && self.promises.violation().is_none() {
            self.step();
        }
        self.heal();
        let last = self.history.steps() + REST_STEPS;
        while !self.is_at_rest() && self.promises.violation().is_none() {
            self.step();
            if self.history.steps() == last {
                self.promises.violate("it does not come to rest".into());
            }
        }
        self.check_end();
        Outcome {
            digest: self.history.digest(),
            steps: self.history.steps(),
            crashes: self.crashes,
            messages: self.promises.messages(),
            deliveries: self.promises.deliveries,
            violation: self.promises.violation().map(String::from),
            lines: self.history.into_lines(),
        }
    }

    fn step(&mut self) {
        self.history.step();
        let doing = pick(&mut self.rng, Doing::ALL, self.chances.weights);
        self.happen(doing);
        self.take_effects();
    }

    fn happen(&mut self, doing: Doing) {
        match doing {
            Doing::Deliver => self.deliver(),
            Doing::Act => self.act(),
            Doing::Commit => {
                let shard = self.rng.usize(..self.disks.len());
                let shard = u16::try_from(shard).expect("there are few");
                self.broker.commit(shard, &mut self.history);
            }
            Doing::Cut => {
                if let Some(link) = self.network.any(&mut self.rng) {
                    self.cut(link);
                }
            }
            Doing::Notice => {
                if let Some((client, link)) = self.network.notice(&mut self.rng) {
                    self.history.note(Event::Gone(client, link));
                    self.broker.lose(link);
                }
            }
            Doing::Wait => {
                let millis = self.rng.u64(1..100);
                self.pass(millis);
            }
            Doing::Tick => self.broker.tick(),
            Doing::Crash => self.crash(),
            Doing::Fail => fail(&mut self.rng, &self.disks, &mut self.history),
            Doing::Audit => self.audit(),
        }
    }

    fn pass(&mut self, millis: u64) {
        self.now += millis;
        self.history.note(Event::Time(self.now));
        self.broker.set_time(self.now);
    }

    /// The network brings one packet to where it goes.
    fn deliver(&mut self) {
        let Some(link) = self.network.any(&mut self.rng) else { return };
        let wire = self.network.wire(link).expect("it is there");
        let client = wire.client;
        if self.rng.bool() {
            let Some(packet) = wire.to_broker.pop_front() else { return };
            self.history.note(Event::EntityGets(client, link, packet));
            self.broker.receive(client, link, packet);
        } else if let Some(packet) = wire.to_client.pop_front() {
            self.history.note(Event::UserGets(client, link, packet));
            self.client_gets(client, packet);
        }
    }

    fn client_gets(&mut self, id: ClientId, packet: Packet) {
        let now = self.now;
        let client = &mut self.clients[id];
        match packet {
            Packet::Accepted(message, number) => {
                let sent = client.unaccepted.remove(&message);
                let at = sent.and_then(|(_, _, at)| at);
                if let (Some((entity, ..)), Some(_), Some(number)) = (sent, at, number) {
                    self.scheduled.push((entity, message, number));
                }
                self.promises.accepted(message, number, sent.is_some() && at.is_none());
            }
            Packet::Cancelled(message, true) => self.promises.cancelled(message),
            Packet::Cancelled(_, false) => {}
            Packet::Attached(handle, held) => {
                let Some(receiver) = client.receiver(handle) else { return };
                receiver.attached = true;
                if let Some((session, until)) = held {
                    receiver.session = Some(session);
                    let from = client.from().expect("it has a receiver");
                    self.promises.granted(from, until, now);
                }
            }
            Packet::Detached(handle) => {
                if client.receiver(handle).is_some() {
                    self.end_receiver(id);
                }
            }
            Packet::Transfer(handle, transfer) => {
                let Some(receiver) = client.receiver(handle) else { return };
                if !transfer.deferred {
                    receiver.credit -= 1;
                }
                receiver.unsettled.insert(transfer.token, transfer);
                let from = client.from().expect("it has a receiver");
                self.promises.delivered(from, transfer, now);
            }
            Packet::Settled(handle, token, settled) => {
                let Some(receiver) = client.receiver(handle) else { return };
                let answered = receiver.settled.pop_front().expect("it was settled");
                let (from, transfer, how) = answered;
                assert_eq!(token, transfer.token, "answers come in order");
                if let (How::Defer, Ok(()), Some(session)) = (how, settled, from.session) {
                    self.deferred.push((from.entity, session, transfer.number));
                }
                self.promises.settled(from, transfer, how, settled, now);
            }
            Packet::Renewed(handle, until) => {
                let Some(receiver) = client.receiver(handle) else { return };
                receiver.asks = false;
                if let Some(until) = until {
                    self.promises.renewed(handle, until, now);
                }
            }
            Packet::StateSet(handle, done) => {
                let Some(receiver) = client.receiver(handle) else { return };
                receiver.asks = false;
                self.promises.state_set(handle, done);
            }
            Packet::State(handle, told) => {
                let Some(receiver) = client.receiver(handle) else { return };
                receiver.reads = false;
                if let Some(note) = told {
                    receiver.knows_state = true;
                    let from = client.from().expect("it has a receiver");
                    self.promises.state_told(from, note, now);
                }
            }
            _ => unreachable!("a broker sends no such packet"),
        }
    }

    fn client_sends(&mut self, client: ClientId, packet: Packet) {
        let Some(link) = self.clients[client].link else { return };
        self.history.note(Event::UserSends(client, link, packet));
        if let Some(wire) = self.network.wire(link) {
            wire.to_broker.push_back(packet);
        }
    }

    /// A client does something of its own.
    fn act(&mut self) {
        let id = self.rng.usize(..self.clients.len());
        if self.clients[id].link.is_none() {
            self.connect(id);
        } else if self.healed {
            self.clean_up(id);
        } else if self.rng.f64() < self.chances.send {
            self.send(id);
        } else {
            self.receive(id);
        }
    }

    /// A client has a connection again, and sends again what was not accepted.
    fn connect(&mut self, id: ClientId) {
        self.clients[id].link = Some(self.network.connect(id));
        for (message, sent) in std::mem::take(&mut self.clients[id].unaccepted) {
            // What may be taken twice is another message.
            let again = if sent.0 == ONCE { message } else { self.promises.messages() };
            self.send_message(id, again, sent);
        }
    }

    fn send(&mut self, id: ClientId) {
        if self.promises.messages() < MESSAGES_MAX {
            let (entity, session) =
                (self.rng.usize(..ENTITIES.len()), self.rng.usize(..SESSIONS.len()));
            let at =
                (self.rng.f64() < self.chances.schedule).then(|| self.now + self.rng.u64(1..600));
            self.send_message(id, self.promises.messages(), (entity, session, at));
        } else if !self.scheduled.is_empty() {
            let which = self.rng.usize(..self.scheduled.len());
            let (entity, message, number) = self.scheduled.swap_remove(which);
            self.promises.cancels(message);
            self.client_sends(id, Packet::Cancel(entity, message, number));
        }
    }

    fn send_message(
        &mut self,
        id: ClientId,
        message: MessageNumber,
        (entity, session, at): (EntityId, SessionId, Option<u64>),
    ) {
        self.promises.sent(message, (entity, session));
        self.clients[id].unaccepted.insert(message, (entity, session, at));
        self.client_sends(id, Packet::Send(entity, session, message, at));
    }

    /// A client does something to receive.
    fn receive(&mut self, id: ClientId) {
        let Some(receiver) = &self.clients[id].receiver else {
            let entity = self.rng.usize(..ENTITIES.len());
            let source = match self.rng.u8(..10) {
                0..4 => Source::Session(self.rng.usize(..SESSIONS.len())),
                4..9 => Source::Next(self.rng.u64(1..500)),
                _ => Source::DeadLetters,
            };
            self.attach(id, entity, source);
            return;
        };
        let handle = receiver.handle;
        if self.rng.f64() < self.chances.detach {
            self.detach(id);
            return;
        }
        if !receiver.attached {
            return;
        }
        let (is_session, asks, reads) = (receiver.session.is_some(), receiver.asks, receiver.reads);
        match self.rng.u8(..20) {
            0..4 => self.flow(id, 1),
            4..12 => {
                let outcomes =
                    [How::Complete, How::Abandon, How::Release, How::Defer, How::DeadLetter];
                let weights = if is_session { [10, 3, 2, 1, 1] } else { [5, 1, 1, 0, 0] };
                let how = pick(&mut self.rng, outcomes, weights);
                self.settle_one(id, how);
            }
            12 if !asks && is_session => {
                self.receiver_of(id).asks = true;
                self.client_sends(id, Packet::Renew(handle));
            }
            13..15 if !asks && is_session => {
                self.last_note += 1;
                let note = (!self.last_note.is_multiple_of(5)).then_some(self.last_note);
                self.ask_state(id, Some(note));
                self.client_sends(id, Packet::SetState(handle, note));
            }
            15..17 if !reads && is_session => {
                self.ask_state(id, None);
                self.client_sends(id, Packet::GetState(handle));
            }
            17 => self.settle_stale(id),
            18 if is_session => self.receive_deferred(id),
            _ => {}
        }
    }

    fn attach(&mut self, id: ClientId, entity: EntityId, source: Source) {
        self.last_handle += 1;
        let handle = self.last_handle;
        self.clients[id].receiver = Some(Receiver::new(handle, entity, source));
        self.client_sends(id, Packet::Attach(handle, entity, source));
    }

    fn detach(&mut self, id: ClientId) {
        let handle = self.clients[id].from().expect("it has a receiver").handle;
        self.client_sends(id, Packet::Detach(handle));
        self.end_receiver(id);
    }

    fn end_receiver(&mut self, id: ClientId) {
        if let Some(receiver) = &self.clients[id].receiver {
            self.promises.ended(receiver.handle);
            if let (true, false, Source::Session(session)) =
                (self.healed, receiver.knows_state, receiver.source)
            {
                self.to_see.push((receiver.entity, session));
            }
        }
        self.clients[id].end_receiver();
    }

    fn flow(&mut self, id: ClientId, credit: usize) {
        let receiver = self.receiver_of(id);
        if receiver.credit + receiver.unsettled.len() + credit <= CREDIT_MAX {
            receiver.credit += credit;
            let flow = Packet::Flow(receiver.handle, credit);
            self.client_sends(id, flow);
        }
    }

    /// Settles one of the messages that a client has, not always the first.
    fn settle_one(&mut self, id: ClientId, how: How) {
        let count = self.receiver_of(id).unsettled.len();
        if count == 0 {
            return;
        }
        let which = self.rng.usize(..count);
        let unsettled = &mut self.receiver_of(id).unsettled;
        let token = *unsettled.keys().nth(which).expect("there are so many");
        let transfer = unsettled.remove(&token).expect("it was just found");
        let from = self.clients[id].from().expect("it has a receiver");
        self.settle(id, from, transfer, how);
    }

    /// A client completes what another receiver of it had.
    fn settle_stale(&mut self, id: ClientId) {
        let client = &mut self.clients[id];
        let now = client.from().expect("it has a receiver");
        if now.session.is_none() {
            return;
        }
        let at = client.stale.iter().position(|(from, _)| from.entity == now.entity);
        let Some(at) = at else { return };
        let (from, transfer) = client.stale.swap_remove(at);
        self.settle(id, from, transfer, How::Complete);
    }

    /// A client settles what its receiver has, or another had before.
    fn settle(&mut self, id: ClientId, from: From, transfer: Transfer, how: How) {
        let receiver = self.receiver_of(id);
        let handle = receiver.handle;
        if how != How::Release {
            receiver.settled.push_back((from, transfer, how));
        }
        self.promises.settles(from, transfer, how);
        self.client_sends(id, Packet::Settle(handle, transfer.token, how));
    }

    fn receiver_of(&mut self, id: ClientId) -> &mut Receiver {
        self.clients[id].receiver.as_mut().expect("it has a receiver")
    }

    fn ask_state(&mut self, id: ClientId, set: Option<Option<u32>>) {
        let receiver = self.receiver_of(id);
        *(if set.is_some() { &mut receiver.asks } else { &mut receiver.reads }) = true;
        let from = self.clients[id].from().expect("it has a receiver");
        self.promises.asks_state(from, set);
    }

    fn receive_deferred(&mut self, id: ClientId) {
        let from = self.clients[id].from().expect("it has a receiver");
        let of_session = |(entity, session, _): &(EntityId, SessionId, u64)| {
            (*entity, Some(*session)) == (from.entity, from.session)
        };
        let mut numbers = self.deferred.iter().filter(|one| of_session(one));
        let count = numbers.clone().count();
        if count > 0 {
            let number = numbers.nth(self.rng.usize(..count)).expect("there are so many").2;
            self.client_sends(id, Packet::ReceiveDeferred(from.handle, number));
        }
    }

    /// Nothing fails any more: a client takes and completes what is left, and looks at all states.
    fn clean_up(&mut self, id: ClientId) {
        let Some(receiver) = &self.clients[id].receiver else {
            let dead = (0..ENTITIES.len()).find(|entity| self.broker.has_dead_letters(*entity));
            let left = (0..ENTITIES.len()).find(|entity| self.broker.has_messages(*entity));
            match (self.to_see.pop(), dead, left) {
                (Some((entity, session)), ..) => {
                    self.attach(id, entity, Source::Session(session));
                }
                (None, Some(entity), _) => self.attach(id, entity, Source::DeadLetters),
                (None, None, Some(entity)) => self.attach(id, entity, Source::Next(200)),
                (None, None, None) => {}
            }
            return;
        };
        if !receiver.attached {
            return;
        }
        let Receiver { entity, session, asks, reads, knows_state, credit, .. } = *receiver;
        let is_idle = receiver.unsettled.is_empty() && receiver.settled.is_empty();
        let has_more = match session {
            Some(session) => self.broker.has_active(entity, session),
            None => self.broker.has_dead_letters(entity),
        };
        if !receiver.unsettled.is_empty() {
            self.settle_one(id, How::Complete);
        } else if session.is_some() && !knows_state && !reads {
            let handle = receiver.handle;
            self.ask_state(id, None);
            self.client_sends(id, Packet::GetState(handle));
        } else if has_more && credit == 0 {
            self.flow(id, 2);
        } else if is_idle && !has_more && !asks && !reads {
            self.detach(id);
        }
    }

    /// A connection breaks. Its client notices at once, the broker when it does.
    fn cut(&mut self, link: LinkId) {
        let Some(client) = self.network.cut(link) else { return };
        self.history.note(Event::Cut(client, link));
        self.disconnected(client);
    }

    fn disconnected(&mut self, client: ClientId) {
        self.end_receiver(client);
        self.clients[client].link = None;
    }

    /// The broker's process ends at this very moment, and another one starts.
    fn crash(&mut self) {
        self.history.note(Event::Crash);
        self.crashes += 1;
        for client in self.network.collapse() {
            self.disconnected(client);
        }
        self.promises.crashed();
        for disk in &self.disks {
            disk.crash();
        }
        // A process takes time to begin.
        self.now += self.rng.u64(1..20);
        self.history.note(Event::Time(self.now));
        self.broker = Broker::start(&self.disks, self.settings, self.crashes, self.now);
    }

    /// When all is written, memory and stores must be the same.
    fn audit(&mut self) {
        self.history.note(Event::Audit);
        for shard in (0_u16..).take(self.disks.len()) {
            // A store that fails has not all.
            for _ in 0..6 {
                self.broker.commit(shard, &mut self.history);
            }
        }
        self.promises.check_places(&self.broker.places());
        if self.broker.is_written() {
            self.compare();
        }
    }

    /// What another process would find must be what this one has.
    fn compare(&mut self) {
        let found = Broker::start(&self.disks, self.settings, self.crashes + 1, self.now);
        let (here, there) = (self.broker.picture(), found.picture());
        if here != there {
            self.promises
                .violate(format!("what is in memory is not in the stores:\n{here:#?}\n{there:#?}"));
        }
    }

    /// The broker's packets go on their way.
    fn take_effects(&mut self) {
        for (client, link, packet) in std::mem::take(&mut self.broker.effects) {
            if let Some(wire) = self.network.wire(link) {
                self.history.note(Event::EntitySends(client, link, packet));
                wire.to_client.push_back(packet);
            }
        }
    }

    fn heal(&mut self) {
        self.history.note(Event::Heal);
        self.healed = true;
        for disk in &self.disks {
            disk.fail(None);
        }
        // Deliver, Act, Commit, Notice, Wait, Tick.
        self.chances.weights = [400, 100, 100, 0, 10, 4, 10, 0, 0, 0];
    }

    fn is_at_rest(&self) -> bool {
        let rests = |client: &Client| {
            client.link.is_some() && client.receiver.is_none() && client.unaccepted.is_empty()
        };
        self.clients.iter().all(rests)
            && self.to_see.is_empty()
            && !(0..ENTITIES.len()).any(|entity| self.broker.has_messages(entity))
            && self.network.is_quiet()
            && self.broker.is_written()
    }

    fn check_end(&mut self) {
        if self.promises.violation().is_some() {
            return;
        }
        self.promises.check_places(&self.broker.places());
        self.compare();
    }
}
