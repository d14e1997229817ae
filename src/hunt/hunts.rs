//! The hunts of a zone and their treasures.

use crate::hunt::path::{Path, TreasureSet};
use crate::hunt::tables;
use crate::hunt::tiles::{Tiles, TreasureKey};
use crate::kit::checkpoint::{Checkpoint, Part};
use crate::kit::index::Index;
use crate::kit::mix;
use crate::kit::row::{Identity, Row};
use crate::kit::stored_names::RowRun;
use crate::kit::table::{Column, Table};
use crate::kit::words::Words;
use std::ops::Range;

/// Limit of the hunts in one zone that run or are being closed.
pub(crate) const HUNTS_MAX: usize = 4;

/// Limit of the treasures of one hunt.
pub(crate) const TREASURES_MAX: usize = 4096;

/// Where a hunt is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum HuntPhase {
    /// The slot holds no hunt.
    #[default]
    Free = 0,
    /// Treasures are being laid, a few per event. Those already laid can be opened.
    Laying = 1,
    /// Laying is complete.
    Open = 2,
    /// The hunt is over: each event publishes some finishers and removes some of the remaining
    /// treasures.
    Closing = 3,
}

/// One hunt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hunt {
    /// The hunt's number.
    pub hunt: u32,
    /// The phase.
    pub phase: HuntPhase,
    /// Number of treasures in the event that started it.
    pub treasures: u16,
    /// Number of treasures for which a tile was looked for.
    pub tried: u16,
    /// Number of those that found a tile.
    pub laid: u16,
    /// Number of opened treasures.
    pub opened: u16,
    /// While closing, the number of treasures removed.
    pub swept: u16,
    /// Determines the positions and contents of treasures.
    pub seed: u64,
    /// When it began.
    pub started_ms: u64,
    /// When it ends.
    pub ends_ms: u64,
    /// Number of players who opened enough treasures.
    pub finishers: u16,
    /// Number of finishers that have been published.
    pub announced: u16,
}

impl Hunt {
    /// Returns whether treasures can be opened.
    pub(crate) fn running(&self) -> bool {
        matches!(self.phase, HuntPhase::Laying | HuntPhase::Open)
    }

    /// Returns whether all treasures were laid and opened.
    pub(crate) fn all_found(&self) -> bool {
        self.phase == HuntPhase::Open && self.opened == self.laid
    }
}

impl Row for Hunt {
    type Words = [u64; 6];
    type Alignment = u64;
    const IDENTITY: Identity = Identity::Number;

    fn to_words(&self) -> [u64; 6] {
        let Hunt {
            hunt,
            phase,
            treasures,
            tried,
            laid,
            opened,
            swept,
            seed,
            started_ms,
            ends_ms,
            finishers,
            announced,
        } = *self;
        let counts = [treasures, tried, laid, opened];
        let counts = counts.iter().rev().fold(0, |word, count| word << 16 | u64::from(*count));
        let progress = u64::from(swept) | u64::from(finishers) << 16 | u64::from(announced) << 32;
        let first = u64::from(hunt) | (phase as u64) << 32;
        [first, counts, progress, seed, started_ms, ends_ms]
    }

    fn from_words(words: [u64; 6]) -> Option<Hunt> {
        let [first, counts, progress, seed, started_ms, ends_ms] = words;
        let hunt = Hunt {
            hunt: first as u32,
            phase: match first >> 32 {
                0 => HuntPhase::Free,
                1 => HuntPhase::Laying,
                2 => HuntPhase::Open,
                3 => HuntPhase::Closing,
                _ => return None,
            },
            treasures: counts as u16,
            tried: (counts >> 16) as u16,
            laid: (counts >> 32) as u16,
            opened: (counts >> 48) as u16,
            swept: progress as u16,
            seed,
            started_ms,
            ends_ms,
            finishers: (progress >> 16) as u16,
            announced: (progress >> 32) as u16,
        };
        let counts =
            [hunt.tried, hunt.laid, hunt.opened, hunt.swept, hunt.finishers, hunt.announced];
        let valid = usize::from(hunt.treasures) <= TREASURES_MAX
            && counts.iter().all(|count| *count <= hunt.treasures)
            && hunt.opened <= hunt.laid
            && hunt.laid <= hunt.tried
            && hunt.finishers <= hunt.opened
            && hunt.announced <= hunt.finishers
            && (hunt.phase == HuntPhase::Closing || (hunt.swept, hunt.announced) == (0, 0))
            && (hunt.phase != HuntPhase::Free || words == [0; 6])
            && hunt.to_words() == words;
        valid.then_some(hunt)
    }
}

/// One treasure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Treasure {
    /// Not laid, or removed.
    #[default]
    Nowhere,
    /// On this tile.
    Lies(u32),
    /// Was on this tile until it was opened.
    Opened(u32),
}

/// Flag in a treasure's word: it was opened.
const OPENED: u64 = 1 << 32;

impl Treasure {
    /// The tile of a treasure that was laid, opened or not.
    pub(crate) fn tile(self) -> Option<u32> {
        match self {
            Treasure::Nowhere => None,
            Treasure::Lies(tile) | Treasure::Opened(tile) => Some(tile),
        }
    }
}

impl Row for Treasure {
    type Words = [u64; 1];
    type Alignment = u64;
    const IDENTITY: Identity = Identity::Number;

    fn to_words(&self) -> [u64; 1] {
        match self {
            Treasure::Nowhere => [0],
            Treasure::Lies(tile) => [u64::from(*tile) + 1],
            Treasure::Opened(tile) => [OPENED | (u64::from(*tile) + 1)],
        }
    }

    fn from_words([word]: [u64; 1]) -> Option<Treasure> {
        let tile = ((word & !OPENED) as u32).wrapping_sub(1);
        let treasure = match word {
            0 => Treasure::Nowhere,
            _ if word & OPENED == 0 => Treasure::Lies(tile),
            _ => Treasure::Opened(tile),
        };
        (treasure.to_words() == [word]).then_some(treasure)
    }
}

/// A player who opened enough treasures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Finisher {
    /// The player.
    pub player_id: u64,
    /// Time from the hunt's start to the treasure that made the player a finisher.
    pub elapsed_ms: u32,
    /// Treasures that the player opened.
    pub found: u16,
}

impl Row for Finisher {
    type Words = [u64; 2];
    type Alignment = u64;
    const IDENTITY: Identity = Identity::Number;

    fn to_words(&self) -> [u64; 2] {
        let Finisher { player_id, elapsed_ms, found } = *self;
        [player_id, u64::from(elapsed_ms) | u64::from(found) << 32]
    }

    fn from_words([player_id, word]: [u64; 2]) -> Option<Finisher> {
        let found = u16::try_from(word >> 32).ok()?;
        Some(Finisher { player_id, elapsed_ms: word as u32, found })
    }
}

/// All hunts of a zone, by slot.
#[derive(Clone, Debug)]
pub(crate) struct Hunts {
    hunts: Table<Hunt>,
    /// By slot, then by number.
    treasures: [Column<Treasure>; HUNTS_MAX],
    /// By slot, then by rank.
    finishers: [Table<Finisher>; HUNTS_MAX],
    finisher_index: [Index; HUNTS_MAX],
    /// By slot, a bit per treasure on the map; derived from the treasures.
    lying: [TreasureSet; HUNTS_MAX],
    pub(crate) paths: [Path; HUNTS_MAX],
    /// Bit mask of the slots with a path search.
    searching: u8,
    /// When the path searches last did a piece of work.
    pub(crate) searched_ms: u64,
    /// The highest hunt number so far.
    pub(crate) last_hunt: u32,
    /// The earliest end of a running hunt; the largest number if none runs.
    due_ms: u64,
    /// Bit mask of the slots in which treasures are laid or removed.
    busy: u8,
}

impl Hunts {
    /// Creates an empty set for a map of this many tiles.
    pub(crate) fn new(tiles: u32) -> Hunts {
        let mut hunts = Table::new(HUNTS_MAX, 4);
        hunts.reach(HUNTS_MAX as u32 - 1);
        Hunts {
            hunts,
            treasures: std::array::from_fn(|slot| Column::new(TREASURES_MAX, 30 + slot as u64)),
            finishers: std::array::from_fn(|slot| Table::new(TREASURES_MAX, 40 + slot as u64)),
            finisher_index: std::array::from_fn(|_| Index::new(TREASURES_MAX)),
            lying: [TreasureSet::NONE; HUNTS_MAX],
            paths: std::array::from_fn(|_| Path::new(tiles)),
            searching: 0,
            searched_ms: 0,
            last_hunt: 0,
            due_ms: u64::MAX,
            busy: 0,
        }
    }

    /// The earliest end of a running hunt; the largest number if none runs.
    pub(crate) fn due_ms(&self) -> u64 {
        self.due_ms
    }

    /// Returns whether treasures are being laid or removed in any slot.
    #[inline]
    pub(crate) fn any_busy(&self) -> bool {
        self.busy != 0
    }

    /// The slots in which treasures are laid or removed, from `first` on and then from 0.
    #[inline]
    pub(crate) fn busy_from(&self, first: usize) -> impl Iterator<Item = usize> + use<> {
        ones_from(self.busy, first)
    }

    /// Returns whether any path search is running.
    #[inline]
    pub(crate) fn any_searching(&self) -> bool {
        self.searching != 0
    }

    /// The slots with a path search, from `first` on and then from 0.
    #[inline]
    pub(crate) fn searching_from(&self, first: usize) -> impl Iterator<Item = usize> + use<> {
        ones_from(self.searching, first)
    }

    /// Returns the hunt in a slot.
    pub(crate) fn hunt(&self, slot: usize) -> &Hunt {
        self.hunts.row(slot as u32)
    }

    /// Writes the hunt in a slot.
    pub(crate) fn write(&mut self, slot: usize, hunt: Hunt) {
        let before = *self.hunt(slot);
        let is_busy = matches!(hunt.phase, HuntPhase::Laying | HuntPhase::Closing);
        self.busy = with_bit(self.busy, slot, is_busy);
        self.hunts.write(slot as u32, hunt);
        if (before.running(), before.ends_ms) == (hunt.running(), hunt.ends_ms) {
            return;
        }
        let running = (0..HUNTS_MAX).map(|slot| self.hunt(slot)).filter(|hunt| hunt.running());
        self.due_ms = running.map(|hunt| hunt.ends_ms).min().unwrap_or(u64::MAX);
    }

    /// Returns the slot of a running hunt.
    pub(crate) fn find(&self, hunt: u32) -> Option<usize> {
        (0..HUNTS_MAX).find(|slot| self.hunt(*slot).running() && self.hunt(*slot).hunt == hunt)
    }

    /// Returns a treasure.
    pub(crate) fn treasure(&self, slot: usize, number: u16) -> Treasure {
        self.treasures[slot].row(number.into())
    }

    /// Writes a treasure.
    pub(crate) fn write_treasure(&mut self, slot: usize, number: u16, treasure: Treasure) {
        self.treasures[slot].reach(number.into());
        self.treasures[slot].write(number.into(), treasure);
        self.lying[slot].set(number, matches!(treasure, Treasure::Lies(_)));
    }

    /// Starts a path search for the treasures on the map, unless their paths are known or being
    /// searched. Must be called when all are laid and whenever one is opened.
    pub(crate) fn seek(&mut self, slot: usize) {
        let seeks = self.paths[slot].seek(&self.lying[slot]);
        self.searching = with_bit(self.searching, slot, seeks);
    }

    /// Does a piece of work of a slot's path search.
    pub(crate) fn search(&mut self, slot: usize, tiles: &Tiles) {
        let treasures = &self.treasures[slot];
        self.paths[slot]
            .work(tiles, |number| treasures.row(number).tile().expect("what is sought was laid"));
        self.seek(slot);
    }

    /// Ends a slot's path search and drops its paths.
    pub(crate) fn stop(&mut self, slot: usize) {
        self.paths[slot].stop();
        self.searching = with_bit(self.searching, slot, false);
    }

    /// Returns the finisher with this rank, counted from 0.
    pub(crate) fn finisher(&self, slot: usize, rank: u16) -> Finisher {
        *self.finishers[slot].row(rank.into())
    }

    /// Returns the rank of a finisher, counted from 0.
    pub(crate) fn rank_of(&self, slot: usize, player_id: u64) -> Option<u16> {
        let id_of = |rank| self.finishers[slot].row(rank).player_id;
        self.finisher_index[slot].find(player_id, id_of).map(|rank| rank as u16)
    }

    /// Adds the finisher with the next rank.
    pub(crate) fn add_finisher(&mut self, slot: usize, rank: u16, finisher: Finisher) {
        self.finishers[slot].reach(rank.into());
        self.finishers[slot].write(rank.into(), finisher);
        let id_of = |rank| self.finishers[slot].row(rank).player_id;
        self.finisher_index[slot].insert(finisher.player_id, rank.into(), id_of);
    }

    /// Counts another treasure of a finisher, even if the player left in between and its own count
    /// restarted.
    pub(crate) fn count_found(&mut self, slot: usize, rank: u16) {
        let finisher = self.finisher(slot, rank);
        let found = finisher.found + 1;
        self.finishers[slot].write(rank.into(), Finisher { found, ..finisher });
    }

    /// Removes a finisher.
    pub(crate) fn remove_finisher(&mut self, slot: usize, rank: u16) {
        let player_id = self.finisher(slot, rank).player_id;
        self.finisher_index[slot].remove(player_id, rank.into());
        self.finishers[slot].write(rank.into(), Finisher::default());
    }

    /// Decodes the hunts of a checkpoint taken at this time, and places their treasures on the
    /// tiles.
    pub(crate) fn decode(tiles: &mut Tiles, now_ms: u64, words: &mut Words) -> Option<Hunts> {
        let mut hunts = Hunts::new(tiles.count());
        hunts.last_hunt = u32::try_from(words.word()?).ok()?;
        hunts.searched_ms = words.word()?;
        for slot in 0..HUNTS_MAX {
            let hunt = Hunt::from_words(words.take()?)?;
            if hunt.started_ms.max(hunts.searched_ms) > now_ms {
                return None;
            }
            hunts.write(slot, hunt);
            for number in 0..hunt.tried {
                let treasure = Treasure::from_words(words.take()?)?;
                if treasure.tile().is_some_and(|tile| tile >= tiles.count()) {
                    return None;
                }
                if let Treasure::Lies(tile) = treasure {
                    if tiles.treasure(tile).is_some() {
                        return None;
                    }
                    tiles.lay(tile, Some(TreasureKey { slot: slot as u8, number }));
                }
                hunts.write_treasure(slot, number, treasure);
            }
            for rank in hunt.announced..hunt.finishers {
                let finisher = Finisher::from_words(words.take()?)?;
                if hunts.rank_of(slot, finisher.player_id).is_some() {
                    return None;
                }
                hunts.add_finisher(slot, rank, finisher);
            }
            let treasures = &hunts.treasures[slot];
            hunts.paths[slot].decode(tiles, words, |number| treasures.get(number)?.tile())?;
            // A state that says otherwise now has another digest and is refused.
            match hunt.phase {
                HuntPhase::Open => hunts.seek(slot),
                _ => hunts.stop(slot),
            }
        }
        Some(hunts)
    }

    /// Lists all hunts of an encoded state; the treasures of a slot are the part `first` and its
    /// number, the finishers the part that many slots later.
    pub(crate) fn list(&self, first: u8, checkpoint: &mut Checkpoint) {
        checkpoint.note((tables::HUNTS, 0), 1, self.noted());
        for slot in 0..HUNTS_MAX {
            let (hunt, instance) = (*self.hunt(slot), slot as u8);
            checkpoint.note((tables::SLOTS, instance), 1, hunt.to_words());
            let part = first + slot as u8;
            let rows = 0..hunt.tried.into();
            let run = uncounted(tables::TREASURES, instance, &rows);
            checkpoint.rows(run, part, rows, Treasure::WORDS as u64 * u64::from(run.rows));
            let part = part + HUNTS_MAX as u8;
            let rows = hunt.announced.into()..hunt.finishers.into();
            let run = uncounted(tables::FINISHERS, instance, &rows);
            checkpoint.rows(run, part, rows, Finisher::WORDS as u64 * u64::from(run.rows));
            self.paths[slot].note(instance, checkpoint);
        }
    }

    /// Returns the part with this number after the first.
    pub(crate) fn part(&self, number: usize) -> &dyn Part {
        match number.checked_sub(HUNTS_MAX) {
            None => &self.treasures[number],
            Some(slot) => &self.finishers[slot],
        }
    }

    /// Returns the part with this number after the first.
    pub(crate) fn part_mut(&mut self, number: usize) -> &mut dyn Part {
        match number.checked_sub(HUNTS_MAX) {
            None => &mut self.treasures[number],
            Some(slot) => &mut self.finishers[slot],
        }
    }

    /// What is in no table: what a checkpoint notes at once, beside the hunts and the paths.
    fn noted(&self) -> [u64; 2] {
        let Hunts {
            searched_ms,
            last_hunt,
            // Read row by row, or slot by slot.
            hunts: _,
            treasures: _,
            finishers: _,
            paths: _,
            // Derived from the above.
            finisher_index: _,
            lying: _,
            searching: _,
            due_ms: _,
            busy: _,
        } = self;
        [(*last_hunt).into(), *searched_ms]
    }

    /// Hash of all hunts.
    pub(crate) fn digest(&self) -> u64 {
        let Hunts {
            hunts,
            treasures,
            finishers,
            paths,
            searched_ms,
            last_hunt,
            // Derived from the above.
            finisher_index: _,
            lying: _,
            searching: _,
            due_ms: _,
            busy: _,
        } = self;
        let treasures = treasures.iter().map(Column::digest);
        let finishers = finishers.iter().map(Table::digest);
        let paths = paths.iter().map(Path::digest);
        let slots = treasures.chain(finishers).chain(paths.enumerate().map(|(slot, digest)| {
            // Two slots with swapped paths are a different state.
            mix::fold(digest, mix::KEYS[slot])
        }));
        let sum = slots.fold(hunts.digest(), u64::wrapping_add);
        sum.wrapping_add(mix::hash(&[(*last_hunt).into(), *searched_ms], mix::KEYS[6]))
    }
}

/// Returns the run of these rows of a slot. The slot's row says how many they are.
fn uncounted(table: u8, instance: u8, rows: &Range<u32>) -> RowRun {
    RowRun { table, instance, is_counted: false, rows: rows.end - rows.start }
}

/// Returns the slots' bits with this slot's bit set to `bit`.
fn with_bit(bits: u8, slot: usize, bit: bool) -> u8 {
    bits & !(1 << slot) | u8::from(bit) << slot
}

/// The positions of the set bits among the slots' bits, from `first` on and then from 0.
#[inline]
fn ones_from(bits: u8, first: usize) -> impl Iterator<Item = usize> {
    let twice = u32::from(bits) | u32::from(bits) << HUNTS_MAX;
    let mut left = twice >> first & ((1 << HUNTS_MAX) - 1);
    std::iter::from_fn(move || {
        let turn = left.trailing_zeros() as usize;
        let found = left != 0;
        left &= left.wrapping_sub(1);
        found.then_some((first + turn) % HUNTS_MAX)
    })
}
