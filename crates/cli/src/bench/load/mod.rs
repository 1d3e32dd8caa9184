//! Load of key-value requests over many connections, driven by one thread: a request is sent when an
//! earlier one is answered. The loop does not depend on the protocol, so that servers of different
//! protocols can be compared.

mod driver;
mod mix;
mod report;
mod template;

use std::time::Duration;

use crate::span;
pub use driver::measure;
pub use mix::{Request, Verb};
pub use report::Report;
pub use template::{KEY, Template, Templates, put_decimal};

/// Requests to make, and how many of them at once
#[derive(clap::Args, Clone, Debug)]
pub struct Shape {
    /// Clients, each with a connection
    #[arg(short, value_name = "N", default_value_t = 50,
        value_parser = clap::value_parser!(u32).range(1..=50_000))]
    n: u32,
    /// Requests of each client in flight at once
    #[arg(long, value_name = "REQUESTS", default_value_t = 10,
        value_parser = clap::value_parser!(u16).range(1..=1_000))]
    in_flight: u16,
    /// Percentage of requests that are SETs; the others are GETs
    #[arg(long, value_name = "PERCENT", default_value_t = 50,
        value_parser = clap::value_parser!(u32).range(0..=100))]
    sets: u32,
    /// Value size in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 64,
        value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    size: u32,
    /// Number of keys, of 14 bytes each. Every key is set once before the measurement
    #[arg(long, value_name = "KEYS", default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    keys: u32,
    /// How long to measure, after one second to warm up: seconds, or 500ms, 5m
    #[arg(short, long, value_name = "TIME", default_value = "10", value_parser = span::parse_some)]
    duration: Duration,
    /// Process id of a server on this machine, to report its CPU time and memory; several, separated by
    /// commas, count together
    #[arg(long, value_delimiter = ',')]
    pid: Vec<u32>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Shape {
    /// Returns the number of requests that a client has in flight at once.
    pub fn in_flight(&self) -> usize {
        self.in_flight.into()
    }

    /// Returns the size of a value in bytes.
    pub fn size(&self) -> usize {
        self.size as usize
    }
}

/// Client side of a protocol, on one connection.
pub trait Dialogue {
    /// Appends the bytes that open the dialogue. [`Heard::Ready`] follows when the server has answered.
    fn open(&mut self, output: &mut Vec<u8>) -> anyhow::Result<()>;

    /// Appends a request, marked so that its answer can be told from those of the other slots. `unix_ms`
    /// is the current time.
    fn ask(&mut self, slot: usize, request: Request, unix_ms: u64, output: &mut Vec<u8>);

    /// Takes the whole answers at the front of `input`, and passes each to `heard`. Appends whatever
    /// must be sent in return. Returns the number of bytes taken.
    fn hear(
        &mut self,
        input: &[u8],
        output: &mut Vec<u8>,
        heard: impl FnMut(Heard),
    ) -> anyhow::Result<usize>;
}

/// Something received from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Requests may be made.
    Ready,
    /// The request of a slot is answered.
    Answered {
        /// Number of the slot.
        slot: usize,
        /// Whether the answer is the expected one.
        well: bool,
    },
}
