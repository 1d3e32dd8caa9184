//! `barid session show`.

use std::process::ExitCode;

use super::One;
use super::list::expires;
use crate::admin::answers::{Detailed, Subscription};
use crate::admin::{Column, Table, bytes, now, printable, span};
use crate::output::print;
use crate::plural::count;

pub fn run(one: &One) -> anyhow::Result<ExitCode> {
    let (admin, path) = one.connect();
    let answer = admin.get(&path)?;
    print(if one.of.json { format!("{answer}\n") } else { text(&admin.read(answer)?) })?;
    Ok(ExitCode::SUCCESS)
}

fn text(detailed: &Detailed) -> String {
    let Detailed { session, will } = detailed;
    let now = now();
    let connected = match &session.protocol {
        Some(version) => format!("yes, with MQTT {version}"),
        None => "no".into(),
    };
    let waiting = match &session.oldest_queued_at {
        Some(oldest) => format!(", the first for {}", span(oldest.until(now))),
        None => String::new(),
    };
    let messages = |number| count(number, "message", "messages");
    let queued = messages(session.queued_messages);
    let queued = format!("{queued}, {}{waiting}", bytes(session.queued_bytes));
    let will = match will {
        Some(will) if will.delay_seconds > 0 => {
            format!("to {}, {} s after the connection", printable(&will.topic), will.delay_seconds)
        }
        Some(will) => format!("to {}", printable(&will.topic)),
        None => "none".into(),
    };
    let mut text = String::new();
    for (name, value) in [
        ("client", printable(&session.client).into_owned()),
        ("user", session.user.as_deref().map_or("-".into(), |user| printable(user).into_owned())),
        ("connected", connected),
        ("expires", expires(session, now)),
        ("durability", session.durability.clone()),
        ("queued", queued),
        ("in flight", format!("{} sent and not acknowledged", messages(session.in_flight))),
        (
            "unreleased",
            format!("{} of QoS 2 received and not released", messages(session.unreleased)),
        ),
        ("will", will),
    ] {
        text += &format!("{name:<11} {value}\n");
    }
    text + &subscriptions(&session.subscriptions)
}

fn subscriptions(subscriptions: &[Subscription]) -> String {
    if subscriptions.is_empty() {
        return "no subscriptions\n".into();
    }
    let mut table = Table::new([
        Column::Left("SUBSCRIPTION"),
        Column::Right("QOS"),
        Column::Right("IDENTIFIER"),
        Column::Left("OPTIONS"),
    ]);
    for subscription in subscriptions {
        let mut options = Vec::new();
        options.extend(subscription.no_local.then_some("no local"));
        options.extend(subscription.retain_as_published.then_some("retain as published"));
        table.push([
            subscription.filter.clone(),
            subscription.qos.to_string(),
            subscription.identifier.map_or("-".into(), |identifier| identifier.to_string()),
            options.join(", "),
        ]);
    }
    format!("\n{table}")
}
