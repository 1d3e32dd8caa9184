//! The password file of mosquitto.

use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;

use barid_auth::password;
use barid_engine::names::full_name;

use super::conf::text_of;
use super::notes::{Notes, Place};
use barid_engine::names::check_user_name;

/// A user with the hash of the password.
#[derive(Debug)]
pub struct User {
    pub name: String,
    pub hash: String,
}

/// Reads the users of a password file.
///
/// # Errors
/// The file cannot be read.
pub fn read(path: &Path, notes: &mut Notes) -> anyhow::Result<Vec<User>> {
    let text = text_of(path)?;
    let file: Rc<str> = path.display().to_string().into();
    let mut users = Vec::new();
    let mut names = BTreeSet::new();
    for (number, line) in text.lines().enumerate() {
        // mosquitto ignores these lines, too.
        let Some((name, rest)) = line.split_once(':').filter(|_| !line.starts_with('#')) else {
            continue;
        };
        let place = Place { file: Rc::clone(&file), line: number + 1 };
        let (name, hash) = (name.trim(), rest.split(':').next().unwrap_or_default().trim());
        let what = format!("user {name:?}");
        if let Err(error) = check_user_name(name) {
            notes.at(&place, what, format!("left out: {error}"));
        } else if let Err(error) = password::check(hash) {
            notes.at(&place, what, format!("left out: {error}; `barid passwd` makes a new one"));
        } else if !names.insert(full_name(name)) {
            notes.at(&place, what, "left out: there is such a user before");
        } else {
            users.push(User { name: name.into(), hash: hash.into() });
        }
    }
    note_tenants(&users, notes);
    Ok(users)
}

/// Adds a note if user names have a slash, because the part before it is a tenant.
fn note_tenants(users: &[User], notes: &mut Notes) {
    let with_slash: Vec<_> = users.iter().filter(|user| user.name.contains('/')).collect();
    if let [first, more @ ..] = &with_slash[..] {
        let more = match more.len() {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        notes.add(format!(
            "user {:?}{more}: what comes before the slash is the name of a tenant; tenants do not see each \
             other's messages, nor those of users without a slash",
            first.name
        ));
    }
}
