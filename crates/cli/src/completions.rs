//! `barid completions`: shell scripts that complete commands and options.

use std::process::ExitCode;

use clap::ValueEnum;
use clap_complete::{Shell, generate};

use crate::output::print;

/// Print a shell script that completes the commands and options of barid
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  barid completions bash > /etc/bash_completion.d/barid
  barid completions zsh  > \"${fpath[1]}/_barid\"
  barid completions fish > ~/.config/fish/completions/barid.fish
  source <(barid completions bash)                         for this shell only")]
pub struct Args {
    /// Shell that the script is for
    shell: Supported,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum Supported {
    Bash,
    Zsh,
    Fish,
}

pub fn run(args: &Args, mut command: clap::Command) -> anyhow::Result<ExitCode> {
    let shell = match args.shell {
        Supported::Bash => Shell::Bash,
        Supported::Zsh => Shell::Zsh,
        Supported::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    generate(shell, &mut command, "barid", &mut script);
    print(script)?;
    Ok(ExitCode::SUCCESS)
}
