//! Updates to Kafka, on a thread of its own.
pub mod frame;
