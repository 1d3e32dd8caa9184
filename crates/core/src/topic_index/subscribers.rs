//! The subscribers and shared subscriptions of one topic filter.

use std::sync::Arc;

use super::roster::Roster;
use super::{Member, SharedGroup, Subscriber};

/// The subscribers and the shared subscriptions of one filter. Most filters have one subscriber,
/// which therefore needs no allocation.
#[derive(Default)]
pub(super) enum Subscribers<S> {
    #[default]
    None,
    One(Member<S>),
    Many(Box<Many<S>>),
}

pub(super) struct Many<S> {
    plain: Roster<S>,
    /// Sorted by name.
    groups: Vec<Arc<SharedGroup<S>>>,
}

/// The result of a subscribe or unsubscribe for a filter.
pub(super) struct Change<S> {
    /// Whether the number of subscriptions has changed by one.
    pub(super) counts: bool,
    /// Whether routes made before may differ from routes made after.
    pub(super) routes: bool,
    /// The member that left the index. It must be dropped after the locks are released: the index
    /// does not know what a subscriber's `Drop` does.
    pub(super) left: Option<Member<S>>,
}

impl<S> Change<S> {
    pub(super) const NONE: Self = Self { counts: false, routes: false, left: None };
}

impl<S: Subscriber> Subscribers<S> {
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::None)
    }

    /// The subscribers that are not in a shared subscription.
    pub(super) fn plain(&self) -> &[Member<S>] {
        match self {
            Self::None => &[],
            Self::One(member) => std::slice::from_ref(member),
            Self::Many(many) => many.plain.members(),
        }
    }

    /// Returns the position in [`Self::plain`] of the subscriber with `key`.
    pub(super) fn position(&self, key: u64) -> Option<usize> {
        match self {
            Self::None => None,
            Self::One(member) => (member.subscriber.key() == key).then_some(0),
            Self::Many(many) => many.plain.position(key),
        }
    }

    pub(super) fn groups(&self) -> &[Arc<SharedGroup<S>>] {
        match self {
            Self::Many(many) => &many.groups,
            _ => &[],
        }
    }

    /// Returns the handle of the subscriber with `key`, if it is not in a shared subscription only.
    pub(super) fn get(&self, key: u64) -> Option<&S> {
        self.position(key).map(|at| &self.plain()[at].subscriber)
    }

    /// Returns the handle of the member with `key` of the shared subscription `name`.
    pub(super) fn get_shared(&self, name: &str, key: u64) -> Option<S> {
        let group = self.groups().iter().find(|group| group.name() == name)?;
        Some(group.member(key)?.subscriber)
    }

    /// Calls `look` with each handle, and with the name of the shared subscription if it is in one.
    pub(super) fn each(&self, mut look: impl FnMut(Option<&str>, &S)) {
        self.plain().iter().for_each(|member| look(None, &member.subscriber));
        for group in self.groups() {
            group.members().iter().for_each(|member| look(Some(group.name()), &member.subscriber));
        }
    }

    /// Whether `is_it` returns true for one of the handles.
    pub(super) fn any(&self, is_it: impl Fn(&S) -> bool) -> bool {
        let is_it = |member: &Member<S>| is_it(&member.subscriber);
        self.plain().iter().any(is_it)
            || self.groups().iter().any(|group| group.members().iter().any(is_it))
    }

    pub(super) fn insert(&mut self, member: Member<S>) -> Change<S> {
        let left = match self {
            Self::None => {
                *self = Self::One(member);
                None
            }
            Self::One(one) if one.subscriber.key() == member.subscriber.key() => {
                Some(std::mem::replace(one, member))
            }
            _ => self.many().plain.insert(member),
        };
        // Also if only the handle is another one: it may count, where the old one did not.
        Change { counts: left.is_none(), routes: true, left }
    }

    pub(super) fn remove(&mut self, key: u64) -> Change<S> {
        let left = match self {
            Self::One(one) if one.subscriber.key() == key => {
                let Self::One(member) = std::mem::take(self) else { unreachable!("it is One") };
                Some(member)
            }
            Self::Many(many) => many.plain.remove(key),
            _ => None,
        };
        self.simplify();
        Change { counts: left.is_some(), routes: left.is_some(), left }
    }

    /// Adds a member to the shared subscription `name`. Routes refer to the group itself, so they
    /// change only if the group is new.
    pub(super) fn insert_shared(
        &mut self,
        name: &str,
        filter: &str,
        member: Member<S>,
    ) -> Change<S> {
        let groups = &mut self.many().groups;
        let (at, routes) = match groups.binary_search_by(|group| group.name().cmp(name)) {
            Ok(at) => (at, false),
            Err(at) => {
                groups.insert(at, Arc::new(SharedGroup::new(name, filter)));
                (at, true)
            }
        };
        let left = groups[at].insert(member);
        Change { counts: left.is_none(), routes, left }
    }

    pub(super) fn remove_shared(&mut self, name: &str, key: u64) -> Change<S> {
        let Self::Many(many) = self else { return Change::NONE };
        let Ok(at) = many.groups.binary_search_by(|group| group.name().cmp(name)) else {
            return Change::NONE;
        };
        let left = many.groups[at].remove(key);
        let routes = many.groups[at].is_empty();
        if routes {
            many.groups.remove(at);
            self.simplify();
        }
        Change { counts: left.is_some(), routes, left }
    }

    fn many(&mut self) -> &mut Many<S> {
        if !matches!(self, Self::Many(_)) {
            let mut plain = Roster::default();
            if let Self::One(member) = std::mem::take(self) {
                plain.insert(member);
            }
            *self = Self::Many(Box::new(Many { plain, groups: Vec::new() }));
        }
        match self {
            Self::Many(many) => many,
            _ => unreachable!("it was made Many above"),
        }
    }

    /// Returns to the smallest form that fits the remaining subscribers.
    fn simplify(&mut self) {
        let Self::Many(many) = self else { return };
        if !many.groups.is_empty() {
            return;
        }
        if many.plain.is_empty() {
            *self = Self::None;
        } else if let Some(member) = many.plain.take_only() {
            *self = Self::One(member);
        }
    }
}
