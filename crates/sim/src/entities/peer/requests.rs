//! Requests to `$management`, and their responses.

use std::collections::BTreeMap;

use barid_amqp::message::{Builder, Field, Sections, ValueRef, Writer};
use barid_core::entity::SequenceNumber;

use super::{Link, Peer, Receiver, What, decode_message, name, refusal_of, reply_to, requests};
use crate::packets::entities::{
    EntityId, Handle, How, MessageNumber, Note, Packet, SESSIONS, Token,
};

/// Requests that wait for their responses.
#[derive(Default)]
pub struct Requests {
    last: u64,
    waiting: BTreeMap<u64, Asked>,
}

/// The purpose of a request.
enum Asked {
    Schedule(MessageNumber),
    Cancel(MessageNumber),
    Deferred(Handle),
    Renew(Handle),
    SetState(Handle),
    GetState(Handle),
    Settle(Handle, Token),
    /// A release of messages, whose result does not matter.
    Release,
}

impl Peer {
    pub(super) fn schedule(
        &mut self,
        entity: EntityId,
        message: MessageNumber,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) {
        let write = |body: &mut Writer<'_>| {
            body.value("messages");
            body.list(|list| {
                list.map(|map| {
                    map.entry("message-id", &*message.to_string());
                    map.entry("message", ValueRef::Binary(bytes));
                });
            });
        };
        self.ask(Asked::Schedule(message), entity, None, "schedule-message", write, out);
    }

    pub(super) fn cancel(
        &mut self,
        entity: EntityId,
        message: MessageNumber,
        number: SequenceNumber,
        out: &mut Vec<u8>,
    ) {
        let write = |body: &mut Writer<'_>| write_numbers(body, number);
        self.ask(Asked::Cancel(message), entity, None, "cancel-scheduled-message", write, out);
    }

    pub(super) fn receive_deferred(
        &mut self,
        handle: Handle,
        number: SequenceNumber,
        out: &mut Vec<u8>,
    ) {
        let write = |body: &mut Writer<'_>| {
            write_numbers(body, number);
            body.entry("receiver-settle-mode", 1_u32);
        };
        let operation = "receive-by-sequence-number";
        self.ask_for(handle, Asked::Deferred(handle), operation, write, out);
    }

    pub(super) fn renew(&mut self, handle: Handle, out: &mut Vec<u8>) {
        self.ask_for(handle, Asked::Renew(handle), "renew-session-lock", |_| {}, out);
    }

    pub(super) fn set_state(&mut self, handle: Handle, note: Option<Note>, out: &mut Vec<u8>) {
        let write = |body: &mut Writer<'_>| {
            let bytes = note.map(Note::to_be_bytes);
            let state = bytes.as_ref().map_or(ValueRef::Null, |bytes| ValueRef::Binary(bytes));
            body.entry("session-state", state);
        };
        self.ask_for(handle, Asked::SetState(handle), "set-session-state", write, out);
    }

    pub(super) fn get_state(&mut self, handle: Handle, out: &mut Vec<u8>) {
        self.ask_for(handle, Asked::GetState(handle), "get-session-state", |_| {}, out);
    }

    /// Settles a message that did not arrive on the receiver's link: the receiver has got it by a request, or
    /// another receiver had it.
    pub(super) fn settle_by_request(
        &mut self,
        handle: Handle,
        token: Token,
        how: How,
        out: &mut Vec<u8>,
    ) {
        let Some(receiver) = self.receiver_of(handle) else { return };
        let (entity, is_own) = (receiver.entity, receiver.requested.remove(&token));
        let status = match how {
            How::Complete => "completed",
            How::Abandon => "abandoned",
            How::Defer => "defered",
            How::DeadLetter => "suspended",
            How::Release => "unlocked",
        };
        let write = |body: &mut Writer<'_>| {
            body.entry("disposition-status", status);
            body.value("lock-tokens");
            body.list(|list| list.value(ValueRef::Uuid(token.to_be_bytes())));
        };
        let asked = match how {
            How::Release => Asked::Release,
            _ => Asked::Settle(handle, token),
        };
        if is_own {
            self.ask_for(handle, asked, "update-disposition", write, out);
        } else {
            self.ask(asked, entity, None, "update-disposition", write, out);
        }
    }

    /// Sends a request in the name of a receiver. The request names the receiver's link, its session, or both.
    fn ask_for(
        &mut self,
        handle: Handle,
        asked: Asked,
        operation: &str,
        write: impl FnOnce(&mut Writer<'_>),
        out: &mut Vec<u8>,
    ) {
        let Some(Receiver { entity, session, .. }) = self.receiver_of(handle) else { return };
        let (entity, session) = (*entity, session.filter(|_| !handle.is_multiple_of(3)));
        let link = (!handle.is_multiple_of(2) || session.is_none()).then(|| name(handle));
        let write = |body: &mut Writer<'_>| {
            if let Some(session) = session {
                body.entry("session-id", SESSIONS[session]);
            }
            write(body);
        };
        self.ask(asked, entity, link.as_deref(), operation, write, out);
    }

    fn ask(
        &mut self,
        asked: Asked,
        entity: EntityId,
        link: Option<&str>,
        operation: &str,
        write: impl FnOnce(&mut Writer<'_>),
        out: &mut Vec<u8>,
    ) {
        self.requests.last += 1;
        self.requests.waiting.insert(self.requests.last, asked);
        let (operation, reply_to) = (format!("com.microsoft:{operation}"), reply_to(entity));
        let mut request = Builder::new();
        request
            .property(Field::MessageId, ValueRef::Ulong(self.requests.last))
            .property(Field::ReplyTo, ValueRef::String(&reply_to))
            .application_property("operation", ValueRef::String(&operation));
        if let Some(link) = link {
            request.application_property("associated-link-name", ValueRef::String(link));
        }
        let mut message = Vec::new();
        request.value(|value| value.map(write), &mut message);
        self.transfer(requests(entity), true, &message, out);
    }

    /// Handles a response.
    pub(super) fn respond(&mut self, message: &[u8], packets: &mut Vec<Packet>) {
        let sections = Sections::split(message).expect("a response is a message");
        let number = sections.properties().value(Field::CorrelationId).integer();
        let number = number.and_then(|number| u64::try_from(number).ok());
        let asked = number.and_then(|number| self.requests.waiting.remove(&number));
        let properties = sections.application_properties();
        let status = properties.get("statusCode").and_then(|status| status.integer());
        let is_done = matches!(status, Some(200 | 204));
        let body = sections.body_value().expect("a response has a body").and_then(ValueRef::map);
        let found = |name: &str| body.and_then(|body| body.get(name)).filter(|_| is_done);
        match asked.expect("nobody is answered twice") {
            Asked::Schedule(message) => packets.push(match found("sequence-numbers") {
                Some(numbers) => {
                    let number = numbers.items().and_then(|mut all| all.next()?.integer());
                    let number = number.and_then(|number| u64::try_from(number).ok());
                    // 0: the message is a duplicate.
                    Packet::Accepted(message, number.filter(|number| *number > 0))
                }
                None => Packet::Refused(message),
            }),
            Asked::Cancel(message) => packets.push(Packet::Cancelled(message, is_done)),
            Asked::Deferred(handle) => {
                let items = found("messages").and_then(ValueRef::items);
                for one in items.into_iter().flatten().filter_map(ValueRef::map) {
                    let part = |name: &str| one.get(name).expect("it is all there");
                    let token = part("lock-token").uuid().expect("it is locked");
                    let token = Token::from_be_bytes(token);
                    let message = part("message").binary().expect("a message is bytes");
                    let transfer = decode_message(message, token);
                    if let Some(receiver) = self.receiver_of(handle) {
                        receiver.requested.insert(token);
                    }
                    packets.push(Packet::Transfer(handle, transfer));
                }
            }
            Asked::Renew(handle) => {
                let until = found("expiration").and_then(ValueRef::timestamp);
                let until = until.and_then(|until| u64::try_from(until).ok());
                packets.push(Packet::Renewed(handle, until));
            }
            Asked::SetState(handle) => packets.push(Packet::StateSet(handle, is_done)),
            Asked::GetState(handle) => {
                let note = found("session-state").map(|state| {
                    let bytes = state.binary();
                    bytes.map(|bytes| {
                        Note::from_be_bytes(bytes.try_into().expect("states are numbers"))
                    })
                });
                packets.push(Packet::State(handle, note));
            }
            Asked::Settle(handle, token) => {
                let condition = properties.get("errorCondition").and_then(ValueRef::text);
                packets.push(match condition {
                    _ if is_done => Packet::Settled(handle, token, Ok(())),
                    // The shard is being closed. The client tries again on another connection.
                    Some("com.microsoft:server-busy") => Packet::Closed,
                    condition => {
                        let refusal = refusal_of(condition.expect("an error has a condition"));
                        Packet::Settled(handle, token, Err(refusal))
                    }
                });
            }
            Asked::Release => {}
        }
    }

    fn receiver_of(&mut self, handle: Handle) -> Option<&mut Receiver> {
        match self.link_of(handle)?.1 {
            Link { what: What::Receiver(receiver), .. } => Some(receiver),
            _ => None,
        }
    }
}

fn write_numbers(body: &mut Writer<'_>, number: SequenceNumber) {
    let number = i64::try_from(number).expect("numbers are small");
    body.value("sequence-numbers");
    body.longs([number]);
}
