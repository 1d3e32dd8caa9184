//! A queue in which tenants and addresses take turns.

use std::collections::VecDeque;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};

use hashbrown::HashMap;

/// A bounded queue of items that belong to a tenant and an address. Every other turn goes round the tenants, and in each
/// round of a tenant round its addresses; the turns between them go round the addresses, and for each round its tenants.
/// So neither a tenant with many addresses nor an address that is known in many tenants delays others.
///
/// If the queue is full, the tenant with the most items gives way, or else the address with the most.
#[derive(Debug)]
pub(crate) struct Turns<T> {
    items: HashMap<(Box<str>, IpAddr), VecDeque<T>>,
    tenants: Rounds<Box<str>, IpAddr>,
    addresses: Rounds<IpAddr, Box<str>>,
    /// Whether the next turn is that of an address.
    is_of_address: bool,
    len: usize,
    most: usize,
}

/// Rounds in which each group that has items has its turn, and in each of its turns the next of its members.
#[derive(Debug)]
struct Rounds<G, M> {
    groups: HashMap<G, Group<M>>,
    /// The groups in the order of their turns. Those that have no items any more are skipped.
    order: VecDeque<G>,
}

#[derive(Debug)]
struct Group<M> {
    /// The number of items of each member that has any.
    members: HashMap<M, usize>,
    /// The members in the order of their turns. Those that have no items any more are skipped.
    order: VecDeque<M>,
    len: usize,
}

impl<T> Turns<T> {
    /// Creates a queue for at most `most` items.
    pub(crate) fn new(most: usize) -> Self {
        let (tenants, addresses) = (Rounds::new(), Rounds::new());
        Self { items: HashMap::new(), tenants, addresses, is_of_address: false, len: 0, most }
    }

    /// Returns the number of items.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds an item. Returns the item that does not fit, which may be a different one.
    pub(crate) fn push(&mut self, tenant: &str, address: IpAddr, item: T) -> Option<T> {
        let (tenant, address) = (Box::from(tenant), network_of(address));
        let mut displaced = None;
        if self.len >= self.most {
            let Some((tenant, address)) = self.gives_way(&tenant, address) else {
                return Some(item);
            };
            // Those before it have waited longer.
            displaced = self.take(tenant, address, VecDeque::pop_back);
        }
        self.tenants.add(&tenant, &address);
        self.addresses.add(&address, &tenant);
        self.items.entry((tenant, address)).or_default().push_back(item);
        self.len += 1;
        displaced
    }

    /// Takes the item whose turn it is.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let (tenant, address) = if self.is_of_address {
            let (address, tenant) = self.addresses.next()?;
            (tenant, address)
        } else {
            self.tenants.next()?
        };
        self.is_of_address = !self.is_of_address;
        // One that has just had its turn in these rounds is the last in the others as well.
        self.tenants.postpone(&tenant, &address);
        self.addresses.postpone(&address, &tenant);
        self.take(tenant, address, VecDeque::pop_front)
    }

    /// Returns whose item makes room for a newcomer: that of a tenant, or else of an address, that keeps at least as many
    /// as the newcomer's gets. `None`: nobody's.
    fn gives_way(&self, tenant: &str, address: IpAddr) -> Option<(Box<str>, IpAddr)> {
        let of_tenant = self.tenants.longest(self.tenants.len_of(tenant));
        of_tenant.map(|(tenant, address)| (tenant.clone(), *address)).or_else(|| {
            let of_address = self.addresses.longest(self.addresses.len_of(&address));
            of_address.map(|(address, tenant)| (tenant.clone(), *address))
        })
    }

    fn take(
        &mut self,
        tenant: Box<str>,
        address: IpAddr,
        end: impl FnOnce(&mut VecDeque<T>) -> Option<T>,
    ) -> Option<T> {
        self.tenants.remove(&tenant, &address);
        self.addresses.remove(&address, &tenant);
        self.len -= 1;
        let key = (tenant, address);
        let items = self.items.get_mut(&key)?;
        let item = end(items);
        if items.is_empty() {
            self.items.remove(&key);
        }
        item
    }
}

impl<G: Clone + Eq + Hash, M: Clone + Eq + Hash> Rounds<G, M> {
    fn new() -> Self {
        Self { groups: HashMap::new(), order: VecDeque::new() }
    }

    /// Returns the number of items of a group.
    fn len_of<Q: Eq + Hash + ?Sized>(&self, group: &Q) -> usize
    where
        G: std::borrow::Borrow<Q>,
    {
        self.groups.get(group).map_or(0, |group| group.len)
    }

    /// Counts an item of a member of a group.
    fn add(&mut self, group: &G, member: &M) {
        if !self.groups.contains_key(group) && !self.order.contains(group) {
            self.order.push_back(group.clone());
        }
        let group = self.groups.entry(group.clone()).or_insert_with(Group::new);
        if !group.members.contains_key(member) && !group.order.contains(member) {
            group.order.push_back(member.clone());
        }
        *group.members.entry(member.clone()).or_default() += 1;
        group.len += 1;
    }

    /// Counts an item less.
    fn remove(&mut self, name: &G, member: &M) {
        let Some(group) = self.groups.get_mut(name) else { return };
        group.len -= 1;
        if let Some(count) = group.members.get_mut(member) {
            *count -= 1;
            if *count == 0 {
                group.members.remove(member);
            }
        }
        if group.len == 0 {
            self.groups.remove(name);
        }
        if self.groups.is_empty() {
            self.order.clear();
        }
    }

    /// Returns the group and the member whose turn it is.
    fn next(&mut self) -> Option<(G, M)> {
        loop {
            let name = self.order.front()?;
            match self.groups.get_mut(name) {
                Some(group) => return Some((name.clone(), group.next()?)),
                None => self.order.pop_front(),
            };
        }
    }

    /// Makes a group and its member the last ones that have a turn.
    fn postpone(&mut self, name: &G, member: &M) {
        move_to_back(&mut self.order, name);
        if let Some(group) = self.groups.get_mut(name) {
            move_to_back(&mut group.order, member);
        }
    }

    /// Returns the group with the most items, and its member with the most. `None`: without one of them it would have
    /// fewer than a group of `own` items has with one more.
    fn longest(&self, own: usize) -> Option<(&G, &M)> {
        let (name, group) = self.groups.iter().max_by_key(|(_, group)| group.len)?;
        let (member, _) = group.members.iter().max_by_key(|(_, count)| **count)?;
        (own + 1 < group.len).then_some((name, member))
    }
}

impl<M: Clone + Eq + Hash> Group<M> {
    fn new() -> Self {
        Self { members: HashMap::new(), order: VecDeque::new(), len: 0 }
    }

    fn next(&mut self) -> Option<M> {
        loop {
            let member = self.order.front()?;
            if self.members.contains_key(member) {
                return Some(member.clone());
            }
            self.order.pop_front();
        }
    }
}

fn move_to_back<T: Eq>(order: &mut VecDeque<T>, name: &T) {
    if let Some(moved) =
        order.iter().position(|other| other == name).and_then(|at| order.remove(at))
    {
        order.push_back(moved);
    }
}

/// Returns the /64 network of an IPv6 address, since a client with one of its addresses has all of them.
/// Returns an IPv4 address unchanged.
pub(crate) fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) >> 64 << 64;
            Ipv6Addr::from(network).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    fn all(turns: &mut Turns<u32>) -> Vec<u32> {
        std::iter::from_fn(|| turns.pop()).collect()
    }

    #[test]
    fn each_address_of_a_tenant_has_its_turn() {
        let mut turns = Turns::new(100);
        for number in 0..6 {
            assert_eq!(turns.push("a", address(1), number), None);
        }
        turns.push("a", address(2), 20);
        turns.push("a", address(3), 30);
        turns.push("a", address(3), 31);
        assert_eq!(all(&mut turns), [0, 20, 30, 1, 31, 2, 3, 4, 5]);
        assert_eq!((turns.len(), turns.items.len()), (0, 0));
        assert!(turns.tenants.groups.is_empty() && turns.addresses.order.is_empty());
    }

    #[test]
    fn each_tenant_has_its_turn_however_many_addresses_another_has() {
        let mut turns = Turns::new(100);
        for number in 0..100 {
            turns.push("a", address(number), number.into());
        }
        turns.push("b", address(100), 200);
        turns.push("b", address(100), 201);
        let order = all(&mut turns);
        let place = |item| order.iter().position(|other| *other == item).unwrap();
        assert!(place(200) <= 2 && place(201) <= 4, "{order:?}");
    }

    #[test]
    fn each_address_has_its_turn_however_many_tenants_know_another() {
        let mut turns = Turns::new(100);
        for number in 0..100 {
            assert_eq!(turns.push(&format!("tenant {number}"), address(1), number), None);
        }
        assert_eq!(turns.push("b", address(1), 300), Some(300), "no address has fewer");
        assert!(turns.push("b", address(2), 200).is_some_and(|displaced| displaced < 100));
        let order = all(&mut turns);
        let place = order.iter().position(|item| *item == 200).unwrap();
        assert!(place <= 2, "{order:?}");
    }

    #[test]
    fn whoever_has_most_waiting_makes_room() {
        let mut turns = Turns::new(4);
        for number in 0..4 {
            assert_eq!(turns.push("a", address(1), number), None);
        }
        assert_eq!(turns.push("a", address(1), 4), Some(4), "its own, which came last");
        assert_eq!(turns.push("a", address(2), 20), Some(3), "the address with most gives way");
        assert_eq!(turns.push("b", address(1), 30), Some(2), "the tenant with most gives way");
        assert_eq!(turns.push("b", address(1), 31), Some(1));
        assert_eq!(turns.push("b", address(2), 32), Some(31), "both tenants have as many");
        assert_eq!(turns.len(), 4);
        let mut left = all(&mut turns);
        left.sort_unstable();
        assert_eq!(left, [0, 20, 30, 32]);
    }

    proptest::proptest! {
        /// Whatever comes and goes, each item leaves once.
        #[test]
        fn each_item_leaves_once(steps in proptest::collection::vec((0..4_u8, 0..4_u8, 0..3_u8), 0..200)) {
            let mut turns = Turns::new(10);
            let (mut left, mut pushed) = (Vec::new(), 0);
            for (tenant, last, what) in steps {
                if what == 0 {
                    left.extend(turns.pop());
                } else {
                    left.extend(turns.push(&tenant.to_string(), address(last), pushed));
                    pushed += 1;
                }
                let counted: usize = turns.items.values().map(VecDeque::len).sum();
                assert_eq!(turns.len(), counted);
                assert!(turns.len() <= 10 && turns.tenants.order.len() <= 4);
            }
            left.extend(all(&mut turns));
            left.sort_unstable();
            assert_eq!(left, (0..pushed).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_queue_without_room_takes_nothing() {
        let mut turns = Turns::new(0);
        assert_eq!(turns.push("a", address(1), 1), Some(1));
        assert_eq!(turns.pop(), None);
    }

    #[test]
    fn an_address_of_ipv6_is_a_network() {
        let network = |text: &str| network_of(text.parse().unwrap());
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:1"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_eq!(network("::ffff:192.0.2.1"), address(1));
        assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
    }
}
