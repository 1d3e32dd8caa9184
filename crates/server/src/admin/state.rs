//! `/v1/tenants/{tenant}/state`: the keys of the state store, from memory.

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::Uri;
use barid_core::state_store::EntryView;
use barid_engine::tenant::Tenant;
use data_encoding::BASE64URL_NOPAD;
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::answer::{Answer, Refusal};
use super::page::{LIMIT_MAX, check_limit, cut};
use super::readable::Readable;
use super::rfc3339::Rfc3339;
use super::{Served, tenants};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Question {
    /// Only keys that begin with this.
    prefix: String,
    /// The `next` of an earlier answer: the page behind it.
    after: Option<String>,
    /// Maximum number of items in the answer; 100 if it is not given.
    limit: usize,
}

impl Default for Question {
    fn default() -> Self {
        Self { prefix: String::new(), after: None, limit: 100 }
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = KeyList)]
pub struct Page {
    keys: Vec<Described>,
    /// The last key in base64url, if there are more: the next page is the one `after` it.
    next: Option<String>,
    /// What the tenant has in its state store.
    usage: Usage,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = StateStoreUsage)]
struct Usage {
    keys: u64,
    /// Bytes of keys and values, with an overhead for each key.
    bytes: u64,
    /// Keys that clients watch.
    watchers: u64,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = KeySummary)]
struct Described {
    /// The key, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// The key in Base64, if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    /// The version, a reading of a hybrid logical clock.
    version: String,
    /// Length of the value, in bytes.
    value_bytes: usize,
    /// The highest fencing token that was shown; `None`: none was.
    fencing_token: Option<String>,
    /// `None`: the key does not expire.
    expires_at: Option<Rfc3339>,
    /// `local`: the key is on the disk; `memory`: it is not.
    durability: &'static str,
    #[serde(skip)]
    bytes: Vec<u8>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = KeyWithValue)]
pub struct Detailed {
    #[serde(flatten)]
    described: Described,
    /// The value, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    /// The value in Base64, if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
}

/// Lists keys of the state store.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/state", operation_id = "list_keys",
    params(Question),
    responses((status = 200, body = Page))
)]
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

/// Shows a key of the state store, with its value.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/state/{key}", operation_id = "show_key",
    responses((status = 200, body = Detailed))
)]
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
    let Readable { text, base64 } = Readable::whole(entry.value);
    Ok(Json(Detailed { described: describe(entry), value: text, value_base64: base64 }))
}

fn describe(entry: EntryView<'_>) -> Described {
    let key = Readable::whole(entry.key);
    Described {
        key: key.text,
        key_base64: key.base64,
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
