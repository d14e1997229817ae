//! `huntd serve`: answers clients over HTTP from a view of the published updates.
//!
//! ```text
//! output topic ─► feed thread: reader rule, chain ─► serving thread: view ◄─► HTTP clients
//!                       ▲ snapshots
//! ```
//!
//! It shares nothing with the daemons that decide but Kafka, and any number of its processes hold
//! equal views.

pub mod request;

pub mod problem;

pub mod routes;

pub mod json;

pub mod answers;

pub mod exchange;

pub mod follower;

pub mod feed;

pub mod sessions;

#[cfg(test)]
mod tests;

use crate::engine::rules::rulebook::Rulebook;
use crate::kafka::topic_error::TopicError;
use crate::service::ServeOptions;
use crate::service::shutdown::Signals;
use answers::Served;
use async_io::Async;
use feed::{FEED_MESSAGES_MAX, Feed, FeedOptions};
use smol::channel;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Why `serve` cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The topics.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// The HTTP address is taken or is no address of this host.
    #[error("cannot listen on {listen}: choose another serve.listen ({source})")]
    Listen {
        /// The address.
        listen: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// The process has no file descriptor or thread left.
    #[error("cannot start to serve: raise the limits of open files and tasks ({0})")]
    Resources(#[source] io::Error),
}

/// Serves until a signal ends it.
pub fn run(options: ServeOptions, feed: FeedOptions, rulebook: Rulebook) -> Result<(), ServeError> {
    let players_max = rulebook.first().rules.actors.count_max as usize;
    let feed = Feed::connect(feed, rulebook)?;
    let zones = usize::from(feed.zones());
    let served = Served::new(zones, zones * players_max);
    let listen = options.listen;
    let listener = Async::<TcpListener>::bind(listen);
    let listener = listener.map_err(|source| ServeError::Listen { listen, source })?;
    let address = listener.get_ref().local_addr().map_err(ServeError::Resources)?;
    let signals = Signals::listen().map_err(ServeError::Resources)?;
    let (sender, receiver) = channel::bounded(FEED_MESSAGES_MAX);
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let thread = std::thread::Builder::new()
        .name("feed".to_owned())
        .spawn(move || feed.run(&sender, &stopped))
        .map_err(ServeError::Resources)?;
    tracing::info!(%address, zones, "serving");
    sessions::run(
        served,
        listener,
        &receiver,
        signals.watch(move || {
            stop.store(true, Ordering::Release);
        }),
    );
    drop(receiver);
    thread.join().expect("a panic in any thread ends the process");
    Ok(())
}
