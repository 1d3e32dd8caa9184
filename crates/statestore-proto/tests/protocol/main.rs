//! Tests of the protocol byte by byte: every form, every error, and properties of arbitrary bytes.

mod command;
mod glob;
mod hlc;
mod notification;
mod reply;
