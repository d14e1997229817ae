//! Kafka's formats against golden bytes and damaged bytes.

mod aborted;
mod batches;
mod codecs;
mod damage;
mod fetch;
mod golden;
mod messages;
mod metadata;
mod streams;
mod topic_requests;
mod wire;
