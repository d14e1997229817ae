//! The demo's page: the serving part of `huntd serve`, read-only.

use crate::serve::{Commands, ServeError, Server};
use crate::service::config::Config;
use crate::service::shutdown::Signals;
use crate::tools::failure::ToolError;
use crate::tools::say;
use crate::tools::serve::{failure, feed};
use crate::view::game::ViewedGame;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// A page that is being served.
pub(super) struct DemoPage {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), ServeError>>,
}

impl DemoPage {
    /// Serves the page and prints its address. Events cannot be posted, because the demo accounts
    /// for its own.
    pub(super) fn start(
        config: &Config,
        rulebook: &Arc<dyn ViewedGame>,
    ) -> Result<DemoPage, ToolError> {
        let feed = feed(config);
        let server = Server::bind(config.serve.clone(), feed, Commands::Refused, rulebook.clone());
        let server = server.map_err(failure)?;
        say(&format!("page: http://{}/", server.address()))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name("serve".to_owned())
            .spawn(move || server.run(&stopped, |_| std::future::pending()))
            .map_err(|error| ToolError::Usage(format!("cannot start a thread: {error}")))?;
        Ok(DemoPage { stop, thread })
    }

    /// Ends the page; one that stays ends at the first signal.
    pub(super) fn end(self, stays: bool) -> Result<(), ToolError> {
        if stays {
            let signals = Signals::listen()?;
            say("the page stays: end it with Ctrl-C")?;
            smol::block_on(signals.first());
        }
        self.stop.store(true, Ordering::Release);
        self.thread.join().expect("a panic in any thread ends the process").map_err(failure)
    }
}
