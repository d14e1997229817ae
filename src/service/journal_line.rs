//! A log line in the journal's native protocol: fields with their lengths, in one datagram. Source:
//! <https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>.

use super::log_thread::LogSender;
use crate::telemetry::printable::printable;
use std::fmt::{self, Display};
use std::io::Write;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// Sends each log line to the log thread.
pub(super) struct JournalLayer {
    lines: LogSender,
    /// The program's name.
    identifier: String,
}

impl JournalLayer {
    /// Creates a layer for this program's lines.
    pub(super) fn new(lines: LogSender) -> JournalLayer {
        let program = std::env::current_exe().unwrap_or_default();
        let name = program.file_name().unwrap_or_default();
        JournalLayer { lines, identifier: name.to_string_lossy().into_owned() }
    }
}

impl<S: Subscriber> Layer<S> for JournalLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let mut line = JournalLine::default();
        line.put("PRIORITY", priority(*metadata.level()));
        line.put("TARGET", metadata.target());
        line.put("CODE_FILE", metadata.file().unwrap_or_default());
        line.put("CODE_LINE", metadata.line().unwrap_or_default());
        line.put("SYSLOG_IDENTIFIER", &self.identifier);
        event.record(&mut line);
        self.lines.send_line(line.bytes);
    }
}

/// The syslog priority of a level.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 5,
        Level::DEBUG => 6,
        Level::TRACE => 7,
    }
}

#[derive(Default)]
struct JournalLine {
    bytes: Vec<u8>,
}

impl JournalLine {
    fn put(&mut self, name: &str, value: impl Display) {
        let value = value.to_string();
        let value = printable(&value);
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(b'\n');
        self.bytes.extend_from_slice(&(value.len() as u64).to_le_bytes());
        writeln!(self.bytes, "{value}").expect("a vector takes it");
    }

    /// Writes `partition` as `F_PARTITION`, which cannot collide with the journal's own fields.
    fn put_field(&mut self, field: &Field, value: impl Display) {
        match field.name() {
            "message" => self.put("MESSAGE", value),
            name => {
                let name = name.to_ascii_uppercase().replace(|c| !char::is_alphanumeric(c), "_");
                self.put(&format!("F_{name}"), value);
            }
        }
    }
}

impl Visit for JournalLine {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put_field(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put_field(field, format_args!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_stands_behind_its_length_and_forges_no_field() {
        let mut line = JournalLine::default();
        line.put("MESSAGE", "a\nPRIORITY=0\u{9b}");
        let value = b"a\\nPRIORITY=0\\u009b";
        let length = (value.len() as u64).to_le_bytes();
        assert_eq!(line.bytes, [&b"MESSAGE\n"[..], &length, value, b"\n"].concat());
    }
}
