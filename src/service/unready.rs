//! Why a daemon should get no work: in full for `/readyz`, and in short for systemd's status line.

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
    pub(crate) fn in_full(&self) -> String {
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

    /// Returns a line without advice, for a daemon with this many shards on the hot thread.
    pub(crate) fn in_short(&self, shards: usize) -> String {
        let (named, count) = match self {
            Unready::Phase(phase) => {
                return format!("huntd {}: {}", phase.words(), counted(shards, "shard"));
            }
            Unready::Group(_) => (None, "NO MEMBER OF ITS GROUP, read the log".to_owned()),
            Unready::Stuck(names) => {
                (None, format!("thread {} DOES NOT TURN, read the log", names.join(" and ")))
            }
            Unready::MissingTopics(names) => {
                (None, format!("{} MISSING, read the log", counted(names.len(), "topic")))
            }
            Unready::Halted(count) => {
                let halted = counted(*count as usize, "shard");
                let others =
                    if shards == 1 { "1 runs".to_owned() } else { format!("{shards} run") };
                (None, format!("{halted} HALTED, read the log; {others}"))
            }
            Unready::Still(still) => {
                let verb = if still.len() == 1 { "STANDS" } else { "STAND" };
                let all = counted(shards, "shard");
                (
                    still.first().map(|shard| (shard.partition, shortened(shard.waits_for))),
                    format!("{} of {all} {verb} STILL, read the log", still.len()),
                )
            }
            Unready::SetBack(waiting) => {
                let verb = if waiting.len() == 1 { "IS" } else { "ARE" };
                let shards = counted(waiting.len(), "shard");
                (
                    waiting.first().map(|(partition, why)| (*partition, cause(why))),
                    format!("{shards} {verb} ACQUIRED AGAIN, read the log"),
                )
            }
        };
        match named {
            None => format!("huntd is not ready: {count}"),
            Some((partition, why)) => {
                format!("huntd is not ready: {count}; partition {partition}: {why}")
            }
        }
    }
}

/// Cuts the advice from a reason: a status line has little room.
pub(super) fn shortened(why: &str) -> &str {
    why.split(": ").next().unwrap_or_default()
}

/// `1 shard`, `2 shards`.
pub(super) fn counted(count: usize, one: &str) -> String {
    format!("{count} {}", noun(count, one))
}

fn noun(count: usize, one: &str) -> String {
    format!("{one}{}", if count == 1 { "" } else { "s" })
}

/// Returns why an attempt failed, without the advice after a semicolon. The part before a colon
/// alone would be the kind of trouble, without its cause.
fn cause(why: &str) -> &str {
    why.split("; ").next().unwrap_or_default()
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
