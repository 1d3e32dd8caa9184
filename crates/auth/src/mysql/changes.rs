//! The search for users that have changed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use tokio::time::sleep;
use tracing::{info, warn};

use super::Mysql;
use super::pool::{Query, Rows};
use super::protocol::{Row, Value};
use super::settings::ChangesSettings;
use crate::asker::Asker;
use crate::remote::rarely::Rarely;
use crate::scope::Scope;

/// Maximum number of changes that are told one by one. If there are more at once, everybody may have changed.
const CHANGES_MAX: usize = 1_000;

/// The current time of the database, the beginning of the next window, and that of the first. A change is noted
/// with the time at which its statement began, and seen when its transaction ends: so the windows overlap. The
/// first one goes back further than any cache.
const CLOCK: &str = "SELECT CAST(NOW(6) AS CHAR) AS now, CAST(NOW(6) - INTERVAL 30 SECOND AS CHAR) AS next, \
    CAST(NOW(6) - INTERVAL 65 MINUTE AS CHAR) AS first";

/// What was seen so far. All times are those of the database, as texts that sort as the times do.
#[derive(Debug, Default)]
struct Seen {
    /// The time of the last search; empty: there was none.
    now: String,
    /// The beginning of the next window.
    from: String,
    /// The changes in the last window that were told: the time of the last change of each user.
    told: HashMap<String, String>,
    /// When everybody was said to have changed, because there were too many changes. Transactions that had
    /// begun before may have ended later, so this is said again after a while.
    said: Option<String>,
}

/// The times that the database tells.
#[derive(Debug)]
struct Times {
    now: String,
    next: String,
    first: String,
}

/// Searches until the future is dropped.
pub(super) async fn watch(mysql: &Mysql, settings: &ChangesSettings, on_change: impl Fn(&Scope)) {
    let sql: Arc<str> = settings.query.as_str().into();
    let interval = Duration::from_millis(settings.interval_ms);
    let (mut seen, clock, failures) = (Seen::default(), Arc::from(CLOCK), Rarely::default());
    let mut has_failed = false;
    loop {
        let began = Instant::now();
        match search(mysql, &clock, &sql, &mut seen, &on_change).await {
            Ok(()) if has_failed => {
                has_failed = false;
                info!(backend = &*mysql.health.name, "changes of users are found again");
            }
            Ok(()) => {}
            Err(reason) => {
                has_failed = true;
                if failures.pass().is_some() {
                    warn!(
                        backend = &*mysql.health.name,
                        "changes of users are not found: {reason}"
                    );
                }
            }
        }
        sleep(interval.saturating_sub(began.elapsed())).await;
    }
}

/// Searches once. Nothing is noted as seen unless it is told.
async fn search(
    mysql: &Mysql,
    clock: &Arc<str>,
    sql: &Arc<str>,
    seen: &mut Seen,
    on_change: &impl Fn(&Scope),
) -> Result<(), String> {
    let (mut rows, _) = ask(mysql, clock, Vec::new(), 1).await?;
    let times = rows.pop().and_then(Times::read).ok_or("the database tells no time")?;
    let from = seen.window(&times, on_change);
    let (rows, are_all) = ask(mysql, sql, vec![from.as_str().into()], CHANGES_MAX).await?;
    let changes = rows.into_iter().map(change).collect::<Result<Vec<_>, _>>()?;
    seen.tell(times, from, changes, are_all, on_change);
    Ok(())
}

async fn ask(
    mysql: &Mysql,
    sql: &Arc<str>,
    parameters: Vec<Box<str>>,
    rows_max: usize,
) -> Result<Rows, String> {
    let query = Query { sql: Arc::clone(sql), parameters, rows_max };
    mysql.watching.query(Asker::BROKER, query).await.map_err(|error| error.to_string())
}

impl Times {
    fn read(mut row: Row) -> Option<Self> {
        let mut time = |column| match row.take(column)? {
            Value::Bytes(text) => String::from_utf8(text).ok(),
            _ => None,
        };
        Some(Self { now: time("now")?, next: time("next")?, first: time("first")? })
    }
}

impl Seen {
    /// Returns the beginning of the window. If the clock of the database has gone back, as when another server
    /// has taken over, it is not known which changes were seen.
    fn window(&mut self, times: &Times, on_change: &impl Fn(&Scope)) -> String {
        if self.now.is_empty() {
            return times.first.clone();
        }
        if times.now < self.now {
            *self = Self { from: times.next.clone(), ..Self::default() };
            on_change(&Scope::Everybody);
        }
        self.from.clone()
    }

    /// Tells what has changed since the window began. `from`: the beginning of the window that was searched.
    fn tell(
        &mut self,
        times: Times,
        from: String,
        changes: Vec<(String, String)>,
        are_all: bool,
        on_change: &impl Fn(&Scope),
    ) {
        let mut from_next = times.next.clone().max(from);
        if are_all {
            let told = &self.told;
            let new = changes.iter().filter(|(user, at)| told.get(user) != Some(at));
            new.for_each(|(user, _)| on_change(&Scope::User(user.as_str().into())));
        } else {
            // Those that were not returned are in the same window, which is not searched again.
            on_change(&Scope::Everybody);
            from_next = from_next.max(times.now.clone());
            self.said = Some(times.now.clone());
        }
        if self.said.as_ref().is_some_and(|said| *said <= times.next) {
            self.said = None;
            on_change(&Scope::Everybody);
        }
        self.told = changes.into_iter().filter(|(_, at)| *at >= from_next).collect();
        self.from = from_next;
        self.now = times.now;
    }
}

/// Reads a row of the query for changes.
fn change(mut row: Row) -> Result<(String, String), String> {
    let mut text = |column| match row.take(column) {
        Some(Value::Bytes(text)) if text.len() <= 4096 => String::from_utf8(text)
            .map_err(|_| format!("column `{column}` of the changes is not UTF-8")),
        _ => Err(format!("column `{column}` of the changes is missing or no text")),
    };
    Ok((text("name")?, text("changed_at")?))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Searches at a second of the database's clock, when the users given have changed, and returns who is told.
    fn search(seen: &mut Seen, now: u32, changes: &[(&str, u32)], are_all: bool) -> Vec<String> {
        let time = |second: u32| format!("{second:04}");
        let told = RefCell::new(Vec::new());
        let on_change = |changed: &Scope| {
            told.borrow_mut().push(match changed {
                Scope::User(user) => user.to_string(),
                other => format!("{other:?}"),
            });
        };
        let times = Times { now: time(now), next: time(now - 30), first: time(now - 90) };
        let from = seen.window(&times, &on_change);
        let found = changes.iter().filter(|(_, at)| time(*at) >= from);
        let found = found.map(|(user, at)| ((*user).to_owned(), time(*at))).collect();
        seen.tell(times, from, found, are_all, &on_change);
        told.into_inner()
    }

    #[test]
    fn each_change_is_told_once_also_if_its_transaction_ends_late() {
        let mut seen = Seen::default();
        assert_eq!(search(&mut seen, 200, &[("a", 111), ("b", 109)], true), ["a"]);
        assert!(search(&mut seen, 201, &[("a", 111), ("b", 109)], true).is_empty());
        let late = [("a", 202), ("c", 190)];
        assert_eq!(search(&mut seen, 202, &late, true), ["a", "c"]);
        assert!(search(&mut seen, 203, &late, true).is_empty());
        assert_eq!(search(&mut seen, 204, &[("a", 204), ("c", 190)], true), ["a"]);
        // The database did not answer for a long time.
        assert_eq!(search(&mut seen, 900, &[("a", 204), ("d", 300)], true), ["d"]);
        assert!(seen.told.is_empty());
    }

    #[test]
    fn many_changes_at_once_concern_everybody() {
        let mut seen = Seen::default();
        search(&mut seen, 200, &[], true);
        assert_eq!(search(&mut seen, 201, &[("a", 201)], false), ["Everybody"]);
        assert!(search(&mut seen, 202, &[("b", 200)], true).is_empty());
        assert_eq!(search(&mut seen, 203, &[("c", 203)], true), ["c"]);
        assert_eq!(search(&mut seen, 231, &[], true), ["Everybody"]);
        assert!(search(&mut seen, 232, &[], true).is_empty());
    }

    #[test]
    fn a_clock_that_goes_back_makes_everything_uncertain() {
        let mut seen = Seen::default();
        search(&mut seen, 500, &[], true);
        assert_eq!(search(&mut seen, 400, &[("a", 390)], true), ["Everybody", "a"]);
        assert!(search(&mut seen, 401, &[("a", 390)], true).is_empty());
    }
}
