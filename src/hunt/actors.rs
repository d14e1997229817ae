//! The actors of a shard, with the index of players and the order of due times.

use crate::hunt::actor::{Body, Pack};
use crate::kit::checkpoint::{Checkpoint, Part, STORED_ROW_WORDS_MAX, StoredRow};
use crate::kit::players::Players;
use crate::kit::rank_tree::{Key, RankTree};
use crate::kit::row::Row;
use crate::kit::table::Table;

/// Words of an actor in a stored state: those of its two rows.
pub(crate) const ACTOR_WORDS: usize = Body::WORDS + Pack::WORDS;
const _: () = assert!(ACTOR_WORDS <= STORED_ROW_WORDS_MAX);

/// All actors, by row.
#[derive(Clone, Debug)]
pub(crate) struct Actors {
    pub(crate) bodies: Players<Body>,
    packs: Table<Pack>,
    /// When something next ends for the actor.
    due: RankTree,
    /// The earliest of these times; the largest number if there is none.
    due_ms: u64,
}

impl Actors {
    /// Creates an empty set for this many actors.
    pub(crate) fn new(actors_max: usize) -> Actors {
        Actors {
            bodies: Players::new(actors_max, 1),
            packs: Table::new(actors_max, 2),
            due: RankTree::new(actors_max),
            due_ms: u64::MAX,
        }
    }

    /// Number of actors.
    pub(crate) fn count(&self) -> u32 {
        self.bodies.count()
    }

    /// Returns the row of a player's actor.
    pub(crate) fn find(&self, player_id: u64) -> Option<u32> {
        self.bodies.find(player_id)
    }

    /// Prefetches the moving part of an actor.
    #[inline]
    pub(crate) fn prefetch(&self, row: u32) {
        self.bodies.prefetch(row);
    }

    /// Adds an actor for a player who has none.
    pub(crate) fn add(&mut self, body: Body, pack: Pack) -> u32 {
        let row = self.load(body, pack);
        self.set_due(row, None, due_key(&pack));
        row
    }

    /// Like [`Actors::add`], but without the order of due times: [`Actors::order`] builds it for
    /// all actors at once.
    pub(crate) fn load(&mut self, body: Body, pack: Pack) -> u32 {
        assert_eq!(body.player_id, pack.player_id);
        let row = self.bodies.add(body);
        self.packs.reach(row);
        self.due.reach(self.bodies.used());
        self.packs.write(row, pack);
        row
    }

    /// Builds the order of due times. All actors must have been loaded.
    pub(crate) fn order(&mut self) {
        assert!(self.bodies.is_dense(), "an actor was removed before all were loaded");
        let packs = (0..self.bodies.used()).map(|row| (self.packs.row(row), row));
        let mut due: Vec<(Key, u32)> =
            packs.filter_map(|(pack, row)| Some((due_key(pack)?, row))).collect();
        due.sort_unstable();
        self.due.fill(&due);
        self.due_ms = self.first_due_ms();
    }

    /// Removes an actor and frees its row.
    pub(crate) fn remove(&mut self, row: u32) {
        let pack = *self.pack(row);
        self.set_due(row, due_key(&pack), None);
        self.bodies.remove(row);
        self.packs.write(row, Pack::default());
    }

    /// Returns the moving part of an actor.
    #[inline]
    pub(crate) fn body(&self, row: u32) -> &Body {
        self.bodies.row(row)
    }

    /// Returns the carried part of an actor.
    pub(crate) fn pack(&self, row: u32) -> &Pack {
        self.packs.row(row)
    }

    /// Writes the moving part of an actor.
    #[inline(always)]
    pub(crate) fn write_body(&mut self, row: u32, body: Body) {
        self.bodies.write(row, body);
    }

    /// Writes the carried part of an actor, and updates its due time.
    pub(crate) fn write_pack(&mut self, row: u32, pack: Pack) {
        let before = *self.packs.row(row);
        self.packs.write(row, pack);
        self.set_due(row, due_key(&before), due_key(&pack));
    }

    /// Returns whether something is due for any actor.
    #[inline]
    pub(crate) fn is_due(&self, now_ms: u64) -> bool {
        self.due_ms <= now_ms
    }

    /// Returns the actor that is due first, if it is due now.
    pub(crate) fn first_due(&self, now_ms: u64) -> Option<u32> {
        if !self.is_due(now_ms) {
            return None;
        }
        self.due.first().map(|(row, _)| row)
    }

    fn set_due(&mut self, row: u32, before: Option<Key>, due: Option<Key>) {
        if before == due {
            return;
        }
        if let Some(key) = before {
            self.due.remove(key);
        }
        if let Some(key) = due {
            self.due.insert(key, row);
        }
        self.due_ms = self.first_due_ms();
    }

    fn first_due_ms(&self) -> u64 {
        self.due.first().map_or(u64::MAX, |(_, [at_ms, ..])| at_ms)
    }

    /// Lists all actors of an encoded state.
    pub(crate) fn list(&self, table: u8, part: u8, checkpoint: &mut Checkpoint) {
        self.bodies.list(table, part, ACTOR_WORDS, checkpoint);
    }

    /// Hash of all actors.
    pub(crate) fn digest(&self) -> u64 {
        let Actors {
            bodies,
            packs,
            // Derived from the above.
            due: _,
            due_ms: _,
        } = self;
        bodies.digest().wrapping_add(packs.digest().rotate_left(32))
    }
}

impl Part for Actors {
    fn begin_checkpoint(&mut self) {
        self.bodies.begin_checkpoint();
        self.packs.begin_checkpoint();
    }

    fn read_row(&self, number: u32, row: &mut StoredRow) {
        let body = self.bodies.checkpointed(number);
        if body.player_id != 0 {
            row.push(&body.to_words());
            row.push(&self.packs.checkpointed(number).to_words());
        }
    }

    fn pass(&mut self, number: u32) {
        self.bodies.pass(number);
        self.packs.pass(number);
    }

    fn end_checkpoint(&mut self) {
        self.bodies.end_checkpoint();
        self.packs.end_checkpoint();
    }
}

fn due_key(pack: &Pack) -> Option<Key> {
    pack.next_due_ms().map(|at_ms| [at_ms, pack.player_id, 0])
}
