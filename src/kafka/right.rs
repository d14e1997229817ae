//! The rights that a user needs on a topic or the cluster, as named in Kafka's ACLs.
//! docs/REFERENCE.md lists the rights for each verb.

use crate::kafka::error_code::ErrorCode;
use std::fmt::{self, Display, Formatter};

/// A right on a topic or the cluster. `READ` and `WRITE` include `DESCRIBE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Read records.
    Read,
    /// Append records.
    Write,
    /// Read and append, for a topic that huntd continues.
    ReadAndWrite,
    /// Create the topic.
    Create,
    /// Query the topic's number of partitions and their leaders.
    Describe,
    /// Query the topic's settings.
    DescribeConfigs,
    /// Query the cluster.
    DescribeCluster,
}

impl Right {
    /// Returns the missing right when a broker refuses, with this error, an operation that needs
    /// this right.
    pub(crate) fn refused_with(self, error: ErrorCode) -> Right {
        if error != ErrorCode::CLUSTER_AUTHORIZATION_FAILED {
            return self;
        }
        match self {
            Right::Write | Right::ReadAndWrite => Right::Write,
            Right::Create => Right::Create,
            Right::Read | Right::Describe | Right::DescribeConfigs | Right::DescribeCluster => {
                Right::DescribeCluster
            }
        }
    }
}

/// The right to grant, for an error message; "it" is the topic or the resource named before.
impl Display for Right {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Right::Read => "READ on it",
            Right::Write => "WRITE on it",
            Right::ReadAndWrite => "READ and WRITE on it",
            Right::Create => "CREATE on it",
            Right::Describe => "DESCRIBE on it",
            Right::DescribeConfigs => "DESCRIBE_CONFIGS on it",
            Right::DescribeCluster => "DESCRIBE on the cluster",
        })
    }
}
