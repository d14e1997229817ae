//! An output partition in memory, and what acquires it.

use crate::hunt::frames::{decode_frame, encode};
use crate::kit::update::Updates;
use crate::output::fence_id::{FenceIds, InputTag};
use crate::output::fold::Start;
use crate::output::frame::{Format, FrameHeader};
use crate::output::mark::Mark;
use crate::output::reader::Reader;
use crate::ownership::acquired::Acquired;
use crate::ownership::acquisition::*;
use crate::ownership::bounds::Bounds;
use crate::ownership::start_error::StartError;
use crate::testing::frame_maker::FrameMaker;

pub(super) const RULESET: u32 = 7;

/// The version of the game.
pub(super) const VERSION: u32 = 3;

/// The input topic's id.
pub(super) const INPUT_ID: [u8; 16] = [1; 16];

/// An output partition, and an input that is as long as it says.
pub(super) struct Log {
    /// Records with their offsets; retention takes the first ones away.
    pub(super) records: Vec<(i64, Vec<u8>)>,
    pub(super) end: i64,
    pub(super) input: (i64, i64),
    /// Makes the ids of the owners that read this input.
    pub(super) fence_ids: FenceIds,
    /// What is found when more states are asked for.
    pub(super) elsewhere: Vec<Candidate>,
}

impl Log {
    pub(super) fn new() -> Log {
        let mut fence_ids = FenceIds::new("huntd", 0);
        fence_ids.read_from(&INPUT_ID);
        let (records, elsewhere) = (Vec::new(), Vec::new());
        Log { records, end: 0, input: (0, 1_000), fence_ids, elsewhere }
    }

    pub(super) fn append(&mut self, header: &FrameHeader, updates: &Updates) -> i64 {
        let mut bytes = Vec::new();
        encode(Format::Binary, header, updates.as_slice(), &mut bytes);
        self.records.push((self.end, bytes));
        self.end += 1;
        self.end - 1
    }

    pub(super) fn append_empty(&mut self, header: &FrameHeader) -> i64 {
        self.append(header, &Updates::new())
    }

    pub(super) fn publish(&mut self, shard: &mut FrameMaker, frames: u32) {
        for number in 0..frames {
            let frame = shard.frame(number % 3);
            self.append(&frame.header, &frame.updates);
        }
    }

    pub(super) fn mark(&self) -> Mark {
        let mut reader = Reader::new();
        for (_, bytes) in &self.records {
            let (header, updates) = decode_frame(bytes).expect("frames are readable");
            reader.fold(&header, &updates);
        }
        Mark::new(self.end, reader.position())
    }

    pub(super) fn bounds(&self) -> Bounds {
        let output_start = self.records.first().map_or(self.end, |(offset, _)| *offset);
        let ((input_start, input_end), input_leader_epoch) = (self.input, 0);
        let output_end = self.end;
        Bounds { input_start, input_end, input_leader_epoch, output_start, output_end }
    }

    /// Some records and the end come together, whatever the first of them changes.
    pub(super) fn read(&self, from: i64, acquisition: &mut Acquisition) {
        const TOGETHER: usize = 4;
        let mut left = self.records.iter().filter(|(at, _)| *at >= from);
        for (offset, bytes) in left.by_ref().take(TOGETHER) {
            acquisition.take(*offset, bytes);
        }
        if left.next().is_none() {
            acquisition.reach_end();
        }
    }

    /// Acquires; `rival` may append something whenever the group is asked.
    pub(super) fn acquire_beside(
        &mut self,
        brief: Brief,
        mut rival: impl FnMut(&mut Log),
    ) -> Result<Acquired, StartError> {
        let mut acquisition = Acquisition::begin(brief, self.bounds());
        for step in 0.. {
            assert!(step < 10_000, "{acquisition:?}");
            match acquisition.need() {
                Need::Read { from } => self.read(from, &mut acquisition),
                Need::States => acquisition.offer(self.elsewhere.clone()),
                Need::Confirm { .. } if !acquisition.may_fence() => acquisition.follow(),
                Need::Follow { from } => {
                    self.read(from, &mut acquisition);
                    if let Need::Follow { .. } = acquisition.need() {
                        acquisition.bid();
                    }
                }
                Need::Await { .. } => acquisition.give_up_waiting(),
                Need::Confirm { .. } => {
                    rival(self);
                    let fence_id = self.fence_ids.next();
                    acquisition.confirm(fence_id);
                }
                Need::Append(header) => {
                    let offset = self.append_empty(&header);
                    acquisition.appended(offset);
                }
                Need::End => break,
            }
        }
        acquisition.into_outcome()
    }

    pub(super) fn acquire(&mut self, brief: Brief) -> Result<Acquired, StartError> {
        // Unless a test says otherwise, there is nothing elsewhere.
        if self.elsewhere.is_empty() {
            self.elsewhere.clone_from(&brief.candidates);
            let acquired = self.acquire_beside(brief, |_| {});
            self.elsewhere.clear();
            return acquired;
        }
        self.acquire_beside(brief, |_| {})
    }
}

pub(super) fn brief(candidates: Vec<Candidate>) -> Brief {
    Brief {
        updates: crate::hunt::change::UPDATES,
        partition: 0,
        rulesets: vec![RULESET],
        version: VERSION,
        candidates,
        to_skip: Vec::new(),
        remedy: Remedy::Refuse,
        diverged: false,
        changed_from: None,
        input: InputTag::of_topic(&INPUT_ID),
    }
}

/// A snapshot that was valid at the log's present end, some events before it.
pub(super) fn snapshot(log: &Log, shard: &FrameMaker) -> Candidate {
    let start = Start {
        next_offset: shard.next_offset,
        leader_epoch: Some(4),
        next_update: shard.next_update,
        chain: shard.chain,
    };
    let (mark, skips) = (log.mark(), Vec::new());
    let (is_of_deleted_input, is_here) = (false, true);
    let (ruleset, version) = (RULESET, VERSION);
    Candidate { start, mark, ruleset, version, skips, is_of_deleted_input, is_here }
}

/// A log with an owner of owner epoch 1 and this many of its frames.
pub(super) fn owned_log(frames: u32) -> (Log, FrameMaker) {
    let mut log = Log::new();
    let acquired = log.acquire(brief(Vec::new())).expect("an empty log is acquired");
    assert_eq!((acquired.owner_epoch, acquired.candidate), (1, None));
    assert_eq!(acquired.start, Start::default());
    let mut shard = FrameMaker::new(0);
    log.publish(&mut shard, frames);
    (log, shard)
}
