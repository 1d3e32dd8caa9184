//! Message sessions of an entity.

use std::process::ExitCode;

use serde::Deserialize;

use super::list::{MORE, Paging, pages};
use super::{Described, Entity, Named, With};
use crate::admin::{Admin, Column, Moment, Table, bytes, now, span};
use crate::output::print;

/// Range of sessions.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    paging: Paging,
}

#[derive(Deserialize)]
struct Page {
    sessions: Vec<Session>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct Session {
    id: String,
    active: u64,
    locked: u64,
    set_aside: u64,
    locked_until: Option<Moment>,
    state_bytes: Option<u64>,
}

pub fn run<N: Named + clap::Args>(
    With { named, args }: &With<N, Args>,
) -> anyhow::Result<ExitCode> {
    let (admin, entity) = named.connect();
    let answer = pages(&admin, &format!("{}/sessions", entity.path), "sessions", &args.paging)?;
    if named.wants_json() {
        print(format!("{answer}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let Page { sessions, next } = admin.read(answer)?;
    let mut text = match sessions.is_empty() {
        true => nothing(&admin, &entity)?,
        false => table(&sessions).to_string(),
    };
    if next.is_some() {
        text += MORE;
    }
    print(text)?;
    Ok(ExitCode::SUCCESS)
}

fn nothing(admin: &Admin, entity: &Entity) -> anyhow::Result<String> {
    let described: Described = admin.read(admin.get(&entity.path)?)?;
    Ok(match described.properties.get("RequiresSession") {
        Some(serde_json::Value::Bool(false)) => {
            format!("{} has no sessions: it does not require them\n", entity.name)
        }
        _ => "no sessions\n".into(),
    })
}

fn table(sessions: &[Session]) -> Table<6> {
    let now = now();
    let mut table = Table::new([
        Column::Left("SESSION"),
        Column::Right("ACTIVE"),
        Column::Right("LOCKED"),
        Column::Right("SET ASIDE"),
        Column::Right("STATE"),
        Column::Left("LOCK"),
    ]);
    for session in sessions {
        let left = |until: &Moment| format!("for {}", span(until.since(now)));
        table.push([
            session.id.clone(),
            session.active.to_string(),
            session.locked.to_string(),
            session.set_aside.to_string(),
            session.state_bytes.map_or("-".into(), bytes),
            session.locked_until.as_ref().map_or("-".into(), left),
        ]);
    }
    table
}
