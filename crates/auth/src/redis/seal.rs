//! The values in Redis: authenticated, so that who writes to Redis can forge nothing.

use barid_core::time::WallTime;
use ring::hmac::{self, HMAC_SHA256};

use crate::directory::Record;

/// First byte of each value: the version of the format.
const VERSION: u8 = 1;

/// Length of an authentication tag, in bytes.
const TAG: usize = 32;

/// Length of an entry without its record, in bytes: version, tag, two times, kind.
const ENTRY_MIN: usize = 1 + TAG + 8 + 8 + 1;

/// Maximum length of an entry, in bytes. Larger records are not cached.
pub(super) const ENTRY_MAX: usize = 80 * 1024;

/// Length of the value of a fast hash, in bytes: version, tag, time of expiry, hash.
pub(super) const FAST_LEN: usize = 1 + TAG + 8 + 32;

/// Kinds of entries.
const UNKNOWN: u8 = 0;
const KNOWN: u8 = 1;

/// The keys that are derived from the secret, each for one purpose.
#[derive(Debug)]
pub(super) struct Seal {
    entries: hmac::Key,
    fasts: hmac::Key,
    passwords: hmac::Key,
}

/// What is cached about a name.
#[derive(Debug, PartialEq)]
pub(super) struct Entry {
    /// When the directory behind the cache was asked.
    pub(super) created: WallTime,
    /// When the entry ends.
    pub(super) expires: WallTime,
    /// The record; `None`: the directory does not have the user.
    pub(super) record: Option<Record>,
}

/// Reason for which a value is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    /// There is none, or the user has changed a moment ago.
    Absent,
    /// It has ended, although Redis still has it.
    Expired,
    /// It was not written with this secret for this user.
    Forged,
}

impl Seal {
    pub(super) fn new(secret: &[u8]) -> Self {
        let secret = hmac::Key::new(HMAC_SHA256, secret);
        let derived = |purpose: &str| {
            hmac::Key::new(HMAC_SHA256, hmac::sign(&secret, purpose.as_bytes()).as_ref())
        };
        Self {
            entries: derived("barid cached records 1"),
            fasts: derived("barid cached fast hashes 1"),
            passwords: derived("barid fast hashes of passwords 1"),
        }
    }

    /// Returns the value of an entry. `None`: the entry is too large.
    pub(super) fn entry(&self, user: &str, entry: &Entry) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        body.extend_from_slice(&entry.created.as_millis().to_be_bytes());
        body.extend_from_slice(&entry.expires.as_millis().to_be_bytes());
        match &entry.record {
            None => body.push(UNKNOWN),
            Some(record) => {
                body.push(KNOWN);
                serde_json::to_writer(&mut body, record).ok()?;
            }
        }
        let value = sealed(&self.entries, user, &body);
        (value.len() <= ENTRY_MAX).then_some(value)
    }

    /// Opens the value of an entry.
    pub(super) fn open_entry(
        &self,
        user: &str,
        value: &[u8],
        now: WallTime,
    ) -> Result<Entry, Unusable> {
        if value.is_empty() {
            return Err(Unusable::Absent);
        }
        if !(ENTRY_MIN..=ENTRY_MAX).contains(&value.len()) {
            return Err(Unusable::Forged);
        }
        let body = opened(&self.entries, user, value).ok_or(Unusable::Forged)?;
        let (created, body) = split_time(body).ok_or(Unusable::Forged)?;
        let (expires, body) = split_time(body).ok_or(Unusable::Forged)?;
        if expires <= now {
            return Err(Unusable::Expired);
        }
        let record = match body {
            [UNKNOWN] => None,
            [KNOWN, json @ ..] => Some(serde_json::from_slice(json).map_err(|_| Unusable::Forged)?),
            _ => return Err(Unusable::Forged),
        };
        Ok(Entry { created, expires, record })
    }

    /// Returns the fast hash of a password.
    pub(super) fn fast_hash(&self, user: &str, proof: u64, password: &[u8]) -> [u8; 32] {
        let message = message(user, &[&proof.to_be_bytes(), password]);
        let mut fast = [0; 32];
        fast.copy_from_slice(hmac::sign(&self.passwords, &message).as_ref());
        fast
    }

    /// Returns the value of a fast hash.
    pub(super) fn fast(&self, user: &str, fast: &[u8; 32], expires: WallTime) -> Vec<u8> {
        let expires = expires.as_millis().to_be_bytes();
        sealed(&self.fasts, user, &[&expires[..], fast].concat())
    }

    /// Opens the value of a fast hash.
    pub(super) fn open_fast(
        &self,
        user: &str,
        value: &[u8],
        now: WallTime,
    ) -> Result<[u8; 32], Unusable> {
        if value.is_empty() {
            return Err(Unusable::Absent);
        }
        if value.len() != FAST_LEN {
            return Err(Unusable::Forged);
        }
        let body = opened(&self.fasts, user, value).ok_or(Unusable::Forged)?;
        let (expires, fast) = split_time(body).ok_or(Unusable::Forged)?;
        if expires <= now {
            return Err(Unusable::Expired);
        }
        fast.try_into().map_err(|_| Unusable::Forged)
    }
}

/// The message that is signed. The length in front of the name keeps the name apart from what follows.
fn message(user: &str, rest: &[&[u8]]) -> Vec<u8> {
    let length = (user.len() as u64).to_be_bytes();
    [&length, user.as_bytes(), &rest.concat()].concat()
}

fn sealed(key: &hmac::Key, user: &str, body: &[u8]) -> Vec<u8> {
    let tag = hmac::sign(key, &message(user, &[&[VERSION], body]));
    [&[VERSION], tag.as_ref(), body].concat()
}

fn opened<'a>(key: &hmac::Key, user: &str, value: &'a [u8]) -> Option<&'a [u8]> {
    let (version, rest) = value.split_first()?;
    let (tag, body) = rest.split_at_checked(TAG)?;
    hmac::verify(key, &message(user, &[&[*version], body]), tag).ok()?;
    (*version == VERSION).then_some(body)
}

fn split_time(body: &[u8]) -> Option<(WallTime, &[u8])> {
    let (time, rest) = body.split_first_chunk()?;
    Some((WallTime::from_millis(u64::from_be_bytes(*time)), rest))
}

#[cfg(test)]
mod tests {
    use barid_engine::rights::Rights;

    use super::*;

    const NOW: WallTime = WallTime::from_millis(1_000_000);
    const LATER: WallTime = WallTime::from_millis(1_000_001);

    fn record() -> Record {
        let rights = Rights { publish: Some(vec!["up/%c/#".into()]), ..Rights::default() };
        Record { password: "$argon2id$x".into(), rights, disabled: false, fast: None }
    }

    fn entry(record: Option<Record>) -> Entry {
        Entry { created: NOW, expires: LATER, record }
    }

    /// Names that a careless format would take for each other.
    const NAMES: [&str; 12] = [
        "acme/ada",
        "acme/adb",
        "acme/ad",
        "acme/ada ",
        "acme/ada\n",
        "acme/ada\0",
        "acme/*",
        "acme/a?a",
        "acme/[a]da",
        "acm/e/ada",
        "globex/ada",
        "",
    ];

    #[test]
    fn a_value_is_valid_for_its_user_only() {
        let seal = Seal::new(&[1; 32]);
        for user in NAMES {
            let value = seal.entry(user, &entry(Some(record()))).unwrap();
            let fast = seal.fast(user, &[7; 32], LATER);
            for other in NAMES {
                let is_own = user == other;
                let opened = seal.open_entry(other, &value, NOW);
                assert_eq!(
                    opened,
                    if is_own { Ok(entry(Some(record()))) } else { Err(Unusable::Forged) }
                );
                assert_eq!(seal.open_fast(other, &fast, NOW).is_ok(), is_own, "{user:?} {other:?}");
                let same = seal.fast_hash(user, 1, b"pw") == seal.fast_hash(other, 1, b"pw");
                assert_eq!(same, is_own);
            }
        }
        let unknown = seal.entry("acme/ada", &entry(None)).unwrap();
        assert_eq!(seal.open_entry("acme/ada", &unknown, NOW), Ok(entry(None)));
    }

    #[test]
    fn no_bit_can_be_changed() {
        let seal = Seal::new(&[1; 32]);
        let value = seal.entry("acme/ada", &entry(Some(record()))).unwrap();
        let fast = seal.fast("acme/ada", &[7; 32], LATER);
        assert_eq!(fast.len(), FAST_LEN);
        let changed = |value: &[u8], bit: usize| {
            let mut changed = value.to_vec();
            changed[bit / 8] ^= 1 << (bit % 8);
            changed
        };
        for bit in 0..value.len() * 8 {
            let opened = seal.open_entry("acme/ada", &changed(&value, bit), NOW);
            assert_eq!(opened, Err(Unusable::Forged));
        }
        for bit in 0..fast.len() * 8 {
            assert_eq!(
                seal.open_fast("acme/ada", &changed(&fast, bit), NOW),
                Err(Unusable::Forged)
            );
        }
        for cut in 1..value.len() {
            assert_eq!(seal.open_entry("acme/ada", &value[..cut], NOW), Err(Unusable::Forged));
        }
        let other = Seal::new(&[2; 32]);
        assert_eq!(other.open_entry("acme/ada", &value, NOW), Err(Unusable::Forged));
        // A value of one kind is none of the other.
        assert_eq!(seal.open_entry("acme/ada", &fast, NOW), Err(Unusable::Forged));
    }

    #[test]
    fn values_end_and_have_a_maximum_length() {
        let seal = Seal::new(&[1; 32]);
        let value = seal.entry("acme/ada", &entry(None)).unwrap();
        let fast = seal.fast("acme/ada", &[7; 32], LATER);
        assert_eq!(seal.open_entry("acme/ada", &value, LATER), Err(Unusable::Expired));
        assert_eq!(seal.open_fast("acme/ada", &fast, LATER), Err(Unusable::Expired));
        assert_eq!(seal.open_entry("acme/ada", b"", NOW), Err(Unusable::Absent));
        assert_eq!(seal.open_fast("acme/ada", b"", NOW), Err(Unusable::Absent));
        let large = Record { password: "x".repeat(ENTRY_MAX), ..record() };
        assert_eq!(seal.entry("acme/ada", &entry(Some(large))), None);
    }

    #[test]
    fn a_fast_hash_is_bound_to_password_and_stored_hash() {
        let seal = Seal::new(&[1; 32]);
        let fast = seal.fast_hash("acme/ada", 1, b"secret");
        assert_eq!(fast, seal.fast_hash("acme/ada", 1, b"secret"));
        assert_ne!(fast, seal.fast_hash("acme/ada", 1, b"Secret"));
        assert_ne!(fast, seal.fast_hash("acme/ada", 2, b"secret"));
        assert_ne!(fast, Seal::new(&[2; 32]).fast_hash("acme/ada", 1, b"secret"));
    }
}
