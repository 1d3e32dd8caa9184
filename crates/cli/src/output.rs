//! Standard output, of which nobody may want to see the end.

use std::io::{self, Write as _};

use anyhow::Context as _;

/// Prints a text. That the reader has gone, as `head` does, is no error.
pub fn print(text: impl AsRef<str>) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_ref().as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error).context("printing"),
        _ => Ok(()),
    }
}
