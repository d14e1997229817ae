//! Which topics the process reads and writes, by the ids that their names have now: another thread
//! asks the brokers, and reports to the feed.

use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// The ids of the topics, as two connections have told them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TopicReport {
    /// When the brokers were asked.
    pub asked: Instant,
    /// Id of the output topic.
    pub output_id: u128,
    /// Id of the input topic; `None`: not known now.
    pub input_id: Option<u128>,
}

/// The feed's end. Dropped, it ends the thread that asks.
pub(crate) struct TopicReports {
    questions: SyncSender<()>,
    reports: Receiver<TopicReport>,
}

/// The end of the thread that asks.
pub(crate) struct Watcher {
    questions: Receiver<()>,
    reports: SyncSender<TopicReport>,
}

/// Both ends of the way between the feed and a thread that asks.
pub(crate) fn topic_reports() -> (TopicReports, Watcher) {
    let (asked, questions) = sync_channel(1);
    let (reported, reports) = sync_channel(1);
    (TopicReports { questions: asked, reports }, Watcher { questions, reports: reported })
}

impl TopicReports {
    /// Has the brokers asked.
    pub(super) fn ask(&self) {
        // A question that waits already is put after this one.
        let _is_waiting = self.questions.try_send(());
    }

    /// The next report, if there is one.
    pub(super) fn take(&self) -> Option<TopicReport> {
        self.reports.try_recv().ok()
    }

    /// The first report. `None`: there is none in this time.
    pub(super) fn wait(&self, wait: Duration) -> Option<TopicReport> {
        self.reports.recv_timeout(wait).ok()
    }
}

impl Watcher {
    /// Waits for the next question, no longer than this. Breaks once nobody takes reports.
    pub(crate) fn wait(&self, wait: Duration) -> ControlFlow<()> {
        match self.questions.recv_timeout(wait) {
            Err(RecvTimeoutError::Disconnected) => ControlFlow::Break(()),
            Ok(()) | Err(RecvTimeoutError::Timeout) => ControlFlow::Continue(()),
        }
    }

    /// Reports. While the feed waits for room it takes none; a later report will do.
    pub(crate) fn report(&self, report: TopicReport) {
        let _full = self.reports.try_send(report);
    }
}
