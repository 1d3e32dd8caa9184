//! A run as it is sent: encoded once for each form in which its subscribers want it.

use std::ops::Range;

use mqtt_proto::QoS;
use mqtt_proto::flow::AliasUse;

use super::Messages;
use crate::encode::{self, Layout, PublishFrame};
use crate::packets::{Packets, SHARED_FROM};

/// Number of forms: version × QoS × RETAIN.
pub(super) const FORMS: usize = 12;

/// The whole run, encoded in one form.
#[derive(Debug, Default)]
pub(super) struct Form {
    bytes: Vec<u8>,
    layouts: Vec<Layout>,
}

/// The form in which some messages of a run are sent to one client.
#[derive(Clone, Debug)]
pub struct PacketForm {
    /// Indexes of the messages in the run.
    pub range: Range<usize>,
    /// Whether the client speaks MQTT 5.
    pub v5: bool,
    /// The QoS.
    pub qos: QoS,
    /// The RETAIN flag.
    pub retain: bool,
    /// The packet identifier of the first message, for QoS 1 and 2; those of the others follow it.
    pub first_id: u16,
}

impl Form {
    /// Clears the form. Keeps the memory, but at most 256 KiB of it.
    pub fn clear(&mut self) {
        self.layouts.clear();
        self.bytes.clear();
        self.bytes.shrink_to(256 * 1024);
    }
}

impl Messages<'_> {
    /// Returns the packets in the wanted form.
    pub fn packets(&mut self, wanted: &PacketForm) -> &[u8] {
        let has_id = wanted.qos != QoS::AtMostOnce;
        let mut id = wanted.first_id;
        let mut next_id = || {
            let this = id;
            id = if id == u16::MAX { 1 } else { id + 1 };
            this.to_be_bytes()
        };
        let range = wanted.range.clone();
        let Range { start, end } = self.place(wanted);
        if self.is_as_is(wanted) {
            let flags = encode::flags(wanted.qos, wanted.retain, false);
            if self.run.flags != Some(flags) {
                self.set_flags(flags);
            }
            if has_id {
                for item in &self.run.items[range] {
                    self.buffer[item.id..item.id + 2].copy_from_slice(&next_id());
                }
            }
            return &self.buffer[start..end];
        }
        let form = &mut self.run.forms[wanted.index()];
        if has_id {
            for layout in &form.layouts[range] {
                form.bytes[layout.id..layout.id + 2].copy_from_slice(&next_id());
            }
        }
        &form.bytes[start..end]
    }

    /// Returns some of the messages with the QoS and the RETAIN flag with which they were published, and whether the
    /// packets are those of MQTT 5.
    pub(crate) fn as_published(&mut self, range: Range<usize>) -> (bool, &[u8]) {
        let (v5, qos, retain) = (self.run.v5, self.qos(), self.retain());
        (v5, self.packets(&PacketForm { range, v5, qos, retain, first_id: 1 }))
    }

    /// Sets the flags of all frames in the buffer. Most subscribers want the same flags, so this is rare.
    fn set_flags(&mut self, flags: u8) {
        for item in &self.run.items {
            self.buffer[item.frame.start] = flags;
        }
        self.run.flags = Some(flags);
    }

    /// Returns the number of bytes of [`Self::packets`].
    pub fn packets_len(&mut self, wanted: &PacketForm) -> usize {
        self.place(wanted).len()
    }

    /// Returns where the packets lie: in the read buffer, or in the encoded form, which is created if
    /// necessary.
    fn place(&mut self, wanted: &PacketForm) -> Range<usize> {
        let (first, last) = (wanted.range.start, wanted.range.end - 1);
        if self.is_as_is(wanted) {
            return self.run.items[first].frame.start..self.run.items[last].frame.end;
        }
        if self.run.forms[wanted.index()].layouts.is_empty() {
            self.encode(wanted);
        }
        let layouts = &self.run.forms[wanted.index()].layouts;
        layouts[first].start..layouts[last].end
    }

    /// Returns [`Self::packets`] without their first `written` bytes, to be kept. Large payloads are shared.
    pub fn kept_packets(&mut self, wanted: &PacketForm, written: usize) -> Packets {
        let mut kept = Packets::default();
        if self.run.largest < SHARED_FROM {
            kept.push(&self.packets(wanted)[written..]);
            return kept;
        }
        let payload_len = |at| self.publication(at).payload.len();
        let payloads: Vec<usize> = wanted.range.clone().map(payload_len).collect();
        let large = |(at, len): (usize, &usize)| (*len >= SHARED_FROM).then(|| self.message(at));
        let shared: Vec<_> = wanted.range.clone().zip(&payloads).map(large).collect();
        let ends = self.ends(wanted);
        let bytes = self.packets(wanted);
        let mut start = 0;
        for ((end, payload), message) in ends.into_iter().zip(payloads).zip(shared) {
            let from = start.max(written.min(end));
            let head = end - payload;
            match message {
                Some(message) => {
                    kept.push(&bytes[from.min(head)..head]);
                    kept.push_payload(message, from.saturating_sub(head));
                }
                None => kept.push(&bytes[from..end]),
            }
            start = end;
        }
        kept
    }

    /// Returns where each of [`Self::packets`] ends, counted from the start of the first one.
    fn ends(&mut self, wanted: &PacketForm) -> Vec<usize> {
        // Creates the form if necessary.
        self.place(wanted);
        if self.is_as_is(wanted) {
            let items = &self.run.items[wanted.range.clone()];
            return items.iter().map(|item| item.frame.end - items[0].frame.start).collect();
        }
        let layouts = &self.run.forms[wanted.index()].layouts[wanted.range.clone()];
        layouts.iter().map(|layout| layout.end - layouts[0].start).collect()
    }

    /// Whether the frames in the buffer have the wanted form, except for flags and packet identifiers.
    fn is_as_is(&self, wanted: &PacketForm) -> bool {
        self.run.as_is && self.run.v5 == wanted.v5 && self.qos() == wanted.qos
    }

    fn encode(&mut self, wanted: &PacketForm) {
        let mut encoded = std::mem::take(&mut self.run.forms[wanted.index()]);
        for index in 0..self.len() {
            let frame = PublishFrame {
                publication: self.publication(index),
                qos: wanted.qos,
                retain: wanted.retain,
                dup: false,
                id: 0,
                identifiers: &[],
                alias: AliasUse::None,
                now: self.now,
            };
            encoded.layouts.push(frame.put(wanted.v5, &mut encoded.bytes));
        }
        self.run.forms[wanted.index()] = encoded;
    }
}

impl PacketForm {
    /// Index of the form in the forms of a run.
    fn index(&self) -> usize {
        (usize::from(self.v5) * 3 + self.qos as usize) * 2 + usize::from(self.retain)
    }
}
