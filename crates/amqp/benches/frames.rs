//! Measures the cost of the frames of one 1 KiB message, both incoming and outgoing.
//! Run it with `cargo bench -p barid-amqp --bench frames`.

use std::hint::black_box;

use barid_amqp::frame::{
    self, AMQP_HEADER, Attach, Begin, Disposition, Flow, Open, Performative, Transfer,
};
use barid_amqp::{
    AttachAnswer, Connection, DeliveryState, Event, Fields, Limits, LinkId, ReceiverSettles, Role,
    SenderSettles, Tag, Terminus,
};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

/// Number of messages in one read from the socket.
const BATCH: u32 = 64;
const MESSAGE: [u8; 1_024] = [b'.'; 1_024];

fn transfer(id: u32) -> Transfer {
    Transfer {
        handle: 0,
        delivery_id: Some(id),
        tag: Some(Tag::try_from(&[7; 16][..]).expect("it is short")),
        message_format: Some(0),
        settled: Some(false),
        ..Transfer::default()
    }
}

fn disposition(first: u32, last: Option<u32>) -> Performative {
    let (role, state) = (Role::Receiver, Some(DeliveryState::Accepted));
    Performative::Disposition(Disposition { role, first, last, settled: false, state })
}

fn flow(delivery_count: u32) -> Performative {
    Performative::Flow(Flow {
        next_incoming_id: Some(delivery_count.wrapping_add(1)),
        incoming_window: 1 << 30,
        handle: Some(0),
        delivery_count: Some(delivery_count),
        link_credit: Some(BATCH),
        ..Flow::default()
    })
}

fn encoded(performative: &Performative, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::encode(&mut bytes, 0, performative, payload);
    bytes
}

/// Creates a connection with one link, on which the peer has this role.
fn connected(role: Role) -> (Connection, LinkId) {
    let mut connection = Connection::new("broker", Limits::default());
    let begin = Begin {
        remote_channel: None,
        next_outgoing_id: 0,
        incoming_window: 1 << 30,
        outgoing_window: 1 << 30,
        handle_max: 7,
        properties: Fields::new(),
    };
    let attach = Attach {
        name: "link".into(),
        handle: 0,
        role,
        sender_settles: SenderSettles::Unsettled,
        receiver_settles: ReceiverSettles::Second,
        source: Some(Terminus::source("sq")),
        target: Some(Terminus::target("sq")),
        initial_delivery_count: Some(0),
        max_message_size: None,
        properties: Fields::new(),
    };
    let mut bytes = AMQP_HEADER.to_vec();
    bytes.extend(encoded(&Performative::Open(Box::new(Open::new("client"))), &[]));
    bytes.extend(encoded(&Performative::Begin(Box::new(begin)), &[]));
    bytes.extend(encoded(&Performative::Attach(Box::new(attach)), &[]));
    connection.receive(&bytes).expect("a good client");
    while let Some(event) = connection.next_event() {
        if let Event::Attach(request) = event {
            let answer = AttachAnswer { credit: 2 * BATCH, ..AttachAnswer::default() };
            connection.accept_attach(request.link, answer);
            connection.output().clear();
            return (connection, request.link);
        }
    }
    unreachable!("the client attaches");
}

fn codec(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("codec");
    group.throughput(Throughput::Elements(1));
    for (name, performative, payload) in [
        ("transfer", Performative::Transfer(transfer(70_000)), &MESSAGE[..]),
        ("disposition", disposition(70_000, None), &[]),
        ("flow", flow(70_000), &[]),
    ] {
        let bytes = encoded(&performative, payload);
        group.bench_function(format!("decode {name}"), |bencher| {
            bencher.iter(|| frame::decode(black_box(&bytes)).expect("a frame"));
        });
        let mut out = Vec::with_capacity(2_048);
        group.bench_function(format!("encode {name}"), |bencher| {
            bencher.iter(|| {
                out.clear();
                frame::encode(&mut out, 0, black_box(&performative), payload);
            });
        });
    }
    group.finish();
}

fn receiving(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("connection");
    group.throughput(Throughput::Elements(BATCH.into()));
    group.bench_function("receive and accept", |bencher| {
        let (mut connection, _) = connected(Role::Sender);
        let mut next = 0;
        let batch = || {
            let mut bytes = Vec::new();
            for _ in 0..BATCH {
                let transfer = Performative::Transfer(transfer(next));
                frame::encode(&mut bytes, 0, &transfer, &MESSAGE);
                next += 1;
            }
            bytes
        };
        let take = |bytes: Vec<u8>| {
            connection.receive(&bytes).expect("a good client");
            while let Some(event) = connection.next_event() {
                if let Event::Delivery(delivery) = event {
                    connection.settle_incoming(delivery.id, &DeliveryState::Accepted);
                }
            }
            connection.output().clear();
            bytes
        };
        bencher.iter_batched(batch, take, BatchSize::PerIteration);
    });
    group.bench_function("send and settle", |bencher| {
        let (mut connection, link) = connected(Role::Receiver);
        let mut next = 0;
        let batch = || {
            let first = next;
            next += BATCH;
            let dispositions: Vec<u8> =
                (first..next).flat_map(|at| encoded(&disposition(at + 1, None), &[])).collect();
            (encoded(&flow(first), &[]), dispositions)
        };
        let take = |(flow, dispositions): (Vec<u8>, Vec<u8>)| {
            connection.receive(&flow).expect("a good client");
            while connection.credit(link) > 0 {
                connection.send(link, &[7; 16], false, 0, &[&MESSAGE]).expect("there is credit");
            }
            connection.output().clear();
            connection.receive(&dispositions).expect("a good client");
            while let Some(event) = connection.next_event() {
                if let Event::Disposition(said) = event {
                    connection.settle_outgoing(said.delivery, said.state.as_deref());
                }
            }
            connection.output().clear();
            (flow, dispositions)
        };
        bencher.iter_batched(batch, take, BatchSize::PerIteration);
    });
    group.finish();
}

criterion_group!(benches, codec, receiving);
criterion_main!(benches);
