//! Tokens of an expression.

use std::borrow::Cow;

use super::error::{ParseError, Reason};

/// Longer symbols come first, since the first that matches is taken.
const SYMBOLS: [&str; 17] =
    ["<>", "!=", "<=", ">=", "=", "<", ">", "(", ")", ",", ".", ";", "+", "-", "*", "/", "%"];

/// A token of an expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token<'t> {
    /// A keyword, or a name without quotes.
    Word(&'t str),
    /// A name in brackets or double quotes.
    Name(Cow<'t, str>),
    /// A text in single quotes.
    Text(Cow<'t, str>),
    /// A number without a sign.
    Number(&'t str),
    /// The name of a parameter, which follows `@`.
    Parameter(&'t str),
    /// An operator or a punctuation mark.
    Symbol(&'static str),
    /// The end of the text.
    End,
}

impl Token<'_> {
    /// Describes the token for an error message; long tokens are truncated.
    pub(super) fn describe(&self) -> Box<str> {
        const SHOWN_MAX: usize = 32;
        let clip = |text: &str| text.chars().take(SHOWN_MAX).collect::<String>();
        match self {
            Self::Word(word) => clip(word),
            Self::Name(name) => format!("[{}]", clip(name)),
            Self::Text(text) => format!("'{}'", clip(text)),
            Self::Number(number) => clip(number),
            Self::Parameter(name) => format!("@{}", clip(name)),
            Self::Symbol(symbol) => (*symbol).to_owned(),
            Self::End => "the end".to_owned(),
        }
        .into()
    }
}

/// Splits a text into tokens.
pub(super) struct Tokens<'t> {
    text: &'t str,
    /// The byte up to which the text was read.
    read: usize,
}

impl<'t> Tokens<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, read: 0 }
    }

    /// Returns the next token, and the byte at which it begins.
    pub(super) fn next(&mut self) -> Result<(usize, Token<'t>), ParseError> {
        let rest = self.rest();
        self.read += rest.len() - rest.trim_start().len();
        let start = self.read;
        let token = match self.rest().chars().next() {
            None => Token::End,
            Some('\'') => Token::Text(self.quoted('\'', "a text")?),
            Some('"') => Token::Name(self.quoted('"', "a name")?),
            Some('[') => Token::Name(self.quoted(']', "a name")?),
            Some('@') => {
                self.read += 1;
                Token::Parameter(self.word())
            }
            Some(first) if first.is_alphabetic() || first == '_' => Token::Word(self.word()),
            Some(first) if first.is_ascii_digit() => Token::Number(self.number()?),
            Some('.') if self.rest()[1..].starts_with(|c: char| c.is_ascii_digit()) => {
                Token::Number(self.number()?)
            }
            Some(other) => {
                let symbol = SYMBOLS.into_iter().find(|symbol| self.rest().starts_with(symbol));
                let Some(symbol) = symbol else {
                    let found = other.to_string().into();
                    let what = "a name, a value or an operator";
                    return Err(self.error(start, Reason::Expected { what, found }));
                };
                self.read += symbol.len();
                Token::Symbol(symbol)
            }
        };
        Ok((start, token))
    }

    /// Creates an error at a byte of the text.
    pub(super) fn error(&self, byte: usize, reason: Reason) -> ParseError {
        ParseError { at: self.text[..byte].chars().count() + 1, reason }
    }

    fn rest(&self) -> &'t str {
        &self.text[self.read..]
    }

    /// Reads characters while `taken` accepts them.
    fn take_while(&mut self, taken: impl Fn(char) -> bool) -> &'t str {
        let rest = self.rest();
        let end = rest.find(|c| !taken(c)).unwrap_or(rest.len());
        self.read += end;
        &rest[..end]
    }

    fn word(&mut self) -> &'t str {
        self.take_while(|c| c.is_alphanumeric() || c == '_')
    }

    /// Reads a quoted text or name that ends with `close`. A doubled `close` stands for the
    /// character itself.
    fn quoted(&mut self, close: char, what: &'static str) -> Result<Cow<'t, str>, ParseError> {
        let start = self.read;
        self.read += 1;
        let mut inner = Cow::Borrowed("");
        loop {
            let part = self.take_while(|c| c != close);
            if self.rest().is_empty() {
                return Err(self.error(start, Reason::Unterminated(what)));
            }
            self.read += 1;
            let doubled = self.rest().starts_with(close);
            inner = if inner.is_empty() && !doubled {
                Cow::Borrowed(part)
            } else {
                Cow::Owned(inner.into_owned() + part)
            };
            if !doubled {
                return Ok(inner);
            }
            self.read += 1;
            inner.to_mut().push(close);
        }
    }

    /// Reads digits, a fraction and an exponent.
    fn number(&mut self) -> Result<&'t str, ParseError> {
        let start = self.read;
        self.digits();
        if self.rest().starts_with('.') {
            self.read += 1;
            self.digits();
        }
        if self.rest().starts_with(['e', 'E']) {
            self.read += 1;
            if self.rest().starts_with(['+', '-']) {
                self.read += 1;
            }
            if self.digits().is_empty() {
                return Err(self.expected_digits());
            }
        }
        // `1x` is an error, not a number followed by a name.
        if self.rest().starts_with(|c: char| c.is_alphanumeric() || c == '_') {
            let found = self.rest().chars().take(1).collect::<String>().into();
            let what = "the end of the number";
            return Err(self.error(self.read, Reason::Expected { what, found }));
        }
        Ok(&self.text[start..self.read])
    }

    fn digits(&mut self) -> &'t str {
        self.take_while(|c| c.is_ascii_digit())
    }

    fn expected_digits(&self) -> ParseError {
        let next = self.rest().chars().next();
        let found = next.map_or("the end".into(), |c| c.to_string().into());
        self.error(self.read, Reason::Expected { what: "the digits of an exponent", found })
    }
}
