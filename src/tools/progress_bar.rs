//! A bar on standard error while a tool works; nothing where that is no terminal.

use indicatif::{HumanCount, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;

/// Events between two updates of the bar: drawing costs more than an event.
const EVENTS_BETWEEN: u64 = 4096;

/// The bar, with the rate.
pub(crate) struct ProgressBar(indicatif::ProgressBar);

impl ProgressBar {
    /// A bar for this many events; without a number, a bar that has no end.
    pub(crate) fn start(events: Option<u64>) -> ProgressBar {
        let target = ProgressDrawTarget::stderr_with_hz(10);
        let bar = indicatif::ProgressBar::with_draw_target(events, target);
        let template = match events {
            Some(_) => "{wide_bar} {human_pos}/{human_len} events {rate} {eta} left",
            None => "{spinner} {human_pos} events {rate}",
        };
        let style = ProgressStyle::with_template(template).expect("the template is right");
        let rate = |state: &ProgressState, out: &mut dyn Write| {
            // A terminal that takes nothing is no error.
            let _ = write!(out, "{}/s", HumanCount(state.per_sec() as u64));
        };
        bar.set_style(style.with_key("rate", rate));
        ProgressBar(bar)
    }

    /// Shows how many there were.
    pub(crate) fn show(&self, events: u64) {
        if events.is_multiple_of(EVENTS_BETWEEN) {
            self.0.set_position(events);
        }
    }

    /// Shows how many there were, right now.
    pub(crate) fn set(&self, events: u64) {
        self.0.set_position(events);
    }

    /// Prints a line above the bar; nothing where there is no bar.
    pub(crate) fn say(&self, line: &str) {
        self.0.println(line);
    }

    /// Lets something be printed to standard error that the bar would overwrite.
    pub(crate) fn beside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        self.0.finish_and_clear();
    }
}
