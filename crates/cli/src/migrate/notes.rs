//! What a migration cannot carry over, or carries over with another meaning.

use std::fmt::{self, Display};
use std::rc::Rc;

/// A line of a file.
#[derive(Clone, Debug)]
pub struct Place {
    pub file: Rc<str>,
    pub line: usize,
}

impl Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Notes for the person who migrates, in the order of the files. They never contain passwords or hashes.
#[derive(Debug, Default)]
pub struct Notes(Vec<String>);

impl Notes {
    /// Adds a note about a line.
    pub fn at(&mut self, place: &Place, what: impl Display, reason: impl Display) {
        self.add(format!("{place}: {what}: {reason}"));
    }

    /// Adds a note about the whole.
    pub fn add(&mut self, text: impl Into<String>) {
        // A control character would end the comment in which the note is written.
        let text = text.into().replace(|c: char| c.is_control(), "\u{fffd}");
        if !self.0.contains(&text) {
            self.0.push(text);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}
