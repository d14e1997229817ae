//! Appends commands to the input topic, through librdkafka.

use crate::kafka::client::{ClientOptions, TokenSource, topic_error, writer_config};
use crate::kafka::right::Right;
use crate::kafka::topic_error::TopicError;
use crate::queue;
use crate::serve::command::Appended;
use crate::telemetry::repeated::Repeated;
use rdkafka::ClientContext;
use rdkafka::client::OAuthToken;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer as _, ProducerContext};
use std::collections::VecDeque;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Commands on their way to the brokers at once.
pub(crate) const COMMANDS_WAITING_MAX: usize = 16_384;

/// Commands that are handed to librdkafka in one turn: about a millisecond. The others wait, as
/// part of the next batch.
const COMMANDS_PER_TURN: usize = 1_024;

/// Milliseconds in which the brokers must take a batch of commands.
const APPEND_MS_MAX: u64 = 5_000;

/// Limit of one call's wait for librdkafka's reports. In its last millisecond, rust-rdkafka waits
/// busily.
const POLL_WAIT: Duration = Duration::from_secs(1);

/// Appends events for clients, a batch of each zone at a time. Events that come meanwhile are the
/// next batch. So under load one request carries many events, and librdkafka never holds an event
/// that it may not send yet: its thread would wait busily for that.
pub(crate) struct Appender {
    topic: String,
    producer: Arc<BaseProducer<AppenderCallbacks>>,
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

/// Hands each delivery report to the serving thread.
struct AppenderCallbacks {
    topic: String,
    reports: queue::Sender<Report>,
    trouble: Mutex<Repeated>,
    tokens: TokenSource,
}

impl AppenderCallbacks {
    fn tell(&self, ticket: Ticket, appended: Appended) {
        // There is room for all commands that may wait; the serving thread may be gone.
        let _gone = self.reports.try_send(Report { ticket, appended });
    }

    /// Logs errors of the brokers.
    fn failed(&self, error: &KafkaError) -> Appended {
        let error = topic_error(&self.topic, Right::Write, error);
        let mut trouble = self.trouble.lock().expect("no holder of this lock panics");
        if let Some(withheld) = trouble.notice(Instant::now()) {
            tracing::warn!(withheld, "events are not appended: {error}");
        }
        match error {
            TopicError::NotAuthorised { .. } | TopicError::Missing(_) => Appended::Refused,
            _ => Appended::Unknown,
        }
    }
}

impl ClientContext for AppenderCallbacks {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn generate_oauth_token(&self, _config: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        self.tokens.token()
    }

    fn error(&self, error: KafkaError, _reason: &str) {
        self.failed(&error);
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
        let mut config = writer_config(client);
        config
            .set("enable.idempotence", "true")
            .set("message.timeout.ms", APPEND_MS_MAX.to_string())
            .set("queue.buffering.max.messages", COMMANDS_WAITING_MAX.to_string());
        let unusable = |error: KafkaError| TopicError::Unreachable(error.to_string());
        let tokens = TokenSource::of(&client.security);
        let callbacks =
            AppenderCallbacks { topic: topic.clone(), reports, trouble: Mutex::default(), tokens };
        let producer: BaseProducer<AppenderCallbacks> =
            config.create_with_context(callbacks).map_err(unusable)?;
        Ok(Appender {
            topic,
            producer: Arc::new(producer),
            appends: Vec::new(),
            ready: VecDeque::new(),
        })
    }

    /// The work of a separate thread: it hands on the reports, until the appender is gone.
    pub(crate) fn reporter(&self) -> impl FnOnce() + Send + use<> {
        let producer = Arc::downgrade(&self.producer);
        move || {
            while let Some(producer) = producer.upgrade() {
                producer.poll(POLL_WAIT);
            }
        }
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
        let mut left = COMMANDS_PER_TURN;
        while left > 0
            && let Some(zone) = self.ready.pop_front()
        {
            let of_zone = &mut self.appends[usize::from(zone)];
            of_zone.in_flight = of_zone.waiting.len().min(left);
            left -= of_zone.in_flight;
            for (record, ticket) in of_zone.waiting.drain(..of_zone.in_flight) {
                let record =
                    BaseRecord::<(), [u8], _>::with_opaque_to(&self.topic, Box::new(ticket))
                        .partition(zone.into())
                        .payload(&record);
                if let Err((error, _)) = self.producer.send(record) {
                    let appended = match error.rdkafka_error_code() {
                        Some(RDKafkaErrorCode::QueueFull) => Appended::Full,
                        _ => Appended::Unknown,
                    };
                    self.producer.context().tell(ticket, appended);
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

    #[test]
    fn a_turn_hands_over_a_bounded_number_of_commands_and_the_next_ones_the_rest() {
        let name = "test".to_owned();
        // No broker listens there, so nothing is ever reported.
        let brokers = vec!["127.0.0.1:1".to_owned()];
        let security = Security::default();
        let client = ClientOptions { brokers, client_id: name.clone(), security, group: name };
        let (reports, _receiver) = queue::bounded(COMMANDS_WAITING_MAX);
        let mut appender = Appender::connect(&client, "events".to_owned(), reports).unwrap();
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
