//! What a broker says about itself and the others, several times a second.

use crate::common::CommonSettings;
use crate::error::FrameError;
use crate::wire::{Reader, put_text, put_u16, put_u64};

/// Maximum number of members in a heartbeat.
const MEMBERS_MAX: usize = 1_024;

/// What a broker says about itself and the others, several times a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// Counts the heartbeats of this incarnation.
    pub number: u64,
    /// The wall clock of the broker, in milliseconds since the Unix epoch.
    pub wall: u64,
    /// The settings that all brokers should have in common.
    pub settings: CommonSettings,
    /// Whether the broker serves, in its present life.
    pub serves: bool,
    /// Whether it has had the quorum since it first had it: nobody who serves can have held this life down.
    pub is_unbroken: bool,
    /// The number of brokers that count for a quorum as far as the speaker knows, itself included.
    pub brokers: u16,
    /// What it knows of the other brokers.
    pub seen: Vec<Seen>,
}

/// What a broker knows of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The name of the other broker.
    pub name: String,
    /// The address of the other broker.
    pub address: String,
    /// The incarnation that is meant.
    pub incarnation: u64,
    /// Whether it can be reached.
    pub verdict: Verdict,
    /// The number of the last heartbeat that was heard from it.
    pub heard: u64,
    /// Whether the speaker lets it serve.
    pub support: Support,
}

/// Whether a broker lets another one serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// Not now.
    No,
    /// Its subscriptions wait until the other one has heard of them.
    Yes,
    /// Never in its present life: somebody who cannot be asked may have held it down.
    Never,
}

impl Seen {
    /// Whether this is said of that incarnation.
    pub(crate) fn is(&self, incarnation: u64, verdict: Verdict) -> bool {
        (self.incarnation, self.verdict) == (incarnation, verdict)
    }
}

/// Whether a broker can be reached, as another one sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its heartbeats arrive.
    Up,
    /// No heartbeat has arrived for a while.
    Unreachable,
    /// Its host refuses connections: the process has ended.
    Gone,
    /// It is out of the cluster, for good.
    Down,
}

impl Heartbeat {
    /// Appends the fields of the frame.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.number);
        put_u64(out, self.wall);
        self.settings.encode(out);
        out.push(match (self.serves, self.is_unbroken) {
            (false, _) => 0,
            (true, false) => 1,
            (true, true) => 2,
        });
        put_u16(out, self.brokers);
        put_u16(out, u16::try_from(self.seen.len()).expect("members are few"));
        for seen in &self.seen {
            put_text(out, &seen.name);
            put_text(out, &seen.address);
            put_u64(out, seen.incarnation);
            out.push(seen.verdict as u8);
            put_u64(out, seen.heard);
            out.push(seen.support as u8);
        }
    }

    /// Reads the fields of the frame.
    ///
    /// # Errors
    /// The fields are not those of a heartbeat.
    pub(crate) fn decode(fields: &mut Reader<'_>) -> Result<Self, FrameError> {
        let (number, wall) = (fields.u64()?, fields.u64()?);
        let settings = CommonSettings::decode(fields)?;
        let (serves, is_unbroken) = match fields.u8()? {
            0 => (false, false),
            1 => (true, false),
            2 => (true, true),
            _ => return Err(FrameError::Value),
        };
        let brokers = fields.u16()?;
        let count = usize::from(fields.u16()?);
        if count > MEMBERS_MAX {
            return Err(FrameError::Value);
        }
        let mut seen = Vec::new();
        for _ in 0..count {
            seen.push(Seen {
                name: fields.text()?.to_owned(),
                address: fields.text()?.to_owned(),
                incarnation: fields.u64()?,
                verdict: match fields.u8()? {
                    0 => Verdict::Up,
                    1 => Verdict::Unreachable,
                    2 => Verdict::Gone,
                    3 => Verdict::Down,
                    _ => return Err(FrameError::Value),
                },
                heard: fields.u64()?,
                support: match fields.u8()? {
                    0 => Support::No,
                    1 => Support::Yes,
                    2 => Support::Never,
                    _ => return Err(FrameError::Value),
                },
            });
        }
        Ok(Self { number, wall, settings, serves, is_unbroken, brokers, seen })
    }
}
