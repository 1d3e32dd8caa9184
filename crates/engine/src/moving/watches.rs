//! The watches of keys, on their way from one broker to another. They are in no store: they end with their connections.

use barid_core::ids::SessionNumber;
use barid_store::Keyspace;

use super::records::Damaged;

/// Stands for a keyspace in the records of a slot. Those of the stores are [numbered](barid_core::durable::keys) from 0.
pub const WATCHES: Keyspace = Keyspace(u8::MAX);

/// A key that a connection watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch<'a> {
    /// The tenant.
    pub tenant: &'a str,
    /// The name of the broker with the connection.
    pub broker: &'a str,
    /// The client identifier.
    pub client_id: &'a str,
    /// The number of the connection at that broker.
    pub connection: u64,
    /// The number of its session, there or as that of a guest.
    pub session: SessionNumber,
    /// Whether the session is stored.
    pub is_stored: bool,
    /// The key.
    pub key: &'a [u8],
}

impl<'a> Watch<'a> {
    /// Appends the watch: three texts, each with its length (2 bytes); the connection (8); the session (8); whether it is
    /// stored (1); the key. Integers are big-endian.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let Self { tenant, broker, client_id, connection, session, is_stored, key } = *self;
        for text in [tenant, broker, client_id] {
            let len = u16::try_from(text.len()).expect("names are shorter than 64 KiB");
            out.extend_from_slice(&len.to_be_bytes());
            out.extend_from_slice(text.as_bytes());
        }
        out.extend_from_slice(&connection.to_be_bytes());
        out.extend_from_slice(&session.to_be_bytes());
        out.push(is_stored.into());
        out.extend_from_slice(key);
    }

    /// Reads an encoded watch.
    ///
    /// # Errors
    /// The bytes are not a watch.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Damaged> {
        Self::split(bytes).ok_or(Damaged)
    }

    fn split(bytes: &'a [u8]) -> Option<Self> {
        let (tenant, rest) = split_text(bytes)?;
        let (broker, rest) = split_text(rest)?;
        let (client_id, rest) = split_text(rest)?;
        let (connection, rest) = rest.split_first_chunk()?;
        let (session, rest) = rest.split_first_chunk()?;
        let (is_stored, key) = rest.split_first()?;
        Some(Self {
            tenant,
            broker,
            client_id,
            connection: u64::from_be_bytes(*connection),
            session: SessionNumber::from_be_bytes(*session),
            is_stored: *is_stored != 0,
            key,
        })
    }
}

fn split_text(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    let (text, rest) = rest.split_at_checked(u16::from_be_bytes(*len).into())?;
    Some((std::str::from_utf8(text).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_comes_out_as_it_went_in_and_is_never_read_beyond_the_end() {
        let watch = Watch {
            tenant: "acme",
            broker: "a",
            client_id: "",
            connection: 7,
            session: 1 << 48,
            is_stored: true,
            key: b"key",
        };
        let mut bytes = Vec::new();
        watch.encode(&mut bytes);
        assert_eq!(Watch::decode(&bytes), Ok(watch));
        for len in 0..bytes.len() - watch.key.len() {
            assert_eq!(Watch::decode(&bytes[..len]), Err(Damaged));
        }
    }
}
