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

pub(crate) mod postings;

pub(crate) mod timers;

pub mod waiting;

pub mod counts;

pub(crate) mod sessions;

pub(crate) mod serving;

#[cfg(test)]
mod tests;

use crate::engine::rules::rulebook::Rulebook;
use crate::kafka::topic_error::TopicError;
use crate::queue::bell::Bell;
use crate::queue::{self, Receiver};
use crate::runtime::ring_error::RingError;
use crate::runtime::sockets::Sockets;
use crate::service::ServeOptions;
use crate::service::cli::VERSION;
use crate::service::shutdown::{Reloads, Signals};
use access::{AccessError, Tokens};
use answers::Served;
use appender::{Appender, COMMANDS_WAITING_MAX, Report};
use feed::{FEED_MESSAGES_MAX, Feed, FeedOptions, FeedSender};
use futures_lite::FutureExt;
use gate::Gate;
use postings::Postings;
use rustix::net::sockopt::{set_socket_reuseaddr, set_socket_reuseport, set_tcp_nodelay};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};
use sessions::Sessions;
use smol::channel;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

/// Clients that wait to be accepted.
const BACKLOG: i32 = 4096;

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
    /// There is no ring for the clients' sockets.
    #[error(transparent)]
    Ring(#[from] RingError),
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
    listener: TcpListener,
    address: SocketAddr,
    appender: Option<Appender>,
    reports: Receiver<Report>,
    feed: Feed,
    bell: Arc<Bell>,
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
        let bell = Arc::new(Bell::new().map_err(ServeError::Resources)?);
        let (sender, reports) = queue::bounded_with_bell(COMMANDS_WAITING_MAX, &bell);
        let appender = match commands {
            Commands::Taken => {
                Some(Appender::connect(&feed.client, feed.input_topic.clone(), sender)?)
            }
            Commands::Refused => None,
        };
        let feed = Feed::connect(feed, rulebook)?;
        let zones = usize::from(feed.zones());
        let served = Served::new(zones, zones * players_max);
        let listener = listen_at(options.listen)
            .map_err(|source| ServeError::Listen { listen: options.listen, source })?;
        let address = listener.local_addr().map_err(ServeError::Resources)?;
        tracing::info!(%address, zones, version = VERSION, "serving");
        Ok(Server { served, gate, listener, address, appender, reports, feed, bell })
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
        let Server { served, gate, listener, appender, reports, feed, bell, .. } = self;
        let sockets = Sockets::new(listener, bell.clone())?;
        let (messages, receiver) = channel::bounded(FEED_MESSAGES_MAX);
        let sender = FeedSender { messages, bell: bell.clone() };
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name("feed".to_owned())
            .spawn(move || feed.run(&sender, &stopped))
            .map_err(ServeError::Resources)?;
        let gate = Rc::new(gate);
        let beside = beside(gate.clone());
        let sessions = Sessions::new(sockets, gate, Postings::new(appender, reports));
        serving::run(served, sessions, receiver, &bell, beside)?;
        thread.join().expect("a panic in any thread ends the process");
        Ok(())
    }
}

/// Listens. Other processes of the same user may listen there, too: the kernel spreads the clients
/// over them (`SO_REUSEPORT`).
fn listen_at(address: SocketAddr) -> io::Result<TcpListener> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_reuseaddr(&socket, true)?;
    set_socket_reuseport(&socket, true)?;
    // The clients' sockets take it over.
    set_tcp_nodelay(&socket, true)?;
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}

/// What is wrong with the file of tokens, if there is one.
pub(crate) fn check_tokens(options: &ServeOptions) -> Result<(), String> {
    let tokens = options.tokens.as_deref().map(Tokens::load).transpose();
    tokens.map(|_| ()).map_err(|error| error.to_string())
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
    let (sender, read) = channel::bounded(1);
    std::thread::Builder::new()
        .name("tokens".to_owned())
        .spawn(move || smol::block_on(reload(reloads, tokens, sender)))
        .map_err(ServeError::Resources)?;
    server.run(&stop, |gate| {
        let watched = signals.watch(move || stopped.store(true, Ordering::Release));
        watched.or(replace(read, gate))
    })
}

/// Reads the tokens again whenever it is asked to, on a thread that may open files. A file that is
/// wrong changes nothing.
async fn reload(mut reloads: Reloads, tokens: Option<PathBuf>, read: channel::Sender<Tokens>) {
    while !read.is_closed() {
        reloads.next().await;
        let Some(file) = &tokens else {
            tracing::info!("nothing is read again: there is no serve.tokens; restart for all else");
            continue;
        };
        match Tokens::load(file) {
            // The serving thread may have ended.
            Ok(tokens) => _ = read.send(tokens).await,
            Err(error) => tracing::error!("the tokens stay as they were: {error}"),
        }
    }
}

/// Lets the tokens count that were read again.
async fn replace(read: channel::Receiver<Tokens>, gate: Rc<Gate>) {
    while let Ok(tokens) = read.recv().await {
        gate.replace(tokens);
        tracing::info!("the tokens were read again");
    }
    std::future::pending().await
}
