//! A rule, and what a subscription's rules make of a message.

use smallvec::SmallVec;

use super::{Action, Change, Filter, Properties, same_name};
use crate::value::{Scope, Value};

/// The name of the rule that a subscription has from the beginning: every message.
pub const DEFAULT_RULE: &str = "$Default";

/// The user property that says which rule's action a message went through.
pub const RULE_NAME: &str = "RuleName";

/// A named rule of a subscription.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Its name, one in the subscription.
    pub name: Box<str>,
    /// Which messages it is for.
    pub filter: Filter,
    /// What it changes in them.
    pub action: Option<Action>,
}

/// The copies of a message that a subscription gets: what is changed in each.
pub type Copies = SmallVec<[Vec<Change>; 1]>;

impl Rule {
    /// The rule that a subscription has from the beginning.
    pub fn default_rule() -> Self {
        Self { name: DEFAULT_RULE.into(), filter: Filter::True, action: None }
    }

    /// What a subscription with these rules gets of a message: one copy as it is if a rule without
    /// an action is for it, and one more for each rule with an action, with its changes and the
    /// name of the rule as [`RULE_NAME`]. No copy: the subscription does not take the message.
    pub fn copies(rules: &[Self], message: &impl Properties) -> Copies {
        let mut copies = Copies::new();
        let mut plain = rules.iter().filter(|rule| rule.action.is_none());
        if plain.any(|rule| rule.filter.matches(message)) {
            copies.push(Vec::new());
        }
        for rule in rules {
            let Some(action) = &rule.action else { continue };
            if rule.filter.matches(message) {
                let mut changes = action.changes(message);
                changes.retain(|(scope, name, _)| {
                    !(*scope == Scope::User && same_name(name, RULE_NAME))
                });
                changes.push((Scope::User, RULE_NAME.into(), Value::String(rule.name.clone())));
                copies.push(changes);
            }
        }
        copies
    }
}
