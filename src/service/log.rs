//! Log lines: to the journal if systemd started the daemon, otherwise to standard error. The log
//! thread writes them (`log_thread.rs`).

use super::ServiceOptions;
use super::journal_line::JournalLayer;
use super::log_thread::{LogSender, Sink};
use crate::telemetry::printable::printable;

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;
use tracing::Level;
use tracing::field::Field;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, reload};

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// The journal under systemd, otherwise text.
    Auto,
    /// One line of text per event.
    Text,
    /// One JSON object per event.
    Json,
    /// Fields in the journal.
    Journald,
}

/// The values of `service.log_format`.
pub(crate) const FORMATS: [(&str, LogFormat); 4] = [
    ("auto", LogFormat::Auto),
    ("text", LogFormat::Text),
    ("json", LogFormat::Json),
    ("journald", LogFormat::Journald),
];

/// The values of `service.log_level`.
pub(crate) const LEVELS: [(&str, Level); 5] = [
    ("error", Level::ERROR),
    ("warn", Level::WARN),
    ("info", Level::INFO),
    ("debug", Level::DEBUG),
    ("trace", Level::TRACE),
];

/// The filter, which can be changed while the process runs; it is global, like the subscriber.
static FILTER: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();

/// The queue to the log thread, once it is started.
static LINES: OnceLock<LogSender> = OnceLock::new();

/// Sends log lines where the options say, for the rest of the process's life. If the journal is
/// configured but unreachable, text replaces it, with a line that says so. Fails if no thread or
/// descriptor is left.
pub(crate) fn start(options: &ServiceOptions) -> io::Result<()> {
    let wants_journal = match options.log_format {
        LogFormat::Journald => true,
        LogFormat::Auto => stderr_is_the_journal(),
        LogFormat::Text | LogFormat::Json => false,
    };
    let (sink, refusal) = match wants_journal.then(Sink::journal) {
        None => (Sink::Stderr, None),
        Some(Ok(journal)) => (journal, None),
        Some(Err(error)) => (Sink::Stderr, Some(error)),
    };
    let is_journal = matches!(sink, Sink::Journal(_));
    let lines = LINES.get_or_init({
        let lines = LogSender::start(sink)?;
        move || lines
    });
    let fmt_layer = || tracing_subscriber::fmt::layer().log_internal_errors(false);
    let layer = match options.log_format {
        _ if is_journal => JournalLayer::new(lines.clone()).boxed(),
        LogFormat::Json => {
            let lines = LineWriter { lines: lines.clone(), is_json: true };
            fmt_layer().json().with_writer(lines).boxed()
        }
        LogFormat::Auto | LogFormat::Text | LogFormat::Journald => fmt_layer()
            .fmt_fields(debug_fn(write_field).delimited(" "))
            .with_ansi(has_colours())
            .with_writer(LineWriter { lines: lines.clone(), is_json: false })
            .boxed(),
    };
    let (filter, handle) = reload::Layer::new(filter(options.log_level));
    // A global filter, not one of the layer: when asked about a line that librdkafka finally does
    // not log, the latter would suppress the thread's next line. An error means that the embedding
    // program has installed a subscriber, which is used instead.
    if tracing_subscriber::registry().with(filter).with(layer).try_init().is_ok() {
        let _ = FILTER.set(handle);
    }
    if let Some(refusal) = refusal {
        tracing::warn!("the journal cannot be reached, so text goes to standard error: {refusal}");
    }
    Ok(())
}

/// Returns whether standard error is a terminal with colours. A user turns them off with the
/// variable `NO_COLOR` (no-color.org).
fn has_colours() -> bool {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let is_dumb = variable("TERM").is_none_or(|term| term == "dumb");
    io::stderr().is_terminal() && !is_dumb && variable("NO_COLOR").is_none()
}

/// Writes to standard error, without waiting for its reader if the log thread runs. The text
/// contains its own line breaks.
pub(crate) fn say(text: String) {
    match LINES.get() {
        Some(lines) => _ = lines.send_text(text),
        // If standard error is closed, nothing can be reported.
        None => _ = io::stderr().write_all(text.as_bytes()),
    }
}

/// Writes to standard error because the process is about to end, and waits for the log thread for
/// at most a second.
pub(crate) fn say_last(text: String) {
    match LINES.get() {
        Some(lines) => _ = lines.say_last(text),
        None => say(text),
    }
}

/// Waits until the lines are written, at most a second, because the process is about to end.
pub fn flush() {
    LINES.get().into_iter().for_each(|lines| _ = lines.flush());
}

/// Help text of the metric of lost lines.
pub(crate) const LOST_HELP: &str = "Log lines lost, because their reader was slow or away.";

/// Lines lost because the log's reader was too slow.
pub(crate) fn lost_lines() -> u64 {
    LINES.get().map_or(0, LogSender::lost)
}

/// Writes a field of a text line.
fn write_field(out: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let value = format!("{value:?}");
    let value = printable(&value);
    match field.name() {
        "message" => write!(out, "{value}"),
        // The line contains them already.
        name if name.starts_with("log.") => Ok(()),
        name => write!(out, "{name}={value}"),
    }
}

/// Escapes all control characters in a line of JSON; JSON itself requires it for 32 of them.
fn escaped(line: &[u8]) -> Option<Vec<u8>> {
    let text = str::from_utf8(line).ok()?.strip_suffix('\n')?;
    Some(format!("{}\n", printable(text)).into_bytes())
}

/// Receives the lines of the formatting layer, each in one piece.
#[derive(Clone)]
struct LineWriter {
    lines: LogSender,
    is_json: bool,
}

impl Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let escaped = if self.is_json { escaped(line) } else { None };
        self.lines.send_line(escaped.unwrap_or_else(|| line.to_vec()));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for LineWriter {
    type Writer = LineWriter;

    fn make_writer(&self) -> LineWriter {
        self.clone()
    }
}

/// Changes the log level, if huntd owns this process's subscriber. librdkafka keeps the level with
/// which its clients were created.
pub(crate) fn set_level(level: Level) {
    if let Some(handle) = FILTER.get() {
        handle.reload(filter(level)).expect("the subscriber lives as long as the process");
    }
}

/// Returns the filter for a level. librdkafka logs every connection attempt, and repeats an outage
/// when it is over. huntd itself logs what matters of that; librdkafka's lines are for debugging.
fn filter(level: Level) -> Targets {
    let own = LevelFilter::from_level(level);
    let librdkafka = if level >= Level::DEBUG { own } else { LevelFilter::OFF };
    ["librdkafka", "rdkafka"]
        .into_iter()
        .fold(Targets::new().with_default(own), |filter, target| {
            filter.with_target(target, librdkafka)
        })
}

/// Returns whether standard error is the stream that systemd connected to the journal. The variable
/// alone is not enough: children whose output goes elsewhere inherit it.
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
    use std::sync::{Arc, Mutex};

    /// Collects the output of a subscriber.
    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("nobody panics").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn foreign_text_forges_no_line_and_reaches_no_terminal() {
        let foreign = "no\n2026-01-01 ERROR huntd: forged\u{9b}2J\u{1b}[2J";
        for is_json in [false, true] {
            let written = Written::default();
            let writer = written.clone();
            let layer = tracing_subscriber::fmt::layer();
            let layer = match is_json {
                true => layer.json().with_writer(move || writer.clone()).boxed(),
                false => layer
                    .fmt_fields(debug_fn(write_field).delimited(" "))
                    .with_ansi(false)
                    .with_writer(move || writer.clone())
                    .boxed(),
            };
            let subscriber = tracing_subscriber::registry().with(layer);
            tracing::subscriber::with_default(subscriber, || {
                tracing::warn!(partition = 3, of = %foreign, quoted = foreign, "says: {foreign}");
            });
            let line = written.0.lock().expect("nobody panics").clone();
            let line = if is_json { escaped(&line).expect("it is text") } else { line };
            let text = String::from_utf8(line).expect("it is text");
            let text = text.strip_suffix('\n').expect("a line ends");
            assert!(!text.chars().any(char::is_control), "{text:?}");
            assert!(text.contains("says: no\\n2026-01-01 ERROR huntd: forged\\u009b2J"), "{text}");
            assert!(
                text.contains(if is_json { "\"partition\":3" } else { " partition=3" }),
                "{text}"
            );
        }
    }

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
