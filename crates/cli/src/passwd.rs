//! `barid passwd`: hashes a password for `[[users]]`.

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use barid_auth::password::{self, Cost};
use barid_engine::names::check_user_name;

use crate::output::print;

/// Hash a password for the configuration file
#[derive(clap::Args)]
#[command(after_help = "\
Prints the hash alone, or with NAME a block to paste into the configuration file.

The hash determines the cost of verifying a login. --cost person, the default, is for passwords that
people choose: a core verifies about 50 logins a second. --cost device is for random secrets of 128
bits or more, which nobody can guess: a core verifies about 10,000 logins a second, so that a fleet can
reconnect at once. An attacker who has such a hash can try passwords just as fast: never use --cost
device for a password that a person has chosen.

With --cost device and without --stdin, a random secret of 144 bits is made. It is printed once, on
standard error, and is stored nowhere: write it to the device.

--scram writes a verifier for SCRAM-SHA-256 in place of an argon2id hash, with 600,000 iterations
(--cost person) or 4,096 (--cost device). Clients log in with the password, as with the other hashes.

Examples:
  barid passwd acme/ada >> barid.toml
  barid passwd --cost device acme/sensor-7 >> barid.toml
  barid passwd --cost device acme/sensor-7 2> secret.txt >> barid.toml
  openssl rand -base64 18 | tee password.txt | barid passwd --stdin --cost device acme/sensor-7
  barid passwd --scram acme/ada >> barid.toml")]
pub struct Args {
    /// User name, {tenant}/{client}, or {client} for the tenant `default`
    name: Option<String>,
    /// Read the password from the first line of standard input instead of asking for it
    #[arg(long)]
    stdin: bool,
    /// Kind of password: chosen by a person, or the random secret of a device
    #[arg(long, value_name = "KIND", default_value = "person")]
    cost: Kind,
    /// Write a SCRAM-SHA-256 verifier instead of an argon2id hash
    #[arg(long)]
    scram: bool,
}

/// Kind of password, which determines the cost of verifying a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// A password that a person has chosen
    Person,
    /// A random secret of 128 bits or more
    Device,
}

/// Minimum length of a Base64 text with 128 bits, in characters.
pub const RANDOM_MIN: usize = 22;

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(name) = &args.name {
        check_user_name(name).map_err(|message| anyhow::anyhow!("{name}: {message}"))?;
    }
    let password = match args.cost {
        _ if args.stdin => from_stdin()?,
        Kind::Device => made(args.name.as_deref()),
        Kind::Person => ask()?,
    };
    if password.is_empty() {
        bail!("the password is empty");
    }
    if args.cost == Kind::Device && password.chars().count() < RANDOM_MIN {
        eprintln!(
            "barid: warning: with --cost device an attacker who has the hash soon guesses a short password; \
             without --stdin, barid makes a random one, and `openssl rand -base64 18` makes one, too"
        );
    }
    let cost = match args.cost {
        Kind::Person => Cost::Person,
        Kind::Device => Cost::Device,
    };
    let hash = match args.scram {
        false => password::hash(&password, cost),
        true => password::scram(&password, cost),
    };
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

/// Makes a random secret and shows it. On standard error, because standard output goes to the configuration file.
fn made(name: Option<&str>) -> String {
    let secret = password::random_secret();
    let of = name.map(|name| format!(" of {name}")).unwrap_or_default();
    eprintln!("The secret{of}, which is shown only now:\n{secret}");
    secret
}

/// Asks for a password at the terminal, twice.
pub fn ask() -> anyhow::Result<String> {
    if !io::stdin().is_terminal() {
        bail!(
            "there is no terminal to ask for the password; use --stdin, or --cost device for a random one"
        );
    }
    let password = rpassword::prompt_password("Password: ").context("reading the password")?;
    let again =
        rpassword::prompt_password("Repeat the password: ").context("reading the password")?;
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
