//! Why the daemon cannot go on: what the control thread ends with.

use super::advertised::AdvertisedFault;
use crate::fetch::dialling::DialError;
use crate::kafka::membership::MembershipError;
use crate::kafka::topic_error::TopicError;

/// Why the daemon cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The group.
    #[error(transparent)]
    Membership(#[from] MembershipError),
    /// A broker cannot be reached or asked.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// A broker cannot be used where it says that it listens.
    #[error(transparent)]
    Advertised(#[from] AdvertisedFault),
    /// A topic.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// Settings of topics with which nothing works.
    #[error("{0}")]
    TopicsWrong(String),
    /// Shards that stopped on a fault. The log has said why.
    #[error("halted on a fault: {0} of the shards; the log says which and what to do")]
    ShardsHalted(u32),
}

impl ControlError {
    /// Whether brokers that are only starting may be the cause.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            ControlError::Membership(error) => !error.is_final(),
            ControlError::Topic(error) => error.may_pass(),
            ControlError::Dial(DialError::Resources(_)) => false,
            ControlError::Dial(error) => !error.is_final(),
            ControlError::Advertised(fault) => !fault.error.is_final(),
            ControlError::TopicsWrong(_) | ControlError::ShardsHalted(_) => false,
        }
    }

    /// Whether a topic is said to be missing, as a broker that has just started does.
    pub(super) fn is_topic_missing(&self) -> bool {
        matches!(
            self,
            ControlError::Membership(MembershipError::TopicMissing(_))
                | ControlError::Topic(TopicError::Missing(_))
        )
    }
}
