//! Ownership as decisions alone: one acquisition beside a log, and all shards of
//! a daemon beside a group.

mod acquiring;
mod editions;
mod following;
mod foreign;
mod log;
mod owning;
mod standby;
mod upgrades;
mod versions;
