//! Tables for a terminal.

use std::borrow::Cow;
use std::fmt;

/// Maximum width of a cell in characters; longer cells are cut.
const CELL_MAX: usize = 60;

/// A column: its title, and the side to which its cells are aligned.
#[derive(Clone, Copy, Debug)]
pub enum Column {
    Left(&'static str),
    /// As `Left`, and left out if it is empty in every row.
    Optional(&'static str),
    Right(&'static str),
}

/// A table with a title row and aligned columns.
#[derive(Debug)]
pub struct Table<const N: usize> {
    columns: [Column; N],
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    pub fn new(columns: [Column; N]) -> Self {
        Self { columns, rows: Vec::new() }
    }

    pub fn push(&mut self, row: [String; N]) {
        self.rows.push(row.map(|cell| cut(&cell)));
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl Column {
    fn title(self) -> &'static str {
        match self {
            Self::Left(title) | Self::Optional(title) | Self::Right(title) => title,
        }
    }
}

impl<const N: usize> fmt::Display for Table<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let titles = self.columns.map(|column| column.title().to_owned());
        let lines = || std::iter::once(&titles).chain(&self.rows);
        let widths: [usize; N] = std::array::from_fn(|column| {
            lines().map(|line| line[column].chars().count()).max().unwrap_or(0)
        });
        let is_shown: [bool; N] = std::array::from_fn(|column| {
            !matches!(self.columns[column], Column::Optional(_))
                || self.rows.iter().any(|row| !row[column].is_empty())
        });
        for line in lines() {
            let mut text = String::new();
            let cells = line.iter().zip(self.columns).zip(widths).zip(is_shown);
            for ((cell, column), width) in cells.filter_map(|(cell, shown)| shown.then_some(cell)) {
                match column {
                    Column::Left(_) | Column::Optional(_) => text += &format!("{cell:<width$}  "),
                    Column::Right(_) => text += &format!("{cell:>width$}  "),
                }
            }
            writeln!(f, "{}", text.trim_end())?;
        }
        Ok(())
    }
}

/// Makes a client's text safe for a terminal: control characters are escaped.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(char::is_control) {
        return text.into();
    }
    let show = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.into() };
    text.chars().map(show).collect::<String>().into()
}

fn cut(text: &str) -> String {
    let text = printable(text);
    if text.chars().count() <= CELL_MAX {
        return text.into_owned();
    }
    text.chars().take(CELL_MAX - 1).chain(['…']).collect()
}

/// Formats a number of bytes: `512 B`, `1.5 KiB`.
pub fn bytes(count: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|(_, shift)| count >> shift > 0) {
        Some((unit, shift)) => format!("{:.1} {unit}", count as f64 / f64::from(1 << shift)),
        None => format!("{count} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_nothing_steers_the_terminal() {
        let columns = [Column::Left("CLIENT"), Column::Optional("EMPTY"), Column::Right("N")];
        let mut table = Table::new(columns);
        table.push(["ä\u{1b}[2J".into(), String::new(), "10".into()]);
        table.push(["b".repeat(100), String::new(), "7".into()]);
        let text = table.to_string();
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[1].starts_with(r"ä\u{1b}[2J "), "{text}");
        assert_eq!(lines.iter().map(|line| line.chars().count()).collect::<Vec<_>>(), [64; 3]);
        assert!(lines[2].ends_with("b…   7"));
    }

    #[test]
    fn bytes_have_units() {
        assert_eq!([0, 1_023, 1_024, 5 << 29].map(bytes), ["0 B", "1023 B", "1.0 KiB", "2.5 GiB"]);
    }
}
