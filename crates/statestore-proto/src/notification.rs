//! Notifications: what clients that watch a key are told.

use crate::resp::{Reader, push_array, push_bulk};

/// A change of a key. The key is in the [topic](crate::topics::key_of).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Notification<'a> {
    /// The key was set to this value, which may be the same as before.
    Set(&'a [u8]),
    /// The key was deleted, or its time to live is over.
    Delete,
}

const DELETE: &[u8] = b"*2\r\n$6\r\nNOTIFY\r\n$6\r\nDELETE\r\n";

impl<'a> Notification<'a> {
    /// Decodes the payload of a notification. Returns `None` if it is not one.
    pub fn decode(payload: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(payload);
        let len = reader.array()?;
        if reader.bulk()? != b"NOTIFY" {
            return None;
        }
        let notification = match (len, reader.bulk()?) {
            (2, b"DELETE") => Notification::Delete,
            (4, b"SET") if reader.bulk()? == b"VALUE" => Notification::Set(reader.bulk()?),
            _ => return None,
        };
        reader.finish()?;
        Some(notification)
    }

    /// Appends the payload of the notification.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Notification::Delete => out.extend_from_slice(DELETE),
            Notification::Set(value) => {
                out.reserve(value.len() + 64);
                push_array(out, 4);
                push_bulk(out, b"NOTIFY");
                push_bulk(out, b"SET");
                push_bulk(out, b"VALUE");
                push_bulk(out, value);
            }
        }
    }
}
