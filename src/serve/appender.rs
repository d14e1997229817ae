//! Appends commands to the input topic, through librdkafka.

use crate::kafka::client::{ClientOptions, TokenSource, topic_error, writer_config};
use crate::kafka::topic_error::TopicError;
use crate::serve::command::{Appended, Command};
use crate::telemetry::repeated::Repeated;
use rdkafka::ClientContext;
use rdkafka::client::OAuthToken;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::producer::{BaseRecord, DeliveryResult, ProducerContext, ThreadedProducer};
use smol::channel::{Receiver, Sender, bounded};
use std::error::Error;
use std::sync::Mutex;
use std::time::Instant;

/// Commands on their way to the brokers at once.
const COMMANDS_WAITING_MAX: usize = 16_384;

/// Milliseconds in which the brokers must take a command.
const APPEND_MS_MAX: u64 = 5_000;

/// Appends events for clients.
pub(crate) struct Appender {
    topic: String,
    producer: ThreadedProducer<Reports>,
}

/// Hands each delivery report to the session that waits for it.
struct Reports {
    topic: String,
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
    type DeliveryOpaque = Box<Sender<Appended>>;

    fn delivery(&self, result: &DeliveryResult<'_>, session: Box<Sender<Appended>>) {
        let appended = match result {
            Ok(message) => Appended::At(message.offset()),
            Err((error, _)) => self.failed(error),
        };
        // Its client may be gone.
        let _gone = session.try_send(appended);
    }
}

impl Appender {
    /// Makes the producer, which connects by itself.
    pub(crate) fn connect(client: &ClientOptions, topic: String) -> Result<Appender, TopicError> {
        let mut config = writer_config(client);
        config
            .set("enable.idempotence", "true")
            .set("message.timeout.ms", APPEND_MS_MAX.to_string())
            .set("queue.buffering.max.messages", COMMANDS_WAITING_MAX.to_string());
        let unusable = |error: KafkaError| TopicError::Unreachable(error.to_string());
        let tokens = TokenSource::of(&client.security);
        let reports = Reports { topic: topic.clone(), trouble: Mutex::default(), tokens };
        let producer = config.create_with_context(reports).map_err(unusable)?;
        Ok(Appender { topic, producer })
    }

    /// Sends a command; its one report comes through the receiver.
    pub(crate) fn append(&self, command: &Command) -> Receiver<Appended> {
        let (sender, report) = bounded(1);
        let record = BaseRecord::<(), [u8], _>::with_opaque_to(&self.topic, Box::new(sender))
            .partition(command.zone.into())
            .payload(&command.record);
        if let Err((error, record)) = self.producer.send(record) {
            let full = error.rdkafka_error_code() == Some(RDKafkaErrorCode::QueueFull);
            let appended = if full { Appended::Full } else { Appended::Unknown };
            record.delivery_opaque.try_send(appended).expect("its one report");
        }
        report
    }
}
