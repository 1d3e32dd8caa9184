//! Patterns that keys match.

/// A pattern of keys: `*` stands for any bytes, `?` for one byte, `[…]` for one byte of a class,
/// everything else for itself.
///
/// * `[abc0-9]` is one of the bytes named, `[!abc]` or `[^abc]` one of the others. A `]` that
///   comes first and a `-` that comes first or last stand for themselves. A range that ends before
///   it begins is empty, and a class that is not closed is not one: its `[` stands for itself.
/// * `\` takes the meaning of the byte behind it, also in a class. At the end it stands for itself.
///
/// Bytes, not characters: keys need not be text, so `?` is not enough for an `é` in UTF-8.
///
/// Whoever matches a pattern that somebody else has sent looks at [`steps_max`](Self::steps_max).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    tokens: Vec<Token>,
    classes: Vec<Class>,
    literal_prefix: Vec<u8>,
    /// Of the pieces that `*` parts the pattern into, behind the first one.
    longest_piece: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Byte(u8),
    AnyByte,
    /// One byte of the class at this index.
    Class(u32),
    /// Any number of bytes, also none. No two of them in a row.
    AnyBytes,
}

/// A set of bytes, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Class([u64; 4]);

impl Glob {
    /// Every pattern has a meaning.
    pub fn parse(pattern: &[u8]) -> Self {
        Parser::new(pattern).run(None).expect("only a substitution fails")
    }

    /// Like [`parse`](Self::parse), but `{name}` stands for what `substitute` gives for the name,
    /// byte by byte: a client identifier `*` matches itself alone. `None` if it gives nothing for
    /// one, or if a brace is not closed. `\{` stands for a brace, and so does one in a class.
    pub fn parse_with(
        pattern: &[u8],
        substitute: impl Fn(&str) -> Option<Vec<u8>>,
    ) -> Option<Self> {
        Parser::new(pattern).run(Some(&substitute))
    }

    /// Whether it stands for all of `key`.
    pub fn matches(&self, key: &[u8]) -> bool {
        let (mut token, mut byte) = (0, 0);
        // Behind the last `*`: where it is in the pattern, and where in the key to go on if what
        // follows it does not match here. An earlier one needs no second look, as whatever a later
        // one could match it can match as well.
        let mut retry = None;
        loop {
            match self.tokens.get(token) {
                None if byte == key.len() => return true,
                Some(Token::AnyBytes) => {
                    token += 1;
                    if token == self.tokens.len() {
                        return true;
                    }
                    retry = Some((token, byte));
                    continue;
                }
                Some(&wanted) if key.get(byte).is_some_and(|byte| self.covers(wanted, *byte)) => {
                    token += 1;
                    byte += 1;
                    continue;
                }
                _ => {}
            }
            match &mut retry {
                Some((behind, start)) if *start < key.len() => {
                    *start += 1;
                    (token, byte) = (*behind, *start);
                }
                _ => return false,
            }
        }
    }

    /// What every key that matches begins with.
    pub fn literal_prefix(&self) -> &[u8] {
        &self.literal_prefix
    }

    /// How many bytes are compared at most to match a key of this length.
    ///
    /// Each piece between two `*` is looked for from one place in the key after the other; in the
    /// worst case, as in `*aaab` and a key of many `a`, it is compared to its end at each of them.
    pub fn steps_max(&self, key_len: usize) -> usize {
        key_len.saturating_mul(self.longest_piece.max(1)).saturating_add(self.tokens.len())
    }

    fn covers(&self, token: Token, byte: u8) -> bool {
        match token {
            Token::Byte(wanted) => wanted == byte,
            Token::AnyByte | Token::AnyBytes => true,
            Token::Class(class) => self.classes[class as usize].contains(byte),
        }
    }
}

impl Class {
    fn insert(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    fn contains(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] & 1 << (byte & 63) != 0
    }

    fn complement(self) -> Self {
        Self(self.0.map(|bits| !bits))
    }
}

type Substitute<'a> = &'a dyn Fn(&str) -> Option<Vec<u8>>;

struct Parser<'a> {
    rest: &'a [u8],
    tokens: Vec<Token>,
    classes: Vec<Class>,
    /// No `]` closes a class any more. Known once one was not closed, so that many of them are not
    /// each read to the end.
    unclosed: bool,
}

impl<'a> Parser<'a> {
    fn new(pattern: &'a [u8]) -> Self {
        Self { rest: pattern, tokens: Vec::new(), classes: Vec::new(), unclosed: false }
    }

    fn run(mut self, substitute: Option<Substitute<'_>>) -> Option<Glob> {
        while let Some(byte) = self.next() {
            match byte {
                b'*' if self.tokens.last() == Some(&Token::AnyBytes) => {}
                b'*' => self.tokens.push(Token::AnyBytes),
                b'?' => self.tokens.push(Token::AnyByte),
                b'[' => self.class(),
                b'\\' => {
                    let literal = self.next().unwrap_or(b'\\');
                    self.tokens.push(Token::Byte(literal));
                }
                b'{' if let Some(substitute) = substitute => {
                    let literal = substitute(self.name()?)?;
                    self.tokens.extend(literal.into_iter().map(Token::Byte));
                }
                literal => self.tokens.push(Token::Byte(literal)),
            }
        }
        let literal = |token: &Token| match token {
            Token::Byte(byte) => Some(*byte),
            _ => None,
        };
        let literal_prefix = self.tokens.iter().map_while(literal).collect();
        let pieces = self.tokens.split(|token| *token == Token::AnyBytes);
        let longest_piece = pieces.skip(1).map(<[Token]>::len).max().unwrap_or(0);
        let Self { tokens, classes, .. } = self;
        Some(Glob { tokens, classes, literal_prefix, longest_piece })
    }

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// Behind `{`: what is before the next `}`.
    fn name(&mut self) -> Option<&'a str> {
        let end = self.rest.iter().position(|byte| *byte == b'}')?;
        let name = std::str::from_utf8(&self.rest[..end]).ok()?;
        self.rest = &self.rest[end + 1..];
        Some(name)
    }

    /// Behind `[`.
    fn class(&mut self) {
        let start = self.rest;
        let class = if self.unclosed { None } else { self.members() };
        self.tokens.push(match class {
            Some(class) => {
                let index = u32::try_from(self.classes.len()).expect("a pattern is below 4 GiB");
                self.classes.push(class);
                Token::Class(index)
            }
            None => {
                self.unclosed = true;
                self.rest = start;
                Token::Byte(b'[')
            }
        });
    }

    /// To behind `]`; `None` if there is none.
    fn members(&mut self) -> Option<Class> {
        let negated = matches!(self.rest.first(), Some(b'!' | b'^'));
        if negated {
            self.next();
        }
        let mut class = Class::default();
        let mut is_first = true;
        loop {
            let low = match self.next()? {
                b']' if !is_first => break,
                b'\\' => self.next()?,
                byte => byte,
            };
            is_first = false;
            let high = match self.rest {
                [b'-', end, ..] if *end != b']' => {
                    self.next();
                    match self.next()? {
                        b'\\' => self.next()?,
                        byte => byte,
                    }
                }
                _ => low,
            };
            (low..=high).for_each(|byte| class.insert(byte));
        }
        Some(if negated { class.complement() } else { class })
    }
}
