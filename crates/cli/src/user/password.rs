//! Where the password of a user comes from.

use std::fs;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use barid_auth::password::{self, Cost};
use clap::Args;

use crate::passwd::{RANDOM_MIN, ask};

/// The source of a password, and the cost of its hash.
#[derive(Args)]
pub struct PasswordArgs {
    /// Read the password from the first line of a file; - is standard input
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Make a random password, and print it; implies --cost device
    #[arg(long, conflicts_with = "password_file")]
    random: bool,
    /// Take a hash, as `barid passwd` prints it, instead of a password
    #[arg(long, value_name = "HASH", conflicts_with_all = ["password_file", "random", "cost", "scram"])]
    password_hash: Option<String>,
    /// Kind of password: chosen by a person, or the random secret of a device [default: person]
    #[arg(long, value_name = "KIND")]
    cost: Option<Kind>,
    /// Store a verifier for SCRAM-SHA-256 instead of an argon2id hash: clients may log in with SCRAM or a password
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

/// The hash of a password, and the password if it was made here.
pub struct Made {
    pub hash: String,
    pub secret: Option<String>,
}

impl PasswordArgs {
    /// Whether an option for the password is given.
    pub fn are_given(&self) -> bool {
        self.password_file.is_some() || self.random || self.password_hash.is_some()
    }

    /// Whether only the cost or the kind of the hash is given, and no password.
    pub fn have_only_cost(&self) -> bool {
        (self.cost.is_some() || self.scram) && !self.are_given()
    }

    /// Gets the password from where the options say, and asks for it if they do not. The password is hashed here, so
    /// that it is not sent.
    pub fn hash(&self) -> anyhow::Result<Made> {
        if let Some(hash) = &self.password_hash {
            if let Err(error) = password::check(hash) {
                bail!(
                    "--password-hash: {error}\n  hint: `barid passwd` prints a hash; quote it, because it has $ signs"
                );
            }
            return Ok(Made { hash: hash.clone(), secret: None });
        }
        let secret = self.random.then(password::random_secret);
        let password = match (&secret, &self.password_file) {
            (Some(secret), _) => secret.clone(),
            (None, Some(path)) => first_line(path)?,
            (None, None) if !io::stdin().is_terminal() => bail!(
                "there is no terminal to ask for the password\n  hint: use --password-file or --random"
            ),
            (None, None) => ask()?,
        };
        if password.is_empty() {
            bail!("the password is empty");
        }
        let kind = self.cost.unwrap_or(if self.random { Kind::Device } else { Kind::Person });
        let cost = match kind {
            Kind::Person => Cost::Person,
            Kind::Device => Cost::Device,
        };
        if kind == Kind::Device && password.chars().count() < RANDOM_MIN {
            eprintln!(
                "barid: warning: with --cost device an attacker who has the hash soon guesses a short password; \
                 use --random"
            );
        }
        let hash = if self.scram { password::scram } else { password::hash };
        Ok(Made { hash: hash(&password, cost), secret })
    }
}

fn first_line(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    if path.as_os_str() == "-" {
        io::stdin().read_line(&mut text).context("reading the password from standard input")?;
    } else {
        text = fs::read_to_string(path)
            .with_context(|| format!("reading the password from {}", path.display()))?;
    }
    Ok(text.lines().next().unwrap_or_default().to_owned())
}
