//! What a user must be allowed to do with a topic or the cluster, as Kafka's ACLs name it.
//! docs/OPERATIONS.md lists which verb needs what.

use crate::kafka::error_code::ErrorCode;
use std::fmt::{self, Display, Formatter};

/// What a user must be allowed to do with a topic or the cluster. `READ` and `WRITE` include
/// `DESCRIBE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// To read records.
    Read,
    /// To append records.
    Write,
    /// To read and to append: a topic that huntd continues.
    ReadAndWrite,
    /// To create the topic.
    Create,
    /// To ask how many partitions it has, and who leads them.
    Describe,
    /// To ask for its settings.
    DescribeConfigs,
    /// To be given a producer id.
    IdempotentWrite,
    /// To ask about the cluster.
    DescribeCluster,
}

impl Right {
    /// What is missing if a broker refuses with this error what needs this right on a topic.
    pub(crate) fn refused_with(self, error: ErrorCode) -> Right {
        if error != ErrorCode::CLUSTER_AUTHORIZATION_FAILED {
            return self;
        }
        match self {
            Right::Write | Right::ReadAndWrite | Right::IdempotentWrite => Right::IdempotentWrite,
            Right::Create => Right::Create,
            Right::Read | Right::Describe | Right::DescribeConfigs | Right::DescribeCluster => {
                Right::DescribeCluster
            }
        }
    }
}

/// What to grant; `it` is the topic, or what else was named.
impl Display for Right {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Right::Read => "READ on it",
            Right::Write => "WRITE on it",
            Right::ReadAndWrite => "READ and WRITE on it",
            Right::Create => "CREATE on it",
            Right::Describe => "DESCRIBE on it",
            Right::DescribeConfigs => "DESCRIBE_CONFIGS on it",
            Right::IdempotentWrite => {
                "WRITE on it, and before Kafka 2.8 IDEMPOTENT_WRITE on the cluster,"
            }
            Right::DescribeCluster => "DESCRIBE on the cluster",
        })
    }
}
