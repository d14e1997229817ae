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

pub mod consumer;

pub mod decoder;

pub mod engine;

pub mod publisher;

pub mod recovery;

pub mod runtime;

pub mod service;

pub mod tools;

pub mod limits;

pub mod metrics;

pub mod failure;

pub mod pipeline;

pub mod control;

pub mod hot;

pub mod keeping;

pub mod progress;

pub mod queue;

pub mod threads;

pub mod wiring;

pub mod world;
