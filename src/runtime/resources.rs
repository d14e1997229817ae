//! Whether there is room for what a process is about to take: file descriptors and threads.
//!
//! Libraries panic or abort where the kernel has none left. So a process that lives on libraries
//! asks before it starts them.

use rustix::process::{Resource, getrlimit};
use std::io;
use std::sync::mpsc::channel;
use std::thread;
use thiserror::Error;

/// There is too little room.
#[derive(Debug, Error)]
pub enum RoomError {
    /// This many descriptors would be too few.
    #[error("more than {0} file descriptors are needed; raise LimitNOFILE= (ulimit -n) for huntd")]
    Descriptors(u64),
    /// The kernel gives out no further thread.
    #[error("{0} threads cannot run at once: {1}; raise TasksMax= (ulimit -u) for huntd")]
    Threads(usize, io::Error),
}

/// Checks that more than this many descriptors may be open, and that this many further threads may
/// run now.
pub(crate) fn check(descriptors: u64, threads: usize) -> Result<(), RoomError> {
    if getrlimit(Resource::Nofile).current.is_some_and(|limit| limit <= descriptors) {
        return Err(RoomError::Descriptors(descriptors));
    }
    let mut running = Vec::new();
    for _ in 0..threads {
        let (done, until_done) = channel::<()>();
        let thread = thread::Builder::new().spawn(move || {
            until_done.recv().expect_err("nothing is sent");
        });
        let thread = thread.map_err(|error| RoomError::Threads(threads, error))?;
        running.push((thread, done));
    }
    for (thread, done) in running {
        drop(done);
        thread.join().expect("it only waits");
    }
    Ok(())
}
