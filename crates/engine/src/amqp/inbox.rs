//! What other threads tell a connection.

use std::sync::Arc;

use barid_core::entity::ReceiverId;
use mqtt_proto::ReasonCode;

use crate::amqp_clients::Close;
use crate::entities::Told;
use crate::ids::ConnectionId;
use crate::owner::{Farewell, Owner};
use crate::progress::Waiter;
use crate::sync::Mutex;

/// Where receivers of a connection are told what concerns them, and the connection that something is durable.
#[derive(Debug)]
pub struct Inbox {
    connection: ConnectionId,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    owner: Arc<dyn Owner>,
    /// The owner has been woken and has not looked yet.
    woken: bool,
    /// The owner has been told to close the connection.
    is_closing: bool,
    told: Vec<(ReceiverId, Told)>,
}

impl Inbox {
    /// The inbox of a connection that belongs to a thread.
    pub fn new(connection: ConnectionId, owner: Arc<dyn Owner>) -> Self {
        let state = State { owner, woken: false, is_closing: false, told: Vec::new() };
        Self { connection, state: Mutex::new(state) }
    }

    /// Whose inbox it is.
    pub fn connection(&self) -> ConnectionId {
        self.connection
    }

    /// Takes what has come.
    pub fn take(&self) -> Vec<(ReceiverId, Told)> {
        let mut state = self.state.lock();
        state.woken = false;
        std::mem::take(&mut state.told)
    }

    /// Gives the connection to another thread with `give`, unless it is about to be closed. The new owner looks here in any
    /// case.
    pub fn move_to(&self, owner: Arc<dyn Owner>, give: impl FnOnce()) {
        let mut state = self.state.lock();
        // The request to close it went to the present owner, and must find it there.
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
