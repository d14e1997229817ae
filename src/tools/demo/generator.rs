//! Sends the demo's events, no faster than they are read.

use super::in_flight::InFlightEvents;
use crate::tools::failure::ToolError;
use crate::tools::load::EventSender;
use crate::tools::pace::Pace;
use crate::tools::source::Source;
use std::time::Duration;

/// Upper limit of a wait before the generator checks whether the run is stopped.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// Pause before a full partition is retried.
const FULL_PAUSE: Duration = Duration::from_micros(200);

/// The measure by which an event is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DueBy {
    /// The number of events before it.
    Count,
    /// Its own timestamp, relative to that of the first event.
    Time,
}

impl DueBy {
    /// The position in the pace: events, or milliseconds.
    fn number(self, sent: u64, since_first_ms: i64) -> u64 {
        match self {
            DueBy::Count => sent,
            DueBy::Time => u64::try_from(since_first_ms).unwrap_or(0),
        }
    }
}

/// Sends until the source ends or the run is stopped.
pub(super) fn run(
    mut source: Source,
    mut sender: EventSender,
    pace: &Pace,
    due_by: DueBy,
    in_flight: &InFlightEvents,
) -> Result<(), ToolError> {
    let sent = send_all(&mut source, &mut sender, pace, due_by, in_flight);
    if sent.is_err() {
        in_flight.stop();
    }
    sent
}

fn send_all(
    source: &mut Source,
    sender: &mut EventSender,
    pace: &Pace,
    due_by: DueBy,
    in_flight: &InFlightEvents,
) -> Result<(), ToolError> {
    let mut first_ms = None;
    while let Some(record) = source.next_record()? {
        let since_first_ms = record.time_ms - *first_ms.get_or_insert(record.time_ms);
        let number = due_by.number(sender.sent, since_first_ms);
        while let Some(wait) = pace.wait(number) {
            if in_flight.is_stopped() {
                return Ok(());
            }
            sender.serve();
            std::thread::sleep(wait.min(WAIT_MAX));
        }
        while !in_flight.has_room(record.partition) {
            if in_flight.is_stopped() {
                return Ok(());
            }
            sender.serve();
            std::thread::sleep(FULL_PAUSE);
        }
        // Time in the queue counts as latency: an event is due at its own time.
        let due_us = pace.due_us(number);
        in_flight.send(record.partition, due_us);
        sender.send(&record)?;
    }
    sender.flush()?;
    in_flight.end();
    Ok(())
}
