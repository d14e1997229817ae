//! Counter-Strike: Global Offensive. Positions are `[x, y, height]` in units of 1.905 cm; times are
//! whole seconds.
//!
//! A server's log has a position only when a player fires, throws, hits or dies, so players are
//! seen rarely, and appear to stand still in between.

use super::scene::Scene;
use super::{heading_between, player_number, shot};
use huntd::hunt::event::Action;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// The maps extend 4,096 units from their centre.
pub(crate) const CSGO_MAP_HALF_CM: i64 = 7_804;

/// Centimetres per unit: 3/4 of an inch.
const UNIT_CM: f64 = 1.905;

#[derive(Deserialize)]
struct CsgoLine<'a> {
    ts_ms: i64,
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    player: Option<Cow<'a, str>>,
    pos: Option<[f64; 3]>,
    #[serde(borrow)]
    target: Option<Cow<'a, str>>,
    target_pos: Option<[f64; 3]>,
    #[serde(borrow)]
    item: Option<Cow<'a, str>>,
    #[serde(borrow)]
    event: Option<Cow<'a, str>>,
}

/// The players seen since the round began.
#[derive(Default)]
pub(crate) struct CsgoAdapter {
    seen_this_round: BTreeSet<u64>,
}

impl CsgoAdapter {
    /// Processes one record of the recording.
    pub(crate) fn read(&mut self, line: &str, scene: &mut Scene) -> Result<(), serde_json::Error> {
        let line: CsgoLine<'_> = serde_json::from_str(line)?;
        scene.set_time(line.ts_ms);
        if line.event.as_deref() == Some("Round_Start") {
            self.seen_this_round.clear();
        }
        let player = line.player.as_deref().and_then(player_number);
        let target = line.target.as_deref().and_then(player_number);
        if let (Some(player), Some(position)) = (player, line.pos) {
            self.see(player, position, scene);
        }
        if let (Some(target), Some(position)) = (target, line.target_pos)
            && player != Some(target)
        {
            self.see(target, position, scene);
        }
        let Some(player) = player else {
            return Ok(());
        };
        let weapon = line.item.as_deref().unwrap_or_default();
        match &*line.kind {
            "attack" => {
                let heading = match (line.pos, line.target_pos) {
                    (Some([x, y, _]), Some([target_x, target_y, _])) => {
                        heading_between((x, y), (target_x, target_y))
                    }
                    _ => None,
                };
                scene.act(player, shot(weapon, heading));
            }
            "throw" => scene.act(player, shot(weapon, None)),
            "purchase" => scene.act(player, Action::Loot { hunt: None }),
            _ => {}
        }
        Ok(())
    }

    /// The first position in a round is where the player was placed, not where it walked.
    fn see(&mut self, player: u64, [x, y, _]: [f64; 3], scene: &mut Scene) {
        let (x, y) = ((x * UNIT_CM).round() as i64, (y * UNIT_CM).round() as i64);
        if self.seen_this_round.insert(player) {
            scene.respawn(player, x, y);
        } else {
            scene.see(player, x, y);
        }
    }
}
