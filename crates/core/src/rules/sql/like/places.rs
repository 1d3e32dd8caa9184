//! Patterns that have any one character in their middle.

/// A pattern as the set of places in it that the text read so far may have come to, a bit for each. So matching
/// costs one step for each character of the text and 64 of the pattern, whatever the two are.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::rules::sql) struct Places {
    /// How many characters a text has at least that matches; the place behind the last of them.
    end: usize,
    /// The characters that the pattern names, sorted.
    characters: Box<[char]>,
    /// For each of them, then for any other one: the places that it leads on from.
    leads_on: Box<[u64]>,
    /// The places where `%` stands, which every character leads back to.
    stays: Box<[u64]>,
}

impl Places {
    /// `pieces`: what stands between the `%`, each a character or none for any.
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

    /// 64 places are a word.
    pub(super) fn words(&self) -> usize {
        self.stays.len()
    }

    /// Whether all of `text` matches. Case counts.
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
