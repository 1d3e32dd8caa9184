//! A queue in which tenants take turns, and in each tenant addresses.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr};

use hashbrown::HashMap;

/// A bounded queue of items that belong to a tenant and an address. Tenants take turns, then the addresses of
/// a tenant, so whoever has many items waiting does not delay the others.
///
/// If the queue is full, the tenant with the most items loses the last one of its address with the most.
#[derive(Debug)]
pub(crate) struct Turns<T> {
    tenants: HashMap<Box<str>, Lane<T>>,
    /// The tenants that have items, in the order of their turns.
    order: VecDeque<Box<str>>,
    len: usize,
    most: usize,
}

/// The items of one tenant.
#[derive(Debug)]
struct Lane<T> {
    addresses: HashMap<IpAddr, VecDeque<T>>,
    order: VecDeque<IpAddr>,
    len: usize,
}

impl<T> Turns<T> {
    /// Creates a queue for at most `most` items.
    pub(crate) fn new(most: usize) -> Self {
        Self { tenants: HashMap::new(), order: VecDeque::new(), len: 0, most }
    }

    /// Returns the number of items.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds an item. Returns the item that does not fit, which may be a different one.
    pub(crate) fn push(&mut self, tenant: &str, address: IpAddr, item: T) -> Option<T> {
        let address = network_of(address);
        let mut displaced = None;
        if self.len >= self.most {
            let own = self.tenants.get(tenant).map_or(0, |lane| lane.len);
            let longest = self.tenants.iter().max_by_key(|(_, lane)| lane.len);
            let (name, len) = longest.map_or((tenant, 0), |(name, lane)| (&**name, lane.len));
            // A tenant is displaced only if it keeps at least as many as this one gets, so no tenant loses its
            // only item.
            let from = if own + 1 < len { name.to_owned() } else { tenant.to_owned() };
            let lane = self.tenants.get_mut(&*from);
            displaced = lane.and_then(|lane| lane.give_way((from == tenant).then_some(address)));
            if displaced.is_none() {
                return Some(item);
            }
            self.len -= 1;
        }
        let lane = self.tenants.entry(tenant.into()).or_insert_with(Lane::new);
        if lane.len == 0 && !self.order.iter().any(|waiting| **waiting == *tenant) {
            self.order.push_back(tenant.into());
        }
        lane.push(address, item);
        self.len += 1;
        displaced
    }

    /// Takes the first item of the address whose turn it is, of the tenant whose turn it is.
    pub(crate) fn pop(&mut self) -> Option<T> {
        loop {
            let tenant = self.order.pop_front()?;
            let Some(lane) = self.tenants.get_mut(&tenant) else { continue };
            let item = lane.pop();
            if lane.len == 0 {
                self.tenants.remove(&tenant);
            } else {
                self.order.push_back(tenant);
            }
            if item.is_some() {
                self.len -= 1;
                return item;
            }
        }
    }
}

impl<T> Lane<T> {
    fn new() -> Self {
        Self { addresses: HashMap::new(), order: VecDeque::new(), len: 0 }
    }

    fn push(&mut self, address: IpAddr, item: T) {
        let items = self.addresses.entry(address).or_default();
        if items.is_empty() && !self.order.contains(&address) {
            self.order.push_back(address);
        }
        items.push_back(item);
        self.len += 1;
    }

    /// Takes the last item of the address with the most; those before it have waited longer. If `newcomer`
    /// wants its place, only an address that keeps at least as many as the newcomer gets gives way.
    fn give_way(&mut self, newcomer: Option<IpAddr>) -> Option<T> {
        let (address, len) = self
            .addresses
            .iter()
            .map(|(address, items)| (*address, items.len()))
            .max_by_key(|(_, len)| *len)?;
        let own = newcomer.map(|newcomer| self.addresses.get(&newcomer).map_or(0, VecDeque::len));
        if own.is_some_and(|own| own + 1 >= len) {
            return None;
        }
        let items = self.addresses.get_mut(&address)?;
        let last = items.pop_back();
        if items.is_empty() {
            self.addresses.remove(&address);
        }
        self.len -= usize::from(last.is_some());
        last
    }

    fn pop(&mut self) -> Option<T> {
        loop {
            let address = self.order.pop_front()?;
            let Some(items) = self.addresses.get_mut(&address) else { continue };
            let item = items.pop_front();
            if items.is_empty() {
                self.addresses.remove(&address);
            } else {
                self.order.push_back(address);
            }
            if item.is_some() {
                self.len -= 1;
                return item;
            }
        }
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
        assert_eq!((turns.len(), turns.tenants.len(), turns.order.len()), (0, 0, 0));
    }

    #[test]
    fn each_tenant_has_its_turn_however_many_addresses_another_has() {
        let mut turns = Turns::new(100);
        for number in 0..6 {
            turns.push("a", address(number), number.into());
        }
        turns.push("b", address(1), 20);
        turns.push("b", address(1), 21);
        assert_eq!(all(&mut turns), [0, 20, 1, 21, 2, 3, 4, 5]);
    }

    #[test]
    fn whoever_has_most_waiting_makes_room() {
        let mut turns = Turns::new(4);
        for number in 0..4 {
            assert_eq!(turns.push("a", address(1), number), None);
        }
        assert_eq!(turns.push("a", address(1), 4), Some(4), "its own, which came last");
        assert_eq!(turns.push("a", address(2), 20), Some(3));
        assert_eq!(turns.push("b", address(1), 30), Some(2), "the tenant with most gives way");
        assert_eq!(turns.push("b", address(1), 31), Some(1));
        assert_eq!(turns.push("b", address(2), 32), Some(31), "both tenants have as many");
        assert_eq!(turns.push("b", address(3), 33), Some(33), "and all addresses of this one");
        assert_eq!(all(&mut turns), [0, 30, 20, 32]);
        assert_eq!(turns.len(), 0);
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
