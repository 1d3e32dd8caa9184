//! Patterns that keys match.

use memchr::memmem;

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
    /// Before the first `*`.
    head: Piece,
    /// Behind that; none if there is no `*`.
    behind: Option<Behind>,
    classes: Vec<Class>,
    literal_prefix: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Behind {
    /// What is between two `*`. None is empty.
    middle: Vec<Piece>,
    /// What follows the last `*`.
    tail: Piece,
}

/// A part of the pattern without `*`, which therefore stands for as many bytes as it has tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    /// Nothing but bytes.
    Plain(Vec<u8>),
    Mixed(Vec<Token>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Byte(u8),
    AnyByte,
    /// One byte of the class at this index.
    Class(u32),
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
        let Some((start, rest)) = key.split_at_checked(self.head.len()) else { return false };
        let starts = self.covers(&self.head, start);
        let Some(Behind { middle, tail }) = &self.behind else { return starts && rest.is_empty() };
        let Some(end) = rest.len().checked_sub(tail.len()) else { return false };
        let (mut rest, end) = rest.split_at(end);
        // The first place of each will do: what follows a later one follows the first one as well.
        let mut is_next = |piece| {
            let found = self.find(piece, rest);
            rest = found.map_or(rest, |at| &rest[at + piece.len()..]);
            found.is_some()
        };
        starts && self.covers(tail, end) && middle.iter().all(&mut is_next)
    }

    /// What every key that matches begins with.
    pub fn literal_prefix(&self) -> &[u8] {
        &self.literal_prefix
    }

    /// How many bytes are compared at most to match a key of this length, give or take a small factor.
    ///
    /// A piece between two `*` is looked for in what those before it have left of the key. If it is
    /// nothing but bytes, each byte there counts once; otherwise, as in `*a?a*` and a key of many
    /// `a`, the piece may have to be compared to its end at each of them.
    pub fn steps_max(&self, key_len: usize) -> usize {
        let (middle, tail) = match &self.behind {
            Some(Behind { middle, tail }) => (&middle[..], tail.len()),
            None => (&[][..], 0),
        };
        let mixed = middle.iter().filter(|piece| matches!(piece, Piece::Mixed(_)));
        let factor = mixed.map(Piece::len).max().unwrap_or(1);
        let tokens = self.head.len() + tail + middle.iter().map(Piece::len).sum::<usize>();
        key_len.saturating_mul(factor).saturating_add(tokens)
    }

    /// Where a piece is first in `key`.
    fn find(&self, piece: &Piece, key: &[u8]) -> Option<usize> {
        match piece {
            Piece::Plain(bytes) => memmem::find(key, bytes),
            Piece::Mixed(tokens) => {
                key.windows(tokens.len()).position(|bytes| self.cover(tokens, bytes))
            }
        }
    }

    /// Whether a piece stands for as many `bytes` as it has tokens.
    fn covers(&self, piece: &Piece, bytes: &[u8]) -> bool {
        match piece {
            Piece::Plain(wanted) => wanted == bytes,
            Piece::Mixed(tokens) => self.cover(tokens, bytes),
        }
    }

    fn cover(&self, tokens: &[Token], bytes: &[u8]) -> bool {
        tokens.iter().zip(bytes).all(|(token, byte)| match token {
            Token::Byte(wanted) => wanted == byte,
            Token::AnyByte => true,
            Token::Class(class) => self.classes[*class as usize].contains(*byte),
        })
    }
}

impl Piece {
    fn new(tokens: Vec<Token>) -> Self {
        let plain: Option<Vec<u8>> = tokens.iter().map(|token| token.literal()).collect();
        plain.map_or(Self::Mixed(tokens), Self::Plain)
    }

    fn len(&self) -> usize {
        match self {
            Self::Plain(bytes) => bytes.len(),
            Self::Mixed(tokens) => tokens.len(),
        }
    }
}

impl Token {
    /// The byte that it alone stands for.
    fn literal(self) -> Option<u8> {
        match self {
            Self::Byte(byte) => Some(byte),
            Self::AnyByte | Self::Class(_) => None,
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
    /// Before the last `*` so far.
    pieces: Vec<Piece>,
    /// Behind it.
    tokens: Vec<Token>,
    classes: Vec<Class>,
    /// No `]` closes a class any more. Known once one was not closed, so that many of them are not
    /// each read to the end.
    unclosed: bool,
}

impl<'a> Parser<'a> {
    fn new(pattern: &'a [u8]) -> Self {
        let (pieces, tokens, classes) = Default::default();
        Self { rest: pattern, pieces, tokens, classes, unclosed: false }
    }

    fn run(mut self, substitute: Option<Substitute<'_>>) -> Option<Glob> {
        while let Some(byte) = self.next() {
            match byte {
                b'*' => self.end_piece(),
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
        let Self { pieces, tokens, classes, .. } = self;
        let last = Piece::new(tokens);
        let mut pieces = pieces.into_iter();
        let (head, behind) = match pieces.next() {
            Some(head) => (head, Some(Behind { middle: pieces.collect(), tail: last })),
            None => (last, None),
        };
        let literal_prefix = match &head {
            Piece::Plain(bytes) => bytes.clone(),
            Piece::Mixed(tokens) => tokens.iter().map_while(|token| token.literal()).collect(),
        };
        Some(Glob { head, behind, classes, literal_prefix })
    }

    /// At `*`.
    fn end_piece(&mut self) {
        let tokens = std::mem::take(&mut self.tokens);
        // Before the first `*` there may be nothing; between two that means one.
        if self.pieces.is_empty() || !tokens.is_empty() {
            self.pieces.push(Piece::new(tokens));
        }
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
