//! Copies of snapshots in a compacted topic: what is left there of those that were not finished.

mod mock;

use huntd::limits::COPY_BLOCKS_PER_RECORD;
use huntd::publisher::frame::Chain;
use huntd::recovery::copies::{Copies, CopyError, Options};
use huntd::recovery::mark::Mark;
use huntd::recovery::snapshot::{BLOCK_STATE_BYTES, Header, Origin, SnapshotError};
use mock::{Cluster, brokers, read_partition};
use rdkafka::message::Message;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// Blocks of a snapshot whose copy is of two records.
const BLOCKS: usize = COPY_BLOCKS_PER_RECORD + 1;

fn header(sequence: u64) -> Header {
    Header {
        origin: Origin::default(),
        partition: 0,
        sequence,
        ruleset: 7,
        engine_version: 1,
        next_offset: 10,
        next_update: 20,
        chain: Chain(30),
        digest: 40,
        mark: Mark::default(),
        skips: Vec::new(),
        taken_at_ms: 0,
        state_bytes: (BLOCKS * BLOCK_STATE_BYTES) as u64,
        block_crcs: vec![0; BLOCKS],
    }
}

fn copies(cluster: &Cluster) -> Copies {
    let options = Options {
        brokers: brokers(cluster),
        client_id: "test".to_owned(),
        group: "hunters".to_owned(),
        topic: "copies".to_owned(),
        origin: Origin::default(),
    };
    Copies::connect(options).expect("clients")
}

/// Copies a snapshot of which so many blocks can be read.
fn put(copies: &mut Copies, sequence: u64, blocks: usize) -> Result<(), CopyError> {
    let read_block = |index: u32| match (index as usize) < blocks {
        true => Ok(vec![index as u8]),
        false => Err(SnapshotError::Unreadable("the disk is gone".to_owned())),
    };
    copies.put(&header(sequence), read_block, &mut || ControlFlow::Continue(()))
}

/// The keys that compaction would leave in the topic.
fn kept(cluster: &Cluster) -> BTreeSet<String> {
    let mut kept = BTreeSet::new();
    for record in read_partition(cluster, "copies", 0) {
        let key = String::from_utf8(record.key().expect("a key").to_vec()).expect("text");
        match record.payload() {
            Some(_) => kept.insert(key),
            None => kept.remove(&key),
        };
    }
    kept
}

/// The keys of one copy with its manifest.
fn copy(sequence: u64) -> BTreeSet<String> {
    let id = header(sequence).id();
    ["0".to_owned(), format!("0/{id:016x}/0"), format!("0/{id:016x}/1")].into()
}

#[test]
fn the_next_copy_that_is_finished_lets_go_what_unfinished_ones_have_left() {
    let cluster = mock::cluster(&[("copies", 1)]);
    let mut first = copies(&cluster);
    put(&mut first, 1, BLOCKS).expect("a copy");
    assert_eq!(kept(&cluster), copy(1));
    put(&mut first, 2, COPY_BLOCKS_PER_RECORD).expect_err("a block is missing");
    assert_eq!(kept(&cluster).len(), 4, "the copy before, and a record of this one");
    put(&mut first, 3, BLOCKS).expect("a copy");
    assert_eq!(kept(&cluster), copy(3));

    // The same if whoever left them is gone, be it on another host.
    put(&mut first, 4, COPY_BLOCKS_PER_RECORD).expect_err("a block is missing");
    put(&mut copies(&cluster), 5, COPY_BLOCKS_PER_RECORD).expect_err("a block is missing");
    assert_eq!(kept(&cluster).len(), 5);
    put(&mut copies(&cluster), 6, BLOCKS).expect("a copy");
    assert_eq!(kept(&cluster), copy(6));
}

#[test]
fn copying_the_same_snapshot_again_lets_nothing_of_it_go() {
    let cluster = mock::cluster(&[("copies", 1)]);
    put(&mut copies(&cluster), 1, BLOCKS).expect("a copy");
    put(&mut copies(&cluster), 1, BLOCKS).expect("the same copy");
    assert_eq!(kept(&cluster), copy(1));
}
