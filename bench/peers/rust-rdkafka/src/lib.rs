//! What both programs share: the job, its frames, and how they talk to Kafka.

pub mod frame;

pub mod kafka;

pub mod zone;
