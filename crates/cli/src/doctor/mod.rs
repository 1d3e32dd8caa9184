//! `barid doctor`: is everything in a data directory as it was written.

mod references;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use barid_core::durable::records;
use barid_store::{Report, StoreError, verify};
use serde_json::json;

use crate::admin::{Column, Table, bytes};
use crate::output::print;
use crate::{progress, stored};
use references::References;

/// Cannot look: another exit status than having found something.
const CANNOT_LOOK: u8 = 2;

/// Check a data directory
#[derive(clap::Args)]
#[command(after_help = "\
Reads everything, compares all checksums and says what is wrong. It changes nothing that is damaged. The
broker of the directory must not be running.

Exit status: 0 all is well, 1 something is wrong, 2 it cannot be looked at.

Example:
  barid doctor --data-dir /var/lib/barid")]
pub struct Args {
    /// The data directory
    #[arg(long, value_name = "DIR", env = "BARID_TOOLS_DATA_DIR", default_value = "barid-data")]
    data_dir: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let report = match examine(&args.data_dir) {
        Ok(report) => report,
        Err(error) => {
            eprintln!("barid: {error}");
            return Ok(ExitCode::from(CANNOT_LOOK));
        }
    };
    print(if args.json {
        format!("{}\n", as_json(&args.data_dir, &report))
    } else {
        as_text(&args.data_dir, &report)
    })?;
    Ok(if report.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn examine(path: &Path) -> Result<Report, StoreError> {
    let bar = progress::bytes("reading");
    let mut references = References::default();
    let mut check = |shard, keyspace, key: &[u8], value: &[u8]| {
        references.note(shard, keyspace, key, value);
        records::verify(keyspace, key, value).map_err(|error| error.to_string())
    };
    let report =
        verify(path, &stored::options(), &mut check, &mut |_, bytes| bar.set_position(bytes));
    bar.finish_and_clear();
    let mut report = report?;
    report.findings.extend(references.findings());
    Ok(report)
}

fn as_text(path: &Path, report: &Report) -> String {
    let mut table =
        Table::new([Column::Left("KEYSPACE"), Column::Right("RECORDS"), Column::Right("BYTES")]);
    for keyspace in &report.keyspaces {
        table.push([keyspace.name.clone(), keyspace.records.to_string(), bytes(keyspace.bytes)]);
    }
    let mut text = format!("{}: {} shards\n\n{table}\n", path.display(), report.shards);
    if report.findings.is_empty() {
        return text + "All is well.\n";
    }
    for finding in &report.findings {
        text += &format!("- {finding}\n");
    }
    if report.more_findings > 0 {
        text += &format!("… and {} more.\n", report.more_findings);
    }
    text + "\nKeep a copy of the directory, and restore a backup: barid restore --help\n"
}

fn as_json(path: &Path, report: &Report) -> serde_json::Value {
    let keyspaces = report.keyspaces.iter().map(|keyspace| {
        json!({ "name": keyspace.name, "records": keyspace.records, "bytes": keyspace.bytes })
    });
    json!({
        "data_dir": path,
        "ok": report.findings.is_empty(),
        "shards": report.shards,
        "keyspaces": keyspaces.collect::<Vec<_>>(),
        "findings": report.findings,
        "more_findings": report.more_findings,
    })
}
