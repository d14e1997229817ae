//! One daemon from its start to its end: the hot thread's stages, the publisher and the control
//! thread, each with the time of its next turn.

use crate::answers::{OUTPUT_TOPIC, TOPIC};
use crate::chance::{Chance, Fault};
use crate::control::{self, Control};
use crate::dialler::Dialler;
use crate::disk::HostDisk;
use crate::game::EPOCH_MS;
use crate::line::{Landing, Late, Line};
use crate::mutation::Mutation;
use crate::network::Network;
use crate::producer::SimProducer;
use crate::publishing::Publishing;
use crate::sim::PARTITIONS_MAX;
use crate::snapshot_thread::SnapshotThread;
use crate::surroundings::Surroundings;
use crate::threads::Watched;
use huntd::daemon::hot::{HotEnds, Stages};
use huntd::fetch::FetchOptions;
use huntd::fetch::dialling::{DialEnds, FromDialler, ToDialler};
use huntd::hunt::event::EVENTS;
use huntd::hunt::refusal::Refusal;
use huntd::hunt::rules::rulebook::Rulebook;
use huntd::kafka::client::ClientOptions;
use huntd::kafka::security::Security;
use huntd::kit::engine::AnyRulebook;
use huntd::output::frame::{FRAME_BYTES_MAX, Format, Frame};
use huntd::ownership::OwnershipOptions;
use huntd::publisher::native::NativeProducer;
use huntd::publisher::publishing::{Inbox, Publisher, Time};
use huntd::publisher::sent::Sent;
use huntd::publisher::{self, ToPublisher};
use huntd::queue::bell::Bell;
use huntd::queue::{Receiver, Sender, bounded, bounded_with_bell};
use huntd::runtime::ring::RingKind;
use huntd::runtime::turns::Turns;
use huntd::shards::{ShardEnds, ShardOptions, ToHot};
use huntd::telemetry::metrics::{Gauge, Metrics};
use huntd::telemetry::progress::Progress;
use std::cell::RefCell;
use std::fs::File;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};
use support::poison;

/// The threads of a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thread {
    Hot,
    Publisher,
    Control,
    SnapshotWriter,
    /// librdkafka's thread: its records land.
    Wire,
}

const THREADS: [Thread; 5] =
    [Thread::Hot, Thread::Publisher, Thread::Control, Thread::SnapshotWriter, Thread::Wire];

/// A daemon.
pub(crate) struct Node {
    /// Its name in the group: the number of daemons before it.
    pub(crate) name: u64,
    driver: Rc<Turns>,
    stages: Stages,
    network: Network,
    dialler: Dialler,
    publisher: Publisher<NativeProducer<Sent, SimProducer<Sent>>>,
    publishing: Publishing,
    pub(crate) line: Rc<RefCell<Line>>,
    pub(crate) control: Control,
    pub(crate) snapshots: SnapshotThread,
    pub(crate) progress: Arc<Progress>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) watched: Watched,
    mutation: Mutation,
    outbox: Sender<ToPublisher>,
    limits: Limits,
    /// When each thread has its next turn.
    next: [u64; THREADS.len()],
    /// Stopped by a signal, and continued at this time.
    pub(crate) paused_until: u64,
}

/// What a daemon may hold at most.
struct Limits {
    queue_blocks: usize,
    frames_per_shard: u64,
    bytes_max: u64,
}

impl Limits {
    fn new(chance: &mut Chance) -> Limits {
        Limits {
            queue_blocks: chance.between(1, 8) as usize,
            frames_per_shard: chance.between(2, 8),
            bytes_max: chance.pick(&[5_000_000, 50_000_000]),
        }
    }
}

/// What all daemons of a simulation share.
pub(crate) struct Common {
    /// All rules of the first edition.
    pub(crate) rulebook: Rulebook,
    /// The second edition.
    pub(crate) later: AnyRulebook,
    /// The host whose engine does not make what is published.
    pub(crate) other_host: Option<usize>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) nothing: Rc<File>,
    pub(crate) base: Instant,
    pub(crate) is_traced: bool,
}

impl Common {
    /// The simulator wakes threads by itself: nobody sleeps at the eventfd.
    pub(crate) fn turns(&self, now: u64) -> Rc<Turns> {
        let bell = Arc::new(Bell::new().expect("a descriptor is left"));
        Turns::new(self.base + Duration::from_micros(now), bell)
    }
}

impl Node {
    pub(crate) fn start(
        chance: &mut Chance,
        common: &Common,
        (name, host): (u64, usize),
        disk: &HostDisk,
        options: OwnershipOptions,
        mutation: Mutation,
        now: u64,
    ) -> Node {
        let ((to_control, control_messages), (to_publisher, inbox)) = (bounded(64), bounded(2048));
        // Each shard may keep one, and one is on its way.
        let frames = PARTITIONS_MAX as u64 + chance.between(1, 4);
        let (free_frames, hot_free_frames) = recycled_frames(frames as usize);
        let (metrics, progress) = (Arc::new(metrics(chance)), Arc::new(Progress::new()));
        let (driver, limits) = (common.turns(now), Limits::new(chance));
        let (to_hot, hot_messages) = bounded_with_bell(64, driver.bell());
        let seen = (common.bell.clone(), progress.clone());
        let (snapshots, checkpoints, to_writer) = SnapshotThread::new(disk, chance, seen, mutation);
        let shard_ends = ShardEnds {
            control: to_control.clone(),
            publisher: to_publisher.clone(),
            free_frames: hot_free_frames,
            checkpoints: Some(checkpoints),
        };
        let observed = (progress.clone(), metrics.clone());
        let (dialler, dial) = Dialler::new(TOPIC, driver.bell(), common.base, mutation);
        let hot = hot_ends(chance, common, &limits, hot_messages, shard_ends, observed, dial);
        let ends = publisher::PublisherEnds {
            inbox,
            free_frames,
            control: to_control,
            snapshots: to_writer,
            snapshots_bell: common.bell.clone(),
            bell: common.bell.clone(),
            progress: progress.clone(),
            metrics: metrics.clone(),
            game: huntd::hunt::schema(),
        };
        let line = Rc::new(RefCell::new(Line::new(mutation)));
        let (to_publish, others) = (publisher_options(chance), SimProducer::new(line.clone()));
        let is_native = mutation.is_of_native_producer() && !chance.one_in(3);
        let (publishing, producer) =
            Publishing::new(common, now, &to_publish, &progress, is_native, others);
        let publisher = Publisher::new(to_publish, ends, producer);
        let ends = control::Ends {
            messages: control_messages,
            hot: to_hot,
            publisher: to_publisher.clone(),
            progress: progress.clone(),
        };
        let control = Control::new((name, host), ends, chance, options, common, now, mutation);
        Node {
            name,
            stages: Stages::new(&driver, hot),
            driver,
            network: Network::new(common),
            dialler,
            publisher,
            publishing,
            line,
            control,
            snapshots,
            progress,
            metrics,
            watched: Watched::default(),
            mutation,
            outbox: to_publisher,
            limits,
            next: [now; THREADS.len()],
            paused_until: 0,
        }
    }

    /// The thread whose turn comes next, and when.
    pub(crate) fn next(&self) -> (u64, Thread) {
        let mut earliest = (u64::MAX, Thread::Wire);
        for thread in THREADS {
            let at = self.next[thread as usize];
            // Records that have left the process go on without it.
            let at = if thread == Thread::Wire { at } else { at.max(self.paused_until) };
            let at = self.watched.next(thread, at);
            if at < earliest.0 {
                earliest = (at, thread);
            }
        }
        earliest
    }

    pub(crate) fn turn(&mut self, thread: Thread, around: &mut Surroundings<'_>) {
        self.watched.turn(thread, &self.metrics, self.mutation, around.now);
        match thread {
            Thread::Hot => self.turn_hot(around),
            Thread::Publisher => self.turn_publisher(around),
            Thread::Control => {
                self.control.turn(around);
                self.note_readiness(self.mutation);
                let acquired = self.control.acquired.iter();
                self.snapshots.begins.extend(
                    acquired.filter_map(|(partition, came)| Some((*partition, came.ok()?))),
                );
                let soon = around.now + around.chance.between(1, 500);
                self.next[Thread::Hot as usize] = self.next[Thread::Hot as usize].min(soon);
                self.next[Thread::Control as usize] = match self.control.is_busy() {
                    true => around.now + around.chance.between(10, self.control.rest_us_max()),
                    false => around.now + around.chance.between(5_000, 80_000),
                }
                .max(self.control.blocked_until);
            }
            Thread::SnapshotWriter => {
                self.snapshots.turn(around);
                self.next[Thread::SnapshotWriter as usize] = match self.snapshots.has_work() {
                    true => around.now + around.chance.delay_us(),
                    false => around.now + 500_000,
                };
            }
            Thread::Wire => {
                let line = &mut *self.line.borrow_mut();
                line.land(around.broker, around.chance, around.late, around.now);
                self.next[Thread::Wire as usize] = match line.on_the_way() {
                    0 => u64::MAX,
                    _ => around.now + around.chance.between(50, 3_000),
                };
            }
        }
    }

    fn turn_hot(&mut self, around: &mut Surroundings<'_>) {
        let now = around.now;
        let operations = self.driver.operations().clone();
        self.driver.begin_turn(around.instant());
        self.dialler.turn(&mut self.network, around.broker, around.chance, now);
        self.network.deliver(&operations, around.broker, around.chance, now);
        let mut context = Context::from_waker(Waker::noop());
        let turned = self.stages.turn(&mut context);
        assert!(turned.is_pending(), "the control thread is there");
        self.dialler.turn(&mut self.network, around.broker, around.chance, now);
        self.network.take_orders(&operations, around.chance, now);
        let next = if self.driver.try_sleep() {
            let deadline =
                self.driver.deadline().map(|at| (at - around.base).as_micros() as u64 + 1);
            let events = [deadline, self.network.next_at(), self.dialler.next_at()];
            let earliest = events.into_iter().flatten().min();
            earliest.unwrap_or(now + 100_000).clamp(now + 1, now + 100_000)
        } else {
            now + 1
        };
        self.driver.bell().wake_up();
        self.next[Thread::Hot as usize] = next + around.chance.below(20);
        if !self.outbox.is_empty() {
            self.wake(Thread::Publisher, now + around.chance.between(1, 1_000));
        }
        self.wake_snapshot_writer(around);
    }

    fn wake_snapshot_writer(&mut self, around: &mut Surroundings<'_>) {
        if self.snapshots.has_work() {
            let at = around.now + around.chance.delay_us();
            self.wake(Thread::SnapshotWriter, at);
        }
    }

    fn turn_publisher(&mut self, around: &mut Surroundings<'_>) {
        let now = around.now;
        {
            let line = &mut *self.line.borrow_mut();
            line.now = now;
            if around.chance.strikes(Fault::ProducerFatal) {
                line.abandon(around.chance, around.late);
                line.fatal = Some("the simulator says so".to_owned());
            }
        }
        let time = Time { now: around.instant(), now_us: EPOCH_MS * 1000 + now as i64 };
        self.publishing.begin_turn(around);
        let inbox = self.publisher.turn(time);
        let native_at = self.publishing.end_turn(around);
        let on_the_way = self.line.borrow().on_the_way();
        let at = now
            + match inbox {
                Inbox::Full => around.chance.between(1, 1_000),
                Inbox::Empty if on_the_way > 0 => around.chance.between(100, 2_000),
                Inbox::Empty => 100_000,
                Inbox::Ended => unreachable!("the hot thread is there"),
            };
        self.next[Thread::Publisher as usize] =
            at.min(native_at.saturating_add(around.chance.below(20)));
        if on_the_way > 0 {
            self.wake(Thread::Wire, now + around.chance.between(1, 1_000));
        }
        if self.publisher.unacknowledged() > 0 {
            self.wake(Thread::Hot, now + around.chance.between(1, 1_000));
        }
        self.wake_snapshot_writer(around);
    }

    /// The thread has its next turn at this time or before.
    pub(crate) fn wake(&mut self, thread: Thread, at: u64) {
        let next = &mut self.next[thread as usize];
        *next = (*next).min(at);
    }

    /// Records came into the input: a Fetch that waited for them is answered.
    pub(crate) fn notice_records(&mut self, at: u64) {
        if self.network.is_held_back() {
            self.wake(Thread::Hot, at);
        }
    }

    /// Whether a bound is broken: each bound is known beforehand.
    pub(crate) fn check_bounds(&self, partitions: i32) -> Result<(), String> {
        let Limits { queue_blocks, frames_per_shard, bytes_max } = self.limits;
        let on_the_way = self.line.borrow().on_the_way();
        // Frames are copied by the producer, so that each shard may have some there.
        if self.outbox.len() > 256 || on_the_way > 512 {
            return Err(format!("{} in the outbox, {on_the_way} on the way", self.outbox.len()));
        }
        let queued = self.metrics.gauge(Gauge::QueueBlocks);
        if queued > queue_blocks as u64 {
            return Err(format!("{queued} blocks are queued, and {queue_blocks} may be"));
        }
        for partition in 0..partitions {
            let shard = self.progress.shard(partition);
            let sent = shard.sent.get() - shard.settled.get();
            let bytes = shard.sent_bytes.get() - shard.settled_bytes.get();
            // The frame at work was allowed before the dead letters that went ahead of it.
            if sent > frames_per_shard + 1 || bytes > bytes_max + 2 * FRAME_BYTES_MAX as u64 {
                return Err(format!("partition {partition} has {sent} sent, of {bytes} bytes"));
            }
        }
        Ok(())
    }

    /// Whether something of it is on its way to a broker or to the disk.
    pub(crate) fn is_disturbed(&self) -> bool {
        self.publisher.unacknowledged() > 0
            || self.line.borrow().on_the_way() > 0
            || self.snapshots.has_work()
            || !self.outbox.is_empty()
    }

    /// The process is gone, at once. What had left it may still land.
    pub(crate) fn die(self, chance: &mut Chance, late: &mut Vec<Late>, now: u64) {
        let line = &mut *self.line.borrow_mut();
        line.now = now;
        line.abandon(chance, late);
        self.control.die(late);
        let requests = self.publishing.network.die();
        let landing = chance.below(requests.len() as u64 + 1) as usize;
        let from = now + chance.pick(&[1_000, 200_000, 6_000_000]);
        for (at, (node_id, request)) in (from..).zip(requests.into_iter().take(landing)) {
            late.push(Late { at, what: Landing::Request(node_id, request) });
        }
    }
}

fn hot_ends(
    chance: &mut Chance,
    common: &Common,
    limits: &Limits,
    messages: Receiver<ToHot>,
    shard_ends: ShardEnds,
    (progress, metrics): (Arc<Progress>, Arc<Metrics>),
    (dialler, dialled): (Sender<ToDialler>, Receiver<FromDialler>),
) -> HotEnds {
    HotEnds {
        messages,
        fetch: fetch_options(chance),
        dial_ends: DialEnds { dialler, dialler_bell: common.bell.clone(), dialled },
        queue_blocks: limits.queue_blocks,
        shards: ShardOptions {
            linger: Duration::from_micros(chance.pick(&[0, 500, 5_000])),
            frames_per_shard: limits.frames_per_shard,
            bytes_max: limits.bytes_max,
        },
        shard_ends,
        bell: common.bell.clone(),
        publisher_bell: common.bell.clone(),
        progress,
        metrics,
        events: &EVENTS,
    }
}

fn recycled_frames(count: usize) -> (Sender<Box<Frame>>, Receiver<Box<Frame>>) {
    let (frames, free_frames) = bounded(count);
    for _ in 0..count {
        assert!(frames.try_send(Frame::new()).is_ok(), "there is room for every frame");
    }
    (frames, free_frames)
}

/// An eighth of the daemons takes poison well. No player of the game leaves for its own zone
/// otherwise (`game.rs`).
fn metrics(chance: &mut Chance) -> Metrics {
    match chance.is_on(Fault::Poison) && !chance.one_in(8) {
        true => poison::metrics(),
        false => Metrics::with_names(&[], Refusal::NAMES, &[]),
    }
}

fn fetch_options(chance: &mut Chance) -> FetchOptions {
    let bytes_max = chance.pick(&[300, 2_000, 30_000]) as usize;
    FetchOptions {
        client_id: "huntd".to_owned(),
        input_topic: TOPIC.to_owned(),
        connections_per_broker: chance.pick(&[1, 1, 2]) as usize,
        fetch_wait_ms_max: chance.pick(&[10, 100, 500]) as u32,
        tick_every_ms: 1_000,
        fetch_bytes_max: 2 * bytes_max,
        partition_bytes_max: bytes_max,
        receive_buffer_bytes: 128 * 1024,
        batch_bytes_max: 64 * 1024,
        read_committed: true,
    }
}

fn publisher_options(chance: &mut Chance) -> publisher::PublisherOptions {
    publisher::PublisherOptions {
        client: ClientOptions {
            brokers: vec!["10.0.0.1:9092".to_owned()],
            client_id: "huntd".to_owned(),
            security: Security::default(),
            group: "huntd".to_owned(),
        },
        ring: RingKind::IoUring,
        input_topic: TOPIC.to_owned(),
        output_topic: OUTPUT_TOPIC.to_owned(),
        dead_letter_topic: "letters".to_owned(),
        format: Format::Binary,
        compression: huntd::output::frame::Compression::None,
        carry_players: true,
        skips: Vec::new(),
        tick_every_ms: chance.pick(&[0, 1_000, 1_000]) as u32,
    }
}
