//! The shard's clock. It follows the times of the shard's records, and nothing else.

/// Record times that the shard's clock looks back on: it follows the smallest of them.
pub(crate) const CLOCK_RECORDS: usize = 8;

/// Time within a shard, in milliseconds.
///
/// It follows the smallest of the last eight record times and never runs back, so one record with a
/// wrong time, even a year ahead, does not move it. It stands at 0 until eight records came; their
/// smallest time is where it starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clock {
    recent_ms: [i64; CLOCK_RECORDS],
    records: u64,
    start_ms: i64,
    now_ms: u64,
    /// The time that was published last.
    published_ms: u64,
}

/// Words of an encoded clock.
const CLOCK_WORDS: usize = CLOCK_RECORDS + 4;

impl Clock {
    /// Takes one record's time.
    pub(crate) fn observe(&mut self, time_ms: i64) {
        let full = CLOCK_RECORDS as u64;
        let oldest = &mut self.recent_ms[(self.records % full) as usize];
        let replaced_ms = std::mem::replace(oldest, time_ms);
        self.records += 1;
        // Most records have the same millisecond as the eighth record before them, and then the
        // smallest of the eight stays the same.
        if self.records < full || (self.records > full && replaced_ms == time_ms) {
            return;
        }
        let earliest_ms = self.recent_ms.iter().fold(i64::MAX, |least, time| least.min(*time));
        if self.records == full {
            self.start_ms = earliest_ms;
        }
        let since_start = earliest_ms.saturating_sub(self.start_ms);
        self.now_ms = self.now_ms.max(u64::try_from(since_start).unwrap_or(0));
    }

    /// Milliseconds since the clock started.
    pub(crate) fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Whether the last record has started it.
    pub(crate) fn has_just_started(&self) -> bool {
        self.records == CLOCK_RECORDS as u64
    }

    /// The time to publish, if it differs from the one that was published last: milliseconds since
    /// the Unix epoch, 0 for times before.
    pub(crate) fn unpublished(&self) -> Option<u64> {
        (self.published_ms != self.now_ms).then(|| self.published())
    }

    /// The time as it is published.
    pub(crate) fn published(&self) -> u64 {
        u64::try_from(self.unix_ms(self.now_ms)).unwrap_or(0)
    }

    /// The time that was published last.
    pub(crate) fn published_unix_ms(&self) -> i64 {
        self.unix_ms(self.published_ms)
    }

    /// The present time is published.
    pub(crate) fn publish(&mut self) {
        self.published_ms = self.now_ms;
    }

    /// Records seen, which is also the ordinal of the event that came last.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// A time of this clock in milliseconds since the Unix epoch.
    pub(crate) fn unix_ms(&self, at_ms: u64) -> i64 {
        self.start_ms.saturating_add(i64::try_from(at_ms).unwrap_or(i64::MAX))
    }

    /// The clock as words.
    pub(crate) fn to_words(&self) -> [u64; CLOCK_WORDS] {
        let Clock { recent_ms, records, start_ms, now_ms, published_ms } = *self;
        let mut words = [0; CLOCK_WORDS];
        for (word, time) in words.iter_mut().zip(recent_ms) {
            *word = time as u64;
        }
        words[CLOCK_RECORDS..].copy_from_slice(&[records, start_ms as u64, now_ms, published_ms]);
        words
    }

    /// The clock that these words are.
    pub(crate) fn from_words(words: &[u64; CLOCK_WORDS]) -> Clock {
        let recent_ms = std::array::from_fn(|at| words[at] as i64);
        let [.., records, start_ms, now_ms, published_ms] = *words;
        Clock { recent_ms, records, start_ms: start_ms as i64, now_ms, published_ms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(times_ms: impl IntoIterator<Item = i64>) -> Clock {
        let mut clock = Clock::default();
        times_ms.into_iter().for_each(|time_ms| clock.observe(time_ms));
        clock
    }

    #[test]
    fn the_clock_follows_the_smallest_of_the_last_eight_times() {
        assert_eq!(after(1000..1008).now_ms(), 0);
        assert_eq!(after(1000..1020).now_ms(), 12);
        assert_eq!(after(1000..1020).unix_ms(12), 1012);
    }

    #[test]
    fn one_record_a_year_ahead_moves_nothing_wherever_it_stands() {
        const YEAR_MS: i64 = 365 * 24 * 3600 * 1000;
        for bad in 0..20 {
            let times = (0..20).map(|at| 1000 + at + if at == bad { YEAR_MS } else { 0 });
            assert!(after(times).now_ms() <= 13, "record {bad}");
        }
    }

    #[test]
    fn the_clock_never_runs_back() {
        let mut clock = after(1000..1020);
        for time_ms in [5, 0, -7, i64::MIN, i64::MAX] {
            let before = clock.now_ms();
            clock.observe(time_ms);
            assert!(clock.now_ms() >= before);
        }
    }

    #[test]
    fn words_carry_the_whole_clock() {
        let clock = after([9, -4, 7, 1 << 40, 3, 2, 1, 0, 11]);
        assert_eq!(Clock::from_words(&clock.to_words()), clock);
    }
}
