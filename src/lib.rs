//! huntd reads player events from Kafka on one pinned core, applies them to a deterministic game
//! state, and publishes the updates.
//!
//! ```text
//!             hot thread: pinned to one core, sleeps in its io_uring
//!            ┌────────────────────────────────────────────────────────┐
//!  Kafka ──► │ fetch ──► decoder ──► [ queue ] ──► shards, engine     │ ──► publisher ──► Kafka
//!            └────────────────────────────────────────────────────────┘     own thread
//!                 ▲ messages                           │ checkpoints
//!            control thread: group, ownership          ▼
//!                                            snapshot threads: files, replicas
//!            service thread: HTTP, systemd
//! ```
//!
//! Read the modules in this order: first what assembles the daemon, then the path of an event, then
//! what decides where a shard lives, then what supports them, then queries, and last what operators
//! and tests use.

// The small game of docs/GAMES.md names this crate as a program does, and is a module in tests.
extern crate self as huntd;

/// Assembles `huntd run`: start and stop on one screen, the queues between the threads.
pub mod daemon;

/// Kafka's formats as pure functions over bytes; librdkafka's client, wrapped once.
pub mod kafka;

/// Hot thread: brokers to blocks of events.
pub mod fetch;

/// A record to an event, or to a reject with a name.
pub mod decoder;

/// The bounded queue between stages and threads, and the bell that wakes a thread.
pub mod queue;

/// What a game is made of: tables, clock, players, the words of events and updates.
#[macro_use]
pub mod kit;

/// What a program needs of a game: its rules files, its bots, and its name.
pub mod edition;

/// The treasure hunt: events to updates, a pure function of its input.
pub mod hunt;

/// Hot thread: blocks to engines, updates to frames.
pub mod shards;

/// What the output topic contains: frames, their chain, and the rule by which they are read.
pub mod output;

/// Publisher thread: frames to Kafka, and what is acknowledged.
pub mod publisher;

/// Which shards are ours and where they start: one state machine without I/O.
pub mod ownership;

/// Control thread: polls the group, and does what ownership decides.
pub mod control;

/// States on disk and in a topic, from which a shard starts.
pub mod snapshot;

/// What the hot thread runs on: the ring, turns, cores, the allocator.
pub mod runtime;

/// Counters, and how far each shard is.
pub mod telemetry;

/// Updates to answers: what clients may know of the world, a pure fold.
pub mod view;

/// HTTP as pure functions over bytes: requests, heads of answers, the pages for monitoring.
pub(crate) mod http;

/// `huntd serve`: the view over HTTP, with streams, commands and the page.
pub mod serve;

/// What the operator sees: command line, configuration, log, HTTP, systemd, exit codes.
pub mod service;

/// The verbs: what each of them does with the modules above.
pub mod tools;

/// What tests, benches and fuzz targets share. The daemon uses none of it.
pub mod testing;

/// What a program that plays a game begins with: a verb in, an exit code out.
mod program;

pub use program::main;

/// How bounds of several modules depend on each other.
mod limits;
