//! Reads a shard's state from bytes.
//!
//! The bytes are little-endian words, as [`Shard::write_checkpoint`] writes them. They hold the
//! rows, and nothing that can be computed from the rows. They end with the digest, so the result is
//! the state that was written, or an error.

use crate::hunt::Shard;
use crate::hunt::actor::{BODY_WORDS, Body, PACK_WORDS, Pack};
use crate::hunt::hunts::Hunts;
use crate::hunt::refusal::Effect;
use crate::hunt::rules::HEALTH_MAX;
use crate::hunt::rules::rulebook::Rulebook;
use crate::kit::clock::Clock;
use crate::kit::table::Row;
use crate::kit::tombstones::Tombstones;
use crate::kit::words::Words;

/// First word of an encoded state: its name and the format's version.
pub(crate) const FORMAT: u64 = u64::from_le_bytes(*b"HNTSTAT\x05");

/// Words of an actor: those of its two rows.
pub(crate) const ACTOR_WORDS: usize = BODY_WORDS + PACK_WORDS;

/// How many actors ahead a restoring shard prefetches their places.
const ACTORS_AHEAD: usize = 8;

/// Why bytes are no state to go on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateError {
    /// They are not an encoded state of this format.
    Malformed,
    /// They were written under rules that are not loaded.
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

impl Shard {
    /// The shard whose state these bytes are.
    pub fn decode_state(bytes: &[u8], rulebook: &Rulebook) -> Result<Shard, StateError> {
        let words = &mut Words::new(bytes);
        let [format, ruleset] = words.take().ok_or(StateError::Malformed)?;
        if format != FORMAT {
            return Err(StateError::Malformed);
        }
        let ruleset = u32::try_from(ruleset).map_err(|_| StateError::Malformed)?;
        if rulebook.find(ruleset).is_none() {
            return Err(StateError::OtherRules { ruleset });
        }
        Shard::decode_words(words, ruleset, rulebook).ok_or(StateError::Malformed)
    }

    fn decode_words(words: &mut Words, ruleset: u32, rulebook: &Rulebook) -> Option<Shard> {
        let partition = u16::try_from(words.word()?).ok()?;
        let mut shard = Shard::new(partition, rulebook);
        shard.play_by(rulebook.find(ruleset)?.clone());
        shard.clock = Clock::from_words(&words.take()?);
        shard.last_tick = words.word()?;
        for _ in 0..words.word()? {
            // Later actors are prefetched, because each is noted in places far apart.
            if let Some(ahead) = words.ahead(ACTORS_AHEAD * ACTOR_WORDS).and_then(Body::from_words)
            {
                shard.actors.begin_lookup(ahead.player_id);
                shard.tiles.prefetch(ahead.x(), ahead.y());
            }
            let body = Body::from_words(words.take()?)?;
            let pack = Pack::from_words(words.take()?)?;
            shard.check_actor(&body, &pack)?;
            let tile = shard.tiles.at(body.x(), body.y())?;
            let row = shard.actors.load(body, pack);
            shard.tiles.enter(tile, row);
        }
        shard.actors.order();
        shard.tombstones = Tombstones::decode(words)?;
        shard.hunts = Hunts::decode(&mut shard.tiles, shard.clock.now_ms(), words)?;
        let digest = words.word()?;
        (digest == shard.digest() && words.word().is_none()).then_some(shard)
    }

    fn check_actor(&self, body: &Body, pack: &Pack) -> Option<()> {
        let mut effects = Effect::ALL
            .iter()
            .map(|effect| body.has(*effect) == (pack.effects_until_ms[*effect as usize] != 0));
        let valid = body.player_id != 0
            && body.player_id == pack.player_id
            && self.actors.count() < self.rules.actors.count_max
            && self.actors.find(body.player_id).is_none()
            && body.health() <= HEALTH_MAX
            && body.downed() == (pack.respawn_at_ms != 0)
            && body.allowance_at_ms <= self.clock.now_ms()
            && effects.all(|agrees| agrees);
        valid.then_some(())
    }
}
