//! `barid backup`: writes all durable data of a running broker to a file.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use barid_store::backup::{Totals, check};
use barid_store::private;
use serde_json::json;

use crate::admin::{AdminArgs, bytes};
use crate::output::print;
use crate::plural::count;
use crate::progress;
use crate::timestamp::Timestamp;

/// Beginning and end of a backup's file name. The time stands between them, so that names sort by
/// it.
const PREFIX: &str = "barid-";
const SUFFIX: &str = ".backup";

/// Back up a running broker
#[derive(clap::Args)]
#[command(after_help = "\
Writes DIR/barid-20261121T120000Z.backup, named after the current time in UTC. It holds all durable data,
such as sessions, the messages that wait for them, and retained messages, as of the moment when the backup
started. The broker keeps serving. The file gets this name once it is complete and on disk. Only its owner
can read it (mode 600).

Examples:
  barid backup /var/backups/barid
  barid backup . --admin 127.0.0.1:9081 --json")]
pub struct Args {
    /// Directory for the backup; created if it does not exist
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    #[command(flatten)]
    admin: AdminArgs,
    /// Print the file name and the size as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let file = args.directory.join(format!("{PREFIX}{}{SUFFIX}", Timestamp::now().compact()));
    if file.exists() {
        bail!("{} exists already: try again in a second", file.display());
    }
    let mut stream = args.admin.connect().stream("/v1/backup")?;
    private::create_dir_all(&args.directory)
        .with_context(|| format!("making {}", args.directory.display()))?;
    let mut partial = Partial::create(&file)?;
    let bar = progress::bytes("backing up");
    let size =
        io::copy(&mut stream, &mut bar.wrap_write(&mut partial.file)).with_context(|| {
            format!(
                "the backup broke off after {}; the broker's log may say why",
                bytes(bar.position())
            )
        })?;
    bar.finish_and_clear();
    let totals = partial.check(size)?;
    partial.finish(&file)?;
    print(if args.json {
        format!("{}\n", json!({ "file": file, "bytes": size, "records": totals.records }))
    } else {
        let records = count(totals.records, "record", "records");
        format!("{}  {records}, {}\n", file.display(), bytes(size))
    })?;
    Ok(ExitCode::SUCCESS)
}

/// A file under a temporary name, which is removed unless the file is finished.
struct Partial {
    path: PathBuf,
    file: File,
}

impl Partial {
    fn create(finished: &Path) -> anyhow::Result<Self> {
        let path = finished.with_extension("partial");
        let file = private::options()
            .write(true)
            .create_new(true)
            .open(&path)
            .with_context(|| format!("writing {}", path.display()))?;
        Ok(Self { path, file })
    }

    /// Reads the whole file again: a backup that cannot be read is useless.
    fn check(&self, size: u64) -> anyhow::Result<Totals> {
        let reading = || format!("reading {}", self.path.display());
        let file = File::open(&self.path).with_context(reading)?;
        let bar = progress::bytes_of("checking", size);
        let mut input = bar.wrap_read(BufReader::with_capacity(1 << 20, file));
        let totals = check(&mut input, &mut |_, _| {}).with_context(reading);
        bar.finish_and_clear();
        totals
    }

    /// Gives the file its final name, after all of it is on disk.
    fn finish(self, name: &Path) -> anyhow::Result<()> {
        self.file.sync_all().with_context(|| format!("writing {}", self.path.display()))?;
        fs::rename(&self.path, name).with_context(|| format!("renaming to {}", name.display()))?;
        let directory = name.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        File::open(directory)
            .and_then(|directory| directory.sync_all())
            .with_context(|| format!("writing {}", directory.display()))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // A finished file no longer has this name.
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns `path` itself if it is a file, or the newest backup in the directory `path`.
pub fn newest(path: &Path) -> anyhow::Result<PathBuf> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let mut newest = None;
    for entry in fs::read_dir(path).with_context(|| format!("reading {}", path.display()))? {
        let name = entry.with_context(|| format!("reading {}", path.display()))?.file_name();
        let text = name.to_string_lossy();
        if text.starts_with(PREFIX) && text.ends_with(SUFFIX) {
            newest = newest.max(Some(name));
        }
    }
    let newest = newest
        .with_context(|| format!("there is no backup ({PREFIX}…{SUFFIX}) in {}", path.display()))?;
    Ok(path.join(newest))
}
