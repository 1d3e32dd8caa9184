//! `barid why`: answers "where did my message go".

mod answer;
mod denied;
mod near;

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::builder::NonEmptyStringValueParser;
use mqtt_proto::topic;
use serde_json::{Value, json};

use crate::admin::answers::{Denials, Denied, Detailed, Dropped, Drops, Tenants};
use crate::admin::{Admin, Column, Table, TenantArgs, encode, now, printable, span};
use crate::output::print;
use answer::Facts;

/// Maximum number of tenants that are searched for a client that this one does not have.
const TENANTS_MAX: usize = 100;

/// Maximum number of clients that are searched for a similar name.
const CLIENTS_MAX: usize = 10_000;

/// Find out why a client did not get a message
#[derive(clap::Args)]
#[command(after_help = "\
Lists the messages for the client that the broker has dropped and still remembers, newest first, and what
to do about them. Lists what the client was not allowed to do (logins, subscriptions, messages that it
published) and, with --topic, which other clients were not allowed to publish there. Then describes the
client's session: whether it exists, whether a subscription matches the topic, and which messages wait in it.
In a cluster with `homes`, the broker of the client's slot is asked as well if the one at --admin has no session of
the client.

Examples:
  barid why --client sensor-7
  barid why --client sensor-7 --topic plant/4/temperature --tenant acme
  barid why --user acme/sensor-7          such as a client of AMQP, which has no identifier when it logs in")]
pub struct Args {
    /// Client identifier
    #[arg(long, value_parser = NonEmptyStringValueParser::new(), required_unless_present = "user")]
    client: Option<String>,
    /// Only what this user or key was not allowed to do, whatever its client: {tenant}/{client}
    #[arg(long, value_name = "NAME", conflicts_with_all = ["client", "topic"], value_parser = NonEmptyStringValueParser::new())]
    user: Option<String>,
    /// Topic that the message was published to
    #[arg(long, value_parser = parse_topic)]
    topic: Option<String>,
    /// Maximum number of drops, and of denials, to list
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    #[command(flatten)]
    of: TenantArgs,
}

fn parse_topic(text: &str) -> Result<String, String> {
    topic::validate_name(text).map(|()| text.into()).map_err(|error| error.to_string())
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match (&args.client, &args.user) {
        (Some(client), _) => run_for_client(args, client),
        (None, user) => run_for_user(args, user.as_deref().unwrap_or_default()),
    }
}

/// Prints what a user was not allowed to do.
fn run_for_user(args: &Args, user: &str) -> anyhow::Result<ExitCode> {
    let (admin, named) = args.of.connect();
    let of_user = user.split_once('/').map(|(tenant, _)| format!("/v1/tenants/{}", encode(tenant)));
    let tenant = of_user.unwrap_or(named);
    let path = format!("{tenant}/denials?user={}&limit={}", encode(user), args.limit);
    let answer = admin.find(&path)?;
    if args.of.json {
        print(format!("{}\n", json!({ "denials": answer })))?;
        return Ok(ExitCode::SUCCESS);
    }
    let known: Denials = answer.map_or(Ok(Denials::default()), |answer| admin.read(answer))?;
    let denials: Vec<&Denied> = known.denials.iter().collect();
    print(match &denials[..] {
        [] => format!("Nothing that the broker remembers was denied to {}.\n", printable(user)),
        _ => denied::table(&denials),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn run_for_client(args: &Args, name: &str) -> anyhow::Result<ExitCode> {
    let (admin, tenant) = args.of.connect();
    let asked = asked(&admin);
    let admin = asked.as_ref().map_or(admin.clone(), |asked| admin.of(asked));
    let is_in_cluster = asked.is_some();
    let client = encode(name);
    let path = format!("{tenant}/sessions/{client}");
    let (session, home) = match (admin.find(&path)?, &asked) {
        (None, Some(asked)) => at_home(&admin, &path, asked, (&args.of.tenant, name)),
        (session, _) => (session, None),
    };
    let answering = home.as_ref().filter(|home| home.failure.is_none());
    let brokers: Vec<Admin> =
        answering.map(|home| admin.of(&home.name)).into_iter().chain([admin]).collect();
    let admin = &brokers[0];
    let mut path = format!("{tenant}/drops?client={client}&limit={}", args.limit);
    if let Some(topic) = &args.topic {
        path += &format!("&topic={}", encode(topic));
    }
    let drops = remembered(&brokers, &path, "drops")?;
    let (tenants, similar) = match &session {
        Some(_) => (Vec::new(), Vec::new()),
        None => (tenants_with(admin, &client)?, similar(admin, &tenant, name)?),
    };
    let asked = format!("{tenant}/denials?limit={}", args.limit);
    let of_client = remembered(&brokers, &format!("{asked}&client={client}"), "denials")?;
    let of_topic = match &args.topic {
        Some(topic) => {
            remembered(&brokers, &format!("{asked}&object={}", encode(topic)), "denials")?
        }
        None => None,
    };
    let known_denials = |answer: &Option<Value>| -> anyhow::Result<Denials> {
        answer.clone().map_or(Ok(Denials::default()), |answer| admin.read(answer))
    };
    let (own, others) = (known_denials(&of_client)?, known_denials(&of_topic)?);
    let own: Vec<&Denied> = own.denials.iter().collect();
    let others: Vec<&Denied> = others
        .denials
        .iter()
        .filter(|denial| denial.action == "publish" && denial.client != *name)
        .collect();
    let detailed: Option<Detailed> = session.clone().map(|it| admin.read(it)).transpose()?;
    let known: Option<Drops> = drops.clone().map(|it| admin.read(it)).transpose()?;
    let answer = answer::answer(&Facts {
        client: name,
        topic: args.topic.as_deref(),
        tenant: &args.of.tenant,
        drops: known.as_ref(),
        session: detailed.as_ref(),
        home: home.as_ref(),
        is_in_cluster,
        tenants_with: &tenants,
        similar: &similar,
        now: now(),
    });
    if args.of.json {
        let answer = json!({
            "drops": drops,
            "denials": of_client,
            "denials_of_topic": of_topic,
            "session": session,
            "answer": answer,
        });
        print(format!("{answer}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    if let Some(Drops { drops, .. }) = known.filter(|known| !known.drops.is_empty()) {
        text = table(&drops) + "\n";
    }
    if !own.is_empty() {
        text += &format!("{}\n", denied::table(&own));
    }
    if !others.is_empty() {
        let topic = args.topic.as_deref().unwrap_or_default();
        let table = denied::table(&others);
        text +=
            &format!("Others were not allowed to publish to {}:\n\n{table}\n", printable(topic));
    }
    for sentence in answer {
        text += &format!("{}\n", printable(&sentence));
    }
    print(text)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the tenants in which a client of this name has a session.
fn tenants_with(admin: &Admin, client: &str) -> anyhow::Result<Vec<String>> {
    let all: Tenants = admin.read(admin.get("/v1/tenants")?)?;
    let mut with = Vec::new();
    for tenant in all.tenants.into_iter().take(TENANTS_MAX) {
        let path = format!("/v1/tenants/{}/sessions/{client}", encode(&tenant.name));
        if admin.find(&path)?.is_some() {
            with.push(tenant.name);
        }
    }
    Ok(with)
}

/// The broker of the cluster that would have a stored session of a client, if that is another one than was asked.
struct Home {
    name: String,
    /// Why it does not answer.
    failure: Option<String>,
}

/// Returns the name of the broker at the address that is asked. `None`: it belongs to no cluster, `--broker` names a certain broker, or
/// the token is for one tenant only.
fn asked(admin: &Admin) -> Option<String> {
    if admin.asks_certain_broker() {
        return None;
    }
    let cluster = admin.find("/v1/cluster").ok()??;
    cluster["broker"].as_str().map(str::to_owned)
}

/// Looks for the session of a client at its home, if that is another broker than the one of the name `asked`.
fn at_home(
    admin: &Admin,
    path: &str,
    asked: &str,
    (tenant, client): (&str, &str),
) -> (Option<Value>, Option<Home>) {
    let slots = format!("/v1/cluster/slots?tenant={}&client={}", encode(tenant), encode(client));
    let slots = admin.find(&slots).ok().flatten();
    let home = slots.as_ref().and_then(|slots| slots["slots"][0]["broker"].as_str());
    let Some(home) = home.filter(|home| *home != asked) else { return (None, None) };
    let (found, failure) = match admin.of(home).find(path) {
        Ok(found) => (found, None),
        Err(error) => (None, Some(error.to_string())),
    };
    (found, Some(Home { name: home.to_owned(), failure }))
}

/// Asks brokers what they remember, and joins the lists `key` of their answers, the newest first. `None`: none of them has the
/// tenant.
fn remembered(brokers: &[Admin], path: &str, key: &str) -> anyhow::Result<Option<Value>> {
    let mut all = None;
    for broker in brokers {
        let Some(answer) = broker.find(path)? else { continue };
        all = Some(match all {
            None => answer,
            Some(before) => joined(before, answer, key),
        });
    }
    Ok(all)
}

fn joined(mut all: Value, mut other: Value, key: &str) -> Value {
    if let (Some(list), Some(others)) = (all[key].as_array_mut(), other[key].as_array_mut()) {
        list.append(others);
        list.sort_by(|one, other| other["at"].as_str().cmp(&one["at"].as_str()));
    }
    if let (Some(remembered), Some(more)) =
        (all["remembered"].as_u64(), other["remembered"].as_u64())
    {
        all["remembered"] = json!(remembered + more);
    }
    if let (Some(totals), Some(others)) =
        (all["totals"].as_object_mut(), other["totals"].as_object())
    {
        for (reason, count) in others {
            let before = totals.get(reason).and_then(Value::as_u64).unwrap_or_default();
            totals.insert(reason.clone(), json!(before + count.as_u64().unwrap_or_default()));
        }
    }
    all
}

/// Returns the clients with a similar name, among the first [`CLIENTS_MAX`] of the tenant.
fn similar(admin: &Admin, tenant: &str, client: &str) -> anyhow::Result<Vec<String>> {
    let Some(page) = admin.find(&format!("{tenant}/sessions?limit={CLIENTS_MAX}"))? else {
        return Ok(Vec::new());
    };
    let clients = page["sessions"].as_array().into_iter().flatten();
    let clients = clients.filter_map(|session| session["client"].as_str());
    Ok(near::similar(client, clients.map(String::from)))
}

fn table(drops: &[Dropped]) -> String {
    let now = now();
    let mut table = Table::new([
        Column::Left("DROPPED AT"),
        Column::Right("AGO"),
        Column::Left("REASON"),
        Column::Left("TOPIC"),
    ]);
    for drop in drops {
        table.push([
            drop.at.as_str().into(),
            span(drop.at.until(now)),
            drop.reason.clone(),
            drop.topic.clone().unwrap_or("(no longer in memory)".into()),
        ]);
    }
    let explanations: BTreeMap<_, _> =
        drops.iter().map(|drop| (&*drop.reason, &*drop.explanation)).collect();
    let mut text = table.to_string();
    for (reason, explanation) in explanations {
        text += &format!("\n{reason}: {explanation}");
    }
    text + "\n"
}
