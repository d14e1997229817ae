//! Hunts and their treasures: what a zone knows of them.

use crate::engine::index::Index;
use crate::engine::path::Path;
use crate::engine::state::Words;
use crate::engine::table::{Identity, Row, Table};
use crate::engine::tiles::{Tiles, TreasureKey};
use crate::limits::{HUNTS_MAX, TREASURES_MAX};

/// Where a hunt is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// The slot holds no hunt.
    #[default]
    Free = 0,
    /// Treasures are being laid, some an event. Those that lie can be opened.
    Laying = 1,
    /// All treasures that found a tile have been laid.
    Open = 2,
    /// It is over: finishers are told and what is left is taken away, some an event.
    Closing = 3,
}

/// One hunt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hunt {
    /// Its number.
    pub hunt: u32,
    /// Where it is in its life.
    pub phase: Phase,
    /// Treasures of the event that started it.
    pub treasures: u16,
    /// How many of them have been tried to lay.
    pub tried: u16,
    /// How many of those found a tile.
    pub laid: u16,
    /// How many were opened.
    pub opened: u16,
    /// While laid: how many the path cache knows. While closing: how many were taken away.
    pub swept: u16,
    /// Decides where treasures lie and what they hold.
    pub seed: u64,
    /// When it began.
    pub started_ms: u64,
    /// When its window is over.
    pub ends_ms: u64,
    /// Players that opened enough treasures.
    pub finishers: u16,
    /// How many of them have been told.
    pub told: u16,
}

impl Hunt {
    /// Whether treasures can be opened.
    pub fn running(&self) -> bool {
        matches!(self.phase, Phase::Laying | Phase::Open)
    }

    /// Whether all treasures were laid and opened.
    pub fn all_found(&self) -> bool {
        self.phase == Phase::Open && self.opened == self.laid
    }
}

impl Row<6> for Hunt {
    const IDENTITY: Identity = Identity::Number;

    fn to_words(&self) -> [u64; 6] {
        let counts = [self.treasures, self.tried, self.laid, self.opened];
        let counts = counts.iter().rev().fold(0, |word, count| word << 16 | u64::from(*count));
        let told =
            u64::from(self.swept) | u64::from(self.finishers) << 16 | u64::from(self.told) << 32;
        let first = u64::from(self.hunt) | (self.phase as u64) << 32;
        [first, counts, told, self.seed, self.started_ms, self.ends_ms]
    }

    fn from_words(words: [u64; 6]) -> Option<Hunt> {
        let [first, counts, told, seed, started_ms, ends_ms] = words;
        let hunt = Hunt {
            hunt: first as u32,
            phase: match first >> 32 {
                0 => Phase::Free,
                1 => Phase::Laying,
                2 => Phase::Open,
                3 => Phase::Closing,
                _ => return None,
            },
            treasures: counts as u16,
            tried: (counts >> 16) as u16,
            laid: (counts >> 32) as u16,
            opened: (counts >> 48) as u16,
            swept: told as u16,
            seed,
            started_ms,
            ends_ms,
            finishers: (told >> 16) as u16,
            told: (told >> 32) as u16,
        };
        let counts = [hunt.tried, hunt.laid, hunt.opened, hunt.swept, hunt.finishers, hunt.told];
        let valid = usize::from(hunt.treasures) <= TREASURES_MAX
            && counts.iter().all(|count| *count <= hunt.treasures)
            && hunt.told <= hunt.finishers
            && (hunt.phase != Phase::Free || words == [0; 6])
            && hunt.to_words() == words;
        valid.then_some(hunt)
    }
}

/// One treasure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Treasure {
    /// Not laid, or taken away.
    #[default]
    Nowhere,
    /// Lies on this tile.
    Lies(u32),
    /// Was opened.
    Opened,
}

impl Row<1> for Treasure {
    const IDENTITY: Identity = Identity::Number;

    fn to_words(&self) -> [u64; 1] {
        match self {
            Treasure::Nowhere => [0],
            Treasure::Opened => [1],
            Treasure::Lies(tile) => [u64::from(*tile) + 2],
        }
    }

    fn from_words([word]: [u64; 1]) -> Option<Treasure> {
        Some(match word {
            0 => Treasure::Nowhere,
            1 => Treasure::Opened,
            _ => Treasure::Lies(u32::try_from(word - 2).ok()?),
        })
    }
}

/// A player that opened enough treasures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Finisher {
    /// The player.
    pub player_id: u64,
    /// From the hunt's start to the treasure that made it a finisher.
    pub elapsed_ms: u32,
    /// Treasures that it opened.
    pub found: u16,
}

impl Row<2> for Finisher {
    const IDENTITY: Identity = Identity::Number;

    fn to_words(&self) -> [u64; 2] {
        [self.player_id, u64::from(self.elapsed_ms) | u64::from(self.found) << 32]
    }

    fn from_words([player_id, word]: [u64; 2]) -> Option<Finisher> {
        let found = u16::try_from(word >> 32).ok()?;
        Some(Finisher { player_id, elapsed_ms: word as u32, found })
    }
}

/// All hunts of a zone, by slot.
#[derive(Clone, Debug)]
pub struct Hunts {
    pub(crate) hunts: Table<Hunt, 6>,
    /// By slot and number.
    pub(crate) treasures: Table<Treasure, 1>,
    /// By slot and rank.
    pub(crate) finishers: Table<Finisher, 2>,
    finisher_index: [Index; HUNTS_MAX],
    pub(crate) paths: [Path; HUNTS_MAX],
    /// The highest number of a hunt so far.
    pub(crate) last_hunt: u32,
    /// When the first window of a running hunt is over; the largest number if none runs.
    due_ms: u64,
    /// A bit for each slot that may have work left to do. What changes a slot sets it.
    busy: u8,
}

impl Hunts {
    /// None yet, on a map of so many tiles.
    pub fn new(tiles: u32) -> Hunts {
        let mut hunts = Table::new(HUNTS_MAX, 4);
        hunts.reach(HUNTS_MAX as u32 - 1);
        Hunts {
            hunts,
            treasures: Table::new(HUNTS_MAX * TREASURES_MAX, 5),
            finishers: Table::new(HUNTS_MAX * TREASURES_MAX, 6),
            finisher_index: std::array::from_fn(|_| Index::new(TREASURES_MAX)),
            paths: std::array::from_fn(|slot| Path::new(tiles, slot as u64)),
            last_hunt: 0,
            due_ms: u64::MAX,
            busy: 0,
        }
    }

    /// When the first window of a running hunt is over; the largest number if none runs.
    pub fn due_ms(&self) -> u64 {
        self.due_ms
    }

    /// Whether any slot may have work left to do.
    pub fn any_busy(&self) -> bool {
        self.busy != 0
    }

    /// Whether a slot may have work left to do.
    pub fn is_busy(&self, slot: usize) -> bool {
        self.busy >> slot & 1 == 1
    }

    /// Notes that a slot has no work left until something in it changes.
    pub fn rest(&mut self, slot: usize) {
        self.busy &= !(1 << slot);
    }

    /// The hunt in a slot.
    pub fn hunt(&self, slot: usize) -> &Hunt {
        self.hunts.row(slot as u32)
    }

    /// Changes the hunt in a slot.
    pub fn write(&mut self, slot: usize, hunt: Hunt) {
        self.hunts.write(slot as u32, hunt);
        self.busy |= 1 << slot;
        let running = (0..HUNTS_MAX).map(|slot| self.hunt(slot)).filter(|hunt| hunt.running());
        self.due_ms = running.map(|hunt| hunt.ends_ms).min().unwrap_or(u64::MAX);
    }

    /// The slot of a running hunt.
    pub fn find(&self, hunt: u32) -> Option<usize> {
        (0..HUNTS_MAX).find(|slot| self.hunt(*slot).running() && self.hunt(*slot).hunt == hunt)
    }

    /// A treasure.
    pub fn treasure(&self, slot: usize, number: u16) -> Treasure {
        *self.treasures.row(row(slot, number))
    }

    /// Changes a treasure.
    pub fn write_treasure(&mut self, slot: usize, number: u16, treasure: Treasure) {
        self.treasures.reach(row(slot, number));
        self.treasures.write(row(slot, number), treasure);
    }

    /// The finisher of this rank, counted from 0.
    pub fn finisher(&self, slot: usize, rank: u16) -> Finisher {
        *self.finishers.row(row(slot, rank))
    }

    /// The rank of a finisher, counted from 0.
    pub fn rank_of(&self, slot: usize, player_id: u64) -> Option<u16> {
        let id_of = |rank| self.finishers.row(row(slot, rank as u16)).player_id;
        self.finisher_index[slot].find(player_id, id_of).map(|rank| rank as u16)
    }

    /// Adds the finisher of the next rank.
    pub fn add_finisher(&mut self, slot: usize, rank: u16, finisher: Finisher) {
        self.finishers.reach(row(slot, rank));
        self.finishers.write(row(slot, rank), finisher);
        let id_of = |rank| self.finishers.row(row(slot, rank as u16)).player_id;
        self.finisher_index[slot].insert(finisher.player_id, rank.into(), id_of);
    }

    /// Changes how much a finisher found.
    pub fn write_found(&mut self, slot: usize, rank: u16, found: u16) {
        let finisher = self.finisher(slot, rank);
        let found = found.max(finisher.found);
        self.finishers.write(row(slot, rank), Finisher { found, ..finisher });
    }

    /// Forgets a finisher.
    pub fn remove_finisher(&mut self, slot: usize, rank: u16) {
        let player_id = self.finisher(slot, rank).player_id;
        self.finisher_index[slot].remove(player_id, rank.into());
        self.finishers.write(row(slot, rank), Finisher::default());
    }

    /// The hunts that a capture told, whose treasures this lays on the tiles.
    pub fn decode(tiles: &mut Tiles, words: &mut Words) -> Option<Hunts> {
        let mut hunts = Hunts::new(tiles.count());
        hunts.last_hunt = u32::try_from(words.word()?).ok()?;
        for slot in 0..HUNTS_MAX {
            let hunt = Hunt::from_words(words.take()?)?;
            hunts.write(slot, hunt);
            for number in 0..hunt.tried {
                let treasure = Treasure::from_words(words.take()?)?;
                if let Treasure::Lies(tile) = treasure {
                    if tile >= tiles.count() || tiles.treasure(tile).is_some() {
                        return None;
                    }
                    tiles.lay(tile, Some(TreasureKey { slot: slot as u8, number }));
                }
                hunts.write_treasure(slot, number, treasure);
            }
            for rank in hunt.told..hunt.finishers {
                let finisher = Finisher::from_words(words.take()?)?;
                if hunts.rank_of(slot, finisher.player_id).is_some() {
                    return None;
                }
                hunts.add_finisher(slot, rank, finisher);
            }
            hunts.paths[slot].decode(tiles.count(), hunt.tried, words)?;
        }
        Some(hunts)
    }

    /// Hash of all hunts.
    pub fn digest(&self) -> u64 {
        let tables = [self.hunts.digest(), self.treasures.digest(), self.finishers.digest()];
        let paths = self.paths.iter().map(Path::digest);
        let sum = tables.into_iter().chain(paths).fold(0, u64::wrapping_add);
        sum.wrapping_add(u64::from(self.last_hunt))
    }
}

/// The row of a treasure, or of a finisher.
pub(crate) fn row(slot: usize, number: u16) -> u32 {
    (slot * TREASURES_MAX) as u32 + u32::from(number)
}
