//! What a user must be allowed to do with a topic, as Kafka's ACLs name it. docs/OPERATIONS.md
//! lists which verb needs what.

use std::fmt::{self, Display, Formatter};

/// What a user must be allowed to do with a topic. `READ` and `WRITE` include `DESCRIBE`.
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
}

impl Display for Right {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Right::Read => "READ",
            Right::Write => "WRITE",
            Right::ReadAndWrite => "READ and WRITE",
            Right::Create => "CREATE",
            Right::Describe => "DESCRIBE",
            Right::DescribeConfigs => "DESCRIBE_CONFIGS",
        })
    }
}
