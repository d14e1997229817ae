//! The ids of the topics of `huntd serve`: a thread beside it asks the brokers whenever the feed
//! asks.

use super::dialler::DialOptions;
use super::topic_polls::{PolledTopics, Sightings, TopicPolls};
use crate::kafka::right::Right;
use crate::serve::topic_reports::{TopicReport, TopicReports, Watcher, topic_reports};
use std::thread;
use std::time::{Duration, Instant};

/// From a poll without an answer to the next one, if the feed asks for none before.
const POLL_AGAIN: Duration = Duration::from_secs(1);

/// Begins to poll. The thread ends with the poll after which nobody takes reports; nobody waits for
/// it. Without a thread, there is no report.
pub(crate) fn start(dial: DialOptions, input: String, output: String) -> TopicReports {
    let (reports, watcher) = topic_reports();
    let watch = move || watch(dial, &input, &output, &watcher);
    // The feed misses its reports.
    let _no_thread = thread::Builder::new().name("topics".to_owned()).spawn(watch);
    reports
}

fn watch(dial: DialOptions, input: &str, output: &str, watcher: &Watcher) {
    let topics = [(output.to_owned(), Right::Read), (input.to_owned(), Right::Write)];
    let pause = |wait| watcher.wait(wait);
    TopicPolls::new(dial).run(&topics, POLL_AGAIN, pause, |_, sightings, found, asked| {
        if let Some(report) = report(sightings, found, asked, (input, output)) {
            watcher.report(report);
        }
    });
}

/// The report of a poll that began at this time. `None`: the output is in doubt, or is missing.
fn report(
    sightings: &Sightings,
    found: &PolledTopics<'_>,
    asked: Instant,
    (input, output): (&str, &str),
) -> Option<TopicReport> {
    let output_id = sightings.confirmed(output, found)?;
    let input_id = sightings.confirmed(input, found).filter(|id| *id != 0);
    Some(TopicReport { asked, output_id, input_id })
}
