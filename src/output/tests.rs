//! Frames and the reader rule: the vectors that docs/PROTOCOL.md refers to, and random histories.

use crate::hunt::change::{Change, KINDS};
use crate::hunt::frames::{decode_frame, encode};
use crate::kit::update::{FRAME_UPDATES_MAX, Update};
use crate::output::encode::{FRAME_HEADER_BYTES, FrameError};
use crate::output::frame::{Chain, FRAME_BYTES_MAX, Format, Frame, FrameHeader, FrameKind};
use crate::output::reader::{Position, Reader, Verdict};
use crate::testing::frame_maker::FrameMaker;
use crate::testing::vectors::{bytes_of, vectors};
use proptest::prelude::*;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

fn text<'a>(vector: &'a Value, key: &str) -> &'a str {
    vector[key].as_str().unwrap_or_else(|| panic!("`{key}` of {vector}"))
}

fn encoded(format: Format, header: &FrameHeader, updates: &[Update]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(format, header, updates, &mut bytes);
    bytes
}

fn verdict_name(verdict: Verdict) -> String {
    match verdict {
        Verdict::Accepted { from } => format!("accepted from {from}"),
        Verdict::Progress { .. } => "progress".to_owned(),
        Verdict::Fence => "fence".to_owned(),
        Verdict::Skip { offset } => format!("skip {offset}"),
        Verdict::Genesis => "genesis".to_owned(),
        Verdict::Joined => "joined".to_owned(),
        Verdict::Waiting => "waiting".to_owned(),
        Verdict::Stale => "stale".to_owned(),
        Verdict::Duplicate => "duplicate".to_owned(),
        Verdict::Gap { missing } => format!("gap of {missing}"),
        Verdict::Halt => "halt".to_owned(),
    }
}

/// How the two encodings of a frame vector differ from huntd's output; `None` if they do not.
fn fault_of_forms(vector: &Value) -> Option<String> {
    let (json, binary) = (text(vector, "json"), text(vector, "binary"));
    let (header, updates) = match decode_frame(json.as_bytes()) {
        Ok(frame) => frame,
        Err(error) => return Some(format!("`json`: {error}")),
    };
    let written = String::from_utf8(encoded(Format::Json, &header, &updates)).expect("text");
    if written != json {
        return Some(format!("`json` must be {written}"));
    }
    let bytes = encoded(Format::Binary, &header, &updates);
    let written = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    if written != binary {
        return Some(format!("`binary` must be {written}"));
    }
    assert_eq!(decode_frame(&bytes), Ok((header, updates)), "{json}");
    None
}

#[test]
fn both_forms_of_every_frame_vector_are_the_same_frame() {
    let vectors = vectors("frames.json");
    let fault = |vector| Some(format!("{}: {}", text(vector, "name"), fault_of_forms(vector)?));
    let faults: Vec<String> = vectors.iter().filter_map(fault).collect();
    assert!(
        faults.is_empty(),
        "if the updates in docs/vectors/frames.json have not changed, frames are written in \
         another way: raise FRAME_VERSION (output/encode.rs). Put right there:\n{}",
        faults.join("\n")
    );
}

/// Each history of updates begins at number 0. Later frames continue where an earlier one ends.
#[test]
fn the_count_and_the_chain_of_every_frame_vector_follow_from_the_updates() {
    let mut chains = BTreeMap::from([(0, Chain::default())]);
    let mut faults = Vec::new();
    for vector in vectors("frames.json") {
        let (name, json) = (text(&vector, "name"), text(&vector, "json"));
        let frame: Value = serde_json::from_str(json).expect("any JSON reader takes it");
        let count = frame["updates"].as_array().expect("a list").len();
        let stated = format!("\"count\":{},", frame["count"]);
        let counted = json.replacen(&stated, &format!("\"count\":{count},"), 1);
        let (header, updates) = decode_frame(counted.as_bytes()).expect(name);
        let Some(before) = chains.get(&header.first_update) else {
            let end = |(end, Chain(chain)): (&u64, &Chain)| format!("{end} (chain {chain:016x})");
            let ends: Vec<String> = chains.iter().map(end).collect();
            faults.push(format!("{name}: `first_update` must be one of {}", ends.join(", ")));
            continue;
        };
        let chain = updates.iter().fold(*before, |chain, update| chain.with(update));
        if (&frame["count"], header.chain) != (&count.into(), chain) {
            faults.push(format!("{name}: `count` must be {count}, `chain` {:016x}", chain.0));
        }
        chains.insert(header.first_update + count as u64, chain);
    }
    assert!(faults.is_empty(), "put right in docs/vectors/frames.json:\n{}", faults.join("\n"));
}

#[test]
fn the_frame_vectors_have_every_kind_of_frame_and_of_update_and_the_last_of_each_list_of_names() {
    let (mut frames, mut updates, mut all) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for vector in vectors("frames.json") {
        let frame: Value = serde_json::from_str(text(&vector, "json")).expect("it is JSON");
        frames.insert(text(&frame, "kind").to_owned());
        let list = frame["updates"].as_array().expect("a list");
        updates.extend(list.iter().map(|update| text(update, "kind").to_owned()));
        all.extend_from_slice(list);
    }
    assert_eq!(frames, ["fence", "genesis", "skip", "updates"].map(str::to_owned).into());
    for kind in KINDS {
        assert!(updates.contains(kind.name), "docs/vectors/frames.json has no {}", kind.name);
        for field in kind.fields.iter().filter(|field| !field.names.is_empty()) {
            let last = field.names.last().expect("it has names");
            let has = |update: &&Value| update["kind"] == kind.name && update[field.name] == *last;
            let name = kind.name;
            assert!(
                all.iter().any(|update| has(&update)),
                "docs/vectors/frames.json: {name} has no {last}"
            );
        }
    }
}

#[test]
fn every_damaged_vector_is_refused_for_its_reason() {
    for vector in vectors("damaged.json") {
        let bytes = match vector.get("json") {
            Some(_) => text(&vector, "json").as_bytes().to_vec(),
            None => bytes_of(text(&vector, "binary")),
        };
        let error = decode_frame(&bytes).expect_err(text(&vector, "name"));
        // A reader that is less strict than huntd may accept a frame, but must skip none.
        let is_frame = text(&vector, "reader") != "ignores";
        assert_eq!(is_frame, error != FrameError::NotAFrame, "{}", text(&vector, "name"));
        assert_eq!(error.to_string(), text(&vector, "error"), "{}", text(&vector, "name"));
    }
}

#[test]
fn every_history_vector_gives_its_verdicts_and_its_end() {
    for vector in vectors("reader.json") {
        let mut reader = match text(&vector, "begins") {
            "at the start" => Reader::new(),
            _ => Reader::joining(),
        };
        for step in vector["frames"].as_array().expect("frames") {
            let (header, updates) = decode_frame(text(step, "frame").as_bytes()).expect("a frame");
            let verdict = reader.fold(&header, &updates);
            assert_eq!(verdict_name(verdict), text(step, "verdict"), "{}", text(&vector, "name"));
        }
        let position = reader.position();
        let end = &vector["end"];
        assert_eq!(position.owner_epoch, end["epoch"], "{}", text(&vector, "name"));
        assert_eq!(position.next_update, end["next_update"], "{}", text(&vector, "name"));
        assert_eq!(position.next_offset, end["next_offset"], "{}", text(&vector, "name"));
        assert_eq!(format!("{:016x}", position.chain.0), text(end, "chain"));
        assert_eq!(reader.gaps, end["gaps"], "{}", text(&vector, "name"));
    }
}

#[test]
fn a_full_frame_fits_its_limit_in_both_forms() {
    let change = Change::Moved { tile: u32::MAX, x: i32::MIN, y: i32::MIN };
    let updates = vec![Update::new(u64::MAX, i64::MIN, change); FRAME_UPDATES_MAX];
    let header = FrameHeader {
        kind: FrameKind::Updates,
        owner_epoch: u64::MAX,
        first_update: u64::MAX - FRAME_UPDATES_MAX as u64,
        count: FRAME_UPDATES_MAX as u32,
        next_offset: i64::MAX,
        ruleset: u32::MAX,
        chain: Chain(u64::MAX),
        fence_id: 0,
    };
    for format in [Format::Json, Format::Binary] {
        let bytes = encoded(format, &header, &updates);
        assert_eq!(decode_frame(&bytes), Ok((header, updates.clone())));
    }
    let too_long = |head: &[u8]| [head, &vec![b' '; FRAME_BYTES_MAX]].concat();
    let error = |head: &[u8]| decode_frame(&too_long(head)).expect_err("no frame is so long");
    let binary = b"HNTF\x02";
    assert_eq!(error(binary), FrameError::TooLong { bytes: too_long(binary).len() });
    assert_eq!(error(b"HNTF\x03"), FrameError::Version(3), "which may allow it");
    assert_eq!(error(b"{\"version\":3,"), FrameError::Version(3));
    assert_eq!(error(b""), FrameError::NotAFrame);
}

#[test]
fn a_reader_joins_at_a_repeated_fence_and_nowhere_else() {
    let mut shard = FrameMaker::new(0);
    let (mut whole, mut joining) = (Reader::new(), Reader::joining());
    for _ in 0..5 {
        let frame = shard.frame(3);
        assert_eq!(joining.fold(&frame.header, frame.updates.as_slice()), Verdict::Waiting);
        whole.fold(&frame.header, frame.updates.as_slice());
    }
    let raising = FrameHeader { next_offset: -1, ..shard.fence(8) };
    assert_eq!(joining.fold(&raising, &[]), Verdict::Waiting);
    assert!(!joining.has_joined());
    assert_eq!(joining.fold(&shard.fence(8), &[]), Verdict::Joined);
    whole.fold(&raising, &[]);
    assert!(joining.has_joined());
    assert_eq!(joining.position(), whole.position());
    let frame = shard.frame(2);
    let verdict = whole.fold(&frame.header, frame.updates.as_slice());
    assert_eq!(joining.fold(&frame.header, frame.updates.as_slice()), verdict);
    assert_eq!(Reader::at(whole.position()).position(), joining.position());
}

#[test]
fn a_fence_of_an_owner_that_was_overtaken_is_no_place_to_join() {
    let mut shard = FrameMaker::new(0);
    let late = shard.fence(8);
    shard.frame(3);
    shard.owner_epoch = 3;
    let frame = shard.frame(2);
    let fold = |reader: &mut Reader| reader.fold(&frame.header, frame.updates.as_slice());

    // A reader that has seen the newer owner's frames does not join.
    let mut knowing = Reader::joining();
    assert_eq!(fold(&mut knowing), Verdict::Waiting);
    assert_eq!(knowing.fold(&late, &[]), Verdict::Waiting);

    // A reader that has not seen them learns of the newer owner from the next frame: its frame
    // without its fence, its repeated fence, or the fence of a later owner.
    let joined = || {
        let mut reader = Reader::joining();
        assert_eq!(reader.fold(&late, &[]), Verdict::Joined);
        reader
    };
    let mut reader = joined();
    assert_eq!(fold(&mut reader), Verdict::Waiting);
    assert_eq!(reader.fold(&shard.fence(9), &[]), Verdict::Joined);
    assert_eq!(reader.position().next_update, shard.next_update);
    let mut reader = joined();
    assert_eq!(reader.fold(&shard.fence(9), &[]), Verdict::Joined);
    let raising = |owner_epoch| FrameHeader { next_offset: -1, owner_epoch, ..shard.fence(10) };
    let mut reader = joined();
    assert_eq!(reader.fold(&raising(late.owner_epoch + 2), &[]), Verdict::Waiting);
    let mut reader = joined();
    assert_eq!(reader.fold(&raising(late.owner_epoch + 1), &[]), Verdict::Fence);
    assert!(reader.has_joined());
}

#[test]
fn a_reader_that_has_accepted_nothing_goes_on_at_a_repeated_fence_that_is_ahead() {
    let mut shard = FrameMaker::new(0);
    let early = shard.fence(8);
    shard.frame(3);
    let frame = shard.frame(2);
    let mut reader = Reader::joining();
    assert_eq!(reader.fold(&early, &[]), Verdict::Joined);
    let fold =
        |reader: &mut Reader, frame: &Frame| reader.fold(&frame.header, frame.updates.as_slice());
    assert_eq!(fold(&mut reader, &frame), Verdict::Gap { missing: 3 });
    assert!(reader.has_joined(), "the next owner may publish what is missing");
    assert_eq!(reader.fold(&shard.fence(8), &[]), Verdict::Joined);
    // A reader that has accepted updates waits for the missing ones.
    let frame = shard.frame(1);
    assert_eq!(fold(&mut reader, &frame), Verdict::Accepted { from: 0 });
    shard.frame(1);
    let frame = shard.frame(1);
    assert_eq!(fold(&mut reader, &frame), Verdict::Gap { missing: 1 });
    assert_eq!(reader.fold(&shard.fence(8), &[]), Verdict::Fence);
}

#[test]
fn a_repeated_fence_of_another_owner_of_the_same_epoch_shows_that_its_fence_came_before() {
    let mut shard = FrameMaker::new(0);
    let late = shard.fence(8);
    shard.owner_epoch = 2;
    shard.frame(3);
    let raising = |fence_id| FrameHeader { next_offset: -1, ..shard.fence(fence_id) };
    let mut reader = Reader::joining();
    assert_eq!(reader.fold(&late, &[]), Verdict::Joined);
    // Another instance has lost the race for the owner epoch, and does not repeat this fence.
    assert_eq!(reader.fold(&raising(10), &[]), Verdict::Fence);
    assert_eq!(reader.fold(&shard.fence(9), &[]), Verdict::Joined);
    assert_eq!(reader.position().next_update, 3);
    // Nor does it prevent others from joining at the winner's.
    let mut reader = Reader::joining();
    assert_eq!(reader.fold(&raising(10), &[]), Verdict::Waiting);
    assert_eq!(reader.fold(&shard.fence(9), &[]), Verdict::Joined);
}

#[test]
fn a_chain_that_differs_at_once_is_the_fault_of_the_fence_and_later_of_the_log() {
    let mut shard = FrameMaker::new(0);
    let lying = FrameHeader { chain: Chain(1), ..shard.fence(8) };
    let frame = shard.frame(3);
    let mut reader = Reader::joining();
    assert_eq!(reader.fold(&lying, &[]), Verdict::Joined);
    let verdict = reader.fold(&frame.header, frame.updates.as_slice());
    assert_eq!(verdict, Verdict::Waiting);
    assert_eq!(reader.fold(&shard.fence(8), &[]), Verdict::Joined);
    let frame = shard.frame(1);
    assert_eq!(reader.fold(&frame.header, frame.updates.as_slice()), Verdict::Accepted { from: 0 });
    let frame = shard.frame(1);
    let wrong = FrameHeader { chain: Chain(1), ..frame.header };
    assert_eq!(reader.fold(&wrong, frame.updates.as_slice()), Verdict::Halt);
}

fn truth(number: u64) -> Update {
    Update::new(number % 5 + 1, number as i64, Change::Rotated { heading: number as u16 })
}

fn chain_before(number: u64) -> Chain {
    (0..number).fold(Chain::default(), |chain, number| chain.with(&truth(number)))
}

fn chain_of(updates: &[Update]) -> Chain {
    updates.iter().fold(Chain::default(), |chain, update| chain.with(update))
}

#[test]
fn an_update_that_is_lost_or_repeated_or_moved_or_changed_gives_another_chain() {
    let updates: Vec<Update> = (0..40).map(truth).collect();
    let chain = chain_of(&updates);
    for at in 0..updates.len() {
        let mut lost = updates.clone();
        let update = lost.remove(at);
        assert_ne!(chain_of(&lost), chain, "update {at} is lost");
        let mut repeated = updates.clone();
        repeated.insert(at, update);
        assert_ne!(chain_of(&repeated), chain, "update {at} is repeated");
        for to in (0..updates.len()).filter(|to| *to != at) {
            let mut moved = lost.clone();
            moved.insert(to, update);
            assert_ne!(chain_of(&moved), chain, "update {at} is moved to {to}");
        }
        let Change::Rotated { heading } = update.change() else { unreachable!("truth rotates") };
        let (player_id, ts_us) = (update.player_id(), update.ts_us());
        for bit in 0..64 {
            let (rotated, turned) = (Change::Rotated { heading }, heading ^ 1 << (bit % 16));
            for other in [
                Update::new(player_id ^ 1 << bit, ts_us, rotated),
                Update::new(player_id, ts_us ^ 1 << bit, rotated),
                Update::new(player_id, ts_us, Change::Rotated { heading: turned }),
            ] {
                let mut changed = updates.clone();
                changed[at] = other;
                assert_ne!(chain_of(&changed), chain, "update {at} is {other:?}");
            }
        }
    }
}

/// Frames of one shard's true updates, cut anywhere, by any owner, in any order.
fn history() -> impl Strategy<Value = Vec<FrameHeader>> {
    let frame =
        (0..4u64, 0..30u64, 0..6u32, 0..5u8).prop_map(|(owner_epoch, first, count, kind)| {
            let kind = if kind == 0 { FrameKind::Fence } else { FrameKind::Updates };
            let count = if kind == FrameKind::Fence { 0 } else { count };
            let end = first + u64::from(count);
            FrameHeader {
                kind,
                owner_epoch,
                first_update: first,
                count,
                next_offset: end as i64 * 2,
                ruleset: 0,
                chain: chain_before(end),
                fence_id: u128::from(owner_epoch),
            }
        });
    prop::collection::vec(frame, 0..60)
}

/// The rule again, one update at a time: an update counts if its writer's owner epoch is not below
/// any earlier one, and its number is the next.
fn naive(history: &[FrameHeader]) -> Position {
    let mut position = Position::default();
    for frame in history {
        if frame.kind == FrameKind::Updates && frame.owner_epoch < position.owner_epoch {
            continue;
        }
        position.owner_epoch = position.owner_epoch.max(frame.owner_epoch);
        if frame.kind == FrameKind::Fence {
            continue;
        }
        let before = position.next_update;
        for number in frame.first_update..frame.first_update + u64::from(frame.count) {
            if number == position.next_update {
                position.next_update += 1;
            }
        }
        let counts = position.next_update > before
            || (frame.count == 0 && frame.first_update == position.next_update);
        if counts {
            position.next_offset = position.next_offset.max(frame.next_offset);
        }
    }
    position.chain = chain_before(position.next_update);
    position
}

proptest! {
    #[test]
    fn any_history_folds_as_update_by_update(history in history()) {
        let mut reader = Reader::new();
        for header in &history {
            let end = header.first_update + u64::from(header.count);
            let updates: Vec<Update> = (header.first_update..end).map(truth).collect();
            prop_assert_ne!(reader.fold(header, &updates), Verdict::Halt);
        }
        prop_assert_eq!(reader.position(), naive(&history));
    }

    #[test]
    fn no_bytes_make_decoding_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        prefix in 0..3usize,
    ) {
        let json: &[u8] = b"{\"version\":2,\"kind\":\"updates\",\"epoch\":";
        let prefixes: [&[u8]; 3] = [b"", b"HNTF\x02\x01\0\0", json];
        let record = [prefixes[prefix], &bytes].concat();
        if let Ok((header, updates)) = decode_frame(&record) {
            prop_assert_eq!(header.count as usize, updates.len());
        }
    }

    #[test]
    fn a_frame_that_is_cut_or_changed_is_refused_or_another_frame(
        cut in 0..200usize,
        place in 0..200usize,
        flip in 1..=255u8,
        json in any::<bool>(),
    ) {
        let frame = FrameMaker::new(0).frame(3);
        let format = if json { Format::Json } else { Format::Binary };
        let whole = encoded(format, &frame.header, frame.updates.as_slice());
        prop_assert!(whole.len() > FRAME_HEADER_BYTES);
        prop_assert!(decode_frame(&whole[..cut.min(whole.len() - 1)]).is_err());
        let mut changed = whole.clone();
        let place = place % whole.len();
        changed[place] ^= flip;
        if let Ok(decoded) = decode_frame(&changed) {
            prop_assert_ne!(decoded, (frame.header, frame.updates.as_slice().to_vec()));
        }
    }
}
