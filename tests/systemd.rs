//! The units: how they are hardened, and what a real systemd makes of huntd.

#![allow(clippy::print_stdout, reason = "a skipped test says so")]

#[path = "systemd/daemon.rs"]
mod daemon;

#[path = "systemd/session.rs"]
mod session;

#[path = "systemd/units.rs"]
mod units;
