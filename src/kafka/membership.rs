//! Events of a member of the consumer group, and the reasons why it cannot be one. Only values.

use crate::kafka::error_code::ErrorCode;
use crate::kafka::quiet_outputs::QuietOutput;
use crate::kafka::right::Right;
use std::collections::BTreeMap;

/// A change of this instance's partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembershipEvent {
    /// These partitions are assigned, in addition to the current ones. The list may be empty: a
    /// member without a partition is on standby.
    Assigned(Vec<i32>),
    /// The group gives these to other members.
    Revoked(Vec<i32>),
    /// The group has given these to other members, and does not count us in.
    Lost(Vec<i32>),
    /// The group's answer to `Membership::ask`.
    Answered {
        /// The question's number.
        question: u64,
        /// True if this instance is still a member.
        is_member: bool,
        /// The input offsets that are committed, by partition, as far as there are any.
        committed: Vec<(i32, i64)>,
    },
    /// An error. [`MembershipError::is_final`] says whether waiting can help.
    Error(MembershipError),
}

impl MembershipEvent {
    /// Returns whether it changes what this instance is to do, so that a long piece of work is
    /// interrupted for it. Answers and troubles that pass wait.
    pub(crate) fn is_urgent(&self) -> bool {
        match self {
            MembershipEvent::Assigned(_)
            | MembershipEvent::Revoked(_)
            | MembershipEvent::Lost(_) => true,
            MembershipEvent::Answered { .. } => false,
            MembershipEvent::Error(error) => error.is_final(),
        }
    }
}

/// Who is in the group, and how far its zones are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupView {
    /// The members.
    pub members: Vec<GroupMember>,
    /// Input offsets that the group has committed, by partition.
    pub committed: Vec<(i32, i64)>,
    /// The outputs that have stopped a short while ago although their input grows, by partition, as
    /// far as that is watched.
    pub quiet: BTreeMap<i32, QuietOutput>,
}

/// A member of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMember {
    /// The id that the group has given it.
    pub id: String,
    /// The address of its host.
    pub host: String,
    /// The partitions that it is told to own.
    pub partitions: Vec<i32>,
}

/// Why the group cannot be joined or reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MembershipError {
    /// No broker answers.
    #[error(
        "no broker answers at {0}, or where the cluster says that its brokers are; check \
         `brokers`, the brokers' `advertised.listeners` and the network"
    )]
    Unreachable(String),
    /// The input topic does not exist.
    #[error("the topic `{0}` does not exist; create it with `huntd topics`")]
    TopicMissing(String),
    /// The operator assigns the zones, and this instance has no name.
    #[error(
        "kafka.assignment lists instances by name, and this one has none: set \
         kafka.group_instance_id; the units set it to the host's name"
    )]
    Unnamed,
    /// The operator assigns the zones, and has no line for this instance.
    #[error(
        "kafka.assignment has no line for this instance, kafka.group_instance_id `{0}`: add one; \
         without zones it keeps copies only"
    )]
    Unlisted(String),
    /// The operator assigns a zone for which the input topic has no partition.
    #[error(
        "kafka.assignment names zone {zone}, and the topic `{topic}` has {partitions} partitions, \
         from 0 on; correct the list, or add partitions"
    )]
    ZoneMissing {
        /// The zone.
        zone: i32,
        /// The input topic.
        topic: String,
        /// How many partitions it has.
        partitions: i32,
    },
    /// The broker denies access.
    #[error("not authorised for {what}; grant {right} to this Kafka user")]
    NotAuthorised {
        /// The topic, the group or the cluster.
        what: String,
        /// The missing right.
        right: Right,
    },
    /// No broker coordinates the group.
    #[error(
        "no broker coordinates the group `{group}`: {error} If the topic `__consumer_offsets` is \
         missing, the cluster cannot create it: it has {brokers} brokers, and the brokers' \
         offsets.topic.replication.factor, 3 by default, must not be more; if the topic is there, \
         start the brokers that have its replicas"
    )]
    NoCoordinator {
        /// The group.
        group: String,
        /// The broker's reason.
        error: ErrorCode,
        /// How many brokers the cluster has.
        brokers: usize,
    },
    /// The group's members have no assignment protocol in common.
    #[error(
        "the group `{0}` has members with which huntd cannot share partitions: another program, \
         or an instance with another kafka.group_protocol; stop them, or give this deployment a \
         kafka.group of its own; `kafka-consumer-groups.sh --describe --members` lists them"
    )]
    Inconsistent(String),
    /// Two instances use the same static id.
    #[error("another instance uses the group instance id `{0}`; give each instance its own")]
    InstanceTaken(String),
    /// The group has a member with our static id, which may be this instance before it died: only
    /// the end of its session tells. Only groups of the protocol `consumer` say so (KIP-848).
    #[error(
        "waiting until the group has removed an earlier member with the instance id `{0}`: its \
         session times out after the broker's group.consumer.session.timeout.ms; if another \
         process uses the id, give each its own kafka.group_instance_id"
    )]
    InstanceHeld(String),
    /// The broker does not authenticate librdkafka, which keeps the secret that was read at
    /// start-up.
    #[error(
        "a broker refuses the secret that was read when huntd started; if another one is in its \
         file, restart huntd (docs/RUNBOOKS.md#after-a-rotation): {0}"
    )]
    NotAuthenticated(String),
    /// TLS fails.
    #[error("TLS to a broker fails: check the files of [kafka.tls] and the broker's: {0}")]
    TlsFailed(String),
    /// A broker refuses the files read at start-up, which librdkafka keeps, but accepts the current
    /// ones.
    #[error(
        "no broker is reached with the files of [kafka.tls] that librdkafka's clients read when \
         huntd started, and they have changed since: restart huntd \
         (docs/RUNBOOKS.md#after-a-rotation): {0}"
    )]
    TlsOutdated(String),
    /// librdkafka refuses its configuration, or the group refuses the member.
    #[error("the consumer group cannot be joined: {0}")]
    Refused(String),
    /// A temporary error.
    #[error("the consumer group reports an error; retrying: {0}")]
    Passing(String),
}

impl MembershipError {
    /// Returns whether only an operator can fix it.
    pub fn is_final(&self) -> bool {
        let may_pass = matches!(
            self,
            MembershipError::Unreachable(_)
                | MembershipError::TlsFailed(_)
                | MembershipError::Passing(_)
                | MembershipError::NoCoordinator { .. }
                | MembershipError::Inconsistent(_)
                | MembershipError::InstanceHeld(_)
        );
        !may_pass && !self.is_cured_by_a_start()
    }

    /// Returns whether a restart would use another secret or certificate. As long as this instance
    /// is a member, everything except the group works without one.
    pub(crate) fn is_cured_by_a_start(&self) -> bool {
        matches!(self, MembershipError::NotAuthenticated(_) | MembershipError::TlsOutdated(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_event_that_changes_what_is_to_be_done_is_urgent() {
        let name = || "host-7".to_owned();
        let error = |error: MembershipError| MembershipEvent::Error(error);
        for urgent in [
            MembershipEvent::Assigned(Vec::new()),
            MembershipEvent::Revoked(vec![0]),
            MembershipEvent::Lost(vec![0]),
            error(MembershipError::InstanceTaken(name())),
            error(MembershipError::Refused(name())),
        ] {
            assert!(urgent.is_urgent(), "{urgent:?}");
        }
        for waits in [
            MembershipEvent::Answered { question: 1, is_member: true, committed: Vec::new() },
            error(MembershipError::Unreachable(name())),
            error(MembershipError::Passing(name())),
            error(MembershipError::NotAuthenticated(name())),
        ] {
            assert!(!waits.is_urgent(), "{waits:?}");
        }
    }
}
