//! The players of a zone by their numbers, a page at a time: where each is. A client that shows a
//! zone begins with them, and follows the zone's stream from there.

use crate::serve::answers::{Served, at};
use crate::serve::json::Json;
use crate::view::zone::ZoneView;
use std::collections::BinaryHeap;

/// Players of one answer.
pub(crate) const PAGE_PLAYERS_MAX: u64 = 1_000;

/// The place of a player, ordered by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PlayerPlace {
    player_id: u64,
    x: i32,
    y: i32,
    heading: u16,
    health: u16,
}

/// Writes the players from a number on, as many as `count`, and the number that comes next.
pub(super) fn write(served: &Served, zone: &ZoneView, from: u64, count: u32, out: &mut Vec<u8>) {
    let mut players = lowest(zone, from, count as usize + 1);
    let next = players.split_off(players.len().min(count as usize));
    Json::object(out, |json| {
        at(json, served.moment(zone));
        json.objects("players", players.iter(), |json, player| {
            json.id("player_id", player.player_id);
            json.signed("x", player.x.into()).signed("y", player.y.into());
            json.number("heading", player.heading.into()).number("health", player.health.into());
        });
        if let Some(next) = next.first() {
            json.id("next", next.player_id);
        }
    });
}

/// The players with the lowest numbers from this one on, in their order. The view has them in no
/// order, and numbers are the only one that stays while a client asks for page after page.
fn lowest(zone: &ZoneView, from: u64, count: usize) -> Vec<PlayerPlace> {
    let mut lowest = BinaryHeap::with_capacity(count);
    for (card, _) in zone.cards().filter(|(card, _)| card.player_id >= from) {
        let is_full = lowest.len() == count;
        let is_lower = |last: &PlayerPlace| card.player_id < last.player_id;
        if is_full && !lowest.peek().is_some_and(is_lower) {
            continue;
        }
        if is_full {
            lowest.pop();
        }
        let (player_id, x, y) = (card.player_id, card.x, card.y);
        let (heading, health) = (card.heading, card.health);
        lowest.push(PlayerPlace { player_id, x, y, heading, health });
    }
    lowest.into_sorted_vec()
}
