//! `barid passwd`: hashes a password for `[[users]]`.

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;

use anyhow::{Context as _, bail};

use crate::config::users;
use crate::output::print;

/// Hash a password for the configuration file
#[derive(clap::Args)]
#[command(after_help = "\
Prints the argon2id hash alone, or with NAME a block to paste into the configuration file.

Examples:
  barid passwd acme/sensor-7 >> barid.toml
  openssl rand -base64 18 | tee password.txt | barid passwd --stdin acme/sensor-7")]
pub struct Args {
    /// The user, {tenant}/{client}, or {client} for the tenant `default`
    name: Option<String>,
    /// Read the password from the first line of standard input instead of asking for it
    #[arg(long)]
    stdin: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(name) = &args.name {
        users::check_name(name).map_err(|message| anyhow::anyhow!("{name}: {message}"))?;
    }
    let password = if args.stdin { from_stdin()? } else { ask()? };
    if password.is_empty() {
        bail!("the password is empty");
    }
    let hash = barid_server::auth::hash_password(&password);
    match &args.name {
        Some(name) => print(block(name, &hash))?,
        None => print(format!("{hash}\n"))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn from_stdin() -> anyhow::Result<String> {
    let mut line = String::new();
    io::stdin().read_line(&mut line).context("reading the password from standard input")?;
    Ok(line.trim_end_matches(['\r', '\n']).into())
}

fn ask() -> anyhow::Result<String> {
    if !io::stdin().is_terminal() {
        bail!("there is no terminal to ask at; give the password with --stdin");
    }
    let password = rpassword::prompt_password("Password: ").context("reading the password")?;
    let again = rpassword::prompt_password("The same again: ").context("reading the password")?;
    if password != again {
        bail!("the two passwords differ");
    }
    Ok(password)
}

fn block(name: &str, hash: &str) -> String {
    format!(
        "\n[[users]]\nname = {}\npassword = \"{hash}\"\n\
         # Topic filters; %c is the client identifier, %u the user name.\n\
         publish = [\"#\"]\nsubscribe = [\"#\"]\n",
        toml::Value::from(name)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use barid_server::settings::Settings;

    #[test]
    fn the_block_is_a_user_whatever_the_name() {
        for name in ["acme/sensor-7", "it's", "a \"b\" \\"] {
            let settings: Settings = toml::from_str(&block(name, "$argon2id$x")).unwrap();
            assert_eq!(settings.users[0].name, name);
            assert_eq!(settings.users[0].password, "$argon2id$x");
        }
    }
}
