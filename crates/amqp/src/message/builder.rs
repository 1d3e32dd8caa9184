//! Messages that the broker creates.

use super::properties::{COUNT, Field};
use super::sections::Kind;
use crate::wire::{ValueRef, Writer};

/// Builder of a message.
#[derive(Clone, Debug)]
pub struct Builder<'a> {
    durable: bool,
    ttl: Option<u32>,
    annotations: Vec<(&'a str, ValueRef<'a>)>,
    properties: [ValueRef<'a>; COUNT],
    application_properties: Vec<(&'a str, ValueRef<'a>)>,
}

impl Default for Builder<'_> {
    fn default() -> Self {
        Self {
            durable: false,
            ttl: None,
            annotations: Vec::new(),
            properties: [ValueRef::Null; COUNT],
            application_properties: Vec::new(),
        }
    }
}

impl<'a> Builder<'a> {
    /// Creates a message without any sections.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether the message is durable.
    pub fn durable(&mut self, durable: bool) -> &mut Self {
        self.durable = durable;
        self
    }

    /// Sets the time to live, in milliseconds.
    pub fn ttl(&mut self, ms: u32) -> &mut Self {
        self.ttl = Some(ms);
        self
    }

    /// Adds a message annotation, whose name is a symbol.
    pub fn annotation(&mut self, name: &'a str, value: ValueRef<'a>) -> &mut Self {
        self.annotations.push((name, value));
        self
    }

    /// Sets a property.
    pub fn property(&mut self, field: Field, value: ValueRef<'a>) -> &mut Self {
        self.properties[field as usize] = value;
        self
    }

    /// Adds an application property.
    pub fn application_property(&mut self, name: &'a str, value: ValueRef<'a>) -> &mut Self {
        self.application_properties.push((name, value));
        self
    }

    /// Appends the message to `out`, with `body` as its one data section.
    pub fn data(&self, body: &[u8], out: &mut Vec<u8>) {
        out.reserve(body.len() + 256);
        self.sections(out);
        Writer::new(out).described(Kind::Data as u64, |value| value.value(body));
    }

    /// Appends the message to `out`. Its body is the one value that `write` writes.
    pub fn value(&self, write: impl FnOnce(&mut Writer<'_>), out: &mut Vec<u8>) {
        self.sections(out);
        Writer::new(out).described(Kind::Value as u64, write);
    }

    fn sections(&self, out: &mut Vec<u8>) {
        let mut sections = Writer::new(out);
        if self.durable || self.ttl.is_some() {
            sections.composite(Kind::Header as u64, |fields| {
                fields.value(self.durable);
                fields.value(ValueRef::Null);
                fields.value(self.ttl);
            });
        }
        if !self.annotations.is_empty() {
            sections.described(Kind::MessageAnnotations as u64, |value| {
                value.map(|map| {
                    for (name, value) in &self.annotations {
                        map.value(ValueRef::Symbol(name));
                        map.value(*value);
                    }
                });
            });
        }
        let count = COUNT - self.properties.iter().rev().take_while(|one| one.is_null()).count();
        if count > 0 {
            sections.composite(Kind::Properties as u64, |fields| {
                self.properties[..count].iter().for_each(|value| fields.value(*value));
            });
        }
        if !self.application_properties.is_empty() {
            sections.described(Kind::ApplicationProperties as u64, |value| {
                value.map(|map| {
                    for (name, value) in &self.application_properties {
                        map.entry(name, *value);
                    }
                });
            });
        }
    }
}
