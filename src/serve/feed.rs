//! The feed thread: reads the output topic and sends the serving thread what counts.
//!
//! A zone that can begin nowhere is halted with one sentence; the others go on.

use crate::kafka::METADATA_MS_MAX;
use crate::kafka::client::{
    ClientOptions, KafkaReader, is_of_unused_group, is_out_of_range, partitions, read_from, reader,
    reader_config,
};
use crate::kafka::right::Right;
use crate::kafka::topic_error::TopicError;
use crate::output::fence_id::InputTag;
use crate::runtime::wall_clock::unix_ms;
use crate::serve::ServeError;
use crate::serve::answers::AsOf;
use crate::serve::beginning::{Beginning, Beginnings, NoBeginning};
use crate::serve::feed_messages::{FeedMessage, FeedSender};
use crate::serve::follower::{Followed, Follower};
use crate::serve::log_ends::{LogEnds, NamedEnd};
use crate::serve::topic_reports::{TopicReport, TopicReports};
use crate::snapshot::SnapshotOptions;
use crate::telemetry::repeated::Repeated;
use crate::view::game::ViewedGame;
use crate::view::zone::{ZonePosition, ZoneView};
use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::Message;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use smol::channel::Receiver;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// KiB of records that are fetched ahead.
const FETCHED_KBYTES_MAX: usize = 8 * 1024;

/// Interval of the check whether the thread has to end.
const POLL_WAIT: Duration = Duration::from_millis(100);

/// Limit of the time in which brokers answer the feed itself.
const ANSWER_WAIT: Duration = Duration::from_millis(METADATA_MS_MAX);

/// Time in which zones are begun before those that are read go on. Each takes milliseconds, or
/// seconds if the leader of its replica is silent.
const BEGINNING_MAX: Duration = Duration::from_secs(3);

/// Time after a zone has failed to begin in which none begins: the other zones are read as long as
/// one failure may take.
const BEGIN_PAUSE: Duration = Duration::from_secs(3);

/// Age in milliseconds from which on a frame is history. While a game goes on, a reader never
/// reaches the log's end, so a zone whose frames are younger counts as caught up.
const LIVE_AGE_MS_MAX: i64 = 1_000;

/// Why no zone can be read any further, and what to do.
const OUTPUT_RECREATED: &str =
    "the output topic was deleted and created again; restart huntd serve";

/// Why a zone is not served beside one that is shown at a moment.
const NOT_SHOWN: &str = "this process shows another zone alone, at a moment; ask one without --at";

/// The options of the feed.
#[derive(Clone, Debug)]
pub(crate) struct FeedOptions {
    /// The connections to the brokers.
    pub client: ClientOptions,
    /// The topic with the events.
    pub input_topic: String,
    /// The topic with the frames.
    pub output_topic: String,
    /// The places of snapshots.
    pub snapshots: SnapshotOptions,
    /// Milliseconds between two ticks of a zone; 0: there are none.
    pub tick_every_ms: u32,
    /// The moment that is shown instead of what is published.
    pub moment: Option<ZoneMoment>,
}

/// A zone at a moment.
#[derive(Clone, Debug)]
pub(crate) struct ZoneMoment {
    /// The record after which it is shown.
    pub as_of: AsOf,
    /// Its state.
    pub state: Vec<u8>,
    /// Its place in input and output.
    pub position: ZonePosition,
}

/// Reads the topic for the serving thread.
pub(crate) struct Feed {
    options: FeedOptions,
    topics: TopicReports,
    /// The last report about the topics.
    topic_report: Option<TopicReport>,
    /// Id of the output topic that is read; 0: not known.
    output_id: u128,
    beginnings: Beginnings,
    game: Arc<dyn ViewedGame>,
    /// Rules that were read again.
    reloaded: Receiver<Arc<dyn ViewedGame>>,
    consumer: Arc<KafkaReader>,
    zones: u16,
    /// `None`: a zone is shown at a moment.
    ends: Option<LogEnds>,
    /// Zones that begin once their leaders name their logs' ends.
    unbegun: BTreeSet<u16>,
    /// The one of them that is tried first.
    next_begun: u16,
    /// When a zone may begin after one has failed to.
    begin_at: Option<Instant>,
    /// librdkafka has given up a partition, whose next record is not in the log any more.
    has_lost: bool,
    trouble: Repeated,
}

impl Feed {
    /// Connects, and learns how many zones there are.
    pub(crate) fn connect(
        options: FeedOptions,
        topics: TopicReports,
        game: Arc<dyn ViewedGame>,
        reloaded: Receiver<Arc<dyn ViewedGame>>,
    ) -> Result<Feed, ServeError> {
        let unusable = |error: KafkaError| TopicError::Unreachable(error.to_string());
        let mut config = reader_config(&options.client);
        // Frames are part of no transaction, and transactions of other programs must not hide them.
        config.set("isolation.level", "read_uncommitted").set("fetch.error.backoff.ms", "10");
        config.set("queued.max.messages.kbytes", FETCHED_KBYTES_MAX.to_string());
        let consumer = Arc::new(reader(&config, &options.client).map_err(unusable)?);
        let right = match options.moment {
            Some(_) => Right::Describe,
            None => Right::Read,
        };
        let zones = partitions(&consumer, &options.output_topic, right, ANSWER_WAIT)?;
        let zones = TopicError::unless_too_many(&options.output_topic, zones as usize)?;
        let ends = match options.moment {
            Some(_) => None,
            None => {
                let ends = LogEnds::start(consumer.clone(), options.output_topic.clone(), zones);
                Some(ends.map_err(ServeError::Resources)?)
            }
        };
        Ok(Feed {
            beginnings: Beginnings::new(&options),
            options,
            topics,
            topic_report: None,
            output_id: 0,
            game,
            reloaded,
            consumer,
            zones,
            ends,
            unbegun: (0..zones).collect(),
            next_begun: 0,
            begin_at: None,
            has_lost: false,
            trouble: Repeated::new(),
        })
    }

    /// Partitions of the output topic.
    pub(crate) fn zones(&self) -> u16 {
        self.zones
    }

    /// Reads until it is asked to stop, or until the receiver is gone.
    pub(crate) fn run(mut self, sender: &FeedSender, stop: &Arc<AtomicBool>) {
        match (self.options.moment.take(), self.ends.take()) {
            (Some(moment), _) => self.show(&moment, sender, stop),
            (None, Some(ends)) => self.follow(&ends, sender, stop),
            (None, None) => unreachable!("without a moment, it has asked for the logs' ends"),
        }
    }

    /// Reads all zones, each from the time on at which its leader names its log's end.
    fn follow(&mut self, ends: &LogEnds, sender: &FeedSender, stop: &Arc<AtomicBool>) {
        let mut readings: Vec<Option<Reading>> = (0..self.zones).map(|_| None).collect();
        // Before anything is read: what is read later has to be of the same topic.
        self.topic_report = self.topics.wait(ANSWER_WAIT);
        if let Some(input_id) = self.topic_report.and_then(|report| report.input_id) {
            self.beginnings.know_input(input_id);
        }
        self.learn_topics(&mut readings, sender);
        let consumer = self.consumer.clone();
        while !stop.load(Ordering::Acquire) && !sender.is_closed() {
            sender.count_turn();
            let polled = consumer.poll(Duration::ZERO).or_else(|| {
                sender.call();
                consumer.poll(POLL_WAIT)
            });
            // Before the record: it may change to them.
            self.take_rules(&mut readings, sender);
            match polled {
                None => {}
                Some(Ok(message)) => {
                    let zone = message.partition() as u16;
                    if let Some(Some(reading)) = readings.get_mut(usize::from(zone))
                        && let Err(why) = reading.take(zone, &message, sender)
                    {
                        self.begin_again(zone, &why, &mut readings);
                    }
                }
                Some(Err(KafkaError::PartitionEOF(zone))) => {
                    let zone = zone as u16;
                    if let Some(Some(reading)) = readings.get_mut(usize::from(zone))
                        && let Err(why) = reading.meet_end(zone, sender)
                    {
                        self.begin_again(zone, &why, &mut readings);
                    }
                }
                Some(Err(error)) => self.report(&error),
            }
            if let Some(named) = ends.take() {
                self.halt_lost(&named, &mut readings, stop, sender);
                self.begin_named(&named, &mut readings, stop, sender);
                learn_ends(named, &mut readings, sender);
                self.topics.ask();
            }
            if let Some(report) = self.topics.take() {
                self.topic_report = Some(report);
                self.learn_topics(&mut readings, sender);
            }
        }
    }

    /// Takes what is known of the topics.
    fn learn_topics(&mut self, readings: &mut [Option<Reading>], sender: &FeedSender) {
        if let Some(report) = &self.topic_report {
            let unbegun = &mut self.unbegun;
            learn_topics(&mut self.output_id, report, (readings, unbegun), sender);
        }
    }

    /// Shows a zone at a moment, until it is asked to stop.
    fn show(&self, moment: &ZoneMoment, sender: &FeedSender, stop: &Arc<AtomicBool>) {
        let (zone, owner_epoch) = (moment.as_of.zone, 0);
        for other in (0..self.zones).filter(|other| *other != zone) {
            sender.send(FeedMessage::Halted(other, NOT_SHOWN.to_owned()));
        }
        sender.send(match self.game.restore(&moment.state) {
            Ok(image) => {
                let view = ZoneView::of_engine(image, self.game.clone(), moment.position);
                FeedMessage::Begun(Box::new(view))
            }
            Err(error) => FeedMessage::Halted(zone, error.to_string()),
        });
        sender.send(FeedMessage::Live { zone, owner_epoch, owner_heard: Some(Instant::now()) });
        while !stop.load(Ordering::Acquire) && !sender.is_closed() {
            sender.count_turn();
            // A moment does not become old.
            let now = Instant::now();
            sender.send(FeedMessage::OwnerHeard { zone, owner_epoch, published: now });
            sender.send(FeedMessage::Current { zone, asked: now });
            sender.call();
            std::thread::sleep(POLL_WAIT);
        }
    }

    /// Reads every zone from its next record on.
    fn assign(&self, readings: &[Option<Reading>]) {
        let mut places = TopicPartitionList::new();
        for (zone, reading) in (0..).zip(readings) {
            let Some(Reading { next_record, .. }) = reading else { continue };
            let topic = &self.options.output_topic;
            let added = places.add_partition_offset(topic, zone, Offset::Offset(*next_record));
            added.expect("an offset of the log is a valid one");
        }
        read_from(&self.consumer, &places).expect("a valid list of partitions is assigned");
    }

    /// Lets rules that were read again be known.
    fn take_rules(&mut self, readings: &mut [Option<Reading>], sender: &FeedSender) {
        if let Ok(game) = self.reloaded.try_recv() {
            readings.iter_mut().flatten().for_each(|reading| reading.follower.know(&game));
            self.game = game.clone();
            sender.send(FeedMessage::Rules(game));
        }
    }

    /// An error that librdkafka does not retry by itself concerns a position that is gone.
    fn report(&mut self, error: &KafkaError) {
        if is_of_unused_group(error) {
            return;
        }
        if let Some(withheld) = self.trouble.notice(Instant::now()) {
            tracing::warn!(withheld, "reading `{}`: {error}", self.options.output_topic);
        }
        // This error may come again at once, so leaders are asked after their next answer.
        self.has_lost |= is_out_of_range(error);
    }

    /// Once a partition is given up: halts the zones whose next record is not in the log any more,
    /// and reads the others again from where they are.
    fn halt_lost(
        &mut self,
        named: &[Option<NamedEnd>],
        readings: &mut [Option<Reading>],
        stop: &Arc<AtomicBool>,
        sender: &FeedSender,
    ) {
        if !std::mem::take(&mut self.has_lost) {
            return;
        }
        let until = Instant::now() + ANSWER_WAIT;
        for (zone, reading) in (0..).zip(&mut *readings) {
            let Some(Reading { next_record, .. }) = reading else { continue };
            if !has_end(named, zone) {
                continue;
            }
            if stop.load(Ordering::Acquire) || Instant::now() >= until {
                break;
            }
            sender.count_turn();
            // Of a zone that is not looked at now, the error comes again.
            let sentence = self.log(zone).ok().and_then(|log| lost(*next_record, log));
            if let Some(sentence) = sentence {
                sender.send(FeedMessage::Halted(zone, sentence));
                *reading = None;
            }
        }
        // librdkafka does not name the partition.
        self.assign(readings);
    }

    /// Where a zone's log starts and ends (exclusive).
    fn log(&self, zone: u16) -> KafkaResult<(i64, i64)> {
        self.consumer.fetch_watermarks(&self.options.output_topic, zone.into(), ANSWER_WAIT)
    }

    /// Begins a zone. `Ok(None)`: it is halted. The error says why it cannot begin now.
    fn begin(
        &self,
        zone: u16,
        stop: &Arc<AtomicBool>,
        sender: &FeedSender,
    ) -> Result<Option<Reading>, String> {
        sender.count_turn();
        let mut watch = || {
            sender.count_turn();
            match stop.load(Ordering::Acquire) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        let survey = || self.log(zone).map_err(|error| error.to_string());
        let reading = match self.beginnings.find(zone, &survey, &self.game, &mut watch) {
            Ok((Beginning { follower, begun, next_record }, log_end)) => {
                if let Some(begun) = begun {
                    sender.send(FeedMessage::Begun(begun));
                }
                Ok(Some(Reading::new(follower, next_record, log_end)))
            }
            Err(NoBeginning::Never(sentence)) => {
                sender.send(FeedMessage::Halted(zone, sentence));
                Ok(None)
            }
            Err(NoBeginning::NotNow(why)) => Err(why),
        };
        sender.call();
        reading
    }

    /// Begins zones that have not begun, and whose ends are named. Those for which there is no time
    /// begin after a later answer: after a failure, which takes its time, others are read first.
    fn begin_named(
        &mut self,
        named: &[Option<NamedEnd>],
        readings: &mut [Option<Reading>],
        stop: &Arc<AtomicBool>,
        sender: &FeedSender,
    ) {
        if self.begin_at.is_some_and(|at| Instant::now() < at) {
            return;
        }
        let (unbegun, first) = (&self.unbegun, self.next_begun);
        let due = unbegun.range(first..).chain(unbegun.range(..first)).copied();
        let due: Vec<u16> = due.filter(|zone| has_end(named, *zone)).collect();
        let until = Instant::now() + BEGINNING_MAX;
        let mut has_begun = false;
        for zone in due {
            if stop.load(Ordering::Acquire) || Instant::now() >= until {
                break;
            }
            self.next_begun = zone + 1;
            match self.begin(zone, stop, sender) {
                Ok(reading) => {
                    self.unbegun.remove(&zone);
                    readings[usize::from(zone)] = reading;
                    has_begun = true;
                }
                Err(why) => {
                    self.begin_at = Some(Instant::now() + BEGIN_PAUSE);
                    if let Some(withheld) = self.trouble.notice(Instant::now()) {
                        tracing::warn!(withheld, zone, "not loaded yet: {why}");
                    }
                }
            }
        }
        if has_begun {
            self.learn_topics(readings, sender);
            self.assign(readings);
        }
    }

    /// Has a zone begin elsewhere: the snapshot that it has begun with is not of this output.
    fn begin_again(&mut self, zone: u16, why: &str, readings: &mut [Option<Reading>]) {
        tracing::warn!(
            zone,
            "a snapshot is not used: {why}; the output topic was deleted and created again since \
             then, or has lost records; the zone begins with another snapshot, or at the start of \
             its log"
        );
        if let Some(reading) = readings[usize::from(zone)].take() {
            self.beginnings.refuse(zone, reading.follower.mark());
        }
        self.unbegun.insert(zone);
    }
}

/// Returns whether the end of a zone's log is named.
fn has_end(named: &[Option<NamedEnd>], zone: u16) -> bool {
    named.get(usize::from(zone)).is_some_and(Option::is_some)
}

/// Takes where the zones' logs end.
fn learn_ends(ends: Vec<Option<NamedEnd>>, readings: &mut [Option<Reading>], sender: &FeedSender) {
    for (zone, (reading, end)) in (0..).zip(readings.iter_mut().zip(ends)) {
        if let (Some(reading), Some(end)) = (reading, end) {
            reading.learn_end(zone, end, sender);
        }
    }
}

/// Takes which topics there are. What is read of another output is none of the zones' updates.
fn learn_topics(
    output_id: &mut u128,
    report: &TopicReport,
    (readings, unbegun): (&mut [Option<Reading>], &mut BTreeSet<u16>),
    sender: &FeedSender,
) {
    let known = std::mem::replace(output_id, report.output_id);
    let is_recreated = known != 0 && known != report.output_id;
    for (zone, reading) in (0..).zip(readings) {
        if !is_recreated {
            reading.iter_mut().for_each(|reading| reading.learn_topics(zone, report, sender));
        } else if reading.take().is_some() || unbegun.remove(&zone) {
            sender.send(FeedMessage::Halted(zone, OUTPUT_RECREATED.to_owned()));
        }
    }
}

/// The reading of one zone's partition.
struct Reading {
    follower: Follower,
    /// Offset of the record that is read next.
    next_record: i64,
    /// Where its log ended when the reading began; `None` once the zone is live.
    awaited_end: Option<i64>,
    /// An end that the brokers have named since, until it is reached.
    named_end: Option<NamedEnd>,
    /// The last end that they have named.
    last_end: Option<NamedEnd>,
    /// When the last frame or fence of the zone's owner was published.
    owner_heard: Option<Instant>,
    /// The output was still the topic that is read when the brokers were asked at this time.
    same_output_at: Option<Instant>,
    /// The input topic that there is now.
    present_input: Option<InputTag>,
    /// It is not the one that the zone is played from.
    is_input_another: bool,
}

impl Reading {
    fn new(follower: Follower, next_record: i64, log_end: i64) -> Reading {
        Reading {
            follower,
            next_record,
            awaited_end: Some(log_end),
            named_end: None,
            last_end: None,
            owner_heard: None,
            same_output_at: None,
            present_input: None,
            is_input_another: false,
        }
    }

    /// The output is still the one that is read; the input is the one that the report names.
    fn learn_topics(&mut self, zone: u16, report: &TopicReport, sender: &FeedSender) {
        self.same_output_at = Some(report.asked);
        let tag = |id: u128| InputTag::of_topic(&id.to_be_bytes());
        self.present_input = report.input_id.map(tag).or(self.present_input);
        self.compare_inputs(zone, sender);
        self.confirm(zone, sender);
    }

    /// Tells whether the zone is played from the present input, once its log is read: before, the
    /// log may be about an earlier one.
    fn compare_inputs(&mut self, zone: u16, sender: &FeedSender) {
        let Some(present) = self.present_input.filter(|_| self.awaited_end.is_none()) else {
            return;
        };
        let is_another = !self.follower.is_played_from(present);
        if std::mem::replace(&mut self.is_input_another, is_another) != is_another {
            sender.send(FeedMessage::Input { zone, is_another });
        }
    }

    /// Takes a record of the log. The error says why the zone's snapshot is not of this log.
    fn take(
        &mut self,
        zone: u16,
        message: &impl Message,
        sender: &FeedSender,
    ) -> Result<(), String> {
        self.next_record = message.offset() + 1;
        let payload = message.payload().unwrap_or_default();
        let published_ms = message.timestamp().to_millis().unwrap_or(0);
        let published = self.published(message.offset(), published_ms);
        let mut given = Vec::new();
        let was_at_gap = self.follower.is_at_gap();
        self.follower.take(message.offset(), payload, &mut |part| given.push(part));
        if self.follower.is_at_gap() && !was_at_gap {
            tracing::warn!(
                zone,
                offset = message.offset(),
                "updates are missing before this frame, so answers stand still until an owner has \
                 published them again; if none does, restart huntd serve"
            );
        }
        for followed in given {
            if let Followed::Updates(..) | Followed::OwnerHeard = followed {
                self.owner_heard = self.owner_heard.max(Some(published));
            }
            sender.send(message_of(zone, followed, &self.follower, published)?);
        }
        let is_of_now = || unix_ms().saturating_sub(published_ms) <= LIVE_AGE_MS_MAX;
        if self.awaited_end.is_some_and(|end| self.next_record >= end) && is_of_now() {
            self.become_live(zone, sender);
        }
        self.confirm(zone, sender);
        Ok(())
    }

    /// When a record was published: by the publisher's clock, but after the brokers were asked for
    /// an end that lies before it.
    fn published(&self, offset: i64, published_ms: i64) -> Instant {
        let now = Instant::now();
        let age_ms = unix_ms().saturating_sub(published_ms).max(0).cast_unsigned();
        let by_clock = now.checked_sub(Duration::from_millis(age_ms));
        let before = self.last_end.filter(|end| end.next_record <= offset);
        by_clock.max(before.map(|end| end.asked)).unwrap_or(now)
    }

    /// The brokers have named an end. An earlier one is reached before, unless the log was cut.
    fn learn_end(&mut self, zone: u16, end: NamedEnd, sender: &FeedSender) {
        let earlier = self.named_end.filter(|earlier| earlier.next_record <= end.next_record);
        self.named_end = Some(earlier.unwrap_or(end));
        self.last_end = Some(end);
        self.confirm(zone, sender);
    }

    /// Once the named end is reached, all before it is read: if the output was still the same topic
    /// after the brokers had named it.
    fn confirm(&mut self, zone: u16, sender: &FeedSender) {
        let is_reached = |end: &mut NamedEnd| {
            let is_of_this_topic = self.same_output_at.is_some_and(|at| end.answered <= at);
            is_of_this_topic && self.next_record >= end.next_record
        };
        if self.follower.is_at_gap() {
            return;
        }
        if let Some(NamedEnd { asked, .. }) = self.named_end.take_if(is_reached) {
            sender.send(FeedMessage::Current { zone, asked });
        }
    }

    /// The log has no further record at present. The error is that of [`Reading::take`].
    fn meet_end(&mut self, zone: u16, sender: &FeedSender) -> Result<(), String> {
        if let Some(begun) = self.follower.at_end() {
            sender.send(message_of(zone, begun, &self.follower, Instant::now())?);
        }
        self.become_live(zone, sender);
        Ok(())
    }

    fn become_live(&mut self, zone: u16, sender: &FeedSender) {
        self.awaited_end = None;
        self.compare_inputs(zone, sender);
        let (owner_epoch, owner_heard) = (self.follower.owner_epoch(), self.owner_heard);
        sender.send(FeedMessage::Live { zone, owner_epoch, owner_heard });
    }
}

/// Why a log from start to end (exclusive) cannot be read from the next record on, and what to do.
/// `None`: it can.
fn lost(next_record: i64, (log_start, log_end): (i64, i64)) -> Option<String> {
    if next_record < log_start {
        return Some(format!(
            "its log was cut before it was read: it begins at offset {log_start}, and the next \
             one to read is {next_record}; raise its retention, and restart huntd serve"
        ));
    }
    (next_record > log_end).then(|| {
        format!(
            "its log has lost its end: it ends at offset {log_end}, and the next one to read is \
             {next_record}; restore the output topic, and restart huntd serve"
        )
    })
}

/// The message for the serving thread. The error says why the zone's snapshot is not of this log.
fn message_of(
    zone: u16,
    followed: Followed,
    follower: &Follower,
    published: Instant,
) -> Result<FeedMessage, String> {
    let owner_epoch = follower.owner_epoch();
    Ok(match followed {
        Followed::Begun(begun) => FeedMessage::Begun(begun),
        Followed::Updates(updates, next_offset) => {
            FeedMessage::Frame { zone, updates, next_offset, owner_epoch, published }
        }
        Followed::OwnerHeard => FeedMessage::OwnerHeard { zone, owner_epoch, published },
        Followed::Halted(sentence) => FeedMessage::Halted(zone, sentence),
        Followed::OtherLog(why) => return Err(why),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hunt::frames::encode;
    use crate::kafka::security::Security;
    use crate::kit::update::Updates;
    use crate::output::fence_id::FenceIds;
    use crate::output::frame::{Format, Frame, FrameHeader, FrameKind};
    use crate::queue::bell::Bell;
    use crate::serve::topic_reports::topic_reports;
    use crate::testing::frame_maker::FrameMaker;
    use crate::testing::hostile_zone::rulebook;
    use rdkafka::ClientContext;
    use rdkafka::error::RDKafkaErrorCode;
    use rdkafka::message::{OwnedMessage, Timestamp};
    use rdkafka::mocking::MockCluster;
    use smol::channel;

    /// A record of the log with a frame.
    fn record(offset: i64, frame: &Frame) -> OwnedMessage {
        let mut bytes = Vec::new();
        let header = FrameHeader { ruleset: rulebook(false).first().ruleset, ..frame.header };
        encode(Format::Binary, &header, frame.updates.as_slice(), &mut bytes);
        let time = Timestamp::CreateTime(unix_ms());
        OwnedMessage::new(Some(bytes), None, "updates".to_owned(), time, 0, offset, None)
    }

    fn report(asked: Instant, output_id: u128, input_id: Option<u128>) -> TopicReport {
        TopicReport { asked, output_id, input_id }
    }

    /// A sender, and what is sent.
    fn sender() -> (FeedSender, Receiver<FeedMessage>) {
        let (messages, told) = channel::unbounded();
        (FeedSender::new(messages, Arc::new(Bell::new().unwrap())), told)
    }

    #[test]
    fn all_zones_that_are_not_halted_halt_when_the_output_is_another_topic() {
        let (sender, told) = sender();
        let reading =
            || Some(Reading::new(Follower::from_start(0, Arc::new(rulebook(false))), 0, 0));
        let (mut readings, mut known) = (vec![reading(), None, reading(), None], 0);
        let mut unbegun = BTreeSet::from([3]);
        let mut learn = |output_id: u128| {
            let report = report(Instant::now(), output_id, None);
            learn_topics(&mut known, &report, (&mut readings, &mut unbegun), &sender);
        };
        [0, 7, 7].into_iter().for_each(&mut learn);
        assert!(told.is_empty(), "the first id that is told is the one");
        [8, 8].into_iter().for_each(learn);
        let told: Vec<FeedMessage> = std::iter::from_fn(|| told.try_recv().ok()).collect();
        let halted = told.iter().map(|message| match message {
            FeedMessage::Halted(zone, sentence) if sentence.contains("restart huntd serve") => zone,
            other => panic!("{other:?}"),
        });
        assert!(halted.eq(&[0, 2, 3]), "{told:?}");
        assert!(readings.iter().all(Option::is_none) && unbegun.is_empty());
    }

    /// A feed of the topic `updates` of a mock cluster.
    fn feed(cluster: &MockCluster<'_, impl ClientContext>) -> Feed {
        let client = ClientOptions {
            brokers: vec![cluster.bootstrap_servers()],
            client_id: "test".to_owned(),
            security: Security::default(),
            group: "test".to_owned(),
        };
        let snapshots = SnapshotOptions { directory: None, every_ms: 1, keep: 1, topic: None };
        let options = FeedOptions {
            client,
            input_topic: "events".to_owned(),
            output_topic: "updates".to_owned(),
            snapshots,
            tick_every_ms: 0,
            moment: None,
        };
        let (topics, watcher) = topic_reports();
        watcher.report(report(Instant::now(), 7, None));
        let (_games, reloaded) = channel::bounded(1);
        Feed::connect(options, topics, Arc::new(rulebook(false)), reloaded).expect("brokers")
    }

    #[test]
    fn a_zone_without_a_leader_keeps_no_other_from_being_loaded_and_is_loaded_once_it_has_one() {
        let cluster = MockCluster::new(1).expect("a mock cluster");
        cluster.create_topic("updates", 2, 1).expect("a topic");
        let lead = |zone, leader| cluster.partition_leader("updates", zone, leader).unwrap();
        [0, 1].into_iter().for_each(|zone| lead(zone, None));
        let feed = feed(&cluster);
        let (sender, told) = sender();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || feed.run(&sender, &stopped));
        let await_live = |expected: u16| {
            let until = Instant::now() + Duration::from_secs(600);
            loop {
                match told.try_recv() {
                    Ok(FeedMessage::Live { zone, .. }) if zone == expected => return,
                    Ok(FeedMessage::Halted(zone, why)) => panic!("{zone}: {why}"),
                    Ok(_) => {}
                    Err(_) => std::thread::sleep(Duration::from_millis(1)),
                }
                assert!(Instant::now() < until, "zone {expected} is not loaded");
            }
        };
        lead(0, Some(1));
        await_live(0);
        lead(1, Some(1));
        await_live(1);
        stop.store(true, Ordering::Release);
        thread.join().expect("it ends");
    }

    #[test]
    fn a_lost_zone_halts_once_its_leader_answers_and_is_read_again_until_then() {
        let cluster = MockCluster::new(1).expect("a mock cluster");
        cluster.create_topic("updates", 2, 1).expect("a topic");
        let mut feed = feed(&cluster);
        let (sender, told) = sender();
        let reading =
            || Some(Reading::new(Follower::from_start(0, Arc::new(rulebook(false))), 9, 9));
        let (mut readings, stop) = (vec![reading(), reading()], Arc::default());
        let now = Instant::now();
        let end = NamedEnd { next_record: 0, asked: now, answered: now };
        feed.report(&KafkaError::MessageConsumption(RDKafkaErrorCode::OffsetOutOfRange));
        assert!(told.is_empty(), "nobody has been asked yet");
        feed.halt_lost(&[Some(end), None], &mut readings, &stop, &sender);
        assert!(matches!(told.try_recv(), Ok(FeedMessage::Halted(0, _))));
        assert!(told.is_empty() && readings[0].is_none() && readings[1].is_some());
        let read = feed.consumer.assignment().expect("it is asked");
        assert_eq!(read.elements().iter().map(|of| of.partition()).collect::<Vec<_>>(), [1]);
        feed.halt_lost(&[None, Some(end)], &mut readings, &stop, &sender);
        assert!(told.is_empty(), "librdkafka has found no other");
        feed.report(&KafkaError::MessageConsumption(RDKafkaErrorCode::OffsetOutOfRange));
        feed.halt_lost(&[None, Some(end)], &mut readings, &stop, &sender);
        assert!(matches!(told.try_recv(), Ok(FeedMessage::Halted(1, _))));
    }

    #[test]
    fn a_zone_takes_events_while_the_input_is_the_one_that_its_owner_played_last() {
        const NO_NEWS: [bool; 0] = [];
        let (sender, told) = sender();
        let is_another = || {
            let told = std::iter::from_fn(|| told.try_recv().ok());
            told.filter_map(|message| match message {
                FeedMessage::Input { is_another, .. } => Some(is_another),
                _ => None,
            })
            .collect::<Vec<_>>()
        };
        let bare = |header| {
            let Frame { partition, ownership_id, received_at, .. } = *FrameMaker::new(0).frame(0);
            Frame { partition, ownership_id, header, received_at, updates: Updates::new() }
        };
        let fence = |owner: &FrameMaker, input_id: u128| {
            let mut ids = FenceIds::new("huntd", owner.owner_epoch);
            ids.read_from(&input_id.to_be_bytes());
            bare(FrameHeader { next_offset: -1, ..owner.fence(ids.next()) })
        };
        let mut owner = FrameMaker::new(0);
        let mut reading = Reading::new(Follower::from_start(0, Arc::new(rulebook(false))), 0, 2);
        let input = |reading: &mut Reading, input_id| {
            reading.learn_topics(0, &report(Instant::now(), 1, input_id), &sender);
            is_another()
        };
        assert_eq!(input(&mut reading, Some(6)), NO_NEWS, "nothing is read yet");
        reading.take(0, &record(0, &fence(&owner, 5)), &sender).unwrap();
        reading.take(0, &record(1, &owner.frame(1)), &sender).unwrap();
        assert_eq!(is_another(), [true], "it is live, and was played from the input before");
        assert_eq!(input(&mut reading, Some(5)), [false]);
        assert_eq!(input(&mut reading, None), NO_NEWS);
        assert_eq!(input(&mut reading, Some(6)), [true]);
        owner.owner_epoch = 2;
        reading.take(0, &record(2, &fence(&owner, 6)), &sender).unwrap();
        assert_eq!(input(&mut reading, Some(6)), NO_NEWS, "its owner may halt before it plays");
        let genesis = FrameHeader { kind: FrameKind::Genesis, next_offset: 0, ..owner.fence(0) };
        reading.take(0, &record(3, &bare(genesis)), &sender).unwrap();
        assert_eq!(input(&mut reading, Some(6)), [false]);
    }

    #[test]
    fn a_zone_is_of_now_once_all_before_the_named_end_is_read_without_a_gap() {
        let (sender, told) = sender();
        let confirmed = || {
            let mut told = std::iter::from_fn(|| told.try_recv().ok());
            told.find_map(|message| match message {
                FeedMessage::Current { asked, .. } => Some(asked),
                _ => None,
            })
        };
        let start = Instant::now();
        let end = |next_record: i64, after_s: u64| {
            let asked = start + Duration::from_secs(after_s);
            NamedEnd { next_record, asked, answered: asked }
        };
        let mut shard = FrameMaker::new(0);
        let [first, second, third] = [(); 3].map(|()| shard.frame(1));
        let mut reading = Reading::new(Follower::from_start(0, Arc::new(rulebook(false))), 0, 0);
        reading.learn_end(0, end(0, 0), &sender);
        assert_eq!(confirmed(), None, "it may be the end of another topic of this name");
        reading.learn_topics(0, &report(start, 1, None), &sender);
        assert_eq!(confirmed(), Some(start), "there is nothing to read");
        reading.learn_topics(0, &report(start + Duration::from_secs(9), 1, None), &sender);
        reading.learn_end(0, end(2, 1), &sender);
        reading.take(0, &record(0, &first), &sender).unwrap();
        assert_eq!(confirmed(), None, "there is one more");
        // The later end is not reached with the earlier one.
        reading.learn_end(0, end(3, 2), &sender);
        reading.take(0, &record(1, &third), &sender).unwrap();
        assert!(reading.follower.is_at_gap());
        assert_eq!(confirmed(), None, "the second frame is missing");
        reading.take(0, &record(2, &second), &sender).unwrap();
        assert_eq!(confirmed(), Some(end(2, 1).asked));
        reading.learn_end(0, end(3, 3), &sender);
        assert_eq!(confirmed(), Some(end(3, 3).asked));
    }

    #[test]
    fn a_zone_is_lost_if_its_next_record_lies_before_its_log_or_behind_it() {
        for next_record in [5, 7, 9] {
            assert_eq!(lost(next_record, (5, 9)), None);
        }
        let before = lost(4, (5, 9)).unwrap();
        assert!(before.contains("begins at offset 5") && before.contains("is 4;"), "{before}");
        let behind = lost(10, (5, 9)).unwrap();
        assert!(behind.contains("ends at offset 9") && behind.contains("is 10;"), "{behind}");
    }
}
