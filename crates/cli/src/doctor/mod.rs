//! `barid doctor`: checks that a data directory is as it was written, and salvages a damaged one.

mod describe;
mod quarantine;
mod references;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use barid_core::durable::keys::NAMES;
use barid_core::durable::records;
use barid_store::{Report, StoreError, verify};
use serde_json::json;

use crate::admin::{Column, Table, bytes, printable};
use crate::entity::{Confirmation, confirm};
use crate::output::print;
use crate::plural::count;
use crate::{progress, stored};
use describe::describe;
use quarantine::{Quarantined, quarantine};
use references::References;

/// Maximum number of lost records that are printed; after --quarantine `lost.txt` lists all of them.
const LISTED_MAX: usize = 100;

/// Exit status if the directory cannot be examined, as opposed to 1 for findings.
const CANNOT_LOOK: u8 = 2;

/// Check a data directory
#[derive(clap::Args)]
#[command(after_help = "\
Reads all data, verifies all checksums, and reports what is damaged and what is lost with it. The broker of
the directory must not be running.

Without --quarantine no record is changed. (The remains of a crash after the last commit are cut off, as at
every start of the broker.) With --quarantine the damaged parts are removed, so that the broker can start
with the rest: damaged files are first copied into DIR/quarantine/TIME; records that cannot be read, or that
belong to lost records, are written to records.jsonl there; and lost.txt lists what was lost. The storage
engine `lsm` has no quarantine.

Exit status: 0 no damage is left, also after --quarantine; 1 there is damage; 2 the directory cannot be
examined.

Examples:
  barid doctor --data-dir /var/lib/barid
  barid doctor --data-dir /var/lib/barid --quarantine")]
pub struct Args {
    /// Data directory
    #[arg(long, value_name = "DIR", env = "BARID_TOOLS_DATA_DIR", default_value = "barid-data")]
    data_dir: PathBuf,
    /// Remove damaged files and records, and keep copies in the directory `quarantine` of the data
    /// directory
    #[arg(long)]
    quarantine: bool,
    #[command(flatten)]
    confirmation: Confirmation,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    stored::make_private();
    let report = match examine(&args.data_dir) {
        Ok(report) => report,
        Err(error) => {
            eprintln!("barid: {error}");
            return Ok(ExitCode::from(CANNOT_LOOK));
        }
    };
    if args.quarantine && !report.findings.is_empty() {
        return take_out(args, &report);
    }
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

/// Quarantines the damaged files and records, and reports them.
fn take_out(args: &Args, before: &Report) -> anyhow::Result<ExitCode> {
    let path = &args.data_dir;
    if !args.json {
        print(as_text(path, before))?;
    }
    let what = format!(
        "remove the damaged files and records from {}, and continue without them",
        path.display()
    );
    confirm(&args.confirmation, &what)?;
    let Quarantined { directory, files, lost, records } = quarantine(path, &before.losses)?;
    let after = examine(path)?;
    let is_well = after.findings.is_empty();
    print(if args.json {
        let mut object = as_json(path, &after);
        object["quarantine"] = json!({
            "directory": directory, "files": files, "lost": lost, "records": records,
        });
        format!("{object}\n")
    } else {
        let mut text = String::from("\n");
        for line in lost.iter().take(LISTED_MAX) {
            text += &format!("- {}\n", printable(line));
        }
        if lost.len() > LISTED_MAX {
            text += &format!("… and {} more, in lost.txt.\n", lost.len() - LISTED_MAX);
        }
        text += &format!(
            "{} and {} moved to quarantine: {}\n",
            count(files.len() as u64, "file", "files"),
            count(records, "record", "records"),
            directory.display()
        );
        text + if is_well {
            "The rest is intact: start the broker.\n"
        } else {
            "There is still damage: restore a backup. `barid doctor` lists the damage.\n"
        }
    })?;
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn as_text(path: &Path, report: &Report) -> String {
    let mut table =
        Table::new([Column::Left("KEYSPACE"), Column::Right("RECORDS"), Column::Right("BYTES")]);
    for keyspace in &report.keyspaces {
        table.push([keyspace.name.clone(), keyspace.records.to_string(), bytes(keyspace.bytes)]);
    }
    let shards = count(report.shards as u64, "shard", "shards");
    let mut text = format!("{}: {shards}\n\n", path.display());
    match report.shards - report.shards_read {
        0 => text += &format!("{table}\n"),
        unread if unread == report.shards => {}
        unread => {
            let unread = count(unread as u64, "damaged shard", "damaged shards");
            text += &format!("{table}\nThe contents of {unread} were not read.\n\n");
        }
    }
    if report.findings.is_empty() {
        return text + "All is well.\n";
    }
    for finding in &report.findings {
        text += &format!("- {finding}\n");
    }
    if report.more_findings > 0 {
        text += &format!("… and {} more.\n", report.more_findings);
    }
    let lost = lost(report);
    if !lost.is_empty() {
        text += "\nLost with it:\n";
    }
    for line in lost.iter().take(LISTED_MAX) {
        text += &format!("- {}\n", printable(line));
    }
    if lost.len() > LISTED_MAX {
        text += &format!("… and {} more.\n", lost.len() - LISTED_MAX);
    }
    text + &advice(path, report)
}

/// Describes the lost records.
fn lost(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    for loss in &report.losses {
        let is_sure = if loss.is_all { "" } else { "perhaps " };
        let known = loss.records.iter().filter(|lost| usize::from(lost.keyspace.0) < NAMES.len());
        lines.extend(known.map(|lost| match lost.value_len {
            Some(_) => format!("{is_sure}{}", describe(lost.keyspace, &lost.key)),
            None => {
                format!("{is_sure}the removal of {}", describe(lost.keyspace, &lost.key))
            }
        }));
        if !loss.is_all {
            lines.push("perhaps more: the damaged records cannot all be identified".into());
        }
    }
    lines.dedup();
    lines
}

fn advice(path: &Path, report: &Report) -> String {
    let path = path.display();
    let mut text = format!(
        "\nWhat to do:\n\
         - Check the hardware first: a failing disk or failing memory changes data.\n\
         - Keep a copy: cp -a {path} {path}.damaged\n\
         - If there is a backup, restore it to a new directory, and start the broker with that:\n    \
           barid restore BACKUP --data-dir {path}.restored\n  \
           Changes after the backup are lost.\n"
    );
    if report.can_be_salvaged {
        text += &format!(
            "- Or continue with the rest, without the records listed above:\n    \
               barid doctor --data-dir {path} --quarantine\n"
        );
    }
    text
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
        "lost": lost(report),
        "can_be_quarantined": report.can_be_salvaged && !report.findings.is_empty(),
        "more_findings": report.more_findings,
    })
}
