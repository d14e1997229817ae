//! Why a tool ends without having done its work.

use super::source::SourceError;
use crate::daemon::failure::Failure;
use crate::kafka::error_code::ErrorCode;
use crate::kafka::right::Right;
use crate::ownership::start_error::StartError;
use crate::runtime::resources::ResourceError;
use crate::service::exit::ExitCode;
use crate::service::settings::ConfigErrors;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use std::io;

/// One sentence that says what to do, and the exit code that goes with it.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// A file of events gives no more.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The arguments do not fit each other, or the file.
    #[error("{0}")]
    Usage(String),
    /// The configuration or the rules are wrong.
    #[error("{0}")]
    Config(String),
    /// No broker answers, or none for long enough.
    #[error("the brokers do not answer: {0}; check their addresses and the network")]
    Unreachable(String),
    /// A topic does not exist.
    #[error("the topic `{0}` does not exist; create it with `huntd topics`")]
    TopicMissing(String),
    /// A topic is not as it has to be.
    #[error("{0}")]
    TopicWrong(String),
    /// The broker refuses.
    #[error("not authorised for `{topic}`; grant {right} to this user")]
    NotAuthorised {
        /// The topic.
        topic: String,
        /// What is missing.
        right: Right,
    },
    /// What came out is not what went in.
    #[error("{0}")]
    VerificationFailed(String),
    /// The daemon inside the tool ended by itself.
    #[error("{sentence}")]
    Daemon {
        /// The daemon's own sentence.
        sentence: String,
        /// The daemon's own exit code.
        code: ExitCode,
    },
    /// The process may have too little.
    #[error(transparent)]
    Resources(#[from] ResourceError),
    /// Several things are wrong, a line each.
    #[error("{}", .0.iter().map(ToolError::to_string).collect::<Vec<_>>().join("\n"))]
    Several(Vec<ToolError>),
    /// Standard output takes no more.
    #[error("the output cannot be written: {0}; make room on its disk, or send it elsewhere")]
    Output(#[from] io::Error),
}

impl From<ConfigErrors> for ToolError {
    fn from(error: ConfigErrors) -> ToolError {
        ToolError::Config(error.to_string())
    }
}

impl From<StartError> for ToolError {
    fn from(refusal: StartError) -> ToolError {
        ToolError::Config(refusal.to_string())
    }
}

impl From<Failure> for ToolError {
    fn from(failure: Failure) -> ToolError {
        ToolError::Daemon { sentence: failure.to_string(), code: failure.exit_code() }
    }
}

impl ToolError {
    /// One error as it is, several with a line each.
    pub(super) fn unless_empty(mut errors: Vec<ToolError>) -> Result<(), ToolError> {
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0)),
            _ => Err(ToolError::Several(errors)),
        }
    }

    /// The exit code that says the same to a script.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            ToolError::Source(_) | ToolError::Usage(_) => ExitCode::Usage,
            ToolError::Config(_) => ExitCode::Config,
            ToolError::Unreachable(_) => ExitCode::KafkaUnreachable,
            ToolError::TopicMissing(_) | ToolError::TopicWrong(_) => ExitCode::TopicWrong,
            ToolError::NotAuthorised { .. } => ExitCode::NotAuthorised,
            ToolError::VerificationFailed(_) => ExitCode::VerificationFailed,
            ToolError::Daemon { code, .. } => *code,
            ToolError::Resources(_) => ExitCode::OutOfResources,
            ToolError::Several(errors) => errors.first().map_or(ExitCode::Ok, ToolError::exit_code),
            // A reader that closes the pipe, as `head` does, has seen enough.
            ToolError::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::Ok,
            ToolError::Output(_) => ExitCode::OutOfResources,
        }
    }

    /// Whether the brokers refuse to talk to this client at all, as the configuration is.
    pub(super) fn is_refusal(&self) -> bool {
        use ExitCode::{ListenerDiffers, NotAuthenticated, TlsRefused};
        matches!(self.exit_code(), TlsRefused | NotAuthenticated | ListenerDiffers)
    }

    /// What librdkafka says about a topic where the verb needs this right, as something to do.
    pub(crate) fn of_topic(topic: &str, right: Right, error: &KafkaError) -> ToolError {
        // rdkafka does not count the codes of administration among its own.
        let code = match error {
            KafkaError::AdminOp(code) => Some(*code),
            _ => error.rdkafka_error_code(),
        };
        match code {
            Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => {
                ToolError::TopicMissing(topic.to_owned())
            }
            Some(
                code @ (RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::ClusterAuthorizationFailed),
            ) => {
                let right = right.refused_with(ErrorCode(code as i16));
                ToolError::NotAuthorised { topic: topic.to_owned(), right }
            }
            Some(RDKafkaErrorCode::InvalidTopic) => ToolError::Usage(format!(
                "`{topic}` cannot be a topic's name; use letters, digits, `.`, `_` and `-`"
            )),
            Some(RDKafkaErrorCode::InvalidRecord | RDKafkaErrorCode::InvalidTimestamp) => {
                ToolError::TopicWrong(format!(
                    "`{topic}` refuses the records, most likely for their timestamps; give \
                     --base-ms a time that is not in the future"
                ))
            }
            Some(RDKafkaErrorCode::MessageSizeTooLarge | RDKafkaErrorCode::PolicyViolation) => {
                ToolError::TopicWrong(format!(
                    "`{topic}` refuses the records: {error}; check its settings with `huntd topics`"
                ))
            }
            _ => ToolError::Unreachable(error.to_string()),
        }
    }
}
