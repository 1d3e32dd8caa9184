//! The bytes of all entities of a tenant together, and their limit.

use barid_core::entity::Outcome;

use super::*;

/// Sum of the sizes of these entities.
fn sum(world: &World, paths: &[&str]) -> usize {
    paths.iter().map(|path| world.queue(path).counts().footprint).sum()
}

#[test]
fn all_that_entities_hold_is_counted_until_it_has_gone() {
    let stores = stores();
    let all = ["q", "f", "t/subscriptions/a", "t/subscriptions/b"];
    let world = World::over(&stores, PLENTY);
    world.declare(
        r#"{ "Queues": [{ "Name": "q", "Properties": { "RequiresSession": true } },
                { "Name": "f" }, { "Name": "to-f", "Properties": { "ForwardTo": "f" } }],
            "Topics": [{ "Name": "t", "Subscriptions": [{ "Name": "a" }, { "Name": "b" }] }] }"#,
    );
    assert_eq!(world.entities().bytes(), 0);
    world.send("q", of_session("s", "1")).unwrap();
    world.send("to-f", message("2")).unwrap();
    world.send("t", message("3")).unwrap();
    world.settle();
    let held = world.entities().bytes();
    assert!(held > 4 * 448 && held == sum(&world, &all), "{held}");
    drop(world);

    let world = World::over(&stores, PLENTY);
    assert_eq!(world.entities().bytes(), held, "after a restart");
    let taken = world.take("f", Part::Main);
    world.queue("f").with(&mut Commits::default(), |entity, fx| {
        entity.settle(Part::Main, taken[0].token, Outcome::Complete, world.now, fx).unwrap();
    });
    assert!(world.entities().bytes() < held);
    assert_eq!(world.entities().bytes(), sum(&world, &all));
    for path in ["q", "t"] {
        world.entities().delete(path, &mut Commits::default()).unwrap();
    }
    world.settle();
    assert_eq!(world.entities().bytes(), 0);
}

#[test]
fn beyond_the_limit_no_entity_takes_a_message() {
    let world = World::new();
    world.declare(r#"{ "Queues": [{ "Name": "a" }, { "Name": "b" }] }"#);
    let large = "x".repeat(BYTES_MAX / 2);
    world.send("a", message(&large)).unwrap();
    assert_eq!(world.send("b", message(&large)), Err(SendError::TenantFull));
    assert_eq!(world.send("b", message("small")), Ok(1));
    let totals = world.tenant.totals();
    assert_eq!(totals.refused[crate::limits::Quota::MaxTenantEntityBytes], 1);
    world.entities().delete("a", &mut Commits::default()).unwrap();
    assert_eq!(world.send("b", message(&large)), Ok(2));
}
