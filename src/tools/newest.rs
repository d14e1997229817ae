//! What a topic holds, by its newest records: a daemon's frames, or something else.

use super::failure::ToolError;
use super::kafka::{FETCH_WAIT_MS, Isolation, TopicReader};
use crate::kafka::client::ClientOptions;
use crate::kit::update_json::UpdateTable;
use crate::output::encode::{FrameError, decode};
use rdkafka::message::Message;
use std::ops::ControlFlow;
use std::time::Duration;

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
    let mut newest = Newest::Nothing;
    reader.each_of_last(partitions, RECORDS, LOOK_WAIT, |message| {
        match decode(message.payload().unwrap_or_default(), updates) {
            Err(FrameError::NotAFrame | FrameError::TooLong { .. }) => {
                newest = Newest::Others;
                ControlFlow::Continue(())
            }
            _ => {
                newest = Newest::Frames;
                ControlFlow::Break(())
            }
        }
    })?;
    Ok(newest)
}
