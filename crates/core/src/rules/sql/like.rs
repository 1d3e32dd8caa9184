//! Patterns of LIKE, and matching them.

mod places;

use places::Places;

/// A pattern: `%` matches any text, `_` any one character.
///
/// A text is read once, from left to right, without backtracking, whatever the pattern. A piece between two `%` is
/// searched for after the end of the last piece: as a substring if it has no `_`. Patterns with `_` in such a piece are
/// matched by [`Places`].
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Pattern {
    Pieces(Pieces),
    Places(Places),
}

/// A pattern as the pieces between its `%`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pieces {
    /// The beginning of the text: each element is a character, or `None` for any character. The whole text, if there is
    /// no `%`.
    first: Box<[Option<char>]>,
    /// The pieces after it, in this order.
    middle: Box<[Box<str>]>,
    /// The end of the text; `None` if there is no `%`.
    last: Option<Box<[Option<char>]>>,
}

/// The pattern ends with the escape character, with nothing to escape.
#[derive(Debug, PartialEq)]
pub(super) struct DanglingEscape;

impl Pattern {
    pub(super) fn new(text: &str, escape: Option<char>) -> Result<Self, DanglingEscape> {
        let mut pieces: Vec<Vec<Option<char>>> = vec![Vec::new()];
        let mut characters = text.chars();
        while let Some(character) = characters.next() {
            let place = match character {
                _ if Some(character) == escape => Some(characters.next().ok_or(DanglingEscape)?),
                '%' => {
                    pieces.push(Vec::new());
                    continue;
                }
                '_' => None,
                _ => Some(character),
            };
            pieces.last_mut().expect("there is one from the beginning").push(place);
        }
        Ok(Pieces::new(&pieces).map_or_else(|| Self::Places(Places::new(&pieces)), Self::Pieces))
    }

    /// Returns whether the whole `text` matches; case-sensitive.
    pub(super) fn matches(&self, text: &str) -> bool {
        match self {
            Self::Pieces(pieces) => pieces.matches(text),
            Self::Places(places) => places.matches(text),
        }
    }

    /// The cost of matching a text of this many bytes, in steps of about ten nanoseconds.
    pub(super) fn cost(&self, bytes: usize) -> usize {
        match self {
            Self::Pieces(pieces) => bytes / 4 + pieces.middle.len(),
            Self::Places(places) => bytes.saturating_mul(places.words() + 8) / 4,
        }
    }

    /// The cost of compiling a pattern of this many bytes, in steps of about ten nanoseconds.
    pub(super) fn cost_of_new(bytes: usize) -> usize {
        bytes * (bytes / 512 + 4)
    }
}

impl Pieces {
    /// Creates a pattern; `None` if a piece in the middle has `_`.
    fn new(pieces: &[Vec<Option<char>>]) -> Option<Self> {
        let (first, rest) = pieces.split_first()?;
        let Some((last, middle)) = rest.split_last() else {
            return Some(Self { first: first[..].into(), middle: Box::default(), last: None });
        };
        let text = |piece: &Vec<Option<char>>| piece.iter().copied().collect::<Option<String>>();
        let middle = middle.iter().filter(|piece| !piece.is_empty()).map(text);
        let middle = middle.map(|text| text.map(Into::into)).collect::<Option<_>>()?;
        Some(Self { first: first[..].into(), middle, last: Some(last[..].into()) })
    }

    fn matches(&self, text: &str) -> bool {
        let mut rest = text.chars();
        if !self.first.iter().all(|place| rest.next().is_some_and(|found| is(*place, found))) {
            return false;
        }
        let Some(last) = &self.last else { return rest.as_str().is_empty() };
        let mut ends = last.iter().rev();
        if !ends.all(|place| rest.next_back().is_some_and(|found| is(*place, found))) {
            return false;
        }
        let mut between = rest.as_str();
        self.middle.iter().all(|piece| {
            let found = between.find(&**piece);
            found.inspect(|at| between = &between[at + piece.len()..]).is_some()
        })
    }
}

fn is(place: Option<char>, found: char) -> bool {
    place.is_none_or(|wanted| wanted == found)
}
