//! Why topics could not be reached or used: one sentence each, that says what to do.

use crate::kafka::error_code::ErrorCode;
use crate::kafka::right::Right;

/// Why topics could not be reached or used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopicError {
    /// A topic does not exist.
    #[error("the topic `{0}` does not exist; create it with `huntd topics`")]
    Missing(String),
    /// Output partition = input partition, so there must be as many.
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
    /// The broker refuses.
    #[error("not authorised for `{topic}`; grant {right} to huntd's user")]
    NotAuthorised {
        /// The topic.
        topic: String,
        /// What is missing.
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
        /// The broker's own words.
        sentence: String,
    },
    /// No answer. Trying again is right.
    #[error("the brokers do not answer: {0}; check `brokers` and the network")]
    Unreachable(String),
    /// Brokers have answered, and it is not to be had now. Trying again is right.
    #[error("{0}; that may pass by itself")]
    NotNow(String),
}

impl TopicError {
    /// The broker refuses what needs this right.
    pub(crate) fn not_authorised(topic: &str, right: Right) -> TopicError {
        TopicError::NotAuthorised { topic: topic.to_owned(), right }
    }

    /// The broker refuses what needs this right with this error, which is about a right.
    pub(crate) fn refused(topic: &str, right: Right, error: ErrorCode) -> TopicError {
        TopicError::not_authorised(topic, right.refused_with(error))
    }

    /// Whether trying again can help.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, TopicError::Unreachable(_) | TopicError::NotNow(_))
    }
}
