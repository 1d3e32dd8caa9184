//! The first frames of a link. Both brokers prove that they know the secret of the cluster, and neither sends it.
//!
//! ```text
//! the broker that opens the link        the other one
//!   Hello {identity, nonce}      ──►
//!                                ◄──    Welcome {identity, nonce, proof}, or Refused
//!   Proof                        ──►
//!                                ◄──    Ready, or Refused
//! ```
//!
//! A proof is a keyed hash of everything that both have said, with a label for the side. So a proof of one side is none
//! of the other, and a recorded one is worth nothing on another link.

use thiserror::Error;

use crate::error::{FrameError, NONCE, PROOF, Refusal};
use crate::frame::Frame;
use crate::identity::{Identity, Purpose, is_name};

/// The versions of the protocol that this software speaks, from the first to the last.
const VERSIONS: (u16, u16) = (11, 11);

/// Keyed hashes with the secret of the cluster.
pub trait Proofs {
    /// Returns the keyed hash of a text.
    fn prove(&self, text: &[u8]) -> [u8; PROOF];

    /// Whether this is the keyed hash of a text. Takes as long for a wrong proof as for a right one.
    fn is_proof(&self, text: &[u8], proof: &[u8; PROOF]) -> bool;
}

/// Why there is no link.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum HandshakeError {
    /// The other broker refuses.
    #[error("the other broker refuses: {0}")]
    Refused(Refusal),
    /// This broker refuses the other one.
    #[error("this broker refuses the other one: {0}")]
    Refuses(Refusal),
    /// What the other side sends is not the handshake of a broker.
    #[error("what answers is no broker of this version: {0}")]
    Frame(#[from] FrameError),
}

/// A link that is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The other broker.
    pub peer: Identity,
    /// What the link is for.
    pub purpose: Purpose,
}

/// What follows a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// These bytes are to be sent, and the next frame is to come.
    Send(Vec<u8>),
    /// These bytes are to be sent, and the link is open.
    Open(Vec<u8>, Outcome),
    /// These bytes are to be sent, and the link is to be closed.
    Refuse(Vec<u8>, HandshakeError),
}

/// The handshake of the broker that opens the link.
pub struct Dialing {
    me: Identity,
    purpose: Purpose,
    nonce: [u8; NONCE],
    peer: Option<Identity>,
}

impl Dialing {
    /// Begins. Returns the handshake and the bytes to send.
    pub fn begin(me: Identity, purpose: Purpose, nonce: [u8; NONCE]) -> (Self, Vec<u8>) {
        let mut hello = Vec::new();
        Frame::Hello { versions: VERSIONS, purpose, identity: me.clone(), nonce }
            .encode(&mut hello);
        (Self { me, purpose, nonce, peer: None }, hello)
    }

    /// Handles a frame.
    ///
    /// # Errors
    /// There will be no link.
    pub fn on_frame(
        &mut self,
        frame: Frame<'_>,
        proofs: &dyn Proofs,
    ) -> Result<Reply, HandshakeError> {
        match frame {
            Frame::Refused(refusal) => Err(HandshakeError::Refused(refusal)),
            Frame::Welcome { version, identity, nonce, proof } if self.peer.is_none() => {
                let refuses = |refusal| Ok(refuse(refusal));
                if !(VERSIONS.0..=VERSIONS.1).contains(&version) {
                    return refuses(Refusal::Version(versions()));
                }
                if identity.cluster != self.me.cluster {
                    return refuses(Refusal::OtherCluster(self.me.cluster.clone()));
                }
                if identity.placement != self.me.placement {
                    return refuses(Refusal::OtherPlacement);
                }
                let said = |side| {
                    let dialer = (&self.me, &self.nonce);
                    said(side, (VERSIONS, version), self.purpose, dialer, (&identity, &nonce))
                };
                if !proofs.is_proof(&said(ACCEPTOR), &proof) {
                    return refuses(Refusal::Secret);
                }
                if !is_name(&identity.name) {
                    return refuses(Refusal::Name);
                }
                let mut bytes = Vec::new();
                Frame::Proof(proofs.prove(&said(DIALER))).encode(&mut bytes);
                self.peer = Some(identity);
                Ok(Reply::Send(bytes))
            }
            Frame::Ready => match self.peer.take() {
                Some(peer) => Ok(Reply::Open(Vec::new(), Outcome { peer, purpose: self.purpose })),
                None => Err(FrameError::Unexpected.into()),
            },
            _ => Err(FrameError::Unexpected.into()),
        }
    }
}

/// The handshake of the broker that a link leads to.
pub struct Accepting {
    me: Identity,
    nonce: [u8; NONCE],
    heard: Option<Said>,
}

/// What was heard, until the proof of it comes.
struct Said {
    outcome: Outcome,
    expected: Vec<u8>,
}

impl Accepting {
    /// Begins with a random number. The other broker speaks first.
    pub fn new(me: Identity, nonce: [u8; NONCE]) -> Self {
        Self { me, nonce, heard: None }
    }

    /// Handles a frame. `admit` says whether a broker that has proved who it is may have a link.
    ///
    /// # Errors
    /// What comes is no handshake. Nothing is to be sent.
    pub fn on_frame(
        &mut self,
        frame: Frame<'_>,
        proofs: &dyn Proofs,
        admit: impl FnOnce(&Outcome) -> Result<(), Refusal>,
    ) -> Result<Reply, HandshakeError> {
        match frame {
            Frame::Hello { versions: (from, to), purpose, identity, nonce }
                if self.heard.is_none() =>
            {
                let version = to.min(VERSIONS.1);
                if version < from.max(VERSIONS.0) {
                    return Ok(refuse(Refusal::Version(versions())));
                }
                if identity.cluster != self.me.cluster {
                    return Ok(refuse(Refusal::OtherCluster(self.me.cluster.clone())));
                }
                let said = |side| {
                    said(
                        side,
                        ((from, to), version),
                        purpose,
                        (&identity, &nonce),
                        (&self.me, &self.nonce),
                    )
                };
                let (proof, expected) = (proofs.prove(&said(ACCEPTOR)), said(DIALER));
                self.heard = Some(Said { outcome: Outcome { peer: identity, purpose }, expected });
                let mut bytes = Vec::new();
                Frame::Welcome { version, identity: self.me.clone(), nonce: self.nonce, proof }
                    .encode(&mut bytes);
                Ok(Reply::Send(bytes))
            }
            Frame::Proof(proof) => {
                let Some(Said { outcome, expected }) = self.heard.take() else {
                    return Err(FrameError::Unexpected.into());
                };
                if !proofs.is_proof(&expected, &proof) {
                    return Ok(refuse(Refusal::Secret));
                }
                let (name, incarnation) = (&outcome.peer.name, outcome.peer.incarnation);
                let is_me = *name == self.me.name;
                if is_me && incarnation == self.me.incarnation {
                    return Ok(refuse(Refusal::Itself));
                }
                if is_me {
                    return Ok(refuse(Refusal::NameTaken));
                }
                if !is_name(name) {
                    return Ok(refuse(Refusal::Name));
                }
                if outcome.peer.placement != self.me.placement {
                    return Ok(refuse(Refusal::OtherPlacement));
                }
                if let Err(refusal) = admit(&outcome) {
                    return Ok(refuse(refusal));
                }
                let mut bytes = Vec::new();
                Frame::Ready.encode(&mut bytes);
                Ok(Reply::Open(bytes, outcome))
            }
            // The other broker has found that the secrets differ, or that it does not want this cluster.
            Frame::Refused(refusal) => Err(HandshakeError::Refused(refusal)),
            _ => Err(FrameError::Unexpected.into()),
        }
    }
}

const DIALER: &[u8] = b"dialer";
const ACCEPTOR: &[u8] = b"acceptor";

/// Everything that both have said, with the side that proves it.
fn said(
    side: &[u8],
    (offered, version): ((u16, u16), u16),
    purpose: Purpose,
    (dialer, dialer_nonce): (&Identity, &[u8; NONCE]),
    (acceptor, acceptor_nonce): (&Identity, &[u8; NONCE]),
) -> Vec<u8> {
    let mut text = b"barid link ".to_vec();
    text.extend_from_slice(side);
    let hello = |versions, identity: &Identity, nonce: &[u8; NONCE]| Frame::Hello {
        versions,
        purpose,
        identity: identity.clone(),
        nonce: *nonce,
    };
    hello(offered, dialer, dialer_nonce).encode(&mut text);
    hello((version, version), acceptor, acceptor_nonce).encode(&mut text);
    text
}

fn refuse(refusal: Refusal) -> Reply {
    let mut bytes = Vec::new();
    Frame::Refused(refusal.clone()).encode(&mut bytes);
    Reply::Refuse(bytes, HandshakeError::Refuses(refusal))
}

fn versions() -> String {
    match VERSIONS {
        (from, to) if from == to => from.to_string(),
        (from, to) => format!("{from} to {to}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::decode;

    /// Not a keyed hash that anybody should use.
    struct Toy(u8);

    impl Proofs for Toy {
        fn prove(&self, text: &[u8]) -> [u8; PROOF] {
            let mut proof = [self.0; PROOF];
            for (at, byte) in text.iter().enumerate() {
                let place = &mut proof[at % PROOF];
                *place = place.wrapping_mul(31).wrapping_add(*byte);
            }
            proof
        }

        fn is_proof(&self, text: &[u8], proof: &[u8; PROOF]) -> bool {
            self.prove(text) == *proof
        }
    }

    fn identity(cluster: &str, name: &str) -> Identity {
        Identity {
            cluster: cluster.into(),
            name: name.into(),
            incarnation: 1,
            address: "127.0.0.1:1".into(),
            software: "0".into(),
            placement: 0,
            reference: String::new(),
        }
    }

    /// Has two brokers shake hands. Returns the outcome of each.
    fn shake(
        dialer: (Identity, u8),
        acceptor: (Identity, u8),
        admitted: &Result<(), Refusal>,
    ) -> (Result<Outcome, HandshakeError>, Result<Outcome, HandshakeError>) {
        let (mut dialing, mut bytes) = Dialing::begin(dialer.0, Purpose::Control, [1; NONCE]);
        let mut accepting = Accepting::new(acceptor.0, [2; NONCE]);
        let mut accepted = None;
        loop {
            let (frame, _) = decode(&bytes, 10_000).unwrap().unwrap();
            let answer = match accepting.on_frame(frame, &Toy(acceptor.1), |_| admitted.clone()) {
                Ok(Reply::Send(answer)) => answer,
                Ok(Reply::Open(answer, outcome)) => {
                    accepted = Some(Ok(outcome));
                    answer
                }
                Ok(Reply::Refuse(answer, error)) => {
                    accepted = Some(Err(error));
                    answer
                }
                Err(error) => return (Err(error.clone()), Err(error)),
            };
            let (frame, _) = decode(&answer, 10_000).unwrap().unwrap();
            bytes = match dialing.on_frame(frame, &Toy(dialer.1)) {
                Ok(Reply::Send(bytes)) => bytes,
                Ok(Reply::Open(_, outcome)) => return (Ok(outcome), accepted.unwrap()),
                Ok(Reply::Refuse(_, error)) => {
                    return (Err(error), accepted.unwrap_or(Err(FrameError::CutOff.into())));
                }
                Err(error) => {
                    return (Err(error), accepted.unwrap_or(Err(FrameError::CutOff.into())));
                }
            };
        }
    }

    #[test]
    fn who_knows_the_secret_is_let_in() {
        let (dialed, accepted) =
            shake((identity("c", "one"), 7), (identity("c", "two"), 7), &Ok(()));
        assert_eq!(dialed.unwrap().peer.name, "two");
        assert_eq!(accepted.unwrap().peer.name, "one");
    }

    #[test]
    fn whoever_does_not_fit_is_refused_with_the_reason() {
        use HandshakeError::{Refused, Refuses};
        let one = || (identity("c", "one"), 7);
        let refused =
            |other: (Identity, u8), admitted| shake(one(), other, &admitted).0.unwrap_err();
        assert_eq!(refused((identity("c", "two"), 8), Ok(())), Refuses(Refusal::Secret));
        assert_eq!(
            refused((identity("d", "two"), 7), Ok(())),
            Refused(Refusal::OtherCluster("d".into()))
        );
        assert_eq!(refused(one(), Ok(())), Refused(Refusal::Itself));
        let elsewhere = (Identity { placement: 1, ..identity("c", "two") }, 7);
        assert_eq!(refused(elsewhere, Ok(())), Refuses(Refusal::OtherPlacement));
        let namesake = (Identity { incarnation: 2, ..one().0 }, 7);
        assert_eq!(refused(namesake, Ok(())), Refused(Refusal::NameTaken));
        assert_eq!(refused((identity("c", "two"), 7), Err(Refusal::Down)), Refused(Refusal::Down));
    }

    #[test]
    fn whoever_opens_a_link_without_the_secret_is_refused() {
        let mut accepting = Accepting::new(identity("c", "two"), [2; NONCE]);
        let hello = Frame::Hello {
            versions: VERSIONS,
            purpose: Purpose::Control,
            identity: identity("c", "one"),
            nonce: [3; NONCE],
        };
        let admit = |_: &Outcome| panic!("it has proved nothing");
        let welcome = accepting.on_frame(hello, &Toy(7), admit).unwrap();
        let Reply::Send(welcome) = welcome else { panic!("{welcome:?}") };
        let (Frame::Welcome { proof, .. }, _) = decode(&welcome, 1_000).unwrap().unwrap() else {
            panic!("it is no Welcome")
        };
        // The proof of the other side is none.
        let reply = accepting.on_frame(Frame::Proof(proof), &Toy(7), admit).unwrap();
        assert!(matches!(reply, Reply::Refuse(_, HandshakeError::Refuses(Refusal::Secret))));
        // And there is no second try on this link.
        assert!(accepting.on_frame(Frame::Proof([0; PROOF]), &Toy(7), admit).is_err());
    }

    #[test]
    fn a_link_begins_with_its_handshake() {
        let mut accepting = Accepting::new(identity("c", "two"), [2; NONCE]);
        let admit = |_: &Outcome| Ok(());
        assert!(accepting.on_frame(Frame::Done(1), &Toy(7), admit).is_err());
        assert!(accepting.on_frame(Frame::Proof([0; PROOF]), &Toy(7), admit).is_err());
        let (mut dialing, _) = Dialing::begin(identity("c", "one"), Purpose::Control, [1; NONCE]);
        assert!(dialing.on_frame(Frame::Ready, &Toy(7)).is_err());
    }
}
