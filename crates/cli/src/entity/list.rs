//! Lists that are requested page by page, and their tables.

use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::answers::Described;
use crate::admin::{Admin, Column, Moment, Table, bytes, encode, now, span};
use crate::output::print;

/// Maximum number of elements in one request.
pub const PAGE: usize = 10_000;

/// Range of a list.
#[derive(Args)]
pub struct Paging {
    /// Maximum number to list
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = limit)]
    pub limit: usize,
    /// Start after this name
    #[arg(long, value_name = "NAME")]
    pub after: Option<String>,
}

impl Paging {
    /// The first `limit` elements.
    pub fn first(limit: usize) -> Self {
        Self { limit, after: None }
    }
}

/// Parses the number after `--limit`.
pub fn limit(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(limit) if limit > 0 => Ok(limit),
        _ => Err("a whole number, at least 1".into()),
    }
}

/// Gets the list `key` at `path`, page by page, as one answer. Its `next` is the last element if there are more,
/// else null. `not_answered`: the brokers of a cluster whose part is missing.
pub fn pages(admin: &Admin, path: &str, key: &str, paging: &Paging) -> anyhow::Result<Value> {
    let mut all = Vec::new();
    let (mut next, mut silent) = (paging.after.clone(), None);
    while all.len() < paging.limit {
        let wanted = PAGE.min(paging.limit - all.len());
        let separator = if path.contains('?') { '&' } else { '?' };
        let mut asked = format!("{path}{separator}limit={wanted}");
        if let Some(after) = &next {
            asked += &format!("&after={}", encode(after));
        }
        let mut answer = admin.get(&asked)?;
        all.extend(admin.read::<Vec<Value>>(answer[key].take())?);
        next = admin.read(answer["next"].take())?;
        if answer.get("not_answered").is_some() {
            silent.get_or_insert_with(BTreeSet::new).extend(not_answered(&answer));
        }
        if next.is_none() {
            break;
        }
    }
    let mut answer = serde_json::json!({ key: all, "next": next });
    if let Some(silent) = silent {
        answer["not_answered"] = silent.into_iter().collect();
    }
    Ok(answer)
}

/// Returns the brokers of a cluster that have not answered.
pub fn not_answered(answer: &Value) -> Vec<String> {
    let silent = answer["not_answered"].as_array().into_iter().flatten();
    silent.filter_map(|broker| broker.as_str().map(String::from)).collect()
}

/// Returns the lines below a table in which the parts of these brokers are missing.
pub fn missing(silent: &[String]) -> String {
    silent
        .iter()
        .map(|broker| format!("! {broker} has not answered: what it has is missing\n"))
        .collect()
}

/// Line below a table that is not complete.
pub const MORE: &str = "… and more: raise --limit\n";

/// Prints the queues or subscriptions at `path`. `title` is the heading of their column, `key` the name of the
/// list in answers.
pub fn print_list(
    admin: &Admin,
    path: &str,
    (title, key): (&'static str, &str),
    paging: &Paging,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let mut answer = pages(admin, path, key, paging)?;
    if json {
        print(format!("{answer}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let table = table(title, &admin.read::<Vec<Described>>(answer[key].take())?);
    let mut text = if table.is_empty() { format!("no {key}\n") } else { table.to_string() };
    if !answer["next"].is_null() {
        text += MORE;
    }
    print(text)?;
    Ok(ExitCode::SUCCESS)
}

fn table(title: &'static str, entities: &[Described]) -> Table<9> {
    let now = now();
    let mut table = Table::new([
        Column::Left(title),
        Column::Right("ACTIVE"),
        Column::Right("LOCKED"),
        Column::Right("DEFERRED"),
        Column::Right("SCHEDULED"),
        Column::Right("DEAD"),
        Column::Right("SESSIONS"),
        Column::Right("BYTES"),
        Column::Right("OLDEST"),
    ]);
    for Described { name, counts, .. } in entities {
        let Some(counts) = counts else { continue };
        let age = |oldest: &Moment| span(oldest.until(now));
        let dead = counts.dead_lettered + counts.transfer_dead_lettered;
        table.push([
            name.clone(),
            counts.active.to_string(),
            counts.locked.to_string(),
            counts.deferred.to_string(),
            counts.scheduled.to_string(),
            dead.to_string(),
            counts.sessions.to_string(),
            bytes(counts.bytes),
            counts.oldest_enqueued_at.as_ref().map_or("-".into(), age),
        ]);
    }
    table
}
