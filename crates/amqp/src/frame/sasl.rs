use super::{Composite, Malformed, missing};
use crate::wire::{ValueRef, Writer};

const MECHANISMS: u64 = 0x40;
const INIT: u64 = 0x41;
const CHALLENGE: u64 = 0x42;
const RESPONSE: u64 = 0x43;
const OUTCOME: u64 = 0x44;

/// A step of the authentication (5.3.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sasl {
    /// What the server offers.
    Mechanisms(Vec<String>),
    /// What the client has chosen.
    Init {
        /// One of those offered.
        mechanism: String,
        /// What the mechanism begins with.
        initial_response: Option<Vec<u8>>,
        /// Whom the client wants to speak to.
        hostname: Option<String>,
    },
    /// What the server asks.
    Challenge(Vec<u8>),
    /// What the client answers.
    Response(Vec<u8>),
    /// Whether the client is who it says.
    Outcome {
        /// 0 for success, 1 for failure.
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
            // An array also for one: there are clients that look for their mechanism in it.
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
