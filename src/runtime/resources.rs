//! Checks that enough file descriptors and threads are available for what a process is about to
//! start.
//! Libraries panic or abort if the kernel has none left. So a process that relies on libraries
//! checks before it starts them.

use rustix::process::{Resource, getrlimit};
use std::io;
use std::sync::mpsc::channel;
use std::thread;
use thiserror::Error;

/// Too few file descriptors or threads are available.
#[derive(Debug, Error)]
pub enum ResourceError {
    /// The limit of descriptors is too low.
    #[error("more than {0} file descriptors are needed; raise LimitNOFILE= (ulimit -n) for huntd")]
    Descriptors(u64),
    /// The kernel allows no further thread.
    #[error("{0} threads cannot run at once: {1}; raise TasksMax= (ulimit -u) for huntd")]
    Threads(usize, io::Error),
}

/// Checks that more than this many descriptors may be open, and that this many more threads can run
/// now.
pub(crate) fn check(descriptors: u64, threads: usize) -> Result<(), ResourceError> {
    if getrlimit(Resource::Nofile).current.is_some_and(|limit| limit <= descriptors) {
        return Err(ResourceError::Descriptors(descriptors));
    }
    let mut running = Vec::new();
    for _ in 0..threads {
        let (done, until_done) = channel::<()>();
        let thread = thread::Builder::new().spawn(move || {
            until_done.recv().expect_err("nothing is sent");
        });
        let thread = thread.map_err(|error| ResourceError::Threads(threads, error))?;
        running.push((thread, done));
    }
    for (thread, done) in running {
        drop(done);
        thread.join().expect("it only waits");
    }
    Ok(())
}
