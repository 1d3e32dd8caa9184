//! What is wrong with a configuration, and how it is told.

use std::fmt::{self, Write as _};
use std::ops::Range;

use serde::Serialize;

/// Where in the settings something is: the keys and indexes that lead there.
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
    /// The place behind `keys`, from the top.
    pub fn of(keys: &[&str]) -> Self {
        Self(keys.iter().map(|key| Step::Key((*key).into())).collect())
    }

    /// The entry `key` of this table.
    pub fn key(&self, key: &str) -> Self {
        self.then(Step::Key(key.into()))
    }

    /// The element `index` of this array.
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

/// Settings that are well-formed and make no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objection {
    /// The setting that is wrong.
    pub place: Place,
    /// What is wrong with it.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

/// One thing that is wrong, with what a reader needs to find and mend it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The file, or the flag and the variable that set the value.
    pub origin: String,
    /// Line in the file, from 1.
    pub line: Option<usize>,
    /// Column in the line, in characters from 1.
    pub column: Option<usize>,
    /// What is wrong.
    pub message: String,
    /// What to do.
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
    /// A problem with no place in a file.
    pub fn elsewhere(origin: impl Into<String>, message: String, hint: Option<String>) -> Self {
        Self { origin: origin.into(), line: None, column: None, message, hint, excerpt: None }
    }

    /// A problem with the bytes `span` of `text`.
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

/// Where a password or a key begins in a line: it must not get from the file into a log.
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
            // Tabs stay tabs, so that the marks stand below what they mark.
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

/// Everything that is wrong with a configuration; never empty.
#[derive(Debug)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    /// The problems in the order of the text.
    pub fn sorted(mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| (problem.line, problem.column));
        Self(problems)
    }

    /// All of them in one line, for a log that has one line for each event.
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
