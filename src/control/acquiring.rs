//! Shards that are being acquired, and jumps that are being bridged: the decisions of
//! [`Acquisition`] and [`Bridge`], and the topics that they need, brought together.

use crate::control::output_log::{OutputEvent, OutputLog};
use crate::kafka::READ_STALL_MS_MAX;
use crate::kafka::topic_error::TopicError;
use crate::ownership::acquisition::{Acquired, Acquisition, Brief, Candidate, Need};
use crate::ownership::gap_check::{Gap, GapCheck, GapResult};
use crate::ownership::start_error::StartError;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::time::{Duration, Instant};

/// Output partitions that are read at once while something comes of each. Were it all of them, the
/// first shard would be acquired when the last one is, and nothing replayed until then.
const READ_AT_ONCE: usize = 4;

/// After so long without anything, an output partition leaves its place to another.
const LIVELY: Duration = Duration::from_millis(100);

/// What became of a shard that was acquired, or of a jump.
pub(super) enum Outcome {
    /// The shard is ours.
    Acquired(Acquired),
    /// It is, and cannot be started.
    Refused { partition: i32, refusal: StartError },
    /// Brokers or topics are not as they have to be.
    Failed { partition: i32, error: TopicError },
    /// What lies between two of our frames.
    Crossed { jump: Gap, crossed: GapResult },
}

/// What is done at one output partition.
enum Errand {
    Acquire(Box<Acquisition>),
    Bridge(Box<GapCheck>),
}

struct Work {
    errand: Errand,
    /// What was last asked for, beside reading.
    asked: Option<Need>,
    /// Output offset from which reading goes on by itself.
    reading: Option<i64>,
    /// The end was told, and nothing came since: it is not told again by itself.
    at_end: bool,
    /// When it was begun, or something last came of it; `None` while it waits for a place.
    moved_at: Option<Instant>,
}

/// All that is done at the output now, by partition.
pub(super) struct Acquiring {
    tail: OutputLog,
    works: BTreeMap<i32, Work>,
}

impl Acquiring {
    pub(super) fn new(tail: OutputLog) -> Acquiring {
        Acquiring { tail, works: BTreeMap::new() }
    }

    /// Partitions of the topics.
    pub(super) fn partitions(&self) -> i32 {
        self.tail.partitions()
    }

    /// Whether nothing is done.
    pub(super) fn is_idle(&self) -> bool {
        self.works.is_empty()
    }

    /// Begins to acquire shards, and returns those that have no leader now.
    pub(super) fn begin(&mut self, briefs: Vec<Brief>) -> Result<Vec<i32>, TopicError> {
        let partitions: Vec<i32> = briefs.iter().map(|brief| brief.partition).collect();
        let bounds = self.tail.bounds(&partitions)?;
        let mut leaderless = Vec::new();
        for brief in briefs {
            let partition = brief.partition;
            let Some(bounds) = bounds.get(&partition) else {
                leaderless.push(partition);
                continue;
            };
            let acquisition = Acquisition::begin(brief, *bounds);
            self.put(partition, Errand::Acquire(Box::new(acquisition)));
        }
        Ok(leaderless)
    }

    /// Begins to read what lies between two of our frames.
    pub(super) fn check_gap(&mut self, jump: Gap) {
        self.put(jump.partition, Errand::Bridge(Box::new(GapCheck::new(jump))));
    }

    fn put(&mut self, partition: i32, errand: Errand) {
        self.give_up(partition);
        self.works.insert(partition, Work::new(errand));
    }

    /// Forgets what is done for a partition.
    pub(super) fn give_up(&mut self, partition: i32) {
        if self.works.remove(&partition).is_some() {
            self.tail.forget(partition);
        }
    }

    /// The shards for which the group has to be asked now, with the offsets to be committed.
    pub(super) fn questions(&mut self) -> Vec<(i32, i64)> {
        let mut questions = Vec::new();
        for (partition, work) in &mut self.works {
            if let Errand::Acquire(acquisition) = &work.errand
                && let wish @ Need::Confirm { next_offset } = acquisition.wish()
                && work.asked != Some(wish)
            {
                work.asked = Some(wish);
                questions.push((*partition, next_offset));
            }
        }
        questions
    }

    /// A shard for which more states are asked for.
    pub(super) fn wants_states(&self) -> Option<i32> {
        let wants = |work: &Work| work.wish() == Need::States;
        self.works.iter().find(|(_, work)| wants(work)).map(|(partition, _)| *partition)
    }

    /// These are all states that a shard can start from.
    pub(super) fn offer(&mut self, partition: i32, candidates: Vec<Candidate>) {
        if let Some(work) = self.works.get_mut(&partition)
            && let Errand::Acquire(acquisition) = &mut work.errand
        {
            acquisition.offer(candidates);
            work.moved_at = Some(Instant::now());
        }
    }

    /// The group counts us in for these shards.
    pub(super) fn confirm(&mut self, partitions: &[i32]) {
        for partition in partitions {
            if let Some(work) = self.works.get_mut(partition)
                && let Errand::Acquire(acquisition) = &mut work.errand
                && let (Need::Confirm { .. }, Some(Need::Confirm { .. })) =
                    (acquisition.wish(), work.asked)
            {
                // Frames of the owner before us may have moved the offset since; no matter.
                work.asked = None;
                acquisition.confirm(random_id());
                work.moved_at = Some(Instant::now());
            }
        }
    }

    /// Goes on with everything, waiting at most so long for something to happen.
    pub(super) fn go_on(&mut self, wait_max: Duration) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        self.pursue(&mut outcomes);
        let Acquiring { tail, works } = self;
        tail.poll(wait_max, |event| match event {
            OutputEvent::Failed(error) => {
                for partition in works.keys() {
                    outcomes.push(Outcome::Failed { partition: *partition, error: error.clone() });
                }
            }
            OutputEvent::NotAppended { partition, error } => {
                outcomes.push(Outcome::Failed { partition, error });
            }
            OutputEvent::Truncated { partition } => {
                let refusal = StartError::Truncated;
                outcomes.push(Outcome::Refused { partition, refusal });
            }
            OutputEvent::Record { partition, .. }
            | OutputEvent::End { partition }
            | OutputEvent::Appended { partition, .. } => {
                if let Some(work) = works.get_mut(&partition) {
                    work.take(&event);
                }
            }
        });
        self.pursue(&mut outcomes);
        // What ends a work ends it once, however often brokers say it.
        let mut ended = BTreeSet::new();
        outcomes.retain(|outcome| ended.insert(outcome.partition()));
        ended.into_iter().for_each(|partition| self.give_up(partition));
        outcomes
    }

    /// Asks for what is wished and was not asked for, and collects what has ended.
    fn pursue(&mut self, outcomes: &mut Vec<Outcome>) {
        let stall_max = Duration::from_millis(READ_STALL_MS_MAX);
        let ended = self.works.iter().filter(|(_, work)| work.has_ended());
        for partition in ended.map(|(partition, _)| *partition).collect::<Vec<i32>>() {
            self.tail.forget(partition);
            outcomes.extend(self.works.remove(&partition).and_then(Work::into_outcome));
        }
        let lively = self.works.values().filter(|work| work.is_lively()).count();
        let mut places = READ_AT_ONCE.saturating_sub(lively);
        for (partition, work) in &mut self.works {
            let moved_at = match work.moved_at {
                Some(moved_at) => moved_at,
                None if places == 0 => continue,
                None => {
                    places -= 1;
                    *work.moved_at.insert(Instant::now())
                }
            };
            if let Err(error) = work.ask(&mut self.tail, *partition) {
                outcomes.push(Outcome::Failed { partition: *partition, error });
            } else if moved_at.elapsed() >= stall_max {
                let sentence = format!("nothing came of the output for {} s", stall_max.as_secs());
                let error = TopicError::Unreachable(sentence);
                outcomes.push(Outcome::Failed { partition: *partition, error });
            }
        }
    }
}

impl Outcome {
    fn partition(&self) -> i32 {
        match self {
            Outcome::Acquired(acquired) => acquired.partition,
            Outcome::Refused { partition, .. } | Outcome::Failed { partition, .. } => *partition,
            Outcome::Crossed { jump, .. } => jump.partition,
        }
    }
}

impl Work {
    fn new(errand: Errand) -> Work {
        Work { errand, asked: None, reading: None, at_end: false, moved_at: None }
    }

    fn wish(&self) -> Need {
        match &self.errand {
            Errand::Acquire(acquisition) => acquisition.wish(),
            Errand::Bridge(bridge) => Need::Read { from: bridge.next() },
        }
    }

    /// Whether something came of it just now: what waits for a broker or for the group keeps
    /// nothing else waiting.
    fn is_lively(&self) -> bool {
        self.moved_at.is_some_and(|at| at.elapsed() < LIVELY)
    }

    fn has_ended(&self) -> bool {
        match &self.errand {
            Errand::Acquire(acquisition) => acquisition.wish() == Need::End,
            Errand::Bridge(bridge) => bridge.result().is_some(),
        }
    }

    fn into_outcome(self) -> Option<Outcome> {
        Some(match self.errand {
            Errand::Acquire(acquisition) => {
                let partition = acquisition.partition();
                match acquisition.into_outcome() {
                    Ok(acquired) => Outcome::Acquired(acquired),
                    Err(refusal) => Outcome::Refused { partition, refusal },
                }
            }
            Errand::Bridge(bridge) => {
                Outcome::Crossed { jump: bridge.jump, crossed: bridge.result()? }
            }
        })
    }

    fn take(&mut self, event: &OutputEvent<'_>) {
        match event {
            OutputEvent::Record { offset, .. } => {
                self.reading = Some(offset + 1);
                self.at_end = false;
            }
            OutputEvent::End { .. } => self.at_end = true,
            _ => {}
        }
        // Where a record is missing that has to come, the end comes again and again.
        if !matches!(event, OutputEvent::End { .. }) {
            self.moved_at = Some(Instant::now());
        }
        match (&mut self.errand, event) {
            (Errand::Acquire(acquisition), OutputEvent::Record { offset, payload, .. }) => {
                acquisition.take(*offset, payload);
            }
            (Errand::Acquire(acquisition), OutputEvent::End { .. }) => acquisition.reach_end(),
            (Errand::Acquire(acquisition), OutputEvent::Appended { offset, .. }) => {
                acquisition.appended(*offset);
            }
            (Errand::Bridge(bridge), OutputEvent::Record { offset, payload, .. }) => {
                bridge.take(*offset, payload);
            }
            _ => {}
        }
    }

    /// Asks for what is wished and was not asked for. Reading goes on until the end once it was
    /// asked for, unless it has to begin further back, or at the end, whose news is used up.
    fn ask(&mut self, tail: &mut OutputLog, partition: i32) -> Result<(), TopicError> {
        let wish = self.wish();
        match wish {
            Need::Read { from } => {
                if self.at_end || self.reading.is_none_or(|next| from < next) {
                    tail.read(partition, from)?;
                    self.at_end = false;
                    self.reading = Some(from);
                }
            }
            Need::Append(header) if self.asked != Some(wish) => {
                tail.append(partition, &header)?;
                self.asked = Some(wish);
            }
            Need::Append(_) | Need::Confirm { .. } | Need::States | Need::End => {}
        }
        Ok(())
    }
}

/// 128 random bits, never 0. Another acquisition must not have the same, and nothing else matters.
fn random_id() -> u128 {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .expect("every Linux system has /dev/urandom");
    u128::from_ne_bytes(bytes).max(1)
}
