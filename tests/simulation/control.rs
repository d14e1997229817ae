//! One daemon's control thread: brings the group, the decisions of `recovery/` and the hot thread
//! together, without a broker's client.

use crate::acquiring::{Outcome, Work};
use crate::chance::Sight;
use crate::group::GroupEvent;
use crate::line::Late;
use crate::mutation::Mutation;
use crate::surroundings::{Place, Surroundings};
use huntd::control::RELEASE_MS_MAX;
use huntd::engine::Shard;
use huntd::fetch::{Report, Resolved};
use huntd::output::mark::Mark;
use huntd::ownership::acquisition::{Acquired, Acquisition, Brief, Remedy};
use huntd::ownership::gap_check::{Gap, GapCheck, GapResult};
use huntd::ownership::shard_state::{ShardState, ShardStates};
use huntd::ownership::start_error::StartError;
use huntd::ownership::{PANICS_MAX, REACQUIRE_MS, START_ERROR_MS_MAX, YIELD_MS};
use huntd::publisher::{DeliveryFailure, ToPublisher};
use huntd::queue::{Receiver, Sender};
use huntd::shards::framer::Ownership;
use huntd::shards::{Command, Notice};
use huntd::telemetry::progress::Progress;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// The control thread's ends.
pub(crate) struct Ends {
    pub(crate) commands: Sender<Command>,
    pub(crate) notices: Receiver<Notice>,
    pub(crate) reports: Receiver<Report>,
    pub(crate) resolved: Sender<Resolved>,
    pub(crate) orders: Sender<ToPublisher>,
    pub(crate) failures: Receiver<DeliveryFailure>,
    pub(crate) jumps: Receiver<Gap>,
    pub(crate) progress: Arc<Progress>,
}

/// The control thread's state.
pub(crate) struct Control {
    ends: Ends,
    /// The daemon's name in the group.
    node: u64,
    host: usize,
    shards: ShardStates,
    works: BTreeMap<i32, Work>,
    /// What is being let go, and until when that may take.
    releasing: Option<(Vec<i32>, u64)>,
    /// The daemon is about to end.
    stopping: bool,
    panics: u32,
    /// Since when shards are refused.
    refused: BTreeMap<i32, u64>,
    /// Snapshots that could not be read after all, by id.
    damaged: BTreeSet<u64>,
    /// What became of shards that were acquired: why they were refused, or where they began.
    pub(crate) acquired: Vec<(i32, Result<Mark, StartError>)>,
    mutation: Mutation,
}

impl Control {
    pub(crate) fn new((node, host): (u64, usize), ends: Ends, mutation: Mutation) -> Control {
        Control {
            ends,
            node,
            host,
            shards: ShardStates::new(),
            works: BTreeMap::new(),
            releasing: None,
            stopping: false,
            panics: 0,
            refused: BTreeMap::new(),
            damaged: BTreeSet::new(),
            acquired: Vec::new(),
            mutation,
        }
    }

    /// Asks the daemon to end in order.
    pub(crate) fn stop(&mut self, around: &mut Surroundings<'_>) {
        if !self.stopping {
            self.stopping = true;
            let owned = self.shards.partitions();
            self.begin_release(around, owned);
        }
    }

    /// Whether it has ended: every shard is let go.
    pub(crate) fn has_ended(&self) -> bool {
        self.stopping && self.releasing.is_none()
    }

    /// Whether only an operator can help: a shard has halted, or its engine fails at a record whose
    /// updates are published and which nobody may pass over.
    pub(crate) fn needs_operator(&self) -> bool {
        self.shards.halted() > 0 || self.panics > PANICS_MAX + 2
    }

    /// The process is gone: what was about to be appended may be all the same.
    pub(crate) fn die(self, late: &mut Vec<Late>) {
        self.works.into_values().for_each(|work| work.die(late));
    }

    /// Whether something is going on that needs more turns soon.
    pub(crate) fn is_busy(&self) -> bool {
        !self.works.is_empty() || self.releasing.is_some() || !self.ends.notices.is_empty()
    }

    pub(crate) fn turn(&mut self, around: &mut Surroundings<'_>) {
        if !self.stopping
            && let Some(event) = around.group.poll((self.node, self.host), around.now)
        {
            around.trace(|| format!("node {} hears {event:?}", self.node));
            match event {
                GroupEvent::Assigned(partitions) => {
                    let now = around.instant();
                    partitions.iter().for_each(|partition| self.shards.make_due(*partition, now));
                }
                GroupEvent::Revoked(partitions) => self.begin_release(around, partitions),
                GroupEvent::Lost(partitions) => self.forget(&partitions),
            }
        }
        self.take_reports(around);
        self.take_notices(around);
        self.look_at_inputs(around);
        self.go_on_releasing(around);
        if self.releasing.is_none() {
            self.acquire_due(around);
        }
        self.go_on_acquiring(around);
    }

    /// Hosts are `kafka1`, `kafka2`.
    fn take_reports(&mut self, around: &mut Surroundings<'_>) {
        while let Some(report) = self.ends.reports.try_receive() {
            let Report::Resolve { host, port } = report else { continue };
            let number = host.strip_prefix("kafka").and_then(|number| number.parse().ok());
            let ip = number.map(|number| Ipv4Addr::new(10, 0, 0, number));
            let address = ip.map(|ip| SocketAddr::from((ip, port)));
            let address = address.filter(|_| !around.chance.one_in(10));
            let _full = self.ends.resolved.try_send(Resolved { host, port, address });
        }
    }

    fn begin_release(&mut self, around: &mut Surroundings<'_>, partitions: Vec<i32>) {
        for partition in &partitions {
            self.works.remove(partition);
            if self.shards.close(*partition) {
                self.command(Command::Close { partition: *partition });
            }
        }
        let end = around.now + RELEASE_MS_MAX * 1000;
        let (all, _) = self.releasing.get_or_insert_with(|| (Vec::new(), end));
        all.extend(partitions);
    }

    fn go_on_releasing(&mut self, around: &mut Surroundings<'_>) {
        let Some((partitions, end)) = &self.releasing else { return };
        if around.now < *end && partitions.iter().any(|partition| self.is_closing(*partition)) {
            return;
        }
        let (partitions, _) = self.releasing.take().expect("just looked at");
        self.forget(&partitions);
        match self.stopping {
            true => around.group.leave(self.node),
            false => around.group.release(self.node, &partitions),
        }
    }

    fn is_closing(&self, partition: i32) -> bool {
        let progress = self.ends.progress.shard(partition);
        self.shards.is_closing(partition)
            || progress.sent.get() != progress.settled.get()
            || progress.checkpoints.get() != progress.checkpoints_settled.get()
    }

    fn forget(&mut self, partitions: &[i32]) {
        for partition in partitions {
            self.works.remove(partition);
            if self.shards.remove(*partition).is_some() {
                self.command(Command::Drop { partition: *partition });
            }
            self.ends.progress.shard(*partition).ownership_id.set(0);
        }
    }

    fn take_notices(&mut self, around: &mut Surroundings<'_>) {
        while let Some(notice) = self.ends.notices.try_receive() {
            around.trace(|| format!("node {} is told {notice:?}", self.node));
            self.take_notice(around, &notice);
        }
        while let Some(jump) = self.ends.jumps.try_receive() {
            if self.shards.is_current(jump.partition, jump.ownership_id) {
                self.works.insert(jump.partition, Work::bridge(GapCheck::new(jump)));
            }
        }
        while let Some(failure) = self.ends.failures.try_receive() {
            around.trace(|| format!("node {} is told {failure:?}", self.node));
            around.chance.see(Sight::DeliveryFailed);
            let DeliveryFailure { partition, ownership_id, .. } = failure;
            let ignored = self.mutation == Mutation::FailureIgnored;
            if self.shards.is_current(partition, ownership_id) && !ignored {
                self.acquire_again(around, partition);
            }
        }
    }

    fn take_notice(&mut self, around: &mut Surroundings<'_>, notice: &Notice) {
        let (partition, ownership_id) = notice.ownership();
        let is_current = self.shards.is_current(partition, ownership_id);
        match notice {
            Notice::Closed { .. } => {
                around.chance.see(Sight::Closed);
                if is_current {
                    self.shards.remove(partition);
                }
            }
            _ if !is_current => {}
            Notice::Halted { sentence, .. } => {
                if sentence.contains("was captured") {
                    around.chance.see(Sight::CaptureFailed);
                }
                self.halt(around, partition);
            }
            Notice::Diverged { refusal, .. } => self.refuse(around, partition, *refusal),
            Notice::Panicked { offset, .. } => {
                around.chance.see(Sight::EnginePanicked);
                around.poison.count(partition, *offset);
                self.panics += 1;
                self.works.remove(&partition);
                self.make_due(around, partition, REACQUIRE_MS);
            }
        }
    }

    fn acquire_due(&mut self, around: &mut Surroundings<'_>) {
        for partition in self.shards.take_due(around.instant()) {
            // Hosts may have the same rules in another order.
            let mut rulesets: Vec<u32> = around.rulebook.rulesets().collect();
            if around.chance.one_in(2) {
                rulesets.reverse();
            }
            let places = around.here(partition, &self.damaged);
            let candidates = places.iter().map(|place| place.candidate(self.mutation)).collect();
            let brief = Brief {
                partition,
                rulesets,
                candidates,
                poison: around.poison.offsets(partition, PANICS_MAX),
                remedy: Remedy::Refuse,
                diverged: false,
            };
            let acquisition = Acquisition::begin(brief, around.bounds(partition));
            self.works.insert(partition, Work::acquire(acquisition, places));
        }
    }

    fn go_on_acquiring(&mut self, around: &mut Surroundings<'_>) {
        for (partition, mut work) in std::mem::take(&mut self.works) {
            match work.turn(around, self.node, &self.damaged, self.mutation) {
                None => {
                    self.works.insert(partition, work);
                }
                Some(Outcome::Acquired(acquired)) => self.open(around, *acquired, &work),
                Some(Outcome::Refused(refusal)) => self.refuse(around, partition, refusal),
                Some(Outcome::Failed) => self.acquire_again(around, partition),
                Some(Outcome::Crossed(crossed)) => self.cross(around, crossed.0, crossed.1),
            }
        }
    }

    fn open(&mut self, around: &mut Surroundings<'_>, acquired: Acquired, work: &Work) {
        around.trace(|| format!("node {} has {acquired:?}", self.node));
        let Acquired {
            partition,
            owner_epoch: epoch,
            fence_id,
            mark,
            mut start,
            candidate,
            begun_by,
            skips,
        } = acquired;
        let rulebook = around.rulebook.beginning_by(begun_by).expect("every host has all rules");
        let mut engine = Box::new(Shard::new(partition as u16, &rulebook));
        if let Some(place) = candidate.map(|candidate| &work.places[candidate]) {
            let header = place.header();
            let Some(loaded) = around.load(place) else {
                around.chance.see(Sight::SnapshotUnreadable);
                self.damaged.insert(header.id());
                return self.make_due(around, partition, 0);
            };
            if let Place::Copied(..) = place {
                around.chance.see(Sight::AcquiredFromCopy);
            }
            engine = loaded;
            around.chance.see(Sight::AcquiredFromSnapshot);
            start.next_update = header.next_update;
            start.chain = header.chain;
        }
        around.chance.see(Sight::Acquired);
        self.acquired.push((partition, Ok(mark)));
        self.refused.remove(&partition);
        let ownership_id = self.shards.open(partition);
        let progress = self.ends.progress.shard(partition);
        progress.acked.set(mark.next_offset.max(start.next_offset));
        progress.high_watermark.set(-1);
        progress.applied.set(start.next_offset);
        progress.ownership_id.set(ownership_id);
        let mut ownership = Ownership {
            partition,
            ownership_id,
            owner_epoch: epoch,
            fence_id,
            ruleset: engine.ruleset(),
            published: mark.next_update,
            published_chain: mark.chain,
            published_offset: mark.next_offset,
            start_offset: start.next_offset,
            start_update: start.next_update,
            start_chain: start.chain,
        };
        if self.mutation == Mutation::Unsuppressed {
            ownership.published = start.next_update;
            ownership.published_chain = start.chain;
        }
        around.line.borrow_mut().begin(partition, mark.output_offset);
        let _gone = self.ends.orders.try_send(ToPublisher::Begin {
            partition,
            ownership_id,
            mark,
            zones: around.broker.inputs.len() as i32,
        });
        let skips = skips.into_iter().filter(|offset| *offset >= start.next_offset).collect();
        self.command(Command::Open { ownership, engine, skips });
    }

    fn cross(&mut self, around: &mut Surroundings<'_>, jump: Gap, crossed: GapResult) {
        let Gap { partition, ownership_id, .. } = jump;
        if !self.shards.is_current(partition, ownership_id) {
            return;
        }
        match crossed {
            GapResult::Bridged(mark) => {
                around.chance.see(Sight::JumpBridged);
                let order = ToPublisher::GapChecked { partition, ownership_id, mark };
                let _gone = self.ends.orders.try_send(order);
            }
            GapResult::Fenced { .. } => {
                around.chance.see(Sight::JumpFenced);
                self.drop_shard(partition);
                self.make_due(around, partition, YIELD_MS);
            }
            GapResult::Torn => self.acquire_again(around, partition),
        }
    }

    fn look_at_inputs(&mut self, around: &mut Surroundings<'_>) {
        let restoring = self.shards.iter().filter(|(_, at)| matches!(at, ShardState::Restoring(_)));
        let restoring: Vec<i32> = restoring.map(|(partition, _)| partition).collect();
        for partition in restoring {
            let progress = self.ends.progress.shard(partition);
            let end = progress.high_watermark.get();
            if progress.is_input_short() {
                self.acquire_again(around, partition);
            } else if end >= 0 && progress.applied.get() >= end {
                self.shards.restored(partition);
            }
        }
    }

    fn acquire_again(&mut self, around: &mut Surroundings<'_>, partition: i32) {
        self.drop_shard(partition);
        self.make_due(around, partition, REACQUIRE_MS);
    }

    fn drop_shard(&mut self, partition: i32) {
        self.works.remove(&partition);
        self.command(Command::Drop { partition });
        self.ends.progress.shard(partition).ownership_id.set(0);
    }

    /// What is being let go is not taken back.
    fn make_due(&mut self, around: &Surroundings<'_>, partition: i32, wait_ms: u64) {
        let leaving = self.releasing.as_ref().is_some_and(|(all, _)| all.contains(&partition));
        match leaving {
            true => drop(self.shards.remove(partition)),
            false => {
                let at = around.instant() + Duration::from_millis(wait_ms);
                self.shards.make_due(partition, at);
            }
        }
    }

    fn refuse(&mut self, around: &mut Surroundings<'_>, partition: i32, refusal: StartError) {
        around.trace(|| format!("node {}, partition {partition}: {refusal}", self.node));
        around.chance.see(Sight::Refused);
        if let StartError::Diverged { .. } = refusal {
            around.chance.see(Sight::Diverged);
        }
        self.acquired.push((partition, Err(refusal)));
        let since = *self.refused.entry(partition).or_insert(around.now);
        if refusal.may_pass() && around.now < since + START_ERROR_MS_MAX * 1000 {
            self.works.remove(&partition);
            return self.make_due(around, partition, REACQUIRE_MS);
        }
        self.halt(around, partition);
    }

    fn halt(&mut self, around: &mut Surroundings<'_>, partition: i32) {
        around.chance.see(Sight::Halted);
        self.works.remove(&partition);
        self.shards.halt(partition);
    }

    fn command(&self, command: Command) {
        let sent = self.ends.commands.try_send(command);
        assert!(sent.is_ok(), "the queue has room for several commands a shard");
    }
}
