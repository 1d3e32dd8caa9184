//! Creating, showing, changing and deleting an entity.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use serde_json::Value;

use super::show::{described, properties};
use super::{Confirmation, Described, Given, Named, confirm};
use crate::admin::{Admin, Present};
use crate::output::print;
use crate::plural::count;

/// An entity, and the arguments of an operation on it.
#[derive(Args)]
pub struct With<N: Args, A: Args> {
    #[command(flatten)]
    pub named: N,
    #[command(flatten)]
    pub args: A,
}

/// An entity, and whether to ask for confirmation.
pub type Confirmed<N> = With<N, Confirmation>;

/// Creates the entity, and prints it followed by `more`.
pub fn make<N: Named + Args, A: Given + Args>(
    With { named, args }: &With<N, A>,
    more: impl FnOnce(&Described) -> String,
) -> anyhow::Result<ExitCode> {
    let (admin, entity) = named.connect();
    let answer = match admin.create(&entity.path, &args.given().into()) {
        Err(error) if error.is::<Present>() => {
            bail!("{} exists already\n  hint: `{}` changes it", entity.name, entity.update)
        }
        made => made?,
    };
    told(&admin, named, answer, |described| {
        let properties = properties(&described.properties);
        format!("created {}\n{properties}{}", entity.name, more(described))
    })
}

/// Shows the entity under `title`, followed by `more`.
pub fn show<N: Named>(
    named: &N,
    title: &str,
    more: impl FnOnce(&Described) -> String,
) -> anyhow::Result<ExitCode> {
    let (admin, entity) = named.connect();
    let answer = admin.get(&entity.path)?;
    told(&admin, named, answer, |one| described(title, one) + &more(one))
}

/// Changes the given properties.
pub fn update<N: Named + Args, A: Given + Args>(
    With { named, args }: &With<N, A>,
) -> anyhow::Result<ExitCode> {
    let given = args.given();
    if given.is_empty() {
        bail!("nothing to change: name a property; --help lists them");
    }
    let (admin, entity) = named.connect();
    let answer = admin.change(&entity.path, &given.into())?;
    told(&admin, named, answer, |described| {
        format!("changed {}\n{}", entity.name, properties(&described.properties))
    })
}

/// Deletes the entity after confirmation.
pub fn delete<N: Named + Args>(With { named, args }: &Confirmed<N>) -> anyhow::Result<ExitCode> {
    let (admin, entity) = named.connect();
    let before = admin.get(&entity.path)?;
    let described: Described = admin.read(before.clone())?;
    let what = match &described.counts {
        Some(counts) => {
            format!("{} with its {}", entity.name, count(counts.messages(), "message", "messages"))
        }
        None => {
            let subscriptions = described.subscriptions.len() as u64;
            let subscriptions = count(subscriptions, "subscription", "subscriptions");
            format!("{} with its {subscriptions} and all messages", entity.name)
        }
    };
    confirm(args, &format!("delete {what}"))?;
    admin.delete(&entity.path)?;
    told(&admin, named, before, |_| format!("deleted {what}\n"))
}

/// Prints the broker's answer as JSON, or `text` of it.
fn told<N: Named>(
    admin: &Admin,
    named: &N,
    answer: Value,
    text: impl FnOnce(&Described) -> String,
) -> anyhow::Result<ExitCode> {
    print(if named.wants_json() { format!("{answer}\n") } else { text(&admin.read(answer)?) })?;
    Ok(ExitCode::SUCCESS)
}
