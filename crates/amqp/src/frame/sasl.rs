use super::{Composite, Malformed, missing};
use crate::wire::{ValueRef, Writer};

const MECHANISMS: u64 = 0x40;
const INIT: u64 = 0x41;
const CHALLENGE: u64 = 0x42;
const RESPONSE: u64 = 0x43;
const OUTCOME: u64 = 0x44;

/// A SASL frame (5.3.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sasl {
    /// Mechanisms that the server offers.
    Mechanisms(Vec<String>),
    /// Mechanism that the client has chosen.
    Init {
        /// Name of the mechanism.
        mechanism: String,
        /// Initial response of the mechanism.
        initial_response: Option<Vec<u8>>,
        /// Name of the host that the client wants to reach.
        hostname: Option<String>,
    },
    /// Challenge of the server.
    Challenge(Vec<u8>),
    /// Response of the client.
    Response(Vec<u8>),
    /// Result of the authentication.
    Outcome {
        /// 0 for success; 1 if the credentials are not accepted; 2, 3 and 4 if the server fails (5.3.3.6).
        code: u8,
    },
}

impl Sasl {
    pub(super) fn read(body: &[u8]) -> Result<Self, Malformed> {
        let (code, mut fields, _) = Composite::read(body)?;
        Ok(match code {
            MECHANISMS => Self::Mechanisms(fields.symbols()?.into_iter().map(Into::into).collect()),
            INIT => Self::Init {
                mechanism: fields.text()?.ok_or(missing("sasl-init: no mechanism"))?.into(),
                initial_response: fields.binary()?.map(Into::into),
                hostname: fields.text()?.map(Into::into),
            },
            CHALLENGE => Self::Challenge(fields.binary()?.unwrap_or(&[]).into()),
            RESPONSE => Self::Response(fields.binary()?.unwrap_or(&[]).into()),
            OUTCOME => {
                Self::Outcome { code: fields.ubyte()?.ok_or(missing("sasl-outcome: no code"))? }
            }
            _ => return Err(Malformed::Field("frame: unknown step of SASL")),
        })
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) {
        match self {
            // Written as an array even for one mechanism: some clients look for theirs in an array.
            Self::Mechanisms(mechanisms) => {
                writer.composite(MECHANISMS, |fields| {
                    fields.symbols(mechanisms.iter().map(String::as_str))
                });
            }
            Self::Init { mechanism, initial_response, hostname } => {
                writer.composite(INIT, |fields| {
                    fields.value(ValueRef::Symbol(mechanism));
                    fields.value(initial_response.as_deref());
                    fields.value(hostname.as_deref());
                });
            }
            Self::Challenge(bytes) => {
                writer.composite(CHALLENGE, |fields| fields.value(bytes.as_slice()))
            }
            Self::Response(bytes) => {
                writer.composite(RESPONSE, |fields| fields.value(bytes.as_slice()))
            }
            Self::Outcome { code } => writer.composite(OUTCOME, |fields| {
                fields.value(*code);
                fields.value(ValueRef::Null);
            }),
        }
    }
}
