//! The sections of a message.

use std::borrow::Cow;

use super::header::Header;
use super::properties::{Field, Properties};
use crate::wire::{
    List, Malformed, Map, ValueRef, Writer, checked_len, described, split_value, value_len,
};

/// Positions of the sections of an encoded message.
#[derive(Clone, Copy, Debug)]
pub struct Sections<'a> {
    header: List<'a>,
    delivery_annotations: Map<'a>,
    message_annotations: Map<'a>,
    properties: List<'a>,
    application_properties: Map<'a>,
    /// All sections of the body, and the footer if it stands directly behind them.
    body: &'a [u8],
    /// The footer, if something stands between it and the body.
    footer: &'a [u8],
    /// Whether the sections are in the order of the standard.
    in_order: bool,
}

impl<'a> Sections<'a> {
    /// Finds the sections of a message. A message may lack any of them, even the body.
    ///
    /// The order of section 3.2 is not required: pyamqp writes the delivery annotations behind the body,
    /// wherever the body ends. The sections of the body must be adjacent.
    ///
    /// The message is not well-formed outside of its body, has a part that is not a section, or has a
    /// section twice that may be there once. Values inside the body are not checked.
    pub fn split(message: &'a [u8]) -> Result<Self, Malformed> {
        Self::find(message, checked_len)
    }

    /// Finds the sections of a message that passed [`Sections::split`] before: only the sections are
    /// checked, not the values in them.
    ///
    /// # Errors
    /// The message would not have passed.
    pub fn of_known(message: &'a [u8]) -> Result<Self, Malformed> {
        Self::find(message, value_len)
    }

    /// `len` measures the value of a section outside of the body.
    #[inline]
    fn find(
        message: &'a [u8],
        len: impl Fn(&[u8]) -> Result<usize, Malformed>,
    ) -> Result<Self, Malformed> {
        let mut sections = Self {
            header: List::EMPTY,
            delivery_annotations: Map::EMPTY,
            message_annotations: Map::EMPTY,
            properties: List::EMPTY,
            application_properties: Map::EMPTY,
            body: &[],
            footer: &[],
            in_order: true,
        };
        let mut rest = message;
        let mut before = None;
        let mut seen = 0u16;
        while !rest.is_empty() {
            let (kind, value) = section(rest)?;
            let repeats = before == Some(kind) && kind.may_repeat();
            // A body has at most one value section, and its data or sequence sections are adjacent.
            if seen & kind.excludes() != 0 && !repeats {
                return Err(Malformed::Order);
            }
            seen |= kind.bit();
            sections.in_order &= before.is_none_or(|before| before < kind || repeats);
            let start = rest;
            let (value, behind) =
                if kind < Kind::Data { value.split_at(len(value)?) } else { split_value(value)? };
            rest = behind;
            let whole = &start[..start.len() - rest.len()];
            if kind == Kind::Footer && before.is_none_or(|before| !before.is_body()) {
                sections.footer = whole;
            } else if kind >= Kind::Data {
                // This section directly follows the part of the body found before.
                let len = sections.body.len() + whole.len();
                let end = message.len() - rest.len();
                sections.body = &message[end - len..end];
            }
            before = Some(kind);
            match (kind, ValueRef::whole(value)?) {
                (Kind::Header, ValueRef::List(list)) => sections.header = list,
                (Kind::DeliveryAnnotations, ValueRef::Map(map)) => {
                    sections.delivery_annotations = map;
                }
                (Kind::MessageAnnotations, ValueRef::Map(map)) => {
                    sections.message_annotations = map;
                }
                (Kind::Properties, ValueRef::List(list)) => sections.properties = list,
                (Kind::ApplicationProperties, ValueRef::Map(map)) => {
                    sections.application_properties = map;
                }
                (Kind::Data, ValueRef::Binary(_)) | (Kind::Value, _) => {}
                (Kind::Sequence, ValueRef::List(_)) | (Kind::Footer, ValueRef::Map(_)) => {}
                _ => return Err(Malformed::Section),
            }
        }
        Ok(sections)
    }

    /// Returns the header, with its defaults if there is none.
    pub fn header(&self) -> Header {
        Header::of(self.header)
    }

    /// Returns the delivery annotations, which are for the next hop only.
    pub fn delivery_annotations(&self) -> Map<'a> {
        self.delivery_annotations
    }

    /// Returns the message annotations.
    pub fn annotations(&self) -> Map<'a> {
        self.message_annotations
    }

    /// Returns the properties, all of them null if there are none.
    pub fn properties(&self) -> Properties<'a> {
        Properties::of(self.properties)
    }

    /// Returns the application properties.
    pub fn application_properties(&self) -> Map<'a> {
        self.application_properties
    }

    /// Returns all sections of the body and the footer as they were sent; without the footer if other
    /// sections stand between it and the body, in which case the message is not [in order](Self::in_order).
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// Whether the sections are in the order of the standard. If not, the message must be
    /// [reordered](Self::reordered).
    pub fn in_order(&self) -> bool {
        self.in_order
    }

    /// Appends the message to `out` with its sections in the order of the standard, and otherwise unchanged.
    pub fn reordered(&self, out: &mut Vec<u8>) {
        self.write(out, |sections| {
            if self.properties.count() > 0 {
                sections.section(Kind::Properties, ValueRef::List(self.properties));
            }
        });
    }

    /// Returns the value of a body that is a single AMQP value; `None` for other bodies.
    ///
    /// # Errors
    /// The value is not well-formed.
    pub fn body_value(&self) -> Result<Option<ValueRef<'a>>, Malformed> {
        if self.body.is_empty() {
            return Ok(None);
        }
        let (kind, value) = section(self.body)?;
        if kind != Kind::Value {
            return Ok(None);
        }
        ValueRef::checked(&value[..value_len(value)?]).map(Some)
    }

    /// Returns the bytes of a body: its data sections joined together, or its value if that is a string or
    /// binary data. `None` for all other bodies; an absent body is empty.
    pub fn payload(&self) -> Option<Cow<'a, [u8]>> {
        let mut payload: Cow<'a, [u8]> = Cow::Borrowed(&[]);
        let mut rest = self.body;
        while !rest.is_empty() {
            let (kind, value) = section(rest).ok()?;
            let (value, behind) = ValueRef::read(value).ok()?;
            rest = behind;
            let bytes = match (kind, value) {
                (Kind::Data | Kind::Value, ValueRef::Binary(bytes)) => bytes,
                (Kind::Value, ValueRef::String(text)) => text.as_bytes(),
                (Kind::Footer, _) => break,
                _ => return None,
            };
            if payload.is_empty() {
                payload = Cow::Borrowed(bytes);
            } else {
                payload.to_mut().extend_from_slice(bytes);
            }
        }
        Some(payload)
    }

    /// Appends the message to `out` with `id` as its message id, and otherwise unchanged. The message must
    /// not have a message id.
    pub fn with_message_id(&self, id: &str, out: &mut Vec<u8>) {
        self.write(out, |sections| {
            sections.composite(Kind::Properties as u64, |fields| {
                fields.value(id);
                let mut rest = self.properties.raw();
                rest.next();
                fields.encoded(self.properties.count().saturating_sub(1), rest.rest());
            });
        });
    }

    /// Appends the sections in the order of the standard, with the properties that `properties` writes.
    fn write(&self, out: &mut Vec<u8>, properties: impl FnOnce(&mut Writer<'_>)) {
        out.reserve(self.body.len() + 512);
        let mut sections = Writer::new(out);
        if self.header.count() > 0 {
            sections.section(Kind::Header, ValueRef::List(self.header));
        }
        sections.annotations(Kind::DeliveryAnnotations, self.delivery_annotations);
        sections.annotations(Kind::MessageAnnotations, self.message_annotations);
        properties(&mut sections);
        sections.annotations(Kind::ApplicationProperties, self.application_properties);
        out.extend_from_slice(self.body);
        out.extend_from_slice(self.footer);
    }

    /// Whether the message has a message id.
    pub fn has_message_id(&self) -> bool {
        !self.properties().value(Field::MessageId).is_null()
    }

    /// Returns the properties in their encoded form.
    pub(super) fn properties_list(&self) -> List<'a> {
        self.properties
    }
}

/// Kind of a section; the numbers are the descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Header = 0x70,
    DeliveryAnnotations,
    MessageAnnotations,
    Properties,
    ApplicationProperties,
    Data,
    Sequence,
    Value,
    Footer,
}

impl Kind {
    const ALL: [Self; 9] = [
        Self::Header,
        Self::DeliveryAnnotations,
        Self::MessageAnnotations,
        Self::Properties,
        Self::ApplicationProperties,
        Self::Data,
        Self::Sequence,
        Self::Value,
        Self::Footer,
    ];

    /// Whether a body may have several adjacent sections of this kind.
    fn may_repeat(self) -> bool {
        matches!(self, Self::Data | Self::Sequence)
    }

    fn is_body(self) -> bool {
        matches!(self, Self::Data | Self::Sequence | Self::Value)
    }

    fn bit(self) -> u16 {
        1 << (self as u64 - Self::Header as u64)
    }

    /// Returns the kinds that rule this one out if they came before: each section may be there once, and a
    /// body is data sections, sequences, or one value.
    fn excludes(self) -> u16 {
        if self.is_body() {
            Self::Data.bit() | Self::Sequence.bit() | Self::Value.bit()
        } else {
            self.bit()
        }
    }
}

impl Writer<'_> {
    /// Writes a section that is a map, unless the map is empty.
    fn annotations(&mut self, kind: Kind, map: Map<'_>) {
        if !map.is_empty() {
            self.section(kind, ValueRef::Map(map));
        }
    }

    fn section(&mut self, kind: Kind, value: ValueRef<'_>) {
        self.described(kind as u64, |writer| writer.value(value));
    }
}

/// Returns the kind of the first section, and the bytes behind its descriptor.
#[inline]
pub(super) fn section(bytes: &[u8]) -> Result<(Kind, &[u8]), Malformed> {
    let (descriptor, value) = described(bytes)?;
    let index = descriptor.wrapping_sub(Kind::Header as u64);
    let kind = usize::try_from(index).ok().and_then(|index| Kind::ALL.get(index));
    Ok((*kind.ok_or(Malformed::NotASection)?, value))
}
