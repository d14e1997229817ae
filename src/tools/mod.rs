//! The verbs of `huntd`, one per file, and what they share.

pub mod run;

pub mod check;

pub mod reference;

pub mod schema;

mod brokers;

mod letters;

mod newest;

pub mod demo;

pub mod load;

pub mod replay;

pub mod explain;

pub mod rehearse;

mod past;

pub mod serve;

pub mod snapshot;

pub mod tap;

pub mod topics;
pub mod zones;

pub mod source;

pub mod traffic;

pub mod rules;

pub mod resources;

pub(crate) mod accounts;

mod applier;

pub(crate) mod pace;

pub(crate) mod progress_bar;
mod published;

pub(crate) mod kafka;

pub(crate) mod failure;

use crate::edition::Edition;
use crate::telemetry::printable::printable;
use crate::view::game::ViewedGame;
use failure::ToolError;
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::sync::Arc;

/// Prints a warning to standard error.
fn warn(sentence: &str) -> Result<(), ToolError> {
    Ok(say(&format!("huntd: {sentence}"))?)
}

/// Writes a line to standard error. Brokers and producers may have contributed to it, so it is made
/// safe for a terminal.
pub fn say(line: &str) -> io::Result<()> {
    writeln!(WhileRead(io::stderr()), "{}", printable(line))
}

/// An output of a verb that does more than print: once nobody reads the pipe any more, the text is
/// lost, and the verb goes on to its end and its verdict.
struct WhileRead<W>(W);

impl<W: Write> Write for WhileRead<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write(bytes) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(bytes.len()),
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.0.flush() {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            flushed => flushed,
        }
    }
}

/// Reads the rules in these files, or the built-in ones if there are none.
fn rulebook(edition: &Edition, files: &[PathBuf]) -> Result<Arc<dyn ViewedGame>, ToolError> {
    edition.rulebook(files).map_err(ToolError::Config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_nobody_reads_any_more_is_lost_without_an_error() {
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let mut plain = io::LineWriter::new(&writer);
        let error = writeln!(plain, "a line").expect_err("nobody reads it");
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        let mut out = WhileRead(io::LineWriter::new(&writer));
        for _ in 0..10_000 {
            writeln!(out, "a line {}", 7).expect("it is lost");
        }
        out.flush().expect("it is lost");
    }
}
