//! The inbox through which other threads reach an AMQP connection.

use std::sync::Arc;

use barid_core::entity::ReceiverId;
use mqtt_proto::ReasonCode;

use crate::amqp_clients::Close;
use crate::entities::Told;
use crate::ids::ConnectionId;
use crate::owner::{Farewell, Owner};
use crate::progress::Waiter;
use crate::sync::Mutex;

/// The inbox of a connection. Entities leave news for its receivers here. It also wakes the connection when a
/// commit is durable.
#[derive(Debug)]
pub struct Inbox {
    connection: ConnectionId,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    owner: Arc<dyn Owner>,
    /// The owner has been woken, and has not [taken](Inbox::take) the news since.
    woken: bool,
    /// The owner has been told to close the connection.
    is_closing: bool,
    told: Vec<(ReceiverId, Told)>,
}

impl Inbox {
    /// Creates the inbox of a connection that belongs to the thread `owner`.
    pub fn new(connection: ConnectionId, owner: Arc<dyn Owner>) -> Self {
        let state = State { owner, woken: false, is_closing: false, told: Vec::new() };
        Self { connection, state: Mutex::new(state) }
    }

    /// The connection that the inbox belongs to.
    pub fn connection(&self) -> ConnectionId {
        self.connection
    }

    /// Takes all news.
    pub fn take(&self) -> Vec<(ReceiverId, Told)> {
        let mut state = self.state.lock();
        state.woken = false;
        std::mem::take(&mut state.told)
    }

    /// Gives the connection to another thread by calling `give`, unless the connection is about to be closed. The
    /// new owner is not woken for news: it must [take](Self::take) them in any case.
    pub fn move_to(&self, owner: Arc<dyn Owner>, give: impl FnOnce()) {
        let mut state = self.state.lock();
        // The request to close was sent to the present owner, which must still have the connection when it gets
        // the request.
        if !state.is_closing {
            state.owner = owner;
            state.woken = true;
            give();
        }
    }
}

impl Close for Inbox {
    fn close(&self) {
        let reason = ReasonCode::AdministrativeAction;
        let mut state = self.state.lock();
        state.is_closing = true;
        state.owner.close(self.connection, reason, Farewell::InTurn);
    }

    fn wake(&self) {
        self.state.lock().wake(self.connection);
    }
}

impl State {
    fn wake(&mut self, connection: ConnectionId) {
        if !std::mem::replace(&mut self.woken, true) {
            self.owner.drain(connection);
        }
    }
}

impl crate::entities::Inbox for Inbox {
    fn tell(&self, receiver: ReceiverId, told: Told) {
        let mut state = self.state.lock();
        state.told.push((receiver, told));
        state.wake(self.connection);
    }
}

impl Waiter for Inbox {
    fn wake(&self) {
        self.state.lock().wake(self.connection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct Thread;

    impl Owner for Thread {
        fn drain(&self, _: ConnectionId) {}

        fn close(&self, _: ConnectionId, _: ReasonCode, _: Farewell) {}
    }

    #[test]
    fn a_connection_that_is_to_be_closed_stays_with_the_thread_that_was_told() {
        let thread = || Arc::new(Thread) as Arc<dyn Owner>;
        let inbox = Inbox::new(ConnectionId(1), thread());
        let is_given = |inbox: &Inbox| {
            let mut given = false;
            inbox.move_to(thread(), || given = true);
            given
        };
        assert!(is_given(&inbox));
        inbox.close();
        assert!(!is_given(&inbox));
    }
}
