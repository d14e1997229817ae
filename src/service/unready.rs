//! Why a daemon should get no work: in full for `/readyz`, and in short for the status line of
//! systemd.

use super::standstill::StillShard;
use super::status::Phase;
use std::collections::BTreeMap;

/// Partitions that are named at most, of those that wait for the same thing.
const NAMED_MAX: usize = 10;

/// One reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unready {
    /// It is in another phase.
    Phase(Phase),
    /// Topics of these names are needed and do not exist.
    MissingTopics(Vec<String>),
    /// This many shards cannot go on without an operator.
    Halted(u32),
    /// These shards stand still although their log has grown.
    Still(Vec<StillShard>),
    /// The last attempt at acquiring these shards has failed, and why.
    SetBack(Vec<(i32, String)>),
}

impl Unready {
    /// A line, and one more for each thing that shards wait for.
    pub(crate) fn in_full(&self) -> String {
        match self {
            Unready::Phase(phase) => format!("huntd {}", phase.words()),
            Unready::MissingTopics(names) => {
                let names = names.join(", ");
                format!("topics do not exist: {names}; create them with `huntd topics`")
            }
            Unready::Halted(count) => format!("halted shards: {count}; read the log"),
            Unready::Still(still) => {
                let waiting = still.iter().map(|shard| (shard.partition, shard.waits_for));
                let lines = lines(waiting);
                format!("shards that stand still: {}; read the log{lines}", still.len())
            }
            Unready::SetBack(shards) => {
                let waiting = shards.iter().map(|(partition, why)| (*partition, why.as_str()));
                let lines = lines(waiting);
                format!("shards that are acquired again: {}; read the log{lines}", shards.len())
            }
        }
    }

    /// A line without what to do, of a daemon with this many shards on the hot thread.
    pub(crate) fn in_short(&self, shards: usize) -> String {
        let (named, count) = match self {
            Unready::Phase(phase) => return format!("huntd {}: {shards} shards", phase.words()),
            Unready::MissingTopics(names) => {
                (None, format!("{} topics MISSING, read the log", names.len()))
            }
            Unready::Halted(count) => {
                (None, format!("{count} shards HALTED, read the log; {shards} run"))
            }
            Unready::Still(still) => (
                still.first().map(|shard| (shard.partition, shard.waits_for)),
                format!("{} of {shards} shards STAND STILL, read the log", still.len()),
            ),
            Unready::SetBack(waiting) => (
                waiting.first().map(|(partition, why)| (*partition, why.as_str())),
                format!("{} shards ARE ACQUIRED AGAIN, read the log", waiting.len()),
            ),
        };
        match named {
            None => format!("huntd is not ready: {count}"),
            Some((partition, why)) => {
                format!("huntd is not ready: {count}; partition {partition}: {}", shortened(why))
            }
        }
    }
}

/// What is waited for, without where to look and what to do: a status line has little room.
pub(super) fn shortened(why: &str) -> &str {
    why.split(": ").next().unwrap_or_default()
}

/// A line for each thing that shards wait for, with their partitions.
fn lines<'w>(shards: impl Iterator<Item = (i32, &'w str)>) -> String {
    let mut waiting: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    shards.for_each(|(partition, why)| waiting.entry(why).or_default().push(partition));
    let line = |(why, partitions): (&str, Vec<i32>)| {
        let named = partitions.iter().take(NAMED_MAX).map(i32::to_string);
        let named = named.collect::<Vec<_>>().join(", ");
        let plural = if partitions.len() == 1 { "" } else { "s" };
        match partitions.len().saturating_sub(NAMED_MAX) {
            0 => format!("\npartition{plural} {named}: {why}"),
            more => format!("\npartition{plural} {named} and {more} more: {why}"),
        }
    };
    waiting.into_iter().map(line).collect()
}
