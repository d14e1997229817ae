//! Requests about topics: their settings (DescribeConfigs), and their creation (CreateTopics), in
//! versions that all brokers from Kafka 1.1 to 4.x support. Source: Kafka's protocol guide.

use crate::kafka::error_code::ErrorCode;
use crate::kafka::message::{
    Api, ApiRange, Envelope, MessageError, encode, parse, read_array, text,
};
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::{ApiKey, CreateTopicsRequest, DescribeConfigsRequest, TopicName};
use std::collections::BTreeMap;

/// The supported version of DescribeConfigs.
pub(crate) const SETTINGS_VERSION: i16 = 1;

/// The supported version of CreateTopics.
pub(crate) const CREATE_VERSION: i16 = 2;

const DESCRIBE_CONFIGS: Api = Api {
    key: ApiKey::DescribeConfigs,
    name: "DescribeConfigs",
    version_min: SETTINGS_VERSION,
    version_max: SETTINGS_VERSION,
};
const CREATE_TOPICS: Api = Api {
    key: ApiKey::CreateTopics,
    name: "CreateTopics",
    version_min: CREATE_VERSION,
    version_max: CREATE_VERSION,
};

/// Kafka's `ConfigResource.Type` of a topic.
const TOPIC_RESOURCE: i8 = 2;

/// Settings of one topic, by name.
pub(crate) type TopicSettings = BTreeMap<String, String>;

/// A topic to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewTopic<'a> {
    /// Its name.
    pub name: &'a str,
    /// Number of partitions.
    pub partitions: u16,
    /// Replicas of each partition.
    pub replicas: u16,
    /// Settings that differ from the broker's.
    pub settings: Vec<(&'a str, &'a str)>,
}

/// The result of creating a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Creation {
    /// Why it was not created.
    pub error: ErrorCode,
    /// The broker's reason.
    pub sentence: String,
}

/// Returns whether a broker with these API ranges answers DescribeConfigs.
pub(super) fn tells_settings(ranges: &[ApiRange]) -> bool {
    let key = DESCRIBE_CONFIGS.key as i16;
    ranges.iter().any(|range| {
        range.api_key == key && (range.version_min..=range.version_max).contains(&SETTINGS_VERSION)
    })
}

/// Appends a request for all settings of a topic.
pub(crate) fn settings_request(envelope: Envelope<'_>, topic: &str, out: &mut Vec<u8>) {
    let resource = DescribeConfigsResource::default()
        .with_resource_type(TOPIC_RESOURCE)
        .with_resource_name(text(topic))
        .with_configuration_keys(None);
    let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
    encode(&DESCRIBE_CONFIGS, envelope, &request, out);
}

/// Parses the answer to [`settings_request`]. Settings without a value are left out.
pub(crate) fn parse_settings(
    bytes: &[u8],
    correlation_id: i32,
    topic: &str,
) -> Result<TopicSettings, MessageError> {
    let api = DESCRIBE_CONFIGS.name;
    let topics = parse(&DESCRIBE_CONFIGS, false, bytes, correlation_id, |reader| {
        let _throttle_ms = reader.i32()?;
        read_array(reader, false, |reader| {
            let error = ErrorCode(reader.i16()?);
            let _sentence = reader.nullable_string(false)?;
            let _resource_type = reader.i8()?;
            let name = reader.string(false)?.to_owned();
            let settings = read_array(reader, false, |reader| {
                let name = reader.string(false)?.to_owned();
                let value = reader.nullable_string(false)?.map(str::to_owned);
                let _is_read_only = reader.i8()?;
                let _source = reader.i8()?;
                let _is_sensitive = reader.i8()?;
                let _synonyms = read_array(reader, false, |reader| {
                    let _name = reader.string(false)?;
                    let _value = reader.nullable_string(false)?;
                    reader.i8()
                })?;
                Ok((name, value))
            })?;
            Ok((name, error, settings))
        })
    })?;
    let found = topics.into_iter().find(|(name, ..)| name == topic);
    let (_, error, settings) = found.ok_or(MessageError::TopicMissing { api })?;
    match error.is_none() {
        true => Ok(settings.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()),
        false => Err(MessageError::Refused { api, error }),
    }
}

/// Appends a request to create a topic, for the controller. It answers when the topic exists, or
/// after this many milliseconds.
pub(crate) fn create_request(
    envelope: Envelope<'_>,
    topic: &NewTopic<'_>,
    wait_ms: i32,
    out: &mut Vec<u8>,
) {
    let setting = |(name, value): &(&str, &str)| {
        CreatableTopicConfig::default().with_name(text(name)).with_value(Some(text(value)))
    };
    let settings = topic.settings.iter().map(setting).collect();
    let topic = CreatableTopic::default()
        .with_name(TopicName(text(topic.name)))
        .with_num_partitions(topic.partitions.into())
        .with_replication_factor(topic.replicas as i16)
        .with_configs(settings);
    let request = CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(wait_ms);
    encode(&CREATE_TOPICS, envelope, &request, out);
}

/// Parses the answer to [`create_request`].
pub(crate) fn parse_create(
    bytes: &[u8],
    correlation_id: i32,
    topic: &str,
) -> Result<Creation, MessageError> {
    let topics = parse(&CREATE_TOPICS, false, bytes, correlation_id, |reader| {
        let _throttle_ms = reader.i32()?;
        read_array(reader, false, |reader| {
            let name = reader.string(false)?.to_owned();
            let error = ErrorCode(reader.i16()?);
            let sentence = reader.nullable_string(false)?.unwrap_or_default().to_owned();
            Ok((name, Creation { error, sentence }))
        })
    })?;
    let found = topics.into_iter().find(|(name, _)| name == topic);
    found
        .map(|(_, creation)| creation)
        .ok_or(MessageError::TopicMissing { api: CREATE_TOPICS.name })
}
