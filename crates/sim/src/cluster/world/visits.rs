//! Clients with a stored session that connect to any broker with Clean Start, and leave again.

use super::World;
use crate::cluster::promises::Moment;
use crate::network::ClientId;

/// What a client knows of its stored session.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Visit {
    /// It exists, if the client was ever told so.
    None,
    /// The client has connected with Clean Start at this moment: it may be gone.
    Asked {
        since: Moment,
        /// Whether the broker that the client has reached can reach that of the session.
        is_reached: bool,
    },
    /// The client was told that it is gone.
    Answered,
}

impl World {
    /// The CONNECT of a client arrives.
    pub(super) fn arrives(&mut self, client: ClientId, node: usize) {
        let guest = &mut self.guests[client];
        let (Some(home), Some(connection)) = (guest.home, &mut guest.connection) else { return };
        if !guest.half.wants_clean {
            connection.visit = guest.visit;
            guest.is_unsure = guest.visit != Visit::None;
            return;
        }
        let of = self.places[node].node.as_ref().expect("its process runs");
        let reaches = home == node || of.membership.cluster().answers(of.place(home));
        if let Visit::Asked { is_reached, .. } = &mut self.guests[client].visit {
            *is_reached = reaches;
        }
    }

    /// A client has got CONNACK after Clean Start. It leaves at once. Its session does not come back, if its broker was not down.
    pub(super) fn has_visited(&mut self, client: ClientId, node: usize) {
        let guest = &mut self.guests[client];
        let (Visit::Asked { since, is_reached }, Some(home)) = (guest.visit, guest.home) else {
            return;
        };
        if is_reached && (home == node || self.promises.has_known(node, home, since)) {
            (guest.visit, guest.is_unsure) = (Visit::Answered, false);
            guest.half.forget_session();
            guest.in_doubt_since = None;
            guest.session.take().into_iter().for_each(|session| self.promises.ends(session));
        }
        self.disconnect(client);
    }
}
