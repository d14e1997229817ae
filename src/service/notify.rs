//! The daemon's notifications to systemd: READY, STATUS, WATCHDOG, STOPPING, EXTEND_TIMEOUT_USEC.
//! `systemd.rs` sends them.
//!
//! The watchdog is fed only if the hot thread has turned since the last time, and no other thread
//! is stuck; otherwise systemd restarts the daemon.

use super::Observed;
use super::reload;
use super::restoring::Restoring;
use super::standstill::Standstill;
use super::status::{Phase, Trouble, is_ready};
use super::systemd::Systemd;
use super::thread_watch::{self, ThreadWatch};
use super::unready::{Unready, counted};
use crate::telemetry::printable::printable;

use crate::telemetry::metrics::Counter;
use futures_lite::FutureExt;
use sd_notify::NotifyState;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Milliseconds between two samples of the daemon by the service thread.
pub(crate) const SAMPLE_MS_MAX: u64 = 1_000;

/// Milliseconds between two status lines for systemd.
const STATUS_MS: u64 = 2_000;

/// Milliseconds by which the daemon extends systemd's timeout at a time, while it starts or drains.
const PATIENCE_MS: u64 = 10_000;

/// Upper limit of a drain for which the daemon extends the timeout, in milliseconds.
const DRAIN_MS_MAX: u64 = 60_000;

/// The daemon at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// When it was taken.
    pub now: Instant,
    /// The daemon's phase.
    pub phase: Phase,
    /// Shards and threads in trouble.
    pub trouble: Trouble,
    /// Why the daemon is not ready.
    pub unready: Vec<Unready>,
    /// Turns of the hot thread.
    pub turns: u64,
    /// Turns of all watched threads.
    pub all_turns: u64,
    /// Records processed, with any outcome.
    pub records: u64,
    /// Shards owned.
    pub shards: usize,
    /// The remaining work of the restoring shards.
    pub restoring: Restoring,
    /// Records in the input that no acknowledged frame covers yet; `None` while unknown.
    pub lag: Option<i64>,
    /// Partitions not owned by this instance that nobody reads.
    pub unread: u64,
    /// True if the last reload was refused.
    pub is_reload_refused: bool,
}

/// A notification for systemd.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Notification {
    /// The daemon is ready; sent once.
    pub ready: bool,
    /// The daemon is stopping; sent once.
    pub stopping: bool,
    /// Feeds the watchdog; sent after each sample in which the hot thread has turned.
    pub watchdog: bool,
    /// Microseconds to extend the timeout by.
    pub extend_us: Option<u32>,
    /// The status line of `systemctl status`.
    pub status: Option<String>,
}

/// Turns samples into notifications, and keeps the state between them.
#[derive(Debug)]
pub(crate) struct Reporter {
    last: Sample,
    ready_said: bool,
    draining_since: Option<Instant>,
    status_at: Option<Instant>,
    status_records: u64,
}

impl Reporter {
    /// Starts with a first sample, which is only compared with the next one.
    pub(crate) fn new(sample: Sample) -> Reporter {
        Reporter {
            ready_said: false,
            draining_since: None,
            status_at: None,
            status_records: sample.records,
            last: sample,
        }
    }

    /// Samples the daemon and notifies systemd, for the daemon's life.
    pub(super) async fn run(observed: Observed, systemd: Rc<Systemd>) {
        let pause = Systemd::watchdog()
            .map_or(Duration::MAX, |watchdog| watchdog / 3)
            .min(Duration::from_millis(SAMPLE_MS_MAX));
        let mut reporter = Reporter::new(sample(&observed));
        let mut standstill = Standstill::default();
        let mut thread_watch = ThreadWatch::default();
        loop {
            let (now, phase) = (Instant::now(), observed.status.phase());
            observed.status.set_still_shards(standstill.sample(&observed.progress, now));
            let stuck = thread_watch.sample(&observed.metrics, phase, now);
            observed.status.set_stuck_threads(stuck);
            let report = reporter.next(sample(&observed));
            if report.ready {
                tracing::info!("ready: {}", counted(reporter.last.shards, "shard"));
            }
            tell(&systemd, &report);
            let seen = (reporter.last.phase, reporter.last.trouble);
            let pause = async {
                smol::Timer::after(pause).await;
            };
            pause.or(observed.status.changed_from(seen)).await;
        }
    }

    /// Returns the notification after a sample.
    pub(crate) fn next(&mut self, sample: Sample) -> Notification {
        let mut report = Notification::default();
        // While the daemon drains, its threads end one by one.
        let turned = match sample.phase {
            Phase::Draining => sample.all_turns != self.last.all_turns,
            _ => sample.turns != self.last.turns && sample.trouble.stuck_threads == 0,
        };
        if is_ready(sample.phase, sample.trouble) && !self.ready_said {
            self.ready_said = true;
            report.ready = true;
        }
        if sample.phase == Phase::Draining && self.draining_since.is_none() {
            self.draining_since = Some(sample.now);
            report.stopping = true;
        }
        report.watchdog = turned;
        report.extend_us = self.patience(&sample, turned);
        let state = |sample: &Sample| (sample.phase, sample.trouble, sample.is_reload_refused);
        let news = state(&sample) != state(&self.last);
        let since = self.status_at.map(|at| sample.now.saturating_duration_since(at));
        if news || since.is_none_or(|since| since >= Duration::from_millis(STATUS_MS)) {
            report.status = Some(status_line(&sample, sample.records - self.status_records, since));
            self.status_at = Some(sample.now);
            self.status_records = sample.records;
        }
        self.last = sample;
        report
    }

    /// Returns whether to extend the timeout. A start or a drain that makes progress may take
    /// longer than the unit's timeouts; one without progress, a start whose shards have all halted,
    /// or a drain beyond its limit may not.
    fn patience(&self, sample: &Sample, turned: bool) -> Option<u32> {
        let waited_for = match sample.phase {
            Phase::Starting
            | Phase::Reaching
            | Phase::Joining
            | Phase::Connecting
            | Phase::Restoring => !self.ready_said,
            Phase::Ready => !self.ready_said && sample.shards > 0,
            Phase::Draining => self.draining_since.is_some_and(|since| {
                let drained_for = sample.now.saturating_duration_since(since);
                drained_for < Duration::from_millis(DRAIN_MS_MAX)
            }),
        };
        (waited_for && turned).then_some(PATIENCE_MS as u32 * 1000)
    }
}

/// Samples the daemon.
fn sample(observed: &Observed) -> Sample {
    let metrics = &observed.metrics;
    let mut shards = 0;
    let mut lag = Some(0);
    for (_, shard) in observed.progress.owned() {
        shards += 1;
        let behind = shard.lag();
        lag = lag.zip(behind).map(|(sum, behind)| sum + behind);
    }
    Sample {
        now: Instant::now(),
        phase: observed.status.phase(),
        trouble: observed.status.trouble(),
        unready: observed.status.unready(),
        turns: metrics.get(Counter::Turns),
        all_turns: thread_watch::all_turns(metrics),
        records: metrics.get(Counter::RecordsReceived),
        shards,
        restoring: Restoring::of(&observed.progress),
        lag,
        unread: observed.progress.unread_partitions.get(),
        is_reload_refused: reload::is_refused(),
    }
}

/// `ready: 3 shards, 120000 records/s, 78 records behind`.
fn status_line(sample: &Sample, records: u64, since: Option<Duration>) -> String {
    let refused = if sample.is_reload_refused { ", RELOAD REFUSED, read the log" } else { "" };
    if sample.restoring.shards > 0 && sample.phase == Phase::Restoring {
        let at_rate = sample.restoring.at_rate(records, since.unwrap_or_default());
        return format!("huntd is {at_rate}{refused}");
    }
    // A reason that an operator can look into is more useful than that shards are restoring.
    let tells = |reason: &&Unready| {
        !matches!(reason, Unready::Phase(Phase::Restoring)) || sample.unready.len() == 1
    };
    let mut line = match sample.unready.iter().find(tells) {
        None => phase_line(sample.phase, sample.shards),
        Some(Unready::Phase(phase)) => phase_line(*phase, sample.shards),
        Some(reason) => {
            let words = reason.words();
            let first: Vec<_> = words.lines().take(2).collect();
            format!("huntd is not ready: {}", first.join("; "))
        }
    };
    if let Some(since) = since.filter(|since| !since.is_zero()) {
        let rate = u128::from(records) * 1_000_000 / since.as_micros().max(1);
        line += &format!(", {rate} records/s");
    }
    match sample.lag {
        Some(lag) => line += &format!(", {lag} records behind"),
        None => line += ", lag not known yet",
    }
    if sample.unread > 0 {
        line += &format!(", NOBODY READS {} other partitions, read the log", sample.unread);
    }
    line + refused
}

fn phase_line(phase: Phase, shards: usize) -> String {
    format!("huntd {}: {}", phase.words(), counted(shards, "shard"))
}

fn tell(systemd: &Systemd, report: &Notification) {
    if report.ready {
        systemd.ready();
    }
    if report.stopping {
        systemd.stopping();
    }
    systemd.say_owed();
    let mut states = Vec::with_capacity(3);
    if report.watchdog {
        states.push(NotifyState::Watchdog);
    }
    states.extend(report.extend_us.map(NotifyState::ExtendTimeoutUsec));
    states.extend(report.status.as_deref().map(NotifyState::Status));
    systemd.mention(&states);
}

/// Sends the last status line, when the service thread ends. The code that ends the process logs a
/// failure.
pub(super) fn stopped(systemd: &Systemd, ended: Result<(), String>) {
    let status = match ended {
        Ok(()) => {
            tracing::info!("drained: the shards are released and the queues are empty");
            "huntd has drained".to_owned()
        }
        Err(sentence) => format!("huntd has FAILED: {}", printable(&sentence)),
    };
    systemd.say_owed();
    systemd.mention(&[NotifyState::Stopping, NotifyState::Status(&status)]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::standstill::StillShard;

    fn at(start: Instant, ms: u64, phase: Phase, turns: u64) -> Sample {
        let now = start + Duration::from_millis(ms);
        let restoring = Restoring::default();
        Sample {
            now,
            phase,
            trouble: Trouble::default(),
            unready: Vec::new(),
            turns,
            all_turns: turns,
            records: ms,
            shards: 2,
            restoring,
            lag: Some(7),
            unread: 0,
            is_reload_refused: false,
        }
    }

    #[test]
    fn ready_and_stopping_are_said_once() {
        let start = Instant::now();
        let mut reporter = Reporter::new(at(start, 0, Phase::Starting, 0));
        let phases = [Phase::Joining, Phase::Ready, Phase::Ready, Phase::Draining, Phase::Draining];
        let reports = (1..).zip(phases).map(|(turn, phase)| {
            let report = reporter.next(at(start, turn * 10, phase, turn));
            (report.ready, report.stopping)
        });
        let said = [(false, false), (true, false), (false, false), (false, true), (false, false)];
        assert_eq!(reports.collect::<Vec<_>>(), said);
    }

    #[test]
    fn halted_shards_keep_a_start_from_being_ready_and_from_patience_once_none_runs() {
        let start = Instant::now();
        let mut reporter = Reporter::new(at(start, 0, Phase::Starting, 0));
        let mut sample = at(start, 1, Phase::Ready, 1);
        sample.trouble.halted = 1;
        sample.unready = vec![Unready::Halted(1)];
        let report = reporter.next(sample.clone());
        assert!(!report.ready && report.extend_us.is_some(), "others run: {report:?}");
        (sample.turns, sample.shards) = (2, 0);
        let report = reporter.next(sample.clone());
        assert!(!report.ready && report.extend_us.is_none(), "all have halted: {report:?}");
        (sample.turns, sample.trouble.halted) = (3, 0);
        assert!(reporter.next(sample.clone()).ready);
    }

    #[test]
    fn the_watchdog_is_fed_only_after_a_turn() {
        let start = Instant::now();
        let mut reporter = Reporter::new(at(start, 0, Phase::Ready, 5));
        let fed: Vec<_> = (1..)
            .zip([5, 6, 6, 6, 9])
            .map(|(tick, turns)| reporter.next(at(start, tick, Phase::Ready, turns)).watchdog)
            .collect();
        assert_eq!(fed, [false, true, false, false, true]);
    }

    #[test]
    fn patience_is_asked_for_while_a_start_or_a_drain_moves_and_not_for_ever() {
        let start = Instant::now();
        let mut reporter = Reporter::new(at(start, 0, Phase::Starting, 0));
        let mut extends =
            |ms, phase, turns| reporter.next(at(start, ms, phase, turns)).extend_us.is_some();
        assert!(extends(1, Phase::Joining, 1));
        assert!(!extends(2, Phase::Joining, 1), "nothing moved");
        assert!(!extends(3, Phase::Ready, 2), "the start is over");
        assert!(!extends(4, Phase::Connecting, 3), "reconnecting is no start");
        assert!(extends(5, Phase::Draining, 4));
        assert!(!extends(6, Phase::Draining, 4), "nothing moved");
        assert!(extends(4 + DRAIN_MS_MAX, Phase::Draining, 5));
        assert!(!extends(5 + DRAIN_MS_MAX, Phase::Draining, 6), "a drain has a bound");
    }

    #[test]
    fn the_status_line_has_rate_and_lag() {
        let start = Instant::now();
        let mut reporter = Reporter::new(at(start, 0, Phase::Ready, 0));
        let first = reporter.next(at(start, 0, Phase::Ready, 0)).status;
        assert_eq!(first.as_deref(), Some("huntd is ready: 2 shards, 7 records behind"));
        assert_eq!(reporter.next(at(start, STATUS_MS - 1, Phase::Ready, 0)).status, None);
        let mut sample = at(start, STATUS_MS, Phase::Ready, 0);
        sample.records = 3 * STATUS_MS;
        assert_eq!(
            reporter.next(sample.clone()).status.as_deref(),
            Some("huntd is ready: 2 shards, 3000 records/s, 7 records behind")
        );
        sample.phase = Phase::Restoring;
        sample.unready = vec![Unready::Phase(Phase::Restoring)];
        sample.restoring = Restoring { shards: 1, owned: 2, records_to_go: 6000 };
        sample.now += Duration::from_millis(STATUS_MS);
        sample.records += 2 * STATUS_MS;
        assert_eq!(
            reporter.next(sample.clone()).status.as_deref(),
            Some("huntd is restoring 1 of 2 shards, 6000 records to go at 2000/s, about 3 s")
        );
        sample.phase = Phase::Ready;
        sample.lag = None;
        sample.records += 3 * STATUS_MS;
        sample.now += Duration::from_millis(STATUS_MS);
        (sample.unready, sample.unread) = (vec![Unready::Halted(1)], 3);
        sample.is_reload_refused = true;
        assert_eq!(
            reporter.next(sample.clone()).status.as_deref(),
            Some(
                "huntd is not ready: halted shards: 1; read the log, 3000 records/s, lag not \
                 known yet, NOBODY READS 3 other partitions, read the log, RELOAD REFUSED, \
                 read the log"
            )
        );
    }

    #[test]
    fn the_status_line_says_what_the_first_shard_that_stands_still_waits_for() {
        let mut sample = at(Instant::now(), 0, Phase::Ready, 0);
        let waits_for = "nobody fetches: see the leader";
        sample.unready = vec![Unready::Still(vec![StillShard { partition: 3, waits_for }])];
        let line = "huntd is not ready: shards that stand still: 1; read the log; partition 3: \
                    nobody fetches: see the leader, 7 records behind";
        assert_eq!(status_line(&sample, 0, None), line);
    }

    #[test]
    fn the_status_line_says_why_the_first_shard_was_not_acquired() {
        let mut sample = at(Instant::now(), 0, Phase::Restoring, 0);
        let set_back = [(4, "brokers do not answer: no leader; look"), (5, "refused")];
        let set_back = set_back.map(|(partition, why)| (partition, why.to_owned())).to_vec();
        sample.unready = vec![Unready::Phase(Phase::Restoring), Unready::SetBack(set_back)];
        let line = "huntd is not ready: shards that are acquired again: 2; read the log; \
                    partition 4: brokers do not answer: no leader; look, 7 records behind";
        assert_eq!(status_line(&sample, 0, None), line);
        sample.unready.pop();
        assert_eq!(status_line(&sample, 0, None), "huntd is restoring: 2 shards, 7 records behind");
        sample.unready = vec![Unready::Phase(Phase::Joining), Unready::Halted(1)];
        let line = "huntd waits to join the consumer group: 2 shards, 7 records behind";
        assert_eq!(status_line(&sample, 0, None), line);
    }
}
