//! The units: how they are hardened, and what a real systemd makes of huntd.

pub(crate) mod daemon;
pub(crate) mod session;
mod units;
