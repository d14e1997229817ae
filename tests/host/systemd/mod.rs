//! The units: how they are hardened, and what a real systemd makes of huntd.

mod daemon;
mod session;
mod units;
