//! The way in which a record is poison in tests: the engine that applies it panics.

use huntd::hunt::refusal::Refusal;
use huntd::telemetry::metrics::Metrics;

/// Metrics without a name for the refusal `same_zone`: the engine fails where a player leaves for
/// its own zone.
pub fn metrics() -> Metrics {
    let mut refusals = Refusal::NAMES.to_vec();
    refusals[Refusal::SameZone as usize] = "";
    Metrics::with_names(&[], &refusals, &[])
}
