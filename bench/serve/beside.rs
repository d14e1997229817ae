//! What players do beside the requests: events at a steady rate, in small pieces.

use crate::{Size, ZONES, start};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::batch_load::{Layout, Load, Shape};
use support::daemon::{Huntd, Topics};
use support::generator::{Generator, Pace, now_us};
use support::kafka::Cluster;

/// Between two pieces of what players do beside polls: how long a producer gathers.
const PIECE: Duration = Duration::from_millis(5);

/// The part of a second's events that a daemon lags behind at most if it keeps up.
const LAG_PART: u64 = 4;

/// By how much the players may be late before they leave something out.
const LATE_MAX: Duration = Duration::from_secs(1);

/// The rate that ends it.
const OVER: u64 = u64::MAX;

/// A daemon, and players who play.
pub(crate) struct Beside<'a> {
    pub(crate) huntd: &'a Huntd,
    pub(crate) cluster: &'a Cluster,
    pub(crate) topics: &'a Topics,
    /// Input offsets by zone, of when all players had joined.
    pub(crate) ends: &'a [i64],
    per_s: &'a AtomicU64,
}

impl Beside<'_> {
    /// So many events per second from now on.
    pub(crate) fn set_rate(&self, per_s: u64) {
        self.per_s.store(per_s, Ordering::Relaxed);
    }

    /// Waits until the daemon has caught up with the events: until then it reads more of them at
    /// once, and an event costs it less.
    pub(crate) fn wait_until_abreast(&self) {
        let lag_max = self.per_s.load(Ordering::Relaxed) / LAG_PART;
        while self.huntd.metric("huntd_lag_records") > lag_max {
            std::thread::sleep(PIECE);
        }
    }
}

/// Measures something while players play.
pub(crate) fn play(cluster: &Cluster, size: &Size, measure: impl FnOnce(&Beside)) {
    let topics = Topics::create(cluster, "serve", ZONES);
    let huntd = start(cluster, &topics, &[]);
    let load = Load::new(shape(size));
    let address = cluster.bootstrap();
    let mut generator = Generator::new(&load, &address, &topics.input, Pace::Unpaced);
    generator.send_joins(now_us());
    let ends = wait_for_joins(cluster, &topics, size.players);
    let per_s = AtomicU64::new(size.events_per_s);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut due = Instant::now();
            for tick in 0.. {
                let per_s = per_s.load(Ordering::Relaxed);
                if per_s == OVER {
                    return generator.finish();
                }
                generator.send_tick(tick, now_us());
                due += Duration::from_secs_f64(load.shape.tick_events() as f64 / per_s as f64);
                let now = Instant::now();
                due = due.max(now.checked_sub(LATE_MAX).unwrap_or(now));
                std::thread::sleep(due.saturating_duration_since(now));
            }
        });
        let _over = Over(&per_s);
        let (huntd, topics, ends) = (&huntd, &topics, &ends);
        measure(&Beside { huntd, cluster, topics, ends, per_s: &per_s });
    });
}

fn shape(size: &Size) -> Shape {
    let of_piece = size.events_per_s as f64 * PIECE.as_secs_f64() / f64::from(ZONES);
    Shape {
        partitions: ZONES as usize,
        players: size.players,
        rate: size.events_per_s,
        batch_events: (of_piece as usize).max(1),
        layout: Layout::Mixed,
    }
}

/// The ends of the zones once all players have joined.
fn wait_for_joins(cluster: &Cluster, topics: &Topics, players: u64) -> Vec<i64> {
    loop {
        let ends = cluster.client().ends(&topics.input, ZONES);
        if ends.iter().sum::<i64>() == players as i64 {
            return ends;
        }
        std::thread::sleep(PIECE);
    }
}

/// Dropped, it ends what players do, also where a measurement fails.
struct Over<'a>(&'a AtomicU64);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(OVER, Ordering::Relaxed);
    }
}
