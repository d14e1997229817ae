//! Kafka's error codes that a client of topics and of a consumer group may receive, each with one
//! sentence.

use std::fmt;

/// An error code from a broker, listed here or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ErrorCode(pub i16);

impl ErrorCode {
    /// No error.
    pub const NONE: ErrorCode = ErrorCode(0);
    /// The offset is below the start or above the end of the partition's log.
    pub const OFFSET_OUT_OF_RANGE: ErrorCode = ErrorCode(1);
    /// The broker does not know the topic or partition.
    pub const UNKNOWN_TOPIC_OR_PARTITION: ErrorCode = ErrorCode(3);
    /// The user lacks a right on the topic.
    pub(crate) const TOPIC_AUTHORIZATION_FAILED: ErrorCode = ErrorCode(29);
    /// The user lacks a right on the consumer group.
    pub(crate) const GROUP_AUTHORIZATION_FAILED: ErrorCode = ErrorCode(30);
    /// The user lacks a right on the cluster.
    pub(crate) const CLUSTER_AUTHORIZATION_FAILED: ErrorCode = ErrorCode(31);
    /// The broker does not support the version of the request.
    pub(crate) const UNSUPPORTED_VERSION: ErrorCode = ErrorCode(35);
    /// A topic cannot have this setting, or this value of it.
    pub(crate) const INVALID_CONFIG: ErrorCode = ErrorCode(40);

    /// Returns whether this is [`ErrorCode::NONE`].
    pub fn is_none(self) -> bool {
        self == ErrorCode::NONE
    }

    /// Returns whether the user lacks a right on the topic or on the cluster.
    pub(crate) fn is_forbidden(self) -> bool {
        matches!(
            self,
            ErrorCode::TOPIC_AUTHORIZATION_FAILED | ErrorCode::CLUSTER_AUTHORIZATION_FAILED
        )
    }

    /// Kafka's name of the code, or `UNLISTED` if it is not in the list.
    pub(crate) fn name(self) -> &'static str {
        self.listed().map_or("UNLISTED", |(_, name, _)| name)
    }

    /// The meaning of the code, as one sentence.
    pub(crate) fn sentence(self) -> &'static str {
        self.listed().map_or(
            "This version of huntd does not know the code: look it up in Kafka's protocol guide.",
            |(_, _, sentence)| sentence,
        )
    }

    /// The names of all listed codes, and one for the others.
    pub fn names() -> Vec<&'static str> {
        LIST.iter().map(|(_, name, _)| *name).chain(["UNLISTED"]).collect()
    }

    /// Index of the code's name in [`ErrorCode::names`].
    pub fn place(self) -> usize {
        LIST.iter().position(|(code, _, _)| *code == self.0).unwrap_or(LIST.len())
    }

    fn listed(self) -> Option<(i16, &'static str, &'static str)> {
        LIST.iter().copied().find(|(code, _, _)| *code == self.0)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({}): {}", self.name(), self.0, self.sentence())
    }
}

/// Code, Kafka's name, sentence. Source: Kafka's protocol guide, "Error Codes".
const LIST: &[(i16, &str, &str)] = &[
    (-1, "UNKNOWN_SERVER_ERROR", "The broker met an unexpected error: its log says which."),
    (0, "NONE", "The request succeeded."),
    (
        1,
        "OFFSET_OUT_OF_RANGE",
        "The offset is not in the partition's log: retention has passed it, or the log is shorter.",
    ),
    (2, "CORRUPT_MESSAGE", "The broker found a damaged batch in its log: check its disk."),
    (
        3,
        "UNKNOWN_TOPIC_OR_PARTITION",
        "The broker does not host the topic or partition: create the topic, or wait for metadata.",
    ),
    (4, "INVALID_FETCH_SIZE", "The broker rejects the fetch size as invalid."),
    (5, "LEADER_NOT_AVAILABLE", "The partition has no leader now: an election is in progress."),
    (6, "NOT_LEADER_OR_FOLLOWER", "The broker no longer leads the partition."),
    (7, "REQUEST_TIMED_OUT", "The broker could not answer in time."),
    (8, "BROKER_NOT_AVAILABLE", "The broker is not available."),
    (9, "REPLICA_NOT_AVAILABLE", "The broker has no replica of the partition now."),
    (10, "MESSAGE_TOO_LARGE", "A batch is larger than the broker allows."),
    (11, "STALE_CONTROLLER_EPOCH", "Another controller was elected."),
    (12, "OFFSET_METADATA_TOO_LARGE", "A commit's metadata is larger than the broker allows."),
    (13, "NETWORK_EXCEPTION", "The broker lost its connection to another broker."),
    (14, "COORDINATOR_LOAD_IN_PROGRESS", "The coordinator is still loading its state."),
    (15, "COORDINATOR_NOT_AVAILABLE", "No coordinator is available now."),
    (16, "NOT_COORDINATOR", "Another broker coordinates the group now."),
    (17, "INVALID_TOPIC_EXCEPTION", "The topic's name is not valid: correct it."),
    (18, "RECORD_LIST_TOO_LARGE", "A batch is larger than the broker's segments."),
    (19, "NOT_ENOUGH_REPLICAS", "Fewer replicas are in sync than min.insync.replicas requires."),
    (
        20,
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "The batch is in the leader's log, and fewer replicas are in sync than asked for.",
    ),
    (21, "INVALID_REQUIRED_ACKS", "The broker does not support this acks value."),
    (22, "ILLEGAL_GENERATION", "The group has rebalanced without this member."),
    (
        23,
        "INCONSISTENT_GROUP_PROTOCOL",
        "The group's members use another protocol: give huntd a group of its own.",
    ),
    (24, "INVALID_GROUP_ID", "The group has an invalid name: correct kafka.group."),
    (25, "UNKNOWN_MEMBER_ID", "The group no longer knows this member."),
    (
        26,
        "INVALID_SESSION_TIMEOUT",
        "The broker allows other session timeouts: correct kafka.session_timeout_ms.",
    ),
    (27, "REBALANCE_IN_PROGRESS", "The group is rebalancing: its members must rejoin."),
    (28, "INVALID_COMMIT_OFFSET_SIZE", "A commit is larger than the broker allows."),
    (29, "TOPIC_AUTHORIZATION_FAILED", "The user may not read the topic: grant READ on it."),
    (30, "GROUP_AUTHORIZATION_FAILED", "The user may not use the group: grant READ on it."),
    (31, "CLUSTER_AUTHORIZATION_FAILED", "The user may not do this on the cluster: grant it."),
    (
        32,
        "INVALID_TIMESTAMP",
        "A record's time is too far from the broker's: this host's clock is wrong, mostly ahead; \
         set both clocks right.",
    ),
    (
        33,
        "UNSUPPORTED_SASL_MECHANISM",
        "The listener has not this mechanism: correct kafka.sasl.mechanism.",
    ),
    (34, "ILLEGAL_SASL_STATE", "The listener does not expect authentication now."),
    (35, "UNSUPPORTED_VERSION", "The broker does not support this version of the request."),
    (36, "TOPIC_ALREADY_EXISTS", "The topic already exists."),
    (37, "INVALID_PARTITIONS", "A topic cannot have this number of partitions."),
    (
        38,
        "INVALID_REPLICATION_FACTOR",
        "The cluster has fewer brokers than the topic wants replicas: start more.",
    ),
    (39, "INVALID_REPLICA_ASSIGNMENT", "The replicas cannot be spread over the brokers like this."),
    (40, "INVALID_CONFIG", "The broker does not know a setting, or rejects its value."),
    (41, "NOT_CONTROLLER", "Another broker is the controller by now."),
    (42, "INVALID_REQUEST", "The broker calls the request malformed."),
    (
        43,
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
        "The topic's message format is too old: Kafka 0.11 or later must write it.",
    ),
    (
        44,
        "POLICY_VIOLATION",
        "The cluster's policy forbids it: ask who set create.topic.policy.class.name.",
    ),
    (
        45,
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "The broker lacks a batch that came before: its log has lost records, or never had them.",
    ),
    (46, "DUPLICATE_SEQUENCE_NUMBER", "The broker has the batch, and no longer knows where."),
    (47, "INVALID_PRODUCER_EPOCH", "The broker knows a newer epoch of the producer."),
    (48, "INVALID_TXN_STATE", "The broker expects no such step of a transaction."),
    (49, "INVALID_PRODUCER_ID_MAPPING", "The broker does not know the producer."),
    (51, "CONCURRENT_TRANSACTIONS", "Another step of the transaction is in progress."),
    (
        53,
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "The user may not use the transactional id: grant it.",
    ),
    (54, "SECURITY_DISABLED", "The brokers have no authorizer."),
    (56, "KAFKA_STORAGE_ERROR", "The broker cannot read the partition's log directory."),
    (
        58,
        "SASL_AUTHENTICATION_FAILED",
        "The broker refuses the user or the secret: correct [kafka.sasl].",
    ),
    (59, "UNKNOWN_PRODUCER_ID", "The broker has forgotten the producer: its records are deleted."),
    (69, "GROUP_ID_NOT_FOUND", "The broker does not know the group."),
    (70, "FETCH_SESSION_ID_NOT_FOUND", "The broker does not know the fetch session."),
    (71, "INVALID_FETCH_SESSION_EPOCH", "The fetch session is at another epoch."),
    (
        72,
        "LISTENER_NOT_FOUND",
        "The leader lacks the listener that was used: give all brokers the same listeners.",
    ),
    (74, "FENCED_LEADER_EPOCH", "The leader epoch is older than the broker's: a new one leads."),
    (75, "UNKNOWN_LEADER_EPOCH", "The broker has not yet heard of the leader epoch."),
    (76, "UNSUPPORTED_COMPRESSION_TYPE", "The broker cannot serve the batch's codec."),
    (77, "STALE_BROKER_EPOCH", "The broker has restarted meanwhile."),
    (78, "OFFSET_NOT_AVAILABLE", "A new leader does not yet know its high watermark."),
    (79, "MEMBER_ID_REQUIRED", "A member joins with the id that the group has given it."),
    (
        81,
        "GROUP_MAX_SIZE_REACHED",
        "The group is full: raise the brokers' group.max.size, or stop some members.",
    ),
    (82, "FENCED_INSTANCE_ID", "Another member uses the instance id: give each instance its own."),
    (
        87,
        "INVALID_RECORD",
        "The topic rejects the record: with cleanup.policy `compact`, records need keys: set it to \
         `delete`.",
    ),
    (88, "UNSTABLE_OFFSET_COMMIT", "A transaction that commits offsets is in progress."),
    (89, "THROTTLING_QUOTA_EXCEEDED", "The client has used up its quota: raise it, or wait."),
    (90, "PRODUCER_FENCED", "A newer producer has the same transactional id."),
    (
        97,
        "PRINCIPAL_DESERIALIZATION_FAILURE",
        "The controller cannot read who the user is: look at its log.",
    ),
    (100, "UNKNOWN_TOPIC_ID", "The broker does not know the topic's id: it may be recreated."),
    (103, "INCONSISTENT_TOPIC_ID", "The topic's id differs: it was deleted and created again."),
    (106, "FETCH_SESSION_TOPIC_ID_ERROR", "The fetch session mixes topic names and ids."),
    (108, "NEW_LEADER_ELECTED", "The partition has a new leader."),
    (109, "OFFSET_MOVED_TO_TIERED_STORAGE", "The offset now lies in remote storage only."),
    (110, "FENCED_MEMBER_EPOCH", "The group has given the partitions of this member away."),
    (
        111,
        "UNRELEASED_INSTANCE_ID",
        "Another member still uses the instance id: give each instance its own.",
    ),
    (
        112,
        "UNSUPPORTED_ASSIGNOR",
        "The brokers do not support this assignor: look at group.consumer.assignors.",
    ),
    (113, "STALE_MEMBER_EPOCH", "The member has to hear of its new epoch first."),
    (120, "TRANSACTION_ABORTABLE", "The transaction can only be aborted."),
    (129, "REBOOTSTRAP_REQUIRED", "The broker wants its clients to ask the first brokers again."),
];

#[cfg(test)]
mod tests {
    use super::*;
    use kafka_protocol::ResponseError;

    #[test]
    fn every_listed_code_is_unique_and_says_a_sentence() {
        for (place, (code, name, sentence)) in LIST.iter().enumerate() {
            assert!(LIST[..place].iter().all(|(other, _, _)| other < code), "{name} is misplaced");
            assert!(sentence.ends_with('.'), "{name} needs a sentence");
        }
    }

    /// Codes that only answers to requests which neither huntd nor its librdkafka sends can have:
    /// about transactions of others, delegation tokens, log folders, quotas and credentials,
    /// elections and reassignments, brokers and controllers among themselves, deleting, telemetry,
    /// share groups and streams.
    const OF_OTHER_REQUESTS: &[std::ops::RangeInclusive<i16>] = &[
        50..=50,
        52..=52,
        55..=55,
        57..=57,
        60..=68,
        73..=73,
        80..=80,
        83..=86,
        91..=96,
        98..=99,
        101..=102,
        104..=105,
        107..=107,
        114..=119,
        121..=128,
        130..=133,
    ];

    /// The other implementation has the list of Kafka's `Errors.java`.
    #[test]
    fn every_code_that_kafka_knows_is_listed_under_its_name_or_belongs_to_another_request() {
        let known = (i16::from(i8::MIN)..=1_000).filter_map(ResponseError::try_from_code);
        let known = known.filter(|error| !matches!(error, ResponseError::Unknown(_)));
        let mut count = 0;
        for error in known {
            let code = ErrorCode(error.code());
            let is_other = OF_OTHER_REQUESTS.iter().any(|codes| codes.contains(&code.0));
            let without_lines = code.name().replace('_', "");
            let is_listed = without_lines.eq_ignore_ascii_case(&error.to_string());
            assert!(is_listed != is_other, "{} is {error} to Kafka", code.name());
            count += 1;
        }
        assert!(count > LIST.len(), "{count} codes are known");
    }

    #[test]
    fn an_unlisted_code_still_shows_its_number() {
        assert!(ErrorCode(1234).to_string().starts_with("UNLISTED (1234): "));
        assert!(ErrorCode::OFFSET_OUT_OF_RANGE.to_string().starts_with("OFFSET_OUT_OF_RANGE (1)"));
    }
}
