//! The description of the API in the format of OpenAPI 3.1. Most of it is made from the types of requests and answers and
//! from the comments on them. What all operations have in common is added here.

use std::fmt::Write as _;

use axum::http::StatusCode;
use serde_json::{Map, Value, json};
use utoipa::PartialSchema as _;
use utoipa::openapi::OpenApi;

use super::answer::Error;
use super::{access, passing_on};

/// What every part of the document may say about itself.
const DESCRIPTION: &str = "Inspects and changes a running broker. Names in a path are percent-encoded UTF-8: the client `a/b` is \
                           `a%2Fb`. Times are in UTC with milliseconds. Later versions may add members to answers.";

/// Parts of paths: their names, and what they stand for.
const IN_PATHS: [(&str, &str); 13] = [
    ("tenant", "The name of the tenant."),
    ("client", "The MQTT client identifier; of a user, what its name has after the tenant."),
    ("ban", "The id of the ban."),
    ("token", "The id of the token."),
    ("topic", "The topic: of a retained message that of MQTT, otherwise the name of the entity."),
    ("id", "The number of the connection."),
    ("key", "The key."),
    ("queue", "The name of the queue."),
    ("subscription", "The name of the subscription."),
    ("rule", "The name of the rule."),
    ("binding", "The name of the binding."),
    ("shard", "The number of the shard."),
    ("slot", "The number of the slot."),
];

/// Methods, in the order in which people read them.
const METHODS: [&str; 5] = ["get", "put", "patch", "delete", "post"];

/// Returns the list of all paths, with a line for each operation.
pub fn index(api: &OpenApi) -> String {
    let mut text = String::new();
    for (path, item) in &api.paths.paths {
        let _ = writeln!(text, "{}", path.replace("{*", "{"));
        let item = serde_json::to_value(item).expect("its keys are text");
        for method in METHODS {
            if let Some(told) = item[method]["summary"].as_str() {
                let _ =
                    writeln!(text, "    {:6}  {}", method.to_uppercase(), first_sentence(told).0);
            }
        }
    }
    text.push_str("/v1/openapi.json\n    GET     Describes all this in the format of OpenAPI.\n");
    text.push_str("/dashboard/\n    GET     Shows the dashboard, in browsers.\n");
    text
}

/// Splits a comment behind its first sentence.
fn first_sentence(text: &str) -> (&str, &str) {
    match text.find(". ") {
        Some(end) => (&text[..=end], &text[end + 2..]),
        None => (text, ""),
    }
}

/// Returns the whole document.
pub fn document(api: &OpenApi) -> Value {
    let mut document = serde_json::to_value(api).expect("its keys are text");
    document["info"] = json!({
        "title": "Barid admin API", "version": env!("CARGO_PKG_VERSION"), "description": DESCRIPTION,
        "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
    });
    document["components"]["schemas"]["Error"] = json!(Error::schema());
    document["components"]["securitySchemes"] =
        json!({ "token": { "type": "http", "scheme": "bearer" } });
    let mut paths = Map::new();
    for (path, mut item) in taken(&mut document["paths"]) {
        for (method, operation) in item.as_object_mut().into_iter().flatten() {
            complete(&path, method, operation);
        }
        // In OpenAPI a part of a path has no slash, so clients encode it.
        paths.insert(path.replace("{*", "{"), item);
    }
    document["paths"] = paths.into();
    translate(&mut document);
    open_parts(&mut document);
    document
}

/// Lets the objects that are parts of others have more members: those of the other parts.
fn open_parts(document: &mut Value) {
    let mut parts = Vec::new();
    collect_parts(document, &mut parts);
    for name in parts {
        if let Some(part) = document["components"]["schemas"][name].as_object_mut() {
            part.remove("additionalProperties");
        }
    }
}

/// Collects the names of the schemas that are parts of others.
fn collect_parts(value: &Value, names: &mut Vec<String>) {
    for part in value["allOf"].as_array().into_iter().flatten() {
        let name = part["$ref"].as_str().and_then(|reference| reference.rsplit('/').next());
        names.extend(name.map(Into::into));
    }
    match value {
        Value::Object(members) => members.values().for_each(|member| collect_parts(member, names)),
        Value::Array(items) => items.iter().for_each(|item| collect_parts(item, names)),
        _ => {}
    }
}

/// Adds to an operation what follows from its path and method.
fn complete(path: &str, method: &str, operation: &mut Value) {
    let names = path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    let in_path = names.map(|name| name.trim_start_matches('*')).map(|name| {
        let known = IN_PATHS.iter().find(|(known, _)| *known == name);
        let (_, description) = known.expect("every part of a path is described");
        let kind = if matches!(name, "id" | "shard" | "slot") { "integer" } else { "string" };
        json!({ "name": name, "in": "path", "required": true, "description": description, "schema": { "type": kind } })
    });
    let mut parameters: Vec<Value> = in_path.collect();
    if let Value::Array(others) = operation["parameters"].take() {
        parameters.extend(others);
    }
    if method == "put" {
        parameters.push(json!({
            "name": "If-None-Match", "in": "header", "schema": { "type": "string", "const": "*" },
            "description": "With `*`, what exists is not replaced: the answer is 412.",
        }));
    }
    if access::role_for(path, true).is_some() && !passing_on::is_of_tenant(path) {
        parameters.push(json!({
            "name": "Barid-Broker", "in": "header", "schema": { "type": "string" },
            "description": "The broker of the cluster that is to answer; without it the one that is asked. (About a session that is not there \
                            the broker of its slot is asked.)",
        }));
    }
    operation["parameters"] = parameters.into();
    let collection = path.trim_start_matches("/v1/tenants/{tenant}/").trim_start_matches("/v1/");
    let tag = collection.split('/').find(|part| !part.is_empty()).unwrap_or("broker");
    operation["tags"] = json!([tag]);
    for (status, response) in operation["responses"].as_object_mut().into_iter().flatten() {
        let status = status.parse().ok().and_then(|code| StatusCode::from_u16(code).ok());
        let phrase = status.and_then(|status| status.canonical_reason()).unwrap_or_default();
        if response["description"].as_str().is_none_or(str::is_empty) {
            response["description"] = phrase.into();
        }
    }
    let told = operation["summary"].as_str().unwrap_or_default().to_owned();
    let (first, rest) = first_sentence(&told);
    operation["summary"] = first.into();
    let more = operation["description"].as_str().unwrap_or_default();
    let mut description = [rest, more].join(" ").trim().to_owned();
    match access::role_for(path, method == "get") {
        Some(role) => {
            let _ = write!(description, " Needs the role `{}`.", role.name());
            operation["security"] = json!([{ "token": [] }, {}]);
        }
        None => operation["security"] = json!([]),
    }
    operation["description"] = description.trim().into();
    operation["responses"]["default"] = json!({
        "description": "An error, with a sentence about it.",
        "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Error" } } },
    });
}

/// Rewrites comments for readers who know JSON and not Rust. A value of one of several types may also be of two: every
/// integer is a number.
fn translate(value: &mut Value) {
    match value {
        Value::Object(members) => {
            if let Some(types) = members.remove("oneOf") {
                members.insert("anyOf".into(), types);
            }
            for (name, member) in members {
                match member {
                    Value::String(text) if matches!(&**name, "description" | "summary") => {
                        *text =
                            text.replace("[`", "`").replace("`]", "`").replace("`None`", "`null`");
                    }
                    member => translate(member),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(translate),
        _ => {}
    }
}

fn taken(value: &mut Value) -> Map<String, Value> {
    match value.take() {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}
