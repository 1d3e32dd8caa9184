//! The part of a tenant's quota that belongs to each of its users. A key belongs to the user who has set it last.

use std::sync::Arc;

use super::{Exceeded, Requesting};
use crate::holder::{Held, Holder};

/// Gives a key of `size` bytes to the user of a request. `before`: the user to whom the key belongs, if it exists and
/// belongs to one, and its present size.
///
/// # Errors
/// The limits of the user do not allow it. Nothing has changed.
pub(super) fn pass(
    before: Option<(&Arc<Holder>, u64)>,
    user: Option<&Requesting<'_>>,
    size: u64,
) -> Result<(), Exceeded> {
    if let Some(user) = user {
        // What the user has already need not be taken.
        let (has, had) = match before {
            Some((holder, old)) if Arc::ptr_eq(holder, user.holder) => (1, old),
            _ => (0, 0),
        };
        if !user.holder.take(Held::StateKeys, 1 - has, user.keys) {
            return Err(Exceeded::UserKeys);
        }
        if !user.holder.take(Held::StateBytes, size.saturating_sub(had), user.bytes) {
            user.holder.give_back(Held::StateKeys, 1 - has);
            return Err(Exceeded::UserBytes);
        }
        if has == 1 {
            user.holder.give_back(Held::StateBytes, had.saturating_sub(size));
            return Ok(());
        }
    }
    if let Some((holder, old)) = before {
        let_go(holder, old);
    }
    Ok(())
}

/// Counts a key of `size` bytes that was read from the store.
pub(super) fn hold(holder: &Holder, size: u64) {
    holder.add(Held::StateKeys, 1);
    holder.add(Held::StateBytes, size);
}

/// Counts that a key of `size` bytes no longer belongs to its user.
pub(super) fn let_go(holder: &Holder, size: u64) {
    holder.give_back(Held::StateKeys, 1);
    holder.give_back(Held::StateBytes, size);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(holder: &Holder) -> (u64, u64) {
        (holder.held(Held::StateKeys), holder.held(Held::StateBytes))
    }

    #[test]
    fn a_key_belongs_to_the_user_who_set_it_last() {
        let (ada, bob) = (Arc::new(Holder::new("ada")), Arc::new(Holder::new("bob")));
        let by = |holder| Requesting { holder, keys: 2, bytes: 100 };
        pass(None, Some(&by(&ada)), 60).unwrap();
        assert_eq!(pass(None, Some(&by(&ada)), 41), Err(Exceeded::UserBytes));
        assert_eq!(held(&ada), (1, 60));
        pass(Some((&ada, 60)), Some(&by(&ada)), 100).unwrap();
        assert_eq!(pass(Some((&ada, 100)), Some(&by(&ada)), 101), Err(Exceeded::UserBytes));
        pass(Some((&ada, 100)), Some(&by(&ada)), 30).unwrap();
        assert_eq!((held(&ada), held(&bob)), ((1, 30), (0, 0)));
        pass(Some((&ada, 30)), Some(&by(&bob)), 50).unwrap();
        assert_eq!((held(&ada), held(&bob)), ((0, 0), (1, 50)));
        pass(None, Some(&by(&bob)), 1).unwrap();
        assert_eq!(pass(None, Some(&by(&bob)), 1), Err(Exceeded::UserKeys), "a third key");
        pass(Some((&bob, 50)), None, 70).unwrap();
        assert_eq!(held(&bob), (1, 1), "who is no user holds nothing");
    }
}
