//! Whether commands that were answered are in the log, each once: what a client was told, against
//! what the input topic holds.

use crate::ZONES;
use rdkafka::Message;
use rdkafka::topic_partition_list::Offset;
use std::collections::HashMap;
use support::daemon::Topics;
use support::kafka::Cluster;

/// A `seq` that is a time in microseconds is no smaller; those of the players beside are.
const STAMP_MIN: u64 = 1 << 50;

/// The log, from where it ended before the commands.
pub(crate) struct Log<'a> {
    cluster: &'a Cluster,
    topics: &'a Topics,
    ends: Vec<i64>,
}

impl<'a> Log<'a> {
    pub(crate) fn begin(cluster: &'a Cluster, topics: &'a Topics) -> Log<'a> {
        let ends = cluster.client().ends(&topics.input, ZONES);
        Log { cluster, topics, ends }
    }

    /// Holds the log against what was answered: a zone and an offset for each command that is
    /// decided, or will be. `unknown` commands were answered otherwise. Gives what there is to say.
    pub(crate) fn check(&self, answered: &[(u16, i64)], unknown: u64) -> String {
        let mut told: HashMap<(u16, i64), u64> = HashMap::new();
        for place in answered {
            *told.entry(*place).or_default() += 1;
        }
        let (mut held, mut untold) = (0, 0);
        for (zone, end) in (0..).zip(&self.ends) {
            let client = self.cluster.client();
            client.read(&self.topics.input, zone, Offset::Offset(*end), |record| {
                if is_command(record.payload().unwrap_or_default()) {
                    match told.remove(&(zone as u16, record.offset())) {
                        Some(1) => held += 1,
                        Some(times) => panic!("{times} answers for one record"),
                        None => untold += 1,
                    }
                }
            });
        }
        assert!(told.is_empty(), "commands that were answered are not in the log: {told:?}");
        assert!(untold <= unknown, "{untold} commands are in the log more often than answered");
        format!(
            "commands: {} answered with their offsets, {held} in the log at them, 0 lost, 0 twice; \
             {unknown} answered otherwise, {untold} of them in the log",
            answered.len(),
        )
    }
}

/// Whether a server has written this record: its `seq` is a time, and stands first.
fn is_command(record: &[u8]) -> bool {
    let seq = record.strip_prefix(br#"{"seq":"#).and_then(|rest| {
        let digits = rest.split(|byte| !byte.is_ascii_digit()).next()?;
        std::str::from_utf8(digits).ok()?.parse::<u64>().ok()
    });
    seq.is_some_and(|seq| seq >= STAMP_MIN)
}
