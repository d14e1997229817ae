//! Why a shard's output was not acquired: one sentence each, that says what to do.

/// Why a shard's output was not acquired.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TailError {
    /// A topic does not exist.
    #[error("the topic `{0}` does not exist; create it with `huntd topics`")]
    TopicMissing(String),
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
    #[error("not authorised for `{0}`; grant READ, WRITE and DESCRIBE on it to huntd's user")]
    NotAuthorised(String),
    /// No answer. Trying again is right.
    #[error("the brokers do not answer: {0}; check `brokers` and the network")]
    Unreachable(String),
    /// The updates in the log are not those that its chain was made of.
    #[error(
        "partition {partition} of the output is damaged at offset {offset}: the chain does not \
         match the updates; restore the topic, or start the shard over with an empty one"
    )]
    Damaged {
        /// Output partition.
        partition: i32,
        /// Output offset of the frame.
        offset: i64,
    },
    /// Retention has deleted the start, and no fence says where the shard stood after it.
    #[error(
        "the start of output partition {0} is deleted and nothing in the rest says where the \
         shard stands; keep the output for longer than an owner's ten-second fences"
    )]
    StartGone(i32),
    /// Records vanished while they were read.
    #[error("output partition {0} was truncated while it was read; check the topic's settings")]
    Truncated(i32),
    /// Somebody else raises the epoch again and again.
    #[error(
        "another instance takes output partition {0} over again and again; check that all \
         instances are in one group"
    )]
    Contended(i32),
    /// The shard cannot be rebuilt from what the input still holds.
    #[error(
        "input partition {partition} begins at offset {start_offset}, so the updates that are \
         published cannot be made again; keep the whole input (retention.ms=-1), or start over \
         with an empty output topic"
    )]
    InputGone {
        /// Input partition.
        partition: i32,
        /// First offset that is left.
        start_offset: i64,
    },
    /// The caller did not want to go on.
    #[error("acquiring output partition {0} was given up")]
    Abandoned(i32),
}

impl TailError {
    /// Whether trying again can help.
    pub fn may_pass(&self) -> bool {
        matches!(self, TailError::Unreachable(_) | TailError::Contended(_))
    }
}
