//! Replies: the answers of the state store.

use crate::Refusal;
use crate::resp::{Reader, push_array, push_bulk};

/// A response. It borrows everything from its payload.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply<'a> {
    /// `+OK`: SET or KEYNOTIFY was done.
    Ok,
    /// `:-1`: the condition of the SET does not hold, or VDEL found another value.
    NotApplied,
    /// The value that GET found.
    Value(&'a [u8]),
    /// `$-1`: GET found no such key.
    Absent,
    /// `:1`: DEL or VDEL deleted the key.
    Deleted,
    /// `:0`: the key to delete did not exist, or the client was not watching the key.
    Nothing,
    /// A page of the keys that SCAN found, which may be empty.
    Page {
        /// The names of the keys.
        keys: Vec<&'a [u8]>,
        /// The token for requesting the next page; `None` on the last page.
        next: Option<&'a [u8]>,
    },
    /// `-ERR`: nothing was done.
    Refused(Refusal),
}

impl<'a> Reply<'a> {
    /// Decodes the payload of a response. Returns `None` if it is not one, or is a refusal with an
    /// unknown text.
    pub fn decode(payload: &'a [u8]) -> Option<Self> {
        Some(match payload {
            b"+OK\r\n" => Reply::Ok,
            b":-1\r\n" => Reply::NotApplied,
            b":1\r\n" => Reply::Deleted,
            b":0\r\n" => Reply::Nothing,
            b"$-1\r\n" => Reply::Absent,
            [b'$', ..] => {
                let mut reader = Reader::new(payload);
                let value = reader.bulk()?;
                reader.finish()?;
                Reply::Value(value)
            }
            [b'*', ..] => page(payload)?,
            _ => {
                let text = payload.strip_prefix(b"-ERR ")?.strip_suffix(b"\r\n")?;
                Reply::Refused(Refusal::from_text(text)?)
            }
        })
    }

    /// Appends the payload of the response.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Reply::Ok => out.extend_from_slice(b"+OK\r\n"),
            Reply::NotApplied => out.extend_from_slice(b":-1\r\n"),
            Reply::Deleted => out.extend_from_slice(b":1\r\n"),
            Reply::Nothing => out.extend_from_slice(b":0\r\n"),
            Reply::Absent => out.extend_from_slice(b"$-1\r\n"),
            Reply::Value(value) => {
                out.reserve(value.len() + 16);
                push_bulk(out, value);
            }
            Reply::Page { keys, next } => {
                push_array(out, if next.is_some() { 2 } else { 1 });
                push_array(out, keys.len());
                keys.iter().for_each(|key| push_bulk(out, key));
                if let Some(token) = next {
                    push_bulk(out, token);
                }
            }
            Reply::Refused(refusal) => {
                out.extend_from_slice(b"-ERR ");
                out.extend_from_slice(refusal.text().as_bytes());
                out.extend_from_slice(b"\r\n");
            }
        }
    }
}

/// Decodes a page: an array of the array of keys and, if there are more keys, a token.
fn page(payload: &[u8]) -> Option<Reply<'_>> {
    let mut reader = Reader::new(payload);
    let has_next = match reader.array()? {
        1 => false,
        2 => true,
        _ => return None,
    };
    // The list grows with the keys that exist; the declared number may be larger.
    let mut keys = Vec::new();
    for _ in 0..reader.array()? {
        keys.push(reader.bulk()?);
    }
    let next = if has_next { Some(reader.bulk()?) } else { None };
    reader.finish()?;
    Some(Reply::Page { keys, next })
}
