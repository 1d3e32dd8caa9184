//! Resubmitting: dead letters wait for receivers again.

use std::process::ExitCode;

use serde::Deserialize;
use serde_json::json;

use super::{Confirmation, Entity, Named, With, confirm};
use crate::output::print;
use crate::plural::count;

/// Dead letters to resubmit.
#[derive(clap::Args)]
#[command(after_help = "\
A dead letter becomes the last message of the queue, with a new sequence number, a delivery count of 0 and its
time to live from now. Duplicate detection does not apply to it. Dead letters that arrive meanwhile stay.

Without --number all are resubmitted, after a question. `peek --dead-letter` shows them with their reasons.")]
pub struct Args {
    /// Sequence number of one dead letter; may be given several times
    #[arg(long, value_name = "NUMBER")]
    number: Vec<u64>,
    /// Resubmit messages that could not be forwarded
    #[arg(long)]
    transfer_dead_letter: bool,
    #[command(flatten)]
    confirmation: Confirmation,
}

#[derive(Deserialize)]
struct Resubmitted {
    resubmitted: u64,
    skipped: u64,
    problem: Option<String>,
}

pub fn run<N: Named + clap::Args>(
    With { named, args }: &With<N, Args>,
) -> anyhow::Result<ExitCode> {
    let (admin, entity) = named.connect();
    let Entity { name, path, .. } = &entity;
    let part = if args.transfer_dead_letter { "transfer-dead-letter" } else { "dead-letter" };
    let chosen = (!args.number.is_empty()).then_some(&args.number);
    if chosen.is_none() {
        // A missing entity is reported before the user is asked.
        admin.get(path)?;
        confirm(&args.confirmation, &format!("resubmit all dead letters of {name}"))?;
    }
    let path = format!("{path}/messages/resubmit?part={part}");
    let answer = admin.post(&path, &json!({ "sequence_numbers": chosen }))?;
    let Resubmitted { resubmitted, skipped, problem } = admin.read(answer.clone())?;
    print(if named.wants_json() {
        format!("{answer}\n")
    } else {
        format!("resubmitted {} of {name}\n", count(resubmitted, "dead letter", "dead letters"))
    })?;
    if let Some(problem) = problem.filter(|_| !named.wants_json()) {
        eprintln!("{} not resubmitted: {problem}", count(skipped, "was", "were"));
    }
    Ok(if skipped == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
