//! What players do beside the requests: events at a steady rate, in small pieces.

use crate::{Size, ZONES, start};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::daemon::{Huntd, Topics};
use support::kafka::Cluster;
use support::load::{Load, producer};

/// Between two pieces of what players do.
const PIECE: Duration = Duration::from_millis(5);

/// The rate that ends it.
const OVER: u64 = u64::MAX;

/// A daemon, and players who play.
pub(crate) struct Beside<'a> {
    pub(crate) huntd: &'a Huntd,
    /// Input offsets by zone, of when all players had joined.
    pub(crate) ends: &'a [i64],
    per_s: &'a AtomicU64,
}

impl Beside<'_> {
    /// So many events per second from now on.
    pub(crate) fn set_rate(&self, per_s: u64) {
        self.per_s.store(per_s, Ordering::Relaxed);
    }
}

/// Measures something while players play.
pub(crate) fn play(cluster: &Cluster, size: &Size, measure: impl FnOnce(&Beside)) {
    let topics = Topics::create(cluster, "serve", ZONES);
    let huntd = start(cluster, &topics, &[]);
    let mut load = Load::new(size.players, ZONES);
    load.produce(cluster, &topics, size.players);
    let ends = cluster.client().ends(&topics.input, ZONES);
    let per_s = AtomicU64::new(size.events_per_s);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (producer, mut before) = (producer(cluster), Instant::now());
            let mut due = 0.0;
            loop {
                let per_s = per_s.load(Ordering::Relaxed);
                if per_s == OVER {
                    return;
                }
                let now = Instant::now();
                due += (now - before).as_secs_f64().min(1.0) * per_s as f64;
                before = now;
                load.send(&producer, &topics, due as u64);
                due = due.fract();
                std::thread::sleep(PIECE);
            }
        });
        let _over = Over(&per_s);
        measure(&Beside { huntd: &huntd, ends: &ends, per_s: &per_s });
    });
}

/// Dropped, it ends what players do, also where a measurement fails.
struct Over<'a>(&'a AtomicU64);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(OVER, Ordering::Relaxed);
    }
}
