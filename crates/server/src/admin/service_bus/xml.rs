//! Elements, read and written.

use std::fmt::{self, Display, Write as _};

use roxmltree::{Document, Node, ParsingOptions};

use crate::admin::answer::Refusal;

/// Namespace of entries and feeds (RFC 4287).
pub const ATOM: &str = "http://www.w3.org/2005/Atom";

/// Namespace of the descriptions of entities.
pub const SERVICE_BUS: &str = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect";

/// Namespace of the numbers of messages in an entity.
pub const COUNTS: &str = "http://schemas.microsoft.com/netservices/2011/06/servicebus";

/// Namespace of the attribute `type`.
pub const INSTANCE: &str = "http://www.w3.org/2001/XMLSchema-instance";

/// Namespace of the types of values.
pub const SCHEMA: &str = "http://www.w3.org/2001/XMLSchema";

/// Maximum number of elements, attributes and texts in a document. A subscription with the filter of its first rule
/// has a few dozen of them.
const NODES_MAX: u32 = 10_000;

/// Parses a document. One with a DTD is refused, because its entities can expand.
pub fn parse(body: &[u8]) -> Result<Document<'_>, Refusal> {
    let malformed =
        |what: &dyn Display| Refusal::bad_request(format!("the body is not valid XML: {what}"));
    let text = std::str::from_utf8(body).map_err(|error| malformed(&error))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let options =
        ParsingOptions { allow_dtd: false, nodes_limit: NODES_MAX, ..ParsingOptions::default() };
    Document::parse_with_options(text, options).map_err(|error| malformed(&error))
}

/// Returns the element that describes an entity: the only one in the content of an entry.
pub fn description<'a, 'input>(
    document: &'a Document<'input>,
) -> Result<Node<'a, 'input>, Refusal> {
    let entry = document.root_element();
    let content = children(entry).find(|child| name(*child) == "content");
    content.and_then(|content| children(content).next()).ok_or_else(|| {
        Refusal::bad_request(
            "the body must be an entry with a description of an entity as its content",
        )
    })
}

/// Returns the elements in an element.
pub fn children<'a, 'input: 'a>(of: Node<'a, 'input>) -> impl Iterator<Item = Node<'a, 'input>> {
    of.children().filter(Node::is_element)
}

/// Returns the child with this name.
pub fn child<'a, 'input: 'a>(of: Node<'a, 'input>, wanted: &str) -> Option<Node<'a, 'input>> {
    children(of).find(|child| name(*child) == wanted)
}

/// Returns the name of an element, without its namespace. Clients differ in the namespaces that they declare.
pub fn name<'a>(of: Node<'a, '_>) -> &'a str {
    of.tag_name().name()
}

/// Returns the text in an element; empty if there is none.
pub fn text<'a>(of: Node<'a, '_>) -> &'a str {
    of.text().unwrap_or_default()
}

/// Returns the attribute `type` of an element, without a prefix.
pub fn kind<'a>(of: Node<'a, '_>) -> &'a str {
    let written = of.attribute((INSTANCE, "type")).unwrap_or_default();
    written.rsplit_once(':').map_or(written, |(_, name)| name)
}

/// A document that is being written.
#[derive(Debug, Default)]
pub struct Writer(String);

impl Writer {
    /// Writes an element with these attributes, and what `content` writes into it.
    pub fn element(
        &mut self,
        name: &str,
        attributes: &[(&str, &str)],
        content: impl FnOnce(&mut Self),
    ) {
        let _ = write!(self.0, "<{name}");
        for (attribute, value) in attributes {
            let _ = write!(self.0, " {attribute}=\"{}\"", Escaped(value));
        }
        self.0.push('>');
        content(self);
        let _ = write!(self.0, "</{name}>");
    }

    /// Writes an element with a text.
    pub fn text(&mut self, name: &str, text: impl Display) {
        self.element(name, &[], |xml| xml.raw_text(text));
    }

    /// Writes a text into the current element.
    pub fn raw_text(&mut self, text: impl Display) {
        let _ = write!(self.0, "{}", Escaped(&text.to_string()));
    }

    /// Returns the document.
    pub fn finish(self) -> String {
        self.0
    }
}

/// A text in which characters with a meaning are escaped. Characters that XML cannot have are replaced.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                // A parser would read these as spaces, or not at all.
                '\t' | '\n' | '\r' => write!(f, "&#{};", u32::from(c))?,
                // XML 1.0, 2.2.
                '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => {
                    f.write_char(char::REPLACEMENT_CHARACTER)?
                }
                _ => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for text in ["a < b && c > 'd' \"e\"", "tab\tline\nreturn\r", " spaces ", "ä\u{1f600}"] {
            let mut xml = Writer::default();
            xml.element("a", &[("b", text)], |xml| xml.text("c", text));
            let written = xml.finish();
            let document = parse(written.as_bytes()).unwrap();
            let root = document.root_element();
            assert_eq!(root.attribute("b"), Some(text));
            assert_eq!(super::text(child(root, "c").unwrap()), text);
        }
        let mut xml = Writer::default();
        xml.text("a", "\0\u{ffff}");
        assert_eq!(xml.finish(), "<a>\u{fffd}\u{fffd}</a>");
    }

    #[test]
    fn bombs_are_refused() {
        let entities = "<!DOCTYPE a [<!ENTITY b \"xx\"><!ENTITY c \"&b;&b;\">]><a>&c;</a>";
        let many = format!("<a>{}</a>", "<b/>".repeat(20_000));
        let deep = format!("{}{}", "<a>".repeat(20_000), "</a>".repeat(20_000));
        for bomb in [entities, &many, &deep, "<a", "", "<a>\u{0}</a>"] {
            assert!(parse(bomb.as_bytes()).is_err(), "{bomb:.40}");
        }
        assert!(parse(b"<a>\xff</a>").is_err());
    }

    #[test]
    fn a_type_has_any_prefix() {
        let text = format!("<a xmlns:p4='{INSTANCE}' p4:type='d6p1:int'/>");
        let document = parse(text.as_bytes()).unwrap();
        assert_eq!(kind(document.root_element()), "int");
    }
}
