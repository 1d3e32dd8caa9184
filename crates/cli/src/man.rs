//! `barid man`: the help texts as manual pages.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap_mangen::Man;

use crate::output::print;
use crate::plural::count;

/// Write the manual pages, one for each command
#[derive(clap::Args)]
#[command(after_help = "\
Writes barid.1, barid-pub.1, barid-queue-create.1 and so on. Existing pages are replaced.

Examples:
  barid man /usr/local/share/man/man1
  barid man . && man ./barid-pub.1")]
pub struct Args {
    /// Directory for the pages; created if it does not exist
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub fn run(args: &Args, mut command: clap::Command) -> anyhow::Result<ExitCode> {
    fs::create_dir_all(&args.directory)
        .with_context(|| format!("making {}", args.directory.display()))?;
    command = command.disable_help_subcommand(true);
    // Gives the subcommands their full names, such as `barid-pub`.
    command.build();
    let mut pages = 0_u64;
    write(&command, args, &mut pages)?;
    let pages = count(pages, "page", "pages");
    print(format!("{pages} in {}\n", args.directory.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the page of a command, and those of its subcommands.
fn write(command: &clap::Command, args: &Args, pages: &mut u64) -> anyhow::Result<()> {
    let man = Man::new(command.clone());
    let path = args.directory.join(man.get_filename());
    let page = render(command, &man).context("making a manual page")?;
    fs::write(&path, page).with_context(|| format!("writing {}", path.display()))?;
    *pages += 1;
    command.get_subcommands().try_for_each(|below| write(below, args, pages))
}

fn render(command: &clap::Command, man: &Man) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(notes) = command.get_after_long_help().or(command.get_after_help()) {
        page.extend_from_slice(notes_section(&notes.to_string()).as_bytes());
    }
    if command.get_version().is_some() {
        man.render_version_section(&mut page)?;
    }
    Ok(page)
}

/// Formats the text below the options line by line, so that examples can be copied.
fn notes_section(notes: &str) -> String {
    let mut section = String::from(".SH NOTES\n.nf\n");
    for line in notes.lines() {
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        // A line that begins so would otherwise be a request to the formatter.
        let guard = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
        section += &format!("{guard}{line}\n");
    }
    section + ".fi\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_stay_as_they_are() {
        assert_eq!(
            notes_section("  barid sub -t 'a\\b'\n.x"),
            ".SH NOTES\n.nf\n  barid sub \\-t 'a\\eb'\n\\&.x\n.fi\n"
        );
    }
}
