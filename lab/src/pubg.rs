//! PUBG: Battlegrounds. Positions are centimetres from the map's corner; times are clock times.
//!
//! Telemetry names the player who acts or is acted on, with a position. Only a hit shows a player's
//! heading.

use super::scene::{REPETITION_MS, Scene};
use super::{heading_between, shot};
use huntd::hunt::event::Action;
use jiff::Timestamp;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// The largest maps are 8,160 m wide.
pub(crate) const PUBG_MAP_HALF_CM: i64 = 408_000;

/// At this height players are still in the plane, or have just left it.
const PLANE_CM: f64 = 100_000.0;

#[derive(Deserialize)]
struct PubgLine<'a> {
    #[serde(rename = "_T", borrow)]
    kind: Cow<'a, str>,
    #[serde(rename = "_D")]
    time: Timestamp,
    common: Option<Common>,
    #[serde(rename = "accountId", borrow)]
    account: Option<Cow<'a, str>>,
    #[serde(borrow)]
    character: Option<Character<'a>>,
    #[serde(borrow)]
    attacker: Option<Character<'a>>,
    #[serde(borrow)]
    killer: Option<Character<'a>>,
    #[serde(borrow)]
    reviver: Option<Character<'a>>,
    #[serde(borrow)]
    victim: Option<Character<'a>>,
    #[serde(borrow)]
    weapon: Option<PubgItem<'a>>,
}

#[derive(Deserialize)]
struct Common {
    #[serde(rename = "isGame")]
    stage: f64,
}

#[derive(Deserialize)]
struct Character<'a> {
    #[serde(rename = "accountId", borrow)]
    account: Cow<'a, str>,
    location: Location,
}

#[derive(Deserialize)]
struct Location {
    x: f64,
    y: f64,
    z: f64,
}

#[derive(Deserialize)]
struct PubgItem<'a> {
    #[serde(rename = "itemId", borrow)]
    id: Cow<'a, str>,
}

/// When the match began, its players in the order in which they are seen, and who is dead.
#[derive(Default)]
pub(crate) struct PubgAdapter {
    began: Option<Timestamp>,
    players: BTreeMap<String, u64>,
    killed: BTreeSet<u64>,
    /// The player of the last pick-up, and its time.
    picked_up: Option<(u64, Timestamp)>,
}

impl PubgAdapter {
    /// Processes one record of the recording.
    pub(crate) fn read(
        &mut self,
        record: &str,
        scene: &mut Scene,
    ) -> Result<(), serde_json::Error> {
        let line: PubgLine<'_> = serde_json::from_str(record)?;
        let began = *self.began.get_or_insert(line.time);
        let ts_ms = line.time.as_millisecond() - began.as_millisecond();
        if ts_ms.abs() >= REPETITION_MS {
            // The record belongs to another match.
            return Ok(());
        }
        scene.set_time(ts_ms);
        if line.kind == "LogPlayerLogout"
            && let Some(account) = &line.account
        {
            let player = self.player(account);
            scene.leave(player);
        }
        // Before that, players wait on an island.
        if line.common.as_ref().is_some_and(|common| common.stage > 0.0) {
            let all = [&line.character, &line.attacker, &line.killer, &line.reviver, &line.victim];
            all.into_iter().flatten().for_each(|who| self.see(who, &line.kind, scene));
            self.act(&line, scene);
        }
        Ok(())
    }

    fn see(&mut self, character: &Character<'_>, kind: &str, scene: &mut Scene) {
        let Location { x, y, z } = character.location;
        let is_known = (x, y) != (0.0, 0.0) && z < PLANE_CM;
        if is_known && !character.account.is_empty() {
            let player = self.player(&character.account);
            // Other records name the dead, too; this kind names only living players.
            if kind == "LogPlayerPosition" {
                self.killed.remove(&player);
            }
            if self.killed.contains(&player) {
                return;
            }
            let from_middle = |at: f64| (at.round() as i64).saturating_sub(PUBG_MAP_HALF_CM);
            scene.see(player, from_middle(x), from_middle(y));
        }
    }

    fn act(&mut self, line: &PubgLine<'_>, scene: &mut Scene) {
        let player = |character: &Option<Character<'_>>| {
            self.players.get(&*character.as_ref()?.account).copied()
        };
        match &*line.kind {
            "LogPlayerAttack" => {
                if let (Some(player), Some(weapon)) = (player(&line.attacker), &line.weapon) {
                    scene.act(player, shot(&weapon.id, None));
                }
            }
            // A hit shows where the attacker aims.
            "LogPlayerTakeDamage" => {
                let place = |character: &Option<Character<'_>>| {
                    character.as_ref().map(|character| (character.location.x, character.location.y))
                };
                let aim = place(&line.attacker).zip(place(&line.victim));
                let heading = aim.and_then(|(from, to)| heading_between(from, to));
                if let (Some(player), Some(heading)) = (player(&line.attacker), heading) {
                    scene.act(player, Action::Rotate { heading });
                }
            }
            "LogPlayerKill" | "LogPlayerKillV2" => {
                if let Some(player) = player(&line.victim) {
                    self.killed.insert(player);
                    scene.leave(player);
                }
            }
            // An item from a loot box or a care package is recorded twice: as an item, and with its
            // origin.
            kind if kind.starts_with("LogItemPickup") => {
                if let Some(player) = player(&line.character)
                    && self.picked_up.replace((player, line.time)) != Some((player, line.time))
                {
                    scene.act(player, Action::Loot { hunt: None });
                }
            }
            _ => {}
        }
    }

    fn player(&mut self, account: &str) -> u64 {
        if let Some(number) = self.players.get(account) {
            return *number;
        }
        let number = self.players.len() as u64 + 1;
        self.players.insert(account.to_owned(), number);
        number
    }
}
