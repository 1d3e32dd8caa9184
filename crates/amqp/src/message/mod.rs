//! The sections of a message.
