//! Replicas of snapshots in a compacted topic: what is left there of those that were not finished.

use crc32c::crc32c;
use huntd::output::frame::Chain;
use huntd::output::mark::Mark;
use huntd::snapshot::format::{BLOCK_STATE_BYTES, Header, Origin, SnapshotError};
use huntd::snapshot::replicas::{
    REPLICA_BLOCKS_PER_RECORD, ReplicaError, ReplicaOptions, Replicas,
};
use rdkafka::message::Message;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use support::mock::{self, Cluster, read_partition};

/// Blocks of a snapshot whose replica has two records.
const BLOCKS: usize = REPLICA_BLOCKS_PER_RECORD + 1;

fn header(sequence: u64) -> Header {
    let mut header = Header {
        origin: Origin::default(),
        partition: 0,
        sequence,
        ruleset: 7,
        engine_version: 1,
        next_offset: 10,
        leader_epoch: Some(3),
        next_update: 20,
        chain: Chain(30),
        digest: 40,
        mark: Mark::default(),
        skips: Vec::new(),
        taken_at_ms: 0,
        state_bytes: (BLOCKS * BLOCK_STATE_BYTES) as u64,
        block_crcs: vec![0; BLOCKS],
    };
    header.block_crcs = (0..BLOCKS as u32).map(|index| crc32c(&block(&header, index))).collect();
    header
}

/// A block of zeroes.
fn block(header: &Header, index: u32) -> Vec<u8> {
    let mut block = vec![0; header.block_bytes(index)];
    let head = header.block_head(index);
    block[..head.len()].copy_from_slice(&head);
    block
}

fn replicas(cluster: &Cluster) -> Replicas {
    let options = ReplicaOptions {
        client: mock::client(cluster),
        topic: "replicas".to_owned(),
        origin: Origin::default(),
    };
    Replicas::connect(options).expect("clients")
}

/// Replicates a snapshot of which this many blocks can be read.
fn put(replicas: &mut Replicas, sequence: u64, blocks: usize) -> Result<(), ReplicaError> {
    let header = header(sequence);
    let read_block = |index: u32| match (index as usize) < blocks {
        true => Ok(block(&header, index)),
        false => Err(SnapshotError::Unreadable("the disk is gone".to_owned())),
    };
    replicas.put(&header, read_block, &mut || ControlFlow::Continue(()))
}

/// The keys that compaction would leave in the topic.
fn kept(cluster: &Cluster) -> BTreeSet<String> {
    let mut kept = BTreeSet::new();
    for record in read_partition(cluster, "replicas", 0) {
        let key = String::from_utf8(record.key().expect("a key").to_vec()).expect("text");
        match record.payload() {
            Some(_) => kept.insert(key),
            None => kept.remove(&key),
        };
    }
    kept
}

/// The keys of one replica with its manifest.
fn replica(sequence: u64) -> BTreeSet<String> {
    let id = header(sequence).id();
    ["0".to_owned(), format!("0/{id:016x}/0"), format!("0/{id:016x}/1")].into()
}

#[test]
fn the_next_replica_that_is_finished_removes_what_unfinished_ones_have_left() {
    let cluster = mock::cluster(&[("replicas", 1)]);
    let mut first = replicas(&cluster);
    put(&mut first, 1, BLOCKS).expect("a replica");
    assert_eq!(kept(&cluster), replica(1));
    put(&mut first, 2, REPLICA_BLOCKS_PER_RECORD).expect_err("a block is missing");
    assert_eq!(kept(&cluster).len(), 4, "the replica before, and a record of this one");
    put(&mut first, 3, BLOCKS).expect("a replica");
    assert_eq!(kept(&cluster), replica(3));

    // Also if their writer is gone, even on another host.
    put(&mut first, 4, REPLICA_BLOCKS_PER_RECORD).expect_err("a block is missing");
    put(&mut replicas(&cluster), 5, REPLICA_BLOCKS_PER_RECORD).expect_err("a block is missing");
    assert_eq!(kept(&cluster).len(), 5);
    put(&mut replicas(&cluster), 6, BLOCKS).expect("a replica");
    assert_eq!(kept(&cluster), replica(6));
}

#[test]
fn replicating_the_same_snapshot_again_removes_nothing_of_it() {
    let cluster = mock::cluster(&[("replicas", 1)]);
    put(&mut replicas(&cluster), 1, BLOCKS).expect("a replica");
    put(&mut replicas(&cluster), 1, BLOCKS).expect("the same replica");
    assert_eq!(kept(&cluster), replica(1));
}

/// A file may be overwritten, for a later snapshot, while it is replicated.
#[test]
fn a_block_that_is_not_the_snapshots_own_makes_no_replica() {
    let cluster = mock::cluster(&[("replicas", 1)]);
    put(&mut replicas(&cluster), 1, BLOCKS).expect("a replica");
    let go_on = &mut || ControlFlow::Continue(());
    let (mut torn, mut flipped) = (replicas(&cluster), replicas(&cluster));
    torn.put(&header(2), |index| Ok(block(&header(3), index)), go_on).expect_err("another's");
    let flip = |index| {
        let mut block = block(&header(2), index);
        *block.last_mut().expect("it has bytes") ^= 1;
        Ok(block)
    };
    flipped.put(&header(2), flip, go_on).expect_err("damaged");
    let newest = replicas(&cluster).newest(0, &|_| true, go_on).expect("a broker");
    assert_eq!(newest.map(|replica| replica.header), Some(header(1)));
}

/// An owner that was frozen while it replicated writes its manifest after those that came after it.
#[test]
fn the_replica_of_a_later_owner_is_newer_whenever_it_was_finished() {
    let cluster = mock::cluster(&[("replicas", 1)]);
    let of_owner_epoch = |owner_epoch: u64, sequence: u64| {
        let mut header = header(sequence);
        header.mark.owner_epoch = owner_epoch;
        header
    };
    let go_on = &mut || ControlFlow::Continue(());
    for header in [of_owner_epoch(4, 1), of_owner_epoch(3, 2)] {
        let read_block = |index: u32| Ok(block(&header, index));
        replicas(&cluster).put(&header, read_block, go_on).expect("a replica");
    }
    let newest = |is_wanted: &dyn Fn(&Header) -> bool| {
        let newest = replicas(&cluster).newest(0, is_wanted, &mut || ControlFlow::Continue(()));
        newest.expect("a broker").map(|replica| replica.header.mark.owner_epoch)
    };
    assert_eq!(newest(&|_| true), Some(4));
    assert_eq!(newest(&|header| header.mark.owner_epoch < 4), Some(3));
}
