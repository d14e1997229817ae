//! `huntd rehearse`: another version of the game beside the one that plays, without publishing.

use super::failure::ToolError;
use super::kafka::NO_END;
use super::past::{BegunZone, Decided, PastZone, PlayedInput, skips_of};
use super::source::SourceRecord;
use crate::edition::Edition;
use crate::kit::engine::{AnyRulebook, encode_state};
use crate::service::cli::RehearseArgs;
use crate::telemetry::printable::printable;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Time between two reports of a rehearsal that goes on.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// Rehearses the chosen edition beside another one of the program: the one that plays.
pub fn run(args: &RehearseArgs, chosen: &Edition, editions: &[Edition]) -> Result<(), ToolError> {
    let others: Vec<&Edition> = editions.iter().filter(|edition| *edition != chosen).collect();
    if others.is_empty() {
        return Err(ToolError::Usage(format!(
            "this program has version {} of the game only: rehearse with a program that also has \
             the version that plays (docs/OPERATIONS.md#a-new-version-of-the-game)",
            chosen.version
        )));
    }
    let config = args.config.load()?;
    let mut input = PlayedInput::open(&config, "rehearse")?;
    let files = if args.rules.is_empty() { &config.rules_files } else { &args.rules };
    let next: AnyRulebook = super::rulebook(chosen, files)?;
    let others: Result<Vec<AnyRulebook>, ToolError> = others
        .iter()
        .map(|of| Ok(super::rulebook(of, &config.rules_files)? as AnyRulebook))
        .collect();
    let others = others?;
    let (mut zones, mut places) = (BTreeMap::new(), Vec::new());
    for zone in 0..input.zones as u16 {
        let (begun, playing) = newest(&mut input, zone, &others)?;
        let end = if args.once { input.offsets(zone)?.end } else { NO_END };
        places.push((zone, begun.next_offset..end));
        let skips = skips_of(zone, &args.skip);
        zones.insert(zone, RehearsedZone::begin(begun, (playing, skips), &next)?);
    }
    let mut rehearsal = Rehearsal { is_json: args.json, ..Rehearsal::default() };
    let mut reported_at = Instant::now();
    let ended = input.reader.each_of(&places, |record| {
        let zone = zones.get_mut(&record.partition).expect("only zones are read");
        rehearsal.take(zone, record)?;
        if !args.once && reported_at.elapsed() >= REPORT_EVERY {
            reported_at = Instant::now();
            rehearsal.report()?;
        }
        Ok(ControlFlow::Continue(()))
    });
    let reported = rehearsal.report();
    ended.and(reported)
}

/// Returns a zone as the newest snapshot of one of these versions has it, and that version.
fn newest<'a>(
    input: &mut PlayedInput,
    zone: u16,
    editions: &'a [AnyRulebook],
) -> Result<(BegunZone, &'a AnyRulebook), ToolError> {
    let mut newest: Option<(BegunZone, &AnyRulebook)> = None;
    for edition in editions {
        let found = input.snapshot(zone, edition)?;
        let is_newer = |found: &BegunZone| {
            newest.as_ref().is_none_or(|(newest, _)| newest.next_offset < found.next_offset)
        };
        if let Some(found) = found.filter(is_newer) {
            newest = Some((found, edition));
        }
    }
    newest.ok_or_else(|| {
        ToolError::Config(format!(
            "zone {zone} has no snapshot of another version that this program has: rehearse with \
             a program that has the version that plays, too, and with its snapshot.directory or \
             snapshot.topic"
        ))
    })
}

/// A zone by two versions of the game.
struct RehearsedZone {
    playing: PastZone,
    next: PastZone,
}

impl RehearsedZone {
    fn begin(
        begun: BegunZone,
        (playing, skips): (&AnyRulebook, BTreeSet<i64>),
        next: &AnyRulebook,
    ) -> Result<RehearsedZone, ToolError> {
        let mut playing = PastZone::new(begun, playing, skips);
        let mut state = Vec::new();
        encode_state(&mut *playing.engine, &mut state);
        let engine = next.migrated_zone(&state);
        let engine = engine.map_err(|error| ToolError::VerificationFailed(error.to_string()))?;
        let next = playing.by(engine, next);
        Ok(RehearsedZone { playing, next })
    }

    /// Applies a record by both versions. Returns how each has decided it; `None` if it names rules
    /// that the rehearsed version does not have, which plays on by its own.
    fn take(&mut self, record: &SourceRecord<'_>) -> Result<Option<[Judgement; 2]>, ToolError> {
        let RehearsedZone { playing, next } = self;
        let played = Judgement::of(playing, record)?;
        match Judgement::of(next, record) {
            Ok(rehearsed) => Ok(Some([played, rehearsed])),
            // Rules are named by a hash of all that decides, so each version has its own names.
            Err(_) if next.lacks_rules() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// How a version has decided a record.
#[derive(PartialEq)]
struct Judgement {
    outcome: &'static str,
    reason: Option<&'static str>,
    /// As JSON, because another version may number the kinds otherwise. Once one version has made
    /// more updates than the other, the numbers of all that follow differ: they do not count.
    updates: Vec<u8>,
}

impl Judgement {
    fn of(zone: &mut PastZone, record: &SourceRecord<'_>) -> Result<Judgement, ToolError> {
        let decided = zone.apply(record)?;
        let reason = match &decided {
            Decided::Rejected(reject) => Some(reject.name()),
            Decided::Refused(_, reason) => Some(*reason),
            Decided::Applied(_) | Decided::NoOp(..) => None,
        };
        let mut updates = Vec::new();
        zone.write_updates(&mut updates);
        Ok(Judgement { outcome: decided.name(), reason, updates })
    }

    fn decision(&self) -> (&'static str, Option<&'static str>) {
        (self.outcome, self.reason)
    }

    fn to_json(&self, updates: &[Value]) -> Value {
        json!({ "outcome": self.outcome, "reason": self.reason, "updates": updates })
    }
}

/// What a rehearsal has shown so far.
#[derive(Default)]
struct Rehearsal {
    is_json: bool,
    events: u64,
    /// Events with another outcome, or another reason for it.
    other_outcomes: u64,
    /// Events with the same outcome and other updates.
    other_updates: u64,
    /// Events that name rules of the version that plays.
    rules_changes: u64,
    /// The first event with another outcome or other updates.
    first: Option<Value>,
}

impl Rehearsal {
    fn take(
        &mut self,
        zone: &mut RehearsedZone,
        record: &SourceRecord<'_>,
    ) -> Result<(), ToolError> {
        self.events += 1;
        let Some(judgements) = zone.take(record)? else {
            self.rules_changes += 1;
            return Ok(());
        };
        let [played, rehearsed] = &judgements;
        if played == rehearsed {
            return Ok(());
        }
        match played.decision() == rehearsed.decision() {
            true => self.other_updates += 1,
            false => self.other_outcomes += 1,
        }
        if self.first.is_some() {
            return Ok(());
        }
        let updates = [&zone.playing, &zone.next].map(|it| it.updates_as_json(record.partition));
        let (played, rehearsed) = (played.to_json(&updates[0]), rehearsed.to_json(&updates[1]));
        let text = String::from_utf8_lossy(record.value.unwrap_or_default());
        let versions = [&zone.playing, &zone.next].map(|zone| zone.engine.version());
        let (source, offset) = zone.playing.origin.parts();
        self.first = Some(json!({
            "zone": record.partition,
            "offset": record.offset,
            "record": text,
            "versions": versions,
            "played": played,
            "rehearsed": rehearsed,
            "state": { "source": source, "offset": offset },
        }));
        if !self.is_json {
            self.write_first((record, &text), versions, (&judgements, &updates))?;
        }
        Ok(())
    }

    fn write_first(
        &self,
        (record, text): (&SourceRecord<'_>, &str),
        versions: [u32; 2],
        (judgements, updates): (&[Judgement; 2], &[Vec<Value>; 2]),
    ) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(
            out,
            "the first other outcome: zone {}, offset {}",
            record.partition, record.offset
        )?;
        writeln!(out, "  record     {}", printable(text))?;
        let judged = versions.iter().zip(judgements).zip(updates);
        for ((version, Judgement { outcome, reason, .. }), updates) in judged {
            let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
            writeln!(out, "  version {version}  {outcome}{reason}")?;
            for update in updates {
                writeln!(out, "    update   {update}")?;
            }
        }
        Ok(())
    }

    fn report(&self) -> Result<(), ToolError> {
        let Rehearsal { events, other_outcomes, other_updates, rules_changes, first, .. } = self;
        let mut out = io::stdout().lock();
        match self.is_json {
            true => {
                let report = json!({
                    "events": events,
                    "other_outcomes": other_outcomes,
                    "other_updates": other_updates,
                    "rules_changes": rules_changes,
                    "first": first,
                });
                writeln!(out, "{report}")?;
            }
            false => writeln!(
                out,
                "{events} events, {other_outcomes} with another outcome, {other_updates} with \
                 other updates alone, {rules_changes} changes of the rules that are not rehearsed"
            )?,
        }
        Ok(out.flush()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hunt::rules::tests::sample;
    use crate::kit::rulebook::{GameRules, Rulebook};
    use crate::output::frame::Chain;
    use crate::testing::turf::FIRST_RULES;
    use crate::tools::past::StateOrigin;

    /// A zone of this book before its first record.
    fn begun(rulebook: &AnyRulebook, next_update: u64) -> BegunZone {
        BegunZone {
            engine: rulebook.new_zone(0),
            origin: StateOrigin::Start,
            next_offset: 0,
            next_update,
            chain: Chain::default(),
            skips: BTreeSet::new(),
        }
    }

    #[test]
    fn a_change_of_the_rules_is_counted_and_the_rehearsal_goes_on() {
        let (first, mut later) = (sample(), sample());
        later.actors.respawn_ms += 1;
        let mut both = Rulebook::of(first.clone());
        both.add(later.clone()).expect("the map is the same");
        let (playing, next) = (AnyRulebook::from(both), AnyRulebook::from(Rulebook::of(first)));
        let begun = begun(&playing, 0);
        let zone = RehearsedZone::begin(begun, (&playing, BTreeSet::from([1])), &next);
        let mut zone = zone.unwrap_or_else(|error| panic!("{error}"));
        let change = format!(r#"{{"type":"rules_change","ts_us":1,"ruleset":{}}}"#, later.hash());
        let join = r#"{"type":"join","player_id":7,"seq":1,"ts_us":1,"x":1,"y":1}"#.to_owned();
        let mut rehearsal = Rehearsal::default();
        for (offset, value) in (0..).zip([&change, &join, &join]) {
            let value = Some(value.as_bytes());
            let record = SourceRecord { partition: 0, offset, time_ms: 1, value };
            rehearsal.take(&mut zone, &record).unwrap_or_else(|error| panic!("{error}"));
        }
        let Rehearsal { events, rules_changes, other_outcomes, other_updates, .. } = rehearsal;
        assert_eq!((events, rules_changes, other_outcomes, other_updates), (3, 1, 0, 0));
        assert_eq!(zone.playing.engine.ruleset(), later.hash());
        // The second record is skipped by both.
        let joined = [&zone.playing, &zone.next].map(|zone| zone.updates_as_json(0).len());
        assert_eq!(joined, [1, 1]);
    }

    #[test]
    fn updates_that_differ_in_nothing_but_their_numbers_are_the_same() {
        let rulebook = AnyRulebook::from(Rulebook::of(FIRST_RULES));
        let [mut first, mut later] = [0, 5].map(|next_update| {
            PastZone::new(begun(&rulebook, next_update), &rulebook, BTreeSet::new())
        });
        let value = br#"{"type":"join","player_id":7,"seq":1,"ts_us":1,"field":3}"#;
        let record = SourceRecord { partition: 0, offset: 0, time_ms: 1, value: Some(value) };
        let [by_first, by_later] =
            [&mut first, &mut later].map(|zone| Judgement::of(zone, &record).expect("it applies"));
        assert!(by_first.outcome == "applied" && !by_first.updates.is_empty());
        assert!(by_first == by_later);
        assert_ne!(first.updates_as_json(0), later.updates_as_json(0), "tap shows the numbers");
    }
}
