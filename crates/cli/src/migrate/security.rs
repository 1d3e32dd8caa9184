//! Which listeners have which users.

use std::path::PathBuf;

use super::conf::{Conf, Line, Listener};
use super::notes::Notes;

/// What decides in mosquitto who may connect.
#[derive(Clone, Debug, Default)]
pub struct Security {
    pub password_file: Option<PathBuf>,
    pub acl_file: Option<PathBuf>,
    /// Whether clients without a user name may connect.
    pub anonymous: bool,
}

impl Security {
    fn of(conf: &Conf, listener: &Listener, notes: &mut Notes) -> Self {
        let option = |name: &str| {
            if conf.per_listener { listener.option(name) } else { conf.option(name) }
        };
        let path = |line: Option<&Line>| line.map(|line| conf.path(&line.value));
        let anonymous = listener.option("listener_allow_anonymous").or(option("allow_anonymous"));
        Self {
            password_file: path(option("password_file")),
            acl_file: path(option("acl_file")),
            anonymous: anonymous.and_then(|line| line.switch(notes)).unwrap_or(conf.is_local),
        }
    }
}

/// Chooses the users for all listeners: those of the first listener with a password file. Leaves out the listeners
/// with other users, because in Barid all listeners have the same, and nobody may get in where mosquitto let nobody
/// in. A listener that is open to anybody stays, for users with a password.
pub fn choose(conf: &Conf, listeners: &mut Vec<Listener>, notes: &mut Notes) -> Security {
    let of = |listener: &Listener, notes: &mut Notes| Security::of(conf, listener, notes);
    let mut all: Vec<_> = listeners.iter().map(|listener| of(listener, notes)).collect();
    let with_users = all.iter().position(|security| security.password_file.is_some());
    let chosen = match with_users.unwrap_or(0) {
        index if index < all.len() => all[index].clone(),
        _ => return Security::default(),
    };
    listeners.retain(|listener| {
        let own = all.remove(0);
        // Without any users a listener that lets nobody in must not become one that lets anybody in.
        let is_closed = own.password_file.is_none() && !own.anonymous;
        let is_same = own.password_file == chosen.password_file
            && own.acl_file == chosen.acl_file
            && !(is_closed && chosen.anonymous);
        let is_open = own.password_file.is_none() && own.anonymous;
        let place = listener.place.as_ref().or(listener.options.first().map(|line| &line.place));
        match place {
            Some(place) if !is_same && !is_open => {
                let what = format!("listener {}", listener.port);
                let reason = "left out: it has other users or rules than the listeners before it, and all listeners have the same";
                notes.at(place, what, reason);
            }
            Some(place) if own.anonymous && chosen.password_file.is_some() => {
                let what = format!("listener {}", listener.port);
                let reason = "clients without a user name are refused, as soon as there are users";
                notes.at(place, what, reason);
            }
            _ => {}
        }
        is_same || is_open
    });
    chosen
}
