//! Confirmation before something is deleted.

use std::io::{self, IsTerminal as _, Write as _};

use anyhow::{Context as _, bail};
use clap::Args;

/// Whether to ask for confirmation.
#[derive(Args)]
pub struct Confirmation {
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

/// Asks whether to do what cannot be undone; returns an error if the user declines.
pub fn confirm(confirmation: &Confirmation, what: &str) -> anyhow::Result<()> {
    if confirmation.yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        bail!("nothing done: there is no terminal to confirm at; use --yes to {what}");
    }
    eprint!("{what}? [y/N] ");
    io::stderr().flush().context("asking")?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).context("reading the answer")?;
    if !matches!(answer.trim(), "y" | "Y" | "yes") {
        bail!("nothing done");
    }
    Ok(())
}
