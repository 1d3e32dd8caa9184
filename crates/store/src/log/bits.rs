//! A set of small numbers, one bit for each.

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    pub fn insert(&mut self, number: u32) {
        let (word, bit) = (number as usize / 64, number % 64);
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << bit;
    }

    pub fn contains(&self, number: u32) -> bool {
        let word = self.0.get(number as usize / 64).copied().unwrap_or(0);
        word >> (number % 64) & 1 == 1
    }

    /// Appends the number of words in 4 bytes, and the words.
    pub fn encode(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&(self.0.len() as u32).to_le_bytes());
        self.0.iter().for_each(|word| into.extend_from_slice(&word.to_le_bytes()));
    }

    /// Makes a set of the encoded words, without their number.
    pub fn from_bytes(bytes: &[u8]) -> Bits {
        let words = bytes.chunks_exact(8);
        Bits(words.map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes"))).collect())
    }
}
