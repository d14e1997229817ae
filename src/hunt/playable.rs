//! The hunt as a game that a program plays: its rules files, its bots, and what a demo says of it.

use crate::edition::{Playable, RulesFileError, RulesFolder};
use crate::hunt::change::Change;
use crate::hunt::hunters::Hunters;
use crate::hunt::rules::Rules;
use crate::hunt::rules::rulebook::Rulebook;
use crate::hunt::rules_file::{self, BUILT_IN};
use crate::hunt::state::TreasureHunt;
use crate::hunt::walkers::Walkers;
use crate::kit::bots::{BotOptions, Bots, SplitMix64};
use crate::kit::update::Update;

impl Playable for TreasureHunt {
    const NAME: &'static str = "treasure hunt";
    const BUILT_IN_RULES: &'static str = BUILT_IN;

    fn read_rules(text: &str, beside: &RulesFolder) -> Result<Rules, RulesFileError> {
        rules_file::read_rules(text, beside)
    }

    fn bots(
        rulebook: &Rulebook,
        options: &BotOptions,
        chance: &mut SplitMix64,
    ) -> Option<Box<dyn Bots>> {
        // Hunters draw after walkers, so that a seed keeps its load.
        let walkers = Walkers::new(options, chance);
        Some(match options.is_watched {
            true => Box::new(Hunters::new(rulebook, options, chance)),
            false => Box::new(walkers),
        })
    }

    /// Treasures are opened all the time; other changes are rarer.
    fn describe(update: &Update) -> Option<(u8, String)> {
        let player = update.player_id();
        match update.change() {
            Change::HuntStarted { treasures, hunt, .. } => {
                Some((4, format!("hunt {hunt} begins, {treasures} treasures")))
            }
            Change::Finished { rank, found, hunt, .. } => {
                Some((3, format!("player {player} is number {rank} of hunt {hunt}, {found} found")))
            }
            Change::Downed { by, .. } => {
                Some((2, format!("player {by} takes player {player} down")))
            }
            Change::Looted { points, .. } => {
                Some((1, format!("player {player} opens a treasure, {points} points")))
            }
            _ => None,
        }
    }
}
