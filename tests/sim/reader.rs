//! Readers of the output, and the pure replay that they are compared with.

use crate::broker::{InputLog, OutputLog};
use crate::chance::{Chance, Sight};
use crate::editions::{Takeover, converted};
use crate::game::Record;
use crate::mutation::Mutation;
use crate::stranger::EPOCH_STEP_MAX;
use huntd::decoder::{Decoder, RecordPosition};
use huntd::hunt::Shard;
use huntd::hunt::change::Change;
use huntd::hunt::event::{Action, EVENTS};
use huntd::hunt::frames::decode_frame;
use huntd::hunt::rules::rulebook::Rulebook;
use huntd::hunt::state::TreasureHunt;
use huntd::kit::update::{Update, Updates};
use huntd::output::fold::Start;
use huntd::output::frame::{Chain, FrameHeader, FrameKind};
use huntd::output::handoff::HandoffRecord;
use huntd::output::mark::Mark;
use huntd::output::reader::{Reader, Verdict};
use std::collections::{BTreeMap, BTreeSet};

/// A part of a zone's history that an output tells of: from the log's start on, or from a genesis.
#[derive(Default)]
pub(crate) struct Era {
    /// Where it begins in the input, and in the updates.
    pub(crate) begin: Start,
    /// Number of the first update in `accepted`.
    first: u64,
    accepted: Vec<Update>,
    pub(crate) skips: BTreeSet<i64>,
    /// Where other editions have taken it over.
    pub(crate) takeovers: Vec<Takeover>,
    /// The rules of the last frame that counted.
    ruleset: Option<u32>,
    /// The rules that it began by; of the first era, those of its last owner before any frame
    /// counted.
    begun_by: Option<u32>,
}

/// A reader that follows one output partition.
pub(crate) struct Follower {
    reader: Reader,
    /// The output offset that is read next.
    pub(crate) next: i64,
    /// The era that goes on.
    pub(crate) era: Era,
    /// The eras before it.
    pub(crate) past: Vec<Era>,
    /// The highest owner epoch of a fence so far, kept apart from the reader.
    fenced: u64,
    /// It has read the log from its start.
    is_sure: bool,
    /// Where the reader stood before each record.
    pub(crate) marks: Vec<Mark>,
    mutation: Mutation,
}

impl Follower {
    /// A reader from the log's start on.
    pub(crate) fn new(mutation: Mutation) -> Follower {
        Follower::from(Reader::new(), 0, mutation)
    }

    fn from(reader: Reader, next: i64, mutation: Mutation) -> Follower {
        Follower {
            era: Era { first: reader.position().next_update, ..Era::default() },
            past: Vec::new(),
            fenced: reader.position().owner_epoch,
            is_sure: reader.has_joined(),
            reader,
            next,
            marks: Vec::new(),
            mutation,
        }
    }

    /// A reader that comes to the log here, and joins it where it can.
    pub(crate) fn joining(at: i64) -> Follower {
        Follower::from(Reader::joining(), at, Mutation::None)
    }

    /// Whether it stands where one that has read everything stands.
    pub(crate) fn stands_with(&self, whole: &Follower) -> bool {
        let (position, end) = (self.reader.position(), whole.reader.position());
        self.reader.has_joined()
            && position.owner_epoch == end.owner_epoch
            && position.next_update == end.next_update
            && position.chain == end.chain
            && position.next_offset >= end.next_offset
    }

    /// Whether it does so as far as it can know: that it has joined at a fence that was written too
    /// late, or twice, shows with later records. It must if an owner has repeated its fence in time
    /// since, and no update was missing then. An owner whose epoch is out of its reach, because a
    /// fence was forged while an earlier owner played on, tells it nothing.
    pub(crate) fn has_come_to(&self, whole: &Follower, log: &OutputLog, from: i64) -> bool {
        let position = self.reader.position();
        let told = |at: i64| {
            let Ok((header, _)) = decode_frame(&log.records[at as usize]) else { return false };
            let mark = whole.marks[at as usize];
            let is_in_reach =
                header.owner_epoch.saturating_sub(position.owner_epoch) <= EPOCH_STEP_MAX;
            header.kind == FrameKind::Fence
                && is_in_reach
                && header.next_offset >= 0
                && (header.owner_epoch, header.first_update) == (mark.owner_epoch, mark.next_update)
        };
        // What no owner has written may have led it astray until then.
        let from = log.forged.map_or(from, |forged| from.max(forged + 1));
        self.stands_with(whole) || self.reader.gaps > 0 || !(from..log.end()).any(told)
    }

    /// Reads what has come.
    pub(crate) fn follow(&mut self, log: &OutputLog, chance: &mut Chance) -> Result<(), String> {
        while self.next < log.end() {
            let bytes = &log.records[self.next as usize];
            self.marks.push(Mark::new(self.next, self.reader.position()));
            self.take(bytes, chance)
                .map_err(|what| format!("output offset {}: {what}", self.next))?;
            self.next += 1;
        }
        Ok(())
    }

    fn take(&mut self, bytes: &[u8], chance: &mut Chance) -> Result<(), String> {
        let (mut header, updates) = decode_frame(bytes).map_err(|error| format!("{error:?}"))?;
        let (owner_epoch, position) = (header.owner_epoch, self.reader.position());
        if header.kind == FrameKind::Fence {
            if owner_epoch.saturating_sub(position.owner_epoch) <= EPOCH_STEP_MAX {
                self.fenced = self.fenced.max(owner_epoch);
            }
            if header.next_offset >= 0 {
                chance.see(Sight::FenceRepeated);
            }
        } else if self.mutation == Mutation::AnyOwnerEpoch {
            header.owner_epoch = header.owner_epoch.max(position.owner_epoch);
        }
        match self.reader.fold(&header, &updates) {
            Verdict::Accepted { from } => {
                // One that joins gives its epoch up for one that is too far away.
                if owner_epoch < self.fenced && self.is_sure {
                    return Err(format!(
                        "a frame of owner epoch {owner_epoch} counts after {}",
                        self.fenced
                    ));
                }
                self.take_rules(&header, &updates[from..], chance)?;
                self.era.accepted.extend_from_slice(&updates[from..]);
            }
            Verdict::Halt => return Err("the chain does not match".to_owned()),
            Verdict::Skip { offset } => {
                self.era.skips.insert(offset);
                chance.see(Sight::RecordSkipped);
            }
            Verdict::Joined => {
                chance.see(Sight::LateReaderJoined);
                let first = self.reader.position().next_update;
                self.era = Era { first, ..Era::default() };
            }
            Verdict::Genesis => {
                let FrameHeader { next_offset, first_update: next_update, chain, .. } = header;
                let ruleset = Some(header.ruleset);
                let era = Era {
                    begin: Start { next_offset, leader_epoch: None, next_update, chain },
                    first: next_update,
                    ruleset,
                    begun_by: ruleset,
                    ..Era::default()
                };
                self.past.push(std::mem::replace(&mut self.era, era));
            }
            Verdict::Stale => chance.see(Sight::FramesStale),
            Verdict::Duplicate => chance.see(Sight::FramesDuplicate),
            Verdict::Gap { .. } => chance.see(Sight::FramesGap),
            Verdict::Progress { is_at_next: true } => {
                let FrameHeader { next_offset, ruleset, .. } = header;
                let before = self.era.ruleset.replace(ruleset).filter(|before| *before != ruleset);
                let takeover = before.map(|before| Takeover { next_offset, before, ruleset });
                self.era.takeovers.extend(takeover);
            }
            Verdict::Fence if self.era.ruleset.is_none() && position.owner_epoch < owner_epoch => {
                self.era.begun_by = Some(header.ruleset);
            }
            Verdict::Progress { .. } | Verdict::Fence | Verdict::Waiting => {}
        }
        Ok(())
    }

    /// A frame tells the rules by which its last update was made.
    fn take_rules(
        &mut self,
        header: &FrameHeader,
        updates: &[Update],
        chance: &mut Chance,
    ) -> Result<(), String> {
        for update in updates {
            if let Change::RulesChanged { ruleset, .. } = update.change() {
                self.era.ruleset = Some(ruleset);
                chance.see(Sight::RulesChanged);
            }
        }
        match self.era.ruleset.replace(header.ruleset) {
            Some(told) if told != header.ruleset => {
                Err(format!("a frame of ruleset {} under {told}", header.ruleset))
            }
            _ => Ok(()),
        }
    }

    /// Where the reader stands.
    pub(crate) fn mark(&self) -> Mark {
        Mark::new(self.next, self.reader.position())
    }

    pub(crate) fn next_update(&self) -> u64 {
        self.era.first + self.era.accepted.len() as u64
    }
}

impl Era {
    /// These rules, from those on that the era began by.
    pub(crate) fn rules_from(&self, rulebook: &Rulebook) -> Rulebook {
        let begun = self.begun_by.and_then(|ruleset| rulebook.beginning_by(ruleset));
        begun.unwrap_or_else(|| rulebook.clone())
    }

    /// The rules of its last frame, or those that an empty zone begins by.
    pub(crate) fn ruleset_or(&self, rulebook: &Rulebook) -> u32 {
        let first = || rulebook.rulesets().next().expect("there are rules");
        self.ruleset.or(self.begun_by).unwrap_or_else(first)
    }

    /// Whether what was accepted is what the replay makes from there on; not all of it has to be
    /// there.
    pub(crate) fn agrees(&self, replay: &Replay) -> Result<(), String> {
        if self.accepted.is_empty() {
            return Ok(());
        }
        let Some(start) = self.first.checked_sub(replay.begin.next_update) else {
            return Err(format!("updates from {} on are of an era that is gone", self.first));
        };
        let (start, end) = (start as usize, start as usize + self.accepted.len());
        let Some(wanted) = replay.updates.get(start..end) else {
            return Err(format!("{end} updates, and the replay makes {}", replay.updates.len()));
        };
        let differs = wanted.iter().zip(&self.accepted).position(|(a, b)| a.words() != b.words());
        match differs {
            Some(at) => Err(format!("update {} is not the replay's", self.first as usize + at)),
            None => Ok(()),
        }
    }

    /// Whether what was accepted begins like a replay of the input's beginning alone.
    pub(crate) fn agrees_as_far(&self, replay: &Replay) -> Result<(), String> {
        let pairs = replay.updates.iter().zip(&self.accepted);
        match pairs.into_iter().position(|(a, b)| a.words() != b.words()) {
            Some(at) => Err(format!("update {at} is not the replay's")),
            None => Ok(()),
        }
    }
}

/// The updates of a shard's input from the beginning of its era on, played without huntd's
/// pipeline.
pub(crate) struct Replay {
    pub(crate) begin: Start,
    pub(crate) updates: Vec<Update>,
    /// Offsets of the records that are no events, or passed over.
    pub(crate) letters: BTreeSet<i64>,
    /// Players that have left for another zone.
    pub(crate) handoffs: Vec<HandoffRecord>,
    pub(crate) shard: Shard,
    pub(crate) chain: Chain,
}

impl Replay {
    pub(crate) fn of(log: &InputLog, partition: i32, era: &Era, rulebook: &Rulebook) -> Replay {
        Replay::of_records(&log.records, partition, era, rulebook)
    }

    pub(crate) fn of_records(
        records: &BTreeMap<i64, Record>,
        partition: i32,
        era: &Era,
        rulebook: &Rulebook,
    ) -> Replay {
        let mut shard = Shard::new(partition as u16, &era.rules_from(rulebook));
        let mut takeovers = era.takeovers.iter().peekable();
        let mut decoder = Decoder::new(&EVENTS);
        let mut updates = Updates::new();
        let (mut all, mut letters, mut handoffs) = (Vec::new(), BTreeSet::new(), Vec::new());
        for (offset, record) in records.range(era.begin.next_offset..) {
            while let Some(takeover) = takeovers.next_if(|it| it.next_offset <= *offset) {
                shard = converted(shard, takeover.ruleset, rulebook);
            }
            let position = RecordPosition { offset: *offset, time_ms: record.time_ms };
            match decoder.decode::<Action>(position, record.value.as_deref()) {
                Ok(event) if !era.skips.contains(offset) => {
                    shard.apply(&event, &mut updates);
                    handoffs.extend(HandoffRecord::all::<TreasureHunt>(
                        partition,
                        *offset,
                        updates.as_slice(),
                    ));
                    all.extend_from_slice(updates.as_slice());
                    updates.clear();
                }
                _ => {
                    letters.insert(*offset);
                }
            }
        }
        for takeover in takeovers {
            shard = converted(shard, takeover.ruleset, rulebook);
        }
        let chain = all.iter().fold(era.begin.chain, |chain, update| chain.with(update));
        Replay { begin: era.begin, updates: all, letters, handoffs, shard, chain }
    }
}
