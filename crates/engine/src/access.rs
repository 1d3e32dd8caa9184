//! Permissions of a client: what it may do with topics, keys of the state store, and entities.

use std::sync::Arc;

use mqtt_proto::{QoS, topic};
use statestore_proto::{Verb, topics};

use crate::key_rules::{self, KeyAccess, KeyKind, KeyRule, Keys};
use crate::names::{is_connection_state, is_reserved};
use crate::rights::{Action, ActionSet, Actions, Rights, Rule};
use crate::user_limits::UserLimits;

/// The rights of a user, compiled. All connections of the user share it.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The rules of the user, and behind them what `publish`, `subscribe` and `state` stand for.
    own: Arc<[Compiled]>,
    /// Number of `own` that are rules of the user.
    rules: usize,
    /// Decides if the tenant has no rules either. `None`: a user with rules of its own.
    otherwise: Option<Arc<Compiled>>,
    tenant: Arc<TenantRules>,
    /// The limits of the user; `None`: it has none of its own.
    limits: Option<Box<UserLimits>>,
}

/// The rules of a tenant, compiled. All its users share them.
#[derive(Debug, Default)]
pub struct TenantRules(Vec<Compiled>);

/// The permissions of one client: the policy of its user, with the client identifier filled in.
#[derive(Debug)]
pub struct Permissions {
    policy: Arc<Policy>,
    own: FilledIn,
    tenant: FilledIn,
}

/// A rule, compiled.
#[derive(Debug)]
struct Compiled {
    allows: bool,
    topics: Part<Pattern>,
    keys: Part<KeyPattern>,
    entities: Part<Pattern>,
    /// The QoS levels that the rule matches, one bit for each.
    qos: u8,
    retain: Option<bool>,
}

/// What a rule says about one kind of targets.
#[derive(Debug)]
struct Part<P> {
    actions: ActionSet,
    /// `None`: all targets.
    patterns: Option<Vec<P>>,
}

/// A topic filter, or a path of entities in the form of one.
#[derive(Debug)]
enum Pattern {
    Fixed(Box<str>),
    /// A filter with `%c` or `%u`. The number is its place in [`FilledIn`].
    Template(Box<str>, usize),
}

#[derive(Debug)]
enum KeyPattern {
    Fixed(Keys),
    /// A pattern with `{…}`. The number is its place in [`FilledIn`].
    Template(Box<str>, usize),
}

/// The templates of a list of rules, filled in for one client. `None`: the template cannot be filled in,
/// because the client identifier would change its shape.
#[derive(Debug, Default)]
struct FilledIn {
    filters: Box<[Option<Box<str>>]>,
    keys: Box<[Option<Keys>]>,
}

impl TenantRules {
    /// Compiles the rules of a tenant, which [`Rule::check`] has accepted.
    pub fn new(rules: &[Rule]) -> Self {
        let mut numbers = Numbers::default();
        Self(rules.iter().map(|rule| Compiled::new(rule, &mut numbers)).collect())
    }

    /// Whether there are no rules.
    pub fn are_none(&self) -> bool {
        self.0.is_empty()
    }
}

impl Policy {
    /// Compiles the rights of a user, which [`Rights::check`] has accepted.
    pub fn new(rights: &Rights, tenant: Arc<TenantRules>) -> Self {
        let mut numbers = Numbers::default();
        let mut own: Vec<_> =
            rights.rules.iter().map(|rule| Compiled::new(rule, &mut numbers)).collect();
        let count = own.len();
        for (action, filters) in
            [(Action::Publish, &rights.publish), (Action::Subscribe, &rights.subscribe)]
        {
            if let Some(filters) = filters {
                own.push(Compiled::allowing_topics(action, filters, &mut numbers));
                own.push(Compiled::new(&Rule::everywhere(false, action), &mut numbers));
            }
        }
        if let Some(rules) = &rights.state {
            own.extend(rules.iter().map(|rule| Compiled::allowing_keys(rule, &mut numbers)));
            for action in [Action::Read, Action::Write] {
                own.push(Compiled::new(&Rule::everywhere(false, action), &mut numbers));
            }
        }
        let otherwise = rights.rules.is_empty().then(|| {
            // Topics of the broker must be allowed by name, so this is not a rule without targets.
            let mut all = Compiled::new(&Rule::everywhere(true, Action::All), &mut numbers);
            all.topics.patterns = Some(vec![Pattern::Fixed("#".into())]);
            if !rights.are_empty() {
                all.entities.actions = ActionSet::default();
            }
            Arc::new(all)
        });
        let limits = rights.limits.clone();
        Self { own: own.into(), rules: count, otherwise, tenant, limits }
    }

    /// Returns the policy of a user who may do everything.
    pub fn everything() -> Self {
        Self::new(&Rights::default(), Arc::default())
    }

    /// Returns the policy with other rules of the tenant.
    #[must_use]
    pub fn under(&self, tenant: Arc<TenantRules>) -> Self {
        Self { tenant, ..self.clone() }
    }

    /// The limits of the user.
    pub fn limits(&self) -> &UserLimits {
        self.limits.as_deref().unwrap_or(&UserLimits::NONE)
    }
}

impl Permissions {
    /// Applies a policy to a client. In a rule that allows, a template with `%c` matches nothing if the client
    /// identifier would change its shape; in a rule that denies, it matches everything.
    pub fn new(policy: Arc<Policy>, user: &str, client_id: &str) -> Self {
        let own = FilledIn::new(&policy.own, user, client_id);
        let tenant = FilledIn::new(&policy.tenant.0, user, client_id);
        Self { policy, own, tenant }
    }

    /// The limits of the user.
    pub(crate) fn limits(&self) -> &UserLimits {
        self.policy.limits()
    }

    /// Whether the client may publish messages with this QoS and RETAIN to a topic.
    fn may_publish(&self, topic: &str, qos: QoS, retain: bool) -> bool {
        self.decide(|rule, filled_in| rule.is_for_message(filled_in, topic, qos, retain))
    }

    /// Whether the client may subscribe to a filter with this maximum QoS. Everything that the filter matches
    /// must be allowed.
    pub(crate) fn may_subscribe(&self, wanted: &str, qos: QoS) -> bool {
        self.decide(|rule, filled_in| rule.is_for_filter(filled_in, wanted, qos))
    }

    /// Whether a command to the state store with this verb may touch `key`.
    pub(crate) fn may_touch(&self, verb: Verb, key: &[u8]) -> bool {
        self.decide(|rule, filled_in| rule.is_for_key(filled_in, verb, key))
    }

    /// Returns which rule does not let the client publish, as a part of a sentence.
    pub(crate) fn why_not_publish(&self, topic: &str, qos: QoS, retain: bool) -> String {
        self.why_not("publish", |rule, filled_in| {
            rule.is_for_message(filled_in, topic, qos, retain)
        })
    }

    /// Returns which rule does not let the client subscribe, as a part of a sentence.
    pub(crate) fn why_not_subscribe(&self, wanted: &str, qos: QoS) -> String {
        self.why_not("subscribe", |rule, filled_in| rule.is_for_filter(filled_in, wanted, qos))
    }

    /// Returns which rule does not let the client touch a key, as a part of a sentence.
    pub(crate) fn why_not_touch(&self, verb: Verb, key: &[u8]) -> String {
        self.why_not("state", |rule, filled_in| rule.is_for_key(filled_in, verb, key))
    }

    /// Returns which rule does not let the client use an entity, as a part of a sentence.
    pub(crate) fn why_not_use(&self, action: Action, path: &str) -> String {
        self.why_not("entities", |rule, filled_in| rule.is_for_entity(filled_in, action, path))
    }

    /// Whether a message that waits for the client may be sent to it: whether it may subscribe to its topic. Answers and
    /// notifications of the state store are for the client that has asked for them.
    pub(crate) fn may_receive(&self, topic: &str, qos: QoS) -> bool {
        topic.starts_with(topics::RESERVED) || self.may_subscribe(topic, qos)
    }

    /// Whether the client may send to, receive from or manage the entity at a canonical path. Rules of entities
    /// apply whatever the case of their letters is, as paths of entities do.
    pub(crate) fn may_use(&self, action: Action, path: &str) -> bool {
        self.decide(|rule, filled_in| rule.is_for_entity(filled_in, action, path))
    }

    /// Returns what the first rule that matches decides; without one, no.
    fn decide(&self, matches: impl Fn(&Compiled, &FilledIn) -> bool) -> bool {
        let own = self.policy.own.iter().map(|rule| (rule, &self.own));
        let tenant = self.policy.tenant.0.iter().map(|rule| (rule, &self.tenant));
        let otherwise = self.policy.otherwise.iter().filter(|_| self.policy.tenant.0.is_empty());
        let otherwise = otherwise.map(|rule| (&**rule, &self.own));
        let mut rules = own.chain(tenant).chain(otherwise);
        rules
            .find(|(rule, filled_in)| matches(rule, filled_in))
            .is_some_and(|(rule, _)| rule.allows)
    }

    /// Returns which of the rules that match denies, as a part of a sentence. Rules have the numbers that `barid user
    /// show` and `barid tenant show` print. `list`: the member of a user's rights that names everything it allows.
    fn why_not(&self, list: &str, matches: impl Fn(&Compiled, &FilledIn) -> bool) -> String {
        let own = self.policy.own.iter().position(|rule| matches(rule, &self.own));
        if let Some(place) = own {
            return match place < self.policy.rules {
                true => format!("rule {} of the user denies it", place + 1),
                false => format!("`{list}` of the user does not allow it"),
            };
        }
        let of_tenant = self.policy.tenant.0.iter().position(|rule| matches(rule, &self.tenant));
        match of_tenant {
            Some(place) => format!("rule {} of the tenant denies it", place + 1),
            None => "no rule of the user or of the tenant allows it".into(),
        }
    }
}

impl Compiled {
    fn new(rule: &Rule, numbers: &mut Numbers) -> Self {
        let [topics, keys, entities] = rule.actions();
        let mut filters = |filters: &Option<Vec<String>>, write: fn(&str) -> String| {
            filters.as_ref().map(|all| all.iter().map(|one| numbers.filter(&write(one))).collect())
        };
        let (topics, entities) = (
            Part { actions: topics, patterns: filters(&rule.topics, str::to_owned) },
            Part { actions: entities, patterns: filters(&rule.entities, str::to_ascii_lowercase) },
        );
        let patterns = rule
            .keys
            .as_ref()
            .map(|keys| keys.iter().filter_map(|key| numbers.key(KeyKind::Pattern, key)).collect());
        let levels = rule.qos.as_ref();
        Self {
            allows: rule.allows(),
            topics,
            keys: Part { actions: keys, patterns },
            entities,
            qos: levels.map_or(0b111, |levels| levels.iter().fold(0, |set, qos| set | 1 << qos)),
            retain: rule.retain,
        }
    }

    fn allowing_topics(action: Action, filters: &[String], numbers: &mut Numbers) -> Self {
        let rule = Rule { topics: Some(filters.to_vec()), ..Rule::everywhere(true, action) };
        Self::new(&rule, numbers)
    }

    fn allowing_keys(rule: &KeyRule, numbers: &mut Numbers) -> Self {
        let actions = match rule.access {
            KeyAccess::Read => vec![Action::Read],
            KeyAccess::Write => vec![Action::Write],
            KeyAccess::ReadWrite => vec![Action::Read, Action::Write],
        };
        let keys = rule.keys.iter().filter_map(|key| numbers.key(rule.kind, key));
        let patterns = Some(keys.collect());
        let allow = Some(Actions::Many(actions));
        let mut compiled = Self::new(&Rule { allow, ..Rule::default() }, numbers);
        compiled.keys.patterns = patterns;
        compiled
    }

    fn is_for(&self, qos: QoS) -> bool {
        self.qos & 1 << qos as u8 != 0
    }

    fn is_for_message(&self, filled_in: &FilledIn, topic: &str, qos: QoS, retain: bool) -> bool {
        self.is_for(qos)
            && self.retain.is_none_or(|only| only == retain)
            && self.matches_path(&self.topics, Action::Publish, filled_in, |filter| {
                topic::matches(filter, topic)
            })
    }

    fn is_for_filter(&self, filled_in: &FilledIn, wanted: &str, qos: QoS) -> bool {
        let fits = if self.allows { covers } else { overlaps };
        self.is_for(qos)
            && self.matches_path(&self.topics, Action::Subscribe, filled_in, |filter| {
                fits(filter, wanted)
            })
    }

    fn is_for_key(&self, filled_in: &FilledIn, verb: Verb, key: &[u8]) -> bool {
        let action = if key_rules::writes(verb) { Action::Write } else { Action::Read };
        self.keys.matches(action, |pattern| match pattern {
            KeyPattern::Fixed(keys) => keys.include(key),
            KeyPattern::Template(_, place) => {
                filled_in.keys[*place].as_ref().map_or(!self.allows, |keys| keys.include(key))
            }
        })
    }

    fn is_for_entity(&self, filled_in: &FilledIn, action: Action, path: &str) -> bool {
        self.matches_path(&self.entities, action, filled_in, |filter| topic::matches(filter, path))
    }

    /// Whether the rule is about `action`, and one of the filters in `part` fits.
    fn matches_path(
        &self,
        part: &Part<Pattern>,
        action: Action,
        filled_in: &FilledIn,
        fits: impl Fn(&str) -> bool,
    ) -> bool {
        part.matches(action, |pattern| match pattern {
            Pattern::Fixed(filter) => fits(filter),
            Pattern::Template(_, place) => {
                filled_in.filters[*place].as_deref().map_or(!self.allows, &fits)
            }
        })
    }
}

impl<P> Part<P> {
    fn matches(&self, action: Action, fits: impl Fn(&P) -> bool) -> bool {
        self.actions.overlaps(ActionSet::of(action))
            && self.patterns.as_ref().is_none_or(|patterns| patterns.iter().any(fits))
    }
}

/// Assigns the places of templates in [`FilledIn`].
#[derive(Default)]
struct Numbers {
    filters: usize,
    keys: usize,
}

impl Numbers {
    fn filter(&mut self, filter: &str) -> Pattern {
        if !filter.contains("%c") && !filter.contains("%u") {
            return Pattern::Fixed(filter.into());
        }
        self.filters += 1;
        Pattern::Template(filter.into(), self.filters - 1)
    }

    /// Returns `None` for a key that [`Rule::check`] does not accept.
    fn key(&mut self, kind: KeyKind, key: &str) -> Option<KeyPattern> {
        if kind != KeyKind::Pattern || !key.contains('{') {
            return Keys::parse(kind, key, "", "").ok().map(KeyPattern::Fixed);
        }
        self.keys += 1;
        Some(KeyPattern::Template(key.into(), self.keys - 1))
    }
}

impl FilledIn {
    fn new(rules: &[Compiled], user: &str, client_id: &str) -> Self {
        let is_harmless = !client_id.is_empty()
            && !client_id.starts_with('$')
            && !client_id.contains(['+', '#', '/']);
        let fill_in = |template: &str| {
            let is_fit = (is_harmless || !template.contains("%c"))
                && !(template.contains("%u") && user.contains(['+', '#']));
            is_fit.then(|| substitute(template, user, client_id))
        };
        let mut filters = Vec::new();
        let mut keys = Vec::new();
        let templates = |patterns: &Option<Vec<Pattern>>| {
            let patterns = patterns.iter().flatten();
            let templates = patterns.filter_map(|pattern| match pattern {
                Pattern::Template(template, _) => Some(fill_in(template)),
                Pattern::Fixed(_) => None,
            });
            templates.collect::<Vec<_>>()
        };
        for rule in rules {
            // In the order in which `Compiled::new` has assigned the places.
            filters.extend(templates(&rule.topics.patterns));
            let entities = templates(&rule.entities.patterns);
            filters
                .extend(entities.into_iter().map(|path| Some(path?.to_ascii_lowercase().into())));
            for pattern in rule.keys.patterns.iter().flatten() {
                if let KeyPattern::Template(template, _) = pattern {
                    keys.push(Keys::parse(KeyKind::Pattern, template, user, client_id).ok());
                }
            }
        }
        Self { filters: filters.into(), keys: keys.into() }
    }
}

/// Replaces `%c` and `%u` in one pass, so that a user name with `%c` in it stays as it is.
fn substitute(template: &str, user: &str, client_id: &str) -> Box<str> {
    let mut text = String::with_capacity(template.len() + user.len());
    let mut rest = template;
    while let Some(at) = rest.find('%') {
        let (before, behind) = rest.split_at(at);
        text.push_str(before);
        let (value, len) = match behind.as_bytes().get(1) {
            Some(b'c') => (client_id, 2),
            Some(b'u') => (user, 2),
            _ => ("%", 1),
        };
        text.push_str(value);
        rest = &behind[len..];
    }
    text.push_str(rest);
    text.into()
}

/// Whether a client may publish to a topic, or have its will published there. Without permissions, a client may
/// publish to all topics except those of the broker.
///
/// A client may always publish its own connection state, which is `0`, `1` or empty, whatever its permissions are.
/// No other client can do so, and a bridge that may not is unable to connect.
pub fn may_publish(
    permissions: Option<&Permissions>,
    client_id: &str,
    topic: &str,
    (qos, retain): (QoS, bool),
    payload: &[u8],
) -> bool {
    if is_reserved(topic) {
        return is_connection_state(topic, client_id) && matches!(payload, b"" | b"0" | b"1");
    }
    permissions.is_none_or(|permissions| permissions.may_publish(topic, qos, retain))
}

/// Whether every topic that `filter` matches is matched by `rule`.
fn covers(rule: &str, filter: &str) -> bool {
    // Leading wildcards do not match topics that begin with `$` (MQTT-4.7.2-1).
    if filter.starts_with('$') && rule.starts_with(['+', '#']) {
        return false;
    }
    let mut wanted = filter.split('/');
    for level in rule.split('/') {
        if level == "#" {
            return true;
        }
        match wanted.next() {
            None | Some("#") => return false,
            Some(want) if level == "+" || level == want => {}
            Some(_) => return false,
        }
    }
    wanted.next().is_none()
}

/// Whether there is a topic that both filters match.
fn overlaps(one: &str, other: &str) -> bool {
    let is_hidden =
        |wild: &str, plain: &str| wild.starts_with(['+', '#']) && plain.starts_with('$');
    if is_hidden(one, other) || is_hidden(other, one) {
        return false;
    }
    let (mut one, mut other) = (one.split('/'), other.split('/'));
    loop {
        match (one.next(), other.next()) {
            // `a/#` also matches `a`.
            (Some("#"), _) | (_, Some("#")) | (None, None) => return true,
            (Some(a), Some(b)) if a == "+" || b == "+" || a == b => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn permissions(rights: &str, tenant: &str, client_id: &str) -> Permissions {
        let rights: Rights = serde_json::from_str(rights).unwrap();
        let tenant: Vec<Rule> = serde_json::from_str(tenant).unwrap();
        assert_eq!(rights.check("acme/ada"), Ok(()));
        let policy = Policy::new(&rights, Arc::new(TenantRules::new(&tenant)));
        Permissions::new(Arc::new(policy), "acme/ada", client_id)
    }

    fn publishes(permissions: &Permissions, topic: &str) -> bool {
        permissions.may_publish(topic, QoS::AtMostOnce, false)
    }

    fn subscribes(permissions: &Permissions, filter: &str) -> bool {
        permissions.may_subscribe(filter, QoS::AtMostOnce)
    }

    #[test]
    fn rules_are_for_the_client() {
        let text = r#"{"publish":["dev/%c/up","all/%u/#"],"subscribe":["dev/%c/#"]}"#;
        let of = |client_id| permissions(text, "[]", client_id);
        let own = of("c1");
        assert!(publishes(&own, "dev/c1/up") && !publishes(&own, "dev/c2/up"));
        assert!(publishes(&own, "all/acme/ada/x"));
        assert!(subscribes(&own, "dev/c1/+") && !subscribes(&own, "dev/+/up"));
        for widened in ["", "+", "#", "c1/x", "$SYS"] {
            assert!(!publishes(&of(widened), "dev/c1/up"), "{widened}");
        }
        assert_eq!(&*substitute("%u/%c/%x%", "a%c", "d"), "a%c/d/%x%");
    }

    #[test]
    fn it_is_said_which_rule_denies() {
        let own = permissions(
            r##"{"rules":[{"allow":"publish","topics":["a"]},{"deny":"publish","topics":["b/#"]}],"subscribe":["c/#"],"state":[]}"##,
            r##"[{"deny":"all","topics":["d/#"],"entities":["d"]}]"##,
            "c1",
        );
        let of_message = |topic| own.why_not_publish(topic, QoS::AtMostOnce, false);
        assert_eq!(of_message("b/1"), "rule 2 of the user denies it");
        assert_eq!(of_message("d/1"), "rule 1 of the tenant denies it");
        assert_eq!(of_message("e"), "no rule of the user or of the tenant allows it");
        let of_filter = own.why_not_subscribe("#", QoS::AtMostOnce);
        assert_eq!(of_filter, "`subscribe` of the user does not allow it");
        let of_key = own.why_not_touch(Verb::Get, b"k");
        assert_eq!(of_key, "`state` of the user does not allow it");
        assert_eq!(own.why_not_use(Action::Send, "d"), "rule 1 of the tenant denies it");
    }

    #[test]
    fn a_rule_that_denies_cannot_be_avoided_by_a_client_identifier() {
        let text = r##"{"rules":[{"deny":"publish","topics":["locked/%c/#"]},{"allow":"publish","topics":["#"]}]}"##;
        assert!(!publishes(&permissions(text, "[]", "c1"), "locked/c1/x"));
        assert!(publishes(&permissions(text, "[]", "c1"), "locked/c2/x"));
        assert!(!publishes(&permissions(text, "[]", "+"), "locked/c1/x"));
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let own = permissions(
            r##"{"rules":[{"allow":"publish","topics":["config/mine"]},{"deny":"publish","topics":["config/#"]},{"allow":"publish","topics":["+/#"],"qos":[0],"retain":false}]}"##,
            r##"[{"allow":"subscribe","topics":["news/#"]},{"allow":"publish","topics":["wide"]}]"##,
            "c",
        );
        assert!(publishes(&own, "config/mine") && !publishes(&own, "config/other"));
        assert!(publishes(&own, "x"));
        assert!(!own.may_publish("x", QoS::AtLeastOnce, false));
        assert!(!own.may_publish("x", QoS::AtMostOnce, true));
        assert!(own.may_publish("wide", QoS::ExactlyOnce, true), "the rules of the tenant follow");
        assert!(subscribes(&own, "news/today") && !subscribes(&own, "#"));
        assert!(!own.may_touch(Verb::Get, b"a") && !own.may_use(Action::Send, "orders"));
    }

    #[test]
    fn a_filter_may_match_nothing_that_is_denied() {
        let own = permissions(
            r##"{"rules":[{"deny":"subscribe","topics":["+/secret"]},{"allow":"subscribe","topics":["#"]}]}"##,
            "[]",
            "c",
        );
        for (filter, expected) in [
            ("a/b", true),
            ("a/secret", false),
            ("a/+", false),
            ("a/#", false),
            ("#", false),
            ("a/b/#", true),
            ("$SYS/#", false),
        ] {
            assert_eq!(subscribes(&own, filter), expected, "{filter}");
        }
    }

    #[test]
    fn without_any_rule_everything_is_allowed() {
        let own = permissions("{}", "[]", "c");
        assert!(publishes(&own, "a") && subscribes(&own, "#") && own.may_touch(Verb::Set, b"k"));
        assert!(own.may_use(Action::Manage, "orders"));
        assert!(!subscribes(&own, "$SYS/#"));
        let own = permissions(r#"{"publish":["a"]}"#, "[]", "c");
        assert!(publishes(&own, "a") && !publishes(&own, "b"));
        assert!(subscribes(&own, "#") && own.may_touch(Verb::Set, b"k"));
        assert!(!own.may_use(Action::Send, "orders"), "entities are not in the short forms");
        assert!(!publishes(&permissions("{}", r#"[{"deny":"all"}]"#, "c"), "a"));
        let own = permissions(r#"{"limits":{"connect_rate":1}}"#, "[]", "c");
        assert!(own.may_use(Action::Manage, "orders"), "a limit is no rule");
        assert_eq!(own.limits().connect_rate, Some(1));
    }

    #[test]
    fn keys_and_entities_have_rules() {
        let own = permissions(
            r##"{"rules":[{"deny":"write","keys":["own/{principal.clientId}/fixed"]},{"allow":"all","keys":["own/{principal.clientId}/*"]},{"allow":["send","receive"],"entities":["orders","alarms/#"]}]}"##,
            "[]",
            "*",
        );
        assert!(own.may_touch(Verb::Set, b"own/*/x") && !own.may_touch(Verb::Set, b"own/a/x"));
        assert!(
            !own.may_touch(Verb::Set, b"own/*/fixed") && own.may_touch(Verb::Get, b"own/*/fixed")
        );
        assert!(own.may_use(Action::Send, "orders") && !own.may_use(Action::Manage, "orders"));
        assert!(own.may_use(Action::Receive, "alarms/subscriptions/a"));
    }

    #[test]
    fn rules_of_entities_apply_in_any_case() {
        let rights: Rights = serde_json::from_str(
            r##"{"rules":[{"deny":"all","entities":["Orders/Old","inbox/%u"]},{"allow":"all","entities":["ORDERS/#","inbox/#","of/%c/%u"],"topics":["T/%c"]}]}"##,
        )
        .unwrap();
        let policy = Arc::new(Policy::new(&rights, Arc::default()));
        let own = Permissions::new(policy, "Acme/Ada", "C1");
        let sends = |path| own.may_use(Action::Send, path);
        assert!(sends("orders/new") && !sends("orders/old"));
        assert!(sends("inbox/acme/bob") && !sends("inbox/acme/ada"));
        assert!(sends("of/c1/acme/ada") && !sends("of/c2/acme/ada"));
        assert!(publishes(&own, "T/C1") && !publishes(&own, "t/c1"), "topics have a case");
    }

    #[test]
    fn key_rules_of_the_short_form_allow_reading_and_writing_apart() {
        let text = r#"{"state":[{"access":"read","type":"string","keys":["a"]},{"access":"write","keys":["w*"]},{"access":"readwrite","type":"binary","keys":["/w=="]},{"access":"read","keys":["{principal.attributes.x}*"]}]}"#;
        let rights: Rights = serde_json::from_str(text).unwrap();
        let own = Permissions::new(Arc::new(Policy::new(&rights, Arc::default())), "u", "c");
        assert!(own.may_touch(Verb::Get, b"a") && !own.may_touch(Verb::Set, b"a"));
        assert!(own.may_touch(Verb::Del, b"wx") && !own.may_touch(Verb::Scan, b"wx"));
        assert!(own.may_touch(Verb::VDel, b"\xff") && own.may_touch(Verb::KeyNotify, b"\xff"));
        assert!(!own.may_touch(Verb::Get, b"z"), "a pattern with another name allows nothing");
    }

    #[test]
    fn a_rule_covers_what_it_matches_and_no_more() {
        for (rule, filter, expected) in [
            ("#", "a/+/#", true),
            ("#", "$SYS/x", false),
            ("$SYS/#", "$SYS/x", true),
            ("a/#", "a", true),
            ("a/#", "a/b", true),
            ("a/+", "a/+", true),
            ("a/+", "a/b", true),
            ("a/+", "a/#", false),
            ("a/+", "a/b/c", false),
            ("a/b", "a/+", false),
            ("a/b", "a", false),
            ("+/b", "a/b", true),
        ] {
            assert_eq!(covers(rule, filter), expected, "{rule} covers {filter}");
        }
    }

    fn filter() -> impl Strategy<Value = String> {
        let level = prop_oneof![3 => "[ab]", 1 => Just("+".to_owned())];
        let first = prop_oneof![3 => "[ab]", 1 => Just("+".to_owned()), 1 => Just("$a".to_owned())];
        (first, proptest::collection::vec(level, 0..3), any::<bool>()).prop_map(
            |(first, levels, is_open)| {
                let mut filter = first;
                for level in levels {
                    filter = format!("{filter}/{level}");
                }
                if is_open { format!("{filter}/#") } else { filter }
            },
        )
    }

    fn topics() -> Vec<String> {
        let mut all = vec![];
        for first in ["a", "b", "c", "$a"] {
            let mut grown = vec![first.to_owned()];
            for _ in 0..4 {
                all.extend(grown.clone());
                grown = grown
                    .iter()
                    .flat_map(|topic| ["a", "b", "c"].map(|level| format!("{topic}/{level}")))
                    .collect();
            }
        }
        all
    }

    proptest! {
        #[test]
        fn covering_and_overlapping_are_as_the_topics_say(one in filter(), other in filter()) {
            let common = topics().into_iter().filter(|topic| topic::matches(&other, topic));
            let common: Vec<_> = common.collect();
            let both = common.iter().filter(|topic| topic::matches(&one, topic)).count();
            prop_assert_eq!(overlaps(&one, &other), both > 0);
            if covers(&one, &other) {
                prop_assert_eq!(both, common.len());
            }
        }
    }
}
