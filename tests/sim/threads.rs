//! Threads that stand still for seconds while the others go on, and the watch that must notice it.

use crate::chance::{Chance, Fault, Sight};
use crate::mutation::Mutation;
use crate::node::{Node, Thread};
use crate::sim::Sim;
use huntd::service::status::Phase;
use huntd::service::thread_watch::{CONTROL_STUCK_MS, STUCK_MS, ThreadWatch};
use huntd::telemetry::metrics::{Counter, Metrics};
use std::time::Duration;

/// Microseconds between two samples of the watch.
const SAMPLE_US: u64 = 1_000_000;

/// Threads, their names, the microseconds after which they are stuck, and what counts their turns.
const WATCHED: [(Thread, &str, u64, Counter); 3] = [
    (Thread::Hot, "hot", 1_000 * STUCK_MS, Counter::Turns),
    (Thread::Control, "control", 1_000 * CONTROL_STUCK_MS, Counter::ControlTurns),
    (Thread::Publisher, "publisher", 1_000 * STUCK_MS, Counter::PublisherTurns),
];

/// A daemon's watch, and when its threads turned.
#[derive(Default)]
pub(crate) struct Watched {
    watch: ThreadWatch,
    sampled_at: u64,
    turned_at: [u64; 3],
    /// Until when each thread stalls.
    stalled_until: [u64; 3],
    /// The daemon has said that it is ready.
    pub(crate) is_ready: bool,
}

impl Watched {
    /// When a thread that is due then has its turn.
    pub(crate) fn next(&self, thread: Thread, at: u64) -> u64 {
        place(thread).map_or(at, |place| at.max(self.stalled_until[place]))
    }

    /// A thread turns.
    pub(crate) fn turn(&mut self, thread: Thread, metrics: &Metrics, wrong: Mutation, now: u64) {
        let Some(place) = place(thread) else { return };
        self.turned_at[place] = now;
        metrics.add(WATCHED[place].3, 1);
        if wrong == Mutation::TurnsMiscounted && thread == Thread::Hot {
            metrics.add(Counter::ControlTurns, 1);
        }
    }
}

fn place(thread: Thread) -> Option<usize> {
    WATCHED.iter().position(|(watched, ..)| *watched == thread)
}

impl Node {
    /// A thread stops for a while. Returns whether one does.
    pub(crate) fn strike_threads(&mut self, chance: &mut Chance, now: u64) -> bool {
        let stalls = [
            (Fault::ControlStalls, Thread::Control, 1_000 * CONTROL_STUCK_MS),
            (Fault::PublisherStalls, Thread::Publisher, 1_000 * STUCK_MS),
        ];
        let Some((_, thread, stuck_us)) =
            stalls.into_iter().find(|(fault, ..)| chance.strikes(*fault))
        else {
            return false;
        };
        let place = place(thread).expect("it is watched");
        let stall_us = chance.pick(&[200_000, 2_000_000, stuck_us + 3 * SAMPLE_US]);
        self.watched.stalled_until[place] = now + stall_us;
        true
    }
}

impl Sim {
    /// A thread that does not turn for too long is named, and no other is.
    pub(crate) fn watch_threads(&mut self) -> Result<(), String> {
        let Sim { hosts, chance, now, common, .. } = self;
        for node in hosts.iter_mut().filter_map(|host| host.node.as_mut()) {
            let (paused_until, metrics) = (node.paused_until, node.metrics.clone());
            let watched = &mut node.watched;
            // After a pause of the whole process each thread has some time to turn.
            let from = watched.sampled_at.max(paused_until) + SAMPLE_US;
            if *now < from {
                continue;
            }
            watched.sampled_at = *now;
            let at = common.base + Duration::from_micros(*now);
            let stuck = watched.watch.sample(&metrics, Phase::Ready, at);
            for (place, (_, name, stuck_us, _)) in WATCHED.iter().enumerate() {
                let turned_at = watched.turned_at[place];
                let is_named = stuck.contains(name);
                // The watch knows of a turn at its next sample.
                if is_named && *now - turned_at < stuck_us - 2 * SAMPLE_US {
                    return Err(format!("the {name} thread turns, and counts as stuck"));
                }
                let still_us = *now - turned_at.max(paused_until);
                if !is_named && turned_at > 0 && still_us > stuck_us + 2 * SAMPLE_US {
                    return Err(format!("the {name} thread stands still, and nobody notices"));
                }
                if is_named {
                    chance.see(Sight::StallNoticed);
                }
            }
        }
        Ok(())
    }
}
