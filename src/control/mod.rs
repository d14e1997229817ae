//! The control thread: polls the group, the output topic and the other threads, passes their events
//! to [`Ownership`], and executes its actions.
//!
//! Everything here may block; nothing here is on the path of an event.

pub(crate) mod advertised;
mod certificates;
mod channel;
mod connecting;
pub(crate) mod control_error;
pub mod dialler;
pub(crate) mod group_coordinator;
mod group_watch;
pub mod handover;
mod journal;
mod link;
mod lookup;
pub mod output_log;
mod panic_file;
pub(crate) mod random;
pub(crate) mod roll_call;
mod states;
mod successors;
pub mod surveyor;
pub(crate) mod topic_client;
pub(crate) mod topic_id_watch;
mod topic_polls;
pub(crate) mod topic_rules;
mod topic_watch;

use crate::kafka::group::{GroupOptions, Membership};
use crate::kafka::group_lag::GroupLag;
use crate::kafka::membership::MembershipEvent;
use crate::kit::engine::{AnyRulebook, Engine};
use crate::output::fence_id::FenceIds;
use crate::ownership::acquisition::Remedy;
use crate::ownership::action::{Cover, Opening, OwnershipAction};
use crate::ownership::event::{OutputEvent, OwnershipEvent, ShardFacts, Survey, ToControl};
use crate::ownership::read_slots::READ_SLOTS;
use crate::ownership::standby::StandbyOptions;
use crate::ownership::{Ownership, OwnershipOptions};
use crate::publisher::ToPublisher;
use crate::queue::{Receiver, Sender};
use crate::service::status::{Phase, Status};
use crate::shards::ToHot;
use crate::snapshot::disk::Files;
use crate::snapshot::format::Origin;
use crate::snapshot::replicas::{self, ReplicaError};
use crate::snapshot::slots::Store;
use crate::telemetry::long_wait::LongWait;
use crate::telemetry::metrics::{Counter, Gauge, Metrics};
use crate::telemetry::progress::{Progress, SHARDS_MAX};
use certificates::Certificates;
use connecting::Clients;
use control_error::ControlError;
use group_watch::GroupWatch;
use journal::Journal;
use output_log::OutputLog;
use panic_file::PanicFile;
use random::random_bits;
use states::{LoadedFrom, States};
use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use successors::Successors;
use surveyor::Surveyor;
use topic_rules::TopicNames;
use topic_watch::TopicWatch;

/// Milliseconds that the last commit of a shard may take before the shard is released without it.
pub(crate) const COMMIT_MS_MAX: u64 = 500;

/// Milliseconds between two polls of sources that do not wake the control thread.
const CONTROL_POLL_MS: u64 = 10;

/// Milliseconds that leaving the group may take.
pub(crate) const LEAVE_MS_MAX: u64 = 300;

/// Rulebooks that may wait for the control thread: a reload waits for the previous one.
pub(crate) const RULEBOOKS_MAX: usize = 1;

/// Messages about shards that may wait for a thread: several for every shard.
pub(crate) const MESSAGES_MAX: usize = 4 * SHARDS_MAX;

/// Messages that wait for the hot thread at which it is not told of covers: the others need their
/// room.
const COVERS_SENT_MAX: usize = SHARDS_MAX;

/// Milliseconds between two times at which the hot thread is told of covers, because that wakes it.
const COVERS_EVERY_MS: u64 = 10;

/// The control thread's ends of all that it shares with other threads.
pub(crate) struct ControlEnds {
    /// From the other threads.
    pub messages: Receiver<ToControl>,
    /// To the hot thread.
    pub hot: Sender<ToHot>,
    /// To the publisher.
    pub publisher: Sender<ToPublisher>,
    /// The snapshots of this host; `None`: there are none.
    pub snapshots: Option<Store<Files>>,
    /// The rules of the game.
    pub rulebook: AnyRulebook,
    /// From the service thread: the rules as they were read again.
    pub rulebooks: Receiver<AnyRulebook>,
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
pub(crate) struct ControlOptions {
    /// For the group.
    pub group: GroupOptions,
    /// How brokers are reached.
    pub dial: dialler::DialOptions,
    /// For the outputs.
    pub output: output_log::OutputLogOptions,
    /// The topics that have to be there.
    pub topics: TopicNames,
    /// Where counts are kept that have to survive a restart; `None`: nowhere.
    pub state_directory: Option<std::path::PathBuf>,
    /// The topics that snapshots are about.
    pub origin: Origin,
    /// For replicas of other hosts' snapshots; `None`: there are none.
    pub replicas: Option<replicas::ReplicaOptions>,
    /// What to do with a shard that has no usable state.
    pub remedy: Remedy,
    /// Records to be passed over for good, by partition and offset.
    pub skips: Vec<(i32, i64)>,
    /// The copies of zones that other instances own.
    pub standby: StandbyOptions,
}

/// The control thread's state.
struct Control {
    ends: ControlEnds,
    options: ControlOptions,
    membership: Membership,
    surveyor: Surveyor,
    output: OutputLog,
    states: States,
    /// Where panics are counted; `None` until it is known which topic the input is.
    panic_file: Option<PanicFile>,
    ownership: Ownership,
    /// Events of the group that came while states were searched.
    group_events: VecDeque<MembershipEvent>,
    /// How far engines may go that follow, by partition, as far as the hot thread does not know it.
    covers: BTreeMap<i32, Cover>,
    /// When the hot thread may be told of covers again.
    covers_due_at: Instant,
    /// States that were loaded for shards that are not open yet.
    loaded: BTreeMap<i32, Box<dyn Engine>>,
    journal: Journal,
    group_lag: GroupLag,
    group_watch: GroupWatch,
    certificates: Certificates,
    topic_watch: TopicWatch,
    /// Set while the group does not count the daemon in.
    joining: Option<LongWait>,
    /// Who can take our shards over; `None`: the daemon does not end.
    successors: Option<Successors>,
}

/// Runs the control thread to its end. Brokers that do not answer yet are waited for.
pub(crate) fn run(options: ControlOptions, ends: ControlEnds) -> Result<(), ControlError> {
    ends.status.enter(Phase::Reaching);
    match connecting::connect(&options, &ends.stop)? {
        Some(clients) => Control::new(options, ends, clients).run(),
        None => Ok(()),
    }
}

impl Control {
    fn new(
        options: ControlOptions,
        mut ends: ControlEnds,
        (certificates, surveyor, output, membership): Clients,
    ) -> Control {
        ends.status.enter(Phase::Joining);
        let states =
            States::new(ends.snapshots.take(), options.origin.clone(), options.replicas.clone());
        let output_topic = &options.output.output_topic;
        let group_lag = GroupLag::start(&options.group, output_topic, ends.progress.clone());
        let group_watch = GroupWatch::start(&options, output.partitions());
        let topic_watch = TopicWatch::start(&options, ends.status.clone());
        journal::partitions_known(output.partitions(), &options.skips);
        let ownership = OwnershipOptions {
            partitions: output.partitions(),
            rulesets: ends.rulebook.rulesets(),
            version: ends.rulebook.version(),
            remedy: options.remedy,
            skips: options.skips.clone(),
            read_slots: READ_SLOTS,
            standby: options.standby,
            fence_ids: FenceIds::new(&options.group.client.group, random_bits() as u64),
            updates: ends.rulebook.schema().updates,
        };
        Control {
            ends,
            options,
            membership,
            surveyor,
            output,
            states,
            panic_file: None,
            ownership: Ownership::new(ownership, Instant::now()),
            group_events: VecDeque::new(),
            covers: BTreeMap::new(),
            covers_due_at: Instant::now(),
            loaded: BTreeMap::new(),
            journal: Journal::new(),
            group_lag,
            group_watch,
            certificates,
            topic_watch,
            joining: None,
            successors: None,
        }
    }

    /// Runs until every shard is released, because the daemon has to end.
    fn run(mut self) -> Result<(), ControlError> {
        loop {
            self.ends.metrics.add(Counter::ControlTurns, 1);
            self.poll_stop();
            self.poll_group();
            self.poll_threads();
            self.poll_service();
            self.poll_topics();
            self.poll_surveys();
            self.poll_group_watch();
            self.poll_output();
            let facts = self.facts();
            self.ownership.on(OwnershipEvent::Tick(&facts), Instant::now());
            while let Some(action) = self.ownership.next_action() {
                if let ControlFlow::Break(end) = self.execute(action) {
                    let watches = (self.group_lag, self.group_watch, self.topic_watch);
                    leave((self.membership, self.output, watches));
                    return end;
                }
            }
            self.tell_covers();
            self.show_phase();
        }
    }

    fn on(&mut self, event: OwnershipEvent<'_>) {
        self.ownership.on(event, Instant::now());
    }

    fn poll_stop(&mut self) {
        if !self.ends.stop.load(Ordering::Acquire) {
            return;
        }
        let now = Instant::now();
        let Control { successors, membership, group_watch, options, ends, .. } = self;
        let successors = successors.get_or_insert_with(|| {
            ends.status.enter(Phase::Draining);
            match membership.may_be_succeeded(options.standby.copies > 0) {
                true => Successors::begin(now),
                false => Successors::none(now),
            }
        });
        if successors.ask(now) {
            group_watch.ask_members();
        }
        if let Some(members) = group_watch.next_members() {
            successors.take(members);
        }
        let Some(has_successors) = successors.are_there(now) else { return };
        if has_successors && successors.is_counted {
            successors.is_counted = !membership.resign();
        }
        self.on(OwnershipEvent::Stop { has_successors });
    }

    /// Polls the group; waits a little for it, unless there is something else to wait for.
    fn poll_group(&mut self) {
        let wait = match self.ownership.is_busy() {
            true => Duration::ZERO,
            false => Duration::from_millis(CONTROL_POLL_MS),
        };
        if self.group_events.is_empty() {
            self.group_events.extend(self.membership.poll(wait));
        }
        while let Some(event) = self.group_events.pop_front() {
            self.certificates.on_group_event(&event, Instant::now());
            self.on(OwnershipEvent::Group(event));
        }
        if let Some(event) = self.certificates.verdict() {
            self.on(OwnershipEvent::Group(event));
        }
    }

    fn poll_threads(&mut self) {
        while let Some(message) = self.ends.messages.try_receive() {
            match message {
                ToControl::Shard(notice) => self.on(OwnershipEvent::Shard(notice)),
                ToControl::DeliveryFailed(failure) => {
                    self.on(OwnershipEvent::DeliveryFailed(failure))
                }
                ToControl::ForeignSpan(span) => self.on(OwnershipEvent::ForeignSpan(span)),
                ToControl::NoOps(no_ops) => self.journal.no_ops(&no_ops),
                ToControl::Trouble { source, sentence } => {
                    self.journal.trouble(source, &sentence);
                }
                ToControl::InputTrouble { partition, trouble } => {
                    self.journal.input_trouble(partition, &trouble);
                }
            }
        }
        if self.panic_file.is_none()
            && let Some(topic_id) = self.options.origin.input_topic_id.get().copied()
        {
            let directory = self.options.state_directory.as_deref();
            let file = PanicFile::new(directory, &self.options.origin);
            self.on(OwnershipEvent::InputKnown { topic_id, panics: file.load() });
            self.panic_file = Some(file);
        }
    }

    /// Takes rules that were read again. From now on all shards know them, whatever state they are
    /// in.
    fn poll_service(&mut self) {
        while let Some(rulebook) = self.ends.rulebooks.try_receive() {
            self.on(OwnershipEvent::RulesLoaded(rulebook.rulesets()));
            self.loaded.values_mut().for_each(|shard| shard.know(&rulebook));
            self.tell_hot(ToHot::Rulebook(rulebook.clone()));
            self.ends.rulebook = rulebook;
        }
    }

    fn poll_topics(&mut self) {
        if self.topic_watch.is_output_recreated() {
            self.on(OwnershipEvent::OutputRecreated);
        }
        if let Some(partitions) = self.topic_watch.input_partitions() {
            self.on(OwnershipEvent::InputCounted(partitions));
        }
    }

    fn poll_group_watch(&mut self) {
        if let Some(view) = self.group_watch.next_view()
            && let Some(ours) = self.membership.member_id()
        {
            self.on(OwnershipEvent::GroupSeen { view: &view, ours: &ours });
        }
    }

    fn poll_surveys(&mut self) {
        let Control { surveyor, states, ownership, .. } = self;
        surveyor.poll(|partition, bounds| {
            let survey = bounds.and_then(|bounds| {
                let candidates = states.here(partition)?;
                Ok(Survey { bounds, candidates })
            });
            ownership.on(OwnershipEvent::Surveyed { partition, survey }, Instant::now());
        });
    }

    fn poll_output(&mut self) {
        if self.ownership.is_busy() {
            let Control { output, ownership, .. } = self;
            let wait = Duration::from_millis(CONTROL_POLL_MS);
            output.poll(wait, |event: OutputEvent<'_>| {
                ownership.on(OwnershipEvent::Output(event), Instant::now());
            });
        } else {
            self.output.rest();
        }
    }

    fn facts(&self) -> Vec<ShardFacts> {
        let watched = self.ownership.watched().into_iter();
        watched.map(|partition| handover::facts(&self.ends.progress, partition)).collect()
    }

    /// Executes an action. Break: the daemon ends.
    fn execute(&mut self, action: OwnershipAction) -> ControlFlow<Result<(), ControlError>> {
        match action {
            OwnershipAction::Survey(partitions) => self.surveyor.begin(&partitions),
            OwnershipAction::FindStates { partition } => self.find_states(partition),
            OwnershipAction::Read { partition, from } => self.read(partition, from),
            OwnershipAction::Append { partition, header } => {
                if let Err(error) = self.output.append(partition, &header) {
                    self.on(OwnershipEvent::Output(OutputEvent::RequestFailed {
                        partition,
                        error,
                    }));
                }
            }
            OwnershipAction::Note { partition, header } => {
                if !self.output.append_note(partition, &header) {
                    self.on(OwnershipEvent::Output(OutputEvent::Noted { partition, offset: None }));
                }
            }
            OwnershipAction::Forget { partition } => self.output.forget(partition),
            OwnershipAction::Ask { question, offsets } => self.membership.ask(question, &offsets),
            OwnershipAction::Load { partition, candidate, begun_by, migrates_to } => {
                self.load(partition, LoadedFrom { candidate, begun_by, migrates_to });
            }
            OwnershipAction::Open(opening) => self.open(*opening),
            OwnershipAction::Follow(opening) => self.follow(*opening),
            OwnershipAction::Cover(cover) => drop(self.covers.insert(cover.partition, cover)),
            OwnershipAction::Promote(opening) => self.promote(*opening),
            OwnershipAction::Close { partition } => self.tell_hot(ToHot::Close { partition }),
            OwnershipAction::Drop { partition } => self.tell_hot(ToHot::Drop { partition }),
            OwnershipAction::Disown { partition } => {
                self.covers.remove(&partition);
                self.loaded.remove(&partition);
                self.ends.progress.shard(partition).ownership_id.set(0);
                self.tell_publisher(ToPublisher::Disown { partition });
            }
            OwnershipAction::SetGoal { partition, offset } => {
                self.ends.progress.shard(partition).goal.set(offset);
            }
            OwnershipAction::PassSpan { partition, ownership_id, mark } => {
                self.tell_publisher(ToPublisher::SpanChecked { partition, ownership_id, mark });
            }
            OwnershipAction::KeepPanicCounts(counts) => {
                let stored = self.panic_file.as_ref().map_or(Ok(()), |file| file.store(&counts));
                if let Err(error) = stored {
                    tracing::warn!(%error, "how often a record failed is lost at the next restart");
                }
            }
            OwnershipAction::Commit(offsets) => self.membership.commit(&offsets),
            OwnershipAction::CheckTopic => {
                let checked = self.membership.check_topic();
                self.on(OwnershipEvent::TopicChecked(checked));
            }
            OwnershipAction::Rejoin => self.rejoin(),
            OwnershipAction::Leave { offsets, halted } => {
                self.commit_and_wait(&offsets);
                return ControlFlow::Break(match halted {
                    0 => Ok(()),
                    halted => Err(ControlError::ShardsHalted(halted)),
                });
            }
            OwnershipAction::Fail(error) => return ControlFlow::Break(Err(error.into())),
            OwnershipAction::Log(note) => {
                if let Some(counter) = journal::counter(&note) {
                    self.ends.metrics.add(counter, 1);
                }
                self.journal.write(&note, &self.ends.progress);
            }
        }
        ControlFlow::Continue(())
    }

    fn find_states(&mut self, partition: i32) {
        let Control { states, ends, group_events, membership, journal, .. } = self;
        let mut report = |error: &ReplicaError| journal.no_replica(partition, error);
        let mut watch = || keep_watch(ends, membership, group_events, true);
        let found = states.everywhere(partition, &mut report, &mut watch);
        let event = match found {
            Some((candidates, why_unknown)) => {
                OwnershipEvent::Found { partition, candidates, why_unknown }
            }
            None => OwnershipEvent::Interrupted { partition },
        };
        self.on(event);
    }

    fn read(&mut self, partition: i32, from: i64) {
        if let Err(error) = self.output.read(partition, from) {
            // Reading and appending fail alike: the acquisition begins again.
            self.on(OwnershipEvent::Output(OutputEvent::RequestFailed { partition, error }));
        }
    }

    fn load(&mut self, partition: i32, from: LoadedFrom) {
        // Nobody plays a zone between its fence and its start, so the group's events wait.
        let heeds_group = !self.ownership.has_fenced(partition);
        let Control { states, ends, group_events, membership, .. } = self;
        let rulebook = &ends.rulebook;
        let mut watch = || keep_watch(ends, membership, group_events, heeds_group);
        match states.load(partition, from, rulebook, &mut watch) {
            Ok(engine) => {
                let ruleset = engine.ruleset();
                self.loaded.insert(partition, engine);
                self.on(OwnershipEvent::Loaded { partition, ruleset });
            }
            Err(ReplicaError::GivenUp) => self.on(OwnershipEvent::Interrupted { partition }),
            Err(error) => {
                let why = error.to_string();
                self.on(OwnershipEvent::NotLoaded { partition, why });
            }
        }
    }

    /// The output is ours: publisher and hot thread take over.
    fn open(&mut self, opening: Opening) {
        self.journal.acquired(&opening);
        journal::passed_over(&opening, &self.options.skips);
        let engine = self.loaded.remove(&opening.acquired.partition);
        let engine = engine.expect("it was loaded a moment ago");
        let (begin, open) = handover::open(&self.ends.progress, opening, engine);
        self.tell_publisher(begin);
        self.tell_hot(open);
    }

    /// Another owner plays on, and our engine follows it.
    fn follow(&mut self, opening: Opening) {
        self.journal.follows(&opening);
        let engine = self.loaded.remove(&opening.acquired.partition);
        let engine = engine.expect("it was loaded a moment ago");
        self.tell_publisher(ToPublisher::Follow { partition: opening.acquired.partition });
        let open = handover::follow(&self.ends.progress, opening, engine);
        self.tell_hot(open);
    }

    /// The output is ours: the engine that has followed takes over.
    fn promote(&mut self, opening: Opening) {
        self.journal.acquired(&opening);
        journal::passed_over(&opening, &self.options.skips);
        self.covers.remove(&opening.acquired.partition);
        let (begin, promote) = handover::promote(&self.ends.progress, opening);
        self.tell_publisher(begin);
        self.tell_hot(promote);
    }

    /// Tells the hot thread how far the engines may go that follow. A hot thread that is behind is
    /// told the newest only, once it has taken what was sent before.
    fn tell_covers(&mut self) {
        let now = Instant::now();
        if now < self.covers_due_at || self.ends.hot.len() >= COVERS_SENT_MAX {
            return;
        }
        for cover in std::mem::take(&mut self.covers).into_values() {
            self.covers_due_at = now + Duration::from_millis(COVERS_EVERY_MS);
            self.tell_hot(handover::cover(&self.ends.progress, cover));
        }
    }

    fn commit_and_wait(&mut self, offsets: &[(i32, i64)]) {
        self.membership.commit_and_wait(offsets, Duration::from_millis(COMMIT_MS_MAX));
    }

    fn rejoin(&mut self) {
        let joined = Membership::join(&self.options.group).map(|membership| {
            self.group_events.clear();
            leave(std::mem::replace(&mut self.membership, membership));
        });
        self.on(OwnershipEvent::Rejoined(joined));
    }

    fn show_phase(&mut self) {
        let summary = self.ownership.summary();
        let partitions = self.membership.partitions().unsigned_abs();
        self.ends.metrics.set_gauge(Gauge::Partitions, partitions.into());
        self.ends.metrics.set_gauge(Gauge::Copies, summary.copies.into());
        let warm = self.ownership.warm_copies(Instant::now());
        self.ends.metrics.set_gauge(Gauge::WarmCopies, warm.into());
        self.journal.restoring(&self.ends.metrics, &self.ends.progress);
        self.ends.status.set_halted_shards(summary.halted);
        self.ends.status.set_setbacks(self.ownership.setbacks());
        let group_trouble = self.ownership.group_trouble();
        self.ends.status.set_group_trouble(group_trouble);
        self.ends.progress.set_awaited(&self.ownership.awaited(Instant::now()));
        let connections = self.ends.metrics.gauge(Gauge::Connections);
        let is_input_known = self.options.origin.input_topic_id.get().is_some();
        self.ends.status.enter(Phase::of(&summary, connections, is_input_known));
        let now = Instant::now();
        if summary.is_member || group_trouble.is_some() || self.successors.is_some() {
            self.joining = None;
        } else if self.joining.get_or_insert(LongWait::since(now)).word(now).is_some() {
            tracing::warn!("waiting to join the group: {}", self.topic_watch.coordinator());
        }
    }

    fn tell_hot(&self, message: ToHot) {
        // The queue has room for several messages a shard; a hot thread that is gone has no shards.
        let _gone = self.ends.hot.try_send(message);
    }

    fn tell_publisher(&self, message: ToPublisher) {
        // The queue has room for several messages a shard; a publisher that is gone needs none.
        let _gone = self.ends.publisher.try_send(message);
    }
}

/// Polls the group while other hosts' snapshots are read. If it is heeded, urgent events come
/// first.
fn keep_watch(
    ends: &ControlEnds,
    membership: &mut Membership,
    group_events: &mut VecDeque<MembershipEvent>,
    heeds_group: bool,
) -> ControlFlow<()> {
    ends.metrics.add(Counter::ControlTurns, 1);
    // A trouble that lasts is reported again and again, by each broker.
    let event = membership
        .poll(Duration::ZERO)
        .filter(|event| event.is_urgent() || !group_events.contains(event));
    group_events.extend(event);
    let is_called = heeds_group && group_events.iter().any(MembershipEvent::is_urgent);
    match ends.stop.load(Ordering::Acquire) || is_called {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    }
}

/// Ends clients, and with them a membership, but does not wait for brokers that are away:
/// librdkafka would, for a minute. Then the group learns of the end when our group session times
/// out.
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
