//! The service thread, from outside: HTTP, systemd's notifications, signals, and its documents.

#![allow(clippy::print_stdout, reason = "the child talks to its parent")]

mod broker;
mod child;
mod command_line;
mod documents;
mod http;
mod log;
mod started;
mod surroundings;
