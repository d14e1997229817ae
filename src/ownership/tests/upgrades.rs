//! A zone that goes from version to version at random moments, with kills: instances of two
//! editions of a small game acquire it by the real decisions, and convert its real states.

use crate::kit::engine::{AnyRulebook, BlockReport, Engine, Migrated, ZoneDecoder, encode_state};
use crate::kit::event::Event;
use crate::kit::event_list::Events;
use crate::kit::rulebook::Rulebook;
use crate::kit::update::{Update, Updates};
use crate::output::encode::{decode, encode};
use crate::output::fence_id::InputTag;
use crate::output::fold::Start;
use crate::output::frame::{Chain, Format, FrameHeader, FrameKind};
use crate::output::mark::Mark;
use crate::output::reader::{Reader, Verdict};
use crate::ownership::acquired::Acquired;
use crate::ownership::acquisition::*;
use crate::ownership::bounds::Bounds;
use crate::ownership::start_error::StartError;
use crate::testing::random::Random;
use crate::testing::turf::events::{TurfAction, TurfUpdate};
use crate::testing::turf::first::play::Turf;
use crate::testing::turf::{FIRST_RULES, SECOND_RULES, random_events};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// What a faulty huntd would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Canary {
    /// The conversion does not know a field.
    FieldForgotten,
    /// A state that is not at the end of what is published is said to be.
    SwitchNotAtEnd,
    /// Another state is converted than the one that was chosen.
    OtherState,
    /// An instance that was fenced goes on as if it had not been.
    OldInstanceGoesOn,
}

const INPUT: [u8; 16] = [1; 16];

/// The state of an instance.
struct Owner {
    engine: Box<dyn Engine>,
    owner_epoch: u64,
    next_offset: i64,
    next_update: u64,
    chain: Chain,
}

/// A stored state.
struct Snapshot {
    candidate: Candidate,
    state: Vec<u8>,
}

/// A zone's input and output, and the snapshots that all instances see.
struct World {
    random: Random,
    canary: Option<Canary>,
    input: Vec<Event<TurfAction>>,
    output: Vec<Vec<u8>>,
    snapshots: Vec<Snapshot>,
    /// An instance that was killed, or that sleeps: it does not know that it was fenced.
    sleeper: Option<Owner>,
    fences: u128,
    seen: Sights,
}

/// How often something has happened.
#[derive(Clone, Copy, Debug, Default)]
struct Sights {
    upgrades: u32,
    downgrades: u32,
    waits: u32,
    repeated: u32,
    unfinished: u32,
}

fn rulebook(version: u32) -> AnyRulebook {
    match version {
        1 => Rulebook::of(FIRST_RULES).into(),
        _ => Rulebook::of(SECOND_RULES).into(),
    }
}

/// Applies input, up to an offset, and returns the updates.
fn apply(owner: &mut Owner, input: &[Event<TurfAction>], until: i64) -> Updates {
    let (mut updates, mut report) = (Updates::new(), BlockReport::new(0, u64::MAX));
    let part = owner.next_offset as usize..until.max(owner.next_offset) as usize;
    let events: Events = input[part].iter().copied().collect();
    owner.engine.apply_part(&events, 0..events.len(), &mut updates, &mut report);
    owner.next_offset += report.events as i64;
    for update in updates.as_slice() {
        owner.chain = owner.chain.with(update);
    }
    owner.next_update += updates.len() as u64;
    updates
}

impl World {
    fn new(seed: u64, canary: Option<Canary>) -> World {
        let mut random = Random::new(seed);
        let input = random_events(&mut random, 1_500);
        World {
            random,
            canary,
            input,
            output: Vec::new(),
            snapshots: Vec::new(),
            sleeper: None,
            fences: 0,
            seen: Sights::default(),
        }
    }

    fn one_in(&mut self, times: u64) -> bool {
        self.random.below(times) == 0
    }

    fn append(&mut self, header: &FrameHeader, updates: &[Update]) -> i64 {
        let mut bytes = Vec::new();
        encode(Format::Binary, rulebook(1).schema().updates, (header, updates), &mut bytes);
        self.output.push(bytes);
        self.output.len() as i64 - 1
    }

    fn mark(&self) -> Mark {
        let mut reader = Reader::new();
        for bytes in &self.output {
            let (header, updates) = decode(bytes, rulebook(1).schema().updates).expect("a frame");
            reader.fold(&header, &updates);
        }
        Mark::new(self.output.len() as i64, reader.position())
    }

    /// Takes a snapshot of everything that is published.
    fn store(&mut self, owner: &mut Owner) {
        let mut state = Vec::new();
        encode_state(&mut *owner.engine, &mut state);
        let candidate = Candidate {
            start: Start {
                next_offset: owner.next_offset,
                leader_epoch: None,
                next_update: owner.next_update,
                chain: owner.chain,
            },
            mark: self.mark(),
            ruleset: owner.engine.ruleset(),
            version: owner.engine.version(),
            skips: Vec::new(),
            is_of_deleted_input: false,
            is_here: true,
        };
        self.snapshots.push(Snapshot { candidate, state });
        let recency = |Snapshot { candidate, .. }: &Snapshot| {
            Reverse((candidate.mark.owner_epoch, candidate.start.next_offset))
        };
        self.snapshots.sort_by_key(recency);
        self.snapshots.truncate(3);
    }

    fn candidates(&self, version: u32) -> Vec<Candidate> {
        let mut candidates: Vec<_> =
            self.snapshots.iter().map(|snapshot| snapshot.candidate.clone()).collect();
        if let (Some(Canary::SwitchNotAtEnd), Some(newest)) = (self.canary, candidates.first_mut())
            && newest.version != version
        {
            let Mark { next_update, next_offset, chain, .. } = self.mark();
            newest.start = Start { next_update, next_offset, chain, leader_epoch: None };
        }
        candidates
    }

    /// An instance of a version acquires the zone. It may be killed before it has.
    fn acquire(&mut self, version: u32) -> Option<Result<Acquired, StartError>> {
        let rulebook = rulebook(version);
        let brief = Brief {
            partition: 0,
            rulesets: rulebook.rulesets(),
            version,
            candidates: self.candidates(version),
            to_skip: Vec::new(),
            remedy: Remedy::Refuse,
            diverged: false,
            changed_from: None,
            input: InputTag::of_topic(&INPUT),
            updates: rulebook.schema().updates,
        };
        let candidates = brief.candidates.clone();
        let bounds = Bounds {
            input_start: 0,
            input_end: self.input.len() as i64,
            input_leader_epoch: 0,
            output_start: 0,
            output_end: self.output.len() as i64,
        };
        let mut acquisition = Acquisition::begin(brief, bounds);
        loop {
            match acquisition.need() {
                Need::Read { from } | Need::Follow { from } => {
                    for offset in from..self.output.len() as i64 {
                        acquisition.take(offset, &self.output[offset as usize]);
                    }
                    acquisition.reach_end();
                    if let Need::Follow { .. } = acquisition.need() {
                        acquisition.bid();
                    }
                }
                Need::States => acquisition.offer(candidates.clone()),
                Need::Confirm { .. } if !acquisition.may_fence() => acquisition.follow(),
                Need::Await { .. } => acquisition.give_up_waiting(),
                Need::Confirm { .. } => {
                    self.fences += 1;
                    acquisition.confirm(self.fences);
                }
                Need::Append(_) if self.one_in(10) => {
                    self.seen.unfinished += 1;
                    return None;
                }
                Need::Append(header) => {
                    let offset = self.append(&header, &[]);
                    acquisition.appended(offset);
                }
                Need::End => return Some(acquisition.into_outcome()),
            }
        }
    }

    /// The engine that the zone starts with.
    fn load(&mut self, version: u32, acquired: &Acquired) -> Result<Box<dyn Engine>, String> {
        let rulebook = rulebook(version);
        let Some(candidate) = acquired.candidate else { return Ok(rulebook.new_zone(0)) };
        let Some(ruleset) = acquired.migrates_to else {
            let zone = rulebook.decode_zone(&self.snapshots[candidate].state);
            return zone.map_err(|error| error.to_string());
        };
        let mut state = self.snapshots[candidate].state.clone();
        match self.canary {
            Some(Canary::FieldForgotten) => {
                let field = b"\n score ";
                let at = state.windows(field.len()).position(|bytes| bytes == field);
                state[at.expect("players have a score") + 2] = b'x';
            }
            Some(Canary::OtherState) => {
                let other = self.snapshots.last().expect("one was chosen");
                state.clone_from(&other.state);
            }
            _ => {}
        }
        let rulebook = rulebook.beginning_by(ruleset).expect("the brief has it");
        Migrated(rulebook).decode_zone(&state).map_err(|error| error.to_string())
    }

    /// Publishes a frame of the next events.
    fn publish(&mut self, owner: &mut Owner) {
        let until = owner.next_offset + 1 + self.random.below(40) as i64;
        let until = until.min(self.input.len() as i64);
        let first_update = owner.next_update;
        let updates = apply(owner, &self.input, until);
        let header = FrameHeader {
            kind: FrameKind::Updates,
            owner_epoch: owner.owner_epoch,
            first_update,
            count: updates.len() as u32,
            next_offset: owner.next_offset,
            ruleset: owner.engine.ruleset(),
            chain: owner.chain,
            fence_id: 0,
        };
        self.append(&header, updates.as_slice());
    }

    /// An instance plays for a while. Then it is stopped in order, or not.
    fn play(&mut self, version: u32, acquired: &Acquired) -> Result<(), String> {
        let engine = self.load(version, acquired)?;
        let Start { next_offset, next_update, chain, .. } = acquired.start;
        let owner_epoch = acquired.owner_epoch;
        let mut owner = Owner { engine, owner_epoch, next_offset, next_update, chain };
        let Mark { next_offset, next_update, chain, .. } = acquired.mark;
        while owner.next_offset < next_offset {
            let until = next_offset.min(owner.next_offset + 100);
            apply(&mut owner, &self.input, until);
        }
        if (owner.next_update, owner.chain) != (next_update, chain) {
            return Err("a replay makes other updates than those published".to_owned());
        }
        for _ in 0..self.random.below(5) {
            self.publish(&mut owner);
            if self.one_in(4) {
                self.store(&mut owner);
            }
            if let Some(mut sleeper) = self.sleeper.take() {
                if self.canary == Some(Canary::OldInstanceGoesOn) {
                    sleeper.owner_epoch = owner_epoch;
                }
                self.publish(&mut sleeper);
            }
        }
        match self.one_in(2) {
            true => self.store(&mut owner),
            false => self.sleeper = Some(owner),
        }
        Ok(())
    }

    /// Instances come and go. Returns what is wrong.
    fn run(&mut self) -> Result<(), String> {
        let mut version = 1;
        for _ in 0..30 {
            if self.one_in(3) {
                version = 3 - version;
            }
            let last = self.snapshots.first().map_or(version, |newest| newest.candidate.version);
            let end = self.output.len();
            match self.acquire(version) {
                None => continue,
                Some(Err(StartError::EditionBehind { .. } | StartError::RulesetChanged { .. })) => {
                    self.seen.waits += 1;
                    assert_eq!(self.output.len(), end, "nobody is disturbed");
                }
                Some(Err(error)) => return Err(error.to_string()),
                Some(Ok(acquired)) => {
                    match acquired.migrates_to.is_some() {
                        true if self.output.len() == end + 1 => self.seen.repeated += 1,
                        true if last < version => self.seen.upgrades += 1,
                        true => self.seen.downgrades += 1,
                        false => {}
                    }
                    self.play(version, &acquired)?;
                }
            }
        }
        self.check()
    }

    /// A reader gets every update once, whichever version has made it, and nobody loses a point.
    fn check(&self) -> Result<(), String> {
        let (mut reader, mut published) = (Reader::new(), Vec::new());
        for bytes in &self.output {
            let (header, updates) = decode(bytes, rulebook(1).schema().updates).expect("a frame");
            match reader.fold(&header, &updates) {
                Verdict::Accepted { from } => published.extend_from_slice(&updates[from..]),
                Verdict::Halt => return Err("a reader halts".to_owned()),
                Verdict::Gap { missing } => return Err(format!("{missing} updates are missing")),
                _ => {}
            }
        }
        let mut scores = BTreeMap::new();
        let mut unscored = Vec::new();
        for update in &published {
            match update.change() {
                TurfUpdate::Painted { field, score } => {
                    let before = scores.insert(update.player_id(), score).unwrap_or(0);
                    if !(before + 1..=before + 2).contains(&score) {
                        return Err(format!("a score goes from {before} to {score}"));
                    }
                    let change = TurfUpdate::Painted { field, score: 0 };
                    unscored.push((update.player_id(), change));
                }
                change => {
                    if let TurfUpdate::Joined { .. } = change {
                        scores.remove(&update.player_id());
                    }
                    unscored.push((update.player_id(), change));
                }
            }
        }
        // Except for the points, both versions make the same of the input.
        let engine = Box::new(crate::kit::zone::Zone::<Turf>::new(0, &Rulebook::of(FIRST_RULES)));
        let (owner_epoch, next_offset, next_update) = (0, 0, 0);
        let chain = Chain::default();
        let mut whole = Owner { engine, owner_epoch, next_offset, next_update, chain };
        let mut expected = Vec::new();
        while whole.next_offset < reader.position().next_offset {
            let next_offset = whole.next_offset + 1;
            for update in apply(&mut whole, &self.input, next_offset).as_slice() {
                expected.push((
                    update.player_id(),
                    match update.change() {
                        TurfUpdate::Painted { field, .. } => {
                            TurfUpdate::Painted { field, score: 0 }
                        }
                        change => change,
                    },
                ));
            }
        }
        match unscored == expected {
            true => Ok(()),
            false => Err("the updates are not those of the input".to_owned()),
        }
    }
}

#[test]
fn upgrades_and_downgrades_at_random_moments_with_kills_lose_nothing() {
    let seeds = std::env::var("HUNTD_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    let mut seen = Sights::default();
    for seed in 0..seeds.unwrap_or(300) {
        let mut world = World::new(seed, None);
        world.run().unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        let Sights { upgrades, downgrades, waits, repeated, unfinished } = world.seen;
        seen.upgrades += upgrades;
        seen.downgrades += downgrades;
        seen.waits += waits;
        seen.repeated += repeated;
        seen.unfinished += unfinished;
    }
    let Sights { upgrades, downgrades, waits, repeated, unfinished } = seen;
    let counts = [upgrades, downgrades, waits, repeated, unfinished];
    assert!(counts.iter().all(|count| *count > 20), "{seen:?}");
}

#[test]
fn a_huntd_that_converts_wrongly_or_at_the_wrong_place_is_caught() {
    for canary in [
        Canary::FieldForgotten,
        Canary::SwitchNotAtEnd,
        Canary::OtherState,
        Canary::OldInstanceGoesOn,
    ] {
        let is_caught = |seed| World::new(seed, Some(canary)).run().is_err();
        assert!((0..10_000).any(is_caught), "{canary:?}");
    }
}
