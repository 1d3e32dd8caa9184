//! Rules, and the copies of a message that a subscription's rules make.

use smallvec::SmallVec;

use super::{Action, Change, Filter, Properties, same_name};
use crate::value::{Scope, Value};

/// The name of the rule that a new subscription has, which matches every message.
pub const DEFAULT_RULE: &str = "$Default";

/// The user property that names the rule whose action has changed the message.
pub const RULE_NAME: &str = "RuleName";

/// A named rule of a subscription.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The name, unique in the subscription.
    pub name: Box<str>,
    /// Selects the messages that the rule applies to.
    pub filter: Filter,
    /// The changes made in these messages.
    pub action: Option<Action>,
}

/// The copies of a message that a subscription gets: the changes made in each.
pub type Copies = SmallVec<[Vec<Change>; 1]>;

impl Rule {
    /// Returns the rule that a new subscription has.
    pub fn default_rule() -> Self {
        Self { name: DEFAULT_RULE.into(), filter: Filter::True, action: None }
    }

    /// Returns the copies of a message that a subscription with these rules gets: one unchanged
    /// copy if a rule without an action matches, and another one for each matching rule with an
    /// action, with its changes and with the name of the rule as [`RULE_NAME`]. If there is no
    /// copy, the subscription does not accept the message.
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
