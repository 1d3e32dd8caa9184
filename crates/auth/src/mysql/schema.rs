//! The default schema, and how it is created.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::timeout;

use super::protocol::{Connection, Error, Value};
use super::settings::MysqlSettings;

/// The statements that create the default schema.
pub const SQL: &str = include_str!("schema.sql");

/// Columns of the table, which a table of the same name must have as well.
const COLUMNS: [&str; 5] = ["name", "password_hash", "rights", "enabled", "changed_at"];

/// Maximum time for each step. A table that others use may be locked for a while.
const STEP_MAX: Duration = Duration::from_secs(30);

/// What became of the default schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// The table was created.
    Now,
    /// The table was there already, with all its columns.
    Before,
}

/// Creates the default schema in the database that the settings name, unless it is there already. Blocks the
/// thread.
///
/// # Errors
/// A sentence about why there is no such schema. It contains no part of the URL.
pub fn create(settings: &MysqlSettings) -> Result<Created, String> {
    let target = settings.target()?;
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let mut connection = step(Connection::open(&target)).await?;
        let before = step(columns(&mut connection)).await?;
        if before.is_empty() {
            step(connection.run(SQL.trim_end().trim_end_matches(';'))).await?;
        }
        let now = step(columns(&mut connection)).await?;
        match COLUMNS.iter().find(|column| !now.iter().any(|name| name == *column)) {
            Some(missing) => {
                Err(format!("there is another table `barid_users`: it has no column `{missing}`"))
            }
            None if before.is_empty() => Ok(Created::Now),
            None => Ok(Created::Before),
        }
    })
}

async fn step<T>(step: impl Future<Output = Result<T, Error>>) -> Result<T, String> {
    match timeout(STEP_MAX, step).await {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {} s", STEP_MAX.as_secs())),
    }
}

/// Returns the names of the columns of the table; none: there is no table.
async fn columns(connection: &mut Connection) -> Result<Vec<String>, Error> {
    let sql = "SELECT LOWER(COLUMN_NAME) AS name FROM information_schema.COLUMNS \
        WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?";
    let (rows, _) = connection.query(&Arc::from(sql), &["barid_users"], 60).await?;
    let names = rows.into_iter().filter_map(|mut row| match row.take("name")? {
        Value::Bytes(name) => String::from_utf8(name).ok(),
        _ => None,
    });
    Ok(names.collect())
}
