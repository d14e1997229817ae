//! The players of a zone by their numbers, a page at a time: where each is. A client that shows a
//! zone begins with them, and follows the zone's stream from there.

use crate::serve::answers::{Served, at};
use crate::view::json::Json;
use crate::view::zone::ZoneView;

/// Players of one answer.
pub(crate) const PAGE_PLAYERS_MAX: u64 = 1_000;

/// Writes the players from a number on, as many as `count`, and the number that comes next. A page
/// takes the time of its own players, however many others the zone has.
pub(super) fn write(served: &Served, zone: &ZoneView, from: u64, count: u32, out: &mut Vec<u8>) {
    let mut players = zone.players_from(from);
    Json::object(out, |json| {
        at(json, served.moment(zone));
        let page = players.by_ref().take(count as usize);
        json.objects("players", page, |json, player_id| {
            let (_, card) = zone.card(player_id).expect("it is one of the cards");
            json.id("player_id", player_id);
            served.schema().write_fields(card, json);
        });
        if let Some(next) = players.next() {
            json.id("next", next);
        }
    });
}
