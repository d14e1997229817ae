//! A publisher under test, on a thread of its own.

use super::{Cluster, read_partition, wait_for};
use huntd::control::dialler::{self, DialOptions};
use huntd::output::frame::{Compression, Format, Frame};
use huntd::output::mark::Mark;
use huntd::ownership::event::{DeliveryFailure, ToControl};
use huntd::ownership::foreign_span::{ForeignSpan, SpanCheck, SpanResult};
use huntd::publisher::{
    self, Outgoing, PublisherEnds, PublisherError, PublisherOptions, ToPublisher,
};
use huntd::queue;
use huntd::queue::bell::Bell;
use huntd::runtime::ring::RingKind;
use huntd::telemetry::metrics::Metrics;
use huntd::telemetry::progress::{Progress, SHARDS_MAX};
use huntd::testing::frame_maker::FrameMaker;
use rdkafka::message::Message;
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// A running publisher and the hot thread's ends of it.
pub struct Running {
    pub inbox: queue::Sender<ToPublisher>,
    pub free_frames: queue::Receiver<Box<Frame>>,
    pub control: queue::Receiver<ToControl>,
    pub heard: Heard,
    pub bell: Arc<Bell>,
    pub progress: Arc<Progress>,
    pub metrics: Arc<Metrics>,
    pub thread: JoinHandle<Result<(), PublisherError>>,
    pub sent: u64,
}

/// What the publisher has told the control thread.
#[derive(Default)]
pub struct Heard {
    pub spans: VecDeque<ForeignSpan>,
    pub failures: VecDeque<DeliveryFailure>,
}

impl Running {
    pub fn start(cluster: &Cluster, format: Format) -> Running {
        Running::start_ticking(cluster, format, 0)
    }

    /// Starts a publisher that appends a tick every so many milliseconds.
    pub fn start_ticking(cluster: &Cluster, format: Format, tick_every_ms: u32) -> Running {
        let options = PublisherOptions {
            client: super::client(cluster),
            ring: RingKind::IoUring,
            input_topic: "events".to_owned(),
            output_topic: "updates".to_owned(),
            dead_letter_topic: "dead".to_owned(),
            format,
            compression: Compression::None,
            tick_every_ms,
            carry_players: true,
            skips: Vec::new(),
        };
        let (inbox, inbox_receiver) = queue::bounded(64);
        let (free_sender, free_frames) = queue::bounded(4096);
        let (control_sender, control) = queue::bounded(SHARDS_MAX);
        let bell = Arc::new(Bell::new().expect("an eventfd"));
        let progress = Arc::new(Progress::new());
        let metrics = Arc::new(Metrics::new());
        let ends = PublisherEnds {
            inbox: inbox_receiver,
            free_frames: free_sender,
            control: control_sender,
            snapshots: queue::bounded(64).0,
            snapshots_bell: Arc::new(Bell::new().expect("an eventfd")),
            bell: bell.clone(),
            progress: progress.clone(),
            metrics: metrics.clone(),
            game: huntd::hunt::schema(),
        };
        let (dial_ends, dialler_ends) = dialler::ends(&bell).expect("an eventfd");
        let dial = DialOptions {
            client_id: options.client.client_id.clone(),
            security: options.client.security.clone(),
            ..super::dial_options(cluster, &options.output_topic)
        };
        // It ends with the publisher.
        thread::spawn(move || dialler::run(dial, dialler_ends));
        let thread = thread::spawn(move || publisher::run(options, ends, dial_ends));
        let heard = Heard::default();
        Running { inbox, free_frames, control, heard, bell, progress, metrics, thread, sent: 0 }
    }

    /// Begins a shard's ownership where its output ends now.
    pub fn begin(&self, cluster: &Cluster, shard: &FrameMaker) {
        self.begin_at(read_partition(cluster, "updates", shard.partition).len() as i64, shard);
    }

    pub fn begin_at(&self, output_offset: i64, shard: &FrameMaker) {
        let FrameMaker { partition, ownership_id, owner_epoch, next_update, next_offset, chain } =
            *shard;
        let mark = Mark { output_offset, owner_epoch, next_update, next_offset, chain };
        self.tell(ToPublisher::Begin { partition, ownership_id, mark, zones: 3 });
    }

    /// Reads what lies between frames, as the control thread does.
    pub fn check_spans(&mut self, cluster: &Cluster) {
        self.hear();
        while let Some(span) = self.heard.spans.pop_front() {
            let mut check = SpanCheck::new(span, huntd::hunt::change::UPDATES);
            for record in read_partition(cluster, "updates", span.partition) {
                check.take(record.offset(), record.payload().expect("a value"));
            }
            let Some(SpanResult::Passed(mark)) = check.result() else {
                panic!("{:?}", check.result());
            };
            let ForeignSpan { partition, ownership_id, .. } = span;
            self.tell(ToPublisher::SpanChecked { partition, ownership_id, mark });
        }
    }

    pub fn hear(&mut self) {
        while let Some(message) = self.control.try_receive() {
            match message {
                ToControl::ForeignSpan(span) => self.heard.spans.push_back(span),
                ToControl::DeliveryFailed(failure) => self.heard.failures.push_back(failure),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Tells the publisher, once there is room for that.
    pub fn tell(&self, message: ToPublisher) {
        let mut waiting = Some(message);
        wait_for("room in the inbox", || match self.inbox.try_send(waiting.take().unwrap()) {
            Ok(()) => true,
            Err(message) => {
                waiting = Some(message);
                false
            }
        });
        self.bell.ring();
    }

    pub fn send(&mut self, outgoing: Outgoing) {
        if matches!(outgoing, Outgoing::Frame(_)) {
            self.sent += 1;
        }
        self.tell(ToPublisher::Send(outgoing));
    }

    pub fn send_frames(&mut self, shard: &mut FrameMaker, frames: usize) {
        for number in 0..frames {
            self.send(Outgoing::Frame(shard.frame(number as u32 % 5)));
        }
    }

    pub fn acked(&self, shard: &FrameMaker) -> bool {
        self.progress.shard(shard.partition).acked.get() == shard.next_offset
    }

    pub fn settled(&self, partition: i32) -> u64 {
        self.progress.shard(partition).settled.get()
    }

    pub fn next_failure(&mut self) -> DeliveryFailure {
        wait_for("a delivery failure", || {
            self.hear();
            !self.heard.failures.is_empty()
        });
        self.heard.failures.pop_front().expect("it was waited for")
    }

    /// Closes the inbox, waits for the end, and counts the frames that came back.
    pub fn stop(self) -> Result<(), PublisherError> {
        let Running { inbox, mut free_frames, bell, thread, sent, .. } = self;
        drop(inbox);
        bell.ring();
        let ended = thread.join().expect("the publisher does not panic");
        let mut recycled = 0;
        while free_frames.try_receive().is_some() {
            recycled += 1;
        }
        assert_eq!(recycled, sent, "frames are recycled, never lost");
        ended
    }
}
