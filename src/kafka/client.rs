//! What all clients of librdkafka have in common: settings, and what their errors mean.

use crate::kafka::error_code::ErrorCode;
use crate::kafka::right::Right;
use crate::kafka::security::{Mechanism, Secret, Security};
use crate::kafka::topic_error::TopicError;
use crate::kafka::{BROKER_ANSWER_MS_MAX, METADATA_REFRESH_MS, RECONNECT_MS_MAX};
use rdkafka::ClientContext;
use rdkafka::client::OAuthToken;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// Brokers in the list to ask first.
pub(crate) const BOOTSTRAP_BROKERS_MAX: usize = 64;

/// Milliseconds that librdkafka waits for the first answer after TLS, about versions. A broker that
/// is frozen takes connections, and answers nothing. A slow one always has only this long.
const VERSIONS_MS_MAX: u64 = 5_000;

/// The lifetime of a token that librdkafka is given, in milliseconds. Before it ends, librdkafka
/// asks for a token again and gets the one that is then in the file. The program that writes the
/// file replaces a token minutes before it expires.
const TOKEN_MS: u64 = 10_000;

/// Time in which librdkafka has to ask for its first token, before anything else is asked of it:
/// such a question waits for a token, and the token cannot be given meanwhile.
pub(crate) const FIRST_TOKEN_WAIT: Duration = Duration::from_millis(50);

/// How a client reaches the cluster, and by which names brokers know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// Brokers to ask first, `host:port`.
    pub brokers: Vec<String>,
    /// How the client names itself to brokers.
    pub client_id: String,
    /// How its connections are protected.
    pub security: Security,
    /// The consumer group. Brokers check the right to read by its name, even for clients that do
    /// not join it.
    pub group: String,
}

impl ClientOptions {
    /// Whether librdkafka's clients ask for a token.
    pub(crate) fn authenticates_by_token(&self) -> bool {
        TokenSource::of(&self.security).file.is_some()
    }
}

/// The settings of every client.
pub(crate) fn client_config(options: &ClientOptions) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", options.brokers.join(","))
        .set("client.id", &options.client_id)
        // A topic that a broker creates has its default number of partitions and its default
        // settings, which fit no topic of huntd's.
        .set("allow.auto.create.topics", "false")
        // Without it, a request may wait up to 40 ms for the acknowledgement of the previous one.
        .set("socket.nagle.disable", "true")
        .set("api.version.request.timeout.ms", VERSIONS_MS_MAX.to_string())
        // Connecting, TLS and an authentication together.
        .set("socket.connection.setup.timeout.ms", BROKER_ANSWER_MS_MAX.to_string())
        .set("reconnect.backoff.max.ms", RECONNECT_MS_MAX.to_string());
    protect(&mut config, &options.security);
    config
}

/// The settings of a client whose connections are protected like those of the data plane. A secret
/// that cannot be read is left out: the dialler reports what is wrong with it.
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
        config.set("sasl.mechanisms", sasl.mechanism.name());
        if sasl.mechanism == Mechanism::OauthBearer {
            return;
        }
        config.set("sasl.username", &sasl.user);
        if let Ok(secret) = Secret::read(&sasl.secret_file) {
            config.set("sasl.password", secret.expose());
        }
    }
}

/// The context of librdkafka's clients: gives them a token, where they authenticate by one.
#[derive(Clone, Debug)]
pub(crate) struct TokenSource {
    file: Option<PathBuf>,
}

impl TokenSource {
    /// For clients that are protected so.
    pub(crate) fn of(security: &Security) -> TokenSource {
        let sasl = security.sasl.as_ref();
        let sasl = sasl.filter(|sasl| sasl.mechanism == Mechanism::OauthBearer);
        TokenSource { file: sasl.map(|sasl| sasl.secret_file.clone()) }
    }

    /// The token that is in the file now.
    pub(crate) fn token(&self) -> Result<OAuthToken, Box<dyn Error>> {
        let file = self.file.as_ref().ok_or("no token file is configured")?;
        let token = Secret::read(file)?.expose().to_owned();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        let lifetime_ms = (now.as_millis() + u128::from(TOKEN_MS)) as i64;
        // librdkafka wants a name and sends it to nobody: the token has its own.
        Ok(OAuthToken { token, principal_name: "huntd".to_owned(), lifetime_ms })
    }
}

impl ClientContext for TokenSource {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn generate_oauth_token(&self, _config: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        self.token()
    }
}

impl ConsumerContext for TokenSource {}

/// A consumer that takes no events of its group.
pub(crate) type KafkaReader = BaseConsumer<TokenSource>;

/// A consumer that may be asked at once.
pub(crate) fn reader(config: &ClientConfig, options: &ClientOptions) -> KafkaResult<KafkaReader> {
    let reader: KafkaReader = config.create_with_context(TokenSource::of(&options.security))?;
    give_first_token(&reader, options);
    Ok(reader)
}

/// Gives a new consumer its first token, if it authenticates by one.
pub(crate) fn give_first_token<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    options: &ClientOptions,
) {
    if options.authenticates_by_token() {
        // It has joined nothing and reads nothing, so no other event can come.
        drop(consumer.poll(FIRST_TOKEN_WAIT));
    }
}

/// The settings of a client that appends to topics. While a broker waits for its replicas, a record
/// may be sent to it again.
pub(crate) fn writer_config(options: &ClientOptions) -> ClientConfig {
    let mut config = client_config(options);
    config
        .set("topic.metadata.refresh.interval.ms", METADATA_REFRESH_MS.to_string())
        .set("socket.timeout.ms", BROKER_ANSWER_MS_MAX.to_string())
        .set("request.required.acks", "-1")
        .set("queue.buffering.max.ms", "0");
    config
}

/// The settings of a client that reads partitions of its own choice, without joining the group.
pub(crate) fn reader_config(options: &ClientOptions) -> ClientConfig {
    let mut config = client_config(options);
    config
        .set("topic.metadata.refresh.interval.ms", METADATA_REFRESH_MS.to_string())
        .set("socket.timeout.ms", BROKER_ANSWER_MS_MAX.to_string())
        .set("group.id", &options.group)
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("enable.partition.eof", "true")
        .set("auto.offset.reset", "error")
        .set("check.crcs", "true");
    config
}

/// How many partitions a topic has, where the caller needs this right. Asking never creates it.
pub(crate) fn partitions(
    consumer: &KafkaReader,
    topic: &str,
    right: Right,
    wait: Duration,
) -> Result<i32, TopicError> {
    let wrong = |error| topic_error(topic, right, &error);
    let metadata = consumer.fetch_metadata(Some(topic), wait).map_err(wrong)?;
    let found = metadata.topics().iter().find(|found| found.name() == topic);
    let Some(found) = found else {
        return Err(TopicError::Missing(topic.to_owned()));
    };
    if let Some(error) = found.error() {
        return Err(wrong(KafkaError::MetadataFetch(error.into())));
    }
    match found.partitions().len() {
        0 => Err(TopicError::Missing(topic.to_owned())),
        count => Ok(count as i32),
    }
}

/// The offsets of the partitions' beginnings or ends; `None` where the brokers name none.
pub(crate) fn offsets_at(
    consumer: &KafkaReader,
    topic: &str,
    partitions: i32,
    place: Offset,
    wait: Duration,
) -> KafkaResult<Vec<Option<i64>>> {
    let mut list = TopicPartitionList::with_capacity(partitions as usize);
    for partition in 0..partitions {
        list.add_partition_offset(topic, partition, place)?;
    }
    Ok(offsets(&consumer.offsets_for_times(list, wait)?, topic, partitions))
}

/// Where the partitions end; `None` where the brokers do not say it.
pub(crate) fn log_ends(
    consumer: &KafkaReader,
    topic: &str,
    partitions: i32,
    wait: Duration,
) -> KafkaResult<Vec<Option<i64>>> {
    offsets_at(consumer, topic, partitions, Offset::End, wait)
}

/// The offsets in a list, by partition; `None` where there is none.
pub(crate) fn offsets(list: &TopicPartitionList, topic: &str, partitions: i32) -> Vec<Option<i64>> {
    let offset = |partition| match list.find_partition(topic, partition)?.offset() {
        Offset::Offset(offset) => Some(offset),
        _ => None,
    };
    (0..partitions).map(offset).collect()
}

/// What an error of librdkafka means for a topic, where the caller needs this right.
pub(crate) fn topic_error(topic: &str, right: Right, error: &KafkaError) -> TopicError {
    match error.rdkafka_error_code() {
        Some(
            RDKafkaErrorCode::UnknownTopicOrPartition
            | RDKafkaErrorCode::UnknownTopic
            | RDKafkaErrorCode::UnknownPartition,
        ) => TopicError::Missing(topic.to_owned()),
        Some(
            code @ (RDKafkaErrorCode::TopicAuthorizationFailed
            | RDKafkaErrorCode::ClusterAuthorizationFailed
            | RDKafkaErrorCode::GroupAuthorizationFailed),
        ) => TopicError::refused(topic, right, ErrorCode(code as i16)),
        // Numbers of librdkafka's own errors are negative.
        Some(code) if code as i32 > 0 => {
            TopicError::NotNow(format!("`{topic}`: {}", ErrorCode(code as i16)))
        }
        _ => TopicError::Unreachable(error.to_string()),
    }
}

/// Whether the offset to be read is no offset of the log.
pub(crate) fn is_out_of_range(error: &KafkaError) -> bool {
    use RDKafkaErrorCode::{AutoOffsetReset, OffsetOutOfRange};
    matches!(error.rdkafka_error_code(), Some(OffsetOutOfRange | AutoOffsetReset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_on_the_cluster_names_a_right_that_the_cluster_or_the_topic_has() {
        let refused = KafkaError::MetadataFetch(RDKafkaErrorCode::ClusterAuthorizationFailed);
        for (right, granted) in [
            (Right::Read, "grant DESCRIBE on the cluster to"),
            (Right::Write, "grant WRITE on it, and before Kafka 2.8 IDEMPOTENT_WRITE on the cl"),
            (Right::Create, "grant CREATE on it to"),
        ] {
            let sentence = topic_error("events", right, &refused).to_string();
            assert!(sentence.contains(granted), "{sentence}");
        }
    }

    #[test]
    fn only_brokers_that_give_no_code_do_not_answer() {
        for (code, has_answered) in [
            (RDKafkaErrorCode::LeaderNotAvailable, true),
            (RDKafkaErrorCode::NotCoordinator, true),
            (RDKafkaErrorCode::BrokerTransportFailure, false),
            (RDKafkaErrorCode::OperationTimedOut, false),
        ] {
            let error = topic_error("events", Right::Read, &KafkaError::MetadataFetch(code));
            assert_eq!(matches!(error, TopicError::NotNow(_)), has_answered, "{error}");
            assert!(error.may_pass(), "{error}");
        }
    }
}
