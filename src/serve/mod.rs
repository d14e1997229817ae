//! `huntd serve`: answers clients over HTTP from a view of the published updates.
//!
//! ```text
//! output topic ─► feed thread: reader rule, chain ─► serving thread: view ◄─► HTTP clients
//!                       ▲ snapshots                                   │
//! input topic ◄──────────────────────────────────── appender ◄── commands
//! ```
//!
//! It shares nothing with the daemons that decide but Kafka, and any number of its processes hold
//! equal views.

pub(crate) mod request;

pub(crate) mod problem;

pub(crate) mod routes;

pub(crate) mod json;

pub mod answers;

pub(crate) mod command;

pub(crate) mod stream;

pub(crate) mod page;

pub(crate) mod health;

pub mod exchange;

pub(crate) mod follower;

pub(crate) mod feed;

pub(crate) mod appender;

pub(crate) mod sessions;

#[cfg(test)]
mod tests;

use crate::engine::rules::rulebook::Rulebook;
use crate::kafka::topic_error::TopicError;
use crate::service::ServeOptions;
use crate::service::shutdown::Signals;
use answers::Served;
use appender::Appender;
use async_io::Async;
use feed::{FEED_MESSAGES_MAX, Feed, FeedOptions};
use smol::channel;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Why `serve` cannot start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
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

/// Whether clients may post events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Commands {
    /// They are appended to the input.
    Taken,
    /// They are refused.
    Refused,
}

/// A process's serving part, before it serves.
pub(crate) struct Server {
    served: Served,
    listener: Async<TcpListener>,
    address: SocketAddr,
    appender: Option<Appender>,
    feed: Feed,
}

impl Server {
    /// Connects to the brokers and listens. Clients wait until [`Server::run`].
    pub(crate) fn bind(
        options: ServeOptions,
        feed: FeedOptions,
        commands: Commands,
        rulebook: Rulebook,
    ) -> Result<Server, ServeError> {
        let players_max = rulebook.first().rules.actors.count_max as usize;
        let appender = match commands {
            Commands::Taken => Some(Appender::connect(&feed.client, feed.input_topic.clone())?),
            Commands::Refused => None,
        };
        let feed = Feed::connect(feed, rulebook)?;
        let zones = usize::from(feed.zones());
        let served = Served::new(zones, zones * players_max);
        let listen = options.listen;
        let listener = Async::<TcpListener>::bind(listen);
        let listener = listener.map_err(|source| ServeError::Listen { listen, source })?;
        let address = listener.get_ref().local_addr().map_err(ServeError::Resources)?;
        tracing::info!(%address, zones, "serving");
        Ok(Server { served, listener, address, appender, feed })
    }

    /// Where it listens, with the port that a configured port 0 became.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves on the calling thread until it is asked to stop. `beside` runs on it, too.
    pub(crate) fn run(
        self,
        stop: &Arc<AtomicBool>,
        beside: impl Future<Output = ()> + 'static,
    ) -> Result<(), ServeError> {
        let Server { served, listener, appender, feed, .. } = self;
        let (sender, receiver) = channel::bounded(FEED_MESSAGES_MAX);
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name("feed".to_owned())
            .spawn(move || feed.run(&sender, &stopped))
            .map_err(ServeError::Resources)?;
        sessions::run(served, appender, listener, &receiver, beside);
        thread.join().expect("a panic in any thread ends the process");
        Ok(())
    }
}

/// Serves until a signal ends it.
pub(crate) fn run(
    options: ServeOptions,
    feed: FeedOptions,
    rulebook: Rulebook,
) -> Result<(), ServeError> {
    let signals = Signals::listen().map_err(ServeError::Resources)?;
    let server = Server::bind(options, feed, Commands::Taken, rulebook)?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    server.run(&stop, signals.watch(move || stopped.store(true, Ordering::Release)))
}
