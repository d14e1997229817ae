//! What the control thread logs. Lines that may repeat are throttled, each kind by itself.

use super::advertised::AdvertisedFault;
use super::control_error::ControlError;
use crate::fetch::dialling::Endpoint;
use crate::kafka::error_code::ErrorCode;
use crate::ownership::PANICS_MAX;
use crate::ownership::acquired::Acquired;
use crate::ownership::action::{CopyNews, Note, Opening, TakeoverCause, Waiting};
use crate::ownership::event::{Claim, InputTrouble, NoOps, TroubleSource};
use crate::ownership::instance_id::IdLoss;
use crate::service::restoring::Restoring;
use crate::snapshot::replicas::ReplicaError;
use crate::telemetry::metrics::{Counter, Metrics};
use crate::telemetry::progress::{Progress, SHARDS_MAX};
use crate::telemetry::repeated::Repeated;
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

/// Time between two lines about how far restoring is.
const RESTORING_EVERY: Duration = Duration::from_secs(1);

/// Kinds of lines of which it is known when the last one was written. Beyond that, those that would
/// be written at once are forgotten: brokers may come under new numbers for ever. Without such,
/// other kinds have to wait.
const KINDS_MAX: usize = 4 * SHARDS_MAX;

/// What was reported so far, as far as it matters for what comes next.
pub(super) struct Journal {
    repeated: BTreeMap<LineKind, Repeated>,
    restoring_at: Instant,
    /// Records received when the last line about restoring was due.
    records: u64,
}

/// What a throttled line is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LineKind {
    /// The brokers, before any has answered.
    Brokers,
    /// The fetch path.
    Fetch(TroubleSource),
    /// A broker's error in answer to a Fetch of a partition.
    FetchRefused(i32, ErrorCode),
    /// A partition whose leader names a follower.
    FollowerNamed(i32),
    /// What one connection claims of a partition, and another one is asked about.
    Doubted(i32, Claim),
    /// A partition that goes on behind missing records.
    RecordsGone(i32),
    /// Events that changed nothing.
    NoOps,
    /// What shards wait for.
    Waiting(Waiting),
    /// A shard that cannot be started.
    Starting(i32),
    /// A zone that another version plays.
    Awaited(i32),
    /// States of other hosts, which are looked for.
    States(i32),
}

/// The counter of a decision.
pub(super) fn counter(note: &Note) -> Option<Counter> {
    let Note::Copy { news, .. } = note else { return None };
    match news {
        CopyNews::TakesOver(TakeoverCause::Silence(_)) => Some(Counter::TakeoversBySilence),
        CopyNews::TakesOver(TakeoverCause::Resignation) => Some(Counter::TakeoversAtResignation),
        CopyNews::Probes => Some(Counter::Probes),
        CopyNews::Diverged(_) => Some(Counter::CopiesDiverged),
        CopyNews::Begins { .. } | CopyNews::Ends(_) => None,
    }
}

/// Says what would end the start, if other connections say it too.
pub(super) fn start_doubted(error: &ControlError) {
    tracing::warn!("{error}: the brokers are asked again before that counts");
}

/// Says of a broker that it cannot be used where it says that it listens, and may come back.
pub(super) fn cannot_use_broker(fault: &AdvertisedFault) {
    tracing::warn!("{fault}");
}

/// Says which skips that the operator asked for are of no partition.
pub(super) fn partitions_known(partitions: i32, asked: &[(i32, i64)]) {
    for (partition, offset) in asked.iter().filter(|(partition, _)| *partition >= partitions) {
        tracing::warn!(partition, offset, "--skip does nothing: the input has no such partition");
    }
}

/// Names records that the operator wants to have passed over and that are not passed over.
pub(super) fn passed_over(opening: &Opening, asked: &[(i32, i64)]) {
    let Acquired { partition, mark, skips, .. } = &opening.acquired;
    let is_open = |(of, offset): &&(i32, i64)| of == partition && !skips.contains(offset);
    for (_, offset) in asked.iter().filter(is_open) {
        let reason = match *offset < mark.next_offset {
            true => {
                "updates that were made with the record are published; if its dead letter is \
                     refused, the shard goes on without it"
            }
            false => "the record is not there yet",
        };
        tracing::warn!(partition, offset, "--skip does nothing: {reason}");
    }
}

/// Says why we join again: the cause may be this process itself.
/// An engine begins on the hot thread, beside this owner epoch.
fn begins(opening: &Opening, owner_epoch: u64, words: &str) {
    let acquired = &opening.acquired;
    tracing::info!(
        partition = acquired.partition,
        owner_epoch,
        published = acquired.mark.next_update,
        start_offset = acquired.start.next_offset,
        start_update = acquired.start.next_update,
        from_snapshot = acquired.candidate.is_some(),
        ruleset = opening.ruleset,
        "{words}"
    );
}

fn rejoining(instance_id: &str, loss: &IdLoss) {
    match loss {
        IdLoss::StoodStill(pause) => tracing::warn!(
            "joining again: this process stood still for {} s, so the group has given up its \
             membership of the instance id `{instance_id}`",
            pause.as_secs()
        ),
        IdLoss::GroupAway => tracing::warn!(
            "joining again: the group was away or had given this member up, and has not kept the \
             instance id `{instance_id}` for it"
        ),
        IdLoss::Unexplained => tracing::warn!(
            "joining again: the group has another member of the instance id `{instance_id}`; if \
             that is another process, give each its own kafka.group_instance_id"
        ),
    }
}

impl Journal {
    pub(super) fn new() -> Journal {
        Journal { repeated: BTreeMap::new(), restoring_at: Instant::now(), records: 0 }
    }

    /// Nothing works before the brokers answer.
    pub(super) fn waits_for_brokers(&mut self, error: &ControlError) {
        self.warn(LineKind::Brokers, &format!("waiting for the brokers: {error}"));
    }

    /// No broker has answered for a while, and the try goes on.
    pub(super) fn waits_for_answer(&mut self, what: &str, waited_s: u64, bootstrap: &[Endpoint]) {
        let brokers: Vec<String> = bootstrap.iter().map(Endpoint::to_string).collect();
        let sentence = format!(
            "waiting for the brokers: for {waited_s} s they have owed {what}; see whether they \
             hang, and what is between them and this host (asked first: {})",
            brokers.join(", ")
        );
        self.warn(LineKind::Brokers, &sentence);
    }

    /// The fetch path has trouble, and goes on trying.
    pub(super) fn trouble(&mut self, source: TroubleSource, sentence: &str) {
        self.warn(LineKind::Fetch(source), sentence);
    }

    /// An input partition has trouble, and goes on. Each has lines of its own for each
    /// error of a broker.
    pub(super) fn input_trouble(&mut self, partition: i32, trouble: &InputTrouble) {
        match trouble {
            InputTrouble::FetchRefused(error) => {
                let sentence =
                    format!("input partition {partition} cannot be fetched now: {error}");
                self.warn(LineKind::FetchRefused(partition, *error), &sentence);
            }
            InputTrouble::FollowerNamed => {
                let sentence = format!(
                    "input partition {partition} cannot be fetched now: its leader wants it to be \
                     fetched from a follower replica, and huntd fetches from leaders only: look at \
                     the brokers' replica.selector.class"
                );
                self.warn(LineKind::FollowerNamed(partition), &sentence);
            }
            InputTrouble::Doubted(claim, sentence) => {
                self.warn(LineKind::Doubted(partition, *claim), sentence);
            }
            InputTrouble::RecordsGone(sentence) => {
                let sentence = format!("{sentence}: Kafka has deleted the records between");
                self.warn(LineKind::RecordsGone(partition), &sentence);
            }
            InputTrouble::BatchPassedOver(sentence) => tracing::error!(partition, "{sentence}"),
        }
    }

    /// It is not known whether another host has a state of a shard.
    pub(super) fn no_replica(&mut self, partition: i32, error: &ReplicaError) {
        let sentence = format!("partition {partition}: {error}");
        self.warn(LineKind::States(partition), &sentence);
    }

    /// Events of players changed nothing. A producer may have sent a few of them twice.
    pub(super) fn no_ops(&mut self, no_ops: &NoOps) {
        let NoOps { partition, count, player_id, seq, last_seq } = no_ops;
        let sentence = format!(
            "partition {partition}: {count} events changed nothing, the last of player {player_id} \
             with seq {seq}, of which {last_seq} has counted before: a player's seq has to grow \
             for ever, also when its producer starts again"
        );
        self.warn(LineKind::NoOps, &sentence);
    }

    /// Another version plays a zone: that is as it should be.
    fn awaits(&mut self, partition: i32, sentence: &str) {
        if let Some(withheld) = self.notice(LineKind::Awaited(partition), Instant::now()) {
            tracing::info!(partition, withheld, "{sentence}");
        }
    }

    fn warn(&mut self, kind: LineKind, sentence: &str) {
        if let Some(withheld) = self.notice(kind, Instant::now()) {
            tracing::warn!(withheld, "{sentence}");
        }
    }

    /// Whether a line of this kind is due: how many were withheld since the last one, if any were.
    fn notice(&mut self, kind: LineKind, now: Instant) -> Option<Option<NonZeroU64>> {
        if self.repeated.len() >= KINDS_MAX && !self.repeated.contains_key(&kind) {
            self.repeated.retain(|_, repeated| repeated.withholds(now));
            if self.repeated.len() >= KINDS_MAX {
                return None;
            }
        }
        self.repeated.entry(kind).or_default().notice(now)
    }

    /// A shard goes to the hot thread.
    pub(super) fn acquired(&self, opening: &Opening) {
        begins(opening, opening.acquired.owner_epoch, "acquired");
    }

    /// An engine begins to follow another owner.
    pub(super) fn follows(&self, opening: &Opening) {
        let words = "following its output until this instance can take it over";
        begins(opening, opening.acquired.mark.owner_epoch, words);
    }

    /// How far the shards are that have to catch up: a line a second, while there are any.
    pub(super) fn restoring(&mut self, metrics: &Metrics, progress: &Progress) {
        let elapsed = self.restoring_at.elapsed();
        if elapsed < RESTORING_EVERY {
            return;
        }
        self.restoring_at = Instant::now();
        let records = metrics.get(Counter::RecordsReceived);
        let received = records - std::mem::replace(&mut self.records, records);
        let restoring = Restoring::of(progress);
        if restoring.shards > 0 {
            tracing::info!("{}", restoring.at_rate(received, elapsed));
        }
    }

    /// What happens to the copy of a zone.
    fn write_of_copy(&mut self, partition: i32, news: &CopyNews) {
        match news {
            CopyNews::Begins { rank } => {
                tracing::info!(partition, rank, "keeping a copy of the zone");
            }
            CopyNews::Ends(why) => {
                let sentence = format!("the copy of zone {partition} begins again later: {why}");
                self.warn(LineKind::Starting(partition), &sentence);
            }
            CopyNews::Diverged(error) => tracing::error!(
                partition,
                "the copy of the zone has made other updates than its owner: one of the two \
                 engines computes wrong; the zone goes on, and the copy begins again \
                 (docs/RUNBOOKS.md#copy-diverged): {}",
                error.cause()
            ),
            CopyNews::Probes => tracing::debug!(partition, "its owner is silent: probed"),
            CopyNews::TakesOver(TakeoverCause::Silence(silence)) => {
                let silent_ms = silence.as_millis() as u64;
                tracing::warn!(partition, silent_ms, "its owner is silent: taking the zone over");
            }
            CopyNews::TakesOver(TakeoverCause::Resignation) => {
                tracing::info!(partition, "its owner has resigned: taking the zone over");
            }
        }
    }

    /// A decision of ownership.
    pub(super) fn write(&mut self, note: &Note, progress: &Progress) {
        match note {
            Note::Assigned(partitions) => tracing::info!(?partitions, "assigned"),
            Note::GivenUp(partitions) => tracing::info!(
                ?partitions,
                "these zones go to other instances; this one plays them until then"
            ),
            Note::Releasing(partitions) if partitions.is_empty() => {}
            Note::Releasing(partitions) => tracing::info!(?partitions, "releasing"),
            Note::Lost(partitions) => {
                tracing::warn!(?partitions, "lost: the group has taken them away");
            }
            Note::StoodStill(pause) => tracing::warn!(
                "this process stood still for {} s: it was stopped, or had no core; the group may \
                 have given its partitions away meanwhile",
                pause.as_secs()
            ),
            Note::Rejoining { instance_id, loss } => rejoining(instance_id, loss),
            Note::Waiting { kind, sentence } => self.warn(LineKind::Waiting(*kind), sentence),
            Note::AwaitsVersion { partition, sentence } => self.awaits(*partition, sentence),
            Note::StartsOver { partition, why } => {
                tracing::warn!(partition, "starting over: {why}");
            }
            Note::AcquiresAgain { partition, wait, why } => {
                let wait_ms = wait.as_millis() as u64;
                tracing::warn!(partition, wait_ms, "acquiring the shard again: {why}");
            }
            Note::EngineFailed { partition, offset, times } if *times < PANICS_MAX => {
                let sentence = "the engine failed: acquiring again (docs/RUNBOOKS.md#engine-fails)";
                tracing::error!(partition, offset, times, "{sentence}");
            }
            Note::EngineFailed { partition, offset, times } => tracing::error!(
                partition,
                offset,
                times,
                "the engine failed once more: the record is passed over and becomes a dead letter; \
                 keep it and report it (docs/RUNBOOKS.md#engine-fails)"
            ),
            Note::Fenced { partition, owner_epoch } => tracing::warn!(
                partition,
                owner_epoch,
                "another instance has fenced the shard: it is no longer ours"
            ),
            Note::Released { partition } => {
                let progress = progress.shard(*partition);
                tracing::info!(
                    partition,
                    offset = progress.published.get(),
                    updates = progress.next_update.get(),
                    digest = format_args!("{:016x}", progress.digest.get()),
                    "released"
                );
            }
            Note::Live { partition, offset } => tracing::info!(partition, offset, "live"),
            Note::Rival { partition } => tracing::warn!(
                partition,
                "the output has an owner that our group knows nothing of: another deployment, with \
                 another kafka.group, seems to publish to it \
                 (docs/RUNBOOKS.md#another-deployment)"
            ),
            Note::Copy { partition, news } => self.write_of_copy(*partition, news),
            Note::CannotStart { partition, error } => {
                let cause = error.cause();
                let sentence = format!("partition {partition} cannot be started now: {cause}");
                self.warn(LineKind::Starting(*partition), &sentence);
            }
            Note::Halted { partition, sentence, .. } => {
                tracing::error!(partition, "the shard has halted: {sentence}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_withheld_hides_none_of_another_kind() {
        let (mut journal, now) = (Journal::new(), Instant::now());
        let kinds = [
            LineKind::Brokers,
            LineKind::Fetch(TroubleSource::Leaders),
            LineKind::Fetch(TroubleSource::Broker(1)),
            LineKind::Fetch(TroubleSource::Broker(2)),
            LineKind::Fetch(TroubleSource::Throttle(1)),
            LineKind::FetchRefused(0, ErrorCode(3)),
            LineKind::FetchRefused(0, ErrorCode(6)),
            LineKind::FetchRefused(1, ErrorCode(6)),
            LineKind::FollowerNamed(0),
            LineKind::FollowerNamed(1),
            LineKind::Doubted(0, Claim::Truncated),
            LineKind::Doubted(1, Claim::Truncated),
            LineKind::Doubted(0, Claim::Refused(ErrorCode(2))),
            LineKind::Doubted(0, Claim::Refused(ErrorCode(42))),
            LineKind::RecordsGone(0),
            LineKind::RecordsGone(1),
            LineKind::NoOps,
            LineKind::Waiting(Waiting::Group),
            LineKind::Waiting(Waiting::Restart),
            LineKind::Waiting(Waiting::Acquiring(0)),
            LineKind::Starting(0),
            LineKind::Starting(1),
            LineKind::Awaited(0),
            LineKind::Awaited(1),
            LineKind::States(0),
            LineKind::States(1),
        ];
        for kind in kinds {
            assert_eq!(journal.notice(kind, now), Some(None));
            assert_eq!(journal.notice(kind, now), None, "the same again is withheld");
        }
        let later = now + Duration::from_secs(60);
        assert_eq!(journal.notice(LineKind::NoOps, later), Some(NonZeroU64::new(1)));
    }

    #[test]
    fn a_trouble_of_one_partition_hides_none_of_another_one() {
        for trouble in [
            InputTrouble::FetchRefused(ErrorCode(6)),
            InputTrouble::FollowerNamed,
            InputTrouble::Doubted(Claim::OutOfRange, "a claim".to_owned()),
            InputTrouble::RecordsGone("a gap".to_owned()),
        ] {
            let mut journal = Journal::new();
            for partition in [0, 1, 1] {
                journal.input_trouble(partition, &trouble);
            }
            assert_eq!(journal.repeated.len(), 2, "{trouble:?}");
        }
    }

    #[test]
    fn kinds_without_an_end_do_not_stay() {
        let (mut journal, start) = (Journal::new(), Instant::now());
        for (second, number) in (0..).zip(0..2 * KINDS_MAX as i32) {
            let kind = LineKind::Fetch(TroubleSource::Broker(number));
            let now = start + Duration::from_secs(second);
            assert_eq!(journal.notice(kind, now), Some(None));
            assert!(journal.repeated.len() <= KINDS_MAX);
        }
    }

    #[test]
    fn kinds_that_come_all_at_once_have_a_bound() {
        let (mut journal, now) = (Journal::new(), Instant::now());
        let refused = |partition| LineKind::FetchRefused(partition, ErrorCode(6));
        let told = (0..2 * KINDS_MAX as i32).filter(|n| journal.notice(refused(*n), now).is_some());
        assert_eq!(told.count(), KINDS_MAX);
        assert_eq!(journal.repeated.len(), KINDS_MAX);
        let later = now + Duration::from_secs(60);
        assert_eq!(journal.notice(refused(-1), later), Some(None));
    }
}
