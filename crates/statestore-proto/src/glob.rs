//! Patterns for matching keys.

use memchr::memmem;

/// A pattern for keys: `*` matches any bytes, `?` matches one byte, `[…]` matches one byte of a class, and everything
/// else matches itself.
///
/// * `[abc0-9]` matches one of the bytes named, `[!abc]` or `[^abc]` one of the others. A `]` that comes first and a
///   `-` that comes first or last stand for themselves. A range that ends before it begins is empty. A class that is
///   not closed is not a class: its `[` stands for itself.
/// * `\` makes the byte behind it stand for itself, also in a class. At the end of the pattern it stands for itself.
///
/// Patterns match bytes, not characters, because keys need not be text. So `?` does not match an `é` in UTF-8.
///
/// Before matching a pattern from somebody else, check [`steps_max`](Self::steps_max).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    /// The piece before the first `*`.
    head: Piece,
    /// The pieces behind the first `*`; `None` if there is no `*`.
    behind: Option<Behind>,
    classes: Vec<Class>,
    literal_prefix: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Behind {
    /// The pieces between two `*`. None of them is empty.
    middle: Vec<Piece>,
    /// The piece behind the last `*`.
    tail: Piece,
}

/// A part of the pattern without `*`, which therefore matches exactly as many bytes as it has tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    /// A piece of literal bytes only.
    Plain(Vec<u8>),
    Mixed(Vec<Token>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Byte(u8),
    AnyByte,
    /// Matches one byte of the class at this index.
    Class(u32),
}

/// A set of bytes, one bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Class([u64; 4]);

impl Glob {
    /// Parses a pattern. Every sequence of bytes is a valid pattern.
    pub fn parse(pattern: &[u8]) -> Self {
        Parser::new(pattern).run(None).expect("only a substitution fails")
    }

    /// Parses a pattern as [`parse`](Self::parse) does, but replaces `{name}` by the bytes that `substitute` returns
    /// for the name. These bytes are literal: a client identifier `*` matches only itself. Returns `None` if
    /// `substitute` returns `None` for a name, or if a brace is not closed. `\{` stands for a brace, and so does a
    /// brace in a class.
    pub fn parse_with(
        pattern: &[u8],
        substitute: impl Fn(&str) -> Option<Vec<u8>>,
    ) -> Option<Self> {
        Parser::new(pattern).run(Some(&substitute))
    }

    /// Returns whether the pattern matches all of `key`.
    pub fn matches(&self, key: &[u8]) -> bool {
        let Some((start, rest)) = key.split_at_checked(self.head.len()) else { return false };
        let starts = self.covers(&self.head, start);
        let Some(Behind { middle, tail }) = &self.behind else { return starts && rest.is_empty() };
        let Some(end) = rest.len().checked_sub(tail.len()) else { return false };
        let (mut rest, end) = rest.split_at(end);
        // The first match of each piece is enough: whatever can follow a later match can also follow the first one.
        let mut is_next = |piece| {
            let found = self.find(piece, rest);
            rest = found.map_or(rest, |at| &rest[at + piece.len()..]);
            found.is_some()
        };
        starts && self.covers(tail, end) && middle.iter().all(&mut is_next)
    }

    /// The bytes that every matching key begins with.
    pub fn literal_prefix(&self) -> &[u8] {
        &self.literal_prefix
    }

    /// Returns an upper bound of the bytes that are compared to match a key of this length, up to a small factor.
    ///
    /// A piece between two `*` is searched for in the part of the key that the pieces before it have left. For a piece
    /// of literal bytes, each byte of that part counts once. Otherwise, as in `*a?a*` and a key of many `a`, the piece
    /// may have to be compared to its end at each of them.
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

    /// Returns the offset of the first match of a piece in `key`.
    fn find(&self, piece: &Piece, key: &[u8]) -> Option<usize> {
        match piece {
            Piece::Plain(bytes) => memmem::find(key, bytes),
            Piece::Mixed(tokens) => {
                key.windows(tokens.len()).position(|bytes| self.cover(tokens, bytes))
            }
        }
    }

    /// Returns whether a piece matches `bytes`, which are as many as the piece has tokens.
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
    /// The only byte that the token matches; `None` if it can match others.
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
    /// The pieces before the last `*` so far.
    pieces: Vec<Piece>,
    /// The tokens behind the last `*` so far.
    tokens: Vec<Token>,
    classes: Vec<Class>,
    /// Whether no further `]` can close a class. This is known after one class was not closed, and keeps the parser
    /// from reading to the end of the pattern for each further `[`.
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

    /// Ends a piece at a `*`.
    fn end_piece(&mut self) {
        let tokens = std::mem::take(&mut self.tokens);
        // The piece before the first `*` may be empty. An empty piece between two `*` is dropped: two `*` mean the same
        // as one.
        if self.pieces.is_empty() || !tokens.is_empty() {
            self.pieces.push(Piece::new(tokens));
        }
    }

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// Reads a name behind `{`, up to the next `}`.
    fn name(&mut self) -> Option<&'a str> {
        let end = self.rest.iter().position(|byte| *byte == b'}')?;
        let name = std::str::from_utf8(&self.rest[..end]).ok()?;
        self.rest = &self.rest[end + 1..];
        Some(name)
    }

    /// Reads a class behind `[`.
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

    /// Reads the members of a class, including the closing `]`. Returns `None` if the class is not closed.
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
