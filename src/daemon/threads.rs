//! How the daemon's threads start and end together.

use crate::daemon::failure::Failure;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Starts one of the daemon's threads. When it ends, for whatever reason, the others have to end,
/// too.
pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    stop: &Arc<AtomicBool>,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Failure> {
    let stop = stop.clone();
    let whole = move || {
        let result = run();
        stop.store(true, Ordering::Release);
        result
    };
    let started = thread::Builder::new().name(name.to_owned()).spawn(whole);
    started.map_err(Failure::out_of_resources)
}

/// Waits until a thread has ended, at most this long. Returns whether it has.
pub(crate) fn joined_within<T>(thread: JoinHandle<T>, wait_max: Duration) -> bool {
    let end = Instant::now() + wait_max;
    while !thread.is_finished() && Instant::now() < end {
        thread::sleep(POLL_INTERVAL);
    }
    thread.is_finished().then(|| joined(thread)).is_some()
}

const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Waits until a thread has ended.
pub(crate) fn joined<T>(thread: JoinHandle<T>) -> T {
    thread.join().expect("a panic outside the engine ends the process")
}
