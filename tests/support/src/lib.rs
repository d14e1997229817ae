//! What the test programs and the benches of huntd share: real brokers, a mock cluster, the daemon
//! as a child process, and what a machine may lack.

pub mod needs;

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
