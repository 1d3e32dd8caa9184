//! `barid cluster drain` and `barid cluster balance`: moves of many slots, one after the other.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::bail;
use serde_json::{Value, json};

use super::{ClusterArgs, MovedSlot, Slot, Slots, View};
use crate::admin::{Admin, bytes};
use crate::output::print;
use crate::plural::count;

#[derive(clap::Args)]
pub struct DrainArgs {
    /// The name of the broker that is to have no slots
    #[arg(value_name = "BROKER")]
    drained: String,
    #[command(flatten)]
    options: Options,
}

#[derive(clap::Args)]
pub struct Options {
    /// Only show which slots would move
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    of: ClusterArgs,
}

/// A slot that is to be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Planned {
    slot: u16,
    from: String,
    to: String,
}

pub fn drain(DrainArgs { drained: broker, options }: &DrainArgs) -> anyhow::Result<ExitCode> {
    let admin = options.of.admin.connect();
    let (view, slots) = look(&admin)?;
    if !is_known(&view, broker) {
        bail!("there is no broker {broker:?} in this cluster; barid cluster members lists all");
    }
    let mut up = names_of_up(&view);
    if !up.iter().any(|name| name == broker) {
        bail!("{broker} is not up, and only the broker that has a slot can give it away");
    }
    up.retain(|name| name != broker);
    if up.is_empty() {
        bail!("no other broker is up that could take the slots of {broker}");
    }
    carry_out(&admin, &planned_to_drain(&slots, broker, &up), options, || {
        format!("{broker} has no slots\n")
    })
}

pub fn balance(options: &Options) -> anyhow::Result<ExitCode> {
    let admin = options.of.admin.connect();
    let (view, slots) = look(&admin)?;
    let planned = planned_to_balance(&slots, &names_of_up(&view));
    carry_out(&admin, &planned, options, || {
        "the brokers that are up have equally many slots\n".into()
    })
}

fn look(admin: &Admin) -> anyhow::Result<(View, Vec<Slot>)> {
    let view = admin.read(admin.get("/v1/cluster")?)?;
    let slots: Slots = admin.read(admin.get("/v1/cluster/slots")?)?;
    Ok((view, slots.slots))
}

fn is_known(view: &View, broker: &str) -> bool {
    view.broker == broker || view.members.iter().any(|member| member.name == broker)
}

/// Returns the names of the brokers that can give and take slots, in their order.
fn names_of_up(view: &View) -> Vec<String> {
    let others = view.members.iter().filter(|member| member.state == "up").map(|it| &it.name);
    let mut up: Vec<_> = others.chain([&view.broker]).cloned().collect();
    up.sort_unstable();
    up
}

/// Returns how many slots each of these brokers has.
fn counts<'a>(slots: &[Slot], brokers: &'a [String]) -> BTreeMap<&'a str, usize> {
    let count = |name: &String| slots.iter().filter(|slot| slot.broker == *name).count();
    brokers.iter().map(|name| (name.as_str(), count(name))).collect()
}

/// Returns the moves after which a broker has no slots, each to the one of `others` that has the fewest.
fn planned_to_drain(slots: &[Slot], broker: &str, others: &[String]) -> Vec<Planned> {
    let mut counts = counts(slots, others);
    let own = slots.iter().filter(|slot| slot.broker == broker);
    own.filter_map(|slot| {
        let (to, count) = counts.iter_mut().min_by_key(|(_, count)| **count)?;
        *count += 1;
        Some(Planned { slot: slot.slot, from: broker.into(), to: (*to).into() })
    })
    .collect()
}

/// Returns the fewest moves after which no broker of `up` has two slots more than another one. Slots of brokers that are not up
/// cannot be moved.
fn planned_to_balance(slots: &[Slot], up: &[String]) -> Vec<Planned> {
    let mut counts = counts(slots, up);
    let mut planned: Vec<Planned> = Vec::new();
    loop {
        let most =
            counts.iter().max_by_key(|(_, count)| **count).map(|(name, count)| (*name, *count));
        let least =
            counts.iter().min_by_key(|(_, count)| **count).map(|(name, count)| (*name, *count));
        let (Some((from, most)), Some((to, least))) = (most, least) else { return planned };
        if most - least < 2 {
            return planned;
        }
        let is_planned = |slot: &Slot| planned.iter().any(|it| it.slot == slot.slot);
        let last = slots.iter().rev().find(|slot| slot.broker == from && !is_planned(slot));
        let Some(slot) = last else { return planned };
        planned.push(Planned { slot: slot.slot, from: from.into(), to: to.into() });
        *counts.get_mut(from).expect("it was counted") -= 1;
        *counts.get_mut(to).expect("it was counted") += 1;
    }
}

/// Moves the slots, and tells of each. `done` is what to say if there is nothing to do.
fn carry_out(
    admin: &Admin,
    planned: &[Planned],
    Options { dry_run, of }: &Options,
    done: impl FnOnce() -> String,
) -> anyhow::Result<ExitCode> {
    let mut moved = Vec::new();
    if planned.is_empty() && !of.json {
        print(done())?;
    }
    for (number, Planned { slot, from, to }) in (1_u64..).zip(planned) {
        if *dry_run {
            if of.json {
                moved.push(json!({ "slot": slot, "from": from, "to": to }));
            } else {
                print(format!("slot {slot}: {from} → {to}\n"))?;
            }
            continue;
        }
        let path = format!("/v1/cluster/slots/{slot}");
        let answer = match admin.change(&path, &json!({ "broker": to })) {
            Ok(answer) => answer,
            Err(error) => {
                print_moves(of.json, &moved)?;
                let done = count(number - 1, "slot has", "slots have");
                let sentence = format!(
                    "slot {slot} was not moved to {to}; {done} moved. Run the command again to go on"
                );
                return Err(error.context(sentence));
            }
        };
        if of.json {
            let mut one: Value = answer;
            (one["slot"], one["from"], one["to"]) =
                ((*slot).into(), from.as_str().into(), to.as_str().into());
            moved.push(one);
            continue;
        }
        let one: MovedSlot = admin.read(answer)?;
        print(format!(
            "{number} of {}  slot {slot}: {from} → {to}, {} and {}, closed for {} ms, held for {} ms\n{}",
            planned.len(),
            count(one.sessions, "session", "sessions"),
            bytes(one.bytes),
            one.closed_ms,
            one.held_ms,
            one.warning()
        ))?;
    }
    print_moves(of.json, &moved)?;
    Ok(ExitCode::SUCCESS)
}

fn print_moves(json: bool, moved: &[Value]) -> anyhow::Result<()> {
    if json {
        print(format!("{}\n", json!({ "moves": moved })))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(owners: &str) -> Vec<Slot> {
        let slot = |(slot, owner): (u16, char)| Slot {
            slot,
            broker: owner.into(),
            state: "up".into(),
            generation: 0,
            moving_to: None,
        };
        (0..).zip(owners.chars()).map(slot).collect()
    }

    fn names(names: &str) -> Vec<String> {
        names.chars().map(String::from).collect()
    }

    /// Returns the owners after some moves.
    fn after(owners: &str, planned: &[Planned]) -> String {
        let mut after: Vec<char> = owners.chars().collect();
        for one in planned {
            let owner = &mut after[usize::from(one.slot)];
            assert_eq!(owner.to_string(), one.from);
            *owner = one.to.chars().next().unwrap();
        }
        after.into_iter().collect()
    }

    #[test]
    fn who_is_drained_gives_to_those_that_have_the_fewest() {
        let owners = "aaabbcccc";
        let planned = planned_to_drain(&slots(owners), "c", &names("ab"));
        assert_eq!(after(owners, &planned), "aaabbbaba");
        assert_eq!(planned_to_drain(&slots("ab"), "c", &names("ab")), []);
    }

    #[test]
    fn a_new_broker_gets_as_many_as_the_others_have_and_no_slot_moves_in_vain() {
        let owners = "aaaabbbbcccc";
        let planned = planned_to_balance(&slots(owners), &names("abcd"));
        assert_eq!(planned.len(), 3);
        let after = after(owners, &planned);
        for name in "abcd".chars() {
            assert_eq!(after.matches(name).count(), 3, "{after}");
        }
        assert_eq!(planned_to_balance(&slots(&after), &names("abcd")), []);
        assert_eq!(planned_to_balance(&slots("aab"), &names("ab")), []);
    }

    #[test]
    fn slots_of_brokers_that_are_not_up_stay() {
        let owners = "aaaaccccccc";
        let planned = planned_to_balance(&slots(owners), &names("ab"));
        assert_eq!(after(owners, &planned), "aabbccccccc");
        assert_eq!(planned_to_balance(&slots("ccc"), &names("")), []);
    }
}
