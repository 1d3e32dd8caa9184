//! Keys and values, asked for over many connections by one thread: a request leaves when an earlier one
//! is answered. The loop is the same whatever the protocol, so that servers of several can be compared.

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

/// What is asked for, and how much of it at once
#[derive(clap::Args, Clone, Debug)]
pub struct Shape {
    /// Clients, each with a connection
    #[arg(short, value_name = "N", default_value_t = 50,
        value_parser = clap::value_parser!(u32).range(1..=50_000))]
    n: u32,
    /// Requests of a client that are on their way at once
    #[arg(long, value_name = "REQUESTS", default_value_t = 10,
        value_parser = clap::value_parser!(u16).range(1..=1_000))]
    in_flight: u16,
    /// Of a hundred requests so many are SETs, the others GETs
    #[arg(long, value_name = "PERCENT", default_value_t = 50,
        value_parser = clap::value_parser!(u32).range(0..=100))]
    sets: u32,
    /// Bytes of a value
    #[arg(long, value_name = "BYTES", default_value_t = 64,
        value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    size: u32,
    /// Keys, of 14 bytes. Each is set once before it is measured
    #[arg(long, value_name = "KEYS", default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    keys: u32,
    /// How long to measure, after one second to warm up: seconds, or 500ms, 5m
    #[arg(short, long, value_name = "TIME", default_value = "10", value_parser = span::parse_some)]
    duration: Duration,
    /// Process id of the server, if it runs on this machine: tells its CPU time and memory
    #[arg(long)]
    pid: Option<u32>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Shape {
    /// How many requests a client has on their way at once.
    pub fn in_flight(&self) -> usize {
        self.in_flight.into()
    }

    /// Bytes of a value.
    pub fn size(&self) -> usize {
        self.size as usize
    }
}

/// The client's half of a protocol, on one connection.
pub trait Dialogue {
    /// Appends what comes first. [`Heard::Ready`] says when it has been answered.
    fn open(&mut self, output: &mut Vec<u8>) -> anyhow::Result<()>;

    /// Appends a request, with whatever tells its answer from those of the other slots. `unix_ms` is the
    /// time.
    fn ask(&mut self, slot: usize, request: Request, unix_ms: u64, output: &mut Vec<u8>);

    /// Takes the whole answers at the front of `input`, and tells each to `heard`. Appends what is to be
    /// said to that. Answers how many bytes it took.
    fn hear(
        &mut self,
        input: &[u8],
        output: &mut Vec<u8>,
        heard: impl FnMut(Heard),
    ) -> anyhow::Result<usize>;
}

/// What a server has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Requests may be made.
    Ready,
    /// The request of a slot is answered.
    Answered {
        /// Which one.
        slot: usize,
        /// Whether it is the answer that was to be expected.
        well: bool,
    },
}
