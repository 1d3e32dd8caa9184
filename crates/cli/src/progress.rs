//! Progress bars of long operations.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Shows the bytes processed, of an unknown total. Draws nothing if the output is not a terminal.
pub fn bytes(what: &'static str) -> ProgressBar {
    show(ProgressBar::no_length(), what, "{spinner} {msg}  {bytes}  {bytes_per_sec}")
}

/// Shows the bytes processed, of `len`. Draws nothing if the output is not a terminal.
pub fn bytes_of(what: &'static str, len: u64) -> ProgressBar {
    show(ProgressBar::new(len), what, "{msg}  {wide_bar} {bytes}/{total_bytes}  {bytes_per_sec}")
}

fn show(bar: ProgressBar, what: &'static str, template: &str) -> ProgressBar {
    bar.set_style(ProgressStyle::with_template(template).expect("the template is well-formed"));
    bar.set_message(what);
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}
