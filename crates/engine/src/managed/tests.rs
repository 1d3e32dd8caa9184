use std::collections::BTreeMap;
use std::ops::ControlFlow;

use barid_core::durable::keys;
use barid_store::memory::MemoryStore;
use barid_store::{Batch, Store};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::ManagedKind::{Ban, Tenant, Token, User};
use super::*;
use crate::clock;
use crate::durable::Storage;
use crate::engine::{Engine, EngineSettings};
use crate::opening::tests::{commit, opened};
use crate::random::tests::COUNTING;
use crate::{closing, opening, recovery};

fn stores() -> Vec<Arc<dyn Store>> {
    let store = || Arc::new(MemoryStore::new(keys::NAMES.len())) as Arc<dyn Store>;
    vec![store(), store(), store()]
}

/// Starts a broker over these stores.
fn start(stores: &[Arc<dyn Store>]) -> Engine {
    let settings = EngineSettings {
        max_tenants: 10,
        settings_of: Arc::new(|_| Default::default()),
        sys_interval: 0,
    };
    let storage = Storage::local(stores);
    let engine = Engine::new(settings, (1, 0), storage, clock::tests::stopped(), COUNTING);
    opened(engine)
}

fn put(managed: &Managed, kind: ManagedKind, name: &str, text: &str) -> Result<Done, ManagedError> {
    managed.put(kind, name, text.into(), &mut Commits::default())
}

fn remove(managed: &Managed, kind: ManagedKind, name: &str) -> Result<Done, ManagedError> {
    managed.remove(kind, name, &mut Commits::default())
}

fn names(page: &Page) -> Vec<&str> {
    page.objects.iter().map(|(name, _)| &**name).collect()
}

/// Returns all objects.
fn all(managed: &Managed) -> BTreeMap<(ManagedKind, String), String> {
    let mut all = BTreeMap::new();
    for kind in ManagedKind::ALL {
        managed.for_each(kind, |name, text| {
            all.insert((kind, name.to_string()), text.to_string());
        });
        assert_eq!(managed.count(kind), all.keys().filter(|(of, _)| *of == kind).count());
    }
    let bytes: usize = all.iter().map(|((_, name), text)| name.len() + text.len()).sum();
    assert_eq!(managed.bytes(), bytes);
    all
}

/// Records the changes that subscribers are told of.
fn listen(managed: &Managed) -> Arc<Mutex<Vec<(ManagedKind, String)>>> {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let writing = Arc::clone(&heard);
    managed.on_change(move |kind, name| writing.lock().push((kind, name.to_owned())));
    heard
}

#[test]
fn an_object_is_changed_and_removed() {
    let engine = start(&stores());
    let managed = &engine.managed;
    let heard = listen(managed);
    assert_eq!(managed.get(User, "acme/a"), None);
    let mut commits = Commits::default();
    assert_eq!(managed.put(User, "acme/a", "1".into(), &mut commits), Ok(Done::Created));
    let shard = engine.shards.of_tenant("acme");
    assert!(commits.iter().eq([(shard.index(), shard.last_change())]));
    assert_eq!(put(managed, User, "acme/a", "2"), Ok(Done::Replaced));
    assert_eq!(managed.get(User, "acme/a").as_deref(), Some("2"));
    assert_eq!(managed.get(Ban, "acme/a"), None, "another kind");
    let changed = managed.change(User, "acme/a", &mut Commits::default(), |before| {
        Ok::<_, ManagedError>(before.map(|text| text.to_owned() + "3"))
    });
    assert_eq!(changed, Ok(Done::Replaced));
    assert_eq!(managed.get(User, "acme/a").as_deref(), Some("23"));
    assert_eq!(remove(managed, User, "acme/a"), Ok(Done::Removed));
    assert_eq!(remove(managed, User, "acme/a"), Ok(Done::Nothing));
    let four_times = vec![(User, "acme/a".to_owned()); 4];
    assert_eq!(*heard.lock(), four_times, "nothing is told of what has not changed");
}

#[test]
fn objects_that_cannot_be_are_refused() {
    let engine = start(&stores());
    let managed = &engine.managed;
    let long = "x".repeat(MANAGED_NAME_MAX + 1);
    for (kind, name) in [(User, ""), (User, "acme/"), (User, "/a"), (User, &long), (Tenant, "a/b")]
    {
        let error = put(managed, kind, name, "{}").unwrap_err();
        assert!(matches!(error, ManagedError::Name(..)), "{name}: {error}");
        assert!(error.to_string().len() < 250, "{error}");
    }
    assert!(put(managed, User, &long[1..], "{}").is_ok());
    let error = put(managed, User, "a", &"x".repeat(MANAGED_TEXT_MAX + 1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the description of the user has 65537 bytes, and the maximum is 65536"
    );
    assert_eq!(put(managed, User, "a", ""), Err(ManagedError::Text(User, 0)));
    assert_eq!(put(managed, User, "a", &"x".repeat(MANAGED_TEXT_MAX)), Ok(Done::Created));
    // An error of the closure changes nothing.
    let changed =
        managed.change(User, "a", &mut Commits::default(), |_| Err(ManagedError::Text(User, 7)));
    assert_eq!(changed, Err(ManagedError::Text(User, 7)));
    assert_eq!(all(managed).len(), 2);
}

#[test]
fn there_is_a_bound_on_number_and_size() {
    let engine = start(&stores());
    let managed = &engine.managed;
    put(managed, User, "a", "long enough").unwrap();
    let full = |result| assert_eq!(result, Err(ManagedError::Full(User)));
    managed.table.write().count += OBJECTS_MAX - 1;
    full(put(managed, User, "b", "1"));
    assert_eq!(put(managed, User, "a", "longer than that"), Ok(Done::Replaced));
    managed.table.write().count = 1;
    managed.table.write().bytes += BYTES_MAX - 20;
    full(put(managed, User, "b", "12345"));
    full(put(managed, User, "a", "longer than that, by some bytes"));
    assert_eq!(put(managed, User, "a", "shorter"), Ok(Done::Replaced));
    assert_eq!(put(managed, User, "b", "12345"), Ok(Done::Created));
}

#[test]
fn that_there_was_a_user_is_never_forgotten() {
    let stores = stores();
    let engine = start(&stores);
    assert!(!engine.managed.is_used(User));
    put(&engine.managed, User, "acme/a", "{}").unwrap();
    assert!(engine.managed.is_used(User));
    commit(&engine);
    remove(&engine.managed, User, "acme/a").unwrap();
    commit(&engine);
    assert!(engine.managed.is_used(User));
    let engine = start(&stores);
    assert_eq!(engine.managed.count(User), 0);
    assert!(engine.managed.is_used(User));
    assert!(!engine.managed.is_used(Ban));
}

#[test]
fn a_subscriber_may_change_objects() {
    let engine = start(&stores());
    let managed = Arc::clone(&engine.managed);
    managed.on_change(move |kind, name| {
        if kind == User {
            put(&engine.managed, Ban, name, "{}").unwrap();
        }
    });
    put(&managed, User, "a", "{}").unwrap();
    assert!(managed.get(Ban, "a").is_some());
}

#[test]
fn a_page_of_long_texts_ends_early() {
    let engine = start(&stores());
    let managed = &engine.managed;
    let text = "x".repeat(MANAGED_TEXT_MAX);
    let fit = PAGE_BYTES_MAX / MANAGED_TEXT_MAX;
    for number in 0..fit + 2 {
        put(managed, User, &format!("a/{number:04}"), &text).unwrap();
    }
    let page = managed.list(User, "a/", None, 10_000);
    assert_eq!(page.objects.len(), fit);
    let page = managed.list(User, "a/", page.next.as_deref(), 10_000);
    assert_eq!((page.objects.len(), page.next), (2, None));
    let mut visited = 0;
    managed.for_each(User, |_, _| visited += 1);
    assert_eq!(visited, fit + 2);
}

/// Puts an object into the store of its shard, or removes it, as no broker does while the shard is open.
fn tamper(stores: &[Arc<dyn Store>], shard: ShardIndex, name: &str, text: Option<&str>) {
    let (mut batch, mut key) = (Batch::new(), Vec::new());
    ManagedKey::of(User, name).unwrap().encode(&mut key);
    match text {
        Some(text) => batch.put_with(keys::MANAGED, &key, |out| {
            ManagedRecord { text: text.into(), stamp: Stamp::NONE }.encode(out);
        }),
        None => batch.remove(keys::MANAGED, &key),
    }
    stores[usize::from(shard)].commit(&batch).unwrap();
}

#[test]
fn the_objects_of_a_closed_shard_stay_in_force_and_are_read_again() {
    let stores = stores();
    let engine = start(&stores);
    let managed = &engine.managed;
    let shard = engine.shards.of_tenant("acme").index();
    let other =
        (0..).map(|n| format!("t{n}")).find(|name| engine.shards.of_tenant(name).index() != shard);
    let other = other.unwrap() + "/a";
    for name in ["acme/a", "acme/b", "acme/c", &other] {
        put(managed, User, name, "1").unwrap();
    }
    commit(&engine);
    closing::close(&engine, shard);
    assert_eq!(managed.get(User, "acme/a").as_deref(), Some("1"));
    assert_eq!(put(managed, User, "acme/a", "2"), Err(ManagedError::Closed(User)));
    assert_eq!(remove(managed, User, "acme/b"), Err(ManagedError::Closed(User)));
    assert_eq!(put(managed, User, &other, "2"), Ok(Done::Replaced));

    let heard = listen(managed);
    tamper(&stores, shard, "acme/a", Some("3"));
    tamper(&stores, shard, "acme/b", None);
    tamper(&stores, shard, "acme/d", Some("4"));
    let tenure = opening::next_tenure(&engine, shard, None);
    let contents = recovery::read(&engine, &tenure).unwrap();
    opening::open(&engine, contents);
    assert_eq!(put(managed, User, "acme/a", "5"), Err(ManagedError::Closed(User)));
    commit(&engine);
    opening::serve(&engine, shard);
    let mut told: Vec<_> = heard.lock().iter().map(|(_, name)| name.clone()).collect();
    told.sort();
    assert_eq!(told, ["acme/a", "acme/b", "acme/d"], "and nothing of what has stayed");
    let texts = ["acme/a", "acme/b", "acme/c", "acme/d", &other]
        .map(|name| managed.get(User, name).map(|text| text.to_string()));
    let expected = [Some("3"), None, Some("1"), Some("4"), Some("2")];
    assert_eq!(texts, expected.map(|text| text.map(str::to_owned)));
    assert_eq!(put(managed, User, "acme/a", "6"), Ok(Done::Replaced));
}

#[test]
fn an_object_has_the_form_that_was_once_written() {
    let stores = stores();
    let engine = start(&stores);
    put(&engine.managed, Token, "acme/x", "{}").unwrap();
    commit(&engine);
    let shard = engine.shards.of_tenant("acme").index();
    let mut records = Vec::new();
    let scanned = stores[usize::from(shard)].scan(keys::MANAGED, &[], &[], &mut |key, value| {
        records.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    });
    scanned.unwrap();
    let mark = (b"\0\x01\x04".to_vec(), b"\x01".to_vec());
    // Its stamp is the first of a broker outside of a cluster, at the beginning of time.
    let object = (b"\x04acme\x01\x04x".to_vec(), b"\x02\x01\0\0\0\0\0\0\0\0{}".to_vec());
    assert_eq!(records, [mark, object]);
}

#[derive(Clone, Debug)]
enum Step {
    Put(ManagedKind, usize, u8),
    Remove(ManagedKind, usize),
    Commit(u16),
    /// The process ends without committing what it has noted.
    Crash,
}

const NAMES: [&str; 6] = ["acme", "acme/a", "acme/b", "zeta/a", "zeta", "other/a/b"];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let kind = || select(&ManagedKind::ALL[..]);
    let step = prop_oneof![
        6 => (kind(), 0..NAMES.len(), any::<u8>()).prop_map(|(kind, name, text)| Step::Put(kind, name, text)),
        4 => (kind(), 0..NAMES.len()).prop_map(|(kind, name)| Step::Remove(kind, name)),
        3 => (0..3_u16).prop_map(Step::Commit),
        1 => Just(Step::Crash),
    ];
    vec(step, 0..60)
}

/// The objects of each shard, and the kinds that it was used for.
type Model = [(BTreeMap<(ManagedKind, String), String>, BTreeSet<ManagedKind>); 3];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn a_crash_leaves_what_was_durable(steps in steps()) {
        let stores = stores();
        let mut engine = start(&stores);
        let (mut now, mut durable) = (Model::default(), Model::default());
        for step in steps.into_iter().chain([Step::Crash]) {
            let shard_of = |kind, name| {
                let key = ManagedKey::of(kind, name);
                key.map(|key| usize::from(engine.shards.of_tenant(key.tenant).index()))
            };
            match step {
                Step::Put(kind, name, text) => {
                    let (name, text) = (NAMES[name], text.to_string());
                    let done = put(&engine.managed, kind, name, &text);
                    let Some(shard) = shard_of(kind, name) else {
                        prop_assert!(done.is_err());
                        continue;
                    };
                    let (objects, used) = &mut now[shard];
                    let before = objects.insert((kind, name.into()), text);
                    used.insert(kind);
                    let expected = if before.is_none() { Done::Created } else { Done::Replaced };
                    prop_assert_eq!(done, Ok(expected));
                }
                Step::Remove(kind, name) => {
                    let name = NAMES[name];
                    let done = remove(&engine.managed, kind, name);
                    let Some(shard) = shard_of(kind, name) else { continue };
                    let before = now[shard].0.remove(&(kind, name.into()));
                    let expected = if before.is_none() { Done::Nothing } else { Done::Removed };
                    prop_assert_eq!(done, Ok(expected));
                }
                Step::Commit(shard) => {
                    engine.shards.get(shard).commit_now();
                    durable[usize::from(shard)] = now[usize::from(shard)].clone();
                }
                Step::Crash => {
                    engine = start(&stores);
                    now = durable.clone();
                }
            }
            let objects = now.iter().flat_map(|(objects, _)| objects.clone());
            prop_assert_eq!(all(&engine.managed), objects.collect());
            for kind in ManagedKind::ALL {
                let is_used = now.iter().any(|(_, used)| used.contains(&kind));
                prop_assert_eq!(engine.managed.is_used(kind), is_used);
            }
        }
    }

    #[test]
    fn a_list_is_a_part_of_all(
        objects in btree_map("[ab/]{1,4}", "[a-z]{1,3}", 0..30),
        prefix in "[ab/]{0,2}",
        after in option::of("[ab/]{0,3}"),
        limit in 1..10_usize,
    ) {
        let engine = start(&stores());
        let objects: BTreeMap<_, _> = objects
            .into_iter()
            .filter(|(name, text)| put(&engine.managed, User, name, text).is_ok())
            .collect();
        let page = engine.managed.list(User, &prefix, after.as_deref(), limit);
        let is_behind = |name: &str| after.as_deref().is_none_or(|after| name > after);
        let expected: Vec<_> = objects
            .keys()
            .filter(|name| name.starts_with(&prefix) && is_behind(name))
            .collect();
        let count = limit.min(expected.len());
        prop_assert_eq!(names(&page), expected[..count].to_vec());
        let last = expected[..count].last().filter(|_| expected.len() > limit);
        prop_assert_eq!(page.next.as_deref(), last.map(|last| &***last));
    }
}
