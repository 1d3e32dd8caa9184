use super::*;

const WALL: WallTime = WallTime::from_millis(1_000_000);

fn at(millis: u64) -> MonoTime {
    MonoTime::from_millis(millis)
}

fn identity(name: &str, incarnation: u64) -> Identity {
    Identity {
        cluster: "c".into(),
        name: name.into(),
        incarnation,
        address: format!("{name}:1"),
        software: "0".into(),
        placement: 0,
        reference: String::new(),
    }
}

/// Brokers that hear each other, unless they are cut off.
#[derive(Clone)]
struct World {
    all: Vec<Members>,
    now: MonoTime,
    events: Vec<Vec<Event>>,
}

impl World {
    fn new(count: usize) -> Self {
        let names: Vec<_> = (0..count).map(|index| index.to_string()).collect();
        let timing = Timing::default();
        let mut all: Vec<_> = names
            .iter()
            .map(|name| Members::new(identity(name, 1), timing, 8, CommonSettings::default()))
            .collect();
        for members in &mut all {
            let me = members.me.name.clone();
            for name in names.iter().filter(|name| **name != me) {
                members.on_hello(at(0), &identity(name, 1), &mut vec![]);
                members.on_told(name, 1);
                members.on_heard(name, 1);
            }
        }
        let mut world = Self { all, now: at(0), events: vec![vec![]; count] };
        world.pass(1_000, |_, _| true);
        for members in &mut world.all {
            assert!(members.begin_to_serve(world.now));
        }
        world.pass(500, |_, _| true);
        world.events.iter_mut().for_each(Vec::clear);
        world
    }

    /// Lets time pass. `hears` says whether the second broker hears the first one.
    fn pass(&mut self, millis: u64, hears: impl Fn(usize, usize) -> bool) {
        for _ in 0..millis / 250 {
            self.now = self.now.after(Duration::from_millis(250));
            for from in 0..self.all.len() {
                let heartbeat = self.all[from].heartbeat(self.now, WALL);
                let me = self.all[from].me.clone();
                for to in 0..self.all.len() {
                    if to != from && hears(from, to) {
                        self.all[to].on_heartbeat(
                            (self.now, WALL),
                            (&me.name, me.incarnation),
                            heartbeat.clone(),
                            &mut self.events[to],
                        );
                    }
                }
            }
            for (members, events) in self.all.iter_mut().zip(&mut self.events) {
                members.on_tick(self.now, events);
            }
        }
    }

    fn state(&self, of: usize, at: usize) -> State {
        self.all[at].others[&of.to_string()].state
    }
}

#[test]
fn whoever_is_silent_to_most_is_down_for_good() {
    let mut world = World::new(3);
    assert_eq!(world.state(2, 0), State::Up);
    world.pass(1_000, |from, _| from != 2);
    assert_eq!(world.state(2, 0), State::Unreachable);
    world.pass(500, |from, _| from != 2);
    assert_eq!((world.state(2, 0), world.state(2, 1)), (State::Down, State::Down));
    let expected = [Event::Unreachable("2".into()), Event::Down("2".into())];
    assert_eq!(world.events[0], expected);
    // It hears that it is held down, and they hear nothing from it any more.
    world.pass(500, |_, _| true);
    assert!(world.events[2].contains(&Event::Condemned("0".into())));
    assert_eq!(world.state(2, 0), State::Down);
    assert_eq!(world.all[0].admits(&identity("2", 1)), Err(Refusal::Down));
    // Its next incarnation may come.
    let (again, now) = (identity("2", 2), world.now);
    assert_eq!(world.all[0].admits(&again), Ok(()));
    world.all[0].on_hello(now, &again, &mut world.events[0]);
    assert_eq!(world.state(2, 0), State::Joining);
}

#[test]
fn whoever_is_silent_to_one_only_is_not_down() {
    let mut world = World::new(5);
    world.pass(3_000, |from, to| (from, to) != (2, 0));
    assert_eq!((world.state(2, 0), world.state(2, 1)), (State::Unreachable, State::Up));
    world.pass(500, |_, _| true);
    assert_eq!(world.state(2, 0), State::Up);
}

#[test]
fn of_two_brokers_none_is_down_by_silence() {
    let mut world = World::new(2);
    world.pass(60_000, |_, _| false);
    assert_eq!((world.state(1, 0), world.state(0, 1)), (State::Unreachable, State::Unreachable));
    // But a process that has ended is.
    let (now, mut events) = (world.now, vec![]);
    world.all[0].on_refused(now, "1:1", &mut events);
    assert_eq!(events, [Event::Down("1".into())]);
}

#[test]
fn of_three_brokers_two_must_see_that_a_process_has_ended() {
    let mut world = World::new(4);
    world.pass(1_000, |from, to| (from, to) != (3, 0));
    let (now, mut events) = (world.now, vec![]);
    world.all[0].on_refused(now, "3:1", &mut events);
    assert_eq!(events, [], "to the others it is up");
}

#[test]
fn the_smaller_part_of_a_cluster_holds_nobody_down() {
    let mut world = World::new(5);
    let in_minority = |broker: usize| broker < 2;
    world.pass(5_000, |from, to| in_minority(from) == in_minority(to));
    assert_eq!((world.state(3, 0), world.state(4, 1)), (State::Unreachable, State::Unreachable));
    assert_eq!((world.state(0, 3), world.state(1, 4)), (State::Down, State::Down));
}

#[test]
fn names_are_not_taken_from_those_who_live() {
    let world = World::new(2);
    let elsewhere = Identity { address: "elsewhere:1".into(), ..identity("1", 2) };
    assert_eq!(world.all[0].admits(&elsewhere), Err(Refusal::NameTaken));
    assert_eq!(world.all[0].admits(&identity("1", 2)), Ok(()), "it was started again");
    assert_eq!(world.all[0].admits(&identity("1", 0)), Err(Refusal::Down), "an earlier life");
}

#[test]
fn a_restarted_broker_ends_its_former_life() {
    let mut world = World::new(2);
    let mut events = vec![];
    world.all[0].on_hello(at(900), &identity("1", 2), &mut events);
    assert_eq!(events, [Event::Down("1".into()), Event::Joining("1".into())]);
}

#[test]
fn members_name_members() {
    let mut world = World::new(2);
    let mut events = vec![];
    world.all[1].on_hello(at(600), &identity("new", 1), &mut events);
    world.pass(250, |_, _| true);
    assert_eq!(world.all[0].named().collect::<Vec<_>>(), ["new:1"]);
    world.all[0].on_hello(at(800), &identity("new", 1), &mut events);
    assert_eq!(world.all[0].named().count(), 0);
}

#[test]
fn homes_count_before_they_are_met() {
    let of =
        |name| Members::new(identity(name, 1), Timing::default(), 8, CommonSettings::default());
    let two = || ["h1", "h2"].map(String::from);
    assert!(of("h1").with_homes(two()).has_quorum(at(0)), "it is one of two");
    assert!(!of("a").with_homes(two()).has_quorum(at(0)), "it is one of three");
    let mut members = of("a").with_homes(["h1", "h2", "h3"].map(String::from));
    for (name, brokers) in [("b", 5), ("h1", 5), ("c", 6), ("h2", 6)] {
        members.on_hello(at(0), &identity(name, 1), &mut vec![]);
        assert_eq!(members.brokers(at(0)), brokers);
    }
}

#[test]
fn there_are_no_more_members_than_allowed() {
    let mut members =
        Members::new(identity("me", 1), Timing::default(), 2, CommonSettings::default());
    for name in ["a", "b"] {
        assert_eq!(members.admits(&identity(name, 1)), Ok(()));
        members.on_hello(at(0), &identity(name, 1), &mut vec![]);
    }
    assert_eq!(members.admits(&identity("c", 1)), Err(Refusal::Full("3".into())));
    members.on_leaving(at(1), ("a", 1), &mut vec![]);
    assert_eq!(members.admits(&identity("c", 1)), Ok(()));
}

#[test]
fn what_waits_for_a_broker_is_given_up_when_most_know_that_it_is_down() {
    let mut world = World::new(3);
    // 0 hears from 1 that it misses 2 as well, and holds 2 down. 1 does not hear of that.
    world.pass(1_500, |from, _| from == 1);
    assert_eq!((world.state(2, 0), world.state(2, 1)), (State::Down, State::Unreachable));
    let down = Event::Down("2".into());
    assert!(!world.events[0].contains(&down) && world.all[0].is_waited_for(world.now, "2"));
    let heard = world.clone();

    // 1 and 2 hear each other again, and nobody hears 0 any more. It has given up nothing, and 2 goes on.
    world.pass(2_000, |from, to| from != 0 && to != 0);
    assert_eq!((world.state(0, 1), world.state(2, 1)), (State::Down, State::Up));
    assert!(!world.events[2].iter().any(|event| matches!(event, Event::Condemned(_))));
    assert!(world.all[2].has_quorum(world.now));

    // Or 1 hears of it, and 0 is told so.
    let mut world = heard;
    world.pass(500, |from, to| (from, to) != (2, 0) && (from, to) != (0, 2));
    assert!(world.events[0].contains(&down) && !world.all[0].is_waited_for(world.now, "2"));
}

#[test]
fn what_waits_for_a_process_that_has_ended_is_given_up_at_once() {
    let mut world = World::new(3);
    world.pass(1_000, |from, _| from != 2);
    let now = world.now;
    world.all[1].on_refused(now, "2:1", &mut vec![]);
    // 0 hears that from 1, and nobody hears 0.
    world.pass(250, |from, _| from == 1);
    let mut events = vec![];
    world.all[0].on_refused(now, "2:1", &mut events);
    assert_eq!(events, [Event::Down("2".into())]);
}

#[test]
fn who_was_missed_for_a_moment_goes_on() {
    let mut world = World::new(3);
    world.pass(1_250, |from, to| (from, to) != (2, 1));
    assert_eq!(world.state(2, 1), State::Unreachable);
    world.pass(1_000, |_, _| true);
    world.events.iter_mut().for_each(Vec::clear);
    world.pass(2_000, |from, to| from != 0 && to != 0);
    assert_eq!(world.state(0, 1), State::Down);
    assert!(!world.events[2].iter().any(|event| matches!(event, Event::Condemned(_))));
}

#[test]
fn a_verdict_is_remembered_when_its_speaker_is_gone() {
    let mut world = World::new(3);
    world.pass(1_500, |from, _| from == 1);
    assert_eq!((world.state(2, 0), world.state(2, 1)), (State::Down, State::Unreachable));
    // 1 hears 2 again, and that 0 holds it down.
    world.pass(750, |from, to| (from, to) != (0, 2) && (from, to) != (2, 0));
    world.events.iter_mut().for_each(Vec::clear);
    world.pass(2_000, |from, to| from != 0 && to != 0);
    assert_eq!((world.state(0, 1), world.state(2, 1)), (State::Down, State::Up));
    assert!(world.events[2].contains(&Event::Condemned("1".into())));
}

#[test]
fn most_brokers_go_on_when_others_come_back_in_a_new_life() {
    let mut world = World::new(5);
    let is_cut = |from: usize, to: usize| (from < 2) != (to < 2);
    world.pass(8_000, |from, to| !is_cut(from, to));
    assert!(
        world.events[0].contains(&Event::Isolated) && world.events[1].contains(&Event::Isolated)
    );
    for index in 0..2 {
        world.all[index].begin_anew(2);
    }
    for index in 0..2 {
        let me = world.all[index].me.clone();
        for other in (0..5).filter(|other| *other != index) {
            world.all[other].on_hello(world.now, &me, &mut vec![]);
            world.all[other].on_told(&me.name, 2);
            world.all[other].on_heard(&me.name, 2);
        }
        for other in 0..5 {
            let (name, life) = (other.to_string(), world.all[other].me.incarnation);
            world.all[index].on_told(&name, life);
            world.all[index].on_heard(&name, life);
        }
    }
    world.events.iter_mut().for_each(Vec::clear);
    world.pass(3_000, |_, _| true);
    for events in &world.events[2..] {
        assert!(!events.iter().any(|event| matches!(event, Event::Condemned(_))), "{events:?}");
    }
    assert!(world.all[0].begin_to_serve(world.now) && world.all[1].begin_to_serve(world.now));
}
