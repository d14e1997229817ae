//! `huntd serve`: answers clients over HTTP from a view of the published updates.
//!
//! ```text
//! output topic ─► feed thread: reader rule, chain ─► serving thread: view ◄─► HTTP clients
//!                       ▲ snapshots                                   │
//! input topic ◄──────────────────────────────────── appender ◄── commands
//! ```
//!
//! It shares only Kafka with the daemons, which decide, and any number of its processes hold equal
//! views.

pub(crate) mod problem;

pub(crate) mod routes;

pub mod answers;

mod openapi;

mod zone_players;

pub mod lag;

mod log_ends;

pub(crate) mod command;

pub(crate) mod event_form;

pub(crate) mod stream;

mod socket;

mod sight;

mod cross_origin;

mod signatures;

pub(crate) mod key_set;

pub(crate) mod access;

mod permits;

mod stream_tickets;

pub mod gate;

pub(crate) mod health;

mod head;

pub mod exchange;

pub mod follower;

mod beginning;

mod feed_messages;

pub(crate) mod feed;

pub(crate) mod appender;

pub(crate) mod postings;

pub(crate) mod topic_reports;

pub(crate) mod timers;

pub mod waiting;

pub mod counts;

mod session;

pub(crate) mod sessions;

pub(crate) mod serving;

mod reload;

#[cfg(test)]
mod tests;

use crate::kafka::topic_error::TopicError;
use crate::queue::bell::Bell;
use crate::queue::{self, Receiver};
use crate::runtime::ring::RingKind;
use crate::runtime::ring_error::RingError;
use crate::runtime::sockets::Sockets;
use crate::runtime::wall_clock::unix_ms;
use crate::service::ServeOptions;
use crate::service::cli::VERSION;
use crate::service::config::Config;
use crate::service::reload::InForce;
use crate::service::shutdown::{Reloads, Signals};
use crate::view::game::ViewedGame;
use access::Access;
use answers::Served;
use appender::{Appender, COMMANDS_WAITING_MAX, Report};
use feed::{Feed, FeedOptions};
use feed_messages::{FEED_MESSAGES_MAX, FeedSender};
use futures_lite::FutureExt;
use gate::Gate;
use key_set::{KeySet, KeySetError};
use postings::Postings;
use reload::ServingReloader;
use rustix::net::sockopt::{set_socket_reuseaddr, set_socket_reuseport, set_tcp_nodelay};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};
use sessions::Sessions;
use smol::channel;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use topic_reports::TopicReports;

/// Limit of the clients that wait to be accepted.
const BACKLOG: i32 = 4096;

/// The remedy if another program listens on the address.
const IF_TAKEN: &str = "choose another serve.listen, or set serve.share_address for all processes \
                        of this deployment that listen there";

/// The reason why `serve` cannot start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    /// The topics.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// The HTTP address is taken or is no address of this host.
    #[error("cannot listen on {listen} ({source}): {}", remedy(source, IF_TAKEN))]
    Listen {
        /// The address.
        listen: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// The file of keys.
    #[error(transparent)]
    Keys(#[from] KeySetError),
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
    ring: RingKind,
    appender: Option<Appender>,
    reports: Receiver<Report>,
    feed: Feed,
    /// To the feed.
    games: channel::Sender<Arc<dyn ViewedGame>>,
    bell: Arc<Bell>,
}

impl Server {
    /// Connects to the brokers and listens. Clients wait until [`Server::run`].
    pub(crate) fn bind(
        options: ServeOptions,
        (feed, topics): (FeedOptions, TopicReports),
        commands: Commands,
        game: Arc<dyn ViewedGame>,
    ) -> Result<Server, ServeError> {
        let ring = options.ring.or_epoll(|sentence| tracing::warn!("{sentence}"))?;
        let origins = options.origins.clone();
        let gate = Gate::new(access(&options)?, origins, unix_ms().cast_unsigned());
        let bell = Arc::new(Bell::new().map_err(ServeError::Resources)?);
        let (sender, reports) = queue::bounded_with_bell(COMMANDS_WAITING_MAX, &bell);
        let appender = match commands {
            Commands::Taken => {
                Some(Appender::connect(&feed.client, feed.input_topic.clone(), sender)?)
            }
            Commands::Refused => None,
        };
        // The feed takes the last ones that were read.
        let (games, reloaded) = channel::bounded(1);
        let owner_silence_max = lag::silence_max(feed.tick_every_ms);
        let as_of = feed.moment.as_ref().map(|moment| moment.as_of);
        let feed = Feed::connect(feed, topics, game.clone(), reloaded)?;
        let zones = usize::from(feed.zones());
        let mut served = Served::new(&*game, zones, owner_silence_max);
        served.as_of = as_of;
        let listener = listen_at(options.listen, options.share_address)
            .map_err(|source| ServeError::Listen { listen: options.listen, source })?;
        let address = listener.local_addr().map_err(ServeError::Resources)?;
        tracing::info!(%address, zones, version = VERSION, "serving");
        Ok(Server { served, gate, listener, address, ring, appender, reports, feed, games, bell })
    }

    /// Returns the address on which it listens, with the port that a configured port 0 became.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves on the calling thread until it is asked to stop. The future of `beside` runs on it,
    /// too.
    pub(crate) fn run<B: Future<Output = ()> + 'static>(
        self,
        stop: &Arc<AtomicBool>,
        beside: impl FnOnce(Rc<Gate>) -> B,
    ) -> Result<(), ServeError> {
        let Server { mut served, gate, listener, ring, appender, reports, feed, bell, .. } = self;
        let sockets = Sockets::new(ring, listener, bell.clone())?;
        let (messages, receiver) = channel::bounded(FEED_MESSAGES_MAX);
        let sender = FeedSender::new(messages, bell.clone());
        served.feed = sender.watch();
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name("feed".to_owned())
            .spawn(move || feed.run(&sender, &stopped))
            .map_err(ServeError::Resources)?;
        if let Some(appender) = &appender {
            std::thread::Builder::new()
                .name("reports".to_owned())
                .spawn(appender.reporter())
                .map_err(ServeError::Resources)?;
        }
        let gate = Rc::new(gate);
        let beside = beside(gate.clone());
        let postings = Postings::new(served.schema().game.events, appender, reports);
        let sessions = Sessions::new(sockets, gate, postings);
        serving::run(served, sessions, receiver, (&bell, ring), beside)?;
        thread.join().expect("a panic in any thread ends the process");
        Ok(())
    }
}

/// Returns the remedy if a process cannot listen on an address: `if_taken` if another program
/// listens there.
pub(crate) fn remedy<'a>(error: &io::Error, if_taken: &'a str) -> &'a str {
    match error.kind() {
        io::ErrorKind::AddrInUse => if_taken,
        _ => "choose an address of this host and a port that this user may open",
    }
}

/// Returns an error if the process could not listen there now. It does not listen, so the address
/// stays free.
pub(crate) fn check_address(address: SocketAddr, is_shared: bool) -> io::Result<()> {
    bound(address, is_shared).map(drop)
}

fn listen_at(address: SocketAddr, is_shared: bool) -> io::Result<TcpListener> {
    let socket = bound(address, is_shared)?;
    // The clients' sockets take it over.
    set_tcp_nodelay(&socket, true)?;
    listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}

/// A socket with this address. At a shared one, other processes of the same user may listen, too,
/// if they share it: the kernel spreads the clients over them (`SO_REUSEPORT`).
fn bound(address: SocketAddr, is_shared: bool) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_reuseaddr(&socket, true)?;
    set_socket_reuseport(&socket, is_shared)?;
    bind(&socket, &address)?;
    Ok(socket)
}

/// Who may ask; `None`: everybody on this host.
fn access(options: &ServeOptions) -> Result<Option<Access>, KeySetError> {
    let Some(access) = &options.access else { return Ok(None) };
    Ok(Some(Access::new(KeySet::load(&access.keys)?, access)))
}

/// Returns an error if the file of keys, if there is one, cannot be used.
pub(crate) fn check_keys(options: &ServeOptions) -> Result<(), String> {
    access(options).map(|_| ()).map_err(|error| error.to_string())
}

/// Serves until a signal ends it. SIGHUP reads again what may change meanwhile.
pub(crate) fn run(
    (config, in_force): (&Config, InForce),
    feed: (FeedOptions, TopicReports),
    game: Arc<dyn ViewedGame>,
) -> Result<(), ServeError> {
    let signals = Signals::listen().map_err(ServeError::Resources)?;
    let reloads = Reloads::listen().map_err(ServeError::Resources)?;
    let commands = match feed.0.moment {
        Some(_) => Commands::Refused,
        None => Commands::Taken,
    };
    let server = Server::bind(config.serve.clone(), feed, commands, game)?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let (reloaded, read) = channel::bounded(1);
    let reloader = ServingReloader { in_force, games: server.games.clone(), reloaded };
    std::thread::Builder::new()
        .name("reload".to_owned())
        .spawn(move || smol::block_on(reloader.run(reloads)))
        .map_err(ServeError::Resources)?;
    server.run(&stop, |gate| {
        let watched = signals.watch(move || stopped.store(true, Ordering::Release));
        watched.or(reload::take(read, gate))
    })
}
