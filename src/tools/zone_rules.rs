//! The rules that zones play by now: what the last frames of an output topic say.

use super::failure::ToolError;
use super::kafka::{self, Cluster, Isolation, Read, TopicReader};
use crate::output::encode::decode_frame;
use crate::output::frame::POSITION_UNKNOWN;
use crate::service::config::Config;
use rdkafka::message::Message;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Milliseconds that the last frames of all partitions may take.
const FRAMES_MS_MAX: u64 = 3_000;

/// Records at the end of a partition among which there is a frame that names its rules: before it
/// stand fences of owners that never went on.
const FRAMES_READ: i64 = 20;

/// Milliseconds that a broker may hold an answer back.
const FETCH_WAIT_MS: u32 = 100;

/// The ruleset of each zone, by partition; `None`: nothing of it is published, or it could not be
/// read in time, which standard error is told.
pub(super) fn published(config: &Config) -> Result<Vec<Option<u32>>, ToolError> {
    let Cluster { client, output_topic, .. } = Cluster::of_config(config, "rules")?;
    let partitions = kafka::topic_partitions(&client, &output_topic)?;
    let reader =
        TopicReader::connect(&client, &output_topic, Isolation::Uncommitted, FETCH_WAIT_MS)?;
    let mut places = Vec::new();
    for partition in 0..partitions {
        let (start, end) = reader.bounds(partition)?;
        places.push((partition, (end - FRAMES_READ).max(start)));
    }
    reader.start(&places)?;
    let mut reading: BTreeSet<u16> = (0..partitions).collect();
    let mut published = vec![None; partitions.into()];
    let until = Instant::now() + Duration::from_millis(FRAMES_MS_MAX);
    while !reading.is_empty() && Instant::now() < until {
        match reader.next(Duration::from_millis(FETCH_WAIT_MS.into()))? {
            Read::Message(message) => {
                let frame = decode_frame(message.payload().unwrap_or_default());
                if let Ok((header, _)) = frame
                    && header.next_offset != POSITION_UNKNOWN
                {
                    published[message.partition() as usize] = Some(header.ruleset);
                }
            }
            Read::End(partition) => drop(reading.remove(&partition)),
            Read::Nothing => {}
        }
    }
    if !reading.is_empty() {
        super::warn("the last updates could not be read in time: not all rules are known")?;
    }
    Ok(published)
}
