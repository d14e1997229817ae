//! Kafka's error codes that a client of topics and of a consumer group may receive, each with one
//! sentence: the rows of `error_codes.txt`.

use std::fmt;
use std::sync::LazyLock;

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

    /// Returns the names of all listed codes, and one for the others.
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

/// Code, Kafka's name and sentence of each row. Source: Kafka's protocol guide, "Error Codes".
static LIST: LazyLock<Vec<(i16, &str, &str)>> = LazyLock::new(|| {
    let row = |row: &'static str| {
        let mut parts = row.splitn(3, ' ');
        let (code, name, sentence) = (parts.next(), parts.next(), parts.next());
        Some((code?.parse().ok()?, name?, sentence?))
    };
    let rows = include_str!("error_codes.txt").lines();
    rows.map(|line| row(line).expect("a test reads all rows")).collect()
});

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
