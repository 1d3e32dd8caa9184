//! All bans, in the form in which they are looked up for each client.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use barid_core::time::WallTime;
use barid_engine::clock::Clock;
use barid_engine::durable::Commits;
use barid_engine::managed::{Done, Managed, ManagedError, ManagedKind};
use hashbrown::HashMap;
use parking_lot::RwLock;
use tracing::error;

use crate::ban::{Ban, Network};

/// The bans in Barid's own store.
pub struct Bans {
    managed: Arc<Managed>,
    clock: Clock,
    table: RwLock<Table>,
    /// Number of bans in the table. While it is 0, no client waits for the lock.
    count: AtomicUsize,
}

/// Bans with the same subject, each with its id.
type Same = Vec<(Arc<str>, Arc<Ban>)>;

#[derive(Debug, Default)]
struct Table {
    by_id: HashMap<Arc<str>, Arc<Ban>>,
    by_user: HashMap<Box<str>, Same>,
    /// By tenant, then by client identifier.
    by_client: HashMap<Box<str>, HashMap<Box<str>, Same>>,
    by_network: HashMap<Network, Same>,
    /// The lengths of the networks, each with the number of networks that have it: first those of IPv4, then those of
    /// IPv6.
    lengths: [Lengths; 2],
    /// The bans that end, in the order in which they do.
    by_end: BTreeSet<(u64, Arc<str>)>,
}

/// How many networks have each length in bits.
type Lengths = std::collections::BTreeMap<u8, usize>;

impl Bans {
    /// Creates the table of the bans among these objects, and follows their changes.
    pub fn new(managed: Arc<Managed>, clock: Clock) -> Arc<Self> {
        let bans =
            Arc::new(Self { managed, clock, table: RwLock::default(), count: AtomicUsize::new(0) });
        let following = Arc::downgrade(&bans);
        bans.managed.on_change(move |kind, id| {
            if let Some(bans) = following.upgrade().filter(|_| kind == ManagedKind::Ban) {
                bans.changed(id);
            }
        });
        bans.managed.for_each(ManagedKind::Ban, |id, _| bans.changed(id));
        bans
    }

    /// Updates the table after a ban was put or removed.
    fn changed(&self, id: &str) {
        // The ban is looked up under the lock, so that the last of several calls finds the last state.
        let mut table = self.table.write();
        let text = self.managed.get(ManagedKind::Ban, id);
        let ban = text.and_then(|text| {
            let read = Ban::from_text(&text);
            read.inspect_err(
                |error| error!(ban = id, %error, "a stored ban cannot be read: it has no effect"),
            )
            .ok()
        });
        table.remove(id);
        if let Some(ban) = ban {
            table.insert(id.into(), Arc::new(ban));
        }
        self.count.store(table.by_id.len(), Ordering::Release);
    }

    /// Returns a ban of this client: of its user, of its client identifier in its tenant, or of its address. `user` is
    /// the user name as `{tenant}/{client}`; a client without a user name has no user.
    pub fn check(
        &self,
        user: Option<&str>,
        tenant: &str,
        client_id: &str,
        address: IpAddr,
    ) -> Option<Arc<Ban>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let (table, now) = (self.table.read(), self.clock.wall());
        let of_user = || user.and_then(|user| table.by_user.get(user));
        let of_client = || table.by_client.get(tenant).and_then(|clients| clients.get(client_id));
        let in_force = |same: &Same| in_force(same, now, |_| true);
        let is_about = |ban: &Ban| ban.tenant.as_deref().is_none_or(|only| only == tenant);
        of_user()
            .and_then(in_force)
            .or_else(|| of_client().and_then(in_force))
            .or_else(|| table.of_address(address, now, is_about))
    }

    /// Whether no client may connect from the address, whatever its tenant is.
    pub fn is_address_banned(&self, address: IpAddr) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let (table, now) = (self.table.read(), self.clock.wall());
        table.of_address(address, now, |ban| ban.tenant.is_none()).is_some()
    }

    /// Returns the present time, by which bans end.
    pub fn now(&self) -> WallTime {
        self.clock.wall()
    }

    /// Removes up to `most` bans that have ended from the store. Returns how many it has removed.
    pub fn remove_ended(&self, most: usize, commits: &mut Commits) -> usize {
        let now = self.clock.wall();
        let ended: Vec<_> = {
            let table = self.table.read();
            let ended = table.by_end.iter().take_while(|(until, _)| *until <= now.as_millis());
            ended.take(most).map(|(_, id)| Arc::clone(id)).collect()
        };
        let remove = |id: &Arc<str>| {
            // The ban may have been put again meanwhile, with a later end.
            let change = |before: Option<&str>| {
                let ban = before.and_then(|text| Ban::from_text(text).ok());
                Ok(before.filter(|_| ban.is_none_or(|ban| !ban.is_over(now))).map(str::to_owned))
            };
            let done: Result<_, ManagedError> =
                self.managed.change(ManagedKind::Ban, id, commits, change);
            done == Ok(Done::Removed)
        };
        ended.iter().map(remove).filter(|is_removed| *is_removed).count()
    }
}

impl Table {
    fn insert(&mut self, id: Arc<str>, ban: Arc<Ban>) {
        if let Some(until) = ban.until {
            self.by_end.insert((until, Arc::clone(&id)));
        }
        self.by_id.insert(Arc::clone(&id), Arc::clone(&ban));
        if let Some(network) = ban.address {
            let lengths = &mut self.lengths[usize::from(!network.is_v4())];
            let same = self.by_network.entry(network).or_insert_with(|| {
                *lengths.entry(network.bits()).or_default() += 1;
                Same::new()
            });
            same.push((id, ban));
        } else if let Some(user) = &ban.user {
            self.by_user.entry(user.as_str().into()).or_default().push((id, ban));
        } else if let (Some(tenant), Some(client)) = (&ban.tenant, &ban.client) {
            let clients = self.by_client.entry(tenant.as_str().into()).or_default();
            clients.entry(client.as_str().into()).or_default().push((id, Arc::clone(&ban)));
        }
    }

    fn remove(&mut self, id: &str) {
        let Some(ban) = self.by_id.remove(id) else { return };
        if let Some(until) = ban.until {
            self.by_end.remove(&(until, id.into()));
        }
        /// Removes a ban from those with the same subject. Returns whether none are left.
        fn take(same: Option<&mut Same>, id: &str) -> bool {
            same.is_none_or(|same| {
                same.retain(|(other, _)| **other != *id);
                same.is_empty()
            })
        }
        if let Some(network) = ban.address {
            if take(self.by_network.get_mut(&network), id) {
                self.by_network.remove(&network);
                let lengths = &mut self.lengths[usize::from(!network.is_v4())];
                let count = lengths.entry(network.bits()).or_default();
                *count -= 1;
                if *count == 0 {
                    lengths.remove(&network.bits());
                }
            }
        } else if let Some(user) = ban.user.as_deref() {
            if take(self.by_user.get_mut(user), id) {
                self.by_user.remove(user);
            }
        } else if let (Some(tenant), Some(client)) = (ban.tenant.as_deref(), ban.client.as_deref())
            && let Some(clients) = self.by_client.get_mut(tenant)
        {
            if take(clients.get_mut(client), id) {
                clients.remove(client);
            }
            if clients.is_empty() {
                self.by_client.remove(tenant);
            }
        }
    }

    /// Returns a ban in force of the address for which `is_about` holds. Looks once for each length that any network
    /// has: at most 33 times for IPv4, and 129 times for IPv6.
    fn of_address(
        &self,
        address: IpAddr,
        now: WallTime,
        is_about: impl Fn(&Ban) -> bool,
    ) -> Option<Arc<Ban>> {
        let address = address.to_canonical();
        let lengths = &self.lengths[usize::from(address.is_ipv6())];
        lengths.keys().find_map(|bits| {
            let network = Network::around(address, *bits)?;
            in_force(self.by_network.get(&network)?, now, &is_about)
        })
    }
}

fn in_force(same: &Same, now: WallTime, is_about: impl Fn(&Ban) -> bool) -> Option<Arc<Ban>> {
    let mut bans = same.iter().map(|(_, ban)| ban);
    bans.find(|ban| !ban.is_over(now) && is_about(ban)).cloned()
}

impl fmt::Debug for Bans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.count.load(Ordering::Relaxed);
        f.debug_struct("Bans").field("count", &count).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::testing::{WALL, clock, managed, put, remove};

    const TENANTS: [&str; 2] = ["acme", "zeta"];
    const CLIENTS: [&str; 3] = ["a", "b", "a/b"];
    const NETWORKS: [&str; 9] = [
        "192.0.2.1",
        "192.0.2.0/31",
        "192.0.2.0/24",
        "0.0.0.0/0",
        "::ffff:192.0.2.3",
        "2001:db8::1",
        "2001:db8::/32",
        "2001:db8::/127",
        "::/0",
    ];
    const ADDRESSES: [&str; 7] = [
        "192.0.2.1",
        "192.0.2.3",
        "::ffff:192.0.2.1",
        "198.51.100.1",
        "2001:db8::1",
        "2001:db8:1::1",
        "2001:db9::1",
    ];

    #[derive(Clone, Debug)]
    enum Step {
        Put(u8, Ban),
        Remove(u8),
        RemoveEnded(usize),
        Advance(u64),
        Check(Option<(usize, usize)>, usize, usize, usize),
    }

    fn ban() -> impl Strategy<Value = Ban> {
        let tenant = || select(&TENANTS[..]).prop_map(str::to_owned);
        let client = || select(&CLIENTS[..]).prop_map(str::to_owned);
        let subject = prop_oneof![
            (tenant(), client()).prop_map(|(tenant, client)| {
                Ban { user: Some(tenant + "/" + &client), ..Ban::default() }
            }),
            (tenant(), client()).prop_map(|(tenant, client)| {
                Ban { tenant: Some(tenant), client: Some(client), ..Ban::default() }
            }),
            (option::of(tenant()), select(&NETWORKS[..])).prop_map(|(tenant, network)| {
                Ban { tenant, address: Some(network.parse().unwrap()), ..Ban::default() }
            }),
        ];
        (subject, option::of(0..20_u64)).prop_map(|(ban, until)| Ban { until, ..ban })
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let (tenant, client) = (|| 0..TENANTS.len(), || 0..CLIENTS.len());
        let user = option::of((tenant(), client()));
        let step = prop_oneof![
            4 => (0..8_u8, ban()).prop_map(|(id, ban)| Step::Put(id, ban)),
            2 => (0..8_u8).prop_map(Step::Remove),
            1 => (0..3_usize).prop_map(Step::RemoveEnded),
            1 => (0..5_u64).prop_map(Step::Advance),
            6 => (user, tenant(), client(), 0..ADDRESSES.len())
                .prop_map(|(user, tenant, client, address)| Step::Check(user, tenant, client, address)),
        ];
        vec(step, 0..80)
    }

    proptest! {
        #[test]
        fn every_ban_is_found_and_no_other(steps in steps()) {
            WALL.set(0);
            let managed = managed();
            let bans = Bans::new(Arc::clone(&managed), clock());
            let mut model = BTreeMap::<String, Ban>::new();
            for step in steps {
                let now = WallTime::from_millis(WALL.get());
                match step {
                    Step::Put(id, ban) => {
                        prop_assert_eq!(ban.check(), Ok(()));
                        put(&managed, ManagedKind::Ban, &id.to_string(), &ban.to_text());
                        model.insert(id.to_string(), ban);
                    }
                    Step::Remove(id) => {
                        remove(&managed, ManagedKind::Ban, &id.to_string());
                        model.remove(&id.to_string());
                    }
                    Step::RemoveEnded(most) => {
                        let ended: Vec<_> = model.iter().filter(|(_, ban)| ban.is_over(now)).collect();
                        let expected = ended.len().min(most);
                        prop_assert_eq!(bans.remove_ended(most, &mut Commits::default()), expected);
                        let is_left = |id: &String| managed.get(ManagedKind::Ban, id).is_some();
                        model.retain(|id, ban| is_left(id) || !ban.is_over(now));
                        prop_assert!(model.keys().all(is_left));
                    }
                    Step::Advance(millis) => WALL.set(WALL.get() + millis),
                    Step::Check(user, tenant, client, address) => {
                        let user = user.map(|(tenant, client)| format!("{}/{}", TENANTS[tenant], CLIENTS[client]));
                        let (user, tenant, client) = (user.as_deref(), TENANTS[tenant], CLIENTS[client]);
                        let address: IpAddr = ADDRESSES[address].parse().unwrap();
                        let is_about = |ban: &Ban| {
                            let of_tenant = ban.tenant.as_deref().is_none_or(|only| only == tenant);
                            let of_address = ban.address.is_some_and(|network| network.contains(address));
                            !ban.is_over(now)
                                && (ban.user.as_deref().is_some_and(|banned| Some(banned) == user)
                                    || of_tenant && ban.client.as_deref() == Some(client)
                                    || of_tenant && of_address)
                        };
                        let found = bans.check(user, tenant, client, address);
                        prop_assert_eq!(found.is_some(), model.values().any(is_about));
                        prop_assert!(found.is_none_or(|ban| is_about(&ban) && model.values().any(|known| *known == *ban)));
                        let of_all = |ban: &Ban| {
                            let of_address = ban.address.is_some_and(|network| network.contains(address));
                            of_address && ban.tenant.is_none() && !ban.is_over(now)
                        };
                        prop_assert_eq!(bans.is_address_banned(address), model.values().any(of_all));
                    }
                }
                prop_assert_eq!(bans.count.load(Ordering::Relaxed), model.len());
            }
            // A table that begins with all bans is the same; and nothing is left of bans that are removed.
            let again = Bans::new(Arc::clone(&managed), clock());
            prop_assert_eq!(again.count.load(Ordering::Relaxed), model.len());
            for id in model.keys() {
                remove(&managed, ManagedKind::Ban, id);
            }
            for bans in [bans, again] {
                let table = bans.table.read();
                let sizes = [table.by_id.len(), table.by_user.len(), table.by_client.len(), table.by_network.len()];
                let rest = [table.lengths[0].len(), table.lengths[1].len(), table.by_end.len()];
                prop_assert_eq!((sizes, rest), ([0; 4], [0; 3]));
            }
        }
    }

    #[test]
    fn a_ban_that_cannot_be_read_has_no_effect_and_the_others_have() {
        let managed = managed();
        put(&managed, ManagedKind::Ban, "x", r#"{"user":"acme/a","later":1}"#);
        put(&managed, ManagedKind::Ban, "y", r#"{"user":"acme/b","reason":"stolen"}"#);
        let bans = Bans::new(managed, clock());
        let check = |user| bans.check(Some(user), "acme", "c", [192, 0, 2, 1].into());
        assert_eq!(check("acme/a"), None);
        assert_eq!(check("acme/b").unwrap().reason, "stolen");
    }

    #[test]
    fn many_bans_are_put_and_looked_up_quickly() {
        let managed = managed();
        let bans = Bans::new(Arc::clone(&managed), clock());
        let begun = std::time::Instant::now();
        for number in 0..20_000_u32 {
            let address = IpAddr::from((number << 8).to_be_bytes());
            let ban = Ban { address: Network::around(address, 24), ..Ban::default() };
            put(&managed, ManagedKind::Ban, &number.to_string(), &ban.to_text());
        }
        for number in 0..20_000_u32 {
            let address = IpAddr::from((number << 8 | 7).to_be_bytes());
            assert!(bans.is_address_banned(address));
            assert!(!bans.is_address_banned(IpAddr::from([255, 0, 0, 1])));
        }
        // A table that is rebuilt for each change would take minutes.
        assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
    }
}
