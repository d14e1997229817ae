//! What the test programs and the benches of huntd share: real brokers, a mock cluster, the daemon
//! as a child process, and what a machine may lack.

pub mod needs;

pub mod generated;

pub mod go_client;

pub mod recordings;

pub mod notified;

pub mod mock;

pub mod poison;

pub mod kafka;

pub mod daemon;

pub mod scrape;

pub mod process;

pub mod serving;

pub mod browser;

pub mod playing;

pub mod load;

pub mod batch_load;

pub mod wire;

pub mod generator;

pub mod accounts;

use std::time::Duration;

/// How long a test waits for what must happen before it fails. It happens within seconds, but on a
/// busy machine it may take minutes, and no test depends on how busy that is.
pub const PATIENCE: Duration = Duration::from_secs(180);
