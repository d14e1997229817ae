//! `huntd replay`: computes updates and digests from events, without the daemon.

use super::accounts::{Account, Applied, OfflineShards};
use super::failure::ToolError;
use super::kafka::{self, Cluster, FETCH_WAIT_MS, TopicReader};
use super::past::{PlayedInput, StateOrigin};
use super::progress_bar::ProgressBar;
use super::source::{Source, SourceRecord};
use super::tap::write_update;
use crate::decoder::reject::Reject;
use crate::edition::Edition;
use crate::kafka::right::Right;
use crate::kit::engine::{AnyRulebook, GameSchema};
use crate::output::handoff::HandoffRecord;
use crate::service::cli::ReplayArgs;
use crate::service::config::Config;
use crate::telemetry::progress::SHARDS_MAX;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Display};
use std::io::{BufWriter, StdoutLock, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Limit of handoffs after one record: an event causes one, and few are sent back.
const HANDOFFS_PER_RECORD: usize = 16;

/// Number of rejects that are printed with their positions; further ones are only counted.
const REJECTS_NAMED: u64 = 10;

/// The offset of a record that the replay itself has made.
const IN_NO_FILE: i64 = -1;

/// Applies the events of a file or topic and prints the result.
pub fn run(args: &ReplayArgs, edition: &Edition) -> Result<(), ToolError> {
    let rulebook = super::rulebook(edition, &rules_files(args)?)?;
    let of_zone: AnyRulebook = rulebook.clone();
    let mut play = Play {
        game: edition.schema.game,
        shards: OfflineShards::passing_over(rulebook, &args.skip),
        out: BufWriter::new(std::io::stdout().lock()),
        line: Vec::new(),
        print_updates: args.updates,
        carry_players: args.carry_players,
        handoffs: VecDeque::new(),
        bar: ProgressBar::start(None),
        events: 0,
        rejects: 0,
        begun: None,
    };
    match (&args.file, &args.topic, args.until) {
        (Some(file), ..) => play.file(file)?,
        (None, Some(topic), _) => play.topic(&Cluster::of(&args.cluster, "replay")?, topic)?,
        (None, None, Some(place)) => {
            let config = args.cluster.load()?;
            play.until(&config.expect("`--until` requires it"), place, &of_zone)?;
        }
        (None, None, None) => {
            return Err(ToolError::Usage("name the source: --file, --topic or --until".into()));
        }
    }
    play.bar.finish();
    let reported = play.report(args.json);
    let total = play.shards.total();
    match &args.topic {
        Some(topic) if total.events > 0 && total.events == total.rejects => {
            Err(ToolError::TopicWrong(format!(
                "`{topic}` holds records, and none of them is an event; name the input topic"
            )))
        }
        _ => reported,
    }
}

/// Returns the rules files: those named in the arguments, or those of the configuration.
fn rules_files(args: &ReplayArgs) -> Result<Vec<PathBuf>, ToolError> {
    let config = if args.rules.is_empty() { args.cluster.load()? } else { None };
    Ok(config.map_or_else(|| args.rules.clone(), |config| config.rules_files))
}

struct Play<'a> {
    game: &'static GameSchema,
    shards: OfflineShards,
    out: BufWriter<StdoutLock<'a>>,
    line: Vec<u8>,
    print_updates: bool,
    carry_players: bool,
    /// Players in transit between zones.
    handoffs: VecDeque<HandoffRecord>,
    bar: ProgressBar,
    events: u64,
    rejects: u64,
    /// Where the state comes from that a replay up to a moment began with.
    begun: Option<StateOrigin>,
}

/// A record's position, as printed in a message.
#[derive(Clone, Copy)]
enum RecordPlace {
    /// A line in a file of events, from 1.
    Line(u64),
    /// A partition and offset in a topic.
    Offset(u16, i64),
}

impl RecordPlace {
    fn in_topic(record: &SourceRecord<'_>) -> RecordPlace {
        RecordPlace::Offset(record.partition, record.offset)
    }
}

impl Display for RecordPlace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordPlace::Line(line) => write!(out, "line {line}"),
            RecordPlace::Offset(partition, offset) => {
                write!(out, "partition {partition}, offset {offset}")
            }
        }
    }
}

impl Play<'_> {
    fn file(&mut self, file: &Path) -> Result<(), ToolError> {
        let mut source = Source::open_lines(file, SHARDS_MAX as u16, None)?;
        let mut line = 0;
        while let Some(record) = source.next_record()? {
            line += 1;
            self.play(&record, RecordPlace::Line(line))?;
        }
        Ok(())
    }

    /// Plays a zone up to this record.
    fn until(
        &mut self,
        config: &Config,
        (zone, offset): (i32, i64),
        rulebook: &AnyRulebook,
    ) -> Result<(), ToolError> {
        let zone = zone as u16;
        let mut played = PlayedInput::open(config, "replay")?;
        let end = played.after((zone, offset))?;
        let begun = played.begin((zone, end), rulebook)?;
        let from = begun.next_offset;
        self.begun = Some(begun.origin);
        self.shards.begin(zone, begun);
        played.reader.each(zone, from..end, |record| {
            self.play(record, RecordPlace::in_topic(record))?;
            Ok(ControlFlow::Continue(()))
        })
    }

    fn topic(&mut self, cluster: &Cluster, topic: &str) -> Result<(), ToolError> {
        let partitions = kafka::topic_partitions(&cluster.client, topic, Right::Read)?;
        let reader =
            TopicReader::connect(&cluster.client, topic, cluster.isolation, FETCH_WAIT_MS)?;
        let mut places = Vec::new();
        for partition in 0..partitions {
            let (start, end) = reader.bounds(partition)?;
            if start > 0 {
                return Err(ToolError::TopicWrong(format!(
                    "partition {partition} of `{topic}` begins at offset {start}: earlier \
                     records are deleted, and a state can only be replayed from its first event"
                )));
            }
            // Records appended since the start are left to the next replay.
            places.push((partition, 0..end));
        }
        reader.each_of(&places, |record| {
            self.play(record, RecordPlace::in_topic(record))?;
            Ok(ControlFlow::Continue(()))
        })
    }

    /// Applies a record, and hands over the players who leave by it to their new zones.
    fn play(&mut self, record: &SourceRecord<'_>, place: RecordPlace) -> Result<(), ToolError> {
        let reject = self.apply(record)?;
        if let Some(reject) = reject {
            self.name(reject, record, place)?;
        }
        self.carry(record.time_ms)
    }

    /// Prints one of the first rejects, with the reason.
    fn name(
        &mut self,
        reject: Reject,
        record: &SourceRecord<'_>,
        place: RecordPlace,
    ) -> Result<(), ToolError> {
        self.rejects += 1;
        if self.rejects > REJECTS_NAMED {
            return Ok(());
        }
        let sentence = self.shards.explain(reject, record.value);
        let line = format!("{place}: {}: {sentence}", reject.name());
        self.bar.beside(|| super::warn(&line))
    }

    fn apply(&mut self, record: &SourceRecord<'_>) -> Result<Option<Reject>, ToolError> {
        let Applied { first_update, updates, departures, reject } = self.shards.apply(record)?;
        if self.print_updates {
            for (number, update) in (first_update..).zip(updates) {
                self.line.clear();
                let place = (record.partition, number);
                write_update(&mut self.line, self.game.updates, place, update);
                self.out.write_all(&self.line)?;
            }
        }
        if self.carry_players {
            self.handoffs.extend(departures.iter().map(|(offset, departure)| HandoffRecord {
                partition: record.partition.into(),
                ownership_id: 0,
                offset: *offset,
                departure: *departure,
            }));
        }
        self.events += 1;
        self.bar.show(self.events);
        Ok(reject)
    }

    /// Hands over the players who have left a zone to their new zones. A player whom two full zones
    /// send back and forth stays in transit until a later record makes room.
    fn carry(&mut self, time_ms: i64) -> Result<(), ToolError> {
        for _ in 0..HANDOFFS_PER_RECORD {
            let Some(record) = self.handoffs.pop_front() else { break };
            let mut value = Vec::new();
            record.write(self.game.events, &mut value);
            let partition = record.departure.to_zone;
            self.apply(&SourceRecord {
                partition,
                offset: IN_NO_FILE,
                time_ms,
                value: Some(&value),
            })?;
        }
        Ok(())
    }

    fn report(&mut self, json: bool) -> Result<(), ToolError> {
        if let Some(unnamed @ 1..) = self.rejects.checked_sub(REJECTS_NAMED) {
            super::warn(&format!("and {unnamed} more rejects, counted by reason only"))?;
        }
        let accounts = self.shards.accounts();
        let total = self.shards.total();
        let begun = self.begun.map(StateOrigin::parts);
        if json {
            let mut report = serde_json::json!({ "total": total, "partitions": accounts });
            if let Some((source, offset)) = begun {
                report["state"] = serde_json::json!({ "source": source, "offset": offset });
            }
            writeln!(self.out, "{report}")?;
        } else {
            if let Some((source, offset)) = begun {
                writeln!(self.out, "from {source}, offset {offset}")?;
            }
            for (partition, account) in &accounts {
                write_account(&mut self.out, &format!("partition {partition}"), account)?;
            }
            write_account(&mut self.out, "total", &total)?;
        }
        self.out.flush()?;
        Ok(())
    }
}

/// Prints one account, one number per line.
fn write_account(out: &mut impl Write, name: &str, account: &Account) -> std::io::Result<()> {
    writeln!(out, "{name}")?;
    let none = BTreeMap::new();
    for (what, count, parts) in [
        ("events", account.events, &none),
        ("applied", account.applied, &none),
        ("updates", account.updates, &account.updates_by_kind),
        ("no-ops", account.no_ops, &none),
        ("refusals", account.refusals, &account.refusals_by_reason),
        ("rejects", account.rejects, &account.rejects_by_reason),
    ] {
        writeln!(out, "  {what:<12}{count:>14}")?;
        for (name, count) in parts {
            writeln!(out, "    {name:<20}{count:>14}")?;
        }
    }
    writeln!(out, "  chain       {:016x}", account.chain)?;
    writeln!(out, "  digest      {:016x}", account.digest)
}
