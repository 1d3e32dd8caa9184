//! Parser of filters and actions, which generates their programs.

use super::error::{ParseError, Reason};
use super::like::Pattern;
use super::operators::{Arithmetic, Comparison};
use super::program::{Instruction, Program, only_character};
use super::tokens::{Token, Tokens};
use super::{DEPTH_MAX, Parameters, TEXT_MAX};
use crate::rules::{SystemProperty, same_name};
use crate::value::Value;

/// Words that are not names, unless they are in brackets or follow `sys.` or `user.`.
const RESERVED: [&str; 13] = [
    "AND", "OR", "NOT", "LIKE", "ESCAPE", "IN", "IS", "NULL", "EXISTS", "TRUE", "FALSE", "SET",
    "REMOVE",
];

const COMPARISONS: [(&str, Comparison); 7] = [
    ("=", Comparison::Equal),
    ("<>", Comparison::NotEqual),
    ("!=", Comparison::NotEqual),
    ("<", Comparison::Less),
    ("<=", Comparison::LessOrEqual),
    (">", Comparison::Greater),
    (">=", Comparison::GreaterOrEqual),
];
const SUMS: [(&str, Arithmetic); 2] = [("+", Arithmetic::Add), ("-", Arithmetic::Subtract)];
const PRODUCTS: [(&str, Arithmetic); 3] =
    [("*", Arithmetic::Multiply), ("/", Arithmetic::Divide), ("%", Arithmetic::Remainder)];

/// A property that a text names.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::rules) enum Target {
    System(SystemProperty),
    User(Box<str>),
    /// `sys.body`, which Service Bus lets an action set. It is not a property, and never changes.
    Body,
}

/// The name of the body after `sys.`.
const BODY: &str = "body";

/// The kind of result of a part of an expression.
#[derive(Clone, Copy, PartialEq)]
enum Gives {
    Value,
    Truth,
    /// A property, a parameter, TRUE or FALSE: a value that may be a truth value.
    Either,
}

type Parsed<T> = Result<T, ParseError>;

/// Reads a text from left to right, with one token of look-ahead.
///
/// Each rule of the grammar is a method that reads what it is named after, and emits the
/// instructions for it. The depth of their recursion is bounded by [`DEPTH_MAX`].
pub(in crate::rules) struct Parser<'t> {
    tokens: Tokens<'t>,
    /// The next token.
    token: Token<'t>,
    /// The byte at which the next token begins.
    at: usize,
    depth: usize,
    program: Program,
    parameters: &'t Parameters,
}

impl<'t> Parser<'t> {
    pub(in crate::rules) fn new(text: &'t str, parameters: &'t Parameters) -> Parsed<Self> {
        let mut tokens = Tokens::new(text);
        if let Some((byte, _)) = text.char_indices().nth(TEXT_MAX) {
            return Err(tokens.error(byte, Reason::TooLong));
        }
        let (at, token) = tokens.next()?;
        Ok(Self { tokens, token, at, depth: 0, program: Program::default(), parameters })
    }

    /// Parses the whole text as a condition.
    pub(in crate::rules) fn filter(mut self) -> Parsed<Program> {
        let start = self.at;
        let gives = self.condition()?;
        self.want_truth(gives, start)?;
        if self.token != Token::End {
            return Err(self.expected("an operator or the end"));
        }
        Ok(self.program)
    }

    /// Parses a part of the text as a value: the one after `=` in an action.
    pub(in crate::rules) fn value(&mut self) -> Parsed<Program> {
        let start = self.at;
        let gives = self.sum()?;
        self.want_value(gives, start)?;
        Ok(std::mem::take(&mut self.program))
    }

    /// Parses the name of a property that an action changes.
    pub(in crate::rules) fn settable(&mut self) -> Parsed<Target> {
        let start = self.at;
        match self.target()? {
            Target::System(property) if !property.is_settable() => {
                Err(self.tokens.error(start, Reason::NotSettable(property.name())))
            }
            target => Ok(target),
        }
    }

    pub(in crate::rules) fn is_at_end(&self) -> bool {
        self.token == Token::End
    }

    /// Reads the keyword if it is the next token, and returns whether it was.
    pub(in crate::rules) fn takes_word(&mut self, keyword: &str) -> Parsed<bool> {
        match self.token {
            Token::Word(word) if word.eq_ignore_ascii_case(keyword) => {
                self.advance()?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Reads the symbol if it is the next token, and returns whether it was.
    pub(in crate::rules) fn takes_symbol(&mut self, symbol: &str) -> Parsed<bool> {
        match self.token {
            Token::Symbol(found) if found == symbol => {
                self.advance()?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    pub(in crate::rules) fn want_symbol(&mut self, symbol: &str, what: &'static str) -> Parsed<()> {
        if self.takes_symbol(symbol)? { Ok(()) } else { Err(self.expected(what)) }
    }

    /// The error that `what` was expected in place of the next token.
    pub(in crate::rules) fn expected(&self, what: &'static str) -> ParseError {
        self.tokens.error(self.at, Reason::Expected { what, found: self.token.describe() })
    }

    /// Parses conditions joined by OR.
    fn condition(&mut self) -> Parsed<Gives> {
        self.junction("OR", true, Self::conjunction)
    }

    /// Parses conditions joined by AND.
    fn conjunction(&mut self) -> Parsed<Gives> {
        self.junction("AND", false, Self::negation)
    }

    fn junction(
        &mut self,
        keyword: &str,
        decides: bool,
        side: fn(&mut Self) -> Parsed<Gives>,
    ) -> Parsed<Gives> {
        let start = self.at;
        let mut gives = side(self)?;
        while self.takes_word(keyword)? {
            self.want_truth(gives, start)?;
            let pass_over = self.program.0.len();
            self.emit(Instruction::PassOver { decides, to: 0 });
            let start = self.at;
            let right = side(self)?;
            self.want_truth(right, start)?;
            self.emit(Instruction::Junction { decides });
            let to = self.program.0.len();
            self.program.0[pass_over] = Instruction::PassOver { decides, to };
            gives = Gives::Truth;
        }
        Ok(gives)
    }

    fn negation(&mut self) -> Parsed<Gives> {
        if !self.takes_word("NOT")? {
            return self.comparison();
        }
        let start = self.at;
        let gives = self.nested(Self::negation)?;
        self.want_truth(gives, start)?;
        self.emit(Instruction::Not);
        Ok(Gives::Truth)
    }

    fn comparison(&mut self) -> Parsed<Gives> {
        let start = self.at;
        let left = self.sum()?;
        let instruction = if let Some(comparison) = self.takes_one_of(&COMPARISONS)? {
            self.want_value(left, start)?;
            self.operand(Self::sum)?;
            Instruction::Compare(comparison)
        } else if self.takes_word("IS")? {
            self.want_value(left, start)?;
            let not = self.takes_word("NOT")?;
            if !self.takes_word("NULL")? {
                return Err(self.expected(if not { "NULL" } else { "NULL or NOT NULL" }));
            }
            self.emit(Instruction::IsNull);
            return Ok(self.negated_if(not));
        } else {
            let not = self.takes_word("NOT")?;
            if self.takes_word("LIKE")? {
                self.want_value(left, start)?;
                self.pattern()?;
            } else if self.takes_word("IN")? {
                self.want_value(left, start)?;
                self.list()?;
            } else if not {
                return Err(self.expected("LIKE or IN"));
            } else {
                return Ok(left);
            }
            return Ok(self.negated_if(not));
        };
        self.emit(instruction);
        Ok(Gives::Truth)
    }

    /// Parses the operands after LIKE.
    fn pattern(&mut self) -> Parsed<()> {
        let (start, pattern) = (self.at, self.program.0.len());
        self.operand(Self::sum)?;
        let (escape_at, escape) = (self.at, self.program.0.len());
        let has_escape = self.takes_word("ESCAPE")?;
        let escape_at = if has_escape { self.at } else { escape_at };
        if has_escape {
            self.operand(Self::sum)?;
        }
        let known = match &self.program.0[escape..] {
            [] => Some(None),
            [Instruction::Constant(Value::String(text))] => {
                let Some(character) = only_character(text) else {
                    let found = Token::Text(text.as_ref().into()).describe();
                    let what = "a text of one character";
                    return Err(self.tokens.error(escape_at, Reason::Expected { what, found }));
                };
                Some(Some(character))
            }
            _ => None,
        };
        match (&self.program.0[pattern..escape], known) {
            ([Instruction::Constant(Value::String(text))], Some(known)) => {
                let Ok(compiled) = Pattern::new(text, known) else {
                    let found = "the end of the pattern".into();
                    let what = "a character behind the escape character";
                    return Err(self.tokens.error(start, Reason::Expected { what, found }));
                };
                self.program.0.truncate(pattern);
                self.emit(Instruction::LikePattern(Box::new(compiled)));
            }
            _ => self.emit(Instruction::Like { escape: has_escape }),
        }
        Ok(())
    }

    /// Parses the list after IN.
    fn list(&mut self) -> Parsed<()> {
        self.want_symbol("(", "( and values")?;
        let mut count = 0;
        loop {
            self.nested(|parser| parser.operand(Self::sum))?;
            count += 1;
            if !self.takes_symbol(",")? {
                break;
            }
        }
        self.want_symbol(")", ", or )")?;
        self.emit(Instruction::In(count));
        Ok(())
    }

    fn sum(&mut self) -> Parsed<Gives> {
        self.arithmetic(&SUMS, Self::product)
    }

    fn product(&mut self) -> Parsed<Gives> {
        self.arithmetic(&PRODUCTS, Self::factor)
    }

    fn arithmetic(
        &mut self,
        operators: &[(&str, Arithmetic)],
        side: fn(&mut Self) -> Parsed<Gives>,
    ) -> Parsed<Gives> {
        let start = self.at;
        let mut gives = side(self)?;
        while let Some(operator) = self.takes_one_of(operators)? {
            self.want_value(gives, start)?;
            self.operand(side)?;
            self.emit(Instruction::Arithmetic(operator));
            gives = Gives::Value;
        }
        Ok(gives)
    }

    /// Parses a value with optional signs before it.
    fn factor(&mut self) -> Parsed<Gives> {
        let minus = self.takes_symbol("-")?;
        if !minus && !self.takes_symbol("+")? {
            return self.primary();
        }
        if let Token::Number(digits) = self.token {
            return self.number(digits, minus);
        }
        self.nested(|parser| parser.operand(Self::factor))?;
        if minus {
            self.emit(Instruction::Negate);
        }
        Ok(Gives::Value)
    }

    fn primary(&mut self) -> Parsed<Gives> {
        match self.token.clone() {
            Token::Symbol("(") => {
                self.advance()?;
                let gives = self.nested(Self::condition)?;
                self.want_symbol(")", "an operator or )")?;
                Ok(gives)
            }
            Token::Number(digits) => self.number(digits, false),
            Token::Text(text) => self.constant(Value::String(text.into()), Gives::Value),
            Token::Parameter(name) => {
                let mut known = self.parameters.iter();
                let found = known.find(|(it, _)| same_name(it.trim_start_matches('@'), name));
                let Some((_, value)) = found else {
                    return Err(self.tokens.error(self.at, Reason::NoParameter(name.into())));
                };
                self.constant(value.clone(), Gives::Either)
            }
            Token::Word(word) => self.word(word),
            Token::Name(_) => self.property_value(),
            Token::Symbol(_) | Token::End => Err(self.expected("a value")),
        }
    }

    fn word(&mut self, word: &'t str) -> Parsed<Gives> {
        let is = |keyword: &str| word.eq_ignore_ascii_case(keyword);
        if is("TRUE") || is("FALSE") {
            return self.constant(Value::Bool(is("TRUE")), Gives::Either);
        }
        if is("NULL") {
            return self.constant(Value::Null, Gives::Value);
        }
        if is("EXISTS") {
            return self.exists();
        }
        if is_reserved(word) {
            return Err(self.expected("a value"));
        }
        let start = self.at;
        self.advance()?;
        if self.token == Token::Symbol("(") {
            return self.function(word, start);
        }
        let target = self.property_named(word, start)?;
        let target = self.no_body(target, start)?;
        Ok(self.emit_property(target))
    }

    fn exists(&mut self) -> Parsed<Gives> {
        self.advance()?;
        self.want_symbol("(", "( and a property")?;
        let instruction = match self.property()? {
            Target::System(property) => Instruction::SystemExists(property),
            Target::User(name) => Instruction::UserExists(name),
            Target::Body => unreachable!("it is no property"),
        };
        self.emit(instruction);
        self.want_symbol(")", ")")?;
        Ok(Gives::Truth)
    }

    /// Parses the rest of a function call; its `(` is the next token.
    fn function(&mut self, name: &str, start: usize) -> Parsed<Gives> {
        let is = |function: &str| name.eq_ignore_ascii_case(function);
        if is("newid") {
            self.advance()?;
            self.want_symbol(")", ")")?;
            self.emit(Instruction::NewId);
            return Ok(Gives::Value);
        }
        if !is("property") && !is("p") {
            let what = "newid, property or p, which are all functions there are";
            let found = Token::Word(name).describe();
            return Err(self.tokens.error(start, Reason::Expected { what, found }));
        }
        self.advance()?;
        self.nested(|parser| parser.operand(Self::sum))?;
        self.want_symbol(")", "an operator or )")?;
        self.emit(Instruction::Property);
        Ok(Gives::Either)
    }

    fn property_value(&mut self) -> Parsed<Gives> {
        let target = self.property()?;
        Ok(self.emit_property(target))
    }

    fn emit_property(&mut self, target: Target) -> Gives {
        self.emit(match target {
            Target::System(property) => Instruction::System(property),
            Target::User(name) => Instruction::User(name),
            Target::Body => unreachable!("it is no property"),
        });
        Gives::Either
    }

    /// Parses a property: a name, with or without `sys.` or `user.` before it.
    fn property(&mut self) -> Parsed<Target> {
        let start = self.at;
        let target = self.target()?;
        self.no_body(target, start)
    }

    /// Refuses the body, which is not a property that an expression can use.
    fn no_body(&self, target: Target, start: usize) -> Parsed<Target> {
        match target {
            Target::Body => {
                let at = start + "sys.".len();
                Err(self.tokens.error(at, Reason::NoSystemProperty(BODY.into())))
            }
            target => Ok(target),
        }
    }

    /// Parses a property or the body.
    fn target(&mut self) -> Parsed<Target> {
        let start = self.at;
        match self.token.clone() {
            Token::Name(name) => {
                self.advance()?;
                Ok(Target::User(name.into()))
            }
            Token::Word(word) if !is_reserved(word) => {
                self.advance()?;
                self.property_named(word, start)
            }
            _ => Err(self.expected("a property")),
        }
    }

    /// Parses the rest of a property, whose name or prefix `word` was read.
    fn property_named(&mut self, word: &str, start: usize) -> Parsed<Target> {
        if self.token != Token::Symbol(".") {
            return Ok(Target::User(word.into()));
        }
        let system = word.eq_ignore_ascii_case("sys");
        if !system && !word.eq_ignore_ascii_case("user") {
            let what = "sys. or user., or [ ] around a name with a point in it";
            let found = Token::Word(word).describe();
            return Err(self.tokens.error(start, Reason::Expected { what, found }));
        }
        self.advance()?;
        let name: Box<str> = match self.token.clone() {
            Token::Word(name) => name.into(),
            Token::Name(name) => name.into(),
            _ => return Err(self.expected("the name of a property")),
        };
        if !system {
            self.advance()?;
            return Ok(Target::User(name));
        }
        if same_name(&name, BODY) {
            self.advance()?;
            return Ok(Target::Body);
        }
        let Some(property) = SystemProperty::from_name(&name) else {
            return Err(self.tokens.error(self.at, Reason::NoSystemProperty(name)));
        };
        self.advance()?;
        Ok(Target::System(property))
    }

    fn number(&mut self, digits: &str, minus: bool) -> Parsed<Gives> {
        let signed = if minus { format!("-{digits}") } else { digits.to_owned() };
        let value = if digits.contains(['.', 'e', 'E']) {
            signed.parse().ok().filter(|number: &f64| number.is_finite()).map(Value::Double)
        } else {
            signed.parse().ok().map(Value::Long)
        };
        let Some(value) = value else {
            return Err(self.tokens.error(self.at, Reason::NumberTooLarge));
        };
        self.constant(value, Gives::Value)
    }

    /// Emits a constant, which is the next token.
    fn constant(&mut self, value: Value, gives: Gives) -> Parsed<Gives> {
        self.advance()?;
        self.emit(Instruction::Constant(value));
        Ok(gives)
    }

    /// Parses a part that must give a value.
    fn operand(&mut self, part: fn(&mut Self) -> Parsed<Gives>) -> Parsed<()> {
        let start = self.at;
        let gives = part(self)?;
        self.want_value(gives, start)
    }

    fn want_value(&self, gives: Gives, start: usize) -> Parsed<()> {
        if gives != Gives::Truth {
            return Ok(());
        }
        let found = "a condition".into();
        Err(self.tokens.error(start, Reason::Expected { what: "a value", found }))
    }

    fn want_truth(&self, gives: Gives, start: usize) -> Parsed<()> {
        if gives != Gives::Value {
            return Ok(());
        }
        let found = "a value".into();
        Err(self.tokens.error(start, Reason::Expected { what: "a condition", found }))
    }

    fn negated_if(&mut self, not: bool) -> Gives {
        if not {
            self.emit(Instruction::Not);
        }
        Gives::Truth
    }

    /// Reads the next token if it is one of the operators, and returns that operator.
    fn takes_one_of<T: Copy>(&mut self, operators: &[(&str, T)]) -> Parsed<Option<T>> {
        let Token::Symbol(symbol) = self.token else { return Ok(None) };
        let Some((_, operator)) = operators.iter().find(|(it, _)| *it == symbol) else {
            return Ok(None);
        };
        self.advance()?;
        Ok(Some(*operator))
    }

    fn nested<T>(&mut self, part: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth == DEPTH_MAX {
            return Err(self.tokens.error(self.at, Reason::TooDeep));
        }
        self.depth += 1;
        let result = part(self);
        self.depth -= 1;
        result
    }

    fn emit(&mut self, instruction: Instruction) {
        self.program.0.push(instruction);
    }

    fn advance(&mut self) -> Parsed<()> {
        (self.at, self.token) = self.tokens.next()?;
        Ok(())
    }
}

fn is_reserved(word: &str) -> bool {
    RESERVED.iter().any(|reserved| word.eq_ignore_ascii_case(reserved))
}
