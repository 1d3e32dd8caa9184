//! A PUBLISH on its way to all who have subscribed.
//!
//! Other things happen between one session and the next, as they do when other threads go on meanwhile.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use barid_core::commits::Commits;
use barid_core::ids::{MessageId, PacketId};
use barid_core::message::{Message, Publication};
use barid_core::session::{Reception, ShardSet};
use barid_core::time::MonoTime;
use mqtt_proto::QoS;
use std::time::Duration;

use super::session::Home;
use super::{Broker, SessionKey, message_number};
use crate::durable::TENANT_NUMBER;
use crate::history::{Event, History};
use crate::network::LinkId;
use crate::packets::messages::{Packet, TOPICS, Verdict, qos};
use crate::rules::{IfHolds as _, Rule};

/// A message that is being handed on.
pub struct Job {
    /// The connection that it came from.
    pub link: LinkId,
    /// The session of its publisher.
    publisher: SessionKey,
    message: Arc<Message>,
    id: PacketId,
    /// Who has still to get it, and with which QoS.
    targets: VecDeque<(SessionKey, QoS)>,
    /// Shards that have the message from before a crash.
    reached_before: ShardSet,
    /// Shards that have it now, and as what.
    stored_as: BTreeMap<u16, MessageId>,
    /// Shards that have still to note that it was received, when a rule is broken.
    to_note: BTreeSet<u16>,
    /// Shards that have noted that it was received.
    noted: ShardSet,
    /// What has to be durable before it is acknowledged.
    awaited: Commits,
}

impl Broker {
    /// A PUBLISH has come. False: it has to wait.
    pub(super) fn on_publish(
        &mut self,
        link: LinkId,
        publisher: SessionKey,
        packet: Packet,
    ) -> bool {
        let Packet::Publish { id, qos: level, retain, len, .. } = packet else { return true };
        let Some(session) = self.sessions.get_mut(&publisher) else { return true };
        let mut reached_before = ShardSet::default();
        let rules = self.durable.rules();
        if level == 2 {
            match session.received.receive(id) {
                Reception::New => {}
                Reception::Resumed(shards) => reached_before = shards,
                Reception::Unfinished if rules.hold(Rule::AcknowledgeRepetitionWhenHandedOn) => {
                    return false;
                }
                Reception::Unfinished | Reception::Repeated => {
                    let noted = match session.stored {
                        Some(_) => self.durable.last_changes(),
                        None => Commits::default(),
                    };
                    let noted = noted.if_holds(rules, Rule::AcknowledgeRepetitionWhenDurable);
                    let answer = (noted, Packet::PubRec(id, Verdict::Done));
                    session.answer(&self.durable, &mut self.effects, link, answer);
                    return true;
                }
            }
        }
        let message = message_of(packet, self.now);
        let topic = message.publication().topic;
        let route = self.index.route(topic);
        let targets: VecDeque<_> = route
            .targets()
            .iter()
            .map(|target| (target.subscriber.0, qos(level).min(target.qos)))
            .collect();
        let is_admitted = level == 0
            || (!reached_before.is_empty() && rules.hold(Rule::AdmitWhatWasReceived))
            || self.is_admissible(&targets, retain.then_some(topic));
        if !is_admitted {
            self.effects.refused.push(message_number(&message));
            self.refuse(link, publisher, level, id);
            return true;
        }
        let mut awaited = Commits::default();
        if retain {
            let retained = self.retain(&message, len == 0);
            awaited = retained.if_holds(rules, Rule::AcknowledgeWhenRetained);
        }
        if !rules.hold(Rule::SkipShardsThatHaveIt) {
            reached_before = ShardSet::default();
        }
        self.jobs.push(Job {
            link,
            publisher,
            message,
            id,
            targets,
            reached_before,
            stored_as: BTreeMap::new(),
            to_note: BTreeSet::new(),
            noted: ShardSet::default(),
            awaited,
        });
        true
    }

    /// Whether no store that the message has to go to refuses it.
    fn is_admissible(&self, targets: &VecDeque<(SessionKey, QoS)>, retained: Option<&str>) -> bool {
        let takes = |(key, qos): &(SessionKey, QoS)| {
            let home = self.sessions.get(key).and_then(|session| session.stored);
            *qos == QoS::AtMostOnce || home.is_none_or(|home| !self.durable.refuses(home.shard))
        };
        let retains = |topic| !self.durable.refuses(self.shard_of_topic(topic));
        targets.iter().all(takes) && retained.is_none_or(retains)
    }

    fn refuse(&mut self, link: LinkId, publisher: SessionKey, level: u8, id: PacketId) {
        let Some(session) = self.sessions.get_mut(&publisher) else { return };
        let answer = if level == 2 {
            let released = session.release(&mut self.durable, id);
            (released, Packet::PubRec(id, Verdict::Refused))
        } else {
            (Commits::default(), Packet::PubAck(id, Verdict::Refused))
        };
        session.answer(&self.durable, &mut self.effects, link, answer);
    }

    /// Makes a message the retained message of its topic, or `removes` the one there is.
    fn retain(&mut self, message: &Arc<Message>, removes: bool) -> Commits {
        let topic = message.publication().topic;
        let index = self.shard_of_topic(topic);
        let (shard, batch) = self.durable.change(index);
        if removes {
            shard.remove_retained(TENANT_NUMBER, topic);
            self.retained.remove(topic);
        } else {
            shard.set_retained(TENANT_NUMBER, message);
            self.retained.set(topic, Arc::clone(message));
        }
        Commits::one(index, batch)
    }

    fn shard_of_topic(&self, topic: &str) -> u16 {
        let number = TOPICS.iter().position(|known| *known == topic);
        self.durable.shard_of(number.expect("there are no other topics"))
    }

    /// The `index`-th of the messages that are being handed on goes to one session more, or is
    /// acknowledged.
    pub fn hand_on(&mut self, index: usize, history: &mut History) {
        let mut job = self.jobs.swap_remove(index);
        match job.targets.pop_front() {
            Some((target, qos)) => {
                self.offer(&mut job, target, qos, history);
                self.jobs.push(job);
            }
            None => self.finish(job),
        }
    }

    fn offer(&mut self, job: &mut Job, target: SessionKey, qos: QoS, history: &mut History) {
        let Some(session) = self.sessions.get(&target) else { return };
        let (client, home) = (session.client, session.stored);
        if home.is_some_and(|home| job.reached_before.contains(home.shard)) {
            return;
        }
        let stored =
            home.filter(|_| qos != QoS::AtMostOnce).map(|home| self.reach(job, home.shard));
        history.note(Event::Offered(client, message_number(&job.message)));
        let moment = self.moment();
        let session = self.sessions.get_mut(&target).expect("it was there");
        let (durable, effects) = (&mut self.durable, &mut self.effects);
        session.offer(durable, effects, moment, &job.message, (qos, stored));
    }

    /// The message is going to be stored in a shard. In the same batch goes the note that it was
    /// received. Answers its number there.
    fn reach(&mut self, job: &mut Job, shard: u16) -> MessageId {
        if self.origin(job).is_some() {
            if self.durable.rules().hold(Rule::NoteReceivedWithMessage) {
                self.durable.pass(shard, message_number(&job.message));
                self.note_received(job, shard);
            } else {
                job.to_note.insert(shard);
            }
        }
        let (unit, batch) = self.durable.change(shard);
        let message = *job.stored_as.entry(shard).or_insert_with(|| unit.new_message_ids(1));
        job.awaited.add(shard, batch);
        self.durable.names.insert((shard, message), message_number(&job.message));
        message
    }

    /// The stored session that published a QoS 2 message, if it is still there.
    fn origin(&self, job: &Job) -> Option<Home> {
        let publisher = self.sessions.get(&job.publisher);
        publisher.filter(|_| job.message.qos() == QoS::ExactlyOnce)?.stored
    }

    fn note_received(&mut self, job: &mut Job, shard: u16) {
        let Some(origin) = self.origin(job) else { return };
        let (unit, batch) = self.durable.change(shard);
        unit.put_received(TENANT_NUMBER, origin.number, job.id);
        job.awaited.add(shard, batch);
        job.noted.insert(shard);
    }

    fn finish(&mut self, mut job: Job) {
        for shard in std::mem::take(&mut job.to_note) {
            self.note_received(&mut job, shard);
        }
        if let Some(origin) = self.origin(&job) {
            // Also where it has reached nobody that is stored, a repetition must be known as one.
            self.note_received(&mut job, origin.shard);
        }
        self.durable.passed(message_number(&job.message));
        let awaited = job.awaited.if_holds(self.durable.rules(), Rule::AcknowledgeWhenDurable);
        let answer = match job.message.qos() {
            QoS::AtMostOnce => return,
            QoS::AtLeastOnce => Packet::PubAck(job.id, Verdict::Done),
            QoS::ExactlyOnce => Packet::PubRec(job.id, Verdict::Done),
        };
        if let Some(session) = self.sessions.get_mut(&job.publisher) {
            if job.message.qos() == QoS::ExactlyOnce {
                session.received.hand_on(job.id, job.noted);
            }
            session.answer(&self.durable, &mut self.effects, job.link, (awaited, answer));
        }
    }
}

fn message_of(packet: Packet, now: MonoTime) -> Arc<Message> {
    let Packet::Publish { message, topic, qos: level, retain, len, expiry, .. } = packet else {
        unreachable!("only a PUBLISH has a message")
    };
    Arc::new(Message::new(&Publication {
        topic: TOPICS[topic],
        payload: &vec![b'x'; len],
        // Not properties here, but what the checkers know the message by.
        properties: &message.to_be_bytes(),
        qos: qos(level),
        retain,
        expires_at: expiry.map(|millis| now.after(Duration::from_millis(millis))),
    }))
}
