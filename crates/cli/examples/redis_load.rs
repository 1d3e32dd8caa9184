//! Generates the load of `barid bench state` for a server that speaks RESP, such as redis-server: the same
//! loop, keys, values and clocks, without MQTT.

#[path = "../src/bench/bar.rs"]
mod bar;
#[path = "../src/bench/connect.rs"]
mod connect;
#[path = "../src/bench/figures.rs"]
mod figures;
#[expect(dead_code, unused_imports, reason = "requests of MQTT have more that changes")]
#[path = "../src/bench/load/mod.rs"]
mod load;
#[path = "../src/output.rs"]
mod output;
#[path = "../src/bench/process.rs"]
mod process;
#[expect(dead_code, reason = "other commands take other spans of time")]
#[path = "../src/span.rs"]
mod span;
#[expect(dead_code, reason = "here no connection ends before the others")]
#[path = "../src/bench/stream.rs"]
mod stream;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Parser as _;

use mio::{Interest, Registry, Token};

use load::{Dialogue, Heard, KEY, Request, Shape, Template, Templates, Verb};
use stream::Stream;

// Same allocator as in `barid`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measure a server that speaks RESP
#[derive(clap::Parser)]
struct Args {
    #[command(flatten)]
    shape: Shape,
    /// Address of the server
    #[arg(long, default_value = "127.0.0.1")]
    host: IpAddr,
    /// Port of the server
    #[arg(short, long, default_value_t = 6379)]
    port: u16,
}

fn main() -> anyhow::Result<ExitCode> {
    let Args { shape, host, port } = Args::parse();
    let address = SocketAddr::new(host, port);
    let begin = |registry: &Registry, index: usize| {
        let mut socket = connect::begin(address, index)?;
        registry.register(&mut socket, Token(index), Interest::READABLE | Interest::WRITABLE)?;
        Ok(Stream::new(socket))
    };
    let unreachable =
        |error: anyhow::Error| error.context(format!("no server answers on {address}"));
    let report = load::measure(&shape, begin, |_| Client::new(&shape), unreachable)?;
    report.print("redis")
}

struct Client {
    templates: Templates<Template>,
    value_len: usize,
    /// Requests in flight; answers arrive in the order of requests.
    asked: VecDeque<(usize, Verb)>,
}

impl Client {
    fn new(shape: &Shape) -> anyhow::Result<Self> {
        let value = vec![b'.'; shape.size()];
        let set = Template::new(command(&[b"SET", KEY, &value]))?;
        let get = Template::new(command(&[b"GET", KEY]))?;
        Ok(Self {
            templates: Templates { set, get },
            value_len: value.len(),
            asked: VecDeque::new(),
        })
    }
}

impl Dialogue for Client {
    fn open(&mut self, output: &mut Vec<u8>) -> anyhow::Result<()> {
        output.extend_from_slice(&command(&[b"PING"]));
        Ok(())
    }

    fn ask(&mut self, slot: usize, request: Request, _unix_ms: u64, output: &mut Vec<u8>) {
        self.templates.of(request.verb).append(request.key, output);
        self.asked.push_back((slot, request.verb));
    }

    fn hear(
        &mut self,
        input: &[u8],
        _output: &mut Vec<u8>,
        mut heard: impl FnMut(Heard),
    ) -> anyhow::Result<usize> {
        let mut rest = input;
        while let Some((reply, behind)) = Reply::take(rest)? {
            rest = behind;
            if reply == Reply::Simple(b"PONG") {
                heard(Heard::Ready);
                continue;
            }
            let (slot, verb) = self.asked.pop_front().context("an answer to nothing")?;
            let well = match (verb, reply) {
                (Verb::Set, Reply::Simple(b"OK")) => true,
                (Verb::Get, Reply::Bulk(value)) => value.len() == self.value_len,
                _ => false,
            };
            heard(Heard::Answered { slot, well });
        }
        Ok(input.len() - rest.len())
    }
}

/// RESP replies that answer a SET or a GET.
#[derive(PartialEq, Eq)]
enum Reply<'a> {
    Simple(&'a [u8]),
    Error,
    Bulk(&'a [u8]),
    Null,
}

impl<'a> Reply<'a> {
    /// Takes the reply at the front, if it is complete, and returns it with the bytes behind it.
    fn take(input: &'a [u8]) -> anyhow::Result<Option<(Self, &'a [u8])>> {
        let Some(end) = input.iter().position(|byte| *byte == b'\r') else { return Ok(None) };
        let (line, Some(rest)) = (&input[..end], input.get(end + 2..)) else { return Ok(None) };
        Ok(Some(match line {
            [b'+', text @ ..] => (Reply::Simple(text), rest),
            [b'-', ..] => (Reply::Error, rest),
            b"$-1" => (Reply::Null, rest),
            [b'$', digits @ ..] => {
                let len: usize = std::str::from_utf8(digits)?.parse()?;
                match rest.get(..len).zip(rest.get(len + 2..)) {
                    Some((value, behind)) => (Reply::Bulk(value), behind),
                    None => return Ok(None),
                }
            }
            _ => bail!("the server does not speak RESP"),
        }))
    }
}

fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
