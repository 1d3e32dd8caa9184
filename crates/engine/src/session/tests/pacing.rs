//! Tests of the pace at which a client is sent messages, with threads that offer messages and an owner that has
//! its turn when it is told or when its timer is due.

use std::time::Duration;

use barid_core::message::Publication;
use mqtt_proto::{Ack, FixedHeader, MAX_PACKET_LEN, Packet, PacketType, QoS};
use proptest::prelude::*;

use super::*;
use crate::durability::DurabilityClass;
use crate::limits::Limits;
use crate::offer::{Offer, Writes};
use crate::quotas::Metered;
use crate::run::Run;
use crate::session::{Offered, Stint};

const RATE: u64 = 2_000;

fn at(millis: u64) -> MonoTime {
    MonoTime::from_millis(1_700_000_000_000 + millis)
}

fn worker(millis: u64) -> Worker {
    Worker { id: 0, now: at(millis) }
}

/// A session whose client may be sent [`RATE`] bytes in a second.
struct Paced {
    world: World,
    /// Bytes that the client has read and that are not a whole packet.
    unread: Vec<u8>,
    /// Payloads of the messages that the client has got, with the time.
    received: Vec<(u64, Vec<u8>)>,
    /// Number of bytes that were written, by time.
    bytes: Vec<(u64, usize)>,
    /// Number of those that the client has not read.
    noted: usize,
}

impl Paced {
    fn new() -> Self {
        let limits =
            Limits { outbound_bytes_rate: RATE, max_queued_messages: 100_000, ..Limits::default() };
        let settings =
            TenantSettings { limits: Arc::new(limits.clone()), ..TenantSettings::default() };
        let world = World::with(settings);
        let quotas = &world.session.account.quotas;
        let permit = quotas.admit(at(0), &limits, ("", None), false).unwrap();
        world.session.set_pace(
            &worker(0),
            world.epoch,
            Metered::new(quotas, permit, "").outbound(),
        );
        world.room(usize::MAX);
        Self { world, unread: Vec::new(), received: Vec::new(), bytes: Vec::new(), noted: 0 }
    }

    /// Offers a message, as a thread that does not own the connection.
    fn offer(&self, millis: u64, payload: &[u8], qos: QoS, writes: Writes) {
        let publication = Publication {
            topic: "t",
            payload,
            properties: &[],
            qos,
            retain: false,
            expires_at: None,
        };
        let worker = worker(millis);
        let (mut run, mut buffer) = Run::of(&publication, DurabilityClass::Memory, worker.now);
        let mut messages = run.in_buffer(&mut buffer, worker.now);
        let offer =
            Offer { range: 0..1, qos, retain: false, identifiers: &[], shared: None, writes };
        let session = &self.world.session;
        if session.offer(&worker, &mut messages, &offer) == Offered::FlushLater {
            session.flush(&worker);
        }
    }

    /// Gives the owner a turn if it was told, or if its timer is due.
    fn go_on(&mut self, millis: u64, timer: &mut Option<MonoTime>) {
        if self.world.told() > 0 || timer.is_some_and(|due| due <= at(millis)) {
            self.drain(millis);
            *timer = self.world.session.paced_until(self.world.epoch);
        }
    }

    fn drain(&self, millis: u64) {
        let write = |bytes: &[u8]| self.world.pipe.write(bytes);
        let (session, epoch) = (&self.world.session, self.world.epoch);
        session.drain(&worker(millis), epoch, false, Stint::SHORT, write);
    }

    /// Lets the client read, and acknowledge what it has got.
    fn read(&mut self, millis: u64) {
        self.note(millis);
        self.noted = 0;
        let bytes = self.world.written();
        self.unread.extend(bytes);
        let mut acked = Vec::new();
        while let Ok(Some(header)) = FixedHeader::read(&self.unread, MAX_PACKET_LEN)
            && header.packet_len() <= self.unread.len()
        {
            let packet: Vec<_> = self.unread.drain(..header.packet_len()).collect();
            let body = &packet[header.header_len..];
            let Packet::Publish(publish) = Packet::decode(Version::V5, header, body).unwrap()
            else {
                panic!("nothing else was sent")
            };
            self.received.push((millis, publish.payload.to_vec()));
            acked.extend(publish.packet_id);
        }
        let (waits, _) = self.world.session.acknowledge(self.world.epoch, |outbound, journal| {
            for id in acked {
                outbound.on_puback(id.get(), journal);
            }
        });
        if waits {
            self.drain(millis);
        }
    }

    /// Notes what was written since the last call.
    fn note(&mut self, millis: u64) {
        let written = self.world.pipe.written.lock().len();
        if written > self.noted {
            self.bytes.push((millis, written - self.noted));
            self.noted = written;
        }
    }

    /// In no window the client may get more than the rate, a burst, and one packet.
    fn assert_paced(&self, packet: usize) {
        for (begin, (from, _)) in self.bytes.iter().enumerate() {
            let mut sum = 0;
            for (to, bytes) in &self.bytes[begin..] {
                sum += bytes;
                let most = RATE + RATE * (to - from) / 1_000 + packet as u64;
                assert!(sum as u64 <= most, "{sum} bytes from {from} to {to} ms");
            }
        }
    }
}

#[test]
fn what_exceeds_the_rate_waits_and_leaves_in_order() {
    let mut paced = Paced::new();
    let payload = |number: u32| format!("{number:0100}").into_bytes();
    let mut timer = None;
    for number in 0..100 {
        paced.offer(0, &payload(number), QoS::AtMostOnce, Writes::AtOnce);
    }
    assert_eq!(paced.world.told(), 1, "the owner is told once, however many messages wait");
    paced.drain(0);
    timer = timer.or(paced.world.session.paced_until(paced.world.epoch));
    assert_eq!(paced.world.told(), 0);
    let mut turns = 0;
    for millis in 0..5_000 {
        if timer.is_some_and(|due| due <= at(millis)) {
            turns += 1;
        }
        paced.go_on(millis, &mut timer);
        paced.read(millis);
    }
    let payloads: Vec<_> = paced.received.iter().map(|(_, payload)| payload.clone()).collect();
    assert_eq!(payloads, (0..100).map(payload).collect::<Vec<_>>());
    let took = paced.received[99].0;
    assert!((4_000..4_600).contains(&took), "8,600 bytes behind the burst take {took} ms");
    assert!(turns < 250, "{turns} turns for 80 messages");
    assert_eq!((timer, paced.world.told()), (None, 0), "who has nothing to wait for sleeps");
    paced.assert_paced(110);
}

#[test]
fn acknowledgements_pass() {
    let paced = Paced::new();
    let session = &paced.world.session;
    let mut puback = Vec::new();
    Ack {
        packet_id: mqtt_proto::PacketId::new(1).unwrap(),
        reason: ReasonCode::Success,
        properties: mqtt_proto::Properties::default(),
    }
    .encode(PacketType::PubAck, Version::V5, &mut puback)
    .unwrap();
    paced.offer(0, &[0; 3_000], QoS::AtMostOnce, Writes::AtOnce);
    paced.world.written();
    let answers = Answers { ordered: puback.repeat(100), ..Answers::default() };
    let write = |bytes: &[u8]| paced.world.pipe.write(bytes);
    session.answer(&worker(0), paced.world.epoch, &answers, usize::MAX, write);
    assert_eq!(paced.world.written().len(), 400, "no message that waits delays them");
}

#[test]
fn the_owner_is_not_woken_in_vain_for_a_client_that_is_not_read_from() {
    let paced = Paced::new();
    for _ in 0..4 {
        paced.offer(0, &[0; 1_000], QoS::AtMostOnce, Writes::AtOnce);
    }
    let (session, epoch) = (paced.world.session.clone(), paced.world.epoch);
    let answers =
        Answers { ordered: b"puback".to_vec(), are_of_requests: true, ..Answers::default() };
    let write = |bytes: &[u8]| paced.world.pipe.write(bytes);
    let reads = session.answer(&worker(0), epoch, &answers, usize::MAX, write);
    assert!(!reads, "responses wait for it");
    paced.world.told();
    let (mut turns, mut millis) = (0, 0);
    while !session.may_read_again(epoch, 0) {
        // Told of a new wait, and of nothing else.
        paced.world.told();
        paced.drain(millis);
        assert_eq!(paced.world.told(), 0, "at {millis} ms it may not be read from");
        let until = session.paced_until(epoch).expect("it goes on when the quota allows it");
        millis = u64::try_from(until.since(at(0)).as_millis()).unwrap();
        paced.drain(millis);
        turns += 1;
    }
    assert_eq!(paced.world.told(), 1, "it is told when all has been sent");
    assert!(turns < 10 && millis > 500, "{turns} turns, {millis} ms");
}

#[test]
fn a_connection_that_goes_gives_back_its_place() {
    let paced = Paced::new();
    let (session, account) = (&paced.world.session, &paced.world.session.account);
    let debt = || account.quotas.usage().bucket(crate::quotas::Flow::Outbound).debt(at(0));
    paced.offer(0, &[0; 3_000], QoS::AtMostOnce, Writes::AtOnce);
    let before = debt();
    paced.offer(0, &[0; 3_000], QoS::AtMostOnce, Writes::AtOnce);
    assert!(debt() > before, "it waits in its place");
    session.detach(paced.world.epoch);
    assert!(debt() <= before + Duration::from_micros(1));
    assert_eq!(session.paced_until(paced.world.epoch), None);
}

#[derive(Clone, Debug)]
enum Step {
    Offer { size: usize, qos: QoS, writes: Writes },
    Wait(u64),
    Read,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let qos = prop_oneof![Just(QoS::AtMostOnce), Just(QoS::AtLeastOnce)];
    let writes = prop_oneof![Just(Writes::AtOnce), Just(Writes::Together), Just(Writes::WithFlush)];
    let step = prop_oneof![
        6 => (4..400_usize, qos, writes)
            .prop_map(|(size, qos, writes)| Step::Offer { size, qos, writes }),
        2 => (0..300_u64).prop_map(Step::Wait),
        2 => Just(Step::Read),
    ];
    proptest::collection::vec(step, 0..120)
}

proptest! {
    /// Whatever is offered, of QoS 0 and 1, whoever reads late: nothing is lost or overtakes, and the rate is
    /// kept.
    #[test]
    fn nothing_is_lost_and_no_window_has_more_than_the_rate(steps in steps()) {
        let mut paced = Paced::new();
        let (mut millis, mut timer, mut sent) = (0, None, Vec::new());
        let offers = steps.iter().filter(|step| matches!(step, Step::Offer { .. })).count();
        for step in steps.into_iter().chain([Step::Wait(200 * offers as u64 + 1_000)]) {
            match step {
                Step::Offer { size, qos, writes } => {
                    let mut payload = (sent.len() as u32).to_be_bytes().to_vec();
                    payload.resize(size, 0);
                    paced.offer(millis, &payload, qos, writes);
                    sent.push(payload);
                }
                Step::Wait(time) => {
                    for _ in 0..time {
                        millis += 1;
                        paced.go_on(millis, &mut timer);
                        paced.note(millis);
                        if time > 300 {
                            paced.read(millis);
                        }
                    }
                }
                Step::Read => paced.read(millis),
            }
            paced.go_on(millis, &mut timer);
            paced.note(millis);
        }
        let received: Vec<_> = paced.received.iter().map(|(_, payload)| payload.clone()).collect();
        prop_assert_eq!(received, sent);
        paced.assert_paced(410);
    }
}
