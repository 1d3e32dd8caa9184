//! To whom a session belongs.

use std::sync::Arc;

use barid_core::holder::{Held, Holder};

use super::books::Load;
use super::outlet::Outlet;
use super::{Session, State};

/// The user to whom a session belongs. The session counts among those of the user until it is
/// [released](Self::release).
#[derive(Debug)]
pub(super) struct Belonging {
    holder: Arc<Holder>,
    counts: bool,
}

impl Belonging {
    fn to(holder: Arc<Holder>) -> Self {
        holder.add(Held::Sessions, 1);
        Self { holder, counts: true }
    }

    /// The user.
    fn holder(&self) -> &Arc<Holder> {
        &self.holder
    }

    /// The session counts no longer.
    pub(super) fn release(&mut self) {
        if std::mem::take(&mut self.counts) {
            self.holder.give_back(Held::Sessions, 1);
        }
    }
}

impl Drop for Belonging {
    fn drop(&mut self) {
        self.release();
    }
}

impl State {
    /// The user to whom the session belongs, if there are users: no other user may have it.
    pub fn holder(&self) -> Option<&Arc<Holder>> {
        self.belongs.as_ref().map(Belonging::holder)
    }

    /// The name of the user to whom the session belongs.
    pub fn user(&self) -> Option<&str> {
        self.holder().map(|holder| holder.name())
    }
}

impl Session {
    /// Gives the session to a user, with its subscriptions and the messages that wait in it. The caller holds the
    /// locked state.
    pub fn set_holder(&self, state: &mut State, holder: Option<&Arc<Holder>>) {
        if state.holder().map(Arc::as_ptr) == holder.map(Arc::as_ptr) {
            return;
        }
        state.belongs = holder.map(|holder| Belonging::to(Arc::clone(holder)));
        state.subscriptions.set_holder(holder.cloned());
        self.outlet.lock().set_holder(holder.cloned());
    }
}

impl Outlet {
    fn set_holder(&mut self, holder: Option<Arc<Holder>>) {
        let bytes = Load::of(self).bytes as u64;
        if let Some(before) = std::mem::replace(&mut self.holder, holder) {
            before.give_back(Held::QueuedBytes, bytes);
        }
        if let Some(holder) = &self.holder {
            holder.add(Held::QueuedBytes, bytes);
        }
    }
}
