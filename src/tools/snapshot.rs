//! `huntd snapshot`: lists, verifies or removes the snapshots in a state directory.

use super::failure::ToolError;
use super::{WhileRead, rulebook};
use crate::daemon::snapshots;
use crate::edition::Edition;
use crate::kit::engine::AnyRulebook;
use crate::service::cli::{SnapshotArgs, SnapshotVerb};
use crate::service::config::Config;
use crate::snapshot::disk::{Disk, Files, StateDirectory};
use crate::snapshot::format::{Header, Origin, SnapshotError};
use crate::snapshot::slots::{Found, Store};
use crate::telemetry::progress::TopicId;
use jiff::Timestamp;
use std::io::{self, Write};
use std::path::Path;

/// Lists, verifies or drops the snapshots of one shard or of all.
pub fn run(args: &SnapshotArgs, edition: &Edition) -> Result<(), ToolError> {
    let (SnapshotVerb::List(chosen) | SnapshotVerb::Verify(chosen) | SnapshotVerb::Drop(chosen)) =
        &args.verb;
    let config = chosen.config.load()?;
    let Some(directory) = &config.snapshot.directory else {
        return Err(ToolError::Config(
            "no snapshots are kept: set snapshot.directory; for those of a unit, add `--set \
             snapshot.directory=/var/lib/huntd`"
                .to_owned(),
        ));
    };
    let chosen = Chosen { directory, partition: chosen.partition };
    let mut store = store(&config, Files::of(directory));
    let mut out = WhileRead(io::stdout().lock());
    match &args.verb {
        SnapshotVerb::List(_) => match list(&mut store, chosen, &mut out)? {
            0 => super::warn(&chosen.none_found()),
            _ => Ok(()),
        },
        SnapshotVerb::Verify(_) => {
            let rulebook: AnyRulebook = rulebook(edition, &config.rules_files)?;
            verify(&mut store, &rulebook, chosen, &mut out)
        }
        SnapshotVerb::Drop(_) => drop_all(&config, &mut store, chosen, &mut out),
    }
}

/// The snapshots that the arguments name.
#[derive(Clone, Copy)]
struct Chosen<'a> {
    directory: &'a Path,
    /// The only partition; `None`: all.
    partition: Option<u16>,
}

impl Chosen<'_> {
    /// Returns the partitions.
    fn partitions<D: Disk>(self, store: &mut Store<D>) -> Result<Vec<i32>, ToolError> {
        let all = store.partitions().map_err(|error| self.unreadable(&error))?;
        let is_chosen = |it: &i32| self.partition.is_none_or(|chosen| *it == i32::from(chosen));
        Ok(all.into_iter().filter(is_chosen).collect())
    }

    /// Says that there are no snapshots, and where others may be.
    fn none_found(self) -> String {
        let directory = self.directory.display();
        match self.partition {
            None => format!(
                "no snapshots in {directory}: the daemon has stored none yet, or stores them \
                 elsewhere; the unit huntd@2 does so in /var/lib/huntd/2"
            ),
            Some(partition) => format!(
                "no snapshots of partition {partition} in {directory}: `huntd snapshot list` \
                 shows those of all partitions"
            ),
        }
    }

    fn unreadable(self, error: &io::Error) -> ToolError {
        ToolError::Config(format!(
            "the state directory {} cannot be used: {error}; set snapshot.directory to that of the \
             daemon, and be its user or root",
            self.directory.display()
        ))
    }
}

/// Opens the snapshots. No broker is asked for the topic's id, so only names identify its
/// snapshots.
fn store(config: &Config, files: Files) -> Store<Files> {
    Store::new(files, snapshots::origin(config, &TopicId::default()), config.snapshot.keep)
}

/// Lists the snapshots, and returns how many there are.
fn list<D: Disk>(
    store: &mut Store<D>,
    chosen: Chosen<'_>,
    out: &mut dyn Write,
) -> Result<usize, ToolError> {
    let mut count = 0;
    for partition in chosen.partitions(store)? {
        for found in store.found(partition).map_err(|error| chosen.unreadable(&error))? {
            writeln!(out, "{}", line(&found))?;
            count += 1;
        }
    }
    Ok(count)
}

fn line(found: &Found) -> String {
    let Found { name, header, .. } = found;
    match header {
        Ok(Header {
            next_offset,
            next_update,
            state_bytes,
            mark,
            origin,
            taken_at_ms,
            ruleset,
            ..
        }) => {
            let Origin { input_topic, .. } = origin;
            let taken_at = time_text(*taken_at_ms);
            format!(
                "{name}  {input_topic} next_offset={next_offset} next_update={next_update} \
                 bytes={state_bytes} ruleset={ruleset} epoch={} output_offset={} \
                 taken_at={taken_at}",
                mark.owner_epoch, mark.output_offset
            )
        }
        Err(error) => format!("{name}  {error}"),
    }
}

/// Returns a time in milliseconds since the Unix epoch as a text.
pub(super) fn time_text(time_ms: i64) -> String {
    Timestamp::from_millisecond(time_ms)
        .map_or_else(|_| format!("{time_ms}ms"), |time| time.to_string())
}

fn verify<D: Disk>(
    store: &mut Store<D>,
    rulebook: &AnyRulebook,
    chosen: Chosen<'_>,
    out: &mut dyn Write,
) -> Result<(), ToolError> {
    let mut verified = VerifiedCounts::default();
    for partition in chosen.partitions(store)? {
        let found = store.found(partition).map_err(|error| chosen.unreadable(&error))?;
        verified.add(store, (chosen, partition, found), rulebook, out)?;
    }
    match verified {
        VerifiedCounts { whole: 0, damaged: 0 } => {
            Err(ToolError::VerificationFailed(chosen.none_found()))
        }
        VerifiedCounts { damaged: 0, .. } => Ok(()),
        VerifiedCounts { whole, damaged } => Err(ToolError::VerificationFailed(format!(
            "{damaged} snapshots cannot be used, and {whole} can: a start takes the newest of \
             these, or replays the input. Check the disk. The damaged ones are replaced in time; \
             to remove all of them at once, stop the daemon and use `huntd snapshot drop`"
        ))),
    }
}

/// How many snapshots can be used, and how many cannot.
#[derive(Debug, Default, PartialEq, Eq)]
struct VerifiedCounts {
    whole: usize,
    damaged: usize,
}

impl VerifiedCounts {
    /// Reads the snapshots that were found for a partition. The daemon may run: one that it has
    /// replaced meanwhile counts as neither.
    fn add<D: Disk>(
        &mut self,
        store: &mut Store<D>,
        (chosen, partition, found): (Chosen<'_>, i32, Vec<Found>),
        rulebook: &AnyRulebook,
        out: &mut dyn Write,
    ) -> Result<(), ToolError> {
        for Found { name, header, .. } in found {
            let checked: Result<_, SnapshotError> =
                header.clone().and_then(|header| store.load(&header, rulebook));
            match checked {
                Ok(shard) => {
                    self.whole += 1;
                    writeln!(out, "{name}  whole  digest={:016x}", shard.digest())?;
                }
                Err(error) => {
                    let now = store.found(partition);
                    let now = now.map_err(|error| chosen.unreadable(&error))?;
                    if now.iter().any(|now| (&now.name, &now.header) == (&name, &header)) {
                        self.damaged += 1;
                        writeln!(out, "{name}  {error}")?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Removes the snapshots in a directory that has some: another one stays as it is.
fn drop_all(
    config: &Config,
    found: &mut Store<Files>,
    chosen: Chosen<'_>,
    out: &mut dyn Write,
) -> Result<(), ToolError> {
    if chosen.partitions(found)?.is_empty() {
        return super::warn(&format!("nothing is removed: {}", chosen.none_found()));
    }
    let taken = StateDirectory::take(chosen.directory);
    let taken = taken.map_err(|error| ToolError::Config(error.to_string()))?;
    let mut store = store(config, taken.files());
    for partition in chosen.partitions(&mut store)? {
        let removed = store.remove_all(partition).map_err(|error| chosen.unreadable(&error))?;
        writeln!(out, "partition {partition}: {removed} snapshots removed")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::engine::encode_state;
    use crate::kit::rulebook::Rulebook;
    use crate::output::frame::Chain;
    use crate::output::mark::Mark;
    use crate::snapshot::checkpoint::{Buffer, CheckpointHeader, CheckpointId};
    use crate::testing::memory_disk::Memory;
    use crate::testing::turf::FIRST_RULES;

    /// Stores a new zone's state, and returns the file's name.
    fn store_one(store: &mut Store<Memory>, rulebook: &AnyRulebook) -> String {
        let (mut zone, mut buffer) = (rulebook.new_zone(0), Buffer::new());
        encode_state(&mut *zone, buffer.bytes_mut());
        let checkpoint = CheckpointHeader {
            id: CheckpointId { partition: 0, ownership_id: 1, number: 1 },
            ruleset: zone.ruleset(),
            engine_version: zone.version(),
            next_offset: 5,
            leader_epoch: None,
            next_update: 0,
            chain: Chain::default(),
            digest: zone.digest(),
            skips: Vec::new(),
            state_bytes: zone.begin_checkpoint(),
        };
        let mut draft = store.begin(&checkpoint).expect("the disk is fine");
        store.write_block(&mut draft, &mut buffer).expect("the disk is fine");
        store.commit(draft, Mark::default(), 5).expect("the disk is fine");
        let found = store.found(0).expect("the disk is fine");
        found.first().expect("it was stored").name.clone()
    }

    #[test]
    fn a_snapshot_that_the_daemon_replaces_while_it_is_read_is_not_damaged() {
        let rulebook = AnyRulebook::from(Rulebook::of(FIRST_RULES));
        let mut disk = Memory::default();
        let mut store = Store::new(disk.clone(), Origin::default(), 3);
        let mut out = Vec::new();
        let chosen = Chosen { directory: Path::new("memory"), partition: None };
        assert_eq!(list(&mut store, chosen, &mut out).expect("it can be read"), 0);
        let [oldest, next, _newest] = [(); 3].map(|()| store_one(&mut store, &rulebook));
        assert_eq!(list(&mut store, chosen, &mut out).expect("it can be read"), 3);
        let found = || Store::new(disk.clone(), Origin::default(), 3).found(0).expect("it is fine");
        let (before, again) = (found(), found());
        disk.with_file(&next, |bytes| *bytes.last_mut().expect("it has a block") ^= 1);
        disk.rename(&oldest, "shard-0000.writing").expect("the disk is fine");
        for found in [before, again] {
            let mut verified = VerifiedCounts::default();
            verified
                .add(&mut store, (chosen, 0, found), &rulebook, &mut out)
                .expect("it can be read");
            assert_eq!(verified, VerifiedCounts { whole: 1, damaged: 1 });
        }
    }
}
