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

pub(crate) mod access;

pub mod gate;

pub(crate) mod page;

pub(crate) mod health;

pub mod exchange;

pub mod follower;

pub(crate) mod feed;

pub(crate) mod appender;

pub(crate) mod sessions;

#[cfg(test)]
mod tests;

use crate::engine::rules::rulebook::Rulebook;
use crate::kafka::topic_error::TopicError;
use crate::service::ServeOptions;
use crate::service::shutdown::{Reloads, Signals};
use access::{AccessError, Tokens};
use answers::Served;
use appender::Appender;
use async_io::Async;
use feed::{FEED_MESSAGES_MAX, Feed, FeedOptions};
use futures_lite::FutureExt;
use gate::Gate;
use smol::channel;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

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
    /// The file of tokens.
    #[error(transparent)]
    Access(#[from] AccessError),
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
    gate: Gate,
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
        let tokens = options.tokens.as_deref().map(Tokens::load).transpose()?;
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let gate = Gate::new(tokens, since.as_millis() as u64);
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
        Ok(Server { served, gate, listener, address, appender, feed })
    }

    /// Where it listens, with the port that a configured port 0 became.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves on the calling thread until it is asked to stop. What `beside` gives runs on it, too.
    pub(crate) fn run<B: Future<Output = ()> + 'static>(
        self,
        stop: &Arc<AtomicBool>,
        beside: impl FnOnce(Rc<Gate>) -> B,
    ) -> Result<(), ServeError> {
        let Server { served, gate, listener, appender, feed, .. } = self;
        let (sender, receiver) = channel::bounded(FEED_MESSAGES_MAX);
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name("feed".to_owned())
            .spawn(move || feed.run(&sender, &stopped))
            .map_err(ServeError::Resources)?;
        let gate = Rc::new(gate);
        let beside = beside(gate.clone());
        sessions::run(served, gate, appender, listener, &receiver, beside);
        thread.join().expect("a panic in any thread ends the process");
        Ok(())
    }
}

/// Serves until a signal ends it. SIGHUP reads the tokens again.
pub(crate) fn run(
    options: ServeOptions,
    feed: FeedOptions,
    rulebook: Rulebook,
) -> Result<(), ServeError> {
    let signals = Signals::listen().map_err(ServeError::Resources)?;
    let reloads = Reloads::listen().map_err(ServeError::Resources)?;
    let tokens = options.tokens.clone();
    let server = Server::bind(options, feed, Commands::Taken, rulebook)?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    server.run(&stop, |gate| {
        let watched = signals.watch(move || stopped.store(true, Ordering::Release));
        watched.or(reload(reloads, tokens, gate))
    })
}

/// Reads the tokens again whenever it is asked to. A file that is wrong changes nothing.
async fn reload(mut reloads: Reloads, tokens: Option<PathBuf>, gate: Rc<Gate>) {
    loop {
        reloads.next().await;
        let Some(file) = &tokens else { continue };
        match Tokens::load(file) {
            Ok(tokens) => {
                gate.replace(tokens);
                tracing::info!("the tokens were read again");
            }
            Err(error) => tracing::error!("the tokens stay as they were: {error}"),
        }
    }
}
