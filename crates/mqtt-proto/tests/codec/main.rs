//! Properties of the codec that hold for all packets of all versions, and for arbitrary bytes.

mod differential;
mod hostile;
mod round_trip;
mod strategies;
