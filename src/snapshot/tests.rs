//! Snapshots on a disk that fails, loses power, or returns wrong bytes.

use crate::hunt::Shard;
use crate::hunt::event::{Action, Event};
use crate::hunt::rules::rulebook::Rulebook;
use crate::hunt::rules_file::built_in;
use crate::kit::checkpoint::CheckpointRead;
use crate::kit::update::Updates;
use crate::output::frame::Chain;
use crate::output::mark::Mark;
use crate::snapshot::checkpoint::{
    Buffer, CheckpointHeader, CheckpointId, GatedCheckpoint, ToSnapshots,
};
use crate::snapshot::disk::Disk;
use crate::snapshot::format::{
    HEADER_BYTES_MAX, Header, Origin, SNAPSHOT_BLOCK_BYTES, SnapshotError,
};
use crate::snapshot::replicator::wait_for_turn;
use crate::snapshot::slots::{FAILED_READS_MAX, Store};
use crate::snapshot::stored_states::{StoredState, StoredStates};
use crate::snapshot::writer::{SnapshotOutcome, SnapshotWriter};
use crate::telemetry::progress::TopicId;
use crate::testing::memory_disk::{DiskTrouble, Memory};
use std::collections::VecDeque;

const KEEP: usize = 3;

fn rulebook() -> Rulebook {
    let mut rules = built_in();
    rules.world.tiles_per_side = 16;
    rules.actors.per_tile_max = 256;
    Rulebook::of(rules)
}

fn origin() -> Origin {
    let (input_topic, output_topic) = ("events".to_owned(), "updates".to_owned());
    Origin { input_topic, output_topic, ..Origin::default() }
}

fn store(disk: &Memory) -> Store<Memory> {
    Store::new(disk.clone(), origin(), KEEP)
}

fn candidates(store: &mut Store<Memory>) -> Vec<Header> {
    store.candidates(0).expect("the disk can be read")
}

/// A zone that players join.
struct Zone {
    shard: Shard,
    count: i64,
}

impl Zone {
    fn new(partition: u16) -> Zone {
        Zone { shard: Shard::new(partition, &rulebook()), count: 0 }
    }

    fn join(&mut self, players: i64) {
        for _ in 0..players {
            self.count += 1;
            let (offset, time_ms, player_id) = (self.count, self.count, self.count as u64);
            let (x, y) = (self.count as i32 * 37 % 9_000, self.count as i32 * 91 % 9_000);
            let action = Action::Join { x, y };
            let event = Event { offset, time_ms, player_id, seq: 1, ts_us: 0, action };
            self.shard.apply(&event, &mut Updates::new());
        }
    }

    /// The state as the hot thread sends it.
    fn checkpoint(&mut self, number: u64) -> (CheckpointHeader, Vec<Buffer>) {
        let header = CheckpointHeader {
            id: CheckpointId { partition: self.shard.partition().into(), ownership_id: 1, number },
            ruleset: 7,
            engine_version: 5,
            next_offset: self.count,
            leader_epoch: Some(6),
            next_update: self.count as u64,
            chain: Chain(self.count as u64 * 3),
            digest: self.shard.digest(),
            skips: vec![self.count, self.count + 4],
            state_bytes: self.shard.begin_checkpoint(),
        };
        let mut buffers = vec![Buffer::new()];
        loop {
            let bytes = buffers.last_mut().expect("one is there").bytes_mut();
            match self.shard.write_checkpoint(bytes, SNAPSHOT_BLOCK_BYTES) {
                CheckpointRead::Done => return (header, buffers),
                CheckpointRead::More if bytes.len() == SNAPSHOT_BLOCK_BYTES => {
                    buffers.push(Buffer::new())
                }
                CheckpointRead::More => {}
            }
        }
    }

    /// Stores the current state.
    fn store(&mut self, store: &mut Store<Memory>) -> Result<Header, SnapshotError> {
        let (checkpoint, buffers) = self.checkpoint(1);
        let unreadable = |error: std::io::Error| SnapshotError::Unreadable(error.to_string());
        let mut draft = store.begin(&checkpoint).map_err(unreadable)?;
        for mut buffer in buffers {
            store.write_block(&mut draft, &mut buffer).map_err(unreadable)?;
        }
        store.commit(draft, mark(&checkpoint), 5)
    }
}

fn mark(checkpoint: &CheckpointHeader) -> Mark {
    let CheckpointHeader { next_offset, next_update, chain, .. } = *checkpoint;
    Mark { output_offset: 9, owner_epoch: 2, next_update, next_offset, chain }
}

fn name(header: &Header) -> String {
    format!("shard-{:04}-{:010}.snapshot", header.partition, header.sequence)
}

/// Checks that every committed snapshot can be loaded, unless enough newer ones can.
fn check(disk: &Memory, committed: &[Header], what: &str) {
    let mut store = store(disk);
    let loadable: Vec<Header> = candidates(&mut store)
        .into_iter()
        .filter(|header| {
            let loaded = store.load(header, &rulebook());
            // Damage that goes unnoticed must leave the stored state unchanged.
            loaded.is_ok_and(|shard| {
                assert_eq!(shard.digest(), header.digest, "{what}");
                true
            })
        })
        .collect();
    for header in committed {
        let newer = loadable.iter().filter(|other| other.sequence > header.sequence).count();
        assert!(newer >= KEEP || loadable.contains(header), "{what}: {} is gone", name(header));
    }
}

#[test]
fn a_power_cut_at_any_operation_loses_no_committed_snapshot() {
    for cut in 0..50 {
        for seed in 0..4 {
            let (disk, mut zone) = (Memory::default(), Zone::new(0));
            let mut committed = Vec::new();
            disk.die_in(cut);
            for _ in 0..6 {
                zone.join(200);
                committed.extend(zone.store(&mut store(&disk)));
            }
            disk.restart(seed);
            check(&disk, &committed, &format!("cut {cut} seed {seed}"));
            zone.join(1);
            committed.push(zone.store(&mut store(&disk)).expect("the power is back"));
            check(&disk, &committed, &format!("after cut {cut} seed {seed}"));
        }
    }
}

#[test]
fn an_operation_that_fails_costs_one_snapshot_at_most() {
    for failing in 0..40 {
        let (disk, mut zone) = (Memory::default(), Zone::new(0));
        let mut store = store(&disk);
        disk.fail_in(failing);
        let mut committed = Vec::new();
        for _ in 0..6 {
            zone.join(300);
            committed.extend(zone.store(&mut store));
            check(&disk, &committed, &format!("failure at {failing}"));
        }
        assert!(committed.len() >= 5, "failure at {failing}: {} stored", committed.len());
    }
}

#[test]
fn names_that_cannot_be_made_durable_leave_no_files_behind() {
    let (disk, mut zone) = (Memory::default(), Zone::new(0));
    let mut store = store(&disk);
    zone.join(20);
    let stored = zone.store(&mut store).expect("the disk is fine");
    disk.set_trouble(Some(DiskTrouble::SyncingNames));
    for _ in 0..2 * KEEP {
        zone.join(20);
        zone.store(&mut store).expect_err("it would not be durable");
        assert_eq!(disk.clone().list().expect("it can be read"), [name(&stored)]);
    }
    disk.set_trouble(None);
    zone.store(&mut store).expect("the disk is fine again");
    assert_eq!(candidates(&mut store).len(), 2);
}

#[test]
fn snapshots_that_cannot_be_read_now_are_not_taken_for_none_and_not_for_damaged() {
    let (disk, mut zone) = (Memory::default(), Zone::new(0));
    let mut store = store(&disk);
    zone.join(20);
    let stored = zone.store(&mut store).expect("the disk is fine");
    disk.set_trouble(Some(DiskTrouble::Reading));
    for error in [
        store.candidates(0).expect_err("there may be some"),
        store.load(&stored, &rulebook()).expect_err("it cannot be read"),
    ] {
        assert!(matches!(error, SnapshotError::Unreadable(_)), "{error}");
    }
    assert_eq!(store.candidates(1), Ok(Vec::new()));
    disk.set_trouble(None);
    assert_eq!(candidates(&mut store), std::slice::from_ref(&stored));
    // It holds its zone up for a while only.
    disk.set_trouble(Some(DiskTrouble::Reading));
    let waits = (0..100).take_while(|_| store.candidates(0).is_err()).count();
    assert_eq!(waits, FAILED_READS_MAX as usize - 1);
    disk.set_trouble(None);
    assert_eq!(candidates(&mut store), [stored]);
}

#[test]
fn a_state_that_cannot_be_read_is_passed_over_once_and_after_ten_times_for_ever() {
    let header = |next_offset| Header { next_offset, ..example() };
    let (newest, older) = (StoredState::Here(header(7)), header(5));
    let snapshots = || vec![header(7), older.clone()];
    let mut states = StoredStates::new(example().origin);
    let offsets = |states: &mut StoredStates, snapshots| {
        let candidates = states.survey(3, snapshots).into_iter();
        candidates.map(|candidate| candidate.start.next_offset).collect::<Vec<i64>>()
    };
    assert_eq!(offsets(&mut states, snapshots()), [7, 5]);
    states.set_unread(&newest);
    assert_eq!(offsets(&mut states, snapshots()), [5]);
    assert_eq!(offsets(&mut states, snapshots()), [7, 5]);
    states.set_unread(&newest);
    assert_eq!(offsets(&mut states, vec![header(7)]), [7], "there is no other");
    for _ in 2..FAILED_READS_MAX {
        states.set_unread(&newest);
    }
    for _ in 0..3 {
        assert_eq!(offsets(&mut states, snapshots()), [5]);
    }
}

#[test]
fn only_the_newest_are_kept_and_a_full_disk_does_not_stop_the_next_of_equal_size() {
    let (disk, mut zone) = (Memory::default(), Zone::new(0));
    let mut store = store(&disk);
    zone.join(1_000);
    for _ in 0..5 {
        zone.store(&mut store).expect("the disk is fine");
    }
    assert_eq!(candidates(&mut store).len(), KEEP);
    disk.set_room(Some(0));
    for _ in 0..5 {
        zone.store(&mut store).expect("the slot is there already");
    }
    zone.join(1_000);
    let error = zone.store(&mut store).expect_err("a larger one needs room");
    assert!(matches!(error, SnapshotError::Unreadable(_)), "{error}");
    assert_eq!(candidates(&mut store).len(), KEEP);
    disk.set_room(None);
    zone.store(&mut store).expect("there is room again");
}

#[test]
fn a_changed_byte_anywhere_is_noticed() {
    let (disk, mut zone) = (Memory::default(), Zone::new(0));
    let mut store = store(&disk);
    zone.join(20);
    let header = zone.store(&mut store).expect("the disk is fine");
    let length = disk.bytes(&name(&header)).len();
    let header_bytes = header.encode().len();
    for at in (0..header_bytes).chain(HEADER_BYTES_MAX..length) {
        disk.with_file(&name(&header), |bytes| bytes[at] ^= 1 << (at % 8));
        let found = candidates(&mut store);
        let loaded = found.first().map(|header| store.load(header, &rulebook()));
        assert!(loaded.is_none_or(|loaded| loaded.is_err()), "byte {at}");
        disk.with_file(&name(&header), |bytes| bytes[at] ^= 1 << (at % 8));
    }
    for cut in [0, 1, header_bytes - 1, HEADER_BYTES_MAX, length - 1] {
        let whole = disk.bytes(&name(&header));
        disk.with_file(&name(&header), |bytes| bytes.truncate(cut));
        let loaded = candidates(&mut store).first().map(|header| store.load(header, &rulebook()));
        assert!(loaded.is_none_or(|loaded| loaded.is_err()), "cut at {cut}");
        disk.with_file(&name(&header), |bytes| *bytes = whole);
    }
    assert!(store.load(&header, &rulebook()).is_ok());
}

#[test]
fn a_snapshot_that_no_reader_would_accept_fails_and_replaces_none() {
    let (disk, mut zone) = (Memory::default(), Zone::new(0));
    let mut store = store(&disk);
    zone.join(20);
    let stored = zone.store(&mut store).expect("the disk is fine");
    for _ in 0..2 * KEEP {
        let (mut checkpoint, buffers) = zone.checkpoint(1);
        checkpoint.skips = vec![checkpoint.next_offset - 1];
        let mut draft = store.begin(&checkpoint).expect("the disk is fine");
        for mut buffer in buffers {
            store.write_block(&mut draft, &mut buffer).expect("the disk is fine");
        }
        let committed = store.commit(draft, mark(&checkpoint), 5);
        assert!(matches!(committed, Err(SnapshotError::Header(_))), "{committed:?}");
    }
    let found = store.found(0).expect("the disk is fine");
    assert!(matches!(&found[..], [one] if one.header.as_ref() == Ok(&stored)), "{found:?}");
}

#[test]
fn a_block_of_another_snapshot_or_of_another_place_is_not_taken() {
    let (disk, mut zone) = (Memory::default(), Zone::new(0));
    let mut store = store(&disk);
    zone.join(2_000);
    let old = zone.store(&mut store).expect("the disk is fine");
    zone.join(1);
    let new = zone.store(&mut store).expect("the disk is fine");
    assert!(new.blocks() > 2);
    let (old_bytes, new_bytes) = (disk.bytes(&name(&old)), disk.bytes(&name(&new)));
    let block = |index: usize| {
        let start = HEADER_BYTES_MAX + index * SNAPSHOT_BLOCK_BYTES;
        start..start + SNAPSHOT_BLOCK_BYTES
    };
    let mut refused = |what: &str, bytes: Vec<u8>| {
        disk.with_file(&name(&new), |file| *file = bytes);
        let error = store.load(&new, &rulebook()).expect_err(what);
        assert!(matches!(error, SnapshotError::Block { what: "another one's", .. }), "{error}");
    };
    let mut stale = new_bytes.clone();
    stale[block(1)].copy_from_slice(&old_bytes[block(1)]);
    refused("a stale block", stale);
    let mut swapped = new_bytes.clone();
    swapped.copy_within(block(0), block(1).start);
    refused("a block in another's place", swapped);
    // A whole file under another snapshot's name.
    disk.with_file(&name(&new), |file| *file = old_bytes);
    assert_eq!(candidates(&mut store), [old]);
}

#[test]
fn snapshots_of_other_topics_are_no_candidates_and_are_removed_in_time() {
    let (disk, mut zone) = (Memory::default(), Zone::new(0));
    zone.join(10);
    let others = Origin { input_topic: "others".to_owned(), ..origin() };
    let mut other_store = Store::new(disk.clone(), others, KEEP);
    zone.store(&mut other_store).expect("the disk is fine");
    let mut store = store(&disk);
    assert!(candidates(&mut store).is_empty());
    for _ in 0..KEEP {
        zone.store(&mut store).expect("the disk is fine");
    }
    assert_eq!(candidates(&mut store).len(), KEEP);
    assert!(candidates(&mut other_store).is_empty());
}

#[test]
fn snapshots_of_a_recreated_input_are_recognised_and_removed_in_time() {
    let (disk, mut zone) = (Memory::default(), Zone::new(0));
    zone.join(10);
    let of = |id: u8| {
        let origin = Origin { input_topic_id: TopicId::new([id; 16].into()), ..origin() };
        Store::new(disk.clone(), origin, KEEP)
    };
    let agree = |header: &Header, id: u8| {
        let input_topic_id = TopicId::new([id; 16].into());
        header.origin.agrees(&Origin { input_topic_id, ..origin() })
    };
    zone.store(&mut of(1)).expect("the disk is fine");
    let found = candidates(&mut of(2));
    assert_eq!((found.len(), agree(&found[0], 2)), (1, false));
    assert!(agree(&found[0], 1));
    // Zeros: a snapshot that knows no id matches any.
    assert!(agree(&found[0], 0));
    for _ in 0..KEEP {
        zone.store(&mut of(2)).expect("the disk is fine");
    }
    let found = candidates(&mut of(2));
    assert_eq!(found.len(), KEEP);
    assert!(found.iter().all(|header| agree(header, 2)));
}

fn gate(checkpoint: &CheckpointHeader) -> GatedCheckpoint {
    GatedCheckpoint { id: checkpoint.id, mark: mark(checkpoint) }
}

fn outcomes(writer: &mut SnapshotWriter<Memory>) -> Vec<&'static str> {
    writer.settle(5);
    let outcomes = std::iter::from_fn(|| writer.next_outcome());
    outcomes
        .map(|outcome| match outcome {
            SnapshotOutcome::Stored(_) => "stored",
            SnapshotOutcome::Failed { .. } => "failed",
            SnapshotOutcome::Dropped { .. } => "dropped",
        })
        .collect()
}

#[test]
fn a_checkpoint_is_a_snapshot_when_it_is_whole_and_gated_in_either_order() {
    let (disk, mut zone) = (Memory::default(), Zone::new(0));
    let mut writer = SnapshotWriter::new(store(&disk));
    for early in [true, false] {
        zone.join(800);
        let (checkpoint, buffers) = zone.checkpoint(1 + u64::from(early));
        writer.take(ToSnapshots::Begin(checkpoint.clone()));
        if early {
            writer.take(ToSnapshots::Gate(gate(&checkpoint)));
        }
        for buffer in buffers {
            assert_eq!(outcomes(&mut writer), [""; 0]);
            assert!(writer.take(ToSnapshots::Block(buffer)).is_some());
        }
        if !early {
            assert_eq!(outcomes(&mut writer), [""; 0]);
            let other = CheckpointId { ownership_id: 9, ..checkpoint.id };
            writer.take(ToSnapshots::Gate(GatedCheckpoint { id: other, ..gate(&checkpoint) }));
            let other = CheckpointId { number: 9, ..checkpoint.id };
            writer.take(ToSnapshots::Gate(GatedCheckpoint { id: other, ..gate(&checkpoint) }));
            assert_eq!(outcomes(&mut writer), [""; 0]);
            writer.take(ToSnapshots::Gate(gate(&checkpoint)));
        }
        assert_eq!(outcomes(&mut writer), ["stored"]);
    }
    assert_eq!(candidates(&mut store(&disk)).len(), 2);
}

#[test]
fn every_checkpoint_has_one_outcome_whatever_becomes_of_it() {
    let (disk, mut zone) = (Memory::default(), Zone::new(0));
    let mut writer = SnapshotWriter::new(store(&disk));
    zone.join(2_000);
    let (first, mut buffers) = zone.checkpoint(1);
    // A newer one replaces it.
    writer.take(ToSnapshots::Begin(first.clone()));
    writer.take(ToSnapshots::Block(buffers.remove(0)));
    let (second, second_buffers) = zone.checkpoint(2);
    writer.take(ToSnapshots::Begin(second.clone()));
    assert_eq!(outcomes(&mut writer), ["dropped"]);
    // Its shard ends; an end for an older ownership is ignored.
    writer.take(ToSnapshots::Abandon { partition: 0, ownership_id: 0 });
    assert_eq!(outcomes(&mut writer), [""; 0]);
    writer.take(ToSnapshots::Abandon { partition: 0, ownership_id: 1 });
    assert_eq!(outcomes(&mut writer), ["dropped"]);
    for buffer in second_buffers {
        writer.take(ToSnapshots::Block(buffer));
    }
    writer.take(ToSnapshots::Gate(gate(&second)));
    assert_eq!(outcomes(&mut writer), [""; 0]);
    // The disk fails at the start, in a block, at the end, and then at an operation that can wait.
    for failing in 0.. {
        let (checkpoint, buffers) = zone.checkpoint(10 + failing);
        disk.fail_in(failing);
        writer.take(ToSnapshots::Begin(checkpoint.clone()));
        buffers.into_iter().for_each(|buffer| drop(writer.take(ToSnapshots::Block(buffer))));
        writer.take(ToSnapshots::Gate(gate(&checkpoint)));
        let outcome = outcomes(&mut writer);
        if outcome == ["stored"] {
            // One operation to preallocate, one per block, four for header, sync, name and
            // directory.
            assert_eq!(failing, 5 + checkpoint.state_bytes.div_ceil(65_520));
            return;
        }
        assert_eq!(outcome, ["failed"], "operation {failing}");
    }
}

#[test]
fn state_of_a_checkpoint_that_could_not_begin_is_nobody_elses() {
    let disk = Memory::default();
    let (mut zone, mut other) = (Zone::new(0), Zone::new(1));
    let mut writer = SnapshotWriter::new(store(&disk));
    zone.join(800);
    other.join(900);
    let (checkpoint, buffers) = zone.checkpoint(1);
    writer.take(ToSnapshots::Begin(checkpoint.clone()));
    buffers.into_iter().for_each(|buffer| drop(writer.take(ToSnapshots::Block(buffer))));
    let (failing, buffers) = other.checkpoint(2);
    disk.fail_in(0);
    writer.take(ToSnapshots::Begin(failing.clone()));
    buffers.into_iter().for_each(|buffer| drop(writer.take(ToSnapshots::Block(buffer))));
    assert_eq!(outcomes(&mut writer), ["failed"]);
    writer.take(ToSnapshots::Gate(gate(&failing)));
    writer.take(ToSnapshots::Gate(gate(&checkpoint)));
    assert_eq!(outcomes(&mut writer), ["stored"]);
    let mut store = store(&disk);
    let newest = candidates(&mut store).remove(0);
    assert!(store.load(&newest, &rulebook()).is_ok());
    assert_eq!(store.candidates(1), Ok(Vec::new()));
}

#[test]
fn each_shard_s_newest_snapshot_has_its_turn_to_be_replicated() {
    let header = |partition, next_offset| Header { partition, next_offset, ..example() };
    let mut waiting = VecDeque::new();
    for partition in [0, 1, 2] {
        assert_eq!(wait_for_turn(&mut waiting, header(partition, 5)), None);
    }
    assert_eq!(wait_for_turn(&mut waiting, header(1, 6)), Some(header(1, 5)));
    assert_eq!(waiting.pop_front(), Some(header(0, 5)));
    assert_eq!(wait_for_turn(&mut waiting, header(0, 7)), None);
    assert_eq!(waiting, [header(1, 6), header(2, 5), header(0, 7)]);
}

/// The header of docs/vectors/snapshot.json.
fn example() -> Header {
    let mark = Mark {
        output_offset: 77,
        owner_epoch: 4,
        next_update: 1_234,
        next_offset: 1_000,
        chain: Chain(0x1122_3344_5566_7788),
    };
    Header {
        origin: Origin {
            cluster_id: "lkc-1".to_owned(),
            input_topic: "hunt-events".to_owned(),
            input_topic_id: TopicId::default(),
            output_topic: "hunt-updates".to_owned(),
        },
        partition: 3,
        sequence: 9,
        ruleset: 0xdead_beef,
        engine_version: 1,
        next_offset: 1_000,
        leader_epoch: Some(6),
        next_update: 1_230,
        chain: Chain(0x0102_0304_0506_0708),
        digest: 0x8877_6655_4433_2211,
        mark,
        skips: vec![1_001, 1_007],
        taken_at_ms: 1_767_225_600_000,
        state_bytes: 65_528,
        block_crcs: vec![0x0a0b_0c0d, 0x0102_0304],
    }
}

#[test]
fn the_header_is_laid_out_as_the_documents_say() {
    let vector = std::fs::read_to_string("docs/vectors/snapshot.json").expect("it is there");
    let vector: serde_json::Value = serde_json::from_str(&vector).expect("it is JSON");
    let hex: String = example().encode().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        vector["header"].as_str(),
        Some(hex.as_str()),
        "headers are written in another way: raise SNAPSHOT_VERSION (snapshot/format.rs), then put \
         the right side into docs/vectors/snapshot.json"
    );
    let id = format!("{:016x}", example().id());
    assert_eq!(vector["id"].as_str(), Some(id.as_str()));
    let head: String = example().block_head(1).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(vector["head_of_block_1"].as_str(), Some(head.as_str()));
    assert_eq!(Header::decode(&example().encode()), Ok(example()));
}

#[test]
fn a_header_of_another_version_says_which() {
    let mut bytes = example().encode();
    bytes[8] = 4;
    assert_eq!(Header::decode(&bytes), Err(SnapshotError::Version(4)));
    assert!(Header::decode(&bytes[..10]).is_err());
    assert!(Header::decode(&[]).is_err());
}

/// The header of docs/vectors/snapshot.json as written by version 2.
#[test]
fn a_header_of_version_2_is_read_as_one_whose_leader_epoch_is_not_known() {
    let hex = "484e54534e41500002000000b4336d98d4000000efbeadde0100000003000000f1a5abe72ca543b60900\
               000000000000e803000000000000ce0400000000000008070605040302011122334455667788\
               4d000000000000000400000000000000d204000000000000e8030000000000008877665544332211\
               00a8da769b010000f8ff0000000000000000000000000000000000000000000005000b000c000200\
               6c6b632d3168756e742d6576656e747368756e742d75706461746573e903000000000000ef030000\
               000000000d0c0b0a04030201";
    let digits = (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16));
    let bytes: Vec<u8> = digits.map(|byte| byte.expect("hexadecimal digits")).collect();
    let read = Header::decode(&bytes).expect("a header");
    assert_eq!(read, Header { leader_epoch: None, ..example() });
    assert_eq!(Header::decode(&read.encode()), Ok(read));
}
