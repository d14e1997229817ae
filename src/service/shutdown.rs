//! Signals: the first SIGTERM or SIGINT makes the daemon drain, a second one ends it at once.

use super::exit::{self, ExitCode};
use futures_lite::StreamExt;
use std::io;
use std::sync::OnceLock;

/// Handles SIGTERM and SIGINT while it exists.
pub(crate) struct Signals {
    caught: async_signal::Signals,
}

impl Signals {
    /// Starts handling the signals, which no longer end the process by themselves.
    pub(crate) fn listen() -> io::Result<Signals> {
        use async_signal::Signal::{Int, Term};
        Ok(Signals { caught: async_signal::Signals::new([Term, Int])? })
    }

    /// Calls `stop` at the first signal, exits at the second.
    pub(crate) async fn watch(mut self, stop: impl FnOnce()) {
        self.next().await;
        tracing::info!("asked to stop: draining; a second signal ends huntd at once");
        stop();
        self.next().await;
        exit::end(ExitCode::Interrupted);
    }

    /// Waits for the first signal.
    pub(crate) async fn first(mut self) {
        self.next().await;
    }

    async fn next(&mut self) {
        // A failed read of the signal pipe is not a signal, and the stream never ends.
        while !matches!(self.caught.next().await, Some(Ok(_))) {}
    }
}

/// Makes a write beyond the file size limit (`ulimit -f`, `LimitFSIZE=`) fail with an error. By
/// default its signal ends the process.
pub(crate) fn survive_long_files() -> io::Result<()> {
    static CAUGHT: OnceLock<async_signal::Signals> = OnceLock::new();
    // Nobody waits for the signal; it only has to be handled.
    let _first = CAUGHT.set(async_signal::Signals::new([async_signal::Signal::Xfsz])?);
    Ok(())
}

/// Handles SIGHUP while it exists: files that may change while the process runs are read again.
pub(crate) struct Reloads {
    caught: async_signal::Signals,
}

impl Reloads {
    /// Starts handling the signal, which would otherwise end the process.
    pub(crate) fn listen() -> io::Result<Reloads> {
        Ok(Reloads { caught: async_signal::Signals::new([async_signal::Signal::Hup])? })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) {
        while !matches!(self.caught.next().await, Some(Ok(_))) {}
    }
}
