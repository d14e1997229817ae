//! A progress bar on standard error; nothing if that is not a terminal, or a dumb one.

use indicatif::{HumanCount, HumanDuration, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::time::Duration;

/// Events between two updates of the bar: drawing costs more than an event.
const EVENTS_BETWEEN: u64 = 4096;

/// The bar, with the rate.
pub(crate) struct ProgressBar(indicatif::ProgressBar);

impl ProgressBar {
    /// Starts a bar for this many events, or an open-ended one.
    pub(crate) fn start(events: Option<u64>) -> ProgressBar {
        let target = ProgressDrawTarget::stderr_with_hz(10);
        let bar = indicatif::ProgressBar::with_draw_target(events, target);
        let template = match events {
            Some(_) => "{wide_bar} {human_pos}/{human_len} events {rate} {left} left",
            None => "{spinner} {human_pos} events {rate}",
        };
        let style = ProgressStyle::with_template(template).expect("the template is right");
        // A terminal that refuses output is not an error.
        let rate = |state: &ProgressState, out: &mut dyn Write| {
            let rate = per_second(state.pos(), state.elapsed());
            let _ = write!(out, "{}/s", HumanCount(rate));
        };
        let left = |state: &ProgressState, out: &mut dyn Write| {
            let events = state.len().unwrap_or(0).saturating_sub(state.pos());
            let rate = per_second(state.pos(), state.elapsed()).max(1);
            let _ = write!(out, "{:#}", HumanDuration(Duration::from_secs(events / rate)));
        };
        bar.set_style(style.with_key("rate", rate).with_key("left", left));
        ProgressBar(bar)
    }

    /// Restarts the clock at the first event.
    pub(crate) fn restart_clock(&self) {
        self.0.reset_elapsed();
    }

    /// Shows the number of events, at a limited rate.
    pub(crate) fn show(&self, events: u64) {
        if events.is_multiple_of(EVENTS_BETWEEN) {
            self.0.set_position(events);
        }
    }

    /// Shows the number of events at once.
    pub(crate) fn set(&self, events: u64) {
        self.0.set_position(events);
    }

    /// Prints a line above the bar; nothing if there is no bar.
    pub(crate) fn say(&self, line: &str) {
        self.0.println(line);
    }

    /// Runs code that prints to standard error, with the bar hidden.
    pub(crate) fn beside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        self.0.finish_and_clear();
    }
}

/// A number as people read it: `200,000`.
pub(crate) fn grouped(number: u64) -> String {
    HumanCount(number).to_string()
}

/// Events per second since the first one. The crate's own rate weighs the first seconds with that
/// of an empty past, and so shows a third of what is true.
fn per_second(events: u64, elapsed: Duration) -> u64 {
    (events as f64 / elapsed.as_secs_f64().max(1e-3)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_what_there_was_by_the_time_that_it_took() {
        let rates = [(0, 0), (1_000, 1), (90_000, 1_500)];
        let shown = rates.map(|(events, ms)| per_second(events, Duration::from_millis(ms)));
        assert_eq!(shown, [0, 1_000_000, 60_000]);
    }
}
