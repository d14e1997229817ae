//! Where the logs of a partition begin and end.

/// Where the logs of a partition begin and end. The output was asked for first: whatever it covers
/// up to its end was in the input when that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The first offset that the input still has.
    pub input_start: i64,
    /// The offset after its last record.
    pub input_end: i64,
    /// Leader epoch of the leader that has said so; -1: brokers do not tell it.
    pub input_leader_epoch: i32,
    /// The first offset that the output still has.
    pub output_start: i64,
    /// The offset after its last record.
    pub output_end: i64,
}
