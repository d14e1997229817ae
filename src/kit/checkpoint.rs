//! Writes a zone's state as bytes while the zone continues, and reads it back.
//!
//! A checkpoint starts by copying the few values outside the tables and marking the tables' chunks.
//! After that, the zone copies a marked chunk before it first writes to it, and the checkpoint
//! reads the chunks piece by piece, whenever there is time. So the bytes hold the state at the
//! start of the checkpoint, whatever has changed since.
//!
//! The bytes are little-endian words. They hold the rows, and nothing that can be computed from the
//! rows. They end with the digest, so reading them returns the written state, or an error.

use crate::kit::clock::Clock;
use crate::kit::game::Game;
use crate::kit::rulebook::Rulebook;
use crate::kit::tombstones::Tombstones;
use crate::kit::words::Words;
use crate::kit::zone::Zone;
use std::ops::Range;

/// Rows that one piece of a checkpoint visits, including empty ones: some ten microseconds.
const CHECKPOINT_ROWS_PER_PIECE: u32 = 8192;

/// Limit of a zone's encoded state. Each game asserts that its state fits.
pub(crate) const STATE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Limit of a stored row, with its number if it has one. Each game asserts that its rows fit.
pub(crate) const STORED_ROW_WORDS_MAX: usize = 32;

/// The result of reading a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointRead {
    /// More bytes follow.
    More,
    /// These were the last bytes.
    Done,
}

/// Why a state cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateError {
    /// The bytes are not an encoded state of this format.
    Malformed,
    /// The state was written under rules that are not loaded.
    OtherRules {
        /// Hash of those rules.
        ruleset: u32,
    },
}

impl std::fmt::Display for StateError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StateError::Malformed => {
                write!(out, "the state is damaged or of another version; use an older snapshot")
            }
            StateError::OtherRules { ruleset } => {
                write!(out, "the state was written under ruleset {ruleset}, which is not loaded")
            }
        }
    }
}

impl std::error::Error for StateError {}

/// The words of a row that did not fit the output yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoredRow {
    words: [u64; STORED_ROW_WORDS_MAX],
    count: usize,
}

impl StoredRow {
    /// Appends words.
    pub(crate) fn push(&mut self, words: &[u64]) {
        self.words[self.count..][..words.len()].copy_from_slice(words);
        self.count += words.len();
    }

    /// Moves words to the output, as far as it has room.
    fn write(&mut self, out: &mut Vec<u8>, bytes_max: usize) {
        let room = (bytes_max - out.len()) / 8;
        let written = self.count.min(room);
        for word in &self.words[..written] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        self.words.copy_within(written..self.count, 0);
        self.count -= written;
    }
}

/// The parts of a state that are still to be written, in order.
#[derive(Clone, Debug, Default)]
pub struct Checkpoint {
    /// Words copied when the checkpoint began.
    noted: Vec<u64>,
    /// Start of the noted words that no step covers yet.
    listed: u32,
    steps: Vec<CheckpointStep>,
    step: usize,
    /// Number of words of all steps.
    words: u64,
    row: StoredRow,
}

/// A run of noted words, or of rows of one part.
#[derive(Clone, Copy, Debug)]
struct CheckpointStep {
    part: u8,
    next: u32,
    end: u32,
}

/// Parts of a zone's state that are no part of its game: the noted words, and the tombstones.
const NOTED: u8 = u8::MAX;
const TOMBSTONES: u8 = NOTED - 1;

/// A part of a state, as a checkpoint reads it row by row.
pub trait Part {
    /// Begins a checkpoint: from now on rows are read as they are now.
    fn begin_checkpoint(&mut self);

    /// Reads a row as it was when the checkpoint began. Empty rows may be left out.
    fn read_row(&self, number: u32, row: &mut StoredRow);

    /// Rows below this one were read.
    fn pass(&mut self, number: u32);

    /// Ends the checkpoint.
    fn end_checkpoint(&mut self);
}

impl Checkpoint {
    /// Copies words.
    pub(crate) fn note(&mut self, words: impl IntoIterator<Item = u64>) {
        self.noted.extend(words);
    }

    /// Returns the list of noted words, for code that appends to a list.
    pub(crate) fn notes(&mut self) -> &mut Vec<u64> {
        &mut self.noted
    }

    /// Adds rows of a part of the game, which take this many words together.
    pub(crate) fn rows(&mut self, part: u8, rows: Range<u32>, words: u64) {
        self.list_noted();
        self.push(part, rows, words);
    }

    fn list_noted(&mut self) {
        let end = self.noted.len() as u32;
        let noted = self.listed..end;
        self.listed = end;
        let words = noted.len() as u64;
        self.push(NOTED, noted, words);
    }

    fn push(&mut self, part: u8, Range { start: next, end }: Range<u32>, words: u64) {
        if next < end {
            self.steps.push(CheckpointStep { part, next, end });
            self.words += words;
        }
    }

    /// Drops the checkpoint, and keeps the memory for the next one.
    fn forget(&mut self) {
        self.noted.clear();
        self.steps.clear();
        (self.listed, self.step, self.words, self.row.count) = (0, 0, 0, 0);
    }

    fn is_whole(&self) -> bool {
        self.step == self.steps.len() && self.row.count == 0
    }

    /// Writes rows of the current step until the output is full, the step is done, or this many
    /// rows were visited.
    fn write_step<G: Game>(
        &mut self,
        zone: &Zone<G>,
        out: &mut Vec<u8>,
        bytes_max: usize,
        rows: &mut u32,
    ) {
        let CheckpointStep { part, mut next, end } = self.steps[self.step];
        let table = (part != NOTED).then(|| zone.part(part));
        while next < end && self.row.count == 0 && *rows > 0 {
            match table {
                None => self.row.push(&[self.noted[next as usize]]),
                Some(table) => table.read_row(next, &mut self.row),
            }
            self.row.write(out, bytes_max);
            next += 1;
            *rows -= 1;
        }
        self.steps[self.step].next = next;
        self.step += usize::from(next == end);
    }
}

impl<G: Game> Zone<G> {
    /// Starts a checkpoint of the current state, and returns its size in bytes. The work is
    /// bounded, whatever the state's size. Replaces a checkpoint that was not read to its end.
    pub fn begin_checkpoint(&mut self) -> u64 {
        self.end_checkpoint();
        self.checkpoint = self.list();
        Self::part_numbers().for_each(|part| self.part_mut(part).begin_checkpoint());
        8 * self.checkpoint.words
    }

    /// Appends the next bytes of the checkpoint, up to `bytes_max` in total. The work is bounded,
    /// so there may be fewer.
    pub fn write_checkpoint(&mut self, out: &mut Vec<u8>, bytes_max: usize) -> CheckpointRead {
        assert!(out.len() <= bytes_max, "{} bytes where {bytes_max} may be", out.len());
        let mut checkpoint = std::mem::take(&mut self.checkpoint);
        let mut rows = CHECKPOINT_ROWS_PER_PIECE;
        checkpoint.row.write(out, bytes_max);
        while checkpoint.row.count == 0 && rows > 0 && checkpoint.step < checkpoint.steps.len() {
            let step = checkpoint.step;
            checkpoint.write_step(self, out, bytes_max, &mut rows);
            let CheckpointStep { part, next, .. } = checkpoint.steps[step];
            if part != NOTED {
                self.part_mut(part).pass(next);
            }
        }
        let is_whole = checkpoint.is_whole();
        self.checkpoint = checkpoint;
        if !is_whole {
            return CheckpointRead::More;
        }
        self.end_checkpoint();
        CheckpointRead::Done
    }

    /// Ends the checkpoint, if there is one.
    pub(crate) fn end_checkpoint(&mut self) {
        self.checkpoint.forget();
        Self::part_numbers().for_each(|part| self.part_mut(part).end_checkpoint());
    }

    fn part_numbers() -> impl Iterator<Item = u8> {
        (0..G::PARTS).chain([TOMBSTONES])
    }

    fn part(&self, number: u8) -> &dyn Part {
        match number {
            TOMBSTONES => &self.tombstones,
            _ => self.game.part(number),
        }
    }

    fn part_mut(&mut self, number: u8) -> &mut dyn Part {
        match number {
            TOMBSTONES => &mut self.tombstones,
            _ => self.game.part_mut(number),
        }
    }

    /// Notes what is in no table, and lists the rows to be written.
    fn list(&mut self) -> Checkpoint {
        let mut checkpoint = std::mem::take(&mut self.checkpoint);
        let digest = self.digest();
        let Zone {
            partition,
            clock,
            last_tick,
            tombstones,
            game,
            // Derived from the above and the ruleset.
            rulebook: _,
            rules: _,
            checkpoint: _,
            ruleset,
        } = &*self;
        checkpoint.noted.reserve(64 + G::NOTED_WORDS_MAX);
        checkpoint.note([G::FORMAT, (*ruleset).into(), (*partition).into()]);
        checkpoint.note(clock.to_words());
        checkpoint.note([*last_tick]);
        game.list_players(&mut checkpoint);
        tombstones.list(TOMBSTONES, &mut checkpoint);
        game.list_rest(&mut checkpoint);
        checkpoint.note([digest]);
        checkpoint.list_noted();
        checkpoint
    }

    /// Decodes the zone from a stored state.
    pub fn decode_state(
        bytes: &[u8],
        rulebook: &Rulebook<G::Rules>,
    ) -> Result<Zone<G>, StateError> {
        let words = &mut Words::new(bytes);
        let [format, ruleset] = words.take().ok_or(StateError::Malformed)?;
        if format != G::FORMAT {
            return Err(StateError::Malformed);
        }
        let ruleset = u32::try_from(ruleset).map_err(|_| StateError::Malformed)?;
        if rulebook.find(ruleset).is_none() {
            return Err(StateError::OtherRules { ruleset });
        }
        Zone::decode_words(words, ruleset, rulebook).ok_or(StateError::Malformed)
    }

    fn decode_words(
        words: &mut Words,
        ruleset: u32,
        rulebook: &Rulebook<G::Rules>,
    ) -> Option<Zone<G>> {
        let partition = u16::try_from(words.word()?).ok()?;
        let mut zone = Zone::<G>::new(partition, rulebook);
        zone.play_by(rulebook.find(ruleset)?.clone());
        zone.clock = Clock::from_words(&words.take()?);
        zone.last_tick = words.word()?;
        let now_ms = zone.clock.now_ms();
        zone.game.load_players(&zone.rules, now_ms, words)?;
        zone.tombstones = Tombstones::decode(words)?;
        zone.game.load_rest(now_ms, words)?;
        let digest = words.word()?;
        (digest == zone.digest() && words.word().is_none()).then_some(zone)
    }
}
