//! How far a measurement is.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar of this look. Silent if nobody looks.
pub fn bar(len: u64, template: &str) -> ProgressBar {
    let bar = ProgressBar::new(len);
    // Without its style a bar is still a bar.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
