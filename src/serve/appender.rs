//! Appends commands to the input topic, through librdkafka.

use crate::kafka::client::{ClientOptions, TokenSource, topic_error, writer_config};
use crate::kafka::right::Right;
use crate::kafka::topic_error::TopicError;
use crate::queue;
use crate::serve::command::Appended;
use crate::telemetry::repeated::Repeated;
use rdkafka::ClientContext;
use rdkafka::client::OAuthToken;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer as _, ProducerContext};
use std::collections::VecDeque;
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak, mpsc};
use std::time::{Duration, Instant};

/// Commands on their way to the brokers at once.
pub(crate) const COMMANDS_WAITING_MAX: usize = 16_384;

/// Commands that are handed to librdkafka in one turn: about a millisecond. The others wait, as
/// part of the next batch.
const COMMANDS_PER_TURN: usize = 1_024;

/// Milliseconds in which the brokers must take a batch of commands.
const APPEND_MS_MAX: u64 = 5_000;

/// Time of one call's wait for librdkafka's reports, and so from one producer to the next at least.
/// In its last millisecond, rust-rdkafka waits busily.
const POLL_WAIT: Duration = Duration::from_secs(1);

/// Appends events for clients, a batch of each zone at a time. Events that come meanwhile are the
/// next batch. So under load one request carries many events, and librdkafka never holds an event
/// that it may not send yet: its thread would wait busily for that.
pub(crate) struct Appender {
    producer: Arc<CommandProducer>,
    settings: ProducerSettings,
    /// Hands over producers that take the place of the present one.
    renewals: mpsc::Sender<Arc<CommandProducer>>,
    renewed: mpsc::Receiver<Arc<CommandProducer>>,
    /// By zone.
    appends: Vec<ZoneAppends>,
    /// Zones with events that may be sent.
    ready: VecDeque<u16>,
}

/// One zone's events on their way to the brokers.
#[derive(Default)]
struct ZoneAppends {
    /// Sent, and not reported yet.
    in_flight: usize,
    /// The next batch: records, and whose they are.
    waiting: Vec<(Vec<u8>, Ticket)>,
}

/// Whose command it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// Its zone.
    pub zone: u16,
    /// The session.
    pub session: u32,
    /// Number of the posting.
    pub posting: u64,
    /// Place of the command in it.
    pub command: usize,
}

/// The result of a command's append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// Whose command it is.
    pub ticket: Ticket,
    /// The result.
    pub appended: Appended,
}

/// A client of librdkafka that sends commands.
type CommandProducer = BaseProducer<AppenderCallbacks>;

/// All that a producer of commands is made of.
#[derive(Clone)]
struct ProducerSettings {
    client: ClientOptions,
    topic: String,
    reports: queue::Sender<Report>,
}

/// Hands each delivery report to the serving thread.
struct AppenderCallbacks {
    topic: String,
    reports: queue::Sender<Report>,
    trouble: Mutex<Repeated>,
    tokens: TokenSource,
    /// The producer that calls these.
    producer: OnceLock<Weak<CommandProducer>>,
    /// A command was refused because the producer had failed: a new one is needed.
    has_refused: AtomicBool,
}

impl ProducerSettings {
    fn producer(&self) -> KafkaResult<Arc<CommandProducer>> {
        let mut config = writer_config(&self.client);
        config
            .set("enable.idempotence", "true")
            .set("message.timeout.ms", APPEND_MS_MAX.to_string())
            .set("queue.buffering.max.messages", COMMANDS_WAITING_MAX.to_string());
        let callbacks = AppenderCallbacks {
            topic: self.topic.clone(),
            reports: self.reports.clone(),
            trouble: Mutex::default(),
            tokens: TokenSource::of(&self.client.security),
            producer: OnceLock::new(),
            has_refused: AtomicBool::new(false),
        };
        let producer: CommandProducer = config.create_with_context(callbacks)?;
        let producer = Arc::new(producer);
        let _first = producer.context().producer.set(Arc::downgrade(&producer));
        Ok(producer)
    }
}

/// Polls a producer, and replaces it once it has failed permanently and is needed.
struct ReportThread {
    settings: ProducerSettings,
    producer: Weak<CommandProducer>,
    renewals: mpsc::Sender<Arc<CommandProducer>>,
    /// The one before, until the appender has taken its successor: the serving thread must not end
    /// a client, which takes time.
    replaced: Option<Arc<CommandProducer>>,
    /// The present producer's failure was logged.
    is_noted: bool,
    trouble: Repeated,
}

impl ReportThread {
    /// Hands on the reports, until the appender is gone.
    fn run(mut self) {
        while let Some(producer) = self.producer.upgrade() {
            producer.poll(POLL_WAIT);
            drop(self.replaced.take_if(|replaced| Arc::strong_count(replaced) == 1));
            if let Some((code, sentence)) = producer.client().fatal_error() {
                self.note(code, &sentence);
                // A process that only reads is refused, too, and needs no other producer.
                if self.replaced.is_none() && producer.context().has_refused.load(Ordering::Acquire)
                {
                    self.replace(producer);
                }
            }
        }
    }

    fn note(&mut self, code: RDKafkaErrorCode, sentence: &str) {
        let is_noted = std::mem::replace(&mut self.is_noted, true);
        if !is_noted && let Some(withheld) = self.trouble.notice(Instant::now()) {
            let error = KafkaError::Global(code);
            let error = topic_error(&self.settings.topic, Right::Write, &error);
            tracing::warn!(
                withheld,
                "events are not appended: {error}; a new producer tries again after the next event \
                 ({sentence})"
            );
        }
    }

    fn replace(&mut self, failed: Arc<CommandProducer>) {
        match self.settings.producer() {
            Ok(producer) => {
                self.producer = Arc::downgrade(&producer);
                (self.replaced, self.is_noted) = (Some(failed), false);
                let _ended = self.renewals.send(producer);
            }
            Err(error) => {
                if let Some(withheld) = self.trouble.notice(Instant::now()) {
                    tracing::warn!(
                        withheld,
                        "no producer can be made for events: {error}; see the limits of the process"
                    );
                }
            }
        }
    }
}

impl AppenderCallbacks {
    fn tell(&self, ticket: Ticket, appended: Appended) {
        // There is room for all commands that may wait; the serving thread may be gone.
        let _gone = self.reports.try_send(Report { ticket, appended });
    }

    /// Returns the outcome of a command that librdkafka has taken and could not deliver.
    fn failed(&self, error: &KafkaError) -> Appended {
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::PurgeQueue) {
            self.has_refused.store(true, Ordering::Release);
            return match self.is_unauthorised() {
                true => Appended::Refused,
                // It may have been sent before, and have waited to be sent again.
                false => Appended::Unknown,
            };
        }
        match self.note(error, "") {
            TopicError::NotAuthorised { .. } | TopicError::Missing(_) => Appended::Refused,
            _ => Appended::Unknown,
        }
    }

    /// Returns whether the producer has failed before it could send anything.
    fn is_unauthorised(&self) -> bool {
        let producer = self.producer.get().and_then(Weak::upgrade);
        let fatal = producer.and_then(|producer| producer.client().fatal_error());
        fatal.is_some_and(|(code, _)| code == RDKafkaErrorCode::ClusterAuthorizationFailed)
    }

    /// Returns the outcome of a command that librdkafka does not take.
    fn refuse(&self, error: &KafkaError) -> Appended {
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::QueueFull) => return Appended::Full,
            // The reporter says why.
            Some(RDKafkaErrorCode::Fatal) => self.has_refused.store(true, Ordering::Release),
            _ => _ = self.note(error, ""),
        }
        Appended::Refused
    }

    /// Logs an error.
    fn note(&self, error: &KafkaError, reason: &str) -> TopicError {
        let error = topic_error(&self.topic, Right::Write, error);
        let mut trouble = self.trouble.lock().expect("no holder of this lock panics");
        if let Some(withheld) = trouble.notice(Instant::now()) {
            let reason = Some(reason).filter(|reason| !reason.is_empty());
            tracing::warn!(withheld, reason, "events are not appended: {error}");
        }
        error
    }
}

impl ClientContext for AppenderCallbacks {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn generate_oauth_token(&self, _config: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        self.tokens.token()
    }

    fn error(&self, error: KafkaError, reason: &str) {
        // The reporter says why.
        if error.rdkafka_error_code() != Some(RDKafkaErrorCode::Fatal) {
            self.note(&error, reason);
        }
    }
}

impl ProducerContext for AppenderCallbacks {
    type DeliveryOpaque = Box<Ticket>;

    fn delivery(&self, result: &DeliveryResult<'_>, ticket: Box<Ticket>) {
        let appended = match result {
            Ok(message) => Appended::At(message.offset()),
            Err((error, _)) => self.failed(error),
        };
        self.tell(*ticket, appended);
    }
}

impl Appender {
    /// Makes the producer, which connects by itself. `reports` has room for one of each command
    /// that may wait.
    pub(crate) fn connect(
        client: &ClientOptions,
        topic: String,
        reports: queue::Sender<Report>,
    ) -> Result<Appender, TopicError> {
        let settings = ProducerSettings { client: client.clone(), topic, reports };
        let unusable = |error: KafkaError| TopicError::Unreachable(error.to_string());
        let producer = settings.producer().map_err(unusable)?;
        let (renewals, renewed) = mpsc::channel();
        let (appends, ready) = (Vec::new(), VecDeque::new());
        Ok(Appender { producer, settings, renewals, renewed, appends, ready })
    }

    /// The work of a separate thread: it hands on the reports, until the appender is gone.
    pub(crate) fn reporter(&self) -> impl FnOnce() + Send + use<> {
        let reporter = ReportThread {
            settings: self.settings.clone(),
            producer: Arc::downgrade(&self.producer),
            renewals: self.renewals.clone(),
            replaced: None,
            is_noted: false,
            trouble: Repeated::new(),
        };
        move || reporter.run()
    }

    /// Takes a command's record, whose one report comes later.
    pub(crate) fn append(&mut self, record: Vec<u8>, ticket: Ticket) {
        let at = usize::from(ticket.zone);
        if self.appends.len() <= at {
            self.appends.resize_with(at + 1, ZoneAppends::default);
        }
        let of_zone = &mut self.appends[at];
        if of_zone.in_flight == 0 && of_zone.waiting.is_empty() {
            self.ready.push_back(ticket.zone);
        }
        of_zone.waiting.push((record, ticket));
    }

    /// Returns whether some events wait only for [`Appender::send`].
    pub(crate) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Sends what waits for no earlier batch of its zone, as much of it as one turn may.
    pub(crate) fn send(&mut self) {
        if let Ok(renewed) = self.renewed.try_recv() {
            self.producer = renewed;
        }
        let mut left = COMMANDS_PER_TURN;
        while left > 0
            && let Some(zone) = self.ready.pop_front()
        {
            let of_zone = &mut self.appends[usize::from(zone)];
            of_zone.in_flight = of_zone.waiting.len().min(left);
            left -= of_zone.in_flight;
            for (record, ticket) in of_zone.waiting.drain(..of_zone.in_flight) {
                let (topic, opaque) = (&*self.settings.topic, Box::new(ticket));
                let record = BaseRecord::<(), [u8], _>::with_opaque_to(topic, opaque)
                    .partition(zone.into())
                    .payload(&record);
                if let Err((error, _)) = self.producer.send(record) {
                    let callbacks = self.producer.context();
                    callbacks.tell(ticket, callbacks.refuse(&error));
                }
            }
        }
    }

    /// A command is reported: after a batch's last one the next batch may be sent.
    pub(crate) fn reported(&mut self, ticket: Ticket) {
        let of_zone = &mut self.appends[usize::from(ticket.zone)];
        of_zone.in_flight -= 1;
        if of_zone.in_flight == 0 && !of_zone.waiting.is_empty() {
            self.ready.push_back(ticket.zone);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::security::Security;
    use crate::queue::Received;
    use rdkafka::mocking::MockCluster;
    use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
    use std::thread;

    fn appender(brokers: String) -> (Appender, queue::Receiver<Report>) {
        let name = "test".to_owned();
        let (brokers, security) = (vec![brokers], Security::default());
        let client = ClientOptions { brokers, client_id: name.clone(), security, group: name };
        let (reports, receiver) = queue::bounded(COMMANDS_WAITING_MAX);
        (Appender::connect(&client, "events".to_owned(), reports).unwrap(), receiver)
    }

    #[test]
    fn after_a_fatal_error_commands_are_refused_until_a_new_producer_may_append_them() {
        let cluster = MockCluster::new(1).expect("a mock cluster");
        cluster.create_topic("events", 1, 1).expect("a topic");
        // The right is granted after two producers.
        let forbidden = RDKafkaRespErr::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED;
        cluster.request_errors(RDKafkaApiKey::InitProducerId, &[forbidden; 2]);
        let (mut appender, mut reports) = appender(cluster.bootstrap_servers());
        let reporter = thread::spawn(appender.reporter());
        let until = Instant::now() + Duration::from_secs(600);
        let mut next_report = |appender: &mut Appender| loop {
            assert!(Instant::now() < until, "nothing is reported");
            appender.send();
            match reports.receive() {
                Received::Item(report) => {
                    appender.reported(report.ticket);
                    return report.appended;
                }
                Received::Empty | Received::Ended => thread::sleep(Duration::from_millis(1)),
            }
        };
        let mut refused = 0;
        loop {
            let ticket = Ticket { zone: 0, session: 0, posting: refused, command: 0 };
            appender.append(b"{}".to_vec(), ticket);
            match next_report(&mut appender) {
                Appended::Refused => {
                    refused += 1;
                    thread::sleep(Duration::from_millis(1));
                }
                appended => break assert_eq!(appended, Appended::At(0), "after {refused}"),
            }
        }
        assert!(refused >= 2, "each producer has refused one: {refused}");
        drop(appender);
        reporter.join().expect("it ends");
    }

    #[test]
    fn a_turn_hands_over_a_bounded_number_of_commands_and_the_next_ones_the_rest() {
        // No broker listens there, so nothing is ever reported.
        let (mut appender, _reports) = appender("127.0.0.1:1".to_owned());
        for command in 0..4 * COMMANDS_PER_TURN {
            let zone = (command % 2) as u16;
            let ticket = Ticket { zone, session: 0, posting: 0, command };
            appender.append(b"{}".to_vec(), ticket);
        }
        let mut turn = || {
            appender.send();
            let in_flight = appender.appends.iter().map(|of_zone| of_zone.in_flight);
            (in_flight.collect::<Vec<_>>(), appender.is_ready())
        };
        let most = COMMANDS_PER_TURN;
        assert_eq!(turn(), (vec![most, 0], true));
        assert_eq!(turn(), (vec![most, most], false));
        // The rest of each zone is its next batch.
        assert_eq!(turn(), (vec![most, most], false));
        for command in (0..2 * most).step_by(2) {
            appender.reported(Ticket { zone: 0, session: 0, posting: 0, command });
        }
        assert!(appender.is_ready());
    }
}
