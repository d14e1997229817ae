//! Kafka's error codes: the ones a reader of a topic meets, each with one sentence.

use std::fmt;

/// An error code as a broker sent it, known here or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ErrorCode(pub i16);

impl ErrorCode {
    /// No error.
    pub const NONE: ErrorCode = ErrorCode(0);
    /// The offset is below the start or above the end of the partition's log.
    pub const OFFSET_OUT_OF_RANGE: ErrorCode = ErrorCode(1);
    /// The topic or the partition is not known to this broker.
    pub const UNKNOWN_TOPIC_OR_PARTITION: ErrorCode = ErrorCode(3);
    /// The user lacks a right on the topic.
    pub(crate) const TOPIC_AUTHORIZATION_FAILED: ErrorCode = ErrorCode(29);
    /// The user lacks a right on the cluster.
    pub(crate) const CLUSTER_AUTHORIZATION_FAILED: ErrorCode = ErrorCode(31);
    /// The broker does not speak the version of the request.
    pub(crate) const UNSUPPORTED_VERSION: ErrorCode = ErrorCode(35);
    /// A topic cannot have this setting, or not with this value.
    pub(crate) const INVALID_CONFIG: ErrorCode = ErrorCode(40);

    /// Whether this is [`ErrorCode::NONE`].
    pub fn is_none(self) -> bool {
        self == ErrorCode::NONE
    }

    /// Whether the user lacks a right, on the topic or on the cluster.
    pub(crate) fn is_forbidden(self) -> bool {
        matches!(
            self,
            ErrorCode::TOPIC_AUTHORIZATION_FAILED | ErrorCode::CLUSTER_AUTHORIZATION_FAILED
        )
    }

    /// Kafka's name of the code, or `UNLISTED` when it is not in the list here.
    pub(crate) fn name(self) -> &'static str {
        self.listed().map_or("UNLISTED", |(_, name, _)| name)
    }

    /// What the code means for a reader of a topic, as one sentence.
    pub(crate) fn sentence(self) -> &'static str {
        self.listed().map_or(
            "This version of huntd does not list the code: look it up in Kafka's protocol guide.",
            |(_, _, sentence)| sentence,
        )
    }

    /// The names of all listed codes, and one for the others.
    pub fn names() -> Vec<&'static str> {
        LIST.iter().map(|(_, name, _)| *name).chain(["UNLISTED"]).collect()
    }

    /// The place of the code's name in [`ErrorCode::names`].
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
    (5, "LEADER_NOT_AVAILABLE", "The partition has no leader at the moment: an election runs."),
    (6, "NOT_LEADER_OR_FOLLOWER", "The broker no longer leads the partition."),
    (7, "REQUEST_TIMED_OUT", "The broker could not answer in time."),
    (9, "REPLICA_NOT_AVAILABLE", "The broker has no replica of the partition at the moment."),
    (10, "MESSAGE_TOO_LARGE", "A batch is larger than the broker allows."),
    (13, "NETWORK_EXCEPTION", "The broker lost its connection to another broker."),
    (14, "COORDINATOR_LOAD_IN_PROGRESS", "The broker still reads what it needs to answer."),
    (15, "COORDINATOR_NOT_AVAILABLE", "No broker coordinates this at the moment."),
    (17, "INVALID_TOPIC_EXCEPTION", "The topic's name is not valid: correct it."),
    (18, "RECORD_LIST_TOO_LARGE", "A batch is larger than the broker's segments."),
    (19, "NOT_ENOUGH_REPLICAS", "Fewer replicas are in sync than min.insync.replicas asks for."),
    (
        20,
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "The batch is in the leader's log, and fewer replicas are in sync than asked for.",
    ),
    (29, "TOPIC_AUTHORIZATION_FAILED", "The user may not read the topic: grant READ on it."),
    (31, "CLUSTER_AUTHORIZATION_FAILED", "The user may not do this on the cluster: grant it."),
    (35, "UNSUPPORTED_VERSION", "The broker does not speak this version of the request."),
    (42, "INVALID_REQUEST", "The broker calls the request malformed."),
    (
        43,
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
        "The topic's message format is too old: Kafka 0.11 or later must write it.",
    ),
    (
        45,
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "The broker lacks a batch that came before: its log has lost records, or never had them.",
    ),
    (46, "DUPLICATE_SEQUENCE_NUMBER", "The broker has the batch, and no longer knows where."),
    (47, "INVALID_PRODUCER_EPOCH", "The broker knows a newer epoch of the producer."),
    (56, "KAFKA_STORAGE_ERROR", "The broker cannot read the partition's log directory."),
    (59, "UNKNOWN_PRODUCER_ID", "The broker has forgotten the producer: its records are deleted."),
    (70, "FETCH_SESSION_ID_NOT_FOUND", "The broker does not know the fetch session."),
    (71, "INVALID_FETCH_SESSION_EPOCH", "The fetch session is at another epoch."),
    (74, "FENCED_LEADER_EPOCH", "The leader epoch is older than the broker's: a new one leads."),
    (75, "UNKNOWN_LEADER_EPOCH", "The broker has not yet heard of the leader epoch."),
    (76, "UNSUPPORTED_COMPRESSION_TYPE", "The broker cannot serve the batch's codec."),
    (78, "OFFSET_NOT_AVAILABLE", "A new leader does not yet know its high watermark."),
    (87, "INVALID_RECORD", "The broker calls a record invalid."),
    (89, "THROTTLING_QUOTA_EXCEEDED", "The client has used up its quota: raise it, or wait."),
    (100, "UNKNOWN_TOPIC_ID", "The broker does not know the topic's id: it may be recreated."),
    (103, "INCONSISTENT_TOPIC_ID", "The topic's id differs: it was deleted and created again."),
    (106, "FETCH_SESSION_TOPIC_ID_ERROR", "The fetch session mixes topic names and ids."),
    (108, "NEW_LEADER_ELECTED", "The partition has a new leader."),
    (109, "OFFSET_MOVED_TO_TIERED_STORAGE", "The offset now lies in remote storage only."),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_code_is_unique_and_says_a_sentence() {
        for (place, (code, name, sentence)) in LIST.iter().enumerate() {
            assert!(LIST[..place].iter().all(|(other, _, _)| other < code), "{name} is misplaced");
            assert!(sentence.ends_with('.'), "{name} needs a sentence");
        }
    }

    #[test]
    fn an_unlisted_code_still_shows_its_number() {
        assert!(ErrorCode(1234).to_string().starts_with("UNLISTED (1234): "));
        assert!(ErrorCode::OFFSET_OUT_OF_RANGE.to_string().starts_with("OFFSET_OUT_OF_RANGE (1)"));
    }
}
