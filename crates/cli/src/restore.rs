//! `barid restore`: creates a data directory from a backup.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use barid_store::{StoreError, backup::import};
use serde_json::json;

use crate::admin::bytes;
use crate::output::print;
use crate::plural::count;
use crate::{backup, progress, stored};

/// Create a data directory from a backup
#[derive(clap::Args)]
#[command(after_help = "\
The data directory must be empty or not exist: nothing is ever overwritten. Start a broker with it
afterwards; clients find their sessions as they were at the time of the backup.

Examples:
  barid restore /var/backups/barid --data-dir /var/lib/barid
  barid restore barid-20261121T120000Z.backup --data-dir ./restored")]
pub struct Args {
    /// A backup, or a directory of backups, of which the newest is used
    #[arg(value_name = "BACKUP_OR_DIR")]
    from: PathBuf,
    /// Data directory to create
    #[arg(long, value_name = "DIR", env = "BARID_TOOLS_DATA_DIR")]
    data_dir: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    stored::make_private();
    let from = backup::newest(&args.from)?;
    let reading = || format!("reading {}", from.display());
    let file = File::open(&from).with_context(reading)?;
    let bar = progress::bytes_of("restoring", file.metadata().with_context(reading)?.len());
    let mut input = bar.wrap_read(BufReader::with_capacity(1 << 20, file));
    let imported = import(&mut input, &args.data_dir, &stored::options(), &mut |_, _| {});
    bar.finish_and_clear();
    let totals = imported.map_err(|error| refused(args, &error))?;
    print(if args.json {
        let (records, bytes) = (totals.records, totals.bytes);
        let data_dir = &args.data_dir;
        let restored = json!({
            "backup": from, "data_dir": data_dir, "records": records, "bytes": bytes,
        });
        format!("{restored}\n")
    } else {
        format!(
            "{}, {}, from {}\nnow: barid serve --data-dir {}\n",
            count(totals.records, "record", "records"),
            bytes(totals.bytes),
            from.display(),
            args.data_dir.display()
        )
    })?;
    Ok(ExitCode::SUCCESS)
}

fn refused(args: &Args, error: &StoreError) -> anyhow::Error {
    match error {
        // The directory belongs to something else, or nothing was written.
        StoreError::Unusable(_) => anyhow!("{error}"),
        _ if !args.data_dir.exists() => anyhow!("{error}"),
        _ => anyhow!(
            "{error}\n  hint: {} is incomplete; remove it before trying again",
            args.data_dir.display()
        ),
    }
}
