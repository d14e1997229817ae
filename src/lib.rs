//! huntd drains player events from Kafka on one pinned core and publishes world updates.
//!
//! ```text
//!              hot thread: pinned to one core, parks in io_uring_enter
//!             ┌────────────────────────────────────────────────────────┐
//!  Kafka ───► │ consumer ──► decoder ──► [ queue ] ──► engine ──► frames │ ──► publisher ──► Kafka
//!             └────────────────────────────────────────────────────────┘      own thread
//!                  ▲ assignments                        │ progress, metrics
//!             control thread: membership, recovery      ▼
//!                                             service thread: HTTP, systemd
//! ```
//!
//! The modules stand in the order in which data flows, then what supports them.

pub mod daemon;

pub mod kafka;

pub mod fetch;

pub mod decoder;

pub mod queue;

pub mod engine;

pub mod shards;

pub mod output;

pub mod view;

pub mod serve;

pub mod publisher;

pub mod ownership;

pub mod control;

pub mod snapshot;

pub mod runtime;

pub mod telemetry;

pub mod service;

pub mod tools;

pub mod testing;

mod limits;
