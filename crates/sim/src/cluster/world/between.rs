//! What passes between the brokers.

use barid_engine::links::{Carrier, Side, Speaker};
use barid_peers::{Frame, Refusal, decode};

use super::super::NODES;
use super::super::links::{Carried, Control, Ends, Pipe};
use super::{BEAT, World};

/// Maximum length of a frame of a control link, in bytes.
const FRAME_MAX: usize = 1 << 20;

impl World {
    /// A broker opens a link to another one, if it has none.
    pub(super) fn dial(&mut self) {
        let (from, to, is_control) = {
            let rng = &mut self.rng;
            (rng.usize(..NODES), rng.usize(..NODES), rng.bool())
        };
        if from == to
            || !self.runs(from)
            || !(self.passes(from, to) && self.passes(to, from))
            || self.links.has(is_control, from, to)
        {
            return;
        }
        if self.places[to].node.is_none() {
            self.with(from, |node, _| {
                node.tries(to);
                node.is_refused_by(to);
            });
            return;
        }
        if !self.runs(to) {
            return;
        }
        let (speaker, listener) = (self.node(from).me(), self.node(to).me());
        if is_control {
            self.with(from, |node, _| node.tries(to));
        } else if !self.node(from).membership.is_member(&listener) {
            return;
        }
        let is_admitted = self.node(to).membership.members().admits(&speaker);
        if let Err(refusal) = is_admitted {
            if refusal == Refusal::Down {
                self.with(from, |node, _| node.is_condemned(to, speaker.incarnation));
            }
            return;
        }
        if self.node(from).membership.members().admits(&listener).is_err() {
            return;
        }
        let ends = Ends { from, to, speaker, listener, is_closed: false, is_over: false };
        let (forth, back) = (Pipe::default(), Pipe::default());
        if is_control {
            // The listener attends to the last link of a speaker only.
            for link in &mut self.links.control {
                link.ends.is_over |= (link.ends.from, link.ends.to) == (from, to);
            }
            self.with(from, |node, _| node.greets(&ends.listener));
            self.with(to, |node, _| node.greets(&ends.speaker));
            let (speaker, next_beat) = (Speaker::default(), self.now);
            let is_refused = false;
            let link = Control { ends, speaker, forth, back, next_beat, is_refused };
            self.links.control.push(link);
        } else {
            self.with(to, |node, _| node.greets(&ends.speaker));
            let id = self.links.next_id();
            let opens = self.node(from);
            let link = opens.membership.cluster().link(0, opens.place(to));
            let out = Carrier::new(Side::Outgoing(link.clone()));
            out.begin(&(opens.owner.clone() as _), id);
            let accepts = self.node(to);
            let inbound = accepts.membership.cluster().inbound(accepts.place(from), 0);
            let into = Carrier::new(Side::Incoming(inbound));
            into.begin(&(accepts.owner.clone() as _), id);
            self.links.carried.push(Carried { ends, id, out, into, forth, back });
        }
    }

    /// Delivers the bytes on a random control link that are due, and lets its speaker speak.
    pub(super) fn visit_control(&mut self) {
        let count = self.links.control.len();
        if count == 0 {
            return;
        }
        let mut link = self.links.control.swap_remove(self.rng.usize(..count));
        self.hear_control(&mut link);
        self.answer_control(&mut link);
        self.speak(&mut link);
        // A new life of one of the brokers, which has begun meanwhile, has other links.
        let (from, to) = (link.ends.from, link.ends.to);
        link.ends.is_closed |= !self.is_life(from, link.ends.speaker.incarnation);
        link.ends.is_over |= !self.is_life(to, link.ends.listener.incarnation)
            || (link.ends.is_closed && link.forth.is_empty());
        self.links.control.push(link);
    }

    fn is_life(&self, node: usize, incarnation: u64) -> bool {
        self.places[node].node.is_some() && self.places[node].incarnation == incarnation
    }

    fn hear_control(&mut self, link: &mut Control) {
        let Ends { from, to, ref speaker, .. } = link.ends;
        let is_possible = self.runs(to)
            && self.passes(from, to)
            && self.is_life(to, link.ends.listener.incarnation);
        let is_heard = !link.ends.is_over && !link.is_refused;
        if !is_heard || !is_possible || !link.forth.arrive(self.now) {
            return;
        }
        let (mut at, mut out) = (0, Vec::new());
        let unread = std::mem::take(&mut link.forth.unread);
        while let Some((frame, len)) = decode(&unread[at..], FRAME_MAX).expect("it is a frame") {
            at += len;
            let has_told = matches!(frame, Frame::Told(_));
            let heard = self.with(to, |node, _| {
                node.hears((speaker, from), frame, &mut out)
                    .map(|()| node.membership.is_member(speaker))
            });
            let is_member = heard.expect("it is a frame of a control link");
            if has_told && is_member {
                self.knows(to, from, true);
            }
            if !is_member {
                Frame::Refused(Refusal::Down).encode(&mut out);
                link.is_refused = true;
                break;
            }
            if !self.is_life(to, link.ends.listener.incarnation) {
                break;
            }
        }
        if at < unread.len() {
            link.forth.unread = unread[at..].to_vec();
        }
        link.back.send(&mut self.rng, self.now, self.slowest, out);
    }

    fn answer_control(&mut self, link: &mut Control) {
        let Ends { from, to, ref speaker, ref listener, .. } = link.ends;
        let is_possible = self.runs(from)
            && self.passes(to, from)
            && self.is_life(from, speaker.incarnation)
            && !link.ends.is_closed;
        if !is_possible || !link.back.arrive(self.now) {
            return;
        }
        let mut at = 0;
        let unread = std::mem::take(&mut link.back.unread);
        while let Some((frame, len)) = decode(&unread[at..], FRAME_MAX).expect("it is a frame") {
            at += len;
            match frame {
                Frame::Heard(version) => self.with(from, |node, _| {
                    node.membership.is_heard((listener, node.place(to)), version);
                }),
                _ => {
                    self.with(from, |node, _| node.is_condemned(to, speaker.incarnation));
                    link.ends.is_closed = true;
                    break;
                }
            }
        }
        link.back.unread = unread[at..].to_vec();
    }

    fn speak(&mut self, link: &mut Control) {
        let from = link.ends.from;
        let is_possible = self.runs(from)
            && self.is_life(from, link.ends.speaker.incarnation)
            && !link.ends.is_closed
            && !link.ends.is_over;
        if !is_possible {
            return;
        }
        let of_clients = self.node(from).tells_of_clients();
        if !of_clients.is_empty() {
            let (rng, now, slowest) = (&mut self.rng, self.now, self.slowest);
            link.forth.send(rng, now, slowest, of_clients.clone());
            for other in &mut self.links.control {
                if other.ends.from == from && !other.ends.is_closed {
                    other.forth.send(rng, now, slowest, of_clients.clone());
                }
            }
        }
        if self.now >= link.next_beat {
            link.next_beat = self.now + BEAT;
            let beat = self.with(from, |node, _| node.membership.heartbeat(&node.process.engine));
            link.speaker.beat(beat);
        }
        let (mut out, mut has_more) = (Vec::new(), true);
        while has_more {
            let cluster = self.places[from].node.as_ref().expect("it runs").membership.cluster();
            let place = cluster.place(&link.ends.listener.name).expect("there is room");
            has_more = link.speaker.speak(cluster, place, &mut out);
        }
        link.forth.send(&mut self.rng, self.now, self.slowest, out);
    }

    /// Delivers the bytes on a random message link that are due, and lets both ends write.
    pub(super) fn visit_carried(&mut self) {
        let count = self.links.carried.len();
        if count == 0 {
            return;
        }
        let mut link = self.links.carried.swap_remove(self.rng.usize(..count));
        let Ends { from, to, .. } = link.ends;
        let (speaker, listener) = (link.ends.speaker.incarnation, link.ends.listener.incarnation);
        if self.runs(to) && self.is_life(to, listener) {
            if link.into.is_replaced(link.id) {
                link.ends.is_over = true;
            } else if self.passes(from, to) && link.forth.arrive(self.now) {
                let (into, unread) = (&mut link.into, &mut link.forth.unread);
                let carried = self.with(to, |node, _| node.process.carry(into, unread));
                carried.expect("it is a run");
            }
            if !link.ends.is_over {
                let bytes = self.written(to, &mut link.into);
                link.back.send(&mut self.rng, self.now, self.slowest, bytes);
            }
        }
        if self.runs(from) && self.is_life(from, speaker) && !link.ends.is_closed {
            if link.out.is_replaced(link.id) {
                link.ends.is_closed = true;
            } else {
                if self.passes(to, from) && link.back.arrive(self.now) {
                    let (out, unread) = (&mut link.out, &mut link.back.unread);
                    let carried = self.with(from, |node, _| node.process.carry(out, unread));
                    carried.expect("it is an acknowledgement");
                }
                let bytes = self.written(from, &mut link.out);
                link.forth.send(&mut self.rng, self.now, self.slowest, bytes);
            }
        }
        link.ends.is_closed |= !self.is_life(from, speaker);
        link.ends.is_over |=
            !self.is_life(to, listener) || (link.ends.is_closed && link.forth.is_empty());
        if link.ends.is_closed || link.ends.is_over {
            link.out.end(link.id);
        }
        self.links.carried.push(link);
    }

    /// Returns what an end of a message link writes now.
    fn written(&mut self, node: usize, carrier: &mut Carrier) -> Vec<u8> {
        let healed = self.healed;
        self.with(node, |node, rng| {
            let mut bytes = Vec::new();
            // The socket takes some of it.
            let mut room = if healed { usize::MAX } else { rng.usize(1..400) };
            let put = |more: &[u8]| {
                let count = more.len().min(room);
                bytes.extend_from_slice(&more[..count]);
                room -= count;
                Ok::<_, std::convert::Infallible>(count)
            };
            let engine = &node.process.engine;
            let Ok(()) = carrier.write((engine.shards.sources(), engine.clock.now()), put);
            bytes
        })
    }
}
