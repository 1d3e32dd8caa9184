//! Scenarios of queues and message sessions with the client library fe2o3-amqp.
//!
//!     fe2o3-scenarios list
//!     fe2o3-scenarios HOST:PORT QUEUE SCENARIO
//!
//! The first form lists the scenarios. Each scenario needs a queue of its own, which requires sessions if the
//! name of the scenario begins with `session`.

use std::error::Error;
use std::time::Duration;

use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::link::delivery::Delivery;
use fe2o3_amqp::link::receiver::CreditMode;
use fe2o3_amqp::sasl_profile::SaslProfile;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::types::definitions::{
    Error as AmqpError, ErrorCondition, Fields, ReceiverSettleMode, SenderSettleMode,
};
use fe2o3_amqp::types::messaging::{Data, Message, Modified, Outcome, Properties, Source};
use fe2o3_amqp::types::primitives::{Binary, Symbol};
use fe2o3_amqp::{Connection, Receiver, Sender, Session};
use serde_amqp::Value;
use serde_amqp::described::Described;
use serde_amqp::descriptor::Descriptor;
use tokio::time::timeout;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const FILTER: &str = "com.microsoft:session-filter";
const FILTER_CODE: u64 = 0x0000_0137_0000_000c;
const PATIENCE: Duration = Duration::from_secs(5);
const SILENCE: Duration = Duration::from_millis(300);

const SCENARIOS: [&str; 9] = [
    "plain_messages",
    "plain_large",
    "plain_in_flight",
    "plain_drain",
    "plain_refusals",
    "session_filter_by_code",
    "session_filter_by_name",
    "session_order_and_outcomes",
    "session_held_and_next",
];

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, queue, scenario] = &arguments[..] else {
        println!("{}", SCENARIOS.join("\n"));
        return Ok(());
    };
    let mut world = World::enter(address, queue).await?;
    timeout(Duration::from_secs(40), world.play(scenario)).await??;
    world.leave().await?;
    println!("ok {scenario}");
    Ok(())
}

struct World {
    connection: ConnectionHandle<()>,
    session: SessionHandle<()>,
    queue: String,
}

impl World {
    async fn enter(address: &str, queue: &str) -> Result<Self> {
        let mut connection = Connection::builder()
            .container_id("fe2o3")
            .max_frame_size(4096_u32)
            .sasl_profile(SaslProfile::Plain {
                username: "RootManageSharedAccessKey".into(),
                password: "SAS_KEY_VALUE".into(),
            })
            .open(&*format!("amqp://{address}"))
            .await?;
        let session = Session::begin(&mut connection).await?;
        Ok(Self { connection, session, queue: queue.into() })
    }

    async fn leave(mut self) -> Result<()> {
        self.session.end().await?;
        self.connection.close().await?;
        Ok(())
    }

    async fn play(&mut self, scenario: &str) -> Result<()> {
        match scenario {
            "plain_messages" => self.messages().await,
            "plain_large" => self.large().await,
            "plain_in_flight" => self.in_flight().await,
            "plain_drain" => self.drain().await,
            "plain_refusals" => self.refusals().await,
            "session_filter_by_code" => self.filter(Descriptor::Code(FILTER_CODE)).await,
            "session_filter_by_name" => self.filter(Descriptor::Name(Symbol::from(FILTER))).await,
            "session_order_and_outcomes" => self.outcomes().await,
            "session_held_and_next" => self.held_and_next().await,
            other => Err(format!("no scenario {other}").into()),
        }
    }

    // ------------------------------------------------------------------------------------------------ scenarios

    async fn messages(&mut self) -> Result<()> {
        let mut sender = self.sender("s").await?;
        for number in 0..20 {
            accepted(sender.send(message(&number.to_string(), None)).await?);
        }
        let mut receiver =
            self.receiver("r", Source::builder().address(self.queue.as_str()).build()).await?;
        receiver.set_credit(20).await?;
        for number in 0..20 {
            let delivery = next(&mut receiver).await?;
            assert_eq!(text(&delivery), number.to_string());
            receiver.accept(&delivery).await?;
        }
        assert!(silent(&mut receiver).await);
        receiver.close().await?;
        sender.close().await?;
        Ok(())
    }

    async fn large(&mut self) -> Result<()> {
        let mut sender = self.sender("s").await?;
        let mut receiver =
            self.receiver("r", Source::builder().address(self.queue.as_str()).build()).await?;
        for size in [0, 1, 4095, 100_000, 900 * 1024] {
            let body = "x".repeat(size);
            accepted(sender.send(message(&body, None)).await?);
            receiver.set_credit(1).await?;
            let delivery = next(&mut receiver).await?;
            assert_eq!(text(&delivery), body);
            receiver.accept(&delivery).await?;
        }
        Ok(())
    }

    async fn in_flight(&mut self) -> Result<()> {
        let mut sender = self.sender("s").await?;
        let mut waiting = Vec::new();
        for number in 0..300 {
            waiting.push(sender.send_batchable(message(&number.to_string(), None)).await?);
        }
        for outcome in waiting {
            accepted(outcome.await?);
        }
        let mut receiver =
            self.receiver("r", Source::builder().address(self.queue.as_str()).build()).await?;
        receiver.set_credit(300).await?;
        let mut deliveries = Vec::new();
        for number in 0..300 {
            deliveries.push(next(&mut receiver).await?);
            assert_eq!(text(&deliveries[number]), number.to_string());
        }
        receiver.accept_all(&deliveries).await?;
        receiver.close().await?;
        let mut again =
            self.receiver("again", Source::builder().address(self.queue.as_str()).build()).await?;
        again.set_credit(1).await?;
        assert!(silent(&mut again).await);
        Ok(())
    }

    async fn drain(&mut self) -> Result<()> {
        let mut sender = self.sender("s").await?;
        for number in 0..3 {
            accepted(sender.send(message(&number.to_string(), None)).await?);
        }
        let mut receiver =
            self.receiver("r", Source::builder().address(self.queue.as_str()).build()).await?;
        receiver.set_credit(10).await?;
        for number in 0..3 {
            assert_eq!(text(&next(&mut receiver).await?), number.to_string());
        }
        receiver.drain().await?;
        tokio::time::sleep(SILENCE).await;
        accepted(sender.send(message("later", None)).await?);
        assert!(silent(&mut receiver).await, "the credit was drained");
        receiver.set_credit(1).await?;
        assert_eq!(text(&next(&mut receiver).await?), "later");
        Ok(())
    }

    async fn refusals(&mut self) -> Result<()> {
        let of_session = described(Descriptor::Code(FILTER_CODE), Value::String("s".into()));
        self.refuses(Source::builder().address("nowhere").build()).await?;
        self.refuses(self.session_source(of_session)).await?;
        self.messages().await
    }

    /// The filter in the broker's attach has the same descriptor as the one that was sent.
    async fn filter(&mut self, descriptor: Descriptor) -> Result<()> {
        let mut sender = self.sender("s").await?;
        for session in ["a", "b"] {
            accepted(sender.send(message(session, Some(session))).await?);
        }
        let asked = described(descriptor.clone(), Value::String("b".into()));
        let mut receiver = self.receiver("b", self.session_source(asked.clone())).await?;
        assert_eq!(answered(&receiver), Some(asked));
        receiver.set_credit(1).await?;
        assert_eq!(text(&next(&mut receiver).await?), "b");
        let mut first = self
            .receiver("next", self.session_source(described(descriptor.clone(), Value::Null)))
            .await?;
        assert_eq!(answered(&first), Some(described(descriptor, Value::String("a".into()))));
        let locked_until = first.properties(|properties| {
            properties.as_ref().and_then(|map| map.get("com.microsoft:locked-until-utc").cloned())
        });
        assert!(
            matches!(locked_until, Some(Value::Long(ticks)) if ticks > 638_000_000_000_000_000),
            "{locked_until:?}"
        );
        first.set_credit(1).await?;
        let delivery = next(&mut first).await?;
        assert_eq!(text(&delivery), "a");
        assert_eq!(delivery.delivery_tag().len(), 16);
        first.accept(&delivery).await?;
        Ok(())
    }

    async fn outcomes(&mut self) -> Result<()> {
        let mut sender = self.sender("s").await?;
        for body in ["a", "b", "c", "d"] {
            accepted(sender.send(message(body, Some("s"))).await?);
        }
        let filter = described(Descriptor::Code(FILTER_CODE), Value::String("s".into()));
        let mut receiver = self.receiver("s1", self.session_source(filter.clone())).await?;
        receiver.set_credit(4).await?;
        let mut deliveries = Vec::new();
        for body in ["a", "b", "c", "d"] {
            let delivery = next(&mut receiver).await?;
            assert_eq!((text(&delivery), count(&delivery)), (body.into(), 0));
            deliveries.push(delivery);
        }
        let dead_letter = AmqpError::new(
            ErrorCondition::Custom(Symbol::from("com.microsoft:dead-letter")),
            None,
            Fields::new(),
        );
        receiver.release(&deliveries[0]).await?;
        receiver
            .modify(
                &deliveries[1],
                Modified {
                    delivery_failed: Some(true),
                    undeliverable_here: None,
                    message_annotations: None,
                },
            )
            .await?;
        receiver.reject(&deliveries[2], dead_letter).await?;
        receiver.accept(&deliveries[3]).await?;
        receiver.set_credit(4).await?;
        for (body, deliveries) in [("a", 0), ("b", 1)] {
            let delivery = next(&mut receiver).await?;
            assert_eq!((text(&delivery), count(&delivery)), (body.into(), deliveries));
            receiver.accept(&delivery).await?;
        }
        assert!(silent(&mut receiver).await);
        receiver.close().await?;
        let dead = format!("{}/$DeadLetterQueue", self.queue);
        let mut dead =
            self.receiver("dead", Source::builder().address(dead.as_str()).build()).await?;
        dead.set_credit(5).await?;
        assert_eq!(text(&next(&mut dead).await?), "c");
        Ok(())
    }

    async fn held_and_next(&mut self) -> Result<()> {
        let filter = |session: Value| described(Descriptor::Code(FILTER_CODE), session);
        let holder =
            self.receiver("holder", self.session_source(filter(Value::String("s".into())))).await?;
        self.refuses(self.session_source(filter(Value::String("s".into())))).await?;
        let mut sender = self.sender("s").await?;
        accepted(sender.send(message("held", Some("s"))).await?);
        accepted(sender.send(message("free", Some("t"))).await?);
        let mut next_one = self.receiver("next", self.session_source(filter(Value::Null))).await?;
        next_one.set_credit(1).await?;
        assert_eq!(text(&next(&mut next_one).await?), "free");
        holder.close().await?;
        let mut last = self.receiver("last", self.session_source(filter(Value::Null))).await?;
        last.set_credit(1).await?;
        assert_eq!(text(&next(&mut last).await?), "held");
        Ok(())
    }

    // -------------------------------------------------------------------------------------------------- helpers

    async fn sender(&mut self, name: &str) -> Result<Sender> {
        Ok(Sender::attach(&mut self.session, name, self.queue.as_str()).await?)
    }

    /// Attaches a peek-lock receiver whose credit is given by hand.
    async fn receiver(&mut self, name: &str, source: Source) -> Result<Receiver> {
        let receiver = Receiver::builder()
            .name(name)
            .source(source)
            .sender_settle_mode(SenderSettleMode::Unsettled)
            .receiver_settle_mode(ReceiverSettleMode::Second)
            .credit_mode(CreditMode::Manual)
            .attach(&mut self.session);
        Ok(timeout(PATIENCE, receiver).await??)
    }

    /// Checks that the broker refuses a receiver. It answers with an attach without a source, followed by a
    /// detach with the error. Which error the client (0.18) reports, and whether its session can be used
    /// afterwards, is a matter of chance, so this uses a session of its own.
    async fn refuses(&mut self, source: Source) -> Result<()> {
        let mut session = Session::begin(&mut self.connection).await?;
        let attached = Receiver::builder().name("refused").source(source).attach(&mut session);
        if timeout(PATIENCE, attached).await?.is_ok() {
            return Err("a link that should be refused".into());
        }
        Ok(())
    }

    fn session_source(&self, filter: Value) -> Source {
        let mut source = Source::builder().address(self.queue.as_str()).build();
        source.filter.get_or_insert_default().insert(Symbol::from(FILTER), filter);
        source
    }
}

fn described(descriptor: Descriptor, value: Value) -> Value {
    Value::Described(Box::new(Described { descriptor, value }))
}

/// Returns the session filter in the broker's attach.
fn answered(receiver: &Receiver) -> Option<Value> {
    receiver.source().as_ref()?.filter.as_ref()?.get(FILTER).cloned()
}

fn message(body: &str, session: Option<&str>) -> Message<Data> {
    let properties = Properties { group_id: session.map(Into::into), ..Properties::default() };
    Message::builder()
        .properties(properties)
        .data(Data(Binary::from(body.as_bytes().to_vec())))
        .build()
}

async fn next(receiver: &mut Receiver) -> Result<Delivery<Data>> {
    Ok(timeout(PATIENCE, receiver.recv::<Data>()).await??)
}

async fn silent(receiver: &mut Receiver) -> bool {
    timeout(SILENCE, receiver.recv::<Data>()).await.is_err()
}

fn text(delivery: &Delivery<Data>) -> String {
    String::from_utf8(delivery.body().0.to_vec()).expect("what was sent is text")
}

fn count(delivery: &Delivery<Data>) -> u32 {
    delivery.message().header.as_ref().expect("there is always a header").delivery_count
}

fn accepted(outcome: Outcome) {
    assert!(matches!(outcome, Outcome::Accepted(_)), "{outcome:?}");
}
