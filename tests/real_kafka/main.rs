//! Tests against real Apache Kafka brokers. They live in one binary, so that one broker serves all
//! of them.

#![allow(dead_code, reason = "some modules are shared with the benches, which use more of them")]
#![allow(unreachable_pub, reason = "the modules of one test binary")]
#![allow(clippy::print_stdout, reason = "tests say what they measure")]

#[path = "../kafka/mod.rs"]
mod kafka;

mod accounts;

mod bad_input;

mod brokers;

mod crossings;

mod daemon;

mod damage;

mod data_plane;

mod delivery;

mod exits;

mod failover;

mod group;

mod hot_thread;

mod load;

mod matches;

#[path = "../needs/mod.rs"]
mod needs;

#[path = "../notified/mod.rs"]
mod notified;

mod outages;

#[path = "../recordings/mod.rs"]
mod recordings;

mod recreated;

mod restarts;

mod restoring;

mod rules;

mod scrape;

mod snapshots;

mod players;

mod verbs;

mod zombies;
