//! Publishers and subscribers of each scenario.

/// Scenario to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    Pairs,
    Fanout,
    Fanin,
    Connections,
}

impl Scenario {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Scenario::Pairs => "pairs",
            Scenario::Fanout => "fanout",
            Scenario::Fanin => "fanin",
            Scenario::Connections => "connections",
        }
    }
}

/// Task of one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Publishes to this topic.
    Publisher(String),
    /// Subscribes to this topic filter.
    Subscriber(String),
}

/// Connections of a scenario. Subscribers come first, so that no message lacks a subscriber.
#[derive(Debug)]
pub struct Plan {
    pub clients: Vec<Role>,
    /// Number of deliveries of each message.
    pub copies: u32,
}

impl Plan {
    /// Creates the plan of `scenario` with its number `n`.
    pub fn new(scenario: Scenario, n: u32) -> Self {
        let subscriber = |i| Role::Subscriber(format!("bench/{i}"));
        let publisher = |i| Role::Publisher(format!("bench/{i}"));
        let (clients, copies) = match scenario {
            Scenario::Pairs => ((0..n).map(subscriber).chain((0..n).map(publisher)).collect(), 1),
            Scenario::Fanout => {
                let subscribers = (0..n).map(|_| subscriber(0));
                (subscribers.chain([publisher(0)]).collect(), n)
            }
            Scenario::Fanin => {
                let all = Role::Subscriber("bench/+".into());
                (std::iter::once(all).chain((0..n).map(publisher)).collect(), 1)
            }
            Scenario::Connections => ((0..n).map(subscriber).collect(), 0),
        };
        Self { clients, copies }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mqtt_proto::topic::matches;

    #[test]
    fn every_message_has_as_many_receivers_as_the_plan_says() {
        for scenario in [Scenario::Pairs, Scenario::Fanout, Scenario::Fanin] {
            let plan = Plan::new(scenario, 7);
            for client in &plan.clients {
                let Role::Publisher(topic) = client else { continue };
                let receives =
                    |role: &&Role| matches!(role, Role::Subscriber(f) if matches(f, topic));
                let receivers = plan.clients.iter().filter(receives).count();
                assert_eq!(receivers, plan.copies as usize, "{scenario:?} {topic}");
            }
        }
    }
}
