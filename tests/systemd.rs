//! The units: how they are hardened, and what a real systemd makes of huntd.

#[path = "systemd/daemon.rs"]
mod daemon;

mod needs;

#[path = "systemd/session.rs"]
mod session;

#[path = "systemd/units.rs"]
mod units;
