//! The control thread: which shards are ours, from when, and until when.
//!
//! It is a member of the consumer group, acquires and releases shards, commits offsets for lag
//! tools, and puts into words what the hot thread reports. Everything here may block; nothing here
//! is on the path of an event.

use crate::consumer::membership::{Membership, MembershipError, MembershipEvent};
use crate::consumer::{self, Report, Resolved};
use crate::engine::Shard;
use crate::engine::rules::Rules;
use crate::limits::{
    COMMIT_EVERY_MS, COMMIT_MS_MAX, CONTROL_LOOK_MS, LEAVE_MS_MAX, REACQUIRE_MS, RELEASE_MS_MAX,
    SHARDS_MAX,
};
use crate::metrics::{Counter, Gauge, Metrics};
use crate::progress::Progress;
use crate::publisher::DeliveryFailure;
use crate::publisher::framer::Ownership;
use crate::queue::{Receiver, Sender};
use crate::recovery::tail::Tail;
use crate::recovery::tail_error::TailError;
use crate::service::log::Repeated;
use crate::service::status::{Phase, Status};
use crate::world::{Command, Notice};
use std::collections::{BTreeMap, VecDeque};
use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// The control thread's ends of all that it shares with other threads.
pub struct Ends {
    /// To the world.
    pub commands: Sender<Command>,
    /// From the world.
    pub notices: Receiver<Notice>,
    /// From the fetch path.
    pub reports: Receiver<Report>,
    /// To the fetch path.
    pub resolved: Sender<Resolved>,
    /// From the publisher.
    pub failures: Receiver<DeliveryFailure>,
    /// The rules of the game, for new shards.
    pub rules: Arc<Rules>,
    /// Raised when the daemon has to end.
    pub stop: Arc<AtomicBool>,
    /// How far each shard is.
    pub progress: Arc<Progress>,
    /// The counters.
    pub metrics: Arc<Metrics>,
    /// What the daemon is doing.
    pub status: Arc<Status>,
}

/// Why the daemon cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The group.
    #[error(transparent)]
    Membership(#[from] MembershipError),
    /// The output topic.
    #[error(transparent)]
    Tail(#[from] TailError),
    /// The input topic.
    #[error("the input topic has {0} partitions, but one daemon handles at most {SHARDS_MAX}")]
    TooManyPartitions(i32),
    /// Shards that stopped on a fault. The log has said why.
    #[error("{0} shards have halted on a fault: the log says which and what to do")]
    ShardsHalted(u32),
}

/// Where a shard that the group gave us stands.
enum Standing {
    /// To be acquired at this time.
    Due(Instant),
    /// On the hot thread.
    Live(u32),
    /// On the hot thread, and about to end.
    Closing(u32),
    /// Stopped by a fault.
    Halted,
}

/// The control thread's state.
pub struct Control {
    ends: Ends,
    membership: Membership,
    tail: Tail,
    /// What the group said while something else was being done.
    events: VecDeque<MembershipEvent>,
    shards: BTreeMap<i32, Standing>,
    generation: u32,
    joined: bool,
    committed_at: Instant,
    trouble: Repeated,
}

impl Control {
    /// Joins the group, after a look at the topics.
    pub fn join(
        consumer: &consumer::Options,
        tail: crate::recovery::tail::Options,
        ends: Ends,
    ) -> Result<Control, ControlError> {
        ends.status.enter(Phase::Joining);
        let tail = Tail::connect(tail)?;
        let membership = Membership::join(consumer)?;
        if membership.partitions() as usize > SHARDS_MAX {
            return Err(ControlError::TooManyPartitions(membership.partitions()));
        }
        Ok(Control {
            ends,
            membership,
            tail,
            events: VecDeque::new(),
            shards: BTreeMap::new(),
            generation: 0,
            joined: false,
            committed_at: Instant::now(),
            trouble: Repeated::new(),
        })
    }

    /// Runs until the daemon has to end, then releases every shard.
    pub fn run(mut self) -> Result<(), ControlError> {
        while !self.ends.stop.load(Ordering::Acquire) {
            match self.next_event() {
                Some(MembershipEvent::Assigned(partitions)) => self.assign(&partitions),
                Some(MembershipEvent::Revoked(partitions)) => self.revoke(&partitions),
                Some(MembershipEvent::Lost(partitions)) => self.lose(&partitions),
                Some(MembershipEvent::Error(error)) if error.is_final() => return Err(error.into()),
                Some(MembershipEvent::Error(error)) => self.warn(&error.to_string()),
                None => {}
            }
            self.take_notices();
            self.acquire_due()?;
            self.show_phase();
            if self.committed_at.elapsed() >= Duration::from_millis(COMMIT_EVERY_MS) {
                self.committed_at = Instant::now();
                let offsets = self.acked_offsets(self.shards.keys());
                self.membership.commit(&offsets);
            }
        }
        self.ends.status.enter(Phase::Draining);
        let owned: Vec<i32> = self.shards.keys().copied().collect();
        self.end_shards(&owned);
        let halted = self.ends.status.halted_shards();
        self.forget(&owned);
        leave(self.membership);
        if halted == 0 { Ok(()) } else { Err(ControlError::ShardsHalted(halted)) }
    }

    /// What the group says, in its order; waits a little for it.
    fn next_event(&mut self) -> Option<MembershipEvent> {
        let wait = Duration::from_millis(CONTROL_LOOK_MS);
        self.events.pop_front().or_else(|| self.membership.poll(wait))
    }

    fn assign(&mut self, partitions: &[i32]) {
        self.joined = true;
        tracing::info!(?partitions, "assigned");
        for partition in partitions {
            self.shards.insert(*partition, Standing::Due(Instant::now()));
        }
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
            if let Some(Standing::Live(generation)) = self.shards.get(partition) {
                let generation = *generation;
                self.shards.insert(*partition, Standing::Closing(generation));
                self.command(Command::Close { partition: *partition });
            }
        }
        let end = Instant::now() + Duration::from_millis(RELEASE_MS_MAX);
        while Instant::now() < end && partitions.iter().any(|partition| self.is_busy(*partition)) {
            self.take_notices();
            // The group keeps us while a revocation is not answered only if it is polled.
            match self.membership.poll(RELEASE_LOOK) {
                Some(MembershipEvent::Lost(lost)) => self.lose(&lost),
                other => self.events.extend(other),
            }
        }
        let offsets = self.acked_offsets(partitions.iter());
        self.membership.commit_and_wait(&offsets, Duration::from_millis(COMMIT_MS_MAX));
    }

    /// Whether a shard has something on the hot thread, or on its way to the broker or the disk.
    fn is_busy(&self, partition: i32) -> bool {
        let progress = self.ends.progress.shard(partition);
        let closing = matches!(self.shards.get(&partition), Some(Standing::Closing(_)));
        let in_flight = progress.sent.get() != progress.settled.get();
        closing || in_flight || progress.captures.get() != progress.captures_settled.get()
    }

    /// Ends shards at once: they are somebody else's already.
    fn lose(&mut self, partitions: &[i32]) {
        tracing::warn!(?partitions, "lost: the group has taken them away");
        self.forget(partitions);
    }

    fn forget(&mut self, partitions: &[i32]) {
        for partition in partitions {
            match self.shards.remove(partition) {
                Some(Standing::Live(_) | Standing::Closing(_)) => {
                    self.command(Command::Drop { partition: *partition });
                }
                Some(Standing::Halted) => {
                    let halted = self.ends.status.halted_shards() - 1;
                    self.ends.status.set_halted_shards(halted);
                }
                Some(Standing::Due(_)) | None => {}
            }
            self.ends.progress.shard(*partition).generation.set(0);
        }
    }

    fn acquire_due(&mut self) -> Result<(), ControlError> {
        let now = Instant::now();
        let due = |standing: &Standing| matches!(standing, Standing::Due(at) if *at <= now);
        while self.events.is_empty()
            && let Some((&partition, _)) = self.shards.iter().find(|(_, standing)| due(standing))
        {
            let standing = match self.acquire(partition) {
                Ok(generation) => Standing::Live(generation),
                Err(TailError::Abandoned(_)) => return Ok(()),
                Err(error) if error.may_pass() => {
                    self.warn(&error.to_string());
                    Standing::Due(Instant::now() + Duration::from_millis(REACQUIRE_MS))
                }
                Err(error) => {
                    self.halt(partition, &error.to_string());
                    continue;
                }
            };
            self.shards.insert(partition, standing);
        }
        Ok(())
    }

    /// Takes a shard's output over and begins the shard at the start of its input. Whatever the
    /// group says meanwhile comes first: it may have given the shard to somebody else.
    fn acquire(&mut self, partition: i32) -> Result<u32, TailError> {
        let Control { ends, tail, membership, events, .. } = self;
        let acquired = tail.acquire(partition, &mut |reading| {
            tracing::debug!(partition, reading.offset, reading.end, "reading the output");
            events.extend(membership.poll(Duration::ZERO));
            match ends.stop.load(Ordering::Acquire) || !events.is_empty() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        let start_offset = self.tail.input_start(partition)?;
        if start_offset > 0 && acquired.next_update > 0 {
            return Err(TailError::InputGone { partition, start_offset });
        }
        self.generation += 1;
        tracing::info!(
            partition,
            epoch = acquired.epoch,
            published = acquired.next_update,
            start_offset,
            "acquired: replaying from the start of the input"
        );
        let progress = self.ends.progress.shard(partition);
        progress.acked.set(acquired.next_offset.max(start_offset));
        progress.high_watermark.set(-1);
        progress.generation.set(self.generation);
        let ownership = Ownership {
            partition,
            generation: self.generation,
            epoch: acquired.epoch,
            fence_id: acquired.fence_id,
            ruleset: self.ends.rules.hash(),
            published: acquired.next_update,
            published_chain: acquired.chain,
            published_offset: acquired.next_offset,
            start_offset,
        };
        let zone = u16::try_from(partition).expect("partitions are at most SHARDS_MAX");
        let engine = Box::new(Shard::new(zone, self.ends.rules.clone()));
        self.command(Command::Open { ownership, engine });
        Ok(self.generation)
    }

    /// Handles what the other threads have to say.
    fn take_notices(&mut self) {
        while let Some(notice) = self.ends.notices.try_receive() {
            match notice {
                Notice::Closed { partition, generation } => self.closed(partition, generation),
                Notice::Halted { partition, generation, sentence } => {
                    if self.generation_of(partition) == Some(generation) {
                        self.halt(partition, &sentence);
                    }
                }
            }
        }
        while let Some(failure) = self.ends.failures.try_receive() {
            self.fail(failure);
        }
        while let Some(report) = self.ends.reports.try_receive() {
            match report {
                Report::Trouble(sentence) => self.warn(&sentence),
                Report::Resolve { host, port } => {
                    let found = (host.as_str(), port).to_socket_addrs();
                    // Brokers that listen on both are rarer than hosts that resolve to both.
                    let address =
                        found.ok().and_then(|found| found.min_by_key(SocketAddr::is_ipv6));
                    if address.is_none() {
                        self.warn(&format!("the broker name {host} cannot be resolved"));
                    }
                    // Without room the fetch path asks again.
                    let _full = self.ends.resolved.try_send(Resolved { host, port, address });
                }
            }
        }
    }

    /// A shard that failed to deliver is acquired again, unless that would only fail again.
    fn fail(&mut self, failure: DeliveryFailure) {
        let DeliveryFailure { partition, generation, sentence, is_final } = failure;
        if self.generation_of(partition) != Some(generation) {
            return;
        }
        self.command(Command::Drop { partition });
        if is_final {
            let sentence = format!(
                "a frame or dead letter cannot be stored: {sentence}; raise max.message.bytes of \
                 the output and dead-letter topics, or publish.queue_kbytes_max"
            );
            self.halt(partition, &sentence);
        } else {
            tracing::warn!(partition, "a delivery failed, acquiring the shard again: {sentence}");
            let at = Instant::now() + Duration::from_millis(REACQUIRE_MS);
            self.shards.insert(partition, Standing::Due(at));
        }
    }

    fn halt(&mut self, partition: i32, sentence: &str) {
        tracing::error!(partition, "the shard has halted: {sentence}");
        self.shards.insert(partition, Standing::Halted);
        self.ends.status.set_halted_shards(self.ends.status.halted_shards() + 1);
    }

    fn closed(&mut self, partition: i32, generation: u32) {
        let progress = self.ends.progress.shard(partition);
        tracing::info!(
            partition,
            offset = progress.published.get(),
            updates = progress.next_update.get(),
            digest = format_args!("{:016x}", progress.digest.get()),
            "released"
        );
        if self.generation_of(partition) == Some(generation) {
            self.shards.remove(&partition);
        }
    }

    fn generation_of(&self, partition: i32) -> Option<u32> {
        match self.shards.get(&partition)? {
            Standing::Live(generation) | Standing::Closing(generation) => Some(*generation),
            Standing::Due(_) | Standing::Halted => None,
        }
    }

    fn acked_offsets<'a>(&self, partitions: impl Iterator<Item = &'a i32>) -> Vec<(i32, i64)> {
        let acked =
            |partition: &i32| (*partition, self.ends.progress.shard(*partition).acked.get());
        let owned = |partition: &&i32| self.ends.progress.shard(**partition).generation.get() != 0;
        partitions.filter(owned).map(acked).collect()
    }

    /// Ready is whoever has joined, is connected, and has acquired what it was given.
    fn show_phase(&self) {
        // A standby has looked at the topic's leaders, and needs no connection beyond that.
        let mut live = self.shards.values().filter(|shard| matches!(shard, Standing::Live(_)));
        let connected = match live.next() {
            Some(_) => self.ends.metrics.gauge(Gauge::Connections) > 0,
            None => self.ends.metrics.get(Counter::ConnectionsOpened) > 0,
        };
        let acquiring = self.shards.values().any(|shard| matches!(shard, Standing::Due(_)));
        self.ends.status.enter(match (self.joined, connected && !acquiring) {
            (false, _) => Phase::Joining,
            (true, false) => Phase::Connecting,
            (true, true) => Phase::Ready,
        });
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

/// Leaves the group, but does not wait for brokers that are away: librdkafka would, for a minute.
/// Then the group learns of the end by the session's.
fn leave(membership: Membership) {
    let (leaving, left) = mpsc::channel::<()>();
    let waiter = thread::Builder::new().name("leave".to_owned()).spawn(move || {
        drop(membership);
        drop(leaving);
    });
    if waiter.is_ok() {
        // Nothing is ever sent: the wait ends when the other end is dropped.
        let _ended = left.recv_timeout(Duration::from_millis(LEAVE_MS_MAX));
    }
}

const RELEASE_LOOK: Duration = Duration::from_millis(5);
