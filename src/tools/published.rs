//! The last frame of each zone in an output topic.

use super::failure::ToolError;
use super::kafka::{self, Cluster, FETCH_WAIT_MS, Isolation, TopicReader};
use crate::edition::Edition;
use crate::kafka::right::Right;
use crate::kit::update_json::UpdateTable;
use crate::output::encode::{FrameError, decode};
use crate::output::frame::{FrameHeader, POSITION_UNKNOWN};
use rdkafka::message::Message;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Duration;

/// Milliseconds for reading the last frames of all partitions.
const FRAMES_MS_MAX: u64 = 3_000;

/// Records at the end of a partition that include a frame with a ruleset: it may be followed by
/// fences of owners that did not continue.
const FRAMES_READ: i64 = 20;

/// The contents of the last records of an output topic.
pub(super) struct Published {
    updates: &'static UpdateTable,
    /// The last frame of each zone, by partition; `None` if it has published nothing, or could not
    /// be read.
    pub zones: Vec<Option<LastFrame>>,
    /// Records that this huntd cannot read, with the first one's reason.
    unread: Option<Unread>,
    /// Partitions whose end was not reached in time.
    late: BTreeSet<u16>,
}

/// The last frame of a zone. What an owner's first fence does not say is that of the frame before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastFrame {
    pub owner_epoch: u64,
    pub ruleset: u32,
    /// The first input offset that the output does not cover.
    pub next_offset: i64,
    /// When it was appended, in milliseconds since the Unix epoch.
    pub at_ms: i64,
}

/// Records that are not frames, or not of this version.
struct Unread {
    count: u64,
    partition: u16,
    offset: i64,
    why: FrameError,
}

impl Published {
    /// Creates the result before any of these partitions is read.
    fn new(updates: &'static UpdateTable, partitions: u16) -> Published {
        let (zones, late) = (vec![None; partitions.into()], BTreeSet::new());
        Published { updates, zones, unread: None, late }
    }

    /// Processes the next record of a partition.
    fn take(&mut self, partition: u16, offset: i64, at_ms: i64, payload: &[u8]) {
        match decode(payload, self.updates) {
            Ok((header, _)) => {
                let FrameHeader { owner_epoch, ruleset, next_offset, .. } = header;
                let last = &mut self.zones[usize::from(partition)];
                if last.is_some_and(|last| owner_epoch < last.owner_epoch) {
                    return;
                }
                match next_offset {
                    // An owner's first fence.
                    POSITION_UNKNOWN => {
                        *last = last.map(|last| LastFrame { owner_epoch, at_ms, ..last });
                    }
                    _ => *last = Some(LastFrame { owner_epoch, ruleset, next_offset, at_ms }),
                }
            }
            Err(why) => {
                let first = Unread { count: 0, partition, offset, why };
                self.unread.get_or_insert(first).count += 1;
            }
        }
    }

    /// Returns a sentence for each part that is incomplete.
    pub(super) fn warnings(&self) -> Vec<String> {
        let unread = self.unread.iter().map(|Unread { count, partition, offset, why }| {
            format!(
                "{count} of the last records of the output topic cannot be read, the first at \
                 offset {offset} of partition {partition}: {why}; find out who wrote them, or use \
                 the huntd that did"
            )
        });
        let late = (!self.late.is_empty()).then(|| {
            "the last updates could not be read in time: not all zones are known; run it again, or \
             look at the brokers that lead the output topic"
                .to_owned()
        });
        unread.chain(late).collect()
    }
}

/// Reads the last records of a cluster's output topic. Its brokers must be reachable.
pub(super) fn published(cluster: &Cluster, edition: &Edition) -> Result<Published, ToolError> {
    let Cluster { client, output_topic, .. } = cluster;
    let partitions = kafka::partitions_of(client, output_topic, Right::Read)?;
    let reader = TopicReader::connect(client, output_topic, Isolation::Uncommitted, FETCH_WAIT_MS)?;
    let mut published = Published::new(edition.schema.game.updates, partitions);
    let wait = Duration::from_millis(FRAMES_MS_MAX);
    published.late = reader.each_of_last(0..partitions, FRAMES_READ, wait, |message| {
        let payload = message.payload().unwrap_or_default();
        let at_ms = message.timestamp().to_millis().unwrap_or_default();
        published.take(message.partition() as u16, message.offset(), at_ms, payload);
        ControlFlow::Continue(())
    })?;
    Ok(published)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hunt::change::UPDATES;
    use crate::hunt::frames::encode;
    use crate::output::frame::Format;
    use crate::testing::frame_maker::FrameMaker;

    #[test]
    fn records_that_cannot_be_read_are_counted_and_the_first_is_named() {
        let mut published = Published::new(UPDATES, 2);
        let mut frame = Vec::new();
        let made = FrameMaker::new(0).frame(1);
        encode(Format::Binary, &made.header, made.updates.as_slice(), &mut frame);
        published.take(1, 7, 99, &frame);
        let FrameHeader { owner_epoch, ruleset, next_offset, .. } = made.header;
        let last = Some(LastFrame { owner_epoch, ruleset, next_offset, at_ms: 99 });
        assert_eq!(published.zones, [None, last]);
        assert!(published.warnings().is_empty());
        for (partition, offset) in [(1, 8), (0, 4)] {
            published.take(partition, offset, 99, b"of somebody else");
        }
        let warnings = published.warnings();
        let [sentence] = warnings.as_slice() else { panic!("{warnings:?}") };
        assert!(sentence.starts_with("2 of the last records"), "{sentence}");
        assert!(sentence.contains("offset 8 of partition 1"), "{sentence}");
        assert_eq!(published.zones, [None, last]);
    }
}
