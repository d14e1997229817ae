//! Project Reality: Battlefield 2. Positions are `[x, height, z]` in metres, `yaw` in degrees.
//!
//! `player_update` is a difference: a field that has not changed since the player's last record is
//! absent. So the adapter remembers whether a player is alive.

use super::scene::Scene;
use super::{heading, heading_between, player_number, shot};
use huntd::hunt::event::Action;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The maps are at most 4 km wide.
pub(crate) const PRBF2_MAP_HALF_CM: i64 = 204_800;

/// Heights of a player who is not on the map: before the first spawn, and while waiting for the
/// next one.
const HEIGHTS_UNSPAWNED: [f64; 2] = [-2.0, 5000.0];

#[derive(Deserialize)]
struct Prbf2Line<'a> {
    ts_ms: i64,
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    player: Option<Cow<'a, str>>,
    alive: Option<bool>,
    pos: Option<[f64; 3]>,
    yaw: Option<f64>,
    #[serde(borrow)]
    kit: Option<Cow<'a, str>>,
    #[serde(borrow)]
    item: Option<Cow<'a, str>>,
    #[serde(borrow)]
    victim: Option<Cow<'a, str>>,
    #[serde(borrow)]
    weapon: Option<Cow<'a, str>>,
}

/// The state that differences refer to.
#[derive(Default)]
pub(crate) struct Prbf2Adapter {
    players: BTreeMap<u64, KnownPlayer>,
}

/// The latest state of one player. Absent fields of the recording mean "unchanged".
#[derive(Default)]
struct KnownPlayer {
    alive: bool,
    kit: String,
    /// True if a `kit_allocated` record has announced the next change of `kit`, which is the same
    /// pick-up.
    kit_announced: bool,
    position: Option<(i64, i64)>,
}

impl Prbf2Adapter {
    /// Processes one record of the recording.
    pub(crate) fn read(&mut self, line: &str, scene: &mut Scene) -> Result<(), serde_json::Error> {
        let line: Prbf2Line<'_> = serde_json::from_str(line)?;
        scene.set_time(line.ts_ms);
        let Some(player) = line.player.as_deref().and_then(player_number) else {
            return Ok(());
        };
        match &*line.kind {
            "player_update" => self.update(player, &line, scene),
            "player_remove" => {
                self.players.remove(&player);
                scene.leave(player);
            }
            "proj_add" => {
                let weapon = line.item.as_deref().unwrap_or_default();
                scene.act(player, shot(weapon, line.yaw.map(heading)));
            }
            "kill" => {
                let weapon = line.weapon.as_deref().unwrap_or_default();
                let victim = line.victim.as_deref().and_then(player_number);
                let direction = victim.and_then(|victim| self.direction(player, victim));
                scene.act(player, shot(weapon, direction));
            }
            "kit_allocated" => {
                self.players.entry(player).or_default().kit_announced = true;
                scene.act(player, Action::Loot { hunt: None });
            }
            _ => {}
        }
        Ok(())
    }

    /// The heading from one player to another.
    fn direction(&self, from: u64, to: u64) -> Option<u16> {
        let place = |player| self.players.get(&player)?.position;
        let [from, to] = [place(from)?, place(to)?].map(|(x, y)| (x as f64, y as f64));
        heading_between(from, to)
    }

    fn update(&mut self, player: u64, line: &Prbf2Line<'_>, scene: &mut Scene) {
        let known = self.players.entry(player).or_default();
        let was_alive = known.alive;
        known.alive = line.alive.unwrap_or(was_alive);
        if let Some([x, height, z]) = line.pos {
            let spawned = !HEIGHTS_UNSPAWNED.contains(&height);
            known.position = spawned.then(|| (centimetres(x), centimetres(z)));
        }
        match (known.alive, known.position) {
            (true, Some((x, y))) if !was_alive => scene.respawn(player, x, y),
            (true, Some((x, y))) if line.pos.is_some() => scene.see(player, x, y),
            (true, Some(_)) => {}
            _ => scene.leave(player),
        }
        if let Some(yaw) = line.yaw
            && scene.is_present(player)
        {
            scene.act(player, Action::Rotate { heading: heading(yaw) });
        }
        if let Some(kit) = line.kit.as_deref()
            && known.kit != kit
        {
            known.kit = kit.to_owned();
            let announced = std::mem::take(&mut known.kit_announced);
            if was_alive && known.alive && !announced {
                scene.act(player, Action::Loot { hunt: None });
            }
        }
    }
}

fn centimetres(metres: f64) -> i64 {
    (metres * 100.0).round() as i64
}
