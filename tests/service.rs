//! The service thread, from outside: HTTP, systemd's notifications, signals, and its documents.

#![allow(clippy::print_stdout, reason = "the child talks to its parent")]

#[path = "service/child.rs"]
mod child;

#[path = "service/command_line.rs"]
mod command_line;

#[path = "service/documents.rs"]
mod documents;

#[path = "service/http.rs"]
mod http;

#[path = "notified/mod.rs"]
mod notified;
