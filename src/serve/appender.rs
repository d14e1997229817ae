//! Appends commands to the input topic, through librdkafka.

use crate::kafka::client::{ClientOptions, TokenSource, topic_error, writer_config};
use crate::kafka::topic_error::TopicError;
use crate::queue;
use crate::serve::command::{Appended, Command};
use crate::telemetry::repeated::Repeated;
use rdkafka::ClientContext;
use rdkafka::client::OAuthToken;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::producer::{BaseRecord, DeliveryResult, ProducerContext, ThreadedProducer};
use std::error::Error;
use std::sync::Mutex;
use std::time::Instant;

/// Commands on their way to the brokers at once.
pub(crate) const COMMANDS_WAITING_MAX: usize = 16_384;

/// Milliseconds in which the brokers must take a command.
const APPEND_MS_MAX: u64 = 5_000;

/// Appends events for clients.
pub(crate) struct Appender {
    topic: String,
    producer: ThreadedProducer<Reports>,
}

/// Whose command it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// The session.
    pub session: u32,
    /// Number of the posting.
    pub posting: u64,
    /// Place of the command in it.
    pub command: usize,
}

/// What became of a command's append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// Whose command it is.
    pub ticket: Ticket,
    /// What became of it.
    pub appended: Appended,
}

/// Hands each delivery report to the serving thread.
struct Reports {
    topic: String,
    reports: queue::Sender<Report>,
    trouble: Mutex<Repeated>,
    tokens: TokenSource,
}

impl Reports {
    /// Says in the log what the brokers do not take.
    fn failed(&self, error: &KafkaError) -> Appended {
        let error = topic_error(&self.topic, error);
        let mut trouble = self.trouble.lock().expect("no holder of this lock panics");
        if let Some(withheld) = trouble.notice(Instant::now()) {
            tracing::warn!(withheld, "events are not appended: {error}");
        }
        match error {
            TopicError::NotAuthorised(_) | TopicError::Missing(_) => Appended::Refused,
            _ => Appended::Unknown,
        }
    }
}

impl ClientContext for Reports {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn generate_oauth_token(&self, _config: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        self.tokens.token()
    }

    fn error(&self, error: KafkaError, _reason: &str) {
        self.failed(&error);
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = Box<Ticket>;

    fn delivery(&self, result: &DeliveryResult<'_>, ticket: Box<Ticket>) {
        let appended = match result {
            Ok(message) => Appended::At(message.offset()),
            Err((error, _)) => self.failed(error),
        };
        // There is room for all commands that may wait; the serving thread may be gone.
        let _gone = self.reports.try_send(Report { ticket: *ticket, appended });
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
        let reports = Reports { topic: topic.clone(), reports, trouble: Mutex::default(), tokens };
        let producer = config.create_with_context(reports).map_err(unusable)?;
        Ok(Appender { topic, producer })
    }

    /// Sends a command, whose one report comes later. `Err`: none comes, as it is not sent.
    pub(crate) fn append(&self, command: &Command, ticket: Ticket) -> Result<(), Appended> {
        let record = BaseRecord::<(), [u8], _>::with_opaque_to(&self.topic, Box::new(ticket))
            .partition(command.zone.into())
            .payload(&command.record);
        self.producer.send(record).map_err(|(error, _)| match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::QueueFull) => Appended::Full,
            _ => Appended::Unknown,
        })
    }
}
