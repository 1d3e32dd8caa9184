//! Patterns of LIKE.

/// A pattern: `%` stands for any text, `_` for any one character.
///
/// It is matched as a set of places in the pattern that the text read so far may have come to, a
/// bit for each. So matching costs one step for each character of the text and 64 of the pattern,
/// whatever the two are: there is nothing to go back to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pattern {
    /// How many characters a text has at least that matches; the place behind the last of them.
    end: usize,
    /// The characters that the pattern names, sorted.
    characters: Box<[char]>,
    /// For each of them, then for any other one: the places that it leads on from.
    leads_on: Box<[u64]>,
    /// The places where `%` stands, which every character leads back to.
    stays: Box<[u64]>,
}

/// The pattern ends with the escape character, which stands for nothing then.
#[derive(Debug, PartialEq)]
pub(super) struct DanglingEscape;

impl Pattern {
    pub(super) fn new(text: &str, escape: Option<char>) -> Result<Self, DanglingEscape> {
        let mut places: Vec<Option<char>> = Vec::new();
        let mut many = vec![false];
        let mut characters = text.chars();
        while let Some(character) = characters.next() {
            let place = match character {
                _ if Some(character) == escape => Some(characters.next().ok_or(DanglingEscape)?),
                '%' => {
                    many[places.len()] = true;
                    continue;
                }
                '_' => None,
                _ => Some(character),
            };
            places.push(place);
            many.push(false);
        }
        Ok(Self::of(&places, &many))
    }

    /// `places`: a character, or none for any; `many`: whether `%` stands before each, or behind.
    fn of(places: &[Option<char>], many: &[bool]) -> Self {
        let mut characters: Vec<char> = places.iter().flatten().copied().collect();
        characters.sort_unstable();
        characters.dedup();
        let words = many.len().div_ceil(64);
        let mut leads_on = vec![0; words * (characters.len() + 1)];
        for (place, wanted) in places.iter().enumerate() {
            let leading = match wanted {
                Some(wanted) => {
                    let found = characters.binary_search(wanted);
                    let index = found.expect("every character of the pattern was collected");
                    index..index + 1
                }
                None => 0..characters.len() + 1,
            };
            for index in leading {
                set(&mut leads_on[index * words..], place);
            }
        }
        let mut stays = vec![0; words];
        for (place, _) in many.iter().enumerate().filter(|(_, many)| **many) {
            set(&mut stays, place);
        }
        Self {
            end: places.len(),
            characters: characters.into(),
            leads_on: leads_on.into(),
            stays: stays.into(),
        }
    }

    /// Whether all of `text` matches. Case counts.
    pub(super) fn matches(&self, text: &str) -> bool {
        let words = self.stays.len();
        let mut places: smallvec::SmallVec<[u64; 4]> = smallvec::smallvec![0; words];
        places[0] = 1;
        let rest_is_any = is_set(&self.stays, self.end);
        for character in text.chars() {
            if rest_is_any && is_set(&places, self.end) {
                return true;
            }
            let found = self.characters.binary_search(&character);
            let index = found.unwrap_or(self.characters.len());
            let leads_on = &self.leads_on[index * words..][..words];
            let mut carry = 0;
            let mut anywhere = 0;
            for word in 0..words {
                let led_on = places[word] & leads_on[word];
                places[word] = led_on << 1 | carry | places[word] & self.stays[word];
                carry = led_on >> 63;
                anywhere |= places[word];
            }
            if anywhere == 0 {
                return false;
            }
        }
        is_set(&places, self.end)
    }
}

fn set(places: &mut [u64], place: usize) {
    places[place / 64] |= 1 << (place % 64);
}

fn is_set(places: &[u64], place: usize) -> bool {
    places[place / 64] & 1 << (place % 64) != 0
}
