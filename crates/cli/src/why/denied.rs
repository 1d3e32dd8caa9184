//! Denials as a table, with advice.

use std::collections::BTreeSet;

use crate::admin::answers::Denied;
use crate::admin::{Column, Table, now, printable, span};

/// Formats the denials, and advice for each action and reason below them.
pub fn table(denials: &[&Denied]) -> String {
    let now = now();
    let mut table = Table::new([
        Column::Left("NOT ALLOWED AT"),
        Column::Right("AGO"),
        Column::Right("TIMES"),
        Column::Left("ACTION"),
        Column::Left("OF"),
        Column::Left("CLIENT"),
        Column::Left("USER"),
        Column::Left("ADDRESS"),
        Column::Right("WHY"),
    ]);
    let reason_of = |denial: &Denied| (denial.action.clone(), denial.reason.clone());
    let reasons: BTreeSet<_> = denials.iter().map(|denial| reason_of(denial)).collect();
    let reasons: Vec<_> = reasons.into_iter().collect();
    for denial in denials {
        let why = reasons.iter().position(|reason| *reason == reason_of(denial));
        table.push([
            denial.at.as_str().into(),
            span(denial.at.until(now)),
            denial.count.to_string(),
            denial.action.clone(),
            denial.object.clone().unwrap_or("-".into()),
            denial.client.clone(),
            denial.user.clone().unwrap_or("-".into()),
            denial.address.clone(),
            why.map_or_else(String::new, |why| format!("[{}]", why + 1)),
        ]);
    }
    let mut text = table.to_string();
    for (number, (action, reason)) in (1..).zip(&reasons) {
        let advice = advice(action, reason);
        text += &format!("\n[{number}] {action}: {}. {advice}", printable(reason));
    }
    text + "\n"
}

fn advice(action: &str, reason: &str) -> &'static str {
    match action {
        "login" if reason.contains(" is banned") => {
            "`barid ban list` shows the bans, `barid ban remove ID` ends one."
        }
        "login" if reason.contains("(max_") || reason.contains("_rate)") => {
            "`barid tenant show` shows the limits of the tenant and what is used, `barid tenant set` changes them. A \
             user may have limits of its own: `barid user show`."
        }
        "login" if reason.contains("the user is disabled") => {
            "`barid user enable` lets the user in again."
        }
        "login" if reason.contains("is needed for this") => {
            "The client belongs to that broker: `barid cluster status` shows whether it is up."
        }
        "login" if reason.contains("has not joined its cluster") => {
            "`barid cluster status` at that broker says which brokers it waits for."
        }
        "login" if is_failure(reason) => {
            "The back end does not answer as it should; `barid_logins_total` and the log of the broker say since when."
        }
        "login" => {
            "Check the user name and the password; `barid user set` or, for [[users]], `barid passwd` makes a new \
             hash. With AMQP check the key: its name, its text in [[keys]], and the time on the client's machine."
        }
        "subscribe" if reason.contains("(max_") => {
            "`barid tenant show` shows the limits of the tenant and what is used, `barid tenant set` changes them."
        }
        "publish" | "subscribe" | "will" | "state" => {
            "`barid user show` and `barid tenant show` print the rules; those of users of the file are in \
             [[users]]. A change applies within a second."
        }
        "send" | "receive" | "manage" => {
            "The rights of a key, and its entity, are in [[keys]]; `barid user show` prints the rules of a user."
        }
        _ => "See docs/operating/tenants-and-users.md.",
    }
}

/// Whether a login was not decided.
fn is_failure(reason: &str) -> bool {
    [
        "cannot",
        "no answer",
        "refused (os error",
        "timed out",
        "too many logins",
        "no back end has decided",
    ]
    .iter()
    .any(|part| reason.contains(part))
}
