//! The shard's clock. It follows only the times of the shard's records.

/// Number of recent record times that the shard's clock keeps: it follows the smallest of them.
pub(crate) const CLOCK_RECORDS: usize = 8;

/// The same number, in the type of the record count.
const RECORDS: u64 = CLOCK_RECORDS as u64;

/// Time within a shard, in milliseconds.
///
/// It follows the smallest of the last eight record times and never runs backwards, so one record
/// with a wrong time, even a year ahead, does not move it. It is 0 until eight records have
/// arrived, and starts at their smallest time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clock {
    recent_ms: [i64; CLOCK_RECORDS],
    records: u64,
    start_ms: i64,
    now_ms: u64,
    /// The last published time.
    published_ms: u64,
    /// The smallest of the recent times, and the record count at which its last occurrence is
    /// replaced. Both are derived from those times.
    earliest_ms: i64,
    earliest_until: u64,
    /// The time in published form, derived from `start_ms` and `now_ms`.
    now_unix_ms: u64,
}

/// Size of an encoded clock.
const CLOCK_WORDS: usize = CLOCK_RECORDS + 4;

impl Default for Clock {
    fn default() -> Clock {
        Clock::from_words(&[0; CLOCK_WORDS])
    }
}

impl Clock {
    /// Takes the time of one record.
    pub(crate) fn observe(&mut self, time_ms: i64) {
        self.recent_ms[(self.records % RECORDS) as usize] = time_ms;
        self.records += 1;
        if time_ms <= self.earliest_ms {
            // The clock never runs backwards, so only the next smallest time will move it.
            self.earliest_ms = time_ms;
            self.earliest_until = self.records + RECORDS;
        } else if self.records >= self.earliest_until {
            self.find_earliest();
            self.advance();
        }
        if self.has_just_started() {
            self.start_ms = self.earliest_ms;
            self.advance();
        }
    }

    /// Finds the smallest of the recent times.
    #[inline(never)]
    fn find_earliest(&mut self) {
        // With all eight, the compiler knows the number.
        let fewer = self.recent_ms.get(..self.records as usize);
        let earliest = fewer.map_or_else(|| self.recent_ms.iter().min(), |few| few.iter().min());
        self.earliest_ms = *earliest.unwrap_or(&i64::MAX);
        // Mostly the newest record has it.
        let has_it = |record: &u64| self.recent_ms[(record % RECORDS) as usize] == self.earliest_ms;
        let last = (0..self.records).rev().find(has_it);
        self.earliest_until = last.map_or(0, |last| last.saturating_add(1 + RECORDS));
    }

    /// Advances to the smallest of the recent times, if that is later.
    fn advance(&mut self) {
        let since_start = self.earliest_ms.saturating_sub(self.start_ms);
        self.set(self.now_ms.max(u64::try_from(since_start).unwrap_or(0)));
    }

    fn set(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        self.now_unix_ms = u64::try_from(self.unix_ms(now_ms)).unwrap_or(0);
    }

    /// Milliseconds since the clock started.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Returns whether the last record has started the clock.
    pub(crate) fn has_just_started(&self) -> bool {
        self.records == RECORDS
    }

    /// The time to publish, if it differs from the last published one: milliseconds since the Unix
    /// epoch, 0 for earlier times.
    pub(crate) fn unpublished(&self) -> Option<u64> {
        (self.published_ms != self.now_ms).then_some(self.now_unix_ms)
    }

    /// The time in published form.
    pub(crate) fn published(&self) -> u64 {
        self.now_unix_ms
    }

    /// The last published time.
    pub(crate) fn published_unix_ms(&self) -> i64 {
        self.unix_ms(self.published_ms)
    }

    /// Marks the current time as published.
    pub(crate) fn publish(&mut self) {
        self.published_ms = self.now_ms;
    }

    /// Number of records seen, which is also the ordinal of the last event.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// Converts a time of this clock to milliseconds since the Unix epoch.
    pub(crate) fn unix_ms(&self, at_ms: u64) -> i64 {
        self.start_ms.saturating_add(i64::try_from(at_ms).unwrap_or(i64::MAX))
    }

    /// Encodes the clock as words.
    pub(crate) fn to_words(&self) -> [u64; CLOCK_WORDS] {
        let Clock {
            recent_ms,
            records,
            start_ms,
            now_ms,
            published_ms,
            // Derived from the above.
            earliest_ms: _,
            earliest_until: _,
            now_unix_ms: _,
        } = *self;
        let mut words = [0; CLOCK_WORDS];
        for (word, time) in words.iter_mut().zip(recent_ms) {
            *word = time as u64;
        }
        words[CLOCK_RECORDS..].copy_from_slice(&[records, start_ms as u64, now_ms, published_ms]);
        words
    }

    /// Decodes the clock from words.
    pub(crate) fn from_words(words: &[u64; CLOCK_WORDS]) -> Clock {
        let [.., records, start_ms, now_ms, published_ms] = *words;
        let mut clock = Clock {
            recent_ms: std::array::from_fn(|at| words[at] as i64),
            records,
            start_ms: start_ms as i64,
            now_ms: 0,
            published_ms,
            earliest_ms: i64::MAX,
            earliest_until: 0,
            now_unix_ms: 0,
        };
        clock.find_earliest();
        clock.set(now_ms);
        clock
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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

    proptest! {
        /// Also after an encoding in between.
        #[test]
        fn the_clock_shows_how_far_the_smallest_of_eight_times_has_come(
            times in prop::collection::vec(prop_oneof![0..4_i64, -9..99_i64, any::<i64>()], 0..40),
            carried in 0..40_usize,
        ) {
            let mut clock = Clock::default();
            for (at, time_ms) in times.iter().enumerate() {
                if at == carried {
                    clock = Clock::from_words(&clock.to_words());
                }
                clock.observe(*time_ms);
            }
            let smallest: Vec<i64> =
                times.windows(CLOCK_RECORDS).map(|eight| *eight.iter().min().unwrap()).collect();
            let start_ms = *smallest.first().unwrap_or(&0);
            let ways = smallest.iter().map(|time_ms| time_ms.saturating_sub(start_ms));
            let now_ms = ways.max().unwrap_or(0);
            prop_assert_eq!(clock.now_ms(), now_ms as u64);
            prop_assert_eq!(clock.published(), start_ms.saturating_add(now_ms).max(0) as u64);
        }
    }
}
