//! The names of the MQTT user properties around the payloads.

/// An [`Hlc`](crate::Hlc): in a request the time of the client's clock, in a response or
/// notification the version of the value it tells of.
pub const TIMESTAMP: &str = "__ts";

/// The fencing token of a request, an [`Hlc`](crate::Hlc).
pub const FENCING_TOKEN: &str = "__ft";

/// The status of a response. Clients look into the payload only if it is [`STATUS_OK`], so it is
/// that also for a refusal.
pub const STATUS: &str = "__stat";

/// The only [`STATUS`] the state store gives.
pub const STATUS_OK: &str = "200";

/// The version of the protocol around the commands, `major.minor`; without it 1.0 is meant.
pub const PROTOCOL_VERSION: &str = "__protVer";

/// The client identifier of who sent a request.
pub const SOURCE_ID: &str = "__srcId";

/// With the value `true` in a SET, the wish that the key outlive the broker's process.
pub const PERSIST: &str = "aio-persistence";
