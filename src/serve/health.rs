//! `/metrics`, `/livez` and `/readyz` of a serving process.

use crate::serve::answers::{Served, ZoneState};
use crate::serve::counts::{AnswerKind, BOUNDS_US, ServeCounts};
use crate::view::zone::ZonePosition;
use std::fmt::Write;
use std::time::Instant;

/// The media type of all three.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Where the metrics are.
pub(crate) const METRICS: &str = "/metrics";

/// What a probe answers, which needs no token: status and text. `None`: this path is no probe.
pub(crate) fn probe(path: &str, served: &Served) -> Option<(&'static str, String)> {
    match path {
        // It answers, so it lives.
        "/livez" => Some(("200 OK", "live\n".to_owned())),
        "/readyz" => Some(match unready(&served.zones) {
            None => ("200 OK", "ready\n".to_owned()),
            Some(reason) => ("503 Service Unavailable", format!("{reason}\n")),
        }),
        _ => None,
    }
}

/// Why clients should go to another process, if they should.
fn unready(zones: &[ZoneState]) -> Option<String> {
    if let Some(zone) = zones.iter().position(|zone| *zone == ZoneState::Loading) {
        return Some(format!("zone {zone} is being loaded"));
    }
    let all_halted = zones.iter().all(|zone| matches!(zone, ZoneState::Halted(_)));
    all_halted.then(|| "all zones are halted".to_owned())
}

/// How each zone is, and the process.
pub(crate) fn metrics(served: &Served) -> String {
    let mut out = String::new();
    let mut family = |name: &str, kind: &str, help: &str, of: &dyn Fn(u16) -> Option<f64>| {
        _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for zone in 0..served.zones.len() as u16 {
            if let Some(value) = of(zone) {
                _ = writeln!(out, "{name}{{zone=\"{zone}\"}} {value}");
            }
        }
    };
    let state = |zone: u16| &served.zones[usize::from(zone)];
    let is_live = |zone| Some(f64::from(matches!(state(zone), ZoneState::Live { .. })));
    let is_halted = |zone| Some(f64::from(matches!(state(zone), ZoneState::Halted(_))));
    let position = |zone| served.view.zone(zone).map(|zone| zone.position());
    family("huntd_view_live", "gauge", "1 while the zone is served.", &is_live);
    family("huntd_view_halted", "gauge", "1 once the zone is halted.", &is_halted);
    family("huntd_view_players", "gauge", "Players in the zone.", &|zone| {
        served.view.zone(zone).map(|zone| zone.players().into())
    });
    let (help, now) = ("Seconds by which what is shown of the zone is old.", Instant::now());
    family("huntd_view_lag_seconds", "gauge", help, &|zone| match state(zone) {
        ZoneState::Live { lag, .. } => Some(lag.ms(now) as f64 / 1e3),
        _ => None,
    });
    family("huntd_view_updates_total", "counter", "Number of the zone's next update.", &|zone| {
        position(zone).map(|ZonePosition { update, .. }| update as f64)
    });
    family("huntd_view_offset", "gauge", "The input offset that the zone has come to.", &|zone| {
        position(zone).map(|ZonePosition { next_offset, .. }| next_offset as f64)
    });
    write_counts(&mut out, &served.counts);
    out
}

fn write_counts(out: &mut String, counts: &ServeCounts) {
    let ServeCounts { sessions, streams, allocations, answers } = counts;
    let mut family = |name: &str, kind: &str, help: &str, samples: &str| {
        _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{samples}");
    };
    let sample = format!("huntd_serve_sessions {sessions}\n");
    family("huntd_serve_sessions", "gauge", "Clients that are connected.", &sample);
    let sample = format!("huntd_serve_streams {streams}\n");
    family("huntd_serve_streams", "gauge", "Clients that read a stream.", &sample);
    let (name, help) = ("huntd_serve_allocations_total", "Allocations of the serving thread.");
    family(name, "counter", help, &format!("{name} {allocations}\n"));
    for (kind, name, help) in AnswerKind::METRICS {
        let (times, mut samples, mut count) = (&answers[kind as usize], String::new(), 0);
        let bounds = BOUNDS_US.iter().map(|us| (*us as f64 / 1e6).to_string());
        for (bound, answers) in bounds.chain(["+Inf".to_owned()]).zip(times.counts) {
            count += answers;
            _ = writeln!(samples, "{name}_bucket{{le=\"{bound}\"}} {count}");
        }
        let sum = times.sum_us as f64 / 1e6;
        _ = write!(samples, "{name}_sum {sum}\n{name}_count {count}\n");
        family(name, "histogram", help, &samples);
    }
}
