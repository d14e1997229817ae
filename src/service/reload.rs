//! SIGHUP: the process reads the rules files and the log level again while it runs. `huntd serve`
//! also reads the keys of its tokens again (`serve/reload.rs`).
//!
//! An error in the files, or a change that requires a restart, rejects the whole reload. An event
//! that changes to rules that were added is in the log after the reload. A shard looks the rules up
//! at that event and never before, so that no update depends on when they were read.

use super::config::{self, Config, ConfigSource};
use super::log;
use super::shutdown::Reloads;
use super::systemd::Systemd;
use crate::edition::Edition;
use crate::kit::engine::AnyRulebook;
use crate::queue::Sender;
use crate::telemetry::progress::Progress;
use crate::view::game::ViewedGame;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Keys that may change while the process runs.
const RELOADED: [&str; 2] = ["rules.files", "service.log_level"];

/// Prefixes of keys that only `huntd serve` uses.
const KEYS_OF_SERVE: [&str; 1] = ["serve."];

/// Prefixes of keys that only `huntd run` uses.
const KEYS_OF_RUN: [&str; 11] = [
    "kafka.group_",
    "kafka.assignment",
    "kafka.session_timeout_ms",
    "kafka.dead_letter_topic",
    "fetch.",
    "input.carry_players",
    "publish.",
    "snapshot.every_ms",
    "cpu.",
    "standby.",
    "service.listen",
];

/// True if the last reload of this process was refused.
static IS_REFUSED: AtomicBool = AtomicBool::new(false);

/// Help text of the metric.
pub(crate) const REFUSED_HELP: &str = "1 if the last reload was refused, 0 otherwise.";

/// Returns whether the last reload was refused, so that the process does not use the current files.
pub(crate) fn is_refused() -> bool {
    IS_REFUSED.load(Ordering::Acquire)
}

/// Records the result of a reload, and logs why it was refused.
pub(crate) fn note(reloaded: &Result<(), String>) {
    IS_REFUSED.store(reloaded.is_err(), Ordering::Release);
    if let Err(sentence) = reloaded {
        tracing::error!("not reloaded, old settings kept: {sentence}");
    }
}

/// Interval, in milliseconds, of the check whether the shards know the rules.
const KNOWN_POLL_MS: u64 = 10;

/// Milliseconds after which a line is logged if the shards do not know the rules yet: the control
/// thread may be waiting for brokers.
const KNOWN_MS_MAX: u64 = 5_000;

/// Which process reloads its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reloading {
    /// `huntd run`.
    Run,
    /// `huntd serve`.
    Serve,
}

impl Reloading {
    /// Returns whether this process uses the key; if not, another one may.
    fn goes_by(self, path: &str) -> bool {
        let others = match self {
            Reloading::Run => &KEYS_OF_SERVE[..],
            Reloading::Serve => &KEYS_OF_RUN,
        };
        !others.iter().any(|start| path.starts_with(start))
    }
}

/// The configuration and the rules that a process uses, and where to read them again.
pub(crate) struct InForce {
    process: Reloading,
    edition: Edition,
    source: ConfigSource,
    /// The hashes of the rules, that of new zones first.
    rulesets: Vec<u32>,
}

impl InForce {
    /// Creates the state of a process started with these; `None` if its configuration is not in a
    /// file, or its game is not known.
    pub(crate) fn new(process: Reloading, config: &Config, rulesets: Vec<u32>) -> Option<InForce> {
        let (source, edition) = (config.source.clone()?, config.edition?);
        Some(InForce { process, edition, source, rulesets })
    }

    /// Reads the files again. Returns their content if the process can continue with it, otherwise
    /// a sentence that says why not.
    pub(crate) fn read_again(&self) -> Result<(Config, Arc<dyn ViewedGame>), String> {
        let ConfigSource { file, arguments, values } = &self.source;
        let config = config::load(file, arguments)
            .map_err(|errors| errors.to_string().replace('\n', "; "))?;
        let now = &config.source.as_ref().expect("it was read from the file").values;
        let takes_restart =
            |path: &&String| !RELOADED.contains(&path.as_str()) && self.process.goes_by(path);
        let changed = now.keys().filter(takes_restart).find(|path| now[*path] != values[*path]);
        if let Some(path) = changed {
            let reloaded = RELOADED.join(" and ");
            return Err(format!(
                "{path} has changed and needs a restart: a reload applies {reloaded} only"
            ));
        }
        let rulebook = self.edition.rulebook(&config.rules_files);
        let rulebook = rulebook.map_err(|lines| lines.replace('\n', "; "))?;
        let (old, new) = (self.rulesets[0], rulebook.first_ruleset());
        if old != new {
            return Err(format!(
                "the first of rules.files has ruleset {new}, but new zones begin with {old}: keep \
                 its file first, and add other rules after it"
            ));
        }
        let missing = self.rulesets.iter().find(|ruleset| !rulebook.knows(**ruleset));
        if let Some(ruleset) = missing {
            return Err(format!(
                "rules.files no longer contain ruleset {ruleset}, which zones may use: restore its \
                 file, or restart"
            ));
        }
        Ok((config, rulebook))
    }

    /// Returns whether the process does not know all of these rules yet.
    pub(crate) fn differs_from(&self, rulebook: &dyn ViewedGame) -> bool {
        rulebook.rulesets() != self.rulesets
    }

    /// Uses the new configuration and rules from now on.
    pub(crate) fn replace(&mut self, config: Config, rulebook: &dyn ViewedGame) {
        log::set_level(config.service.log_level);
        self.source = config.source.expect("it was read from the file");
        self.rulesets = rulebook.rulesets();
    }
}

/// Reloads the daemon's configuration.
pub struct Reloader {
    in_force: InForce,
    /// To the control thread.
    rulebooks: Sender<AnyRulebook>,
}

impl Reloader {
    /// Creates the reloader of a daemon started with these; `None` if its configuration is not in a
    /// file, or its game is not known.
    pub(crate) fn new(
        config: &Config,
        rulesets: Vec<u32>,
        rulebooks: Sender<AnyRulebook>,
    ) -> Option<Reloader> {
        let in_force = InForce::new(Reloading::Run, config, rulesets)?;
        Some(Reloader { in_force, rulebooks })
    }

    /// Reloads at each signal, for the daemon's life.
    pub(super) async fn run(
        mut self,
        mut reloads: Reloads,
        progress: &Progress,
        systemd: &Systemd,
    ) {
        loop {
            reloads.next().await;
            let is_announced = systemd.reloading();
            let reloaded = self.reload();
            note(&reloaded);
            if reloaded.is_ok() {
                self.wait_until_known(progress).await;
            }
            if is_announced {
                systemd.ready();
            }
        }
    }

    /// Reloads once. An error is a sentence; nothing has changed then.
    fn reload(&mut self) -> Result<(), String> {
        let (config, rulebook) = self.in_force.read_again()?;
        if self.in_force.differs_from(&*rulebook) {
            // The queue has room: the last reload has waited until the shards knew the rules.
            self.rulebooks.try_send(rulebook.clone()).map_err(|_| "the daemon is about to end")?;
        }
        self.in_force.replace(config, &*rulebook);
        Ok(())
    }

    /// Waits until the shards know the rules, so that an event may change to them.
    async fn wait_until_known(&self, progress: &Progress) {
        let begun = Instant::now();
        let rulesets = &self.in_force.rulesets;
        let mut is_late = false;
        while !progress.rulesets().eq(rulesets.iter().copied()) {
            if !is_late && begun.elapsed() >= Duration::from_millis(KNOWN_MS_MAX) {
                is_late = true;
                tracing::warn!("the shards do not know the rules yet: brokers are waited for");
            }
            smol::Timer::after(Duration::from_millis(KNOWN_POLL_MS)).await;
        }
        tracing::info!(?rulesets, "reloaded");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::settings::Settings;
    use crate::tools::serve::feed_options;

    /// Of each key, one of these is a valid value that is not the default.
    const VALUES: [&str; 22] = [
        "true",
        "false",
        "0",
        "1",
        "5",
        "400",
        "70000",
        "131072",
        "1048576",
        "8388608",
        "other",
        "other:1",
        "none",
        "text",
        "binary",
        "eager",
        "debug",
        "epoll",
        "2",
        "/other",
        "127.0.0.1:1",
        "https://a.example",
    ];

    #[test]
    fn serve_goes_by_the_keys_that_change_what_it_takes_of_the_configuration() {
        let parsed = |key: &str, value: &str| {
            // Others are for processes with keys alone.
            let variables = [("serve.keys", "/keys"), (key, value)].map(|(key, value)| {
                (format!("HUNTD_{}", key.replace('.', "__").to_uppercase()), value.to_owned())
            });
            config::parse("", "", variables.into_iter()).ok()
        };
        let takes = |config: &Config| {
            let mut feed = feed_options(config);
            // It only reads them.
            feed.snapshots.every_ms = 0;
            let Config { serve, service, rules_files, .. } = config;
            format!("{:?}", (feed, serve, service.log_format, service.log_level, rules_files))
        };
        let usual = parsed("serve.keys", "/keys").expect("the defaults are valid");
        for path in Settings::defaults().by_path().keys() {
            let of = |value: &&str| parsed(path, value);
            let changed = VALUES.iter().filter_map(of).find(|config| *config != usual);
            let is_taken = match &changed {
                Some(changed) => takes(changed) != takes(&usual),
                // Of these, one takes another.
                None => ["kafka.sasl.", "kafka.tls."].iter().any(|start| path.starts_with(start)),
            };
            assert_eq!(Reloading::Serve.goes_by(path), is_taken, "{path}");
        }
    }
}
