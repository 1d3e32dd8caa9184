//! Fencing tokens: a client that has lost a lock without knowing it has an older token than the present holder.

use statestore_proto::{Hlc, Refusal};

use crate::time::WallTime;

/// A clock reading that protects a key: a change of the key needs a token that is not older.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FencingToken {
    wall: u64,
    counter: u32,
    node: Box<str>,
}

impl FencingToken {
    /// The token with these parts, or `None` if they are not a valid clock reading.
    pub(crate) fn from_parts(wall: u64, counter: u32, node: &str) -> Option<Self> {
        let valid = wall <= i64::MAX as u64 && !node.is_empty() && !node.contains(':');
        valid.then(|| Self { wall, counter, node: node.into() })
    }

    /// The token as a clock reading.
    pub fn as_hlc(&self) -> Hlc<'_> {
        Hlc { wall: self.wall, counter: self.counter, node: &self.node }
    }
}

impl From<Hlc<'_>> for FencingToken {
    fn from(Hlc { wall, counter, node }: Hlc<'_>) -> Self {
        Self { wall, counter, node: node.into() }
    }
}

/// Parses the token of a request, and checks that it may be used `now`.
///
/// # Errors
/// [`Refusal::MalformedTimestamp`], [`Refusal::FencingTokenInFuture`].
pub(super) fn read(token: Option<&str>, now: WallTime) -> Result<Option<Hlc<'_>>, Refusal> {
    let Some(token) = token.map(Hlc::parse).transpose()? else { return Ok(None) };
    if token.is_in_future(now.as_millis()) {
        return Err(Refusal::FencingTokenInFuture);
    }
    Ok(Some(token))
}

/// Checks whether a request with the token `token` may change a key that `protects` protects.
///
/// # Errors
/// [`Refusal::FencingTokenRequired`], [`Refusal::FencingTokenTooOld`].
pub(super) fn admit(
    token: Option<Hlc<'_>>,
    protects: Option<&FencingToken>,
) -> Result<(), Refusal> {
    match (token, protects) {
        (_, None) => Ok(()),
        (None, Some(_)) => Err(Refusal::FencingTokenRequired),
        (Some(token), Some(protects)) if token < protects.as_hlc() => {
            Err(Refusal::FencingTokenTooOld)
        }
        (Some(_), Some(_)) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_compared_by_wall_clock_counter_and_node() {
        let protects = FencingToken::from(Hlc { wall: 5, counter: 3, node: "m" });
        let admits = |token| admit(Some(Hlc::parse(token).unwrap()), Some(&protects));
        for token in ["4:9:z", "5:2:z", "5:3:l"] {
            assert_eq!(admits(token), Err(Refusal::FencingTokenTooOld), "{token}");
        }
        for token in ["5:3:m", "5:3:n", "5:4:a", "6:0:a"] {
            assert_eq!(admits(token), Ok(()), "{token}");
        }
        assert_eq!(admit(None, Some(&protects)), Err(Refusal::FencingTokenRequired));
        assert_eq!(admit(None, None), Ok(()));
    }

    #[test]
    fn a_token_may_be_a_minute_ahead() {
        let now = WallTime::from_millis(1_000);
        assert!(read(Some("61000:9:c"), now).is_ok());
        assert_eq!(read(Some("61001:0:c"), now), Err(Refusal::FencingTokenInFuture));
        assert_eq!(read(Some("0:c"), now), Err(Refusal::MalformedTimestamp));
        assert_eq!(read(None, now), Ok(None));
    }
}
