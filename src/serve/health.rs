//! `/metrics`, `/livez` and `/readyz` of a serving process.

use crate::serve::answers::{Served, ZoneState};
use crate::view::zone::ZonePosition;
use std::fmt::Write;

/// The media type of all three.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Where the metrics are.
pub(crate) const METRICS: &str = "/metrics";

/// What a probe answers, which needs no token: status and text. `None`: the path is another one's.
pub(crate) fn probe(path: &str, served: &Served) -> Option<(&'static str, String)> {
    match path {
        // It answers, so it lives.
        "/livez" => Some(("200 OK", "live\n".to_owned())),
        "/readyz" => Some(match served.zones.iter().position(|zone| *zone == ZoneState::Loading) {
            None => ("200 OK", "ready\n".to_owned()),
            Some(zone) => ("503 Service Unavailable", format!("zone {zone} is being loaded\n")),
        }),
        _ => None,
    }
}

/// How each zone is.
pub(crate) fn metrics(served: &Served) -> String {
    let mut out = String::new();
    let mut family = |name: &str, kind: &str, help: &str, of: &dyn Fn(u16) -> Option<i64>| {
        _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for zone in 0..served.zones.len() as u16 {
            if let Some(value) = of(zone) {
                _ = writeln!(out, "{name}{{zone=\"{zone}\"}} {value}");
            }
        }
    };
    let state = |zone: u16| &served.zones[usize::from(zone)];
    let is_live = |zone| Some(i64::from(matches!(state(zone), ZoneState::Live { .. })));
    let is_halted = |zone| Some(i64::from(matches!(state(zone), ZoneState::Halted(_))));
    let position = |zone| served.view.zone(zone).map(|zone| zone.position());
    family("huntd_view_live", "gauge", "1 while the zone is served.", &is_live);
    family("huntd_view_halted", "gauge", "1 once the zone is halted.", &is_halted);
    family("huntd_view_players", "gauge", "Players in the zone.", &|zone| {
        served.view.zone(zone).map(|zone| zone.players().into())
    });
    let lag = "Milliseconds from the newest frame's publication to its fold.";
    family("huntd_view_lag_ms", "gauge", lag, &|zone| match state(zone) {
        ZoneState::Live { lag_ms, .. } => Some(lag_ms.cast_signed()),
        _ => None,
    });
    family("huntd_view_updates_total", "counter", "Number of the zone's next update.", &|zone| {
        position(zone).map(|ZonePosition { update, .. }| update.cast_signed())
    });
    family("huntd_view_offset", "gauge", "The input offset that the zone has come to.", &|zone| {
        position(zone).map(|ZonePosition { next_offset, .. }| next_offset)
    });
    out
}
