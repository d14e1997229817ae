//! What a topic holds, by its newest records: a daemon's frames, or something else.

use super::failure::ToolError;
use super::kafka::{FETCH_WAIT_MS, Isolation, Read, TopicReader};
use crate::kafka::client::ClientOptions;
use crate::kit::update_json::UpdateTable;
use crate::output::encode::{FrameError, decode};
use rdkafka::message::Message;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Newest records of a partition that are looked at: a stranger may have appended some.
const RECORDS: i64 = 16;

/// The longest wait for these records.
const LOOK_WAIT: Duration = Duration::from_secs(5);

/// What the newest records of a topic's partitions are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Newest {
    /// There are none.
    Nothing,
    /// One of them is a frame.
    Frames,
    /// None of them is a frame.
    Others,
}

/// Looks at the newest records of these partitions.
pub(super) fn look(
    client: &ClientOptions,
    updates: &UpdateTable,
    topic: &str,
    partitions: impl IntoIterator<Item = u16>,
) -> Result<Newest, ToolError> {
    let reader = TopicReader::connect(client, topic, Isolation::Uncommitted, FETCH_WAIT_MS)?;
    let mut places = Vec::new();
    for partition in partitions {
        let (start, end) = reader.bounds(partition)?;
        if start < end {
            places.push((partition, start.max(end - RECORDS)));
        }
    }
    reader.start(&places)?;
    let mut newest = Newest::Nothing;
    let mut unread: BTreeSet<u16> = places.iter().map(|(partition, _)| *partition).collect();
    let give_up_at = Instant::now() + LOOK_WAIT;
    while !unread.is_empty() && Instant::now() < give_up_at {
        match reader.next(Duration::from_millis(FETCH_WAIT_MS.into()))? {
            Read::Message(message) => {
                let frame = decode(message.payload().unwrap_or_default(), updates);
                if !matches!(frame, Err(FrameError::NotAFrame | FrameError::TooLong { .. })) {
                    return Ok(Newest::Frames);
                }
                newest = Newest::Others;
            }
            Read::End(partition) => drop(unread.remove(&partition)),
            Read::Nothing => {}
        }
    }
    Ok(newest)
}
