//! `/v1/tenants/{tenant}/state`: the keys of the state store, from memory.

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::Uri;
use barid_core::state_store::EntryView;
use barid_engine::tenant::Tenant;
use data_encoding::{BASE64, BASE64URL_NOPAD};
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};

use super::answer::{Answer, Refusal};
use super::page::{LIMIT_MAX, check_limit, cut};
use super::rfc3339::Rfc3339;
use super::{Served, tenants};

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Question {
    prefix: String,
    after: Option<String>,
    limit: usize,
}

impl Default for Question {
    fn default() -> Self {
        Self { prefix: String::new(), after: None, limit: 100 }
    }
}

#[derive(Debug, Serialize)]
pub struct Page {
    keys: Vec<Described>,
    /// The last key in base64url, if there are more: the next page is the one `after` it.
    next: Option<String>,
    usage: Usage,
}

#[derive(Debug, Serialize)]
struct Usage {
    keys: u64,
    bytes: u64,
    watchers: u64,
}

#[derive(Debug, Serialize)]
struct Described {
    #[serde(flatten)]
    key: Key,
    version: String,
    value_bytes: usize,
    fencing_token: Option<String>,
    expires_at: Option<Rfc3339>,
    durability: &'static str,
    #[serde(skip)]
    bytes: Vec<u8>,
}

#[derive(Debug, Serialize)]
pub struct Detailed {
    #[serde(flatten)]
    described: Described,
    #[serde(flatten)]
    value: Value,
}

/// A key, as text if it is UTF-8.
#[derive(Debug, Serialize)]
enum Key {
    #[serde(rename = "key")]
    Text(String),
    #[serde(rename = "key_base64")]
    Binary(String),
}

#[derive(Debug, Serialize)]
enum Value {
    #[serde(rename = "value")]
    Text(String),
    #[serde(rename = "value_base64")]
    Binary(String),
}

pub async fn list(
    State(served): State<Served>,
    path: Result<Path<String>, PathRejection>,
    question: Result<Query<Question>, QueryRejection>,
) -> Answer<Page> {
    let (Path(tenant), Query(question)) = (path?, question?);
    check_limit(question.limit, LIMIT_MAX)?;
    let after = question.after.as_deref().unwrap_or_default();
    let after = BASE64URL_NOPAD
        .decode(after.as_bytes())
        .map_err(|_| Refusal::bad_request("`after` must be the `next` of an earlier answer"))?;
    let tenant = tenants::named(&served, &tenant)?;
    let store = tenant.state_store();
    let now = served.shared.engine.clock.wall();
    let mut keys = Vec::new();
    for shard in tenant.shards.iter() {
        let partition = store.partition(shard.index());
        let entries = partition.entries(now, question.prefix.as_bytes(), &after);
        keys.extend(entries.take(question.limit + 1).map(describe));
    }
    keys.sort_unstable_by(|a, b| a.bytes.cmp(&b.bytes));
    let (keys, next) = cut(keys, question.limit, |last| BASE64URL_NOPAD.encode(&last.bytes));
    Ok(Json(Page { keys, next, usage: usage(&tenant) }))
}

pub async fn show(State(served): State<Served>, uri: Uri) -> Answer<Detailed> {
    // A key need not be UTF-8, which `Path` requires.
    let mut segments = uri.path().split('/').skip(3).map(percent_decode_str);
    let tenant = segments.next().unwrap_or_else(|| percent_decode_str(""));
    let tenant = tenant.decode_utf8_lossy();
    let key: Vec<u8> = segments.nth(1).into_iter().flatten().collect();
    let tenant = tenants::named(&served, &tenant)?;
    let now = served.shared.engine.clock.wall();
    let shard = tenant.shards.of_key(&tenant.name, &key);
    let partition = tenant.state_store().partition(shard);
    let entry = partition.entry(now, &key).ok_or_else(|| {
        let key = String::from_utf8_lossy(&key);
        Refusal::not_found(format!("the tenant {:?} has no key {key:?}", tenant.name))
    })?;
    let value = match std::str::from_utf8(entry.value) {
        Ok(text) => Value::Text(text.into()),
        Err(_) => Value::Binary(BASE64.encode(entry.value)),
    };
    Ok(Json(Detailed { described: describe(entry), value }))
}

fn describe(entry: EntryView<'_>) -> Described {
    let key = match std::str::from_utf8(entry.key) {
        Ok(text) => Key::Text(text.into()),
        Err(_) => Key::Binary(BASE64.encode(entry.key)),
    };
    Described {
        key,
        version: entry.version.to_string(),
        value_bytes: entry.value.len(),
        fencing_token: entry.fencing_token.map(|token| token.as_hlc().to_string()),
        expires_at: entry.expires_at.map(Rfc3339::from),
        durability: if entry.stored { "local" } else { "memory" },
        bytes: entry.key.to_vec(),
    }
}

fn usage(tenant: &Tenant) -> Usage {
    let usage = tenant.state_store().usage();
    Usage { keys: usage.keys(), bytes: usage.bytes(), watchers: usage.watchers() }
}
