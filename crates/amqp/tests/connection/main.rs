//! Tests in which a peer talks to a connection, frame by frame.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]
#![expect(clippy::needless_pass_by_value, reason = "frames are made to be said")]

mod handshake;
mod hostile;
mod links;
mod peer;
mod receiving;
mod sending;
mod sessions;
mod settling;
