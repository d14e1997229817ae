//! `huntd snapshot`: lists, verifies or removes the snapshots in a state directory.

use super::failure::ToolError;
use super::rulebook;
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
    let mut out = io::stdout().lock();
    match &args.verb {
        SnapshotVerb::List(_) => {
            list(&mut store_of(&config, directory), chosen.partition, &mut out)
        }
        SnapshotVerb::Verify(_) => verify(edition, &config, directory, chosen.partition, &mut out),
        SnapshotVerb::Drop(_) => drop_all(&config, directory, chosen.partition, &mut out),
    }
}

fn store_of(config: &Config, directory: &Path) -> Store<Files> {
    store(config, Files::of(directory))
}

/// Opens the snapshots. No broker is asked for the topic's id, so only names identify its
/// snapshots.
fn store(config: &Config, files: Files) -> Store<Files> {
    Store::new(files, snapshots::origin(config, &TopicId::default()), config.snapshot.keep)
}

/// Returns the selected partitions.
fn partitions<D: Disk>(store: &mut Store<D>, chosen: Option<u16>) -> Result<Vec<i32>, ToolError> {
    let all = store.partitions().map_err(unreadable)?;
    let is_chosen = |partition: &i32| chosen.is_none_or(|chosen| *partition == i32::from(chosen));
    Ok(all.into_iter().filter(is_chosen).collect())
}

fn list(
    store: &mut Store<Files>,
    chosen: Option<u16>,
    out: &mut dyn Write,
) -> Result<(), ToolError> {
    for partition in partitions(store, chosen)? {
        for found in store.found(partition).map_err(unreadable)? {
            writeln!(out, "{}", line(&found))?;
        }
    }
    Ok(())
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

fn verify(
    edition: &Edition,
    config: &Config,
    directory: &Path,
    chosen: Option<u16>,
    out: &mut dyn Write,
) -> Result<(), ToolError> {
    let (mut store, mut damaged) = (store_of(config, directory), 0);
    let rulebook: AnyRulebook = rulebook(edition, &config.rules_files)?;
    for partition in partitions(&mut store, chosen)? {
        for Found { name, header, .. } in store.found(partition).map_err(unreadable)? {
            let checked: Result<_, SnapshotError> =
                header.and_then(|header| store.load(&header, &rulebook));
            match checked {
                Ok(shard) => writeln!(out, "{name}  whole  digest={:016x}", shard.digest())?,
                Err(error) => {
                    damaged += 1;
                    writeln!(out, "{name}  {error}")?;
                }
            }
        }
    }
    match damaged {
        0 => Ok(()),
        count => Err(ToolError::VerificationFailed(format!(
            "{count} snapshots cannot be used; the others can, and each start takes the newest"
        ))),
    }
}

fn drop_all(
    config: &Config,
    directory: &Path,
    chosen: Option<u16>,
    out: &mut dyn Write,
) -> Result<(), ToolError> {
    let taken = StateDirectory::take(directory);
    let taken = taken.map_err(|error| ToolError::Config(error.to_string()))?;
    let mut store = store(config, taken.files());
    for partition in partitions(&mut store, chosen)? {
        let removed = store.remove_all(partition).map_err(unreadable)?;
        writeln!(out, "partition {partition}: {removed} snapshots removed")?;
    }
    Ok(())
}

fn unreadable(error: io::Error) -> ToolError {
    ToolError::Config(format!("the state directory cannot be used: {error}"))
}
