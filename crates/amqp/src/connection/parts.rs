/// Bytes that lie in several slices, taken from the front.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    parts: &'a [&'a [u8]],
    /// Number of bytes already taken from the first part.
    at: usize,
    left: usize,
}

impl<'a> Parts<'a> {
    pub(super) fn new(parts: &'a [&'a [u8]]) -> Self {
        Self { parts, at: 0, left: parts.iter().map(|part| part.len()).sum() }
    }

    pub(super) fn len(&self) -> usize {
        self.left
    }

    /// Appends up to `count` bytes to `out`.
    pub(super) fn take(&mut self, mut count: usize, out: &mut Vec<u8>) {
        while let Some((part, rest)) = self.parts.split_first() {
            let part = &part[self.at..];
            if part.len() > count {
                out.extend_from_slice(&part[..count]);
                self.at += count;
                self.left -= count;
                return;
            }
            out.extend_from_slice(part);
            count -= part.len();
            self.left -= part.len();
            (self.parts, self.at) = (rest, 0);
        }
    }
}
