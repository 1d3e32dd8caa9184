//! Patterns with `_` between two `%`.

/// A pattern as a nondeterministic automaton: a set of bits, one for each place in the pattern that the text read so
/// far may have reached. Matching costs one step for each character of the text and each 64 places of the pattern,
/// whatever the two are.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::rules::sql) struct Places {
    /// The final place, after the last character of the pattern: the minimum number of characters in a matching text.
    end: usize,
    /// The characters in the pattern, sorted.
    characters: Box<[char]>,
    /// For each of these characters, and then for any other character: the places from which it leads to the next
    /// place.
    leads_on: Box<[u64]>,
    /// The places of `%`, where every character leads back to the same place.
    stays: Box<[u64]>,
}

impl Places {
    /// Creates a pattern from the pieces between its `%`. Each element of a piece is a character, or `None` for any
    /// character.
    pub(super) fn new(pieces: &[Vec<Option<char>>]) -> Self {
        let places: Vec<Option<char>> = pieces.iter().flatten().copied().collect();
        let mut characters: Vec<char> = places.iter().flatten().copied().collect();
        characters.sort_unstable();
        characters.dedup();
        let words = places.len() / 64 + 1;
        let mut any = vec![0; words];
        let mut leads_on = vec![0; words * (characters.len() + 1)];
        for (place, wanted) in places.iter().enumerate() {
            match wanted {
                Some(wanted) => {
                    let found = characters.binary_search(wanted);
                    let index = found.expect("every character of the pattern was collected");
                    set(&mut leads_on[index * words..], place);
                }
                None => set(&mut any, place),
            }
        }
        for of_one in leads_on.chunks_mut(words) {
            of_one.iter_mut().zip(&any).for_each(|(word, any)| *word |= any);
        }
        let mut stays = vec![0; words];
        let mut place = 0;
        for piece in &pieces[..pieces.len() - 1] {
            place += piece.len();
            set(&mut stays, place);
        }
        Self {
            end: places.len(),
            characters: characters.into(),
            leads_on: leads_on.into(),
            stays: stays.into(),
        }
    }

    /// Number of words of the bit sets: a word has 64 places.
    pub(super) fn words(&self) -> usize {
        self.stays.len()
    }

    /// Returns whether the whole `text` matches; case-sensitive.
    pub(super) fn matches(&self, text: &str) -> bool {
        let words = self.words();
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
