//! Measures the cost of the codec for a PUBLISH of typical size, and for a CONNECT. Run it with
//! `cargo bench -p mqtt-proto`.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use mqtt_proto::{
    Connect, FixedHeader, MAX_PACKET_LEN, Packet, PacketId, Properties, PropertiesBuf, Property,
    Publish, QoS, Version, topic,
};

const TOPIC: &str = "plant/hall-7/press-12/temperature";

fn publish<'a>(payload: &'a [u8], properties: Properties<'a>) -> Publish<'a> {
    Publish {
        dup: false,
        qos: QoS::AtLeastOnce,
        retain: false,
        topic: TOPIC,
        packet_id: PacketId::new(7),
        properties,
        payload,
    }
}

fn some_properties() -> PropertiesBuf {
    let mut properties = PropertiesBuf::new();
    for property in [
        Property::MessageExpiryInterval(60),
        Property::ContentType("application/json"),
        Property::UserProperty("trace", "4bf92f3577b34da6"),
    ] {
        properties.push(property).expect("these are short");
    }
    properties
}

fn decode_publish(criterion: &mut Criterion) {
    let properties = some_properties();
    let mut group = criterion.benchmark_group("publish/decode");
    group.throughput(Throughput::Elements(1));
    for (name, version, properties) in [
        ("3.1.1", Version::V3_1_1, Properties::EMPTY),
        ("5", Version::V5, Properties::EMPTY),
        ("5, properties", Version::V5, properties.as_properties()),
    ] {
        let mut bytes = Vec::new();
        publish(&[0; 1024], properties).encode(version, &mut bytes).expect("it is short");
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let (header, body) = split(black_box(&bytes));
                Publish::decode(version, header, body).map(|publish| publish.payload.len())
            });
        });
        group.bench_function(format!("{name}, known topic"), |bencher| {
            bencher.iter(|| {
                let (header, body) = split(black_box(&bytes));
                Publish::decode_with_known_topic(version, header, body, TOPIC)
                    .map(|publish| publish.payload.len())
            });
        });
    }
}

fn encode_publish(criterion: &mut Criterion) {
    let properties = some_properties();
    let mut group = criterion.benchmark_group("publish/encode_header");
    group.throughput(Throughput::Elements(1));
    for (name, version, properties) in [
        ("3.1.1", Version::V3_1_1, Properties::EMPTY),
        ("5, properties", Version::V5, properties.as_properties()),
    ] {
        let publish = publish(&[0; 1024], properties);
        let mut out = Vec::new();
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                out.clear();
                black_box(&publish).encode_header(version, &mut out)
            });
        });
    }
}

fn connect(criterion: &mut Criterion) {
    let connect = Packet::Connect(Connect {
        version: Version::V5,
        is_bridge: false,
        clean_start: true,
        keep_alive: 60,
        client_id: "press-12",
        will: None,
        username: Some("tenant/press-12"),
        password: Some(b"secret"),
        properties: Properties::from_validated(&[0x11, 0, 0, 0, 60]),
    });
    let mut bytes = Vec::new();
    connect.encode(Version::V5, &mut bytes).expect("it is short");
    criterion.bench_function("connect/decode", |bencher| {
        bencher.iter(|| {
            let (header, body) = split(black_box(&bytes));
            Packet::decode(Version::V5, header, body).is_ok()
        });
    });
    let mut out = Vec::new();
    criterion.bench_function("connect/encode", |bencher| {
        bencher.iter(|| {
            out.clear();
            black_box(&connect).encode(Version::V5, &mut out)
        });
    });
}

fn match_topic(criterion: &mut Criterion) {
    criterion.bench_function("topic/matches", |bencher| {
        bencher.iter(|| topic::matches(black_box("plant/+/press-12/#"), black_box(TOPIC)));
    });
}

fn split(bytes: &[u8]) -> (FixedHeader, &[u8]) {
    let header = FixedHeader::read(bytes, MAX_PACKET_LEN)
        .expect("it was written by us")
        .expect("it is whole");
    (header, &bytes[header.header_len..])
}

criterion_group!(benches, decode_publish, encode_publish, connect, match_topic);
criterion_main!(benches);
