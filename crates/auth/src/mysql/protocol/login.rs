//! The greeting of the server, and how the client logs in.

use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};

use super::Error;
use super::packet::{Fields, Packets};
use crate::remote::printable;

/// Capabilities, as bits.
mod capability {
    pub(super) const LONG_PASSWORD: u32 = 1;
    pub(super) const LONG_FLAG: u32 = 1 << 2;
    pub(super) const CONNECT_WITH_DB: u32 = 1 << 3;
    pub(super) const PROTOCOL_41: u32 = 1 << 9;
    pub(super) const TLS: u32 = 1 << 11;
    pub(super) const TRANSACTIONS: u32 = 1 << 13;
    pub(super) const SECURE_CONNECTION: u32 = 1 << 15;
    pub(super) const PLUGIN_AUTH: u32 = 1 << 19;
}

/// What this client needs from a server: all that is not older than 2010.
const NEEDED: u32 =
    capability::PROTOCOL_41 | capability::SECURE_CONNECTION | capability::PLUGIN_AUTH;

/// Number of the collation `utf8mb4_general_ci`, which every server knows. Only its character set matters: a
/// parameter of a statement never has a say in how it is compared with a column.
const UTF8MB4: u8 = 45;

/// Maximum length of the name of a server's version or of a method, in bytes.
const NAME_MAX: usize = 256;

/// Length of the random bytes in which a server wants the password to be hashed.
const NONCE: usize = 20;

/// Maximum number of packets that a server sends before it lets the client in or refuses it.
const ROUNDS_MAX: usize = 8;

/// Number of bytes that a server may send for a login.
pub(super) const ANSWER_MAX: usize = 16 * 1024;

/// The first packet of a server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    capabilities: u32,
    nonce: [u8; NONCE],
    method: Box<[u8]>,
}

/// How the client logs in.
#[derive(Clone, Copy)]
pub(super) struct Login<'a> {
    pub(super) user: &'a str,
    pub(super) password: &'a [u8],
    /// The database; empty: none.
    pub(super) database: &'a str,
    pub(super) with_tls: bool,
}

impl Greeting {
    pub(super) fn parse(packet: &[u8]) -> Result<Self, Error> {
        let mut fields = Fields(packet);
        if fields.u8()? != 10 {
            return Err(Error::Malformed("the greeting has an unknown version"));
        }
        fields.until_nul(NAME_MAX)?;
        fields.take(4)?;
        let first = fields.take(8)?;
        fields.take(1)?;
        let low = fields.u16()?;
        fields.take(3)?;
        let capabilities = u32::from(low) | u32::from(fields.u16()?) << 16;
        if capabilities & NEEDED != NEEDED {
            return Err(Error::Refused(
                "the server is too old: it cannot log clients in by plugins".into(),
            ));
        }
        let declared = usize::from(fields.u8()?);
        fields.take(10)?;
        // The random bytes are 8 and 12, with a NUL at the end that is counted.
        let second = fields.take(declared.saturating_sub(8).max(13))?;
        let mut nonce = [0; NONCE];
        nonce[..8].copy_from_slice(first);
        nonce[8..].copy_from_slice(&second[..NONCE - 8]);
        // Some old servers leave out the last NUL.
        let method = fields.0.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(Self { capabilities, nonce, method: method.into() })
    }

    pub(super) fn offers_tls(&self) -> bool {
        self.capabilities & capability::TLS != 0
    }
}

impl Login<'_> {
    /// Returns the packet that begins TLS.
    pub(super) fn tls_request(&self) -> Vec<u8> {
        let mut packet = Vec::new();
        packet.extend_from_slice(&self.capabilities().to_le_bytes());
        packet.extend_from_slice(&(1_u32 << 24).to_le_bytes());
        packet.push(UTF8MB4);
        packet.extend_from_slice(&[0; 23]);
        packet
    }

    fn capabilities(&self) -> u32 {
        NEEDED
            | capability::LONG_PASSWORD
            | capability::LONG_FLAG
            | capability::TRANSACTIONS
            | if self.database.is_empty() { 0 } else { capability::CONNECT_WITH_DB }
            | if self.with_tls { capability::TLS } else { 0 }
    }

    /// Logs in, after the greeting and TLS.
    pub(super) async fn run(
        &self,
        packets: &mut Packets,
        greeting: &Greeting,
    ) -> Result<(), Error> {
        // A method that this client does not know, or not without TLS, may be the server's default only. Its
        // answer to another one tells the method of the user.
        let offered = Method::named(&greeting.method, self.with_tls);
        let mut method = offered.unwrap_or(Method::Native);
        packets.send(&self.response(method, &greeting.nonce)?).await?;
        for _ in 0..ROUNDS_MAX {
            let packet = packets.receive().await?;
            let mut fields = Fields(&packet);
            match fields.u8()? {
                0x00 => return Ok(()),
                0xfe => {
                    let name = fields.until_nul(NAME_MAX)?;
                    method = Method::named(name, self.with_tls).ok_or_else(|| refused(name))?;
                    let nonce = fields.0.first_chunk().copied().unwrap_or_default();
                    packets.send(&method.answer(self.password, &nonce)).await?;
                }
                0x01 if method == Method::CachingSha2 => match fields.0 {
                    [3] => {}
                    [4] if self.with_tls => {
                        packets.send(&Method::Clear.answer(self.password, &[0; NONCE])).await?;
                    }
                    [4] => {
                        return Err(Error::Refused(
                            "the server wants to see the password itself, which needs TLS: set `tls = true`"
                                .into(),
                        ));
                    }
                    _ => return Err(Error::Malformed("the login has an unknown step")),
                },
                _ => return Err(Error::Malformed("the login has an unknown step")),
            }
        }
        Err(Error::Malformed("the login does not end"))
    }

    fn response(&self, method: Method, nonce: &[u8; NONCE]) -> Result<Vec<u8>, Error> {
        let answer = method.answer(self.password, nonce);
        let length = u8::try_from(answer.len());
        let mut packet = self.tls_request();
        packet.extend_from_slice(self.user.as_bytes());
        packet.push(0);
        packet.push(length.map_err(|_| Error::Refused("the password is too long".into()))?);
        packet.extend_from_slice(&answer);
        if !self.database.is_empty() {
            packet.extend_from_slice(self.database.as_bytes());
            packet.push(0);
        }
        packet.extend_from_slice(method.name());
        packet.push(0);
        Ok(packet)
    }
}

fn refused(name: &[u8]) -> Error {
    let name = printable(name);
    Error::Refused(
        format!("the server wants the method `{name}`, which is not known, or not without TLS")
            .into(),
    )
}

/// How a password is shown to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    /// As SHA-1 hashes: the default of MariaDB.
    Native,
    /// As SHA-256 hashes: the default of MySQL 8.
    CachingSha2,
    /// In clear, as for LDAP and PAM. Over TLS only.
    Clear,
}

impl Method {
    fn named(name: &[u8], with_tls: bool) -> Option<Self> {
        let known = [Self::Native, Self::CachingSha2, Self::Clear];
        let found = known.into_iter().find(|method| method.name() == name)?;
        (found != Self::Clear || with_tls).then_some(found)
    }

    fn name(self) -> &'static [u8] {
        match self {
            Self::Native => b"mysql_native_password",
            Self::CachingSha2 => b"caching_sha2_password",
            Self::Clear => b"mysql_clear_password",
        }
    }

    fn answer(self, password: &[u8], nonce: &[u8; NONCE]) -> Vec<u8> {
        if self == Self::Clear {
            return [password, &[0]].concat();
        }
        if password.is_empty() {
            return Vec::new();
        }
        let (algorithm, is_nonce_first) = match self {
            Self::Native => (&SHA1_FOR_LEGACY_USE_ONLY, true),
            _ => (&SHA256, false),
        };
        let once = digest(algorithm, password);
        let twice = digest(algorithm, once.as_ref());
        let mixed = match is_nonce_first {
            true => [nonce, twice.as_ref()].concat(),
            false => [twice.as_ref(), nonce].concat(),
        };
        let mask = digest(algorithm, &mixed);
        once.as_ref().iter().zip(mask.as_ref()).map(|(byte, mask)| byte ^ mask).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The greeting of MariaDB 10.11.
    pub(in super::super) fn greeting(method: &[u8], capabilities: u32) -> Vec<u8> {
        let capabilities = capabilities.to_le_bytes();
        let mut packet = b"\x0a5.5.5-10.11.19-MariaDB\0\x01\0\0\0ABCDEFGH\0".to_vec();
        packet.extend_from_slice(&capabilities[..2]);
        packet.extend_from_slice(&[8, 2, 0]);
        packet.extend_from_slice(&capabilities[2..]);
        packet.push(21);
        packet.extend_from_slice(&[0; 10]);
        packet.extend_from_slice(b"IJKLMNOPQRST\0");
        packet.extend_from_slice(method);
        packet.push(0);
        packet
    }

    #[test]
    fn a_greeting_is_read_or_refused() {
        let whole = greeting(b"mysql_native_password", NEEDED | capability::TLS);
        let read = Greeting::parse(&whole).unwrap();
        assert_eq!(&read.nonce, b"ABCDEFGHIJKLMNOPQRST");
        assert_eq!(&*read.method, b"mysql_native_password");
        assert!(read.offers_tls());
        for cut in 0..whole.len() - b"mysql_native_password\0".len() {
            assert!(Greeting::parse(&whole[..cut]).is_err(), "{cut}");
        }
        assert!(Greeting::parse(&greeting(b"x", NEEDED & !capability::PLUGIN_AUTH)).is_err());
        assert!(
            Greeting::parse(b"\x09").is_err()
                && Greeting::parse(b"220 mail.example ESMTP").is_err()
        );
    }

    #[test]
    fn passwords_are_hashed_as_the_servers_do() {
        // Computed with Python's hashlib.
        let nonce = b"ABCDEFGHIJKLMNOPQRST";
        let hex = |bytes: Vec<u8>| data_encoding::HEXLOWER.encode(&bytes);
        assert_eq!(hex(Method::Native.answer(b"secret", nonce)), NATIVE);
        assert_eq!(hex(Method::CachingSha2.answer(b"secret", nonce)), CACHING_SHA2);
        assert_eq!(Method::Clear.answer(b"secret", nonce), b"secret\0");
        assert!(Method::Native.answer(b"", nonce).is_empty());
    }

    #[test]
    fn a_password_is_not_shown_in_clear_without_tls() {
        assert_eq!(Method::named(b"mysql_clear_password", false), None);
        assert_eq!(Method::named(b"mysql_clear_password", true), Some(Method::Clear));
        assert_eq!(Method::named(b"sha256_password", true), None);
    }

    const NATIVE: &str = "28441590674285e7d03cae7af237504797f70e91";
    const CACHING_SHA2: &str = "d721e183c1f036a196c1389201b8d53f38064a16f1d0923683ab886763152d75";
}
