//! Standard output, of which nobody may want to see the end.

use std::io::{self, Write as _};

use anyhow::Context as _;

/// Prints a text. That the reader has gone, as `head` does, is no error.
pub fn print(text: impl AsRef<[u8]>) -> anyhow::Result<()> {
    print_on(text).map(drop)
}

/// Prints a part of what may go on for ever; `false`: the reader has gone, and there is no use in
/// going on.
pub fn print_on(text: impl AsRef<[u8]>) -> anyhow::Result<bool> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_ref()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("printing"),
    }
}
