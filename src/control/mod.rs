//! The control thread: which shards are ours, from when, and until when.
//!
//! It is a member of the consumer group, acquires and releases shards, commits offsets for lag
//! tools, and puts into words what the hot thread reports. Everything here may block; nothing here
//! is on the path of an event.

mod acquiring;
mod fences;
pub mod control_error;
pub mod output_log;
pub mod poison;
mod owning;
mod resolving;
mod restoring;
mod states;

use crate::control::output_log::OutputLog;
use crate::control::poison::Poison;
use crate::engine::rules::rulebook::Rulebook;
use crate::fetch::{Report, Resolved};
use crate::kafka::group::{GroupOptions, Membership, MembershipEvent};
use crate::kafka::membership_error::MembershipError;
use crate::kafka::metadata::MetadataError;
use crate::kafka::{RECONNECT_MS_MAX, RECONNECT_MS_MIN};
use crate::ownership::acquisition::Remedy;
use crate::ownership::gap_check::Gap;
use crate::ownership::shard_state::{ShardState, ShardStates};
use crate::publisher::{DeliveryFailure, ToPublisher};
use crate::queue::{Receiver, Sender};
use crate::service::status::{Phase, Status};
use crate::shards::{Command, Notice};
use crate::snapshot::disk::Files;
use crate::snapshot::format::Origin;
use crate::snapshot::replicas;
use crate::snapshot::slots::Store;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::progress::{Progress, SHARDS_MAX};
use crate::telemetry::repeated::Repeated;
use acquiring::Acquiring;
use control_error::ControlError;
use fences::Fences;
use resolving::Resolving;
use states::States;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Milliseconds that the last commit of a shard may take before the shard is let go without it.
pub const COMMIT_MS_MAX: u64 = 500;

/// Milliseconds between two looks of the control thread at what the others report.
pub const CONTROL_POLL_MS: u64 = 10;

/// Milliseconds between two commits of input offsets: lag tools look every few seconds.
pub const COMMIT_EVERY_MS: u64 = 1_000;

/// Milliseconds that shards may take to end in order, when they are revoked or the daemon stops.
pub const RELEASE_MS_MAX: u64 = 2_500;

/// Milliseconds that leaving the group may take.
pub const LEAVE_MS_MAX: u64 = 300;

/// Milliseconds over which a topic has to be missing before it counts as missing: a broker that has
/// just started does not know its topics.
pub const TOPIC_MISSING_MS_MAX: u64 = 5_000;

/// Milliseconds between two looks at how many partitions the input has.
pub const COUNT_EVERY_MS: u64 = 30_000;

/// Commands, notices, failures that may wait for their thread: several for every shard.
pub const MESSAGES_MAX: usize = 4 * SHARDS_MAX;

/// The control thread's ends of all that it shares with other threads.
pub struct ControlEnds {
    /// To the world.
    pub commands: Sender<Command>,
    /// From the world.
    pub notices: Receiver<Notice>,
    /// From the fetch path.
    pub reports: Receiver<Report>,
    /// To the fetch path.
    pub resolved: Sender<Resolved>,
    /// To the publisher.
    pub orders: Sender<ToPublisher>,
    /// From the publisher.
    pub failures: Receiver<DeliveryFailure>,
    /// From the publisher.
    pub jumps: Receiver<Gap>,
    /// The snapshots of this host; `None`: there are none.
    pub snapshots: Option<Store<Files>>,
    /// The rules of the game.
    pub rulebook: Rulebook,
    /// Raised when the daemon has to end.
    pub stop: Arc<AtomicBool>,
    /// How far each shard is.
    pub progress: Arc<Progress>,
    /// The counters.
    pub metrics: Arc<Metrics>,
    /// What the daemon is doing.
    pub status: Arc<Status>,
}

/// What the control thread is told at start-up.
#[derive(Clone, Debug)]
pub struct ControlOptions {
    /// For the group.
    pub group: GroupOptions,
    /// For the outputs.
    pub tail: output_log::OutputLogOptions,
    /// Where counts are kept that have to survive a restart; `None`: nowhere.
    pub state_directory: Option<std::path::PathBuf>,
    /// The topics that snapshots are about.
    pub origin: Origin,
    /// For copies of other hosts' snapshots; `None`: there are none.
    pub copies: Option<replicas::ReplicaOptions>,
    /// What to do with a shard whose state cannot be had.
    pub remedy: Remedy,
    /// Records to be passed over for good, by partition and offset.
    pub skips: Vec<(i32, i64)>,
}

/// The control thread's state.
pub struct Control {
    ends: ControlEnds,
    options: ControlOptions,
    membership: Membership,
    acquiring: Acquiring,
    resolving: Resolving,
    /// What the group said while something else was being done.
    events: VecDeque<MembershipEvent>,
    shards: ShardStates,
    /// The question that the group has to answer before fences are written, and for which shards.
    question: Option<(u64, Vec<i32>, Instant)>,
    /// How often records took the engine down: loaded when it is known which input they are in.
    poison: Option<Poison>,
    states: States,
    /// Shards whose replay was not what is published, and which begin anew if that is the remedy.
    diverged: BTreeSet<i32>,
    /// Shards that begin anew with their next acquisition, because it was asked for.
    anew: BTreeSet<i32>,
    /// Since when shards are refused.
    refused: BTreeMap<i32, Instant>,
    joined: bool,
    /// Since when the input topic is said to be missing.
    missing_since: Option<Instant>,
    fences: Fences,
    committed_at: Instant,
    /// When it was last told how far restoring is, and how many records had come by then.
    restoring_told_at: Instant,
    /// When the input's partitions were last asked for.
    counted_at: Option<Instant>,
    records_told: u64,
    trouble: Repeated,
}

/// Runs the control thread to its end. Brokers that do not answer yet are waited for.
pub fn run(options: ControlOptions, ends: ControlEnds) -> Result<(), ControlError> {
    ends.status.enter(Phase::Reaching);
    let mut trouble = Repeated::new();
    let mut wait_ms = RECONNECT_MS_MIN;
    let mut missing_since = None;
    loop {
        let error = match Control::connect(&options) {
            Ok((tail, membership)) => {
                return Control::new(options, ends, tail, membership).run();
            }
            Err(error) => error,
        };
        if ends.stop.load(Ordering::Acquire) {
            return if error.may_pass() { Ok(()) } else { Err(error) };
        }
        let missing_max = Duration::from_millis(TOPIC_MISSING_MS_MAX);
        missing_since =
            error.is_topic_missing().then(|| missing_since.unwrap_or_else(Instant::now));
        let is_missing_for_good =
            missing_since.is_some_and(|since: Instant| since.elapsed() >= missing_max);
        if !error.may_pass() && (missing_since.is_none() || is_missing_for_good) {
            return Err(error);
        }
        if let Some(withheld) = trouble.notice(Instant::now()) {
            tracing::warn!(withheld, "waiting for the brokers: {error}");
        }
        thread::sleep(Duration::from_millis(wait_ms));
        wait_ms = (wait_ms * 2).min(RECONNECT_MS_MAX);
    }
}

impl Control {
    /// Looks at the topics and begins to join the group.
    fn connect(options: &ControlOptions) -> Result<(OutputLog, Membership), ControlError> {
        let tail = OutputLog::connect(options.tail.clone())?;
        let membership = Membership::join(&options.group)?;
        if membership.partitions() as usize > SHARDS_MAX {
            return Err(ControlError::TooManyPartitions(membership.partitions()));
        }
        Ok((tail, membership))
    }

    fn new(
        options: ControlOptions,
        mut ends: ControlEnds,
        tail: OutputLog,
        membership: Membership,
    ) -> Control {
        ends.status.enter(Phase::Joining);
        let (origin, copies) = (options.origin.clone(), options.copies.clone());
        let states = States::new(ends.snapshots.take(), origin, copies);
        Control {
            ends,
            options,
            membership,
            acquiring: Acquiring::new(tail),
            resolving: Resolving::new(),
            events: VecDeque::new(),
            shards: ShardStates::new(),
            question: None,
            poison: None,
            states,
            diverged: BTreeSet::new(),
            anew: BTreeSet::new(),
            refused: BTreeMap::new(),
            joined: false,
            missing_since: None,
            fences: Fences::default(),
            committed_at: Instant::now(),
            restoring_told_at: Instant::now(),
            counted_at: Some(Instant::now()),
            records_told: 0,
            trouble: Repeated::new(),
        }
    }

    /// Runs until the daemon has to end, then releases every shard.
    fn run(mut self) -> Result<(), ControlError> {
        while !self.ends.stop.load(Ordering::Acquire) {
            match self.next_event() {
                Some(MembershipEvent::Assigned(partitions)) => self.assign(&partitions),
                Some(MembershipEvent::Revoked(partitions)) => self.revoke(&partitions),
                Some(MembershipEvent::Lost(partitions)) => self.lose(&partitions),
                Some(MembershipEvent::Answered { question, is_member }) => {
                    self.answered(question, is_member);
                }
                Some(MembershipEvent::Counted(partitions)) => self.counted(partitions),
                Some(MembershipEvent::Error(error @ MembershipError::InstanceTaken(_)))
                    if self.fences.is_bearable(Instant::now()) =>
                {
                    self.join_again(&error)?;
                }
                Some(MembershipEvent::Error(error @ MembershipError::TopicMissing(_))) => {
                    self.missing_since.get_or_insert_with(Instant::now);
                    self.warn(&error.to_string());
                }
                Some(MembershipEvent::Error(error)) if error.is_final() => return Err(error.into()),
                Some(MembershipEvent::Error(error)) => self.bear(&error),
                None => {}
            }
            self.look_for_the_topic()?;
            self.count_partitions();
            self.take_notices();
            self.acquire();
            self.show_phase();
            if self.committed_at.elapsed() >= Duration::from_millis(COMMIT_EVERY_MS) {
                self.committed_at = Instant::now();
                let offsets = self.acked_offsets(&self.shards.partitions());
                self.membership.commit(&offsets);
            }
        }
        self.ends.status.enter(Phase::Draining);
        let owned = self.shards.partitions();
        self.end_shards(&owned);
        let halted = self.shards.halted();
        self.forget(&owned);
        leave((self.membership, self.acquiring));
        if halted == 0 { Ok(()) } else { Err(ControlError::ShardsHalted(halted)) }
    }

    /// A broker that has just started may not know its topics yet, so it is asked again.
    fn look_for_the_topic(&mut self) -> Result<(), ControlError> {
        let missing_max = Duration::from_millis(TOPIC_MISSING_MS_MAX);
        if self.missing_since.take_if(|since| since.elapsed() >= missing_max).is_some()
            && let Err(error @ MembershipError::TopicMissing(_)) = self.membership.check_topic()
        {
            return Err(error.into());
        }
        Ok(())
    }

    /// Lets everything go, and joins as a new member of the same instance id.
    fn join_again(&mut self, error: &MembershipError) -> Result<(), ControlError> {
        tracing::warn!("joining again, for the group has another member of our name: {error}");
        let owned = self.shards.partitions();
        self.lose(&owned);
        self.events.clear();
        self.question = None;
        self.joined = false;
        let (began, missing_max) = (Instant::now(), Duration::from_millis(TOPIC_MISSING_MS_MAX));
        while !self.ends.stop.load(Ordering::Acquire) {
            match Membership::join(&self.options.group) {
                Ok(membership) => {
                    leave(std::mem::replace(&mut self.membership, membership));
                    break;
                }
                Err(error) => {
                    let is_missing = matches!(error, MembershipError::TopicMissing(_));
                    if error.is_final() && !(is_missing && began.elapsed() < missing_max) {
                        return Err(error.into());
                    }
                    self.bear(&error);
                }
            }
            thread::sleep(Duration::from_millis(RECONNECT_MS_MAX));
        }
        Ok(())
    }

    /// What the group says, in its order; waits a little for it, unless there is something else to
    /// wait for.
    fn next_event(&mut self) -> Option<MembershipEvent> {
        let wait = match self.acquiring.is_idle() {
            true => Duration::from_millis(CONTROL_POLL_MS),
            false => Duration::ZERO,
        };
        self.events.pop_front().or_else(|| self.membership.poll(wait))
    }

    fn assign(&mut self, partitions: &[i32]) {
        self.joined = true;
        if !partitions.is_empty() {
            tracing::info!(?partitions, "assigned");
        }
        for partition in partitions {
            self.shards.make_due(*partition, Instant::now());
        }
        if partitions.iter().any(|partition| *partition >= self.acquiring.partitions()) {
            self.counted_at = None;
        }
    }

    /// Asks now and then whether partitions were added: the group may give the new ones to others.
    fn count_partitions(&mut self) {
        let pause = Duration::from_millis(COUNT_EVERY_MS);
        if self.counted_at.is_none_or(|at| at.elapsed() >= pause) && self.membership.count() {
            self.counted_at = Some(Instant::now());
        }
    }

    /// Players change zones with the number of partitions, so no shard can go on.
    fn counted(&mut self, partitions: i32) {
        let (before, now) = (self.acquiring.partitions() as usize, partitions as usize);
        if now > before {
            let sentence = MetadataError::PartitionCount { before, now }.to_string();
            // A shard that was added is none of ours to begin.
            let (ours, added): (Vec<i32>, Vec<i32>) =
                self.shards.partitions().into_iter().partition(|place| (*place as usize) < before);
            added.into_iter().for_each(|partition| self.shards.halt(partition));
            for partition in ours {
                if self.shards.get(partition) != Some(ShardState::Halted) {
                    self.drop_shard(partition);
                    self.halt(partition, &sentence);
                }
            }
        }
    }

    fn poison(&mut self) -> &mut Poison {
        let Control { poison, options, .. } = self;
        let directory = options.state_directory.as_deref();
        poison.get_or_insert_with(|| Poison::load(directory, &options.origin))
    }

    /// Ends shards in order: what was decoded is applied, published and acknowledged, or the time
    /// for that is over; then the next owner may begin.
    fn revoke(&mut self, partitions: &[i32]) {
        self.end_shards(partitions);
        self.forget(partitions);
        self.membership.release();
    }

    fn end_shards(&mut self, partitions: &[i32]) {
        tracing::info!(?partitions, "releasing");
        for partition in partitions {
            match self.shards.close(*partition) {
                // What is being looked up for it is needed to know what was acknowledged.
                true => self.command(Command::Close { partition: *partition }),
                false => self.acquiring.give_up(*partition),
            }
        }
        let end = Instant::now() + Duration::from_millis(RELEASE_MS_MAX);
        while Instant::now() < end && partitions.iter().any(|partition| self.is_busy(*partition)) {
            self.take_notices();
            self.go_on_acquiring(Duration::ZERO);
            // The group keeps us while a revocation is not answered only if it is polled.
            match self.membership.poll(RELEASE_LOOK) {
                Some(MembershipEvent::Lost(lost)) => self.lose(&lost),
                other => self.events.extend(other),
            }
        }
        let offsets = self.acked_offsets(partitions);
        self.membership.commit_and_wait(&offsets, Duration::from_millis(COMMIT_MS_MAX));
    }

    /// Whether a shard has something on the hot thread, or on its way to the broker or the disk.
    fn is_busy(&self, partition: i32) -> bool {
        let progress = self.ends.progress.shard(partition);
        let in_flight = progress.sent.get() != progress.settled.get();
        let in_capture = progress.checkpoints.get() != progress.checkpoints_settled.get();
        self.shards.is_closing(partition) || in_flight || in_capture
    }

    /// Ends shards at once: they are somebody else's already.
    fn lose(&mut self, partitions: &[i32]) {
        tracing::warn!(?partitions, "lost: the group has taken them away");
        self.forget(partitions);
    }

    fn forget(&mut self, partitions: &[i32]) {
        for partition in partitions {
            self.acquiring.give_up(*partition);
            if let Some(ShardState::Restoring(_) | ShardState::Live(_) | ShardState::Closing(_)) =
                self.shards.remove(*partition)
            {
                self.command(Command::Drop { partition: *partition });
            }
            self.ends.progress.shard(*partition).ownership_id.set(0);
            self.refused.remove(partition);
            self.anew.remove(partition);
            self.diverged.remove(partition);
        }
        self.ends.status.set_halted_shards(self.shards.halted());
    }

    fn take_reports(&mut self) {
        while let Some(report) = self.ends.reports.try_receive() {
            match report {
                Report::Trouble(sentence) => self.warn(&sentence),
                Report::Resolve { host, port } => self.resolving.begin(host, port),
            }
        }
        while let Some(resolved) = self.resolving.next() {
            if resolved.address.is_none() {
                self.warn(&format!("the broker name {} cannot be resolved", resolved.host));
            }
            // Without room the fetch path asks again.
            let _full = self.ends.resolved.try_send(resolved);
        }
    }

    fn acked_offsets(&self, partitions: &[i32]) -> Vec<(i32, i64)> {
        let acked =
            |partition: &i32| (*partition, self.ends.progress.shard(*partition).acked.get());
        let owned =
            |partition: &&i32| self.ends.progress.shard(**partition).ownership_id.get() != 0;
        partitions.iter().filter(owned).map(acked).collect()
    }

    /// Trouble with the group that passes.
    fn bear(&mut self, error: &MembershipError) {
        if let MembershipError::Unreachable(_) = error {
            self.fences.broker_is_away();
        }
        self.warn(&error.to_string());
    }

    fn warn(&mut self, sentence: &str) {
        if let Some(withheld) = self.trouble.notice(Instant::now()) {
            tracing::warn!(withheld, "{sentence}");
        }
    }

    fn command(&mut self, command: Command) {
        // The queue has room for several commands a shard; a hot thread that is gone has no shards.
        let _gone = self.ends.commands.try_send(command);
    }
}

/// Ends clients, and with them a membership, but does not wait for brokers that are away:
/// librdkafka would, for a minute. Then the group learns of the end by the session's.
fn leave(clients: impl Send + 'static) {
    let (leaving, left) = mpsc::channel::<()>();
    let waiter = thread::Builder::new().name("leave".to_owned()).spawn(move || {
        drop(clients);
        drop(leaving);
    });
    if waiter.is_ok() {
        // Nothing is ever sent: the wait ends when the other end is dropped.
        let _ended = left.recv_timeout(Duration::from_millis(LEAVE_MS_MAX));
    }
}

const RELEASE_LOOK: Duration = Duration::from_millis(5);
