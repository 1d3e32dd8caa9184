//! The names of the MQTT User Properties that accompany the payloads.

/// An [`Hlc`](crate::Hlc): in a request, the time of the client's clock; in a response or
/// notification, the version of the value that it is about.
pub const TIMESTAMP: &str = "__ts";

/// The fencing token of a request, an [`Hlc`](crate::Hlc).
pub const FENCING_TOKEN: &str = "__ft";

/// The status of a response. It is [`STATUS_OK`] also for a refusal, because clients read the
/// payload only with that status.
pub const STATUS: &str = "__stat";

/// The only [`STATUS`] that the state store sends.
pub const STATUS_OK: &str = "200";

/// The version of the protocol around the commands, `major.minor`. Without this property it is 1.0.
pub const PROTOCOL_VERSION: &str = "__protVer";

/// The client identifier of the sender of a request.
pub const SOURCE_ID: &str = "__srcId";

/// With the value `true` in a SET: asks for a key that outlives the broker's process.
pub const PERSIST: &str = "aio-persistence";
