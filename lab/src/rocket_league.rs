//! Rocket League. Positions are `[x, y, height]` in units of 1 cm, `rot` is `[yaw, pitch, roll]` in
//! degrees, both at 30 Hz.

use super::scene::Scene;
use super::{heading, heading_between, player_number, shot};
use huntd::hunt::event::Action;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The field is 8,192 by 10,240 units, plus the goals.
pub(crate) const ROCKET_LEAGUE_MAP_HALF_CM: i64 = 8_192;

#[derive(Deserialize)]
struct RocketLeagueLine<'a> {
    ts_ms: i64,
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    player: Option<Cow<'a, str>>,
    #[serde(borrow)]
    victim: Option<Cow<'a, str>>,
    pos: Option<[f64; 3]>,
    rot: Option<[f64; 3]>,
}

/// The last position of each car, for the direction of a demolition.
#[derive(Default)]
pub(crate) struct RocketLeagueAdapter {
    cars: BTreeMap<u64, (f64, f64)>,
}

impl RocketLeagueAdapter {
    /// Processes one record of the recording.
    pub(crate) fn read(&mut self, line: &str, scene: &mut Scene) -> Result<(), serde_json::Error> {
        let line: RocketLeagueLine<'_> = serde_json::from_str(line)?;
        scene.set_time(line.ts_ms);
        let Some(player) = line.player.as_deref().and_then(player_number) else {
            return Ok(());
        };
        match &*line.kind {
            "car_state" => self.drive(player, &line, scene),
            "car_gone" => {
                self.cars.remove(&player);
                scene.leave(player);
            }
            "boost_pickup" => scene.act(player, Action::Loot { hunt: None }),
            "demolish" => {
                let victim = line.victim.as_deref().and_then(player_number);
                let from = self.cars.get(&player);
                let to = victim.and_then(|victim| self.cars.get(&victim));
                let direction = from.zip(to).and_then(|(from, to)| heading_between(*from, *to));
                scene.act(player, shot("bumper", direction));
                if let Some(victim) = victim {
                    scene.leave(victim);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn drive(&mut self, player: u64, line: &RocketLeagueLine<'_>, scene: &mut Scene) {
        if let Some([x, y, _]) = line.pos {
            self.cars.insert(player, (x, y));
            scene.see(player, x.round() as i64, y.round() as i64);
        }
        if let Some([yaw, _, _]) = line.rot {
            scene.act(player, Action::Rotate { heading: heading(yaw) });
        }
    }
}
