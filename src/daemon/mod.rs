//! The whole daemon on one screen. Threads are started from last to first, except the pinned hot
//! thread, which is started at the very end. They end from first to last.
//!
//! ```text
//! control ── assignments ─► hot thread: fetch ► decode ► queue ► engine ► frames ─► publisher
//!    ▲                        │ notices                                              │
//!    └────────────────────────┼───────────────── failed deliveries ◄─────────────────┤
//!                             └─ checkpoints ─► snapshot writer ◄── gates ──────────┘
//! ```

pub(crate) mod failure;
pub mod hot;
pub mod snapshots;
pub(crate) mod threads;
pub(crate) mod wiring;

use crate::control::control_error::ControlError;
use crate::control::dialler;
use crate::daemon::failure::Failure;
use crate::daemon::snapshots::RunningSnapshotThreads;
use crate::daemon::threads::{joined, spawn};
use crate::daemon::wiring::{Wiring, check_names, control_options, start_diallers};
use crate::kit::engine::AnyRulebook;
use crate::publisher::PublisherError;
use crate::runtime::cpu::{self, Plan};
use crate::runtime::ring::{RING_ENTRIES, RingKind};
use crate::runtime::ring_loop::{PARK_MAX, RingLoop};
use crate::service::config::Config;
use crate::service::status::Status;
use crate::service::{Observed, Service};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::progress::Progress;
use crate::{control, publisher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// A running daemon.
pub struct Daemon {
    /// The parts of it that other code may observe.
    pub observed: Observed,
    stop: Arc<AtomicBool>,
    service: Service,
    publisher: JoinHandle<Result<(), PublisherError>>,
    snapshots: Option<RunningSnapshotThreads>,
    control: JoinHandle<Result<(), ControlError>>,
    hot: JoinHandle<Result<(), Failure>>,
}

/// Runs the daemon until a signal ends it.
pub(crate) fn run(config: Config, rulebook: AnyRulebook) -> Result<(), Failure> {
    Daemon::start(config, rulebook)?.wait()
}

impl Daemon {
    /// Starts all threads. The calling thread, and all threads that exist or will be made, are kept
    /// off the hot core; the hot thread is pinned to it last.
    pub fn start(config: Config, rulebook: impl Into<AnyRulebook>) -> Result<Daemon, Failure> {
        let rulebook = rulebook.into();
        Daemon::start_counting(config, rulebook.clone(), wiring::metrics(rulebook.schema()))
    }

    /// Like [`Daemon::start`], with these counters.
    pub fn start_counting(
        config: Config,
        rulebook: impl Into<AnyRulebook>,
        metrics: Metrics,
    ) -> Result<Daemon, Failure> {
        let rulebook = rulebook.into();
        dialler::check_files(&config.group.client.security)?;
        let plan = cpu::plan(&config.runtime, &cpu::allowed_cores()?, cpu::siblings)?;
        cpu::restrict_process(&plan)?;
        let observed = Observed {
            metrics: Arc::new(metrics),
            progress: Arc::new(Progress::with_rulesets(rulebook.rulesets())),
            status: Arc::new(Status::new()),
        };
        let stop = Arc::new(AtomicBool::new(false));
        let wiring = Wiring::new(&config, &rulebook, &observed, &stop)?;

        let asked = stop.clone();
        let stop_daemon = move || asked.store(true, Ordering::Release);
        let service =
            Service::start(&config.service, observed.clone(), wiring.reloader, stop_daemon)?;
        // The port is open and signals are handled, so waiting for a name server is harmless.
        check_names(&config.group.client.brokers)?;
        let (options, (ends, dial_ends)) = (config.publisher.clone(), wiring.publisher);
        let publish = move || publisher::run(options, ends, dial_ends);
        let publisher = spawn("publisher", &stop, publish)?;
        let snapshots = wiring.snapshots.map(|threads| threads.start(&stop)).transpose()?;
        start_diallers(wiring.diallers, &stop)?;
        let (options, ends) = (control_options(&config, &observed.progress), wiring.control);
        let control = spawn("control", &stop, move || control::run(options, ends))?;
        let (ring, ends) = (config.runtime.ring, wiring.hot);
        let hot = spawn("hot", &stop, move || run_hot(&plan, ring, ends))?;
        Ok(Daemon { observed, stop, service, publisher, snapshots, control, hot })
    }

    /// Asks the daemon to drain and end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Returns whether a thread has ended that should run as long as the daemon.
    pub fn has_ended(&self) -> bool {
        self.control.is_finished() || self.hot.is_finished() || self.publisher.is_finished()
    }

    /// Waits until the daemon has ended, from first to last. The control thread has released the
    /// shards, so the hot thread ends; its last frames are published and its last snapshots stored;
    /// then the service thread ends.
    pub fn wait(self) -> Result<(), Failure> {
        let control = joined(self.control);
        let hot = joined(self.hot);
        let publisher = joined(self.publisher);
        self.snapshots.into_iter().for_each(RunningSnapshotThreads::wait);
        // An error of the control thread is why the publisher could not finish.
        let ended = hot.and(control.map_err(Failure::from)).and(publisher.map_err(Failure::from));
        self.service.finish(ended.as_ref().copied().map_err(Failure::to_string));
        ended
    }
}

/// Runs the hot thread: creates the ring on it, and pins it once all other threads exist.
fn run_hot(plan: &Plan, ring: RingKind, ends: hot::HotEnds) -> Result<(), Failure> {
    let ring_loop = RingLoop::new(ring, RING_ENTRIES, PARK_MAX, ends.bell.clone())?;
    if let Plan::Pinned { helper_cores, .. } = plan {
        ring_loop.ring().confine_workers(helper_cores)?;
    }
    cpu::pin_this_thread(plan)?;
    cpu::verify(plan, cpu::this_task())?;
    Ok(hot::run(&ring_loop, ends)?)
}
