//! The players of a zone by their numbers, a page at a time: where each is. A client that shows a
//! zone begins with them, and follows the zone's stream from there.

use crate::serve::answers::{Served, at};
use crate::view::json::Json;
use crate::view::zone::ZoneView;
use std::collections::BinaryHeap;

/// Players of one answer.
pub(crate) const PAGE_PLAYERS_MAX: u64 = 1_000;

/// Writes the players from a number on, as many as `count`, and the number that comes next.
pub(super) fn write(served: &Served, zone: &ZoneView, from: u64, count: u32, out: &mut Vec<u8>) {
    let mut players = lowest(zone, from, count as usize + 1);
    let next = players.split_off(players.len().min(count as usize));
    Json::object(out, |json| {
        at(json, served.moment(zone));
        json.objects("players", players.into_iter(), |json, player_id| {
            let (_, card) = zone.card(player_id).expect("it is one of the cards");
            json.id("player_id", player_id);
            served.schema().write_fields(card, json);
        });
        if let Some(next) = next.first() {
            json.id("next", *next);
        }
    });
}

/// Returns the lowest player numbers from this one on, in order. The view has players in no
/// particular order, and only the order of numbers lasts while a client asks for page after page.
fn lowest(zone: &ZoneView, from: u64, count: usize) -> Vec<u64> {
    let mut lowest = BinaryHeap::with_capacity(count);
    for player_id in zone.cards().map(|card| card.player_id).filter(|player| *player >= from) {
        let is_full = lowest.len() == count;
        if is_full && lowest.peek().is_none_or(|last| *last < player_id) {
            continue;
        }
        if is_full {
            lowest.pop();
        }
        lowest.push(player_id);
    }
    lowest.into_sorted_vec()
}
