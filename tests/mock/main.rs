//! Tests against librdkafka's mock cluster, which runs in the test's own process.

mod acquire;
mod broker_connection;
mod group_lag;
mod librdkafka_batches;
mod load;
mod membership;
mod poison;
mod publisher;
mod replicas;
mod snapshots;
mod surveyor;
