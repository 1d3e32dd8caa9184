//! Standard output, whose reader may close it early.

use std::io::{self, Write as _};

use anyhow::Context as _;

/// Prints a text. A closed reader, such as `head`, is not an error.
pub fn print(text: impl AsRef<[u8]>) -> anyhow::Result<()> {
    print_on(text).map(drop)
}

/// Prints a part of an endless output. Returns `false` if the reader has closed it and further
/// output is useless.
pub fn print_on(text: impl AsRef<[u8]>) -> anyhow::Result<bool> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_ref()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("printing"),
    }
}
