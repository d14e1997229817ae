//! When each owned partition is due for a tick, so that time passes where nothing happens.
//!
//! Pure: time is an argument. A partition has at most one tick on its way, so ticks do not pile up
//! at a dead partition.

use crate::telemetry::progress::SHARDS_MAX;
use std::time::{Duration, Instant};

/// Milliseconds between two ticks of a zone, at most: with more, its time would stand still.
pub(crate) const TICK_EVERY_MS_MAX: u32 = 60_000;

/// Milliseconds after which a tick that was due and that no broker has acknowledged is late, and
/// between two reports of such ticks. Its zone's time stands still, which nobody sees while players
/// act.
const TICK_LATE_MS: u64 = 10_000;

/// The ticks of all shards, by partition number.
pub(crate) struct Ticker {
    every: Option<Duration>,
    shards: Vec<Pending>,
    /// No tick is due before this time.
    paused_until: Option<Instant>,
    /// When the last turn was.
    turned_at: Option<Instant>,
    /// When late ticks are next reported.
    report_at: Option<Instant>,
}

#[derive(Clone, Copy)]
enum Pending {
    /// The partition is not ours.
    Nothing,
    /// The next one is due then.
    At(Instant),
    /// One is on its way, and was due then.
    Sent(Instant),
}

impl Ticker {
    /// A tick every `every_ms` milliseconds; 0: none at all.
    pub(crate) fn new(every_ms: u32) -> Ticker {
        let every = (every_ms > 0).then(|| Duration::from_millis(every_ms.into()));
        Ticker {
            every,
            shards: vec![Pending::Nothing; SHARDS_MAX],
            paused_until: None,
            turned_at: None,
            report_at: None,
        }
    }

    /// A partition is ours from now on.
    pub(crate) fn begin(&mut self, partition: i32, now: Instant) {
        *self.shard(partition) = Pending::At(now);
    }

    /// A partition is not ours any more.
    pub(crate) fn end(&mut self, partition: i32) {
        *self.shard(partition) = Pending::Nothing;
    }

    /// The partitions that are due for a tick now.
    pub(crate) fn due(&self, now: Instant) -> impl Iterator<Item = i32> {
        let is_due = move |pending: &Pending| matches!(pending, Pending::At(at) if *at <= now);
        let is_paused = self.paused_until.is_some_and(|until| now < until);
        let shards = self.shards.iter().filter(move |_| self.every.is_some() && !is_paused);
        (0..)
            .zip(shards)
            .filter(move |(_, pending)| is_due(pending))
            .map(|(partition, _)| partition)
    }

    /// No tick is due before this time.
    pub(crate) fn pause(&mut self, until: Instant) {
        self.paused_until = Some(until);
    }

    /// A partition's tick is on its way.
    pub(crate) fn sent(&mut self, partition: i32, now: Instant) {
        *self.shard(partition) = Pending::Sent(now);
    }

    /// Called each turn. Now and then it reports the ticks that are late: the first such partition,
    /// and how many there are. A thread that has stopped for long has to send its ticks first.
    pub(crate) fn late(&mut self, now: Instant) -> Option<(i32, usize)> {
        let late = Duration::from_millis(TICK_LATE_MS);
        let before = self.turned_at.replace(now);
        let stood_still = before.is_none_or(|before| before + late / 2 < now);
        let report_at = self.report_at.filter(|_| !stood_still).unwrap_or(now + late);
        let is_due = self.every.is_some() && report_at <= now;
        self.report_at = Some(if is_due { now + late } else { report_at });
        if !is_due {
            return None;
        }
        let is_late = |pending: &Pending| match pending {
            Pending::Nothing => false,
            Pending::At(at) | Pending::Sent(at) => *at + late <= now,
        };
        let mut partitions = (0..).zip(&self.shards).filter(|(_, pending)| is_late(pending));
        let (first, _) = partitions.next()?;
        Some((first, 1 + partitions.count()))
    }

    /// Its delivery was reported, one way or the other.
    pub(crate) fn settled(&mut self, partition: i32) {
        let every = self.every.unwrap_or_default();
        let shard = self.shard(partition);
        if let Pending::Sent(at) = *shard {
            *shard = Pending::At(at + every);
        }
    }

    fn shard(&mut self, partition: i32) -> &mut Pending {
        &mut self.shards[usize::try_from(partition).expect("partition numbers are not negative")]
    }
}

/// The id of the tick at this time. All ticks of one interval have one id, no matter who sends
/// them. So if two daemons believe that they own a zone, the zone takes one of their ticks.
pub(crate) fn tick_id(now_ms: i64, every_ms: u32) -> u64 {
    let now_ms = now_ms.max(1).cast_unsigned();
    (now_ms - now_ms % u64::from(every_ms.max(1))).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;

    #[test]
    fn an_owned_partition_ticks_once_an_interval_and_never_twice_at_once() {
        let mut ticker = Ticker::new(1_000);
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let due = |ticker: &Ticker, ms| ticker.due(at(ms)).collect::<Vec<i32>>();
        assert!(due(&ticker, 0).is_empty());
        ticker.begin(3, start);
        ticker.begin(5, at(200));
        assert_eq!(due(&ticker, 0), [3]);
        ticker.sent(3, start);
        assert_eq!(due(&ticker, 5_000), [5], "one is on its way");
        ticker.settled(3);
        assert!(due(&ticker, 199).is_empty());
        assert_eq!(due(&ticker, 1_000), [3, 5]);
        ticker.end(3);
        ticker.settled(3);
        assert_eq!(due(&ticker, 9_000), [5]);
    }

    #[test]
    fn a_pause_delays_ticks_and_drops_none() {
        let mut ticker = Ticker::new(1_000);
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        [3, 5].into_iter().for_each(|partition| ticker.begin(partition, start));
        ticker.pause(at(500));
        assert_eq!(ticker.due(at(499)).count(), 0);
        assert_eq!(ticker.due(at(500)).collect::<Vec<i32>>(), [3, 5]);
    }

    #[test]
    fn a_tick_that_nobody_acknowledges_is_late_until_it_is_settled() {
        let mut ticker = Ticker::new(1_000);
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        [3, 4, 5].into_iter().for_each(|partition| ticker.begin(partition, start));
        // What the turns of these milliseconds tell.
        let told = |ticker: &mut Ticker, ms: Range<u64>| {
            ms.step_by(100).filter_map(|ms| ticker.late(at(ms))).collect::<Vec<_>>()
        };
        assert_eq!(ticker.late(at(0)), None);
        [3, 4].into_iter().for_each(|partition| ticker.sent(partition, at(1)));
        ticker.settled(4);
        ticker.sent(4, at(1_001));
        assert_eq!(told(&mut ticker, 1..10_000), []);
        assert_eq!(told(&mut ticker, 10_001..20_000), [(3, 2)], "one could not be sent");
        assert_eq!(told(&mut ticker, 20_000..30_001), [(3, 3)]);
        [3, 4].into_iter().for_each(|partition| ticker.settled(partition));
        [3, 4, 5].into_iter().for_each(|partition| ticker.sent(partition, at(30_001)));
        assert_eq!(told(&mut ticker, 30_001..40_000), []);
        [3, 4, 5].into_iter().for_each(|partition| ticker.end(partition));
        assert_eq!(told(&mut ticker, 40_000..90_000), []);
    }

    #[test]
    fn after_this_thread_has_stopped_for_long_no_tick_is_late_before_it_could_be_sent() {
        let mut ticker = Ticker::new(1_000);
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        [3, 4].into_iter().for_each(|partition| ticker.begin(partition, start));
        ticker.sent(3, start);
        for stands_until in [60_000, 600_000] {
            assert_eq!(ticker.late(at(stands_until)), None);
            assert_eq!(ticker.late(at(stands_until + 100)), None);
        }
    }

    #[test]
    fn without_an_interval_nothing_ticks() {
        let mut ticker = Ticker::new(0);
        ticker.begin(0, Instant::now());
        assert_eq!(ticker.due(Instant::now()).count(), 0);
        let late = Duration::from_millis(TICK_LATE_MS);
        assert_eq!(ticker.late(Instant::now()), None);
        assert_eq!(ticker.late(Instant::now() + 2 * late), None);
    }

    #[test]
    fn ticks_of_one_interval_have_one_id() {
        assert_eq!(tick_id(1_999, 1_000), 1_000);
        assert_eq!(tick_id(1_000, 1_000), 1_000);
        assert_eq!(tick_id(2_000, 1_000), 2_000);
        assert_eq!(tick_id(0, 1_000), 1);
    }
}
