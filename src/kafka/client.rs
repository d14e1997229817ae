//! What all clients of librdkafka have in common: settings, and what their errors mean.

use crate::kafka::security::{Secret, Security};
use crate::kafka::topic_error::TopicError;
use crate::kafka::{METADATA_REFRESH_MS, RECONNECT_MS_MAX};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use std::time::Duration;

/// Brokers in the list to ask first.
pub(crate) const BOOTSTRAP_BROKERS_MAX: usize = 64;

/// How a client reaches the cluster, and by which names brokers know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// Brokers to ask first, `host:port`.
    pub brokers: Vec<String>,
    /// How the client names itself to brokers.
    pub client_id: String,
    /// How its connections are protected.
    pub security: Security,
    /// The consumer group. Brokers check the right to read by its name, also of clients that do
    /// not join it.
    pub group: String,
}

/// The settings of every client.
pub(crate) fn client_config(options: &ClientOptions) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", options.brokers.join(","))
        .set("client.id", &options.client_id)
        .set("reconnect.backoff.max.ms", RECONNECT_MS_MAX.to_string());
    protect(&mut config, &options.security);
    config
}

/// The settings of a client whose connections are protected like those of the data plane. A secret
/// that cannot be read is left out: the dialler says what is wrong with it.
fn protect(config: &mut ClientConfig, security: &Security) {
    let Security { tls, sasl } = security;
    config.set(
        "security.protocol",
        match (tls, sasl) {
            (None, None) => "plaintext",
            (Some(_), None) => "ssl",
            (None, Some(_)) => "sasl_plaintext",
            (Some(_), Some(_)) => "sasl_ssl",
        },
    );
    if let Some(tls) = tls {
        config.set("ssl.endpoint.identification.algorithm", "https");
        match &tls.ca_file {
            Some(file) => config.set("ssl.ca.location", file.display().to_string()),
            // Looks where the distributions keep them.
            None => config.set("ssl.ca.location", "probe"),
        };
        if let Some(client) = &tls.client {
            config
                .set("ssl.certificate.location", client.certificate_file.display().to_string())
                .set("ssl.key.location", client.key_file.display().to_string());
        }
    }
    if let Some(sasl) = sasl {
        config.set("sasl.mechanisms", sasl.mechanism.name()).set("sasl.username", &sasl.user);
        if let Ok(secret) = Secret::read(&sasl.secret_file) {
            config.set("sasl.password", secret.expose());
        }
    }
}

/// The settings of a client that appends to topics.
pub(crate) fn writer_config(options: &ClientOptions) -> ClientConfig {
    let mut config = client_config(options);
    config
        .set("topic.metadata.refresh.interval.ms", METADATA_REFRESH_MS.to_string())
        .set("request.required.acks", "-1")
        .set("queue.buffering.max.ms", "0");
    config
}

/// The settings of a client that reads partitions of its own choice, without joining the group.
pub(crate) fn reader_config(options: &ClientOptions) -> ClientConfig {
    let mut config = client_config(options);
    config
        .set("topic.metadata.refresh.interval.ms", METADATA_REFRESH_MS.to_string())
        .set("group.id", &options.group)
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("enable.partition.eof", "true")
        .set("auto.offset.reset", "error")
        .set("allow.auto.create.topics", "false")
        .set("check.crcs", "true");
    config
}

/// How many partitions a topic has. Asking never creates it.
pub(crate) fn partitions(
    consumer: &BaseConsumer,
    topic: &str,
    wait: Duration,
) -> Result<i32, TopicError> {
    let metadata =
        consumer.fetch_metadata(Some(topic), wait).map_err(|error| topic_error(topic, &error))?;
    let found = metadata.topics().iter().find(|found| found.name() == topic);
    let Some(found) = found else {
        return Err(TopicError::Missing(topic.to_owned()));
    };
    if let Some(error) = found.error() {
        return Err(topic_error(topic, &KafkaError::MetadataFetch(error.into())));
    }
    match found.partitions().len() {
        0 => Err(TopicError::Missing(topic.to_owned())),
        count => Ok(count as i32),
    }
}

/// What an error of librdkafka says about a topic.
pub(crate) fn topic_error(topic: &str, error: &KafkaError) -> TopicError {
    match error.rdkafka_error_code() {
        Some(
            RDKafkaErrorCode::UnknownTopicOrPartition
            | RDKafkaErrorCode::UnknownTopic
            | RDKafkaErrorCode::UnknownPartition,
        ) => TopicError::Missing(topic.to_owned()),
        Some(
            RDKafkaErrorCode::TopicAuthorizationFailed
            | RDKafkaErrorCode::ClusterAuthorizationFailed
            | RDKafkaErrorCode::GroupAuthorizationFailed,
        ) => TopicError::NotAuthorised(topic.to_owned()),
        _ => TopicError::Unreachable(error.to_string()),
    }
}

/// Whether the offset to be read is no offset of the log.
pub(crate) fn is_out_of_range(error: &KafkaError) -> bool {
    use RDKafkaErrorCode::{AutoOffsetReset, OffsetOutOfRange};
    matches!(error.rdkafka_error_code(), Some(OffsetOutOfRange | AutoOffsetReset))
}
