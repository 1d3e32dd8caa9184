//! Denials: failed logins, and requests that the rules or keys of a client do not allow.
//!
//! Each denial is counted for its tenant and action. The last denials of a tenant are remembered for the
//! command `barid why`. The first denials of each second are written to the log. Logins are kept apart from what the rules
//! deny: whoever tries passwords must not hide the denials of clients that are connected. Three bounds limit the cost of a
//! flood:
//!
//! | bound | beyond it |
//! | --- | --- |
//! | `REMEMBERED_MAX` different logins, and as many other denials, of a tenant | The oldest is forgotten. A repetition only raises a count |
//! | `LINES_MAX` log lines in a second for the logins, and for the other denials, of a tenant | Denials are counted, and one line reports their number |
//! | `ALL_LINES_MAX` log lines in a second for all tenants | The same |

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use barid_core::time::MonoTime;
use mqtt_proto::topic;
use tracing::info;

use crate::denied_action::Action;
use crate::drops::cut;
use crate::names::full_name;
use crate::sync::Mutex;

/// Maximum number of different logins, and of different other denials, that are remembered for a tenant: at most some
/// 45 KiB each, and enough to see which clients are affected.
const REMEMBERED_MAX: usize = 64;

/// Time for which denials keep a tenant that is unused otherwise: a fleet with a wrong password has no connections.
const KEPT: Duration = Duration::from_secs(60 * 60);

/// Maximum number of log lines in a second for the logins, or the other denials, of one tenant. An operator who tests one client sees each denial;
/// beyond that, the summary says more than single lines would.
const LINES_MAX: u32 = 5;

/// Maximum number of log lines for all tenants together in a second, which a disk or a terminal handles
/// easily.
const ALL_LINES_MAX: u64 = 50;

/// Maximum number of bytes of a user name, a client identifier, a requested object and a reason in the log;
/// the rest is cut off. The first three also bound remembered denials, in which a reason has at most
/// `OBJECT_MAX` bytes. A reason may contain text from the client.
const USER_MAX: usize = 96;
const CLIENT_MAX: usize = 96;
const OBJECT_MAX: usize = 160;
const REASON_MAX: usize = 256;

/// A denial: a client was not allowed to do something.
#[derive(Clone, Copy, Debug)]
pub struct Denial<'a> {
    /// The denied action.
    pub action: Action,
    /// The user name, or the name of the key; `None`: the client has given none.
    pub user: Option<&'a str>,
    /// The client identifier, or the container id of an AMQP connection.
    pub client: &'a str,
    /// The address of the client.
    pub peer: SocketAddr,
    /// The topic, topic filter, key or address that was requested.
    pub object: Option<&'a str>,
    /// The reason, as a part of a sentence.
    pub reason: &'a str,
}

/// A denial that is remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// The denied action.
    pub action: Action,
    /// Time of the last denial.
    pub at: MonoTime,
    /// Number of denials since it was first remembered.
    pub count: u64,
    /// The user name, as in [`Denial`], cut off after 96 bytes.
    pub user: Option<String>,
    /// The client identifier, as in [`Denial`], cut off after 96 bytes.
    pub client: String,
    /// The address of the client at the last denial.
    pub peer: SocketAddr,
    /// The requested object, as in [`Denial`], cut off after 160 bytes.
    pub object: Option<String>,
    /// The reason, cut off after 160 bytes.
    pub reason: String,
}

/// A filter for remembered denials. `None` matches everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted<'a> {
    /// Denials to this client identifier.
    pub client: Option<&'a str>,
    /// Denials of this object, and denials that concern no object, such as failed logins. Topic filters match
    /// topics here, in either direction.
    pub object: Option<&'a str>,
    /// Denials to this user or key, given by its full name.
    pub user: Option<&'a str>,
    /// Denials to users of this tenant. Denials to users of tenants that do not exist are in the log of the
    /// default tenant.
    pub users_of: Option<&'a str>,
}

/// The last denials of one tenant.
#[derive(Debug, Default)]
pub struct DenialLog(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    logins: Recent,
    others: Recent,
    /// Number of denials since the last summary that were counted and not logged.
    unwritten: u64,
}

/// The last logins, or the last other denials.
#[derive(Debug, Default)]
struct Recent {
    /// In the order of their last repetition: the newest is at the end.
    remembered: VecDeque<Remembered>,
    /// The current second, and the number of log lines written in it.
    second: u64,
    lines: u32,
}

/// How a denial appears in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// It has a line of its own.
    Written,
    /// It is counted in the next summary.
    Summed {
        /// Whether it is the first one since the last summary: the caller must schedule the next summary.
        first: bool,
    },
}

/// Counter of the log lines of all tenants in the current second.
#[derive(Debug, Default)]
pub struct AllLines(AtomicU64);

impl AllLines {
    /// Counts a log line, if another one may be written in this second. Returns whether it may.
    pub fn admit(&self, now: MonoTime) -> bool {
        let second = second(now);
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
                let (of, lines) = (word >> 16, word & 0xFFFF);
                // A thread whose turn began earlier may still be in the previous second.
                if second > of {
                    Some(second << 16 | 1)
                } else {
                    (lines < ALL_LINES_MAX).then_some(word + 1)
                }
            })
            .is_ok()
    }
}

/// Writes a denial to the log.
pub fn write(tenant: &str, denial: &Denial<'_>) {
    let Denial { action, peer, .. } = *denial;
    let reason = cut(denial.reason, REASON_MAX);
    let user = denial.user.map(|user| cut(user, USER_MAX));
    let client = cut(denial.client, CLIENT_MAX);
    let object = denial.object.map(|object| cut(object, OBJECT_MAX));
    let object_of = |actions: &[Action]| object.as_deref().filter(|_| actions.contains(&action));
    info!(
        %peer,
        tenant,
        user = user.as_deref(),
        client = &*client,
        topic = object_of(&[Action::Publish, Action::Will]),
        filter = object_of(&[Action::Subscribe]),
        key = object_of(&[Action::State]),
        entity = object_of(&[Action::Login, Action::Send, Action::Receive, Action::Manage]),
        "{} denied: {reason}",
        action.name()
    );
}

impl DenialLog {
    /// Returns the number of denials since the last call that were counted and not logged.
    pub(crate) fn take_unwritten(&self) -> u64 {
        std::mem::take(&mut self.0.lock().unwritten)
    }

    /// Remembers a denial, and decides whether it is logged. `may_write` is asked only if the tenant's own
    /// bound allows a line.
    pub fn note(
        &self,
        now: MonoTime,
        denial: &Denial<'_>,
        may_write: impl FnOnce() -> bool,
    ) -> Line {
        let mut state = self.0.lock();
        let recent = match denial.action {
            Action::Login => &mut state.logins,
            _ => &mut state.others,
        };
        recent.remember(now, denial);
        let second = second(now);
        if second > recent.second {
            (recent.second, recent.lines) = (second, 0);
        }
        if recent.lines < LINES_MAX && may_write() {
            recent.lines += 1;
            return Line::Written;
        }
        state.unwritten += 1;
        Line::Summed { first: state.unwritten == 1 }
    }

    /// Whether nothing has been denied for so long that what is remembered may be forgotten.
    pub(crate) fn is_quiet(&self, now: MonoTime) -> bool {
        let state = self.0.lock();
        let mut last = state.both().filter_map(|recent| recent.remembered.back());
        last.all(|last| last.at.after(KEPT) <= now)
    }

    /// The remembered denials that match `wanted`, newest first.
    pub fn recent(&self, wanted: &Wanted<'_>) -> Vec<Remembered> {
        let state = self.0.lock();
        let all = state.both().flat_map(|recent| recent.remembered.iter().rev());
        let mut found: Vec<_> = all.filter(|denial| wanted.has(denial)).cloned().collect();
        found.sort_by_key(|denial| Reverse(denial.at));
        found
    }
}

impl State {
    fn both(&self) -> impl Iterator<Item = &Recent> {
        [&self.others, &self.logins].into_iter()
    }
}

impl Recent {
    fn remember(&mut self, at: MonoTime, denial: &Denial<'_>) {
        let user = denial.user.map(|user| cut(user, USER_MAX));
        let client = cut(denial.client, CLIENT_MAX);
        let object = denial.object.map(|object| cut(object, OBJECT_MAX));
        let reason = cut(denial.reason, OBJECT_MAX);
        // The search begins with the newest denial, which a flood usually repeats.
        let known = self.remembered.iter().rposition(|known| {
            known.action == denial.action
                && known.object.as_deref() == object.as_deref()
                && known.client == *client
                && known.user.as_deref() == user.as_deref()
                && known.reason == *reason
        });
        if let Some(mut known) = known.and_then(|known| self.remembered.remove(known)) {
            known.count += 1;
            known.at = at;
            known.peer = denial.peer;
            self.remembered.push_back(known);
            return;
        }
        if self.remembered.len() == REMEMBERED_MAX {
            self.remembered.pop_front();
        }
        self.remembered.push_back(Remembered {
            action: denial.action,
            at,
            count: 1,
            user: user.map(Cow::into_owned),
            client: client.into_owned(),
            peer: denial.peer,
            object: object.map(Cow::into_owned),
            reason: cut(denial.reason, OBJECT_MAX).into_owned(),
        });
    }
}

impl Wanted<'_> {
    fn has(&self, denial: &Remembered) -> bool {
        let is_of = |name: &str, asked: &str| {
            cut(asked, OBJECT_MAX) == name
                || (topic::has_wildcards(asked) && topic::matches(asked, name))
                || (topic::has_wildcards(name) && topic::matches(name, asked))
        };
        let is_of_tenant =
            |user: &String, tenant: &str| user.split_once('/').is_some_and(|(of, _)| of == tenant);
        self.client.is_none_or(|client| cut(client, CLIENT_MAX) == denial.client)
            && self
                .object
                .is_none_or(|asked| denial.object.as_deref().is_none_or(|name| is_of(name, asked)))
            && self.user.is_none_or(|asked| {
                denial.user.as_ref().is_some_and(|user| full_name(user) == cut(asked, USER_MAX))
            })
            && self.users_of.is_none_or(|tenant| {
                denial.user.as_ref().is_some_and(|user| is_of_tenant(user, tenant))
            })
    }
}

fn second(now: MonoTime) -> u64 {
    now.as_millis() / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denial<'a>(action: Action, client: &'a str, object: &'a str) -> Denial<'a> {
        Denial {
            action,
            user: Some("acme/ada"),
            client,
            peer: SocketAddr::from(([192, 0, 2, 1], 4711)),
            object: Some(object),
            reason: "no rule of the user allows it",
        }
    }

    fn at(millis: u64) -> MonoTime {
        MonoTime::from_millis(millis)
    }

    #[test]
    fn the_first_of_each_second_are_written_and_the_others_summed_up() {
        let log = DenialLog::default();
        let note = |millis| log.note(at(millis), &denial(Action::Publish, "c", "t"), || true);
        for _ in 0..LINES_MAX {
            assert_eq!(note(1_000), Line::Written);
        }
        assert_eq!(note(1_500), Line::Summed { first: true });
        assert_eq!(note(1_999), Line::Summed { first: false });
        // A thread whose turn began in the previous second does not reset the count.
        assert_eq!(note(999), Line::Summed { first: false });
        assert_eq!(note(2_000), Line::Written);
        assert_eq!(log.0.lock().unwritten, 3);
    }

    #[test]
    fn all_tenants_together_have_a_bound() {
        let lines = AllLines::default();
        let admitted = (0..1_000).filter(|_| lines.admit(at(5_000))).count();
        assert_eq!(admitted as u64, ALL_LINES_MAX);
        assert!(!lines.admit(at(4_999)), "a second that is over makes no room");
        assert!(lines.admit(at(6_000)));
        let log = DenialLog::default();
        let line = log.note(at(6_000), &denial(Action::Login, "c", "t"), || false);
        assert_eq!(line, Line::Summed { first: true });
    }

    #[test]
    fn a_repeated_denial_takes_no_room_and_the_oldest_goes_first() {
        let log = DenialLog::default();
        let note = |millis, client: &str| {
            log.note(at(millis), &denial(Action::Subscribe, client, "a/#"), || true);
        };
        note(1, "first");
        for n in 0..REMEMBERED_MAX as u64 + 10 {
            note(10 + n, &format!("client {n}"));
            note(1_000 + n, "again");
        }
        let all = log.recent(&Wanted::default());
        assert_eq!(all.len(), REMEMBERED_MAX);
        assert_eq!((all[0].client.as_str(), all[0].count), ("again", REMEMBERED_MAX as u64 + 10));
        assert!(all.iter().all(|denial| denial.client != "first"));
    }

    #[test]
    fn logins_and_other_denials_take_no_room_from_each_other() {
        let log = DenialLog::default();
        log.note(at(1), &denial(Action::Publish, "one", "a/b"), || true);
        for n in 0..1_000 {
            let name = format!("guess {n}");
            log.note(at(2), &denial(Action::Login, &name, "t"), || true);
        }
        let line = log.note(at(3), &denial(Action::Subscribe, "one", "a/#"), || true);
        assert_eq!(line, Line::Written);
        let all = log.recent(&Wanted::default());
        assert_eq!(all.len(), REMEMBERED_MAX + 2);
        assert_eq!(all[0].action, Action::Subscribe);
        assert_eq!(all.last().map(|last| last.action), Some(Action::Publish));
    }

    #[test]
    fn one_can_ask_for_a_client_a_topic_and_the_users_of_a_tenant() {
        let log = DenialLog::default();
        log.note(at(1), &denial(Action::Publish, "one", "a/b"), || true);
        log.note(at(2), &denial(Action::Subscribe, "two", "a/#"), || true);
        log.note(at(3), &Denial { object: None, ..denial(Action::Login, "one", "") }, || true);
        let ask = |client, object, users_of| {
            let wanted = Wanted { client, object, users_of, user: None };
            log.recent(&wanted).iter().map(|denial| denial.at.as_millis()).collect::<Vec<_>>()
        };
        assert_eq!(ask(None, None, None), [3, 2, 1]);
        assert_eq!(ask(Some("one"), None, None), [3, 1]);
        assert_eq!(ask(Some("two"), Some("a/b"), None), [2], "the filter matches the topic");
        assert_eq!(ask(None, Some("x"), None), [3], "a login is about no topic");
        assert_eq!(ask(None, None, Some("acme")), [3, 2, 1]);
        assert!(ask(None, None, Some("acm")).is_empty());
    }

    #[test]
    fn what_is_long_is_cut_and_found_by_its_whole_name() {
        let log = DenialLog::default();
        let (client, object) = ("ö".repeat(500), "ä/".repeat(500));
        log.note(at(1), &denial(Action::Publish, &client, &object), || true);
        let wanted = Wanted { client: Some(&client), object: Some(&object), ..Wanted::default() };
        let [denial] = &log.recent(&wanted)[..] else { panic!("it is found") };
        assert!(denial.client.len() <= CLIENT_MAX && denial.client.ends_with('…'));
        assert!(denial.object.as_ref().is_some_and(|object| object.len() <= OBJECT_MAX));
    }
}
