//! Progress bars of measurements.

use indicatif::{ProgressBar, ProgressStyle};

/// Creates a bar in this style. It draws nothing if the output is not a terminal.
pub fn bar(len: u64, template: &str) -> ProgressBar {
    let bar = ProgressBar::new(len);
    // A bar works without its style, too.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
