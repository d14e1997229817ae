//! The lag of the group against a mock cluster.

use huntd::kafka::group::{GroupOptions, GroupProtocol};
use huntd::kafka::group_lag::GroupLag;
use huntd::telemetry::progress::Progress;
use std::sync::Arc;
use support::mock::{self, append_all, wait_for};

#[test]
fn a_partition_without_a_leader_hides_the_lag_of_no_other_one() {
    let cluster = mock::cluster(&[("events", 2)]);
    for partition in [0, 1] {
        append_all(&cluster, "events", partition, [&b"an event"[..]; 3]);
    }
    cluster.partition_leader("events", 0, None).expect("the mock takes its leader away");
    let options = GroupOptions {
        client: mock::client(&cluster),
        input_topic: "events".to_owned(),
        instance_id: None,
        assignment: None,
        protocol: GroupProtocol::Classic,
        session_timeout_ms: 6_000,
    };
    let progress = Arc::new(Progress::new());
    let _group_lag = GroupLag::start(&options, &options.input_topic, progress.clone());
    let lags = || [0, 1].map(|partition| progress.shard(partition).group_lag.get());
    wait_for("the lag of the other partition", || lags() == [-1, 3]);
    assert_eq!(progress.group_lag_partitions.get(), 2);

    cluster.partition_leader("events", 0, Some(1)).expect("the mock gives it a leader");
    wait_for("both lags", || lags() == [3, 3]);
}
