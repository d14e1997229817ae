//! Writes a shard's state as bytes while the shard goes on.
//!
//! When a checkpoint begins, it copies the few values outside the tables and marks the chunks of
//! the tables. From then on the shard copies a marked chunk before it first writes to it, and the
//! checkpoint reads the chunks piece by piece, whenever there is time. So the bytes hold the state
//! as it was when the checkpoint began, whatever has changed since.

use crate::hunt::Shard;
use crate::hunt::hunts::{FINISHER_WORDS, HUNTS_MAX, TREASURE_WORDS, TREASURES_MAX};
use crate::hunt::state::{ACTOR_WORDS, FORMAT};
use crate::kit::table::Row;
use crate::kit::tombstones::STORED_TOMBSTONE_WORDS;

/// Rows that one piece of a checkpoint visits, empty ones included: some ten microseconds.
const CHECKPOINT_ROWS_PER_PIECE: u32 = 8192;

/// Whether a checkpoint has given all its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointRead {
    /// There are more.
    More,
    /// These were the last.
    Done,
}

/// Words that are noted at most: the searches for paths have most of them.
const NOTED_WORDS_MAX: usize = 64 + HUNTS_MAX * (8 + 2 * TREASURES_MAX / 64);

/// What is still to be written of a state, and in which order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checkpoint {
    /// What was noted when the checkpoint began.
    words: Vec<u64>,
    steps: Vec<PartRange>,
    step: usize,
    /// Words of the last row that have not found room.
    waiting: [u64; ACTOR_WORDS],
    waiting_count: usize,
}

/// A run of words or of rows.
#[derive(Clone, Copy, Debug)]
struct PartRange {
    part: Part,
    next: u32,
    end: u32,
}

#[derive(Clone, Copy, Debug)]
enum Part {
    Words,
    Actors,
    Tombstones,
    Treasures(usize),
    Finishers(usize),
}

impl Checkpoint {
    fn step(&mut self, part: Part, next: u32, end: u32) {
        if next < end {
            self.steps.push(PartRange { part, next, end });
        }
    }

    /// Ends a run of words: those since the last one.
    fn step_words(&mut self, written_before: &mut u32) {
        let end = self.words.len() as u32;
        self.step(Part::Words, *written_before, end);
        *written_before = end;
    }

    /// Nothing is left to be written; the memory stays for the next one.
    fn forget(&mut self) {
        self.words.clear();
        self.steps.clear();
        (self.step, self.waiting_count) = (0, 0);
    }

    fn is_whole(&self) -> bool {
        self.step == self.steps.len() && self.waiting_count == 0
    }

    /// Writes what waits, as far as there is room.
    fn write_waiting(&mut self, out: &mut Vec<u8>, bytes_max: usize) {
        let room = (bytes_max - out.len()) / 8;
        let written = self.waiting_count.min(room);
        for word in &self.waiting[..written] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        self.waiting.copy_within(written..self.waiting_count, 0);
        self.waiting_count -= written;
    }

    fn wait(&mut self, words: &[u64]) {
        self.waiting[self.waiting_count..][..words.len()].copy_from_slice(words);
        self.waiting_count += words.len();
    }

    /// Writes rows of the current step until there is no more room, or it is done, or this many
    /// were visited.
    fn write_step(&mut self, shard: &Shard, out: &mut Vec<u8>, bytes_max: usize, rows: &mut u32) {
        let PartRange { part, mut next, end } = self.steps[self.step];
        while next < end && self.waiting_count == 0 && *rows > 0 {
            self.read_row(shard, part, next);
            self.write_waiting(out, bytes_max);
            next += 1;
            *rows -= 1;
        }
        self.steps[self.step].next = next;
        self.step += usize::from(next == end);
    }

    fn read_row(&mut self, shard: &Shard, part: Part, number: u32) {
        match part {
            Part::Words => self.wait(&[self.words[number as usize]]),
            Part::Actors => {
                let body = shard.actors.bodies.checkpointed(number);
                if body.player_id != 0 {
                    self.wait(&body.to_words());
                    self.wait(&shard.actors.packs.checkpointed(number).to_words());
                }
            }
            Part::Tombstones => {
                let tombstone = shard.tombstones.rows.checkpointed(number);
                if tombstone.player_id != 0 {
                    self.wait(&[number.into()]);
                    self.wait(&tombstone.to_words());
                }
            }
            Part::Treasures(slot) => {
                self.wait(&shard.hunts.treasures[slot].checkpointed(number).to_words());
            }
            Part::Finishers(slot) => {
                self.wait(&shard.hunts.finishers[slot].checkpointed(number).to_words());
            }
        }
    }
}

impl Shard {
    /// Begins a checkpoint of the current state, and returns how many bytes it takes. Bounded work,
    /// whatever the state's size. It replaces a checkpoint that was not read to its end.
    pub fn begin_checkpoint(&mut self) -> u64 {
        self.end_checkpoint();
        let checkpoint = self.note();
        self.actors.bodies.begin_checkpoint();
        self.actors.packs.begin_checkpoint();
        self.tombstones.rows.begin_checkpoint();
        for slot in 0..HUNTS_MAX {
            self.hunts.treasures[slot].begin_checkpoint();
            self.hunts.finishers[slot].begin_checkpoint();
        }
        let bytes = self.checkpoint_bytes(&checkpoint);
        self.checkpoint = checkpoint;
        bytes
    }

    /// Appends the next bytes of the checkpoint, until there are `bytes_max` in all. Bounded
    /// work: there may be fewer.
    pub fn write_checkpoint(&mut self, out: &mut Vec<u8>, bytes_max: usize) -> CheckpointRead {
        assert!(out.len() <= bytes_max, "{} bytes where {bytes_max} may be", out.len());
        let mut checkpoint = std::mem::take(&mut self.checkpoint);
        let mut rows = CHECKPOINT_ROWS_PER_PIECE;
        checkpoint.write_waiting(out, bytes_max);
        while checkpoint.waiting_count == 0 && rows > 0 && checkpoint.step < checkpoint.steps.len()
        {
            let step = checkpoint.step;
            checkpoint.write_step(self, out, bytes_max, &mut rows);
            let PartRange { part, next, .. } = checkpoint.steps[step];
            self.pass(part, next);
        }
        let is_whole = checkpoint.is_whole();
        self.checkpoint = checkpoint;
        if !is_whole {
            return CheckpointRead::More;
        }
        self.end_checkpoint();
        CheckpointRead::Done
    }

    /// Gives up the checkpoint, if there is one.
    pub(crate) fn end_checkpoint(&mut self) {
        self.checkpoint.forget();
        self.actors.bodies.end_checkpoint();
        self.actors.packs.end_checkpoint();
        self.tombstones.rows.end_checkpoint();
        for slot in 0..HUNTS_MAX {
            self.hunts.treasures[slot].end_checkpoint();
            self.hunts.finishers[slot].end_checkpoint();
        }
    }

    /// Notes what stands in no table, and which rows are to be written.
    fn note(&mut self) -> Checkpoint {
        let mut checkpoint = std::mem::take(&mut self.checkpoint);
        let Shard {
            partition,
            ruleset,
            clock,
            last_tick,
            actors,
            tombstones,
            hunts,
            // Follow from those and the ruleset.
            rulebook: _,
            rules: _,
            paces: _,
            tiles: _,
            checkpoint: _,
        } = &*self;
        let mut written = 0;
        let words = &mut checkpoint.words;
        words.reserve(NOTED_WORDS_MAX);
        words.extend([FORMAT, (*ruleset).into(), (*partition).into()]);
        words.extend(clock.to_words());
        words.extend([*last_tick, actors.count().into()]);
        checkpoint.step_words(&mut written);
        checkpoint.step(Part::Actors, 0, actors.rows());
        checkpoint.words.extend(tombstones.noted().map(u64::from));
        checkpoint.step_words(&mut written);
        checkpoint.step(Part::Tombstones, 0, tombstones.rows.count());
        checkpoint.words.extend(hunts.noted());
        for slot in 0..HUNTS_MAX {
            let hunt = *hunts.hunt(slot);
            checkpoint.words.extend(hunt.to_words());
            checkpoint.step_words(&mut written);
            checkpoint.step(Part::Treasures(slot), 0, hunt.tried.into());
            checkpoint.step(Part::Finishers(slot), hunt.announced.into(), hunt.finishers.into());
            hunts.paths[slot].note(&mut checkpoint.words);
        }
        checkpoint.words.push(self.digest());
        checkpoint.step_words(&mut written);
        checkpoint
    }

    fn checkpoint_bytes(&self, checkpoint: &Checkpoint) -> u64 {
        let words = checkpoint.steps.iter().map(|PartRange { part, next, end }| {
            let rows = u64::from(end - next);
            match part {
                Part::Words => rows,
                Part::Treasures(_) => TREASURE_WORDS as u64 * rows,
                Part::Finishers(_) => FINISHER_WORDS as u64 * rows,
                // Empty rows are left out.
                Part::Actors => ACTOR_WORDS as u64 * u64::from(self.actors.count()),
                Part::Tombstones => {
                    STORED_TOMBSTONE_WORDS as u64 * u64::from(self.tombstones.noted()[1])
                }
            }
        });
        8 * words.sum::<u64>()
    }

    /// Rows of a part below this one were written.
    fn pass(&mut self, part: Part, number: u32) {
        match part {
            Part::Words => {}
            Part::Actors => {
                self.actors.bodies.pass_checkpointed(number);
                self.actors.packs.pass_checkpointed(number);
            }
            Part::Tombstones => self.tombstones.rows.pass_checkpointed(number),
            Part::Treasures(slot) => self.hunts.treasures[slot].pass_checkpointed(number),
            Part::Finishers(slot) => self.hunts.finishers[slot].pass_checkpointed(number),
        }
    }
}
