//! Log lines: to the journal if systemd started the daemon, else to standard error.

use super::ServiceOptions;

use std::io::IsTerminal;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;
use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, reload};

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// The journal under systemd, else text.
    Auto,
    /// One line of text each.
    Text,
    /// One JSON object each.
    Json,
    /// Fields in the journal.
    Journald,
}

/// The words of `service.log_format`.
pub(crate) const FORMATS: [(&str, LogFormat); 4] = [
    ("auto", LogFormat::Auto),
    ("text", LogFormat::Text),
    ("json", LogFormat::Json),
    ("journald", LogFormat::Journald),
];

/// The words of `service.log_level`.
pub(crate) const LEVELS: [(&str, Level); 5] = [
    ("error", Level::ERROR),
    ("warn", Level::WARN),
    ("info", Level::INFO),
    ("debug", Level::DEBUG),
    ("trace", Level::TRACE),
];

/// What is logged can be changed while the process runs: the subscriber is the process's, too.
static FILTER: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();

/// Sends log lines where the options say, for the rest of the process's life. If the journal is
/// configured but absent, text takes its place, with a line that says so.
pub(crate) fn start(options: &ServiceOptions) {
    let journal = match options.log_format {
        LogFormat::Journald => true,
        LogFormat::Auto => stderr_is_the_journal(),
        LogFormat::Text | LogFormat::Json => false,
    };
    let journal = journal.then(tracing_journald::layer);
    let refusal = match &journal {
        Some(Err(error)) => Some(error.to_string()),
        _ => None,
    };
    let layer = match journal {
        Some(Ok(layer)) => layer.boxed(),
        _ if options.log_format == LogFormat::Json => {
            tracing_subscriber::fmt::layer().json().with_writer(std::io::stderr).boxed()
        }
        _ => tracing_subscriber::fmt::layer()
            .with_ansi(std::io::stderr().is_terminal())
            .with_writer(std::io::stderr)
            .boxed(),
    };
    let (filter, handle) = reload::Layer::new(filter(options.log_level));
    // The filter is one for all, not the layer's own: that one, asked about a line that librdkafka
    // does not log in the end, would withhold the thread's next line.
    // An error means that the embedding program has a subscriber, which then serves.
    if tracing_subscriber::registry().with(filter).with(layer).try_init().is_ok() {
        let _ = FILTER.set(handle);
    }
    if let Some(refusal) = refusal {
        tracing::warn!("the journal cannot be reached, so text goes to standard error: {refusal}");
    }
}

/// Logs from this level on, if this process's log lines are huntd's to send. librdkafka keeps the
/// level that its clients were made with.
pub(crate) fn set_level(level: Level) {
    if let Some(handle) = FILTER.get() {
        handle.reload(filter(level)).expect("the subscriber lives as long as the process");
    }
}

/// What is logged. librdkafka logs every attempt to connect, and repeats an outage when it is over.
/// huntd itself logs what matters of that. The rest is for a closer look.
fn filter(level: Level) -> Targets {
    let own = LevelFilter::from_level(level);
    let librdkafka = if level >= Level::DEBUG { own } else { LevelFilter::OFF };
    ["librdkafka", "rdkafka"]
        .into_iter()
        .fold(Targets::new().with_default(own), |filter, target| {
            filter.with_target(target, librdkafka)
        })
}

/// Whether standard error is the stream that systemd connected to the journal. The variable alone
/// is not enough: it is inherited by children whose output goes elsewhere.
fn stderr_is_the_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    let Ok(stderr) = std::fs::metadata("/proc/self/fd/2") else {
        return false;
    };
    stream == format!("{}:{}", stderr.dev(), stderr.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn librdkafka_s_lines_are_logged_only_from_a_finer_level_on() {
        for (level, librdkafka) in [(Level::INFO, false), (Level::DEBUG, true)] {
            let filter = filter(level);
            assert!(filter.would_enable("huntd::control", &Level::INFO));
            for target in ["librdkafka", "rdkafka::client"] {
                assert_eq!(filter.would_enable(target, &Level::ERROR), librdkafka, "{target}");
            }
        }
    }
}
