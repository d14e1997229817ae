//! Sends the demo's events, no faster than they are read.

use super::flight::Flight;
use crate::tools::failure::ToolError;
use crate::tools::load::EventSender;
use crate::tools::pace::Pace;
use crate::tools::source::{Source, SourceRecord};
use std::time::Duration;

/// The longest wait before it checks whether the run is stopped.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// Pause before a full partition is tried again.
const FULL_PAUSE: Duration = Duration::from_micros(200);

/// What an event is due by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DueBy {
    /// How many came before it.
    Count,
    /// Its own time: milliseconds from this one on, of the Unix epoch.
    Time(i64),
}

impl DueBy {
    /// What the pace counts: events, or milliseconds.
    fn number(self, sent: u64, record: &SourceRecord) -> u64 {
        match self {
            DueBy::Count => sent,
            DueBy::Time(base_ms) => u64::try_from(record.time_ms - base_ms).unwrap_or(0),
        }
    }
}

/// Sends until the source ends or the run is stopped.
pub(super) fn run(
    mut source: Source,
    mut sender: EventSender,
    pace: &Pace,
    due_by: DueBy,
    flight: &Flight,
) -> Result<(), ToolError> {
    let sent = send_all(&mut source, &mut sender, pace, due_by, flight);
    if sent.is_err() {
        flight.stop();
    }
    sent
}

fn send_all(
    source: &mut Source,
    sender: &mut EventSender,
    pace: &Pace,
    due_by: DueBy,
    flight: &Flight,
) -> Result<(), ToolError> {
    while let Some(record) = source.next_record()? {
        let number = due_by.number(sender.sent, &record);
        while let Some(wait) = pace.wait(number) {
            if flight.is_stopped() {
                return Ok(());
            }
            sender.serve();
            std::thread::sleep(wait.min(WAIT_MAX));
        }
        while !flight.has_room(record.partition) {
            if flight.is_stopped() {
                return Ok(());
            }
            sender.serve();
            std::thread::sleep(FULL_PAUSE);
        }
        // What waits in the line before it counts: an event is due at its own time.
        let due_us = pace.due_us(number);
        flight.send(record.partition, due_us);
        sender.send(&record)?;
    }
    sender.flush()?;
    flight.end();
    Ok(())
}
