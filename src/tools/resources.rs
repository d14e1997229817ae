//! The file descriptors and threads that each verb must have before it starts.

use super::failure::ToolError;
use crate::runtime::resources;
use crate::serve::sessions::DESCRIPTORS_KEPT;
use crate::service::cli::Verb;

/// Descriptors of a tool or of the daemon: its files, its own sockets, and librdkafka's for some
/// brokers.
const DESCRIPTORS_MIN: u64 = 128;

/// Threads of a tool or a server: its own, and librdkafka's for some brokers.
const THREADS_MIN: usize = 32;

/// Threads of a demo: those of a broker, a daemon, a server and clients.
const DEMO_THREADS: usize = 64;

/// Checks that a verb has enough of both. librdkafka would abort without a thread, and would report
/// a broker as unreachable without a descriptor.
pub fn check(verb: &Verb) -> Result<(), ToolError> {
    match verb {
        // It reports where threads run out, and a small cluster needs few.
        Verb::Run(_) => resources::check(DESCRIPTORS_MIN, 0)?,
        Verb::Demo(_) => resources::check(DESCRIPTORS_KEPT, DEMO_THREADS)?,
        Verb::Serve(_) => resources::check(DESCRIPTORS_KEPT, THREADS_MIN)?,
        Verb::Check(_)
        | Verb::Explain(_)
        | Verb::Load(_)
        | Verb::Rehearse(_)
        | Verb::Replay(_)
        | Verb::Rules(_)
        | Verb::Snapshot(_)
        | Verb::Tap(_)
        | Verb::Topics(_)
        | Verb::Zones(_) => resources::check(DESCRIPTORS_MIN, THREADS_MIN)?,
        Verb::Config(_) | Verb::Schema | Verb::Completions(_) | Verb::Man(_) => {}
    }
    Ok(())
}
