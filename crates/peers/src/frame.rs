//! The frames of a link.
//!
//! A frame is its length (4 bytes), its kind (1 byte) and its fields. The length counts the kind and the fields.

#[cfg(test)]
mod tests;

use barid_core::stamp::Stamp;

use crate::comparing::Comparison;
use crate::digest::{DIGESTS_LEN, Object, Parts};
use crate::error::{FrameError, NONCE, PROOF, Refusal};
use crate::heartbeat::Heartbeat;
use crate::identity::{Identity, Purpose};
use crate::inquiry::{Inquiry, Told};
use crate::used::Used;
use crate::wire::{Reader, put_text, put_u16, put_u64};

/// Length of what precedes the fields: the length of the frame and its kind.
const HEAD: usize = 5;

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// The first frame of the broker that has opened the link.
    Hello {
        /// The versions of the protocol that the broker speaks, from the first to the last.
        versions: (u16, u16),
        /// What the link is for.
        purpose: Purpose,
        /// Who the broker is.
        identity: Identity,
        /// A random number.
        nonce: [u8; NONCE],
    },
    /// The answer to `Hello`.
    Welcome {
        /// The version that both speak from here on.
        version: u16,
        /// Who the broker is.
        identity: Identity,
        /// A random number.
        nonce: [u8; NONCE],
        /// The proof that the broker knows the secret.
        proof: [u8; PROOF],
    },
    /// The proof that the broker that has opened the link knows the secret, too.
    Proof([u8; PROOF]),
    /// The link is refused. The last frame.
    Refused(Refusal),
    /// The link is open.
    Ready,
    /// The broker lives.
    Heartbeat(Heartbeat),
    /// A snapshot of the topic filters begins: of those that were told before, only those count that come again.
    SnapshotBegins,
    /// A change of the topic filters, or one filter of a snapshot.
    Filter(Change<'a>),
    /// All changes up to this version have been told. If a snapshot has begun, it ends here.
    Told(u64),
    /// All changes up to this version have an effect on what is published here.
    Heard(u64),
    /// A client has connected to the broker: another broker to which it is connected ends that connection.
    Connected {
        /// The tenant of the client.
        tenant: &'a str,
        /// The client identifier.
        client: &'a str,
        /// When it connected, in microseconds since the Unix epoch.
        at: u64,
        /// Whether it wants a new session: an old one that another broker has ends.
        begins_anew: bool,
    },
    /// A snapshot of the wills that the hearer keeps begins: of those that were told before, only those count that come
    /// again.
    WillsBegin {
        /// The broker that publishes the wills if the speaker is down; empty: the hearer. The hearer publishes them if both
        /// are down.
        first: &'a str,
    },
    /// The will of a client that is connected to the speaker. It replaces the one that was told of the client before.
    Will(Will<'a>),
    /// A client has no will any more: it was published or discarded.
    NoWill {
        /// The tenant of the client.
        tenant: &'a str,
        /// The client identifier.
        client: &'a str,
    },
    /// The snapshot of the wills ends.
    WillsTold,
    /// What tenants use at the speaker is told anew: nothing of what was told before counts.
    UsagesBegin,
    /// What a tenant uses at the speaker.
    Used {
        /// The tenant.
        tenant: &'a str,
        /// What it uses.
        used: Used,
    },
    /// Messages.
    Run(Run<'a>),
    /// All messages up to this sequence number are at their destinations, and durable where they have to be.
    Done(u64),
    /// The broker leaves the cluster. The last frame.
    Leaving,
    /// The client whose bytes follow on this link, when the other broker has answered `Ready`.
    Client(Client<'a>),
    /// An object that all brokers have, as the speaker has it.
    Object {
        /// Which one it is.
        object: Object<'a>,
        /// Its record, which the frames do not interpret.
        record: &'a [u8],
    },
    /// The [digests](crate::Digest) of the speaker's objects.
    Digests {
        /// Why they come.
        comparison: Comparison,
        /// The digests of all parts.
        digests: &'a [u8],
    },
    /// The answer to `Digests`.
    Listing {
        /// The parts whose digests differ from the hearer's.
        differing: Parts,
        /// The parts whose objects are listed.
        listed: Parts,
        /// Whether there are more parts to be listed.
        has_more: bool,
        /// The objects that the hearer has in these parts, as [`Listed`](crate::Listed).
        objects: &'a [u8],
    },
    /// The speaker has sent all objects of which it had a later change than the hearer, when the link was opened.
    Compared,
    /// A slot is to be moved: the hearer is to publish nothing for [`HOLD_MS`], and to wait until nothing that it has
    /// published is under way.
    Hold {
        /// The slot.
        slot: u16,
    },
    /// The hearer publishes nothing, and nothing is under way.
    Held,
    /// A part of the records of a slot.
    Part(&'a [u8]),
    /// The parts are all records of a slot: the hearer is to keep them.
    Stage {
        /// The slot.
        slot: u16,
        /// The number of this move among all moves of the slot.
        generation: u64,
        /// XXH3-64 of the records.
        hash: u64,
    },
    /// The hearer has the records on its disk.
    Staged,
    /// The slot has moved: to the hearer, if that has staged it, otherwise to another broker.
    Activate {
        /// The slot.
        slot: u16,
        /// The number of the move.
        generation: u64,
    },
    /// The contents of the slot are in force at the hearer, and all brokers have heard of their subscriptions. Of a hearer that
    /// has not staged it: it knows where the slot is.
    Active,
}

/// Time for which [`Frame::Hold`] holds, in milliseconds, from when it is read.
pub const HOLD_MS: u64 = 3_000;

/// A will that another broker keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Will<'a> {
    /// The tenant of the client.
    pub tenant: &'a str,
    /// The client identifier.
    pub client: &'a str,
    /// When the client connected, in microseconds since the Unix epoch.
    pub at: u64,
    /// The user to whom the message belongs if it is retained; empty: none.
    pub user: &'a str,
    /// Message Expiry Interval, in seconds, from when it is published.
    pub expiry: Option<u32>,
    /// The record of the message, which the frames do not interpret.
    pub message: &'a [u8],
}

/// A change of the topic filters that a broker's clients have subscribed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// Whether the filter is added. Otherwise it is removed.
    pub is_added: bool,
    /// The tenant.
    pub tenant: &'a str,
    /// The topic filter, with `$share/…/` if the subscription is shared.
    pub filter: &'a str,
}

/// Messages of one publisher to one topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run<'a> {
    /// The place of the run on its link, counted over all connections of the link.
    pub sequence: u64,
    /// The tenant.
    pub tenant: &'a str,
    /// The client identifier of the publisher.
    pub publisher: &'a str,
    /// Who gets the messages.
    pub to: Destination<'a>,
    /// Whether the packets are those of MQTT 5. Otherwise they are those of MQTT 3.1.1.
    pub is_v5: bool,
    /// The last message becomes the retained message of its topic, or removes it.
    pub retaining: Option<Retaining<'a>>,
    /// PUBLISH packets with the same topic, QoS and RETAIN flag.
    pub packets: &'a [u8],
}

/// How a message is retained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retaining<'a> {
    /// Which change of the retained message it is.
    pub stamp: Stamp,
    /// The user to whom the retained message belongs; empty: none.
    pub user: &'a str,
}

/// A client that is connected to another broker than the one that has its session, or the entities of its tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client<'a> {
    /// The address of the client.
    pub address: &'a str,
    /// The protocol that its bytes are in.
    pub protocol: Protocol,
    /// The address of the listener that it has reached.
    pub listener: &'a str,
    /// The certificate that the client has shown and that the broker has verified, in DER; empty: there is none.
    pub certificate: &'a [u8],
}

/// The protocol of a client, or of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// MQTT 3.1, 3.1.1 or 5.
    Mqtt,
    /// AMQP 1.0.
    Amqp,
    /// HTTP, for the admin API.
    Admin,
    /// HTTP, for the administration protocol of Service Bus.
    Management,
}

/// The subscriptions of a broker for which messages are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination<'a> {
    /// All that are not shared.
    Sessions,
    /// One member of a shared subscription, given by its whole filter: `$share/{name}/{filter}`.
    Shared(&'a str),
    /// The state store of the tenant: the message is a request of the publisher.
    StateStore(Inquiry<'a>),
    /// The client that has asked the state store.
    Inquirer(Told),
    /// The session of the publisher itself, which has connected to the speaker with Clean Start at this time, in microseconds
    /// since the Unix epoch: it ends, unless the client has connected to the hearer since. There are no messages.
    OldSession(u64),
}

impl Frame<'_> {
    /// Appends the frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.push(self.kind());
        match self {
            Self::Hello { versions, purpose, identity, nonce } => {
                put_u16(out, versions.0);
                put_u16(out, versions.1);
                match purpose {
                    Purpose::Control => out.push(0),
                    Purpose::Messages(thread) => {
                        out.push(1);
                        put_u16(out, *thread);
                    }
                    Purpose::Client => out.push(2),
                    Purpose::Replication => out.push(3),
                    Purpose::Move => out.push(4),
                }
                put_identity(out, identity);
                out.extend_from_slice(nonce);
            }
            Self::Welcome { version, identity, nonce, proof } => {
                put_u16(out, *version);
                put_identity(out, identity);
                out.extend_from_slice(nonce);
                out.extend_from_slice(proof);
            }
            Self::Proof(proof) => out.extend_from_slice(proof),
            Self::Refused(refusal) => {
                out.push(refusal.code());
                put_text(out, &refusal.detail());
            }
            Self::Ready
            | Self::SnapshotBegins
            | Self::WillsTold
            | Self::UsagesBegin
            | Self::Leaving
            | Self::Compared
            | Self::Held
            | Self::Staged
            | Self::Active => {}
            Self::Hold { slot } => put_u16(out, *slot),
            Self::Part(bytes) => out.extend_from_slice(bytes),
            Self::Stage { slot, generation, hash } => {
                put_u16(out, *slot);
                put_u64(out, *generation);
                put_u64(out, *hash);
            }
            Self::Activate { slot, generation } => {
                put_u16(out, *slot);
                put_u64(out, *generation);
            }
            Self::Heartbeat(heartbeat) => heartbeat.encode(out),
            Self::Filter(change) => {
                out.push(u8::from(change.is_added));
                put_text(out, change.tenant);
                put_text(out, change.filter);
            }
            Self::Connected { tenant, client, at, begins_anew } => {
                put_text(out, tenant);
                put_text(out, client);
                put_u64(out, *at);
                out.push(u8::from(*begins_anew));
            }
            Self::WillsBegin { first } => put_text(out, first),
            Self::Will(will) => {
                put_text(out, will.tenant);
                put_text(out, will.client);
                put_u64(out, will.at);
                put_text(out, will.user);
                out.push(u8::from(will.expiry.is_some()));
                if let Some(expiry) = will.expiry {
                    put_u64(out, expiry.into());
                }
                out.extend_from_slice(will.message);
            }
            Self::NoWill { tenant, client } => {
                put_text(out, tenant);
                put_text(out, client);
            }
            Self::Used { tenant, used } => {
                put_text(out, tenant);
                used.encode(out);
            }
            Self::Client(client) => {
                put_text(out, client.address);
                out.push(client.protocol as u8);
                put_text(out, client.listener);
                out.extend_from_slice(client.certificate);
            }
            Self::Object { object, record } => {
                out.push(object.kind);
                put_text(out, object.tenant);
                put_text(out, object.name);
                out.extend_from_slice(record);
            }
            Self::Digests { comparison, digests } => {
                out.push(*comparison as u8);
                out.extend_from_slice(digests);
            }
            Self::Listing { differing, listed, has_more, objects } => {
                differing.encode(out);
                listed.encode(out);
                out.push(u8::from(*has_more));
                out.extend_from_slice(objects);
            }
            Self::Told(number) | Self::Heard(number) | Self::Done(number) => put_u64(out, *number),
            Self::Run(run) => {
                run.encode_head(out);
                out.extend_from_slice(run.packets);
            }
        }
        set_len(&mut out[start..], 0);
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Hello { .. } => 1,
            Self::Welcome { .. } => 2,
            Self::Proof(_) => 3,
            Self::Refused(_) => 4,
            Self::Ready => 5,
            Self::Heartbeat(_) => 16,
            Self::SnapshotBegins => 17,
            Self::Filter(_) => 18,
            Self::Told(_) => 19,
            Self::Heard(_) => 20,
            Self::Leaving => 21,
            Self::Connected { .. } => 22,
            Self::WillsBegin { .. } => 23,
            Self::Will(_) => 24,
            Self::NoWill { .. } => 25,
            Self::WillsTold => 26,
            Self::UsagesBegin => 27,
            Self::Used { .. } => 28,
            Self::Run(_) => RUN,
            Self::Done(_) => 33,
            Self::Client(_) => 48,
            Self::Object { .. } => 64,
            Self::Digests { .. } => 65,
            Self::Listing { .. } => 66,
            Self::Compared => 67,
            Self::Hold { .. } => 80,
            Self::Held => 81,
            Self::Part(_) => 82,
            Self::Stage { .. } => 83,
            Self::Staged => 84,
            Self::Activate { .. } => 85,
            Self::Active => 86,
        }
    }
}

const RUN: u8 = 32;

impl Run<'_> {
    /// Appends the frame without [`Self::packets`], which must follow it. `behind` is their length, in bytes.
    pub fn encode_before(&self, behind: usize, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.push(RUN);
        self.encode_head(out);
        set_len(&mut out[start..], behind);
    }

    fn encode_head(&self, out: &mut Vec<u8>) {
        put_u64(out, self.sequence);
        put_text(out, self.tenant);
        put_text(out, self.publisher);
        let to = match self.to {
            Destination::Sessions => 0,
            Destination::Shared(_) => SHARED,
            Destination::StateStore(_) => STATE_STORE,
            Destination::Inquirer(_) => INQUIRER,
            Destination::OldSession(_) => OLD_SESSION,
        };
        let retains = if self.retaining.is_some() { RETAINS } else { 0 };
        out.push(u8::from(self.is_v5) | to | retains);
        match &self.to {
            Destination::Sessions => {}
            Destination::Shared(group) => put_text(out, group),
            Destination::StateStore(inquiry) => inquiry.encode(out),
            Destination::Inquirer(told) => told.encode(out),
            Destination::OldSession(at) => put_u64(out, *at),
        }
        if let Some(Retaining { stamp, user }) = self.retaining {
            put_u64(out, stamp.time);
            put_u64(out, stamp.origin);
            put_text(out, user);
        }
    }
}

/// Flags of a run, beside that of MQTT 5, which is 1.
const SHARED: u8 = 2;
const RETAINS: u8 = 4;
const STATE_STORE: u8 = 8;
const INQUIRER: u8 = 16;
const OLD_SESSION: u8 = 32;

/// Sets the length of the frame that begins here and that `behind` bytes follow.
fn set_len(frame: &mut [u8], behind: usize) {
    let len = u32::try_from(frame.len() - 4 + behind).expect("a frame is shorter than 4 GiB");
    frame[..4].copy_from_slice(&len.to_be_bytes());
}

/// Decodes the frame at the front of `bytes`. Returns the frame and its length, or `None` if bytes of it are missing.
///
/// # Errors
/// The bytes are no frame, or the frame is longer than `most` bytes.
pub fn decode(bytes: &[u8], most: usize) -> Result<Option<(Frame<'_>, usize)>, FrameError> {
    let Some((len, _)) = bytes.split_first_chunk() else { return Ok(None) };
    let len = u32::from_be_bytes(*len) as usize;
    if len > most {
        return Err(FrameError::TooLarge(len));
    }
    let Some((kind, _)) = bytes.get(4..).and_then(<[u8]>::split_first) else { return Ok(None) };
    let whole = len.checked_add(4).ok_or(FrameError::TooLarge(len))?;
    if whole < HEAD {
        return Err(FrameError::CutOff);
    }
    let Some(fields) = bytes.get(HEAD..whole) else { return Ok(None) };
    Ok(Some((frame(*kind, fields)?, whole)))
}

fn frame(kind: u8, fields: &[u8]) -> Result<Frame<'_>, FrameError> {
    let mut fields = Reader(fields);
    let frame = match kind {
        1 => Frame::Hello {
            versions: (fields.u16()?, fields.u16()?),
            purpose: match fields.u8()? {
                0 => Purpose::Control,
                1 => Purpose::Messages(fields.u16()?),
                2 => Purpose::Client,
                3 => Purpose::Replication,
                4 => Purpose::Move,
                _ => return Err(FrameError::Value),
            },
            identity: identity(&mut fields)?,
            nonce: fields.array()?,
        },
        2 => Frame::Welcome {
            version: fields.u16()?,
            identity: identity(&mut fields)?,
            nonce: fields.array()?,
            proof: fields.array()?,
        },
        3 => Frame::Proof(fields.array()?),
        4 => Frame::Refused(Refusal::from_code(fields.u8()?, fields.text()?)),
        5 => Frame::Ready,
        16 => Frame::Heartbeat(Heartbeat::decode(&mut fields)?),
        17 => Frame::SnapshotBegins,
        18 => Frame::Filter(Change {
            is_added: fields.flag()?,
            tenant: fields.text()?,
            filter: fields.text()?,
        }),
        19 => Frame::Told(fields.u64()?),
        20 => Frame::Heard(fields.u64()?),
        21 => Frame::Leaving,
        22 => Frame::Connected {
            tenant: fields.text()?,
            client: fields.text()?,
            at: fields.u64()?,
            begins_anew: fields.flag()?,
        },
        23 => Frame::WillsBegin { first: fields.text()? },
        24 => Frame::Will(Will {
            tenant: fields.text()?,
            client: fields.text()?,
            at: fields.u64()?,
            user: fields.text()?,
            expiry: match fields.flag()? {
                false => None,
                true => Some(u32::try_from(fields.u64()?).map_err(|_| FrameError::Value)?),
            },
            message: fields.rest(),
        }),
        25 => Frame::NoWill { tenant: fields.text()?, client: fields.text()? },
        26 => Frame::WillsTold,
        27 => Frame::UsagesBegin,
        28 => Frame::Used { tenant: fields.text()?, used: Used::decode(&mut fields)? },
        RUN => {
            let (sequence, tenant, publisher) = (fields.u64()?, fields.text()?, fields.text()?);
            let flags = fields.u8()?;
            if flags >= OLD_SESSION << 1 {
                return Err(FrameError::Value);
            }
            let to = match flags & (SHARED | STATE_STORE | INQUIRER | OLD_SESSION) {
                0 => Destination::Sessions,
                SHARED => Destination::Shared(fields.text()?),
                STATE_STORE => Destination::StateStore(Inquiry::decode(&mut fields)?),
                INQUIRER => Destination::Inquirer(Told::decode(&mut fields)?),
                OLD_SESSION => Destination::OldSession(fields.u64()?),
                _ => return Err(FrameError::Value),
            };
            let retaining = match flags & RETAINS {
                0 => None,
                _ => Some(Retaining {
                    stamp: Stamp { time: fields.u64()?, origin: fields.u64()? },
                    user: fields.text()?,
                }),
            };
            let (is_v5, packets) = (flags & 1 == 1, fields.rest());
            Frame::Run(Run { sequence, tenant, publisher, to, is_v5, retaining, packets })
        }
        33 => Frame::Done(fields.u64()?),
        48 => Frame::Client(Client {
            address: fields.text()?,
            protocol: match fields.u8()? {
                0 => Protocol::Mqtt,
                1 => Protocol::Amqp,
                2 => Protocol::Admin,
                3 => Protocol::Management,
                _ => return Err(FrameError::Value),
            },
            listener: fields.text()?,
            certificate: fields.rest(),
        }),
        64 => Frame::Object {
            object: Object { kind: fields.u8()?, tenant: fields.text()?, name: fields.text()? },
            record: fields.rest(),
        },
        65 => Frame::Digests {
            comparison: match fields.u8()? {
                0 => Comparison::First,
                1 => Comparison::Next,
                2 => Comparison::Again,
                _ => return Err(FrameError::Value),
            },
            digests: fields.take(DIGESTS_LEN)?,
        },
        66 => Frame::Listing {
            differing: Parts::decode(&mut fields)?,
            listed: Parts::decode(&mut fields)?,
            has_more: fields.flag()?,
            objects: fields.rest(),
        },
        67 => Frame::Compared,
        80 => Frame::Hold { slot: fields.u16()? },
        81 => Frame::Held,
        82 => Frame::Part(fields.rest()),
        83 => Frame::Stage { slot: fields.u16()?, generation: fields.u64()?, hash: fields.u64()? },
        84 => Frame::Staged,
        85 => Frame::Activate { slot: fields.u16()?, generation: fields.u64()? },
        86 => Frame::Active,
        kind => return Err(FrameError::Kind(kind)),
    };
    fields.end()?;
    Ok(frame)
}

fn put_identity(out: &mut Vec<u8>, identity: &Identity) {
    put_text(out, &identity.cluster);
    put_text(out, &identity.name);
    put_u64(out, identity.incarnation);
    put_text(out, &identity.address);
    put_text(out, &identity.software);
    put_u64(out, identity.placement);
    put_text(out, &identity.reference);
}

fn identity(fields: &mut Reader<'_>) -> Result<Identity, FrameError> {
    Ok(Identity {
        cluster: fields.text()?.to_owned(),
        name: fields.text()?.to_owned(),
        incarnation: fields.u64()?,
        address: fields.text()?.to_owned(),
        software: fields.text()?.to_owned(),
        placement: fields.u64()?,
        reference: fields.text()?.to_owned(),
    })
}
