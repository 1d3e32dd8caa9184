//! The sections of a message.

use std::borrow::Cow;

use super::header::Header;
use super::properties::{Field, Properties};
use super::value::{List, Map, ValueRef};
use super::wire::{Malformed, checked_len, code, split_value, value_len};
use super::writer::{Writer, begin, end, variable};

/// Where the sections of an encoded message are.
#[derive(Clone, Copy, Debug)]
pub struct Sections<'a> {
    header: List<'a>,
    delivery_annotations: Map<'a>,
    message_annotations: Map<'a>,
    properties: List<'a>,
    application_properties: Map<'a>,
    /// All from the first section of the body.
    body: &'a [u8],
}

impl<'a> Sections<'a> {
    /// Finds them. A message may be without any of them, even without a body.
    ///
    /// # Errors
    /// The message is not well-formed before its body, or its sections are not those of a message, in
    /// their order (section 3.2). What the values in its body contain is not looked at.
    pub fn split(message: &'a [u8]) -> Result<Self, Malformed> {
        Self::find(message, checked_len)
    }

    /// The same, of a message that passed [`Sections::split`] before: it looks at the sections only, not at
    /// the values in them.
    ///
    /// # Errors
    /// It did not pass.
    pub fn of_known(message: &'a [u8]) -> Result<Self, Malformed> {
        Self::find(message, value_len)
    }

    /// `len` tells the bytes of a section before the body.
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
        };
        let mut rest = message;
        let mut before = None;
        while !rest.is_empty() {
            let (kind, value) = section(rest)?;
            if before.is_some_and(|before| !kind.may_follow(before)) {
                return Err(Malformed::Order);
            }
            if kind >= Kind::Data && sections.body.is_empty() {
                sections.body = rest;
            }
            before = Some(kind);
            let (value, behind) =
                if kind < Kind::Data { value.split_at(len(value)?) } else { split_value(value)? };
            rest = behind;
            match (kind, ValueRef::parse(value)?) {
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

    /// The header, with its defaults if there is none.
    pub fn header(&self) -> Header {
        Header::of(self.header)
    }

    /// Annotations for the next on the way only.
    pub fn delivery_annotations(&self) -> Map<'a> {
        self.delivery_annotations
    }

    /// Annotations of the message.
    pub fn annotations(&self) -> Map<'a> {
        self.message_annotations
    }

    /// The properties, all of them null if there are none.
    pub fn properties(&self) -> Properties<'a> {
        Properties::of(self.properties)
    }

    /// The application properties.
    pub fn application_properties(&self) -> Map<'a> {
        self.application_properties
    }

    /// All sections of the body and the footer, as they were sent.
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// The value of a body that is one value of AMQP.
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
        ValueRef::parse(&value[..checked_len(value)?]).map(Some)
    }

    /// The bytes of a body of data sections, put together if there are many, or of a string or binary
    /// data as its value. `None` for all other bodies; one that is absent is empty.
    pub fn payload(&self) -> Option<Cow<'a, [u8]>> {
        let mut payload: Cow<'a, [u8]> = Cow::Borrowed(&[]);
        let mut rest = self.body;
        while !rest.is_empty() {
            let (kind, value) = section(rest).ok()?;
            let (value, behind) = split_value(value).ok()?;
            rest = behind;
            let bytes = match (kind, ValueRef::parse(value).ok()?) {
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

    /// Appends the message to `out` with `id` as its message id, which it must not have. Keeps all else.
    pub fn with_message_id(&self, id: &str, out: &mut Vec<u8>) {
        out.reserve(self.body.len() + id.len() + 512);
        if self.header.count() > 0 {
            Writer::section(out, Kind::Header, ValueRef::List(self.header));
        }
        if !self.delivery_annotations.is_empty() {
            let annotations = ValueRef::Map(self.delivery_annotations);
            Writer::section(out, Kind::DeliveryAnnotations, annotations);
        }
        if !self.message_annotations.is_empty() {
            let annotations = ValueRef::Map(self.message_annotations);
            Writer::section(out, Kind::MessageAnnotations, annotations);
        }
        out.extend_from_slice(&Kind::Properties.descriptor());
        let start = begin(out, code::LIST_32);
        variable(out, code::STRING_8, id.as_bytes());
        for value in self.properties.raw().skip(1) {
            out.extend_from_slice(value);
        }
        end(out, start, self.properties.count().max(1));
        if !self.application_properties.is_empty() {
            let properties = ValueRef::Map(self.application_properties);
            Writer::section(out, Kind::ApplicationProperties, properties);
        }
        out.extend_from_slice(self.body);
    }

    /// Whether it has a message id.
    pub fn has_message_id(&self) -> bool {
        !self.properties().value(Field::MessageId).is_null()
    }

    /// The properties as they are encoded.
    pub(super) fn properties_list(&self) -> List<'a> {
        self.properties
    }
}

/// What a section is; the numbers are their descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
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
    const ALL: [(Self, &str); 9] = [
        (Self::Header, "amqp:header:list"),
        (Self::DeliveryAnnotations, "amqp:delivery-annotations:map"),
        (Self::MessageAnnotations, "amqp:message-annotations:map"),
        (Self::Properties, "amqp:properties:list"),
        (Self::ApplicationProperties, "amqp:application-properties:map"),
        (Self::Data, "amqp:data:binary"),
        (Self::Sequence, "amqp:amqp-sequence:list"),
        (Self::Value, "amqp:amqp-value:*"),
        (Self::Footer, "amqp:footer:map"),
    ];

    fn of(descriptor: ValueRef<'_>) -> Option<Self> {
        let is_own = |(kind, name): &&(Self, &str)| match descriptor {
            ValueRef::Ulong(code) => code == *kind as u64,
            ValueRef::Symbol(text) => text == *name,
            _ => false,
        };
        Self::ALL.iter().find(is_own).map(|(kind, _)| *kind)
    }

    /// A body is data sections, sequences, or one value.
    fn may_follow(self, before: Self) -> bool {
        match (before, self) {
            (Self::Data, Self::Data) | (Self::Sequence, Self::Sequence) => true,
            (Self::Data | Self::Sequence | Self::Value, Self::Footer) => true,
            (Self::Data | Self::Sequence | Self::Value, _) => false,
            (before, next) => before < next,
        }
    }

    /// What a section of this kind begins with.
    pub(super) fn descriptor(self) -> [u8; 3] {
        [code::DESCRIBED, code::SMALL_ULONG, self as u8]
    }
}

impl Writer<'_> {
    fn section(out: &mut Vec<u8>, kind: Kind, value: ValueRef<'_>) {
        out.extend_from_slice(&kind.descriptor());
        Writer::new(out).value(value);
    }
}

/// The kind of the first section, and all after its descriptor.
#[inline]
pub(super) fn section(bytes: &[u8]) -> Result<(Kind, &[u8]), Malformed> {
    if let [code::DESCRIBED, code::SMALL_ULONG, number, value @ ..] = bytes {
        let index = usize::from(number.wrapping_sub(Kind::Header as u8));
        let (kind, _) = Kind::ALL.get(index).ok_or(Malformed::NotASection)?;
        return Ok((*kind, value));
    }
    let Some((&code::DESCRIBED, descriptor)) = bytes.split_first() else {
        return Err(Malformed::NotASection);
    };
    let (descriptor, value) = split_value(descriptor)?;
    let kind = Kind::of(ValueRef::parse(descriptor)?).ok_or(Malformed::NotASection)?;
    Ok((kind, value))
}
