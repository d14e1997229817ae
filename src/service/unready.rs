//! Why a daemon should get no work, for `/readyz` and for systemd's status line.

use super::standstill::StillShard;
use super::status::Phase;
use std::collections::BTreeMap;

/// Limit of partitions named per reason.
const NAMED_MAX: usize = 10;

/// One reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unready {
    /// The daemon is in another phase.
    Phase(Phase),
    /// It is no member of the group, because of this.
    Group(String),
    /// The threads with these names are stuck.
    Stuck(Vec<&'static str>),
    /// Required topics with these names do not exist.
    MissingTopics(Vec<String>),
    /// This many shards need an operator.
    Halted(u32),
    /// These shards are stalled although their log has grown.
    Still(Vec<StillShard>),
    /// The last acquisition of these shards failed, for these reasons.
    SetBack(Vec<(i32, String)>),
}

impl Unready {
    /// Returns a line, and another one for each thing that shards wait for.
    pub(crate) fn words(&self) -> String {
        match self {
            Unready::Phase(phase) => format!("huntd {}", phase.words()),
            Unready::Group(why) => why.clone(),
            Unready::Stuck(names) => {
                format!(
                    "threads that do not turn: {}; read the log, restart huntd",
                    names.join(", ")
                )
            }
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
}

/// `1 shard`, `2 shards`.
pub(super) fn counted(count: usize, one: &str) -> String {
    format!("{count} {}", noun(count, one))
}

fn noun(count: usize, one: &str) -> String {
    format!("{one}{}", if count == 1 { "" } else { "s" })
}

/// Returns a line for each thing that shards wait for, with their partitions.
fn lines<'w>(shards: impl Iterator<Item = (i32, &'w str)>) -> String {
    let mut waiting: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    shards.for_each(|(partition, why)| waiting.entry(why).or_default().push(partition));
    let line = |(why, partitions): (&str, Vec<i32>)| {
        let named = partitions.iter().take(NAMED_MAX).map(i32::to_string);
        let named = named.collect::<Vec<_>>().join(", ");
        let noun = noun(partitions.len(), "partition");
        match partitions.len().saturating_sub(NAMED_MAX) {
            0 => format!("\n{noun} {named}: {why}"),
            more => format!("\n{noun} {named} and {more} more: {why}"),
        }
    };
    waiting.into_iter().map(line).collect()
}
