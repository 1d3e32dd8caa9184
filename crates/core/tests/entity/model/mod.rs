//! Random histories, including crashes, compared with a model that is simple and slow.

mod both;
mod op;
mod reference;

use std::sync::Arc;

use both::Both;
use proptest::prelude::*;

const LOCK: u64 = 20;
const WINDOW: u64 = 30;
const TIME_TO_LIVE: u8 = 200;
const MAX_DELIVERIES: u32 = 2;
const SESSIONS: u8 = 3;
const SLOTS: u8 = 4;

fn name(session: u8) -> String {
    format!("s{session}")
}

fn id(session: u8) -> Arc<str> {
    Arc::from(name(session))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_entity_is_what_the_model_is(
        sessionful in prop::bool::weighted(0.7),
        dead_letters_expired: bool,
        ops in prop::collection::vec(op::any_op(), 1..250),
    ) {
        let mut both = Both::new(sessionful, dead_letters_expired);
        for op in ops {
            both.run(op);
            both.check();
        }
    }
}
