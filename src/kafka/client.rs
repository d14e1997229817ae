//! Settings and error handling that all clients of librdkafka share.

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
use rdkafka::metadata::MetadataTopic;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, SystemTime};

/// Limit of brokers in the bootstrap list.
pub(crate) const BOOTSTRAP_BROKERS_MAX: usize = 64;

/// Milliseconds that librdkafka waits after TLS for the first answer (ApiVersions). A frozen broker
/// accepts connections and answers nothing. A slow one never gets more than this.
const VERSIONS_MS_MAX: u64 = 5_000;

/// The lifetime of a token handed to librdkafka, in milliseconds. Before it ends, librdkafka asks
/// for a token again and gets the current one from the file. The program that writes the file
/// replaces a token minutes before it expires.
const TOKEN_MS: u64 = 10_000;

/// How long librdkafka may take to ask for its first token, before any other request: such a
/// request waits for a token, which cannot be supplied while it blocks.
pub(crate) const FIRST_TOKEN_WAIT: Duration = Duration::from_millis(50);

/// How a client reaches the cluster, and the names under which brokers know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// Bootstrap brokers, `host:port`.
    pub brokers: Vec<String>,
    /// The client id.
    pub client_id: String,
    /// How its connections are protected.
    pub security: Security,
    /// The consumer group. Brokers check READ on it even for clients that do not join it.
    pub group: String,
}

impl ClientOptions {
    /// Returns whether librdkafka's clients ask for a token.
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
        // A topic that a broker creates automatically has the default settings and number of
        // partitions, which fit no topic of huntd.
        .set("allow.auto.create.topics", "false")
        // Without this, a request may wait up to 40 ms for the acknowledgement of the previous one.
        .set("socket.nagle.disable", "true")
        .set("api.version.request.timeout.ms", VERSIONS_MS_MAX.to_string())
        // Connecting, TLS and an authentication together.
        .set("socket.connection.setup.timeout.ms", BROKER_ANSWER_MS_MAX.to_string())
        .set("reconnect.backoff.max.ms", RECONNECT_MS_MAX.to_string());
    protect(&mut config, &options.security);
    config
}

/// Applies the TLS and SASL settings of the data plane. A secret that cannot be read is left out:
/// the dialler reports the cause.
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
            // Probes the paths that the distributions use.
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

/// The context of librdkafka's clients: supplies the token if they authenticate with one.
#[derive(Clone, Debug)]
pub(crate) struct TokenSource {
    file: Option<PathBuf>,
}

impl TokenSource {
    /// Returns the source for clients with this security.
    pub(crate) fn of(security: &Security) -> TokenSource {
        let sasl = security.sasl.as_ref();
        let sasl = sasl.filter(|sasl| sasl.mechanism == Mechanism::OauthBearer);
        TokenSource { file: sasl.map(|sasl| sasl.secret_file.clone()) }
    }

    /// Reads the current token from the file.
    pub(crate) fn token(&self) -> Result<OAuthToken, Box<dyn Error>> {
        let file = self.file.as_ref().ok_or("no token file is configured")?;
        let token = Secret::read(file)?.expose().to_owned();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        let lifetime_ms = (now.as_millis() + u128::from(TOKEN_MS)) as i64;
        // librdkafka requires a principal name and sends it to nobody: the token has its own.
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

/// A consumer outside the group.
pub(crate) type KafkaReader = BaseConsumer<TokenSource>;

/// Creates a consumer that can be queried at once.
pub(crate) fn reader(config: &ClientConfig, options: &ClientOptions) -> KafkaResult<KafkaReader> {
    let reader: KafkaReader = config.create_with_context(TokenSource::of(&options.security))?;
    give_first_token(&reader, options);
    Ok(reader)
}

/// Supplies a new consumer with its first token, if it authenticates with one.
pub(crate) fn give_first_token<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    options: &ClientOptions,
) {
    if options.authenticates_by_token() {
        // The consumer has joined no group and reads nothing, so no other event can arrive.
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

/// The settings of a client that chooses its partitions itself, without joining the group.
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

/// Reads these places from now on, and nothing else.
pub(crate) fn read_from(consumer: &KafkaReader, places: &TopicPartitionList) -> KafkaResult<()> {
    consumer.assign(&TopicPartitionList::new())?;
    await_removals(consumer)?;
    consumer.assign(places)
}

/// Waits until librdkafka has ended the partitions that were taken from this consumer. Its main
/// thread ends them after the call that takes them away, and an assertion of its own ends the
/// process if one is taken away again before that (`rktp_started` in rdkafka_assignment.c). Its
/// queue is first in, first out: the first question is answered after it has asked the partition to
/// end, the second one after that has ended.
pub(crate) fn await_removals(consumer: &KafkaReader) -> KafkaResult<()> {
    for _ in 0..2 {
        consumer.assignment()?;
    }
    Ok(())
}

/// Returns the number of partitions of a topic. `right` is what the caller needs. Never creates the
/// topic.
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

/// Returns the offset of this place in each partition; `None` where its leader reports none in this
/// time, or where there is no leader. It asks at most three times.
pub(crate) fn offsets_at(
    consumer: &KafkaReader,
    topic: &str,
    partitions: i32,
    place: Offset,
    wait: Duration,
) -> KafkaResult<Vec<Option<i64>>> {
    let ask = |asked: &[i32]| -> KafkaResult<Vec<Option<i64>>> {
        let mut list = TopicPartitionList::with_capacity(asked.len());
        for partition in asked {
            list.add_partition(topic, *partition).set_offset(place)?;
        }
        Ok(offsets(&consumer.offsets_for_times(list, wait)?, topic, partitions))
    };
    let all: Vec<i32> = (0..partitions).collect();
    // librdkafka reports nothing at all if one leader is missing or silent.
    ask(&all).or_else(|error| {
        let by_leader = led_partitions(consumer, topic, wait)?;
        // The only leader has been asked, or nobody says who leads.
        if by_leader.is_empty() || by_leader.contains(&all) {
            return Err(error);
        }
        Ok(ask_each(&by_leader, ask, partitions))
    })
}

/// Returns the partitions of each leader.
fn led_partitions(
    consumer: &KafkaReader,
    topic: &str,
    wait: Duration,
) -> KafkaResult<Vec<Vec<i32>>> {
    let metadata = consumer.fetch_metadata(Some(topic), wait)?;
    let mut by_leader: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    let found = metadata.topics().iter().filter(|found| found.name() == topic);
    for partition in found.flat_map(MetadataTopic::partitions) {
        if partition.leader() >= 0 {
            by_leader.entry(partition.leader()).or_default().push(partition.id());
        }
    }
    by_leader.values_mut().for_each(|led| led.sort_unstable());
    Ok(by_leader.into_values().collect())
}

/// Asks all leaders at once, each one by itself. A leader without an answer, or without a thread
/// that asks it, leaves its partitions out.
fn ask_each(
    by_leader: &[Vec<i32>],
    ask: impl Fn(&[i32]) -> KafkaResult<Vec<Option<i64>>> + Sync,
    partitions: i32,
) -> Vec<Option<i64>> {
    let mut offsets = vec![None; partitions as usize];
    thread::scope(|scope| {
        let threads = by_leader.iter().filter_map(|led| {
            let thread = thread::Builder::new().name("leader".to_owned());
            thread.spawn_scoped(scope, || ask(led)).ok()
        });
        // All of them ask before one is waited for.
        for thread in threads.collect::<Vec<_>>() {
            let Ok(answer) = thread.join().expect("a panic in any thread ends the process") else {
                continue;
            };
            let known = offsets.iter_mut().zip(answer);
            known.for_each(|(offset, answered)| *offset = answered.or(*offset));
        }
    });
    offsets
}

/// Returns the end of each partition, as [`offsets_at`] does.
pub(crate) fn log_ends(
    consumer: &KafkaReader,
    topic: &str,
    partitions: i32,
    wait: Duration,
) -> KafkaResult<Vec<Option<i64>>> {
    offsets_at(consumer, topic, partitions, Offset::End, wait)
}

/// Returns the offset that the reader's group has committed in each partition; `None` where there
/// is none.
pub(crate) fn committed(
    consumer: &KafkaReader,
    topic: &str,
    partitions: i32,
    wait: Duration,
) -> KafkaResult<Vec<Option<i64>>> {
    let mut list = TopicPartitionList::with_capacity(partitions as usize);
    list.add_partition_range(topic, 0, partitions - 1);
    Ok(offsets(&consumer.committed_offsets(list, wait)?, topic, partitions))
}

/// Returns the offsets in a list by partition; `None` where the list has none.
fn offsets(list: &TopicPartitionList, topic: &str, partitions: i32) -> Vec<Option<i64>> {
    let mut offsets = vec![None; partitions as usize];
    for element in list.elements_for_topic(topic) {
        if let Offset::Offset(offset) = element.offset()
            && let Some(of_partition) = offsets.get_mut(element.partition() as usize)
        {
            *of_partition = Some(offset);
        }
    }
    offsets
}

/// Translates an error of librdkafka about a topic; `right` is what the caller needs.
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
        // librdkafka's own errors are negative.
        Some(code) if code as i32 > 0 => {
            TopicError::NotNow(format!("`{topic}`: {}", ErrorCode(code as i16)))
        }
        _ => TopicError::Unreachable(error.to_string()),
    }
}

/// Returns whether the error is only about the group of a reader that asks the group for nothing;
/// librdkafka looks for its coordinator nevertheless.
pub(crate) fn is_of_unused_group(error: &KafkaError) -> bool {
    error.rdkafka_error_code() == Some(RDKafkaErrorCode::GroupAuthorizationFailed)
}

/// Returns whether the error says that the offset to read is out of range.
pub(crate) fn is_out_of_range(error: &KafkaError) -> bool {
    use RDKafkaErrorCode::{AutoOffsetReset, OffsetOutOfRange};
    matches!(error.rdkafka_error_code(), Some(OffsetOutOfRange | AutoOffsetReset))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdkafka::mocking::MockCluster;
    use rdkafka::producer::DefaultProducerContext;
    use std::time::Instant;

    fn reader_of(cluster: &MockCluster<'_, DefaultProducerContext>) -> KafkaReader {
        let options = ClientOptions {
            brokers: vec![cluster.bootstrap_servers()],
            client_id: "test".to_owned(),
            security: Security::default(),
            group: "test".to_owned(),
        };
        reader(&reader_config(&options), &options).expect("a client")
    }

    #[test]
    fn a_partition_can_be_read_from_elsewhere_again_and_again() {
        let cluster = MockCluster::new(1).expect("a mock cluster");
        cluster.create_topic("events", 1, 1).expect("a topic");
        let reader = reader_of(&cluster);
        let mut places = TopicPartitionList::new();
        places.add_partition_offset("events", 0, Offset::Beginning).expect("a place");
        for _ in 0..2_000 {
            read_from(&reader, &places).expect("it is assigned");
        }
        assert_eq!(reader.assignment().expect("it is asked").elements().len(), 1);
    }

    #[test]
    fn a_leader_that_is_missing_or_silent_hides_only_its_own_partitions() {
        let cluster = MockCluster::new(3).expect("a mock cluster");
        cluster.create_topic("events", 4, 1).expect("a topic");
        for (partition, leader) in [(0, Some(1)), (1, Some(2)), (2, None), (3, Some(1))] {
            cluster.partition_leader("events", partition, leader).expect("a partition");
        }
        // It never says which versions it speaks, so it is not asked who leads.
        let minutes = Duration::from_secs(600);
        cluster.broker_round_trip_time(2, minutes).expect("a broker");
        let reader = reader_of(&cluster);
        let ends = || log_ends(&reader, "events", 4, Duration::from_secs(3));
        let until = Instant::now() + minutes;
        let await_ends = |named: [Option<i64>; 4]| loop {
            match ends() {
                Ok(ends) if ends == named => break,
                // There may be no connection yet.
                ends => assert!(Instant::now() < until, "{ends:?}"),
            }
        };
        await_ends([Some(0), None, None, Some(0)]);
        cluster.partition_leader("events", 2, Some(3)).expect("a partition");
        await_ends([Some(0), None, Some(0), Some(0)]);
    }

    #[test]
    fn a_refusal_on_the_cluster_names_a_right_that_the_cluster_or_the_topic_has() {
        let refused = KafkaError::MetadataFetch(RDKafkaErrorCode::ClusterAuthorizationFailed);
        for (right, granted) in [
            (Right::Read, "grant DESCRIBE on the cluster to"),
            (Right::Write, "grant WRITE on it to"),
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
