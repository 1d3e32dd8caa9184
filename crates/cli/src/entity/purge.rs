//! Purging: removing all messages of a part.

use std::process::ExitCode;

use serde::Deserialize;

use super::peek::PartArgs;
use super::{Confirmation, Entity, Named, With, confirm};
use crate::output::print;
use crate::plural::count;

/// Part to purge.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    part: PartArgs,
    #[command(flatten)]
    confirmation: Confirmation,
}

#[derive(Deserialize)]
struct Purged {
    removed: u64,
}

pub fn run<N: Named + clap::Args>(
    With { named, args }: &With<N, Args>,
) -> anyhow::Result<ExitCode> {
    let (admin, entity) = named.connect();
    let Entity { name, path, .. } = &entity;
    let (part, of) = (args.part.name(), args.part.words());
    // A missing entity is reported before the user is asked.
    admin.get(path)?;
    confirm(&args.confirmation, &format!("remove all messages{of} of {name}"))?;
    let answer = admin.clear(&format!("{path}/messages?part={part}"))?;
    print(if named.wants_json() {
        format!("{answer}\n")
    } else {
        let Purged { removed } = admin.read(answer)?;
        format!("removed {}{of} of {name}\n", count(removed, "message", "messages"))
    })?;
    Ok(ExitCode::SUCCESS)
}
