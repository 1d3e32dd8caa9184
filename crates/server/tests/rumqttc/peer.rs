//! A client on rumqttc, with a thread that polls it, so that a test can publish, subscribe and wait.

use std::time::Duration;

/// Maximum time to wait for anything.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time without a message after which a client counts as silent.
const SILENCE: Duration = Duration::from_millis(200);

/// Interval at which the thread checks whether its client is to vanish.
const TICK: Duration = Duration::from_millis(10);

/// Maximum number of requests that wait for the thread.
const REQUESTS: usize = 2_000;

/// Defines the client of one version of MQTT. rumqttc's modules for the two versions have the same shape and
/// no types in common.
macro_rules! peer {
    () => {
        /// A connected client.
        pub struct Peer {
            client: Client,
            incoming: Receiver<Packet>,
            messages: VecDeque<Publish>,
            connack: ConnAck,
            vanishing: Arc<AtomicBool>,
            thread: Option<JoinHandle<String>>,
        }

        impl Peer {
            /// Connects, and waits for CONNACK.
            pub fn connect(options: Options) -> Self {
                let (client, connection) = Client::new(options.0, REQUESTS);
                let (sender, incoming) = channel();
                let vanishing = Arc::new(AtomicBool::new(false));
                let seen = Arc::clone(&vanishing);
                let thread = std::thread::spawn(move || keep_going(connection, &sender, &seen));
                let Ok(Packet::ConnAck(connack)) = incoming.recv_timeout(PATIENCE) else {
                    panic!("the first packet is not CONNACK")
                };
                let messages = VecDeque::new();
                Self { client, incoming, messages, connack, vanishing, thread: Some(thread) }
            }

            /// Whether the broker has resumed a session.
            pub fn session_present(&self) -> bool {
                self.connack.session_present
            }

            /// Subscribes, and waits for SUBACK.
            pub fn subscribe(&mut self, filter: &str, qos: QoS) {
                self.client.subscribe(filter, qos).unwrap();
                self.wait(|packet| matches!(packet, Packet::SubAck(_)));
            }

            /// Publishes, and waits until the broker has acknowledged it.
            pub fn publish(
                &mut self,
                topic: &str,
                qos: QoS,
                retain: bool,
                payload: impl Into<String>,
            ) {
                self.send(topic, qos, retain, payload);
                match qos {
                    QoS::AtMostOnce => {}
                    QoS::AtLeastOnce => {
                        drop(self.wait(|packet| matches!(packet, Packet::PubAck(_))))
                    }
                    QoS::ExactlyOnce => {
                        drop(self.wait(|packet| matches!(packet, Packet::PubComp(_))))
                    }
                }
            }

            /// Publishes without waiting.
            pub fn send(
                &mut self,
                topic: &str,
                qos: QoS,
                retain: bool,
                payload: impl Into<String>,
            ) {
                self.client.publish(topic, qos, retain, payload.into()).unwrap();
            }

            /// Returns the next message.
            pub fn message(&mut self) -> Publish {
                if self.messages.is_empty() {
                    let Packet::Publish(message) =
                        self.wait(|packet| matches!(packet, Packet::Publish(_)))
                    else {
                        unreachable!("it was waited for")
                    };
                    return message;
                }
                self.messages.pop_front().expect("there is one")
            }

            /// Returns the payloads of the next messages.
            pub fn texts(&mut self, count: usize) -> Vec<String> {
                (0..count)
                    .map(|_| String::from_utf8(self.message().payload.to_vec()).unwrap())
                    .collect()
            }

            /// Whether no message arrives for a while.
            pub fn is_silent(&mut self) -> bool {
                std::thread::sleep(SILENCE);
                self.messages.is_empty()
                    && !self.incoming.try_iter().any(|packet| matches!(packet, Packet::Publish(_)))
            }

            /// Sends DISCONNECT, and waits for the end of the connection.
            pub fn leave(self) {
                self.client.disconnect().expect("the thread takes requests");
                self.end();
            }

            /// Ends the connection without DISCONNECT.
            pub fn vanish(self) {
                self.vanishing.store(true, Ordering::Relaxed);
                self.end();
            }

            /// Waits for the end of the connection. Returns the reason that rumqttc reports.
            pub fn end(mut self) -> String {
                self.thread.take().expect("it ends once").join().unwrap()
            }

            /// Waits for the next packet that is wanted. Messages that arrive before it are kept for later.
            fn wait(&mut self, wanted: impl Fn(&Packet) -> bool) -> Packet {
                loop {
                    match self.incoming.recv_timeout(PATIENCE).expect("a packet comes in time") {
                        packet if wanted(&packet) => return packet,
                        Packet::Publish(message) => self.messages.push_back(message),
                        _ => {}
                    }
                }
            }
        }

        impl Drop for Peer {
            fn drop(&mut self) {
                self.vanishing.store(true, Ordering::Relaxed);
            }
        }

        /// Passes on incoming packets until the connection ends or is to vanish. Returns the reason.
        fn keep_going(
            mut connection: Connection,
            incoming: &Sender<Packet>,
            vanishing: &AtomicBool,
        ) -> String {
            let mut has_left = false;
            // A tick would interrupt connecting, when the client may already have sent CONNECT and created a
            // session.
            let mut patience = PATIENCE;
            while !vanishing.load(Ordering::Relaxed) {
                match connection.recv_timeout(patience) {
                    Ok(Ok(Event::Incoming(packet))) => {
                        patience = TICK;
                        let _ = incoming.send(packet);
                    }
                    // DISCONNECT may not have been written yet: a tick interrupts the writing, and the next
                    // one continues it.
                    Ok(Ok(Event::Outgoing(Outgoing::Disconnect))) => has_left = true,
                    Ok(Err(_)) if has_left => return "left".into(),
                    Ok(Ok(Event::Outgoing(_))) | Err(RecvTimeoutError::Timeout) => {}
                    // Otherwise rumqttc would connect again.
                    Ok(Err(error)) => return format!("{error:?}"),
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            "vanished".into()
        }

        impl Options {
            /// Sets a user name that belongs to a tenant.
            pub fn tenant(mut self, tenant: &str) -> Self {
                self.0.set_credentials(format!("{tenant}/device"), "");
                self
            }
        }
    };
}

/// MQTT 3.1.1.
pub mod v4 {
    use std::collections::VecDeque;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::JoinHandle;

    use rumqttc::{
        Client, ConnAck, Connection, Event, LastWill, MqttOptions, Outgoing, Packet, Publish, QoS,
        RecvTimeoutError,
    };

    use super::{PATIENCE, REQUESTS, SILENCE, TICK};
    use crate::broker::Running;

    /// Options of a connection.
    pub struct Options(MqttOptions);

    impl Options {
        /// Options with a clean session.
        pub fn new(broker: &Running, client_id: &str) -> Self {
            let host = broker.address.ip().to_string();
            let mut options = MqttOptions::new(client_id, host, broker.address.port());
            options.set_max_packet_size(2_000_000, 2_000_000);
            Self(options)
        }

        /// Resumes the session, and keeps it after the connection.
        pub fn keep_session(mut self) -> Self {
            self.0.set_clean_session(false);
            self
        }

        /// Sets a Will Message of QoS 1.
        pub fn will(mut self, topic: &str, payload: &str) -> Self {
            self.0.set_last_will(LastWill::new(topic, payload, QoS::AtLeastOnce, false));
            self
        }
    }

    peer!();
}

/// MQTT 5.
pub mod v5 {
    use std::collections::VecDeque;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::JoinHandle;

    use rumqttc::Outgoing;
    use rumqttc::v5::mqttbytes::QoS;
    use rumqttc::v5::mqttbytes::v5::{ConnAck, LastWill, Packet, Publish, PublishProperties};
    use rumqttc::v5::{Client, Connection, Event, MqttOptions, RecvTimeoutError};

    use super::{PATIENCE, REQUESTS, SILENCE, TICK};
    use crate::broker::Running;

    /// Options of a connection.
    pub struct Options(MqttOptions);

    impl Options {
        /// Options with a session that ends with the connection.
        pub fn new(broker: &Running, client_id: &str) -> Self {
            let host = broker.address.ip().to_string();
            let mut options = MqttOptions::new(client_id, host, broker.address.port());
            options.set_max_packet_size(Some(2_000_000));
            Self(options)
        }

        /// Resumes the session, and keeps it for a minute after the connection.
        pub fn keep_session(mut self) -> Self {
            self.0.set_clean_start(false).set_session_expiry_interval(Some(60));
            self
        }

        /// Sets a Will Message of QoS 1.
        pub fn will(mut self, topic: &str, payload: &str) -> Self {
            let payload = payload.to_owned();
            self.0.set_last_will(LastWill::new(topic, payload, QoS::AtLeastOnce, false, None));
            self
        }
    }

    peer!();

    impl Peer {
        /// Returns the CONNACK of the connection.
        pub fn connack(&self) -> &ConnAck {
            &self.connack
        }

        /// Publishes with QoS 1 and properties, without payload.
        pub fn publish_with(&mut self, topic: &str, properties: PublishProperties) {
            let qos = QoS::AtLeastOnce;
            self.client
                .publish_with_properties(topic, qos, false, "", properties)
                .expect("the thread takes requests as long as the connection lasts");
        }
    }
}
