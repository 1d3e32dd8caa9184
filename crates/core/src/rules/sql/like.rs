//! Patterns of LIKE.

mod places;

use places::Places;

/// A pattern: `%` stands for any text, `_` for any one character.
///
/// A text is read once, from left to right, whatever the pattern: there is nothing to go back to. What stands
/// between two `%` is looked for where the last piece ended, as a substring if it has no `_`; a pattern with `_`
/// there is matched by [`Places`].
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Pattern {
    Pieces(Pieces),
    Places(Places),
}

/// What stands between the `%` of a pattern.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pieces {
    /// What the text begins with: a character, or none for any one. All of it, if there is no `%`.
    first: Box<[Option<char>]>,
    /// What comes behind it, in this order.
    middle: Box<[Box<str>]>,
    /// What the text ends with; `None`: there is no `%`.
    last: Option<Box<[Option<char>]>>,
}

/// The pattern ends with the escape character, which stands for nothing then.
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

    /// Whether all of `text` matches. Case counts.
    pub(super) fn matches(&self, text: &str) -> bool {
        match self {
            Self::Pieces(pieces) => pieces.matches(text),
            Self::Places(places) => places.matches(text),
        }
    }

    /// What matching a text of so many bytes costs, in steps of about ten nanoseconds.
    pub(super) fn cost(&self, bytes: usize) -> usize {
        match self {
            Self::Pieces(pieces) => bytes / 4 + pieces.middle.len(),
            Self::Places(places) => bytes.saturating_mul(places.words() + 8) / 4,
        }
    }

    /// What making a pattern of so many bytes costs, in steps of about ten nanoseconds.
    pub(super) fn cost_of_new(bytes: usize) -> usize {
        bytes * (bytes / 512 + 4)
    }
}

impl Pieces {
    /// `None`: a piece in the middle has `_`.
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
