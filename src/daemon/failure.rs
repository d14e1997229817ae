//! Why the daemon could not start, or has ended, and with which exit code.

use crate::control::control_error::ControlError;
use crate::control::dialler::WrongFile;
use crate::fetch::dialling::DialError;
use crate::kafka::membership::MembershipError;
use crate::kafka::sasl::SaslError;
use crate::kafka::tls::TlsError;
use crate::kafka::topic_error::TopicError;
use crate::publisher::PublisherError;
use crate::runtime::cpu::CpuError;
use crate::runtime::ring_error::RingError;
use crate::service;
use crate::service::exit::ExitCode;
use crate::snapshot::disk::DirectoryError;
use std::io;

/// Why the daemon could not start, or has ended.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// No broker name can be resolved.
    #[error("none of the brokers {0} can be resolved: check kafka.brokers and the name service")]
    UnknownBrokers(String),
    /// A certificate, key or password file cannot be used.
    #[error(transparent)]
    File(#[from] WrongFile),
    /// The threads cannot be placed on cores.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// io_uring cannot be used.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// The state directory cannot be used.
    #[error(transparent)]
    StateDirectory(#[from] DirectoryError),
    /// The service thread failed.
    #[error(transparent)]
    Service(#[from] service::Error),
    /// The control thread failed.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The publisher failed.
    #[error(transparent)]
    Publisher(#[from] PublisherError),
}

impl Failure {
    /// Returns the failure of a process without a free file descriptor or thread.
    pub(crate) fn out_of_resources(error: io::Error) -> Failure {
        Failure::Service(service::Error::Resources(error))
    }

    /// The exit code of the process.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Failure::UnknownBrokers(_) => ExitCode::KafkaUnreachable,
            Failure::File(_) => ExitCode::Config,
            Failure::Cpu(_) => ExitCode::CorePinning,
            Failure::Ring(error) | Failure::Publisher(PublisherError::Ring(error)) => match error {
                RingError::NoDescriptors(_) => ExitCode::OutOfResources,
                _ => ExitCode::RingUnavailable,
            },
            Failure::StateDirectory(_) => ExitCode::Config,
            Failure::Service(service::Error::Listen { source, .. }) => {
                ExitCode::of_listening(source)
            }
            Failure::Service(service::Error::Resources(_)) => ExitCode::OutOfResources,
            Failure::Publisher(PublisherError::NotFlushed(_)) => ExitCode::KafkaUnreachable,
            Failure::Control(ControlError::Dial(error)) => dial_code(error),
            Failure::Control(ControlError::Advertised(fault)) => dial_code(&fault.error),
            Failure::Control(ControlError::TopicsWrong(_)) => ExitCode::TopicWrong,
            Failure::Control(ControlError::ShardsHalted(_)) => ExitCode::ShardHalted,
            Failure::Control(ControlError::Membership(error)) => match error {
                MembershipError::TopicMissing(_) | MembershipError::ZoneMissing { .. } => {
                    ExitCode::TopicWrong
                }
                MembershipError::NotAuthorised { .. } => ExitCode::NotAuthorised,
                MembershipError::NotAuthenticated(_) => ExitCode::NotAuthenticated,
                MembershipError::TlsFailed(_) | MembershipError::TlsOutdated(_) => {
                    ExitCode::TlsRefused
                }
                MembershipError::InstanceTaken(_)
                | MembershipError::InstanceHeld(_)
                | MembershipError::Inconsistent(_)
                | MembershipError::Unnamed
                | MembershipError::Unlisted(_)
                | MembershipError::Refused(_) => ExitCode::Config,
                MembershipError::Unreachable(_)
                | MembershipError::NoCoordinator { .. }
                | MembershipError::Passing(_) => ExitCode::KafkaUnreachable,
            },
            Failure::Control(ControlError::Topic(error)) => topic_exit_code(error),
        }
    }
}

/// The exit code when a topic cannot be used.
pub(crate) fn topic_exit_code(error: &TopicError) -> ExitCode {
    match error {
        TopicError::Missing(_)
        | TopicError::PartitionsDiffer { .. }
        | TopicError::TooManyPartitions { .. }
        | TopicError::NotCreated { .. } => ExitCode::TopicWrong,
        TopicError::NotAuthorised { .. } => ExitCode::NotAuthorised,
        TopicError::Unreachable(_) | TopicError::NotNow(_) => ExitCode::KafkaUnreachable,
    }
}

/// The exit code when brokers cannot be reached with this configuration.
fn dial_code(error: &DialError) -> ExitCode {
    match error {
        DialError::TlsListener(_)
        | DialError::SaslListener(_)
        | DialError::Tls { error: TlsError::NotTls, .. }
        | DialError::Sasl { error: SaslError::NotAsked, .. } => ExitCode::ListenerDiffers,
        DialError::Tls { error: TlsError::File(_), .. }
        | DialError::Sasl { error: SaslError::Secret(_) | SaslError::NotBegun { .. }, .. } => {
            ExitCode::Config
        }
        DialError::Tls { .. } => ExitCode::TlsRefused,
        DialError::Sasl { .. } => ExitCode::NotAuthenticated,
        DialError::Resources(_) => ExitCode::OutOfResources,
        DialError::Unknown { .. }
        | DialError::Io { .. }
        | DialError::Silent { .. }
        | DialError::Late { .. }
        | DialError::Answer { .. } => ExitCode::KafkaUnreachable,
    }
}
