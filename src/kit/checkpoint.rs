//! Writes a zone's state as bytes while the zone continues, and reads it back.
//!
//! A checkpoint starts by copying the few values outside the tables and marking the tables' chunks.
//! After that, the zone copies a marked chunk before it first writes to it, and the checkpoint
//! reads the chunks piece by piece, whenever there is time. So the bytes hold the state at the
//! start of the checkpoint, whatever has changed since.
//!
//! The bytes are little-endian words. They hold the names of the tables, the rows, and nothing that
//! can be computed from the rows. They end with the digest, so reading them returns the written
//! state, or an error.

use crate::kit::clock::Clock;
use crate::kit::engine::encode_state;
use crate::kit::game::Game;
use crate::kit::rulebook::Rulebook;
use crate::kit::stored_names::{DIGEST, NamedState, RowRun, ZONE, words_of_runs};
use crate::kit::tombstones::{STORED_TOMBSTONE_WORDS, TOMBSTONES_MAX, Tombstones};
use crate::kit::words::Words;
use crate::kit::zone::Zone;
use std::ops::Range;

/// Rows that one piece of a checkpoint visits, including empty ones: some ten microseconds.
const CHECKPOINT_ROWS_PER_PIECE: u32 = 8192;

/// Limit of a zone's encoded state. Rules whose largest state exceeds it are refused.
pub(crate) const STATE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Limit of a stored row, with its number if it has one. A table with longer rows does not compile.
pub(crate) const STORED_ROW_WORDS_MAX: usize = 32;

/// Returns whether a state fits whose game has this many words of rows: beside them it has all
/// tombstones, its names, and a zone's few words.
pub(crate) const fn state_fits(row_words: u64) -> bool {
    let tombstones = (TOMBSTONES_MAX * STORED_TOMBSTONE_WORDS * 8) as u64;
    row_words.saturating_mul(8).saturating_add(tombstones + 128 * 1024) <= STATE_BYTES_MAX as u64
}

/// The result of reading a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointRead {
    /// More bytes follow.
    More,
    /// These were the last bytes.
    Done,
}

/// Why a state cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateError {
    /// The bytes are not an encoded state of this format.
    Malformed,
    /// The state was written under rules that are not loaded.
    OtherRules {
        /// Hash of those rules.
        ruleset: u32,
    },
    /// The state does not name its tables, and another version has stored it.
    Unnamed,
    /// A field has another type than the game's.
    OtherType {
        /// The version of the game that stored the state.
        version: u32,
        /// The table and the field.
        field: Box<str>,
        /// The stored type.
        stored: Box<str>,
        /// The type in the game.
        ours: Box<str>,
    },
    /// The game's migration does not accept a stored value.
    NotMigrated {
        /// The table and the field.
        field: Box<str>,
    },
    /// The state with its new fields exceeds [`STATE_BYTES_MAX`].
    TooLarge,
    /// The game does not accept the state of another version.
    Unfit,
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
            StateError::Unnamed => write!(
                out,
                "the state of another version does not name its tables: start a huntd with that \
                 version of the game and this format of snapshots once, and stop it in order"
            ),
            StateError::OtherType { version, field, stored, ours } => write!(
                out,
                "{field} is {stored} in the state of version {version} and {ours} in this game: \
                 add a migration of {field} to the game, or run version {version}"
            ),
            StateError::NotMigrated { field } => write!(
                out,
                "the game's migration of {field} does not accept a stored value: mend the \
                 migration, or run the version that stored the state"
            ),
            StateError::TooLarge => write!(
                out,
                "the state with the fields of this version exceeds {STATE_BYTES_MAX} bytes: run \
                 the version that stored it"
            ),
            StateError::Unfit => write!(
                out,
                "the rules of this version do not allow the state of the version before: mend \
                 them, or run that version"
            ),
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
    /// The rows, in the order in which they are written.
    runs: Vec<RowRun>,
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
    /// Copies rows of a table: the words of all of them.
    pub(crate) fn note(
        &mut self,
        (table, instance): (u8, u8),
        rows: u32,
        words: impl IntoIterator<Item = u64>,
    ) {
        self.runs.push(RowRun { table, instance, is_counted: false, rows });
        self.noted.extend(words);
    }

    /// Adds rows of a table that are in a part of the game, which take this many words together. A
    /// number of rows that does not follow from what comes before is written before them.
    pub(crate) fn rows(&mut self, run: RowRun, part: u8, rows: Range<u32>, words: u64) {
        self.runs.push(run);
        self.noted.extend(run.is_counted.then_some(u64::from(run.rows)));
        self.list_noted();
        self.push(part, rows, words);
    }

    /// Puts the names of the tables, and the runs, before all rows. Panics if the rows have other
    /// sizes than the tables.
    fn begin_with<G: Game>(&mut self, names: &[u64]) {
        self.list_noted();
        assert_eq!(self.words, words_of_runs(&self.runs, G::TABLES), "a row is as its table says");
        let start = self.noted.len();
        self.noted.extend_from_slice(names);
        self.noted.push(self.runs.len() as u64);
        self.noted.extend(self.runs.iter().map(|run| run.to_word()));
        let (next, end) = (start as u32, self.noted.len() as u32);
        self.steps.insert(0, CheckpointStep { part: NOTED, next, end });
        self.words += u64::from(end - next);
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
        self.runs.clear();
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
            names,
            checkpoint: _,
            ruleset,
        } = &*self;
        checkpoint.noted.reserve(256 + names.len() + G::NOTED_WORDS_MAX);
        let zone = [G::FORMAT, (*ruleset).into(), (*partition).into()].into_iter();
        checkpoint.note((ZONE, 0), 1, zone.chain(clock.to_words()).chain([*last_tick]));
        game.list_players(&mut checkpoint);
        tombstones.list(TOMBSTONES, &mut checkpoint);
        game.list_rest(&mut checkpoint);
        checkpoint.note((DIGEST, 0), 1, [digest]);
        checkpoint.begin_with::<G>(names);
        checkpoint
    }

    /// Decodes the zone from a state that this version of the game has stored.
    pub fn decode_state(
        bytes: &[u8],
        rulebook: &Rulebook<G::Rules>,
    ) -> Result<Zone<G>, StateError> {
        let state = NamedState::of(bytes).ok_or(StateError::Malformed)?;
        let mut zone = Zone::decode_rows(state.body(), rulebook, DigestCheck::Equal)?;
        let is_its_own = state.is_named_by(&zone.names)
            && state.runs().is_none_or(|runs| zone.list().runs == runs);
        is_its_own.then_some(zone).ok_or(StateError::Malformed)
    }

    /// Decodes the zone from a state that another version of the game has stored. It continues by
    /// the first rules of the book.
    pub fn migrate_state(
        bytes: &[u8],
        rulebook: &Rulebook<G::Rules>,
    ) -> Result<Zone<G>, StateError> {
        let state = NamedState::of(bytes).ok_or(StateError::Malformed)?;
        let mut begun = Vec::new();
        encode_state(&mut Zone::<G>::new(0, rulebook), &mut begun);
        let begun = NamedState::of(&begun).ok_or(StateError::Malformed)?;
        let rows = state.moved_to(&begun, G::MIGRATIONS, G::TABLES)?;
        let zone = Zone::decode_rows(&rows, rulebook, DigestCheck::Other);
        zone.map_err(|_| StateError::Unfit)
    }

    fn decode_rows(
        bytes: &[u8],
        rulebook: &Rulebook<G::Rules>,
        check: DigestCheck,
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
        let zone = Zone::decode_words(words, ruleset, rulebook).ok_or(StateError::Malformed)?;
        let digest = words.word().filter(|_| words.word().is_none());
        let is_whole = match check {
            DigestCheck::Equal => digest == Some(zone.digest()),
            DigestCheck::Other => digest.is_some(),
        };
        is_whole.then_some(zone).ok_or(StateError::Malformed)
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
        Some(zone)
    }
}

/// What the digest at the end of a stored state has to be.
#[derive(Clone, Copy)]
enum DigestCheck {
    /// That of the state.
    Equal,
    /// That of the state before it was moved to this version.
    Other,
}
