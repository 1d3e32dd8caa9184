//! Continuation tokens of SCAN. A token contains the key after which the scan continues. It is encrypted,
//! because the client may not be allowed to know that key.

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use crate::random::Random;

/// Encrypts and decrypts the continuation tokens of one tenant. Tokens are valid until the process ends.
#[derive(Debug)]
pub struct Cursors {
    key: LessSafeKey,
    random: Random,
}

impl Cursors {
    /// Creates the cursors with a new random encryption key.
    pub fn new(random: Random) -> Self {
        let key = random.bytes::<32>();
        let key = UnboundKey::new(&CHACHA20_POLY1305, &key).expect("the key has the right length");
        Self { key: LessSafeKey::new(key), random }
    }

    /// Returns a token that contains `key`.
    pub fn seal(&self, key: &[u8]) -> Vec<u8> {
        let nonce = self.random.bytes::<NONCE_LEN>();
        let mut token = nonce.to_vec();
        let mut sealed = key.to_vec();
        self.key
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::empty(),
                &mut sealed,
            )
            .expect("keys are short enough");
        token.extend_from_slice(&sealed);
        token
    }

    /// Returns the key in a token, or `None` if the token was not created by these cursors.
    pub fn open(&self, token: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = token.split_first_chunk::<NONCE_LEN>()?;
        let mut sealed = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let key = self.key.open_in_place(nonce, Aad::empty(), &mut sealed).ok()?;
        Some(key.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::tests::COUNTING;

    #[test]
    fn only_who_sealed_a_token_can_read_it() {
        let (ours, others) = (Cursors::new(COUNTING), Cursors::new(COUNTING));
        for key in [&b""[..], b"k", &[7; 65_000]] {
            let token = ours.seal(key);
            assert_eq!(ours.open(&token).as_deref(), Some(key));
            assert_eq!(others.open(&token), None);
            assert!(key.len() < 8 || !token.windows(8).any(|window| window == &key[..8]));
            let mut changed = token.clone();
            *changed.last_mut().unwrap() ^= 1;
            assert_eq!(ours.open(&changed), None);
        }
        assert_eq!(ours.open(b"short"), None);
        assert_ne!(ours.seal(b"k"), ours.seal(b"k"));
    }
}
