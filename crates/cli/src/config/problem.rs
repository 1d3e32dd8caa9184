//! Problems of a configuration, and their presentation.

use std::fmt::{self, Write as _};
use std::ops::Range;

use serde::Serialize;

/// Place of a setting: the keys and indexes that lead to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place(pub Vec<Step>);

/// One step into a table or an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Into the entry of a table.
    Key(String),
    /// Into the element of an array, from 0.
    Index(usize),
}

impl Place {
    /// Returns the place at the end of `keys`, from the root.
    pub fn of(keys: &[&str]) -> Self {
        Self(keys.iter().map(|key| Step::Key((*key).into())).collect())
    }

    /// Returns the place of the entry `key` in this table.
    pub fn key(&self, key: &str) -> Self {
        self.then(Step::Key(key.into()))
    }

    /// Returns the place of the element `index` in this array.
    pub fn index(&self, index: usize) -> Self {
        self.then(Step::Index(index))
    }

    fn then(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(key) if i == 0 => f.write_str(key)?,
                Step::Key(key) => write!(f, ".{key}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// A well-formed setting whose value makes no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objection {
    /// Place of the setting.
    pub place: Place,
    /// Description of the problem.
    pub message: String,
    /// Advice on how to solve the problem.
    pub hint: Option<String>,
}

/// One problem, with the information that a reader needs to find and correct it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The file, or the flag and the variable that set the value.
    pub origin: String,
    /// Line in the file, from 1.
    pub line: Option<usize>,
    /// Column in the line, in characters from 1.
    pub column: Option<usize>,
    /// Description of the problem.
    pub message: String,
    /// Advice on how to solve the problem.
    pub hint: Option<String>,
    #[serde(skip)]
    excerpt: Option<Excerpt>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Excerpt {
    line: String,
    width: usize,
}

impl Problem {
    /// Creates a problem without a place in a file.
    pub fn elsewhere(origin: impl Into<String>, message: String, hint: Option<String>) -> Self {
        Self { origin: origin.into(), line: None, column: None, message, hint, excerpt: None }
    }

    /// Creates a problem with the bytes `span` of `text`.
    pub fn in_text(
        origin: &str,
        text: &str,
        span: Range<usize>,
        message: String,
        hint: Option<String>,
    ) -> Self {
        let start = text.floor_char_boundary(span.start);
        let line_start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |newline| start + newline);
        let marked_end = text.floor_char_boundary(span.end).clamp(start, line_end);
        let line = text[line_start..line_end].trim_end();
        let width = text[start..marked_end].trim_end().chars().count().max(1);
        let excerpt = match secret_in(line) {
            Some(at) => Excerpt { line: format!("{} …", &line[..at]), width: 1 },
            None => Excerpt { line: line.into(), width },
        };
        Self {
            origin: origin.into(),
            line: Some(text[..start].matches('\n').count() + 1),
            column: Some(text[line_start..start].chars().count() + 1),
            message,
            hint,
            excerpt: Some(excerpt),
        }
    }
}

/// Returns the position in a line at which a password or a key begins, which must not get from the
/// file into a log.
fn secret_in(line: &str) -> Option<usize> {
    line.match_indices('=').map(|(at, _)| at + 1).find(|at| {
        let before = line[..at - 1].trim_end().trim_end_matches(['"', '\'']);
        let word = before.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next();
        matches!(word, Some("password" | "key"))
    })
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin)?;
        if let (Some(line), Some(column)) = (self.line, self.column) {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {}", self.message)?;
        if let (Some(line), Some(column), Some(excerpt)) = (self.line, self.column, &self.excerpt) {
            let gutter = " ".repeat(line.to_string().len());
            // Tabs stay tabs, so that the marks are below the marked text.
            let indent: String = excerpt
                .line
                .chars()
                .take(column - 1)
                .map(|c| if c == '\t' { '\t' } else { ' ' })
                .collect();
            write!(f, "\n{gutter} |\n{line} | {}\n", excerpt.line)?;
            write!(f, "{gutter} | {indent}{}", "^".repeat(excerpt.width))?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\n  hint: {hint}")?;
        }
        Ok(())
    }
}

/// All problems of a configuration; never empty.
#[derive(Debug)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    /// Sorts the problems by their position in the text.
    pub fn sorted(mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| (problem.line, problem.column));
        Self(problems)
    }

    /// Formats all problems in one line, for a log with one line per event.
    pub fn in_one_line(&self) -> String {
        let one = |problem: &Problem| {
            let Problem { origin, line, column, message, hint, .. } = problem;
            let place = line.zip(*column).map(|(line, column)| format!(":{line}:{column}"));
            let hint = hint.as_ref().map(|hint| format!(" ({hint})"));
            let (place, hint) = (place.unwrap_or_default(), hint.unwrap_or_default());
            format!("{origin}{place}: {message}{hint}").replace('\n', " ")
        };
        self.0.iter().map(one).collect::<Vec<_>>().join("; ")
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_char('\n')?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}
