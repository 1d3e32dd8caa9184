//! The fields of AMQP frames. Messages are not shown: some carry tokens.

use barid_amqp::Error;
use barid_amqp::frame::{
    self, AMQP_HEADER, Body, DeliveryState, Disposition, Performative, Role, SenderSettles,
    Terminus, Transfer,
};
use serde_json::Value;

use super::fields::Fields;

/// Describes a frame of `bytes` bytes, of which `head` are the first. Returns its name and its fields.
pub fn describe(head: &[u8], bytes: usize) -> (&'static str, Fields) {
    let mut fields = Fields::default();
    if head.starts_with(&AMQP_HEADER[..4]) {
        return ("protocol header", fields);
    }
    // A transfer is read although the end of its message is missing.
    let frame = match frame::decode(head) {
        Ok(frame) => frame,
        Err(error) => {
            fields.put("malformed", error.to_string());
            return ("?", fields);
        }
    };
    let name = match frame.body {
        Body::Empty => "empty",
        // Its contents may prove who the client is.
        Body::Sasl(_) => "SASL",
        Body::Amqp(performative, payload) => {
            fields.put("channel", frame.channel);
            let payload = payload.len() + bytes - head.len();
            put_performative(&mut fields, &performative, payload)
        }
    };
    (name, fields)
}

/// Appends the fields of a performative, and returns its name.
fn put_performative(
    fields: &mut Fields,
    performative: &Performative,
    payload: usize,
) -> &'static str {
    match performative {
        Performative::Open(open) => {
            fields.put("container_id", &*open.container_id);
            fields.put("hostname", open.hostname.as_deref());
            fields.put("max_frame_size", open.max_frame_size);
            fields.put("channel_max", open.channel_max);
            fields.put("idle_time_out", open.idle_time_out);
            "open"
        }
        Performative::Begin(begin) => {
            fields.put("remote_channel", begin.remote_channel);
            fields.put("next_outgoing_id", begin.next_outgoing_id);
            fields.put("incoming_window", begin.incoming_window);
            fields.put("outgoing_window", begin.outgoing_window);
            "begin"
        }
        Performative::Attach(attach) => {
            fields.put("name", &*attach.name);
            fields.put("handle", attach.handle);
            put_role(fields, attach.role);
            if attach.sender_settles == SenderSettles::Settled {
                fields.put("snd_settle_mode", "settled");
            }
            fields.put("source", address(attach.source.as_ref()));
            fields.put("target", address(attach.target.as_ref()));
            fields.put("initial_delivery_count", attach.initial_delivery_count);
            fields.put("max_message_size", attach.max_message_size);
            "attach"
        }
        Performative::Flow(flow) => {
            fields.put("handle", flow.handle);
            fields.put("delivery_count", flow.delivery_count);
            fields.put("link_credit", flow.link_credit);
            fields.put("available", flow.available);
            fields.flag("drain", flow.drain);
            fields.flag("echo", flow.echo);
            fields.put("incoming_window", flow.incoming_window);
            fields.put("outgoing_window", flow.outgoing_window);
            "flow"
        }
        Performative::Transfer(transfer) => {
            let Transfer { handle, delivery_id, settled, more, aborted, .. } = transfer;
            fields.put("handle", *handle);
            fields.put("delivery_id", *delivery_id);
            fields.put("settled", *settled);
            fields.flag("more", *more);
            fields.flag("aborted", *aborted);
            fields.put("payload_bytes", payload);
            put_state(fields, transfer.state.as_ref());
            "transfer"
        }
        Performative::Disposition(disposition) => {
            let Disposition { role, first, last, settled, state } = disposition;
            put_role(fields, *role);
            fields.put("first", *first);
            fields.put("last", *last);
            fields.put("settled", *settled);
            put_state(fields, state.as_ref());
            "disposition"
        }
        Performative::Detach(detach) => {
            fields.put("handle", detach.handle);
            fields.flag("closed", detach.closed);
            put_error(fields, detach.error.as_ref());
            "detach"
        }
        Performative::End(end) => {
            put_error(fields, end.error.as_ref());
            "end"
        }
        Performative::Close(close) => {
            put_error(fields, close.error.as_ref());
            "close"
        }
    }
}

fn put_role(fields: &mut Fields, role: Role) {
    let name = match role {
        Role::Sender => "sender",
        Role::Receiver => "receiver",
    };
    fields.put("role", name);
}

fn address(terminus: Option<&Terminus>) -> Value {
    terminus.and_then(Terminus::address).into()
}

fn put_state(fields: &mut Fields, state: Option<&DeliveryState>) {
    let (name, error) = match state {
        None => return,
        Some(DeliveryState::Received { .. }) => ("received", None),
        Some(DeliveryState::Accepted) => ("accepted", None),
        Some(DeliveryState::Rejected(error)) => ("rejected", error.as_deref()),
        Some(DeliveryState::Released) => ("released", None),
        Some(DeliveryState::Modified(_)) => ("modified", None),
        Some(DeliveryState::Declared { .. }) => ("declared", None),
        Some(DeliveryState::Transactional { outcome, .. }) => {
            fields.put("state", "transactional");
            put_outcome(fields, outcome.as_deref());
            return;
        }
    };
    fields.put("state", name);
    put_error(fields, error);
}

/// Appends the outcome within a transaction.
fn put_outcome(fields: &mut Fields, outcome: Option<&DeliveryState>) {
    let mut inner = Fields::default();
    put_state(&mut inner, outcome);
    if let Ok(value) = serde_json::to_value(inner)
        && outcome.is_some()
    {
        fields.put("outcome", value);
    }
}

fn put_error(fields: &mut Fields, error: Option<&Error>) {
    if let Some(Error { condition, description, .. }) = error {
        fields.put("error", &**condition);
        fields.put("description", description.as_deref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_has_its_fields_and_the_length_of_its_message() {
        let transfer =
            Transfer { handle: 3, delivery_id: Some(9), more: true, ..Transfer::default() };
        let mut frame = Vec::new();
        frame::encode(&mut frame, 2, &Performative::Transfer(transfer), b"a token, perhaps");
        let (name, fields) = describe(&frame, frame.len());
        assert_eq!(name, "transfer");
        let text = serde_json::to_string(&fields).expect("fields are JSON");
        let expected = r#"{"channel":2,"handle":3,"delivery_id":9,"more":true,"payload_bytes":16}"#;
        assert_eq!(text, expected);
        // The end of a long message is not kept.
        assert_eq!(
            serde_json::to_string(&describe(&frame, frame.len() + 100).1).expect("fields are JSON"),
            expected.replace("16", "116")
        );
    }

    #[test]
    fn errors_are_shown() {
        let error = Error::new("amqp:not-found", "no such queue");
        let detach = frame::Detach { handle: 0, closed: true, error: Some(error) };
        let mut bytes = Vec::new();
        frame::encode(&mut bytes, 0, &Performative::Detach(detach), &[]);
        let (name, fields) = describe(&bytes, bytes.len());
        let text = serde_json::to_string(&fields).expect("fields are JSON");
        assert_eq!(name, "detach");
        assert!(
            text.contains(r#""error":"amqp:not-found","description":"no such queue""#),
            "{text}"
        );
    }
}
