//! Runs random histories until one breaks a promise.
//!
//! ```text
//! barid-sim [--messages | --state-store | --entities | --cluster] [--histories N] [--seed N]
//!           [--trace] [--break RULE]
//! ```

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use barid_sim::rules::Rules;
use barid_sim::{Kind, Outcome};

const USAGE: &str = "\
usage: barid-sim [--messages | --state-store | --entities | --cluster] [--histories N] [--seed N] [--trace]
                 [--break RULE]

  --messages     histories of messages; without it, too
  --state-store  histories of the state store
  --entities     histories of entities with message sessions
  --cluster      histories of several brokers
  --histories N  how many; without it 1000, or with --trace 1
  --seed N       the seed of the first one (0); the others have those after it
  --trace        print each history line by line
  --break RULE   by a broker that breaks this rule; the names are those of `rules::Rule` and `Kept`";

/// Number of lines, from the end of a history, that are printed when the history breaks a promise.
const LINES: usize = 80;

/// Seed of the current history, which the panic hook prints.
static SEED: AtomicU64 = AtomicU64::new(0);

struct Wanted {
    kind: Kind,
    histories: u64,
    seed: u64,
    trace: bool,
    rules: Rules,
}

/// Totals of all histories.
#[derive(Default)]
struct Total {
    histories: u64,
    steps: u64,
    crashes: u64,
    messages: u64,
    deliveries: u64,
    /// The digests of all histories, combined in order.
    digest: u64,
}

fn main() -> ExitCode {
    let Some(wanted) = wanted(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        eprintln!("in the history of seed {}", SEED.load(Ordering::Relaxed));
    }));
    let begin = Instant::now();
    let mut total = Total::default();
    for seed in (wanted.seed..).take(usize::try_from(wanted.histories).unwrap_or(usize::MAX)) {
        SEED.store(seed, Ordering::Relaxed);
        let outcome = (wanted.kind.run)(seed, wanted.rules, wanted.trace);
        if wanted.trace {
            outcome.lines.iter().for_each(|line| println!("{line}"));
        }
        if let Some(violation) = &outcome.violation {
            if !wanted.trace {
                let lines = (wanted.kind.run)(seed, wanted.rules, true).lines;
                let last = lines.len().saturating_sub(LINES);
                lines[last..].iter().for_each(|line| println!("{line}"));
            }
            println!("seed {seed}: {violation}");
            let flag = wanted.kind.flag;
            println!("all of it: cargo run --release -p barid-sim -- {flag} --seed {seed} --trace");
            return ExitCode::FAILURE;
        }
        total.add(&outcome);
        if total.histories.is_multiple_of(500) && std::io::stderr().is_terminal() {
            eprint!("\r{} of {} histories", total.histories, wanted.histories);
            let _ = std::io::stderr().flush();
        }
    }
    total.print(begin);
    ExitCode::SUCCESS
}

fn wanted(mut arguments: impl Iterator<Item = String>) -> Option<Wanted> {
    let (trace, rules) = (false, Rules::default());
    let mut wanted = Wanted { kind: Kind::MESSAGES, histories: 0, seed: 0, trace, rules };
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--histories" => wanted.histories = arguments.next()?.parse().ok()?,
            "--seed" => wanted.seed = arguments.next()?.parse().ok()?,
            "--trace" => wanted.trace = true,
            "--break" => {
                let name = arguments.next()?;
                let mut rules = Kind::ALL.iter().flat_map(|kind| kind.rules);
                let rule = rules.find(|rule| rule.name() == name)?;
                wanted.rules = Rules::all_but(*rule);
            }
            flag => wanted.kind = Kind::ALL.into_iter().find(|kind| kind.flag == flag)?,
        }
    }
    if wanted.histories == 0 {
        wanted.histories = if wanted.trace { 1 } else { 1000 };
    }
    Some(wanted)
}

impl Total {
    fn add(&mut self, outcome: &Outcome) {
        self.histories += 1;
        self.steps += u64::from(outcome.steps);
        self.crashes += u64::from(outcome.crashes);
        self.messages += u64::from(outcome.messages);
        self.deliveries += outcome.deliveries;
        self.digest = self.digest.rotate_left(1) ^ outcome.digest;
    }

    fn print(&self, begin: Instant) {
        let seconds = begin.elapsed().as_secs_f64();
        let Self { histories, steps, crashes, messages, deliveries, digest } = self;
        let rate = *steps as f64 / seconds;
        println!(
            "\r{histories} histories in {seconds:.1} s, no promise broken\n\
             {crashes} crashes, {messages} messages or requests, {deliveries} delivered or answered\n\
             {steps} steps, {rate:.0} in a second; digest {digest:016x}"
        );
    }
}
