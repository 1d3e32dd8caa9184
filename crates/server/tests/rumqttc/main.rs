//! Tests of the broker with the MQTT client library rumqttc, in two tenants at once.

mod broker;
mod peer;

use barid_engine::limits::Limits;
use barid_server::settings::Settings;
use broker::Running;

const TENANTS: [&str; 2] = ["acme", "globex"];

/// The scenarios that every version must pass. The module of a version provides `Peer`, `Options` and `QoS`.
macro_rules! scenarios {
    () => {
        #[test]
        fn two_tenants_with_the_same_names_never_meet() {
            let broker = Running::start();
            let mut peers =
                TENANTS.map(|tenant| Peer::connect(Options::new(&broker, "twin").tenant(tenant)));
            for peer in &mut peers {
                peer.subscribe("t/#", QoS::ExactlyOnce);
            }
            for (peer, tenant) in peers.iter_mut().zip(TENANTS) {
                for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
                    peer.publish("t/x", qos, false, format!("{tenant} {qos:?}"));
                }
            }
            for (peer, tenant) in peers.iter_mut().zip(TENANTS) {
                let expected = ["AtMostOnce", "AtLeastOnce", "ExactlyOnce"]
                    .map(|qos| format!("{tenant} {qos}"));
                assert_eq!(peer.texts(3), expected);
                assert!(peer.is_silent());
            }
        }

        #[test]
        fn many_messages_stay_in_order_and_single() {
            let broker = Running::start();
            for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
                let mut publisher = Peer::connect(Options::new(&broker, "publisher"));
                let mut subscriber = Peer::connect(Options::new(&broker, "subscriber"));
                subscriber.subscribe("many", qos);
                let expected: Vec<_> = (0..1_000).map(|number| number.to_string()).collect();
                for text in &expected {
                    publisher.send("many", qos, false, text.as_str());
                }
                assert_eq!(subscriber.texts(1_000), expected);
                assert!(subscriber.is_silent());
            }
        }

        #[test]
        fn payloads_of_all_sizes() {
            let broker = Running::start();
            let mut peer = Peer::connect(Options::new(&broker, "sizes"));
            peer.subscribe("t", QoS::AtLeastOnce);
            for size in [0, 1, 127, 128, 16_383, 16_384, 1_000_000] {
                peer.publish("t", QoS::AtLeastOnce, false, "x".repeat(size));
                assert_eq!(peer.texts(1)[0].len(), size);
            }
        }

        #[test]
        fn retained_messages() {
            let broker = Running::start();
            let mut keeper = Peer::connect(Options::new(&broker, "keeper").tenant("acme"));
            keeper.publish("state", QoS::AtLeastOnce, true, "kept");
            let mut late =
                TENANTS.map(|tenant| Peer::connect(Options::new(&broker, "late").tenant(tenant)));
            for peer in &mut late {
                peer.subscribe("+", QoS::AtMostOnce);
            }
            assert_eq!(late[0].texts(1), ["kept"]);
            assert!(late[1].is_silent());
            keeper.publish("state", QoS::AtLeastOnce, true, "");
            let mut later = Peer::connect(Options::new(&broker, "later").tenant("acme"));
            later.subscribe("+", QoS::AtMostOnce);
            assert!(later.is_silent());
        }

        #[test]
        fn a_session_is_resumed() {
            let broker = Running::start();
            let options = || Options::new(&broker, "away").tenant("acme").keep_session();
            let mut first = Peer::connect(options());
            first.subscribe("t", QoS::ExactlyOnce);
            first.leave();
            let mut publisher = Peer::connect(Options::new(&broker, "publisher").tenant("acme"));
            let expected: Vec<_> = (0..50).map(|number| number.to_string()).collect();
            for text in &expected {
                publisher.publish("t", QoS::ExactlyOnce, false, text.as_str());
            }
            let stranger =
                Peer::connect(Options::new(&broker, "away").tenant("globex").keep_session());
            assert!(!stranger.session_present());
            let mut second = Peer::connect(options());
            assert!(second.session_present());
            assert_eq!(second.texts(50), expected);
            assert!(second.is_silent());
        }

        #[test]
        fn a_will_is_published_for_those_who_vanish() {
            let broker = Running::start();
            let mut watchers = TENANTS
                .map(|tenant| Peer::connect(Options::new(&broker, "watcher").tenant(tenant)));
            for watcher in &mut watchers {
                watcher.subscribe("wills/#", QoS::AtLeastOnce);
            }
            let mortal = |will| {
                Peer::connect(Options::new(&broker, "mortal").tenant("acme").will("wills/x", will))
            };
            mortal("left").leave();
            mortal("vanished").vanish();
            assert_eq!(watchers[0].texts(1), ["vanished"]);
            assert!(watchers.iter_mut().all(Peer::is_silent));
        }

        #[test]
        fn a_shared_subscription_divides_the_work() {
            let broker = Running::start();
            let mut members =
                [1, 2, 3].map(|n| Peer::connect(Options::new(&broker, &format!("member{n}"))));
            for member in &mut members {
                member.subscribe("$share/g/t", QoS::AtLeastOnce);
            }
            let mut publisher = Peer::connect(Options::new(&broker, "publisher"));
            let expected: Vec<_> = (10..40).map(|number| number.to_string()).collect();
            for text in &expected {
                publisher.publish("t", QoS::AtLeastOnce, false, text.as_str());
            }
            let mut received: Vec<_> =
                members.iter_mut().flat_map(|member| member.texts(10)).collect();
            received.sort();
            assert_eq!(received, expected);
        }
    };
}

mod v3_1_1 {
    use super::peer::v4::{Options, Peer};
    use super::*;
    use rumqttc::QoS;

    scenarios!();
}

mod v5 {
    use super::peer::v5::{Options, Peer};
    use super::*;
    use rumqttc::v5::mqttbytes::QoS;
    use rumqttc::v5::mqttbytes::v5::PublishProperties;

    scenarios!();

    #[test]
    fn properties_are_forwarded() {
        let broker = Running::start();
        let mut peer = Peer::connect(Options::new(&broker, "properties"));
        peer.subscribe("t", QoS::AtLeastOnce);
        let said = PublishProperties {
            payload_format_indicator: Some(1),
            response_topic: Some("answers".into()),
            correlation_data: Some(vec![0, 1, 2].into()),
            user_properties: vec![
                ("b".into(), "1".into()),
                ("a".into(), "2".into()),
                ("b".into(), "3".into()),
            ],
            content_type: Some("text/plain".into()),
            ..PublishProperties::default()
        };
        peer.publish_with("t", said.clone());
        assert_eq!(peer.message().properties, Some(said));
    }

    #[test]
    fn the_broker_says_good_bye() {
        let broker = Running::start();
        let peer = Peer::connect(Options::new(&broker, "told"));
        drop(broker);
        assert!(peer.end().contains("ServerShuttingDown"));
    }

    #[test]
    fn limits_are_told_in_connack() {
        let limits = Limits { max_packet_size: 5_000, receive_maximum: 7, ..Limits::default() };
        let broker = Running::with(Settings { limits, ..Settings::default() });
        let peer = Peer::connect(Options::new(&broker, "limited"));
        let told = peer.connack().properties.clone().expect("CONNACK has properties");
        assert_eq!((told.max_packet_size, told.receive_max), (Some(5_000), Some(7)));
    }
}
