//! The `Config.json` of Microsoft's Service Bus emulator, whose entities Barid declares as well.
//!
//! The file is JSON that may contain comments and trailing commas.

use std::ops::Range;
use std::path::Path;

use barid_engine::entities::Definitions;
use barid_server::settings::Settings;
use jsonc_parser::ast::{ObjectProp, Value as Node};
use jsonc_parser::common::Ranged as _;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_path_to_error::{Path as Way, Segment};

use super::entities::{self, Words};
use super::hints;
use super::problem::{Place, Problem, Step};

/// Tenant for namespaces that do not have the name of a configured tenant.
const TENANT: &str = "default";

const WORDS: Words = Words {
    queues: "Queues",
    topics: "Topics",
    subscriptions: "Subscriptions",
    rules: "Rules",
    name: "Name",
    properties: "Properties",
};

/// JSON extended by comments and trailing commas.
const SYNTAX: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct File {
    user_config: UserConfig,
    #[serde(rename = "$schema")]
    _schema: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct UserConfig {
    namespaces: Vec<Namespace>,
    /// Logging of the emulator; ignored.
    #[serde(rename = "Logging")]
    _logging: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Namespace {
    name: String,
    #[serde(default)]
    queues: Vec<Value>,
    #[serde(default)]
    topics: Vec<Value>,
}

/// Adds the entities that the file declares to `settings`.
///
/// # Errors
/// All problems of the file.
pub fn declare(file: &Path, settings: &mut Settings) -> Result<(), Vec<Problem>> {
    let origin = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|error| {
        vec![Problem::elsewhere(&origin, format!("cannot be read: {error}"), None)]
    })?;
    declare_text(&origin, &text, settings)
}

fn declare_text(origin: &str, text: &str, settings: &mut Settings) -> Result<(), Vec<Problem>> {
    let document = Document::parse(origin, text)?;
    let file: File = document.read(&document.value, &Place::default())?;
    let namespaces = Place::of(&["UserConfig", "Namespaces"]);
    let mut problems = Vec::new();
    for (i, namespace) in file.user_config.namespaces.into_iter().enumerate() {
        let place = namespaces.index(i);
        let definitions = match document.definitions(&namespace, &place) {
            Ok(definitions) => definitions,
            Err(found) => {
                problems.extend(found);
                continue;
            }
        };
        entities::each(&definitions, &WORDS, |below, error| {
            let place = entities::below(&place, below);
            problems.push(document.problem(&place, error.to_string(), Some(entities::HINT.into())));
        });
        let is_tenant = settings.tenants.contains_key(&namespace.name);
        let tenant = if is_tenant { &*namespace.name } else { TENANT };
        if let Err(error) = with(settings, tenant, &definitions).check()
            && problems.is_empty()
        {
            problems.push(document.problem(&place, error.to_string(), None));
        }
        settings.declare(tenant, definitions);
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// Returns a tenant's definitions together with `more`.
fn with(settings: &Settings, tenant: &str, more: &Definitions) -> Definitions {
    let mut all = settings.declared().remove(tenant).unwrap_or_default();
    all.queues.extend(more.queues.iter().cloned());
    all.topics.extend(more.topics.iter().cloned());
    all
}

/// A text that knows the position of each of its values.
struct Document<'a> {
    origin: &'a str,
    text: &'a str,
    root: Node<'a>,
    value: Value,
}

impl<'a> Document<'a> {
    fn parse(origin: &'a str, text: &'a str) -> Result<Self, Vec<Problem>> {
        let syntax = |range: Range<usize>, message: String| {
            vec![Problem::in_text(origin, text, range, message, None)]
        };
        let parsed = parse_to_ast(text, &CollectOptions::default(), &SYNTAX)
            .map_err(|error| syntax(span(error.range()), error.kind().to_string()))?;
        let root = parsed.value.ok_or_else(|| syntax(0..0, "the file is empty".into()))?;
        if let Some(again) = twice(&root) {
            let message = format!("`{}` occurs twice", again.name.as_str());
            return Err(syntax(span(again.range), message));
        }
        let value = root.clone().into();
        Ok(Self { origin, text, root, value })
    }

    /// Returns the entities of a namespace, or all problems in their definitions.
    fn definitions(
        &self,
        namespace: &Namespace,
        place: &Place,
    ) -> Result<Definitions, Vec<Problem>> {
        let (mut definitions, mut problems) = (Definitions::default(), Vec::new());
        for (i, queue) in namespace.queues.iter().enumerate() {
            match self.read(queue, &place.key("Queues").index(i)) {
                Ok(queue) => definitions.queues.push(queue),
                Err(found) => problems.extend(found),
            }
        }
        for (i, topic) in namespace.topics.iter().enumerate() {
            match self.read(topic, &place.key("Topics").index(i)) {
                Ok(topic) => definitions.topics.push(topic),
                Err(found) => problems.extend(found),
            }
        }
        if problems.is_empty() { Ok(definitions) } else { Err(problems) }
    }

    /// Reads the value at `place`.
    fn read<T: for<'de> Deserialize<'de>>(
        &self,
        value: &Value,
        place: &Place,
    ) -> Result<T, Vec<Problem>> {
        serde_path_to_error::deserialize(value).map_err(|error| {
            let (message, hint) = hints::explain(&error.inner().to_string());
            let spot = self.locate(&entities::below(place, place_of(error.path())));
            let is_key = message.starts_with("unknown key");
            let marked = if is_key { spot.key } else { spot.value };
            vec![Problem::in_text(self.origin, self.text, marked, message, hint)]
        })
    }

    fn problem(&self, place: &Place, message: String, hint: Option<String>) -> Problem {
        Problem::in_text(self.origin, self.text, self.locate(place).value, message, hint)
    }

    /// Returns the position of `place`, or of the innermost element around it.
    fn locate(&self, place: &Place) -> Spot {
        let (mut node, mut spot) = (&self.root, Spot { key: 0..0, value: 0..0 });
        for step in &place.0 {
            (node, spot) = match (step, node) {
                (Step::Key(key), Node::Object(object)) => match object.get(key) {
                    Some(entry) => (&entry.value, Spot::of_entry(entry)),
                    None => break,
                },
                (Step::Index(index), Node::Array(array)) => match array.elements.get(*index) {
                    Some(element) => (element, Spot::of_element(element)),
                    None => break,
                },
                _ => break,
            };
        }
        spot
    }
}

/// Ranges to mark for an entry or an element.
struct Spot {
    key: Range<usize>,
    /// Range of the value if it is a scalar, else of its beginning.
    value: Range<usize>,
}

impl Spot {
    fn of_entry(entry: &ObjectProp<'_>) -> Self {
        let start = entry.range.start;
        let key = start..start + entry.name.as_str().len() + 2;
        let value = match &entry.value {
            Node::Object(_) | Node::Array(_) => key.clone(),
            value => span(value.range()),
        };
        Self { key, value }
    }

    fn of_element(element: &Node<'_>) -> Self {
        let range = span(element.range());
        let value = match element {
            Node::Object(_) | Node::Array(_) => range.start..range.start + 1,
            _ => range,
        };
        Self { key: value.clone(), value }
    }
}

/// Returns the first entry whose key occurs earlier in the same object.
fn twice<'v, 'a>(node: &'v Node<'a>) -> Option<&'v ObjectProp<'a>> {
    match node {
        Node::Object(object) => {
            let entries = &object.properties;
            let is_again = |(i, entry): &(usize, &ObjectProp<'_>)| {
                entries[..*i].iter().any(|before| before.name.as_str() == entry.name.as_str())
            };
            let again = entries.iter().enumerate().find(is_again).map(|(_, entry)| entry);
            again.or_else(|| entries.iter().find_map(|entry| twice(&entry.value)))
        }
        Node::Array(array) => array.elements.iter().find_map(twice),
        _ => None,
    }
}

fn span(range: jsonc_parser::common::Range) -> Range<usize> {
    range.start..range.end
}

fn place_of(way: &Way) -> Place {
    let step = |segment: &Segment| match segment {
        Segment::Seq { index } => Some(Step::Index(*index)),
        Segment::Map { key } => Some(Step::Key(key.clone())),
        Segment::Enum { .. } | Segment::Unknown => None,
    };
    Place(way.iter().filter_map(step).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that `text` is refused with exactly these problems, each "line:column message" and, after an
    /// arrow, a part of the hint.
    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let problems = declare_text("c.json", text, &mut Settings::default()).unwrap_err();
        for (problem, expected) in problems.iter().zip(expected) {
            let (message, hint) = expected.split_once(" -> ").unwrap_or((expected, ""));
            let (line, column) = (problem.line.unwrap(), problem.column.unwrap());
            assert_eq!(format!("{line}:{column} {}", problem.message), message);
            let found = problem.hint.as_deref().unwrap_or_default();
            assert!(found.contains(hint), "`{hint}` is not in `{found}`");
        }
        assert_eq!(problems.len(), expected.len(), "{problems:?}");
    }

    /// Builds a namespace with these members on separate lines.
    fn namespace(members: &str) -> String {
        format!(
            "{{ \"UserConfig\": {{ \"Namespaces\": [{{ \"Name\": \"sbemulatorns\",\n{members}\n}}] }} }}"
        )
    }

    #[test]
    fn a_file_as_people_have_it() {
        let text = r#"// The configuration of the emulator
        {
          "$schema": "x",
          "UserConfig": {
            "Namespaces": [
              { "Name": "sbemulatorns",
                "Queues": [ { "Name": "orders", "Properties": { "RequiresSession": true, /* ! */ } }, ],
                "Topics": [ { "Name": "events", "Subscriptions": [ { "Name": "s" } ] } ] },
              { "Name": "acme", "Queues": [ { "Name": "orders" } ] },
            ],
            "Logging": { "Type": "File" }
          }
        }"#;
        let mut settings = Settings::default();
        settings.tenants.insert("acme".into(), Default::default());
        declare_text("c.json", text, &mut settings).unwrap();
        let declared = settings.declared();
        assert!(declared["default"].queues[0].properties.requires_session);
        assert_eq!(declared["default"].topics[0].subscriptions[0].name, "s");
        assert_eq!(declared["acme"].queues.len(), 1);
    }

    #[test]
    fn syntax() {
        check("", &["1:1 the file is empty"]);
        check("{\n  \"UserConfig\": [1 2]\n}", &["2:19 Expected comma"]);
        check("{\n  'a': 1\n}", &["2:3 Single-quoted strings are not allowed"]);
        check("{\"a\": 1,\n \"a\": 2}", &["2:2 `a` occurs twice"]);
        check("{\"a\": 1", &["1:1 Unterminated object"]);
    }

    #[test]
    fn names_and_types() {
        check("[]", &["1:1 invalid length 0, expected struct File with 2 elements"]);
        check(r#"{ "Userconfig": {} }"#, &["1:3 unknown key `Userconfig` -> `UserConfig`?"]);
        check("{}", &["1:1 the key `UserConfig` is missing"]);
        check(
            &namespace(
                "\"Queues\": [\n{ \"Name\": \"a\", \"Properties\": { \"LockDurration\": \"PT1M\" } },\n\
                 { \"Properties\": {} },\n\
                 { \"Name\": \"c\", \"Properties\": { \"LockDuration\": \"1M\" } },\n\
                 { \"Name\": \"d\", \"Properties\": { \"MaxDeliveryCount\": \"3\" } }]",
            ),
            &[
                "3:32 unknown key `LockDurration` -> did you mean `LockDuration`?",
                "4:1 the key `Name` is missing",
                "5:48 `1M` is no duration: a duration is written like PT30S, PT5M, PT1H30M or P14D",
                "6:52 string \"3\" in place of a whole number from 0 to 4294967295",
            ],
        );
    }

    #[test]
    fn what_cannot_be() {
        check(
            &namespace(
                "\"Queues\": [\n{ \"Name\": \"a\", \"Properties\": { \"MaxDeliveryCount\": 0 } },\n\
                 { \"Name\": \"b c\" }],\n\"Topics\": [{ \"Name\": \"t\", \"Subscriptions\": [\n\
                 { \"Name\": \"s\", \"Rules\": [\n{ \"Name\": \"r\", \"Properties\": { \"SqlFilter\": { \"SqlExpression\": \"a =\" } } }] }] }]",
            ),
            &[
                "3:52 queue \"a\": MaxDeliveryCount is 0, but must be from 1 to 2147483647 -> entities.md",
                "4:11 \"b c\" is not the name of a queue: letters and digits of ASCII, '.', '-', '_', '~' and '/' are allowed",
                "7:1 rule \"r\": the filter cannot be understood, at 4: expected a value, found the end",
            ],
        );
        check(
            &namespace("\"Queues\": [{ \"Name\": \"a\" }, { \"Name\": \"A\" }]"),
            &["1:34 \"A\" is declared twice"],
        );
    }

    #[test]
    fn a_name_that_the_configuration_has_already() {
        let mut settings = Settings::default();
        let text = namespace("\"Queues\": [{ \"Name\": \"a\" }]");
        declare_text("c.json", &text, &mut settings).unwrap();
        let problems = declare_text("c.json", &text, &mut settings).unwrap_err();
        assert_eq!(problems[0].message, "\"a\" is declared twice");
    }
}
