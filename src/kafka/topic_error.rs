//! Why topics cannot be reached or used: one sentence each that says what to do.

use crate::kafka::error_code::ErrorCode;
use crate::kafka::right::Right;
use crate::telemetry::progress::SHARDS_MAX;

/// Why topics could not be reached or used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopicError {
    /// A topic does not exist.
    #[error("the topic `{0}` does not exist; create it with `huntd topics`")]
    Missing(String),
    /// Each output partition belongs to one input partition, so the counts must be equal.
    #[error(
        "`{output_topic}` has {output} partitions and `{input_topic}` has {input}; \
         they must be equal, see `huntd topics`"
    )]
    PartitionsDiffer {
        /// Name of the input topic.
        input_topic: String,
        /// Its partitions.
        input: i32,
        /// Name of the output topic.
        output_topic: String,
        /// Its partitions.
        output: i32,
    },
    /// The topic has more partitions than a process supports.
    #[error(
        "`{topic}` has {partitions} partitions and huntd supports {SHARDS_MAX} at most; use a \
         topic with fewer"
    )]
    TooManyPartitions {
        /// The topic.
        topic: String,
        /// Its partitions.
        partitions: usize,
    },
    /// The broker denies access.
    #[error("not authorised for `{topic}`; grant {right} to this Kafka user")]
    NotAuthorised {
        /// The topic.
        topic: String,
        /// The missing right.
        right: Right,
    },
    /// The broker does not create the topic.
    #[error(
        "`{topic}` was not created: {sentence} (error {code}); check --partitions and --replicas"
    )]
    NotCreated {
        /// The topic.
        topic: String,
        /// Kafka's error code.
        code: i16,
        /// The broker's reason.
        sentence: String,
    },
    /// No broker answers. Retry.
    #[error("the brokers do not answer: {0}; check their addresses and the network")]
    Unreachable(String),
    /// Brokers have answered, but cannot serve the request now. Retry.
    #[error("{0}; that may pass by itself")]
    NotNow(String),
}

impl TopicError {
    /// An error unless the output topic has as many partitions as the input topic.
    pub(crate) fn unless_equal(
        (input_topic, input): (&str, i32),
        (output_topic, output): (&str, i32),
    ) -> Result<(), TopicError> {
        let (input_topic, output_topic) = (input_topic.to_owned(), output_topic.to_owned());
        match input == output {
            true => Ok(()),
            false => Err(TopicError::PartitionsDiffer { input_topic, input, output_topic, output }),
        }
    }

    /// Returns the error for an operation that needs this right.
    pub(crate) fn not_authorised(topic: &str, right: Right) -> TopicError {
        TopicError::NotAuthorised { topic: topic.to_owned(), right }
    }

    /// Maps an authorization error to the missing right.
    pub(crate) fn refused(topic: &str, right: Right, error: ErrorCode) -> TopicError {
        TopicError::not_authorised(topic, right.refused_with(error))
    }

    /// Returns the number of partitions of a topic, if it is within the limit.
    pub(crate) fn unless_too_many(topic: &str, partitions: usize) -> Result<u16, TopicError> {
        match u16::try_from(partitions) {
            Ok(few) if partitions <= SHARDS_MAX => Ok(few),
            _ => Err(TopicError::TooManyPartitions { topic: topic.to_owned(), partitions }),
        }
    }

    /// Returns whether trying again can help.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, TopicError::Unreachable(_) | TopicError::NotNow(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_with_more_partitions_than_there_is_room_for_is_refused_with_its_number() {
        for few in [1, SHARDS_MAX] {
            assert_eq!(TopicError::unless_too_many("updates", few), Ok(few as u16));
        }
        for many in [SHARDS_MAX + 1, 5_000, usize::from(u16::MAX) + 2] {
            let error = TopicError::unless_too_many("updates", many).expect_err("too many");
            assert!(!error.may_pass());
            let words =
                format!("`updates` has {many} partitions and huntd supports 1024 at most; ");
            assert!(error.to_string().starts_with(&words), "{error}");
        }
    }
}
