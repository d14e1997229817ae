//! Whether the owner of a zone has fallen silent: it has published nothing for a while, although
//! there is input that its output does not cover.
//!
//! The output may be what is silent, if no record reaches it. So a probe is appended first. Only an
//! owner that publishes nothing before the probe is acknowledged and read is taken for silent.

use std::time::{Duration, Instant};

/// The shortest silence that may be configured, in milliseconds: an owner publishes every 100 ms,
/// and brokers pause, too.
pub(crate) const SILENCE_MS_MIN: u32 = 150;

/// The longest, and the longest for which patience makes a copy wait.
pub(crate) const SILENCE_MS_MAX: u32 = 10_000;

/// Milliseconds for which each copy waits for the one before it.
pub(super) const RANK_MS: u64 = 150;

/// Milliseconds of the silence that counts as seen when a copy begins.
const SEEN_MS_FIRST: u64 = 250;

/// Time in which the memory of a silence halves.
const SEEN_HALVES: Duration = Duration::from_secs(120);

/// How many times as long a copy waits if the zones of several owners fall silent at once: the
/// cause is this host, or the brokers.
const CROWD: u32 = 3;

/// What a copy knows of its zone at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OwnerSighting {
    /// The owner epoch in force.
    pub(super) owner_epoch: u64,
    /// The number of the next update, and the input offset that the output covers.
    pub(super) position: (u64, i64),
    /// The first input offset that was not read.
    pub(super) decoded: i64,
    /// The first output offset that was not read.
    pub(super) read_to: i64,
    /// The copy could take the zone over now.
    pub(super) is_eligible: bool,
    /// The zones of several owners are silent.
    pub(super) is_crowd: bool,
}

/// What to do about a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SilenceStep {
    /// Nothing.
    Wait,
    /// Append a probe.
    Probe,
    /// Take the zone over: its owner has been silent for this long.
    TakeOver(Duration),
}

/// The silence of one zone's owner.
#[derive(Debug)]
pub(super) struct Silence {
    silence: Duration,
    heard: Option<(u64, (u64, i64))>,
    /// Since when the owner has owed something.
    since: Option<Instant>,
    /// Since when no record was in the output after this offset although it owed some, as the
    /// brokers say.
    quiet: Option<(i64, Instant)>,
    probe: Option<Probe>,
    /// The longest silence that ended by itself, and when it was noted.
    seen: (Duration, Instant),
    /// Takeovers in a row that brought no progress.
    vain: u32,
}

/// A probe, and where it is in the output.
#[derive(Clone, Copy, Debug)]
struct Probe {
    sent_at: Instant,
    offset: Option<i64>,
}

impl Silence {
    /// Nothing is known of the zone.
    pub(super) fn new(silence_ms: u32, now: Instant) -> Silence {
        Silence {
            silence: Duration::from_millis(silence_ms.into()),
            heard: None,
            since: None,
            quiet: None,
            probe: None,
            seen: (Duration::from_millis(SEEN_MS_FIRST), now),
            vain: 0,
        }
    }

    /// This host has stood still: all that was heard before may be wrong.
    pub(super) fn forget(&mut self) {
        self.begin_again();
        self.quiet = None;
    }

    /// All clocks begin again.
    pub(super) fn begin_again(&mut self) {
        (self.since, self.probe) = (None, None);
    }

    /// Takes after which offset no record has come, and since when, as the brokers say: a copy that
    /// has just begun need not listen for all the time again.
    pub(super) fn take_quiet(&mut self, quiet: Option<(i64, Instant)>) {
        self.quiet = quiet;
    }

    /// Returns whether the owner has been silent for long enough to be asked about.
    pub(super) fn is_suspicious(&self, now: Instant) -> bool {
        self.lasts(now) >= self.limit(now) * 2 / 3
    }

    /// Takes what is known of the zone now.
    pub(super) fn look(
        &mut self,
        sighting: &OwnerSighting,
        rank: u32,
        now: Instant,
    ) -> SilenceStep {
        let heard = (sighting.owner_epoch, sighting.position);
        if self.heard != Some(heard) {
            self.hear(heard, now);
        }
        if sighting.decoded <= sighting.position.1 {
            self.begin_again();
            return SilenceStep::Wait;
        }
        let quiet = self.quiet.filter(|(end, _)| *end == sighting.read_to);
        self.since.get_or_insert(quiet.map_or(now, |(_, since)| since));
        let lasts = self.lasts(now);
        let limit = self.limit(now) * if sighting.is_crowd { CROWD } else { 1 };
        if self.probe.is_none() && lasts >= limit * 2 / 3 {
            self.probe = Some(Probe { sent_at: now, offset: None });
            return SilenceStep::Probe;
        }
        let is_probed = self
            .probe
            .and_then(|probe| probe.offset)
            .is_some_and(|offset| offset < sighting.read_to);
        let limit = limit + Duration::from_millis(RANK_MS * u64::from(rank));
        match is_probed && lasts >= limit && sighting.is_eligible {
            true => SilenceStep::TakeOver(lasts),
            false => SilenceStep::Wait,
        }
    }

    /// The probe is in the output, at this offset; or it is not known to be. If that took long, the
    /// output was what was silent.
    pub(super) fn probed(&mut self, offset: Option<i64>, now: Instant) {
        let late = self.limit(now) / 3;
        let Some(probe) = &mut self.probe else { return };
        let is_late = now.saturating_duration_since(probe.sent_at) > late;
        match offset {
            Some(_) if !is_late => probe.offset = offset,
            _ => self.begin_again(),
        }
    }

    fn hear(&mut self, heard: (u64, (u64, i64)), now: Instant) {
        let before = self.heard.replace(heard);
        match before {
            Some((_, position)) if position != heard.1 => {
                let remembered = self.remembered(now);
                self.seen = (self.lasts(now).max(remembered), now);
                self.vain = 0;
            }
            // A fence, and no progress since the one before.
            Some(_) => self.vain = self.vain.saturating_add(1),
            None => {}
        }
        self.begin_again();
    }

    fn lasts(&self, now: Instant) -> Duration {
        self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// The longest silence that ended by itself, as far as it is remembered.
    fn remembered(&self, now: Instant) -> Duration {
        let (longest, noted_at) = self.seen;
        let halvings = now.saturating_duration_since(noted_at).div_duration_f64(SEEN_HALVES);
        longest.mul_f64(0.5_f64.powf(halvings))
    }

    /// The silence after which the zone is taken over.
    fn limit(&self, now: Instant) -> Duration {
        let earned = self.silence.max(self.remembered(now) * 2);
        // Who has just taken the zone over needs time to publish.
        let patient = earned * (1 << self.vain.min(8));
        patient.min(Duration::from_millis(SILENCE_MS_MAX.into()).max(self.silence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENCE_MS: u32 = 600;

    /// A zone of a silent owner, with input that it owes.
    const OWED: OwnerSighting = OwnerSighting {
        owner_epoch: 3,
        position: (70, 10),
        decoded: 12,
        read_to: 100,
        is_eligible: true,
        is_crowd: false,
    };

    /// Looks at the zone every 10 ms, and answers probes after this time: when it is taken over.
    fn taken_at(
        silence: &mut Silence,
        sighting: impl Fn(u64) -> OwnerSighting,
        rank: u32,
        probe_ms: u64,
        start: Instant,
    ) -> Option<u64> {
        let mut answer_at = None;
        for ms in (0..20_000).step_by(10) {
            let now = start + Duration::from_millis(ms);
            if answer_at.is_some_and(|at| at <= ms) {
                answer_at = None;
                silence.probed(Some(99), now);
            }
            match silence.look(&sighting(ms), rank, now) {
                SilenceStep::Wait => {}
                SilenceStep::Probe => answer_at = Some(ms + probe_ms),
                SilenceStep::TakeOver(_) => return Some(ms),
            }
        }
        None
    }

    #[test]
    fn a_silent_owner_is_replaced_and_copies_wait_for_those_before_them() {
        let start = Instant::now();
        for rank in 0..2 {
            let mut silence = Silence::new(SILENCE_MS, start);
            let at = taken_at(&mut silence, |_| OWED, rank, 20, start);
            assert_eq!(at, Some(u64::from(SILENCE_MS) + RANK_MS * u64::from(rank)));
        }
    }

    #[test]
    fn a_copy_that_has_read_to_the_end_of_a_quiet_output_only_probes_its_owner() {
        let at = |end| {
            let start = Instant::now() + Duration::from_secs(2);
            let mut silence = Silence::new(SILENCE_MS, start);
            silence.take_quiet(Some((end, start - Duration::from_millis(700))));
            taken_at(&mut silence, |_| OWED, 0, 20, start)
        };
        assert_eq!(at(OWED.read_to), Some(20));
        assert_eq!([-1, 1].map(|by| at(OWED.read_to + by)), [Some(600); 2], "it has gone on");
    }

    #[test]
    fn who_owes_nothing_or_is_slow_is_not_silent() {
        let start = Instant::now();
        let idle = |_| OwnerSighting { decoded: 10, ..OWED };
        assert_eq!(taken_at(&mut Silence::new(SILENCE_MS, start), idle, 0, 20, start), None);
        let slow = |ms: u64| {
            let steps = ms / 500;
            OwnerSighting { position: (70 + steps, 10 + steps as i64), decoded: 1_000, ..OWED }
        };
        assert_eq!(taken_at(&mut Silence::new(SILENCE_MS, start), slow, 0, 20, start), None);
    }

    #[test]
    fn a_probe_that_comes_late_or_never_shows_that_the_log_is_away() {
        let start = Instant::now();
        let late = taken_at(&mut Silence::new(SILENCE_MS, start), |_| OWED, 0, 700, start);
        assert_eq!(late, None);
        let unread = |_| OwnerSighting { read_to: 99, ..OWED };
        assert_eq!(taken_at(&mut Silence::new(SILENCE_MS, start), unread, 0, 20, start), None);
        let cold = |_| OwnerSighting { is_eligible: false, ..OWED };
        assert_eq!(taken_at(&mut Silence::new(SILENCE_MS, start), cold, 0, 20, start), None);
    }

    #[test]
    fn a_silence_that_ended_by_itself_makes_patient_for_a_while() {
        let start = Instant::now();
        let mut silence = Silence::new(SILENCE_MS, start);
        let after = |ms: u64| start + Duration::from_millis(ms);
        assert_eq!(silence.look(&OWED, 0, start), SilenceStep::Wait);
        let moved = OwnerSighting { position: (71, 11), ..OWED };
        assert_eq!(silence.look(&moved, 0, after(550)), SilenceStep::Wait);
        let at = taken_at(&mut silence, |_| moved, 0, 20, after(550));
        assert!(at.is_some_and(|at| (1_090..=1_100).contains(&at)), "{at:?}");
        silence.begin_again();
        let at = taken_at(&mut silence, |_| moved, 0, 20, after(3_600_000));
        assert_eq!(at, Some(SILENCE_MS.into()));
    }

    #[test]
    fn takeovers_in_vain_make_patient_until_the_zone_goes_on() {
        let start = Instant::now();
        let mut silence = Silence::new(SILENCE_MS, start);
        let mut waits = Vec::new();
        for owner_epoch in 3..8 {
            let fenced = |_| OwnerSighting { owner_epoch, ..OWED };
            waits.push(taken_at(&mut silence, fenced, 0, 20, start).expect("it is silent"));
        }
        assert_eq!(waits, [600, 1_200, 2_400, 4_800, 9_600]);
        let goes_on = |_| OwnerSighting { owner_epoch: 8, position: (71, 11), ..OWED };
        let at = taken_at(&mut silence, goes_on, 0, 20, start);
        assert_eq!(at, Some(SILENCE_MS.into()));
    }

    #[test]
    fn if_the_zones_of_several_owners_fall_silent_a_copy_waits_longer() {
        let start = Instant::now();
        let crowd = |_| OwnerSighting { is_crowd: true, ..OWED };
        let at = taken_at(&mut Silence::new(SILENCE_MS, start), crowd, 0, 20, start);
        assert_eq!(at, Some(3 * u64::from(SILENCE_MS)));
    }

    #[test]
    fn after_a_standstill_of_this_host_the_clocks_begin_again() {
        let start = Instant::now();
        let mut silence = Silence::new(SILENCE_MS, start);
        silence.look(&OWED, 0, start);
        let later = start + Duration::from_secs(5);
        silence.begin_again();
        assert_eq!(silence.look(&OWED, 0, later), SilenceStep::Wait);
        assert!(!silence.is_suspicious(later));
    }
}
