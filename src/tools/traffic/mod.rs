//! A generated load of the bots of a game; equal seeds yield equal loads.
//!
//! First every player enters its zone. Then one player after the other acts, chosen at random, and
//! the world acts in each zone once a second.

use super::source::SourceRecord;
use crate::edition::Edition;
use crate::kit::bots::{BOT_ID_FIRST, BotOptions, Bots, SplitMix64};
use crate::kit::event::{Event, EventTable, Subject};
use crate::kit::field::ActionWords;
use crate::output::event_json::write_words;
use crate::view::game::ViewedGame;

/// Events per second of intended time if they are sent as fast as possible.
pub const RATE_UNPACED: u64 = 1_000_000;

/// Default number of players.
pub(crate) const PLAYERS_DEFAULT: u32 = 3_000;

/// Default seed.
pub(crate) const SEED_DEFAULT: u64 = 1;

/// Microseconds between two ticks of a zone.
const TICK_US: i64 = 1_000_000;

/// The generator.
pub(crate) struct Traffic {
    options: BotOptions,
    chance: SplitMix64,
    bots: Box<dyn Bots>,
    events: &'static EventTable,
    /// The last `seq` of each player.
    seqs: Vec<u64>,
    entered: usize,
    time_us: i64,
    /// Increment of the intended time per event: whole microseconds, and the remainder.
    step: (i64, u64),
    rest: u64,
    tick: u64,
    /// The next zone in which the world acts at this tick.
    world_in: Option<u16>,
    offset_next: Vec<i64>,
    text: Vec<u8>,
}

impl Traffic {
    /// Creates a load that has not begun; `None`: the game has no bots.
    pub(crate) fn new(
        edition: &Edition,
        rulebook: &dyn ViewedGame,
        options: BotOptions,
    ) -> Option<Traffic> {
        assert!(options.zones > 0 && options.rate > 0);
        let mut chance = SplitMix64::new(options.seed);
        Some(Traffic {
            bots: edition.bots(rulebook, &options, &mut chance)?,
            chance,
            events: rulebook.schema().events,
            seqs: vec![0; options.players() as usize],
            entered: 0,
            time_us: options.base_us,
            step: ((1_000_000 / options.rate) as i64, 1_000_000 % options.rate),
            rest: 0,
            tick: 0,
            world_in: None,
            offset_next: vec![0; usize::from(options.zones)],
            text: Vec::with_capacity(256),
            options,
        })
    }

    /// Returns the next event. Its `ts_us` is its intended send time.
    pub(crate) fn next_record(&mut self) -> SourceRecord<'_> {
        let ts_us = self.time_us;
        let (zone, player_id, seq, action) = self.next_action();
        self.text.clear();
        write_words(&mut self.text, self.events, (player_id, seq, ts_us), (&action, &[]));
        self.advance();
        let offset_next = &mut self.offset_next[usize::from(zone)];
        let (offset, time_ms) = (*offset_next, ts_us / 1000);
        *offset_next += 1;
        self.bots.observe(zone, &Event { offset, time_ms, player_id, seq, ts_us, action });
        SourceRecord { partition: zone, offset, time_ms, value: Some(&self.text) }
    }

    fn advance(&mut self) {
        self.time_us += self.step.0;
        self.rest += self.step.1;
        if self.rest >= self.options.rate {
            self.rest -= self.options.rate;
            self.time_us += 1;
        }
    }

    /// Returns who acts next, where, and how.
    fn next_action(&mut self) -> (u16, u64, u64, ActionWords) {
        if let Some(of_world) = self.next_of_world() {
            return of_world;
        }
        let Traffic { bots, chance, time_us, .. } = self;
        let (player, action) = if self.entered < self.seqs.len() {
            self.entered += 1;
            (self.entered - 1, bots.enter(self.entered - 1, *time_us))
        } else {
            let player = chance.below(self.seqs.len() as u64) as usize;
            (player, bots.act(player, *time_us, chance))
        };
        self.seqs[player] += 1;
        (self.options.zone_of(player), BOT_ID_FIRST + player as u64, self.seqs[player], action)
    }

    /// Returns what the world does, in one zone after the other, if a tick is due.
    fn next_of_world(&mut self) -> Option<(u16, u64, u64, ActionWords)> {
        let due_us = self.options.base_us + self.tick as i64 * TICK_US;
        if self.world_in.is_none() && self.entered == self.seqs.len() && self.time_us >= due_us {
            self.tick += 1;
            self.world_in = Some(0);
        }
        let zone = self.world_in?;
        self.world_in = Some(zone + 1).filter(|next| *next < self.options.zones);
        let action = self.bots.act_as_world(self.tick, zone, &mut self.chance);
        let subject = self.events.actions[usize::from(action.kind())].subject;
        let seq = if subject == Subject::Tick { self.tick } else { 0 };
        Some((zone, 0, seq, action))
    }
}

#[cfg(test)]
mod tests;
