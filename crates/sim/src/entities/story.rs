//! The choice of the next event, for entities.

use barid_store::memory::Disk;
use fastrand::Rng;

use super::broker::{Broker, Picture, Settings};
use super::client::{Client, Receiver};
use super::promises::{From, Promises};
use crate::history::Event;
use crate::network::{ClientId, LinkId};
use crate::packets::entities::{
    ENTITIES, EntityId, Handle, How, MessageNumber, ONCE, PLAIN, Packet, RELAY, SESSIONS,
    SessionId, Source, Transfer,
};
use crate::process;
use crate::rules::Rules;
use crate::world::{self, Beginning, Checker as _, Doing, Note, Story, pick};

/// Number of messages in a history from which on clients send no new ones, and cancel scheduled ones instead.
const MESSAGES_MAX: u32 = 150;

/// Maximum number of messages that a receiver takes before it settles them.
const CREDIT_MAX: usize = 4;

type World = world::World<Entities>;

/// The story in which clients send messages to entities, and receive from them.
pub struct Entities {
    settings: Settings,
    /// Scheduled messages that were accepted, with their sequence numbers.
    scheduled: Vec<(EntityId, MessageNumber, u64)>,
    /// Sequence numbers of messages that a receiver was told are deferred.
    deferred: Vec<(EntityId, Option<SessionId>, u64)>,
    /// Number of entities that clients send to, in the order of [`ENTITIES`].
    sent_to: usize,
    /// Sessions whose state no client has read since the world has healed.
    to_see: Vec<(EntityId, SessionId)>,
    last_handle: Handle,
    last_note: u32,
    // Probabilities of actions in this history.
    send: f64,
    schedule: f64,
    detach: f64,
    hand_over: f64,
    settle_stale: f64,
    delete: f64,
    /// The session whose state a client has set before it detached, so that another client continues there.
    handed_over: Option<(ClientId, EntityId, SessionId)>,
    /// Whether a shard was closed, so that the broker may end links and connections.
    has_closed: bool,
}

impl Story for Entities {
    type Packet = Packet;
    type Broker = Broker;
    type Client = Client;
    type Promises = Promises;
    type Picture = Picture;

    const DOINGS: &'static [Doing<Self>] = &[
        (World::deliver, [200, 300, 300, 500], 400),
        (World::act, [80, 150, 200, 300], 100),
        (World::commit, [4, 20, 80, 150], 100),
        (process::obey, [20, 100, 200, 200], 100),
        (process::fetch, [10, 40, 40, 80], 50),
        (process::make_room, [5, 10, 40, 80], 100),
        (process::go_on, [1, 4, 10, 20], 10),
        (process::change_rates, [0, 0, 0, 1], 2),
        (|world| world.wait(1..10), [0, 0, 0, 0], 10),
        (process::keep_house, [2, 10, 10, 20], 10),
        (World::cut, [0, 2, 6, 12], 0),
        (World::notice, [2, 10, 10, 30], 10),
        (|world| world.wait(1..2_000), [2, 5, 10, 20], 4),
        (World::crash, [0, 1, 3, 6], 0),
        (World::close_or_open, [0, 0, 3, 20], 20),
        (World::fail, [0, 0, 0, 6], 0),
        (World::audit_places, [0, 1, 1, 2], 0),
    ];
    const STEPS_MAX: u32 = 4_000;
    const SENDS: Note<Packet> = Event::UserSends;
    const ARRIVES: Note<Packet> = Event::EntityGets;
    const TELLS: Note<Packet> = Event::EntitySends;

    fn begin(rng: &mut Rng, rules: Rules) -> Beginning<Self> {
        let send = [0.2, 0.4, 0.6][rng.usize(..3)];
        let schedule = [0.0, 0.1, 0.4][rng.usize(..3)];
        let detach = [0.0, 0.02, 0.1][rng.usize(..3)];
        let hand_over = [0.0, 0.1, 0.5][rng.usize(..3)];
        let settle_stale = [0.05, 0.05, 0.4][rng.usize(..3)];
        let delete = [0.0, 0.0, 0.3][rng.usize(..3)];
        let disks = rng.usize(1..=2);
        let patient = rng.bool();
        let settings = Settings {
            rules,
            lock_duration: [1_000, 6_000, 20_000][rng.usize(..3)],
            max_delivery_count: if patient { 1_000_000 } else { 2 },
            time_to_live: if patient { None } else { [None, Some(6_000)][rng.usize(..2)] },
            in_memory_max: [0, 1_000_000][rng.usize(..2)],
            window: rng.usize(1..=3),
            outbound_bytes_rate: [0, 0, 0, 200][rng.usize(..4)],
        };
        let sessions = |entity| (0..SESSIONS.len()).map(move |session| (entity, session));
        let story = Self {
            settings,
            scheduled: Vec::new(),
            deferred: Vec::new(),
            sent_to: [RELAY, RELAY, RELAY, ENTITIES.len()][rng.usize(..4)],
            to_see: (0..PLAIN).flat_map(sessions).collect(),
            last_handle: 0,
            last_note: 0,
            send,
            schedule,
            detach,
            hand_over,
            settle_stale,
            delete,
            handed_over: None,
            has_closed: false,
        };
        let clients = (0..rng.usize(2..=4)).map(|_| Client::default()).collect();
        Beginning { story, disks, clients, promises: Promises::new(patient, delete > 0.0) }
    }

    fn start(&self, disks: &[Disk], _: u32) -> Broker {
        Broker::start(disks, self.settings)
    }

    /// Connects a client, which then sends again the messages that were not accepted.
    fn connect(world: &mut World, id: ClientId) {
        world.network.connect(id);
        world.client_sends(id, Packet::Open);
        for (message, sent) in std::mem::take(&mut world.clients[id].unaccepted) {
            // Without duplicate detection the broker may take it twice, so it is sent as another message.
            let again = if is_sent_again(sent.0) { message } else { world.promises.messages() };
            world.send_message(id, again, sent);
        }
    }

    fn act(world: &mut World, id: ClientId) {
        if world.healed {
            world.clean_up(id);
        } else if world.rng.f64() < world.story.send {
            world.send(id);
        } else {
            world.receive(id);
        }
    }

    fn client_gets(world: &mut World, id: ClientId, link: LinkId, packet: Packet) {
        world.history.note(Event::UserGets(id, link, packet));
        let now = world.now;
        let client = &mut world.clients[id];
        match packet {
            Packet::Accepted(message, number) => {
                let sent = client.unaccepted.remove(&message);
                let at = sent.and_then(|(_, _, at)| at);
                if let (Some((entity, ..)), Some(_), Some(number)) = (sent, at, number) {
                    world.story.scheduled.push((entity, message, number));
                }
                world.promises.accepted(message, number, sent.is_some() && at.is_none());
            }
            Packet::Refused(message) => {
                let sent = client.unaccepted.remove(&message);
                // Without duplicate detection the broker could take it twice, so it is not sent again.
                if let Some(sent) = sent.filter(|(entity, ..)| is_sent_again(*entity)) {
                    world.send_message(id, message, sent);
                }
            }
            Packet::Cancelled(message, true) => world.promises.cancelled(message),
            Packet::Cancelled(_, false) => {}
            Packet::Attached(handle, held) => {
                let Some(receiver) = client.receiver(handle) else { return };
                receiver.attached = true;
                if let Some((session, until)) = held {
                    receiver.session = Some(session);
                    let from = client.from().expect("it has a receiver");
                    world.promises.granted(from, until, now);
                    // A client that continues where another one has stopped reads the state first.
                    if world.story.hand_over > 0.0 || world.rng.bool() {
                        world.read_state(id);
                    }
                }
            }
            Packet::Detached(handle) => {
                if client.receiver(handle).is_some() {
                    world.end_receiver(id);
                }
            }
            Packet::Transfer(handle, transfer) => {
                let Some(receiver) = client.receiver(handle) else { return };
                if !transfer.deferred {
                    receiver.credit -= 1;
                }
                if !transfer.is_deleted() {
                    receiver.unsettled.insert(transfer.token, transfer);
                }
                let from = client.from().expect("it has a receiver");
                world.deliveries += 1;
                world.promises.delivered(from, transfer, now);
            }
            Packet::Settled(handle, token, settled) => {
                let Some(receiver) = client.receiver(handle) else { return };
                let answered = receiver.settled.iter().position(|(_, it, _)| it.token == token);
                let answered = answered.and_then(|answered| receiver.settled.remove(answered));
                let (from, transfer, how) = answered.expect("it was settled");
                if let (How::Defer, Ok(()), false) = (how, settled, from.dead) {
                    world.story.deferred.push((from.entity, from.session, transfer.number));
                }
                world.promises.settled(from, transfer, how, settled, now);
            }
            Packet::Renewed(handle, until) => {
                let Some(receiver) = client.receiver(handle) else { return };
                receiver.asks = false;
                if let Some(until) = until {
                    world.promises.renewed(handle, until, now);
                }
            }
            Packet::StateSet(handle, done) => {
                let Some(receiver) = client.receiver(handle) else { return };
                receiver.asks = false;
                world.promises.state_set(handle, done);
            }
            Packet::State(handle, told) => {
                let Some(receiver) = client.receiver(handle) else { return };
                receiver.reads = false;
                if let Some(note) = told {
                    receiver.knows_state = true;
                    let from = client.from().expect("it has a receiver");
                    world.promises.state_told(from, note, now);
                }
            }
            // A shard was closed. The client comes back on a new connection.
            Packet::Closed if world.story.has_closed => world.cut_link(link),
            Packet::Closed => world.promises.violate(format!("c{id} is disconnected")),
            _ => unreachable!("a broker sends no such packet"),
        }
    }

    fn disconnected(world: &mut World, client: ClientId) {
        world.end_receiver(client);
    }

    fn take_packets(world: &mut World) -> Vec<(ClientId, LinkId, Packet)> {
        world.broker.take_packets(|link| world.network.owner(link))
    }

    fn picture(_: &World, broker: &Broker) -> Picture {
        broker.picture()
    }

    fn is_at_rest(world: &mut World) -> bool {
        let mut clients = world.clients.iter();
        clients.all(|client| client.receiver.is_none() && client.unaccepted.is_empty())
            && world.story.to_see.is_empty()
            && !(0..ENTITIES.len()).any(|entity| world.broker.has_messages(entity))
            && world.broker.process.is_idle()
    }

    fn check_end(world: &mut World) {
        world.promises.check_places(&world.broker.places());
        world.compare();
    }
}

/// Whether an entity has duplicate detection, so that clients send messages to it again.
fn is_sent_again(entity: EntityId) -> bool {
    matches!(entity, ONCE | RELAY)
}

impl World {
    /// Closes or opens a shard. Messages that receivers have in a closed shard return to it, as in a crash.
    /// Clients lose their connections at this moment. A client that connects while the shard is closed drops
    /// that connection when it learns of the closing.
    fn close_or_open(&mut self) {
        let is_closed = process::close_or_open(self);
        self.story.has_closed |= self.broker.process.is_closing();
        if is_closed {
            self.promises.crashed();
            for client in 0..self.clients.len() {
                if let Some((link, _)) = self.network.of(client) {
                    self.cut_link(link);
                }
            }
        }
    }

    /// Audits, and checks that messages are in places where they may be.
    fn audit_places(&mut self) {
        self.audit();
        // The content of a closed shard is in its store only.
        if !self.broker.process.is_any_closed() {
            self.promises.check_places(&self.broker.places());
        }
    }

    fn send(&mut self, id: ClientId) {
        if self.promises.messages() < MESSAGES_MAX {
            let (entity, session) =
                (self.rng.usize(..self.story.sent_to), self.rng.usize(..SESSIONS.len()));
            let at =
                (self.rng.f64() < self.story.schedule).then(|| self.now + self.rng.u64(1..12_000));
            self.send_message(id, self.promises.messages(), (entity, session, at));
        } else if !self.story.scheduled.is_empty() {
            let which = self.rng.usize(..self.story.scheduled.len());
            let (entity, message, number) = self.story.scheduled.swap_remove(which);
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

    /// Lets a client do something to receive.
    fn receive(&mut self, id: ClientId) {
        let Some(receiver) = &self.clients[id].receiver else {
            let handed_over = self.story.handed_over.take_if(|(from, ..)| *from != id);
            if let Some((_, entity, session)) = handed_over {
                self.attach(id, entity, Source::Session(session), false);
                return;
            }
            let entity = self.rng.usize(..RELAY);
            let source = match self.rng.u8(..10) {
                0..9 if entity == PLAIN => Source::Messages,
                0..4 => Source::Session(self.rng.usize(..SESSIONS.len())),
                4..9 => Source::Next(self.rng.u64(1..10_000)),
                _ => Source::DeadLetters,
            };
            let deletes = self.rng.f64() < self.story.delete;
            self.attach(id, entity, source, deletes);
            return;
        };
        let (handle, entity, session) = (receiver.handle, receiver.entity, receiver.session);
        if self.rng.f64() < self.story.detach {
            self.detach(id);
            return;
        }
        if !receiver.attached {
            return;
        }
        let (is_session, asks, reads) = (session.is_some(), receiver.asks, receiver.reads);
        let is_dead = receiver.source == Source::DeadLetters;
        if is_session && !asks && self.rng.f64() < self.story.hand_over {
            self.set_state(id);
            self.detach(id);
            self.story.handed_over = session.map(|session| (id, entity, session));
            return;
        }
        if self.rng.f64() < self.story.settle_stale {
            self.settle_stale(id);
            return;
        }
        match self.rng.u8(..19) {
            0..4 => self.flow(id, 1),
            4..12 => {
                let outcomes =
                    [How::Complete, How::Abandon, How::Release, How::Defer, How::DeadLetter];
                let weights = if is_dead { [5, 1, 1, 0, 0] } else { [10, 3, 2, 1, 1] };
                let how = pick(&mut self.rng, outcomes.into_iter().zip(weights));
                self.settle_one(id, how);
            }
            12 if !asks && is_session => {
                self.receiver_of(id).asks = true;
                self.client_sends(id, Packet::Renew(handle));
            }
            13..15 if !asks && is_session => self.set_state(id),
            15..17 if !reads && is_session => self.read_state(id),
            17 if !is_dead => self.receive_deferred(id),
            _ => {}
        }
    }

    fn attach(&mut self, id: ClientId, entity: EntityId, source: Source, deletes: bool) {
        self.story.last_handle += 1;
        let handle = self.story.last_handle;
        self.clients[id].receiver = Some(Receiver::new(handle, entity, source));
        self.client_sends(id, Packet::Attach(handle, entity, source, deletes));
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
                self.story.to_see.push((receiver.entity, session));
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

    /// Settles a random message that the receiver of a client has.
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

    /// Completes a message that an earlier receiver of the client had.
    fn settle_stale(&mut self, id: ClientId) {
        let client = &mut self.clients[id];
        let now = client.from().expect("it has a receiver");
        if now.dead {
            return;
        }
        let at = client.stale.iter().position(|(from, _)| from.entity == now.entity);
        let Some(at) = at else { return };
        let (from, transfer) = client.stale.swap_remove(at);
        self.settle(id, from, transfer, How::Complete);
    }

    /// Settles a message that the receiver of a client has, or that an earlier receiver had.
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

    fn set_state(&mut self, id: ClientId) {
        self.story.last_note += 1;
        let note = (!self.story.last_note.is_multiple_of(5)).then_some(self.story.last_note);
        let handle = self.receiver_of(id).handle;
        self.ask_state(id, Some(note));
        self.client_sends(id, Packet::SetState(handle, note));
    }

    fn read_state(&mut self, id: ClientId) {
        let handle = self.receiver_of(id).handle;
        self.ask_state(id, None);
        self.client_sends(id, Packet::GetState(handle));
    }

    fn receive_deferred(&mut self, id: ClientId) {
        let from = self.clients[id].from().expect("it has a receiver");
        let of_session = |(entity, session, _): &(EntityId, Option<SessionId>, u64)| {
            (*entity, *session) == (from.entity, from.session)
        };
        let mut numbers = self.story.deferred.iter().filter(|one| of_session(one));
        let count = numbers.clone().count();
        if count > 0 {
            let number = numbers.nth(self.rng.usize(..count)).expect("there are so many").2;
            self.client_sends(id, Packet::ReceiveDeferred(from.handle, number));
        }
    }

    /// Lets a client, after the world has healed, receive and complete what is left, and read the states of all
    /// sessions.
    fn clean_up(&mut self, id: ClientId) {
        let Some(receiver) = &self.clients[id].receiver else {
            let dead = (0..ENTITIES.len()).find(|entity| self.broker.has_dead_letters(*entity));
            let left = (0..RELAY).find(|entity| self.broker.has_messages(*entity));
            match (self.story.to_see.pop(), dead, left) {
                (Some((entity, session)), ..) => {
                    self.attach(id, entity, Source::Session(session), false);
                }
                (None, Some(entity), _) => self.attach(id, entity, Source::DeadLetters, false),
                (None, None, Some(PLAIN)) => self.attach(id, PLAIN, Source::Messages, false),
                (None, None, Some(entity)) => self.attach(id, entity, Source::Next(4_000), false),
                (None, None, None) => {}
            }
            return;
        };
        if !receiver.attached {
            return;
        }
        let Receiver { entity, session, asks, reads, knows_state, credit, source, .. } = *receiver;
        let is_idle = receiver.unsettled.is_empty() && receiver.settled.is_empty();
        let has_more = match source {
            Source::DeadLetters => self.broker.has_dead_letters(entity),
            _ => self.broker.has_active(entity, session),
        };
        if !receiver.unsettled.is_empty() {
            self.settle_one(id, How::Complete);
        } else if session.is_some() && !knows_state && !reads {
            self.read_state(id);
        } else if has_more && credit == 0 {
            self.flow(id, 2);
        } else if is_idle && !has_more && !asks && !reads {
            self.detach(id);
        }
    }
}
