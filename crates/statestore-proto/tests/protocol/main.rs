//! The protocol byte by byte: every form and every error of it, and properties of all other bytes.

mod command;
mod glob;
mod hlc;
mod notification;
mod reply;
