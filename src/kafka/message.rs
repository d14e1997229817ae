//! Messages other than Fetch: their common header, version negotiation, and partition leaders.
//!
//! These are rare, so they may allocate. Requests are encoded by the `kafka-protocol` crate.
//! Responses are read here: that crate allocates what an array's length claims before it reads an
//! element, so four damaged bytes could end the process.

use bytes::BytesMut;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, MetadataRequest, RequestHeader, TopicName,
};
use kafka_protocol::protocol::{Encodable, StrBytes};
use thiserror::Error;

use crate::kafka::error_code::ErrorCode;
use crate::kafka::wire::{FRAME_PREFIX_BYTES, WireError, WireReader};
use crate::kafka::{fetch, produce, topic_requests};

/// Why an answer cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MessageError {
    /// The bytes are not a valid answer.
    #[error("the broker's {api} answer is malformed: {error}")]
    Malformed {
        /// Kafka's name of the request.
        api: &'static str,
        /// The parse error.
        error: WireError,
    },
    /// The answer belongs to another request.
    #[error("the broker answered request {found} when the answer to {expected} was due")]
    Correlation {
        /// The request that was sent.
        expected: i32,
        /// The correlation id of the answer.
        found: i32,
    },
    /// The length prefix of a message is invalid.
    #[error(
        "the broker announces a message of {bytes} bytes, but at most {bytes_max} are taken: \
         check that the address is a plaintext Kafka listener"
    )]
    Length {
        /// The announced length.
        bytes: i32,
        /// The limit.
        bytes_max: usize,
    },
    /// The broker refused the request.
    #[error("the broker refused {api}: {error}")]
    Refused {
        /// Kafka's name of the request.
        api: &'static str,
        /// The broker's reason.
        error: ErrorCode,
    },
    /// The broker and huntd support no common version of a request.
    #[error(
        "the broker supports {api} {broker_min} to {broker_max}, huntd {min} to {max}: \
         use Kafka 3.3 or later"
    )]
    NoVersion {
        /// Kafka's name of the request.
        api: &'static str,
        /// The broker's range; 0 to -1 if it does not know the request.
        broker_min: i16,
        /// See `broker_min`.
        broker_max: i16,
        /// The range of huntd.
        min: i16,
        /// See `min`.
        max: i16,
    },
    /// A cluster that keeps to the protocol of brokers before Kafka 2.8 has no ids.
    #[error("the requested topic has no id: set inter.broker.protocol.version to 3.3 or newer")]
    WithoutId,
    /// The answer lacks the requested topic.
    #[error("the broker's {api} answer does not contain the requested topic")]
    TopicMissing {
        /// Kafka's name of the request.
        api: &'static str,
    },
}

/// Returns the length of the message at the start of `bytes`, without its prefix; `None` if fewer
/// than four bytes are available.
pub fn frame_length(bytes: &[u8], bytes_max: usize) -> Result<Option<usize>, MessageError> {
    let Some(prefix) = bytes.first_chunk::<FRAME_PREFIX_BYTES>() else {
        return Ok(None);
    };
    let length = i32::from_be_bytes(*prefix);
    match usize::try_from(length) {
        // Every answer contains the four bytes of its correlation id.
        Ok(length) if (4..=bytes_max).contains(&length) => Ok(Some(length)),
        _ => Err(MessageError::Length { bytes: length, bytes_max }),
    }
}

/// A kind of request and its supported versions.
pub(super) struct Api {
    pub(super) key: ApiKey,
    pub(super) name: &'static str,
    pub(super) version_min: i16,
    pub(super) version_max: i16,
}

const FETCH: Api = Api {
    key: ApiKey::Fetch,
    name: "Fetch",
    version_min: fetch::FETCH_VERSION_MIN,
    version_max: fetch::FETCH_VERSION_MAX,
};
const METADATA: Api = Api {
    key: ApiKey::Metadata,
    name: "Metadata",
    // All brokers since Kafka 3.1 know it.
    version_min: METADATA_VERSION,
    version_max: METADATA_VERSION,
};
/// Written by `kafka/produce.rs`.
pub(super) const PRODUCE: Api = Api {
    key: ApiKey::Produce,
    name: "Produce",
    version_min: produce::PRODUCE_VERSION_MIN,
    version_max: produce::PRODUCE_VERSION_MAX,
};

/// Written by `kafka/producer_id.rs`.
pub(super) const INIT_PRODUCER_ID: Api =
    Api { key: ApiKey::InitProducerId, name: "InitProducerId", version_min: 0, version_max: 1 };

const API_VERSIONS: Api =
    Api { key: ApiKey::ApiVersions, name: "ApiVersions", version_min: 0, version_max: 3 };

/// The version of Metadata: the answer has the topic's id, and is in the compact, tagged encoding
/// (KIP-516, KIP-482).
const METADATA_VERSION: i16 = 12;

/// The version of the first [`api_versions_request`].
pub const API_VERSIONS_VERSION_MAX: i16 = API_VERSIONS.version_max;

/// The API versions of a connection: the newest that both sides support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// Of Fetch.
    pub fetch: i16,
    /// Of Produce.
    pub produce: i16,
    /// Of InitProducerId.
    pub init_producer_id: i16,
    /// True if the broker answers DescribeConfigs.
    pub tells_settings: bool,
}

/// The versions of one request that a broker supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ApiRange {
    /// Kafka's number of the request.
    pub api_key: i16,
    /// Oldest version.
    pub version_min: i16,
    /// Newest version.
    pub version_max: i16,
}

impl Versions {
    /// Chooses the newest version of each request that the broker's ranges allow.
    pub(crate) fn choose(ranges: &[ApiRange]) -> Result<Versions, MessageError> {
        choose_version(&METADATA, ranges)?;
        Ok(Versions {
            fetch: choose_version(&FETCH, ranges)?,
            produce: choose_version(&PRODUCE, ranges)?,
            init_producer_id: choose_version(&INIT_PRODUCER_ID, ranges)?,
            tells_settings: topic_requests::tells_settings(ranges),
        })
    }
}

fn choose_version(api: &Api, ranges: &[ApiRange]) -> Result<i16, MessageError> {
    let (broker_min, broker_max) = ranges
        .iter()
        .find(|range| range.api_key == api.key as i16)
        .map_or((0, -1), |range| (range.version_min, range.version_max));
    let version = broker_max.min(api.version_max);
    if version >= broker_min.max(api.version_min) {
        return Ok(version);
    }
    let (min, max) = (api.version_min, api.version_max);
    Err(MessageError::NoVersion { api: api.name, broker_min, broker_max, min, max })
}

/// The header fields of a request.
#[derive(Clone, Copy, Debug)]
pub struct Envelope<'a> {
    /// Version of the request.
    pub version: i16,
    /// Returned in the answer.
    pub correlation_id: i32,
    /// Name of the client in the broker's logs and quotas.
    pub client_id: &'a str,
}

/// Appends a request with its length prefix and header.
pub(super) fn encode<R: Encodable>(
    api: &Api,
    envelope: Envelope<'_>,
    request: &R,
    out: &mut Vec<u8>,
) {
    let version = envelope.version;
    assert!((api.version_min..=api.version_max).contains(&version));
    let header = RequestHeader::default()
        .with_request_api_key(api.key as i16)
        .with_request_api_version(version)
        .with_correlation_id(envelope.correlation_id)
        .with_client_id(Some(text(envelope.client_id)));
    let mut body = BytesMut::new();
    header
        .encode(&mut body, api.key.request_header_version(version))
        .and_then(|()| request.encode(&mut body, version))
        .expect("the version is one that the crate knows and every field is set for it");
    out.extend_from_slice(&(body.len() as u32).to_be_bytes());
    out.extend_from_slice(&body);
}

/// Converts a string for the `kafka-protocol` crate.
pub(super) fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

/// Parses an answer's header and hands the rest to `read`. Bytes that follow are ignored, as
/// Kafka's own clients do: librdkafka's mock cluster appends extra bytes to Metadata answers.
pub(super) fn parse<T>(
    api: &Api,
    flexible_header: bool,
    bytes: &[u8],
    correlation_id: i32,
    read: impl FnOnce(&mut WireReader<'_>) -> Result<T, WireError>,
) -> Result<T, MessageError> {
    let malformed = |error| MessageError::Malformed { api: api.name, error };
    let mut reader = WireReader::new(bytes);
    let found = reader.i32().map_err(malformed)?;
    if found != correlation_id {
        return Err(MessageError::Correlation { expected: correlation_id, found });
    }
    if flexible_header {
        reader.skip_tagged_fields().map_err(malformed)?;
    }
    read(&mut reader).map_err(malformed)
}

/// Reads an array element by element, so that a false length causes no allocation.
pub(super) fn read_array<T>(
    reader: &mut WireReader<'_>,
    flexible: bool,
    mut read: impl FnMut(&mut WireReader<'_>) -> Result<T, WireError>,
) -> Result<Vec<T>, WireError> {
    let mut elements = Vec::new();
    for _ in 0..reader.array(flexible)? {
        elements.push(read(reader)?);
        if flexible {
            reader.skip_tagged_fields()?;
        }
    }
    Ok(elements)
}

/// Appends an ApiVersions request. Start with [`API_VERSIONS_VERSION_MAX`].
pub fn api_versions_request(envelope: Envelope<'_>, out: &mut Vec<u8>) {
    let request = ApiVersionsRequest::default()
        .with_client_software_name(text(env!("CARGO_PKG_NAME")))
        .with_client_software_version(text(env!("CARGO_PKG_VERSION")));
    encode(&API_VERSIONS, envelope, &request, out);
}

/// A broker's answer to ApiVersions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiVersionsAnswer {
    /// The versions to use from now on.
    Chosen(Versions),
    /// The broker does not support the version of the request: ask again with version 0 (KIP-511).
    AskWithVersionZero,
}

/// Parses the answer to an ApiVersions request of `version`.
pub fn parse_api_versions(
    bytes: &[u8],
    version: i16,
    correlation_id: i32,
) -> Result<ApiVersionsAnswer, MessageError> {
    // A broker that does not know the version answers in version 0. The header never has the
    // flexible form, because the client cannot know yet what the broker supports (KIP-511).
    let error = parse_error_code(bytes, correlation_id)?;
    if error == ErrorCode::UNSUPPORTED_VERSION && version > 0 {
        return Ok(ApiVersionsAnswer::AskWithVersionZero);
    }
    if !error.is_none() {
        return Err(MessageError::Refused { api: API_VERSIONS.name, error });
    }
    let flexible = version >= 3;
    let ranges = parse(&API_VERSIONS, false, bytes, correlation_id, |reader| {
        let _error = reader.i16()?;
        let ranges = read_array(reader, flexible, |reader| {
            let (api_key, version_min) = (reader.i16()?, reader.i16()?);
            Ok(ApiRange { api_key, version_min, version_max: reader.i16()? })
        })?;
        if version >= 1 {
            let _throttle_ms = reader.i32()?;
        }
        if flexible {
            reader.skip_tagged_fields()?;
        }
        Ok(ranges)
    })?;
    Versions::choose(&ranges).map(ApiVersionsAnswer::Chosen)
}

fn parse_error_code(bytes: &[u8], correlation_id: i32) -> Result<ErrorCode, MessageError> {
    parse(&API_VERSIONS, false, bytes, correlation_id, |reader| reader.i16().map(ErrorCode))
}

/// Appends a Metadata request for one topic, which the broker must not create.
pub fn metadata_request(correlation_id: i32, client_id: &str, topic: &str, out: &mut Vec<u8>) {
    let envelope = Envelope { version: METADATA_VERSION, correlation_id, client_id };
    let topic = MetadataRequestTopic::default().with_name(Some(TopicName(text(topic))));
    let request = MetadataRequest::default()
        .with_topics(Some(vec![topic]))
        .with_allow_auto_topic_creation(false);
    encode(&METADATA, envelope, &request, out);
}

/// The cluster and one topic, as one broker sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// The brokers of the cluster.
    pub brokers: Vec<Broker>,
    /// The cluster's id, if the broker reports it.
    pub cluster_id: Option<String>,
    /// The controller, which creates topics.
    pub controller: Option<i32>,
    /// An error of the topic as a whole.
    pub error: ErrorCode,
    /// The topic's id, which a recreated topic does not keep.
    pub topic_id: u128,
    /// The topic's partitions, in the broker's order.
    pub partitions: Vec<PartitionLeader>,
    /// Number of replicas of the partition with the fewest; 0 without partitions.
    pub replicas: usize,
}

/// A broker and its endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broker {
    /// Its id.
    pub node_id: i32,
    /// Name or address, to be resolved off the hot thread.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

/// The leader of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionLeader {
    /// The partition.
    pub partition: i32,
    /// The broker that leads; `None` while there is no leader.
    pub leader: Option<i32>,
    /// The leader epoch; -1 if the broker does not know it.
    pub leader_epoch: i32,
    /// An error of the partition.
    pub error: ErrorCode,
}

/// Parses the answer to a Metadata request for `topic`.
pub fn parse_metadata(
    bytes: &[u8],
    correlation_id: i32,
    topic: &str,
) -> Result<Metadata, MessageError> {
    let (brokers, cluster_id, controller, topics) =
        parse(&METADATA, true, bytes, correlation_id, |reader| {
            let _throttle_ms = reader.i32()?;
            let brokers = read_array(reader, true, read_broker)?;
            let cluster_id = reader.nullable_string(true)?;
            let controller = Some(reader.i32()?).filter(|node_id| *node_id >= 0);
            let topics = read_array(reader, true, read_topic)?;
            reader.skip_tagged_fields()?;
            Ok((brokers, cluster_id.map(str::to_owned), controller, topics))
        })?;
    let TopicMetadata { error, topic_id, partitions, replicas, .. } = topics
        .into_iter()
        .find(|found| found.name.as_deref() == Some(topic))
        .ok_or(MessageError::TopicMissing { api: METADATA.name })?;
    if topic_id == 0 && error.is_none() {
        return Err(MessageError::WithoutId);
    }
    Ok(Metadata { brokers, cluster_id, controller, error, topic_id, partitions, replicas })
}

fn read_broker(reader: &mut WireReader<'_>) -> Result<Broker, WireError> {
    let node_id = reader.i32()?;
    let host = reader.string(true)?.to_owned();
    let port = u16::try_from(reader.i32()?).unwrap_or(0);
    let _rack = reader.nullable_string(true)?;
    Ok(Broker { node_id, host, port })
}

/// One topic of a Metadata answer.
struct TopicMetadata {
    name: Option<String>,
    error: ErrorCode,
    topic_id: u128,
    partitions: Vec<PartitionLeader>,
    replicas: usize,
}

fn read_topic(reader: &mut WireReader<'_>) -> Result<TopicMetadata, WireError> {
    let error = ErrorCode(reader.i16()?);
    let name = reader.nullable_string(true)?.map(str::to_owned);
    let topic_id = reader.u128()?;
    let _is_internal = reader.i8()?;
    let mut replicas: Option<usize> = None;
    let partitions = read_array(reader, true, |reader| {
        let error = ErrorCode(reader.i16()?);
        let partition = reader.i32()?;
        let node_id = reader.i32()?;
        let leader = (node_id >= 0).then_some(node_id);
        let leader_epoch = reader.i32()?;
        let copies = read_array_of_ids(reader)?;
        replicas = Some(replicas.map_or(copies, |fewest| fewest.min(copies)));
        let _in_sync = read_array_of_ids(reader)?;
        let _offline = read_array_of_ids(reader)?;
        Ok(PartitionLeader { partition, leader, leader_epoch, error })
    })?;
    let _authorized_operations = reader.i32()?;
    Ok(TopicMetadata { name, error, topic_id, partitions, replicas: replicas.unwrap_or(0) })
}

/// Skips a list of broker ids and returns its length.
fn read_array_of_ids(reader: &mut WireReader<'_>) -> Result<usize, WireError> {
    let count = reader.array(true)?;
    for _ in 0..count {
        reader.i32()?;
    }
    Ok(count)
}
