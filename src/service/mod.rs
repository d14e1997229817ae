//! The operator's interfaces: command line, configuration, systemd, HTTP.
//!
//! While the daemon runs, one thread off the hot core handles them: it answers HTTP, notifies
//! systemd and waits for signals. It reads what the other threads write to [`Metrics`],
//! [`Progress`] and [`Status`], and never waits for them.

pub mod cli;

pub(crate) mod help;

pub mod config;

pub mod config_args;

mod addresses;

pub(crate) mod schema;
mod security;
pub mod settings;

pub(crate) mod check;

pub mod status;
pub(crate) mod unready;

pub(crate) mod restoring;

mod standstill;

pub mod thread_watch;

pub mod exporter;

pub mod exposition;

pub(crate) mod process;

pub(crate) mod notify;
mod systemd;

pub(crate) mod shutdown;

pub mod reload;

pub mod log;

mod journal_line;
mod log_thread;

pub mod exit;

use crate::runtime::ring::RingKind;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::progress::Progress;
use exporter::Exporter;
use notify::Reporter;
use reload::Reloader;
use smol::channel;
use status::Status;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use systemd::Systemd;

/// Validated options of the service thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceOptions {
    /// The address of the HTTP endpoints.
    pub listen: SocketAddr,
    /// The format of log lines.
    pub log_format: log::LogFormat,
    /// The lowest level that is logged.
    pub log_level: tracing::Level,
}

/// Validated options of `serve`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeOptions {
    /// The address for clients.
    pub listen: SocketAddr,
    /// True if other processes may listen on this address, too.
    pub share_address: bool,
    /// How its thread asks the kernel for its operations; epoll where the kernel refuses io_uring.
    pub ring: RingKind,
    /// Which tokens requests need; `None`: everybody on this host may ask.
    pub access: Option<AccessOptions>,
    /// Whose pages may ask, besides the process's own.
    pub origins: AllowedOrigins,
}

/// Whose pages may ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedOrigins {
    /// Those of these origins, written as browsers write them.
    Listed(Vec<String>),
    /// Everybody's.
    Any,
}

impl Default for AllowedOrigins {
    fn default() -> AllowedOrigins {
        AllowedOrigins::Listed(Vec::new())
    }
}

/// Which tokens requests need, checked already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessOptions {
    /// The file of the keys that sign tokens.
    pub keys: std::path::PathBuf,
    /// The audience that a token's `aud` has to name.
    pub audience: String,
    /// Requests of a client that is no player.
    pub requests_per_s: u32,
    /// Requests of a player.
    pub player_requests_per_s: u32,
}

/// The state that the service thread reads.
#[derive(Clone)]
pub struct Observed {
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// The progress of each shard.
    pub progress: Arc<Progress>,
    /// The state of the daemon.
    pub status: Arc<Status>,
}

/// Why the service thread cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The HTTP address is in use or not an address of this host.
    #[error("cannot listen on {listen}: choose another service.listen ({source})")]
    Listen {
        /// The address.
        listen: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// The process has no file descriptor or thread left.
    #[error("cannot start: raise the limits of open files and tasks for huntd ({0})")]
    Resources(#[source] io::Error),
}

/// The running service thread.
pub struct Service {
    thread: JoinHandle<()>,
    /// Receives the daemon's result, which ends the thread.
    ended: channel::Sender<Result<(), String>>,
    address: SocketAddr,
}

impl Service {
    /// Starts the service thread. It calls `stop` once, when SIGTERM or SIGINT asks the daemon to
    /// drain; a second signal ends the process at once. SIGHUP reloads; without a reloader it ends
    /// the process, as by default.
    ///
    /// The new thread inherits the caller's allowed cores.
    pub fn start(
        options: &ServiceOptions,
        observed: Observed,
        reloader: Option<Reloader>,
        stop: impl FnOnce() + Send + 'static,
    ) -> Result<Service, Error> {
        let exporter = Exporter::bind(options.listen)
            .map_err(|source| Error::Listen { listen: options.listen, source })?;
        let address = exporter.address();
        let signals = shutdown::Signals::listen().map_err(Error::Resources)?;
        let reloader = reloader
            .map(|reloader| Ok((reloader, shutdown::Reloads::listen()?)))
            .transpose()
            .map_err(Error::Resources)?;
        let (ended, end) = channel::bounded(1);
        let thread = std::thread::Builder::new()
            .name("service".to_owned())
            .spawn(move || serve(exporter, signals, reloader, observed, stop, &end))
            .map_err(Error::Resources)?;
        tracing::info!(%address, version = cli::VERSION, "serving /metrics, /livez and /readyz");
        Ok(Service { thread, ended, address })
    }

    /// The HTTP address, with the actual port if port 0 was configured.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends the thread, which reports that the daemon has drained or why it failed, and waits for
    /// it.
    pub fn finish(self, ended: Result<(), String>) {
        self.ended.try_send(ended).expect("the thread waits for one message");
        self.thread.join().expect("a panic in any thread ends the process");
    }
}

/// Runs the service thread.
fn serve(
    exporter: Exporter,
    signals: shutdown::Signals,
    reloader: Option<(Reloader, shutdown::Reloads)>,
    observed: Observed,
    stop: impl FnOnce() + 'static,
    end: &channel::Receiver<Result<(), String>>,
) {
    let executor = Rc::new(smol::LocalExecutor::new());
    let http = exporter.serve(Rc::downgrade(&executor), observed.clone());
    executor.spawn(http).detach();
    executor.spawn(signals.watch(stop)).detach();
    let systemd = Rc::new(Systemd::of_environment());
    if let Some((reloader, reloads)) = reloader {
        let (progress, systemd) = (observed.progress.clone(), systemd.clone());
        executor.spawn(async move { reloader.run(reloads, &progress, &systemd).await }).detach();
    }
    executor.spawn(Reporter::run(observed, systemd.clone())).detach();
    let ended = smol::block_on(executor.run(end.recv()));
    // A daemon that did not start has no result.
    let ended = ended.unwrap_or_else(|_| Err("it could not start, read the log".to_owned()));
    notify::stopped(&systemd, ended);
}

#[cfg(test)]
mod tests;
