//! `/metrics`, `/livez` and `/readyz` of a serving process.

use crate::http::monitoring::{self, Page};
use crate::serve::answers::{Served, ZoneState};
use crate::serve::counts::{AnswerKind, ServeCounts};
use crate::service::{log, reload};
use crate::telemetry::metrics_page::{COUNTER, GAUGE, MetricsPage};
use crate::view::zone::ZonePosition;

/// The reason why a process serves old answers.
const FEED_STUCK: &str = "the feed thread does not turn; restart huntd serve";

/// Status and text of a probe, which needs no token. `None`: this path is no probe.
pub(crate) fn probe(path: &str, served: &Served) -> Option<(&'static str, String)> {
    match Page::of(path)? {
        Page::Metrics => None,
        // The serving thread answers, so it lives.
        Page::Live => {
            let stuck = served.feed.is_stuck(served.now()).then(|| FEED_STUCK.to_owned());
            Some(monitoring::probe("live", stuck.into_iter()))
        }
        Page::Ready => Some(monitoring::probe(&ready(served), unready(served).into_iter())),
    }
}

/// Returns why clients should use another process, if they should.
fn unready(served: &Served) -> Option<String> {
    if served.feed.is_stuck(served.now()) {
        return Some(FEED_STUCK.to_owned());
    }
    let zones = &served.zones;
    if let Some(zone) = zones.iter().position(|zone| *zone == ZoneState::Loading) {
        return Some(format!("zone {zone} is being loaded"));
    }
    let all_halted = zones.iter().all(|zone| matches!(zone, ZoneState::Halted(_)));
    all_halted.then(|| "all zones are halted".to_owned())
}

/// A stale zone makes no process unready: no other one has newer answers.
fn ready(served: &Served) -> String {
    let stale = (0..served.zones.len() as u16)
        .find_map(|zone| served.stale_ms(zone).map(|stale_ms| (zone, stale_ms)));
    match stale {
        None => "ready".to_owned(),
        Some((zone, stale_ms)) => format!(
            "ready, but zone {zone} is stale: its owner has published nothing for {stale_ms} ms"
        ),
    }
}

/// The metrics of each zone, and of the process.
pub(crate) fn metrics(served: &Served) -> String {
    let mut page = MetricsPage::new();
    let mut family = |name: &str, kind: &str, help: &str, of: &dyn Fn(u16) -> Option<f64>| {
        page.family(name, kind, help);
        for zone in 0..served.zones.len() as u16 {
            if let Some(value) = of(zone) {
                page.labelled(format_args!("zone=\"{zone}\""), value);
            }
        }
    };
    let state = |zone: u16| &served.zones[usize::from(zone)];
    let is_live = |zone| {
        let is_followed = matches!(state(zone), ZoneState::Live { .. });
        Some(f64::from(is_followed && served.stale_ms(zone).is_none()))
    };
    let is_halted = |zone| Some(f64::from(matches!(state(zone), ZoneState::Halted(_))));
    let position = |zone| served.view.zone(zone).map(|zone| zone.position());
    let help = "1 while the zone is served and its owner publishes.";
    family("huntd_view_live", GAUGE, help, &is_live);
    family("huntd_view_halted", GAUGE, "1 once the zone is halted.", &is_halted);
    family("huntd_view_players", GAUGE, "Players in the zone.", &|zone| {
        served.view.zone(zone).map(|zone| zone.players().into())
    });
    let help = "Age of the zone's answers.";
    family("huntd_view_lag_seconds", GAUGE, help, &|zone| match state(zone) {
        ZoneState::Live { lag, .. } => Some(lag.ms(served.now()) as f64 / 1e3),
        _ => None,
    });
    let help = "Seconds since the zone's owner has published, once the zone is stale; before, 0.";
    family("huntd_view_stale_seconds", GAUGE, help, &|zone| match state(zone) {
        ZoneState::Live { .. } => Some(served.stale_ms(zone).unwrap_or(0) as f64 / 1e3),
        _ => None,
    });
    family("huntd_view_updates_total", COUNTER, "Number of the zone's next update.", &|zone| {
        position(zone).map(|ZonePosition { update, .. }| update as f64)
    });
    family("huntd_view_offset", GAUGE, "The input offset that the zone has come to.", &|zone| {
        position(zone).map(|ZonePosition { next_offset, .. }| next_offset as f64)
    });
    write_counts(&mut page, &served.counts);
    page.into_text()
}

fn write_counts(page: &mut MetricsPage, counts: &ServeCounts) {
    let ServeCounts { sessions, streams, allocations, answers } = counts;
    page.family("huntd_serve_sessions", GAUGE, "Clients that are connected.").value(sessions);
    page.family("huntd_serve_streams", GAUGE, "Clients that read a stream.").value(streams);
    let help = "Allocations of the serving thread.";
    page.family("huntd_serve_allocations_total", COUNTER, help).value(allocations);
    page.family("huntd_reload_refused", GAUGE, reload::REFUSED_HELP)
        .value(u64::from(reload::is_refused()));
    page.family("huntd_log_lines_lost_total", COUNTER, log::LOST_HELP).value(log::lost_lines());
    for (kind, name, help) in AnswerKind::METRICS {
        page.histogram(name, help, &answers[kind as usize]);
    }
}
