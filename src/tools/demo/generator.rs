//! Sends the demo's events, no faster than they are read.

use super::flight::Flight;
use crate::tools::failure::ToolError;
use crate::tools::load::EventSender;
use crate::tools::pace::Pace;
use crate::tools::source::Source;
use std::time::Duration;

/// Pause before the next look at a partition that is full.
const FULL_PAUSE: Duration = Duration::from_micros(200);

/// Sends until the source ends or nobody waits for more.
pub(super) fn run(
    mut source: Source,
    mut sender: EventSender,
    pace: &Pace,
    flight: &Flight,
) -> Result<(), ToolError> {
    let sent = send_all(&mut source, &mut sender, pace, flight);
    if sent.is_err() {
        flight.stop();
    }
    sent
}

fn send_all(
    source: &mut Source,
    sender: &mut EventSender,
    pace: &Pace,
    flight: &Flight,
) -> Result<(), ToolError> {
    while let Some(record) = source.next_record()? {
        while let Some(wait) = pace.wait(sender.sent) {
            sender.serve();
            std::thread::sleep(wait);
        }
        while !flight.has_room(record.partition) {
            if flight.is_stopped() {
                return Ok(());
            }
            sender.serve();
            std::thread::sleep(FULL_PAUSE);
        }
        // What waits in the line before it counts: an event is due at its own time.
        let due_us = pace.due_us(sender.sent);
        flight.send(record.partition, due_us);
        sender.send(&record)?;
    }
    sender.flush()?;
    flight.end();
    Ok(())
}
