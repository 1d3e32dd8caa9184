//! What other threads tell a connection.

use barid_core::entity::ReceiverId;
use mqtt_proto::ReasonCode;
use parking_lot::Mutex;

use crate::durable::OnCommit;
use crate::entities::Told;
use crate::event_loop::{ConnectionId, Mailbox, Post};

/// Where receivers of a connection are told what concerns them, and the connection that something is durable.
#[derive(Debug)]
pub struct Inbox {
    connection: ConnectionId,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    owner: Mailbox,
    /// The owner has been woken and has not looked yet.
    woken: bool,
    told: Vec<(ReceiverId, Told)>,
}

impl Inbox {
    /// The inbox of a connection whose thread has this mailbox.
    pub fn new(connection: ConnectionId, owner: &Mailbox) -> Self {
        let state = State { owner: owner.clone(), woken: false, told: Vec::new() };
        Self { connection, state: Mutex::new(state) }
    }

    /// Whose inbox it is.
    pub fn connection(&self) -> ConnectionId {
        self.connection
    }

    /// Has the connection closed by its thread, because an operator wants it.
    pub fn close(&self) {
        let (connection, reason) = (self.connection, ReasonCode::AdministrativeAction);
        self.state.lock().owner.post(Post::Close { connection, reason, tell: true });
    }

    /// Takes what has come.
    pub fn take(&self) -> Vec<(ReceiverId, Told)> {
        let mut state = self.state.lock();
        state.woken = false;
        std::mem::take(&mut state.told)
    }

    /// From now on another thread has the connection, which is given to it by `give`. It looks here in any case.
    pub fn move_to(&self, owner: &Mailbox, give: impl FnOnce()) {
        let mut state = self.state.lock();
        state.owner = owner.clone();
        state.woken = true;
        give();
    }
}

impl State {
    fn wake(&mut self, connection: ConnectionId) {
        if !std::mem::replace(&mut self.woken, true) {
            self.owner.post(Post::Drain(connection));
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

impl OnCommit for Inbox {
    fn on_commit(&self) {
        self.state.lock().wake(self.connection);
    }
}
