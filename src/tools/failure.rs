//! Why a tool failed.

use super::source::SourceError;
use crate::daemon::failure::{Failure, topic_exit_code};
use crate::kafka::client::topic_error;
use crate::kafka::right::Right;
use crate::kafka::topic_error::TopicError;
use crate::ownership::start_error::StartError;
use crate::runtime::resources::ResourceError;
use crate::service::exit::ExitCode;
use crate::service::settings::ConfigErrors;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use std::io;

/// One sentence that says what to do, and its exit code.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// A file of events cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The arguments conflict with each other, or with the file.
    #[error("{0}")]
    Usage(String),
    /// The configuration or the rules are wrong.
    #[error("{0}")]
    Config(String),
    /// A topic cannot be reached or used.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// A topic has the wrong settings or contents.
    #[error("{0}")]
    TopicWrong(String),
    /// The output does not match the input.
    #[error("{0}")]
    VerificationFailed(String),
    /// The daemon inside the tool ended by itself.
    #[error("{sentence}")]
    Daemon {
        /// The daemon's error.
        sentence: String,
        /// The daemon's exit code.
        code: ExitCode,
    },
    /// Too few file descriptors or threads are available.
    #[error(transparent)]
    Resources(#[from] ResourceError),
    /// Several errors, one per line.
    #[error("{}", .0.iter().map(ToolError::to_string).collect::<Vec<_>>().join("\n"))]
    Several(Vec<ToolError>),
    /// Standard output cannot be written.
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
    /// Returns a single error as it is, several errors with a line each.
    pub(super) fn unless_empty(mut errors: Vec<ToolError>) -> Result<(), ToolError> {
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0)),
            _ => Err(ToolError::Several(errors)),
        }
    }

    /// The exit code for this error.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            ToolError::Source(_) | ToolError::Usage(_) => ExitCode::Usage,
            ToolError::Config(_) => ExitCode::Config,
            ToolError::Topic(error) => topic_exit_code(error),
            ToolError::TopicWrong(_) => ExitCode::TopicWrong,
            ToolError::VerificationFailed(_) => ExitCode::VerificationFailed,
            ToolError::Daemon { code, .. } => *code,
            ToolError::Resources(_) => ExitCode::OutOfResources,
            ToolError::Several(errors) => errors.first().map_or(ExitCode::Ok, ToolError::exit_code),
            // A reader that closes the pipe, as `head` does, has seen enough. Verbs that do more
            // than print write through `WhileRead`.
            ToolError::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::Ok,
            ToolError::Output(_) => ExitCode::OutOfResources,
        }
    }

    /// Returns whether the brokers refuse this client with this configuration.
    pub(super) fn is_refusal(&self) -> bool {
        use ExitCode::{ListenerDiffers, NotAuthenticated, TlsRefused};
        matches!(self.exit_code(), TlsRefused | NotAuthenticated | ListenerDiffers)
    }

    /// Translates an error of librdkafka about a topic on which the verb needs this right.
    pub(crate) fn of_topic(topic: &str, right: Right, error: &KafkaError) -> ToolError {
        match error.rdkafka_error_code() {
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
            _ => ToolError::Topic(topic_error(topic, right, error)),
        }
    }
}
