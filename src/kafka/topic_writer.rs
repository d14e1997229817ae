//! A producer of librdkafka whose callbacks become values.

use crate::kafka::client::{ClientOptions, TokenSource};
use rdkafka::ClientContext;
use rdkafka::client::OAuthToken;
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, DeliveryResult, Producer as _, ProducerContext};
use std::error::Error;
use std::sync::{Mutex, mpsc};

/// A producer, and the reports that its polls have brought.
pub(crate) struct TopicWriter {
    /// The producer. Each record carries a number of the caller's choice.
    pub producer: BaseProducer<WriterCallbacks>,
    reports: mpsc::Receiver<DeliveryReport>,
}

/// The result of sending one record.
pub(crate) struct DeliveryReport {
    /// The record's number.
    pub number: usize,
    /// Its offset.
    pub offset: Result<i64, Undelivered>,
}

/// A record that was not delivered.
pub(crate) struct Undelivered {
    /// The record's topic.
    pub topic: String,
    /// The reason.
    pub error: KafkaError,
}

impl TopicWriter {
    /// Creates a producer. It connects by itself.
    pub(crate) fn new(config: &ClientConfig, options: &ClientOptions) -> KafkaResult<TopicWriter> {
        let (sender, reports) = mpsc::channel();
        let tokens = TokenSource::of(&options.security);
        let callbacks = WriterCallbacks { tokens, sender, trouble: Mutex::default() };
        Ok(TopicWriter { producer: config.create_with_context(callbacks)?, reports })
    }

    /// Returns the next report of a delivery.
    pub(crate) fn next_report(&self) -> Option<DeliveryReport> {
        self.reports.try_recv().ok()
    }

    /// Returns the last error of a broker or of the producer since the last call.
    pub(crate) fn take_trouble(&self) -> Option<String> {
        self.producer.context().trouble.lock().expect("no holder of this lock panics").take()
    }
}

/// The callbacks that librdkafka calls while the producer is polled.
pub(crate) struct WriterCallbacks {
    tokens: TokenSource,
    sender: mpsc::Sender<DeliveryReport>,
    trouble: Mutex<Option<String>>,
}

impl ClientContext for WriterCallbacks {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn generate_oauth_token(&self, _config: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        self.tokens.token()
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "a Kafka producer reports trouble");
        let mut trouble = self.trouble.lock().expect("no holder of this lock panics");
        *trouble = Some(format!("{error} ({reason})"));
    }
}

impl ProducerContext for WriterCallbacks {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, number: usize) {
        let offset = match result {
            Ok(message) => Ok(message.offset()),
            Err((error, message)) => {
                Err(Undelivered { topic: message.topic().to_owned(), error: error.clone() })
            }
        };
        // The other end is gone only while the producer itself is being dropped.
        drop(self.sender.send(DeliveryReport { number, offset }));
    }
}
