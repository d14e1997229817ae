//! The generator's guarantees.

use super::Traffic;
use crate::edition::edition;
use crate::hunt::rules::rulebook::Rulebook;
use crate::hunt::rules_file::built_in;
use crate::hunt::state::TreasureHunt;
use crate::kit::bots::BotOptions;
use std::collections::BTreeMap;

const OPTIONS: BotOptions = BotOptions {
    seed: 7,
    players: 50,
    zones: 3,
    rate: 1_000,
    base_us: 1_000_000_000,
    is_watched: false,
};

fn traffic(options: BotOptions) -> Traffic {
    let rulebook = Rulebook::of(built_in());
    Traffic::new(&edition::<TreasureHunt>(), &rulebook, options).expect("the hunt has bots")
}

#[derive(serde::Deserialize)]
struct Line {
    r#type: String,
    player_id: Option<u64>,
    seq: Option<u64>,
    ts_us: i64,
    x: Option<i64>,
    y: Option<i64>,
}

fn events(options: BotOptions, count: usize) -> Vec<(u16, i64, i64, Line)> {
    let mut generator = traffic(options);
    (0..count)
        .map(|_| {
            let record = generator.next_record();
            let line = serde_json::from_slice(record.value.expect("an event has a value"));
            let line = line.expect("an event is JSON");
            (record.partition, record.offset, record.time_ms, line)
        })
        .collect()
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
    let bytes = |seed| {
        let mut generator = traffic(BotOptions { seed, ..OPTIONS });
        let mut all = Vec::new();
        for _ in 0..5_000 {
            all.extend_from_slice(generator.next_record().value.expect("an event has a value"));
        }
        all
    };
    assert!(bytes(1) == bytes(1));
    assert!(bytes(1) != bytes(2));
}

#[test]
fn players_join_first_and_then_act_in_the_promised_shares() {
    let events = events(OPTIONS, 20_000);
    assert!(events[..50].iter().all(|(.., line)| line.r#type == "join"));
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (.., line) in &events[50..] {
        *counts.entry(&line.r#type).or_default() += 1;
    }
    for (kind, share) in [("move", 12_000), ("rotate", 4_000), ("shoot", 2_000), ("loot", 2_000)] {
        let count = counts[kind];
        assert!(count.abs_diff(share) < 300, "{count} events of type {kind}");
    }
    // 20 seconds in three zones: hunts at 0 and 10 s, the second one ended at 16 s.
    assert_eq!((counts["hunt_start"], counts["hunt_end"]), (6, 3));
    assert!(counts["tick"] >= 3 * 16);
}

#[test]
fn each_player_counts_from_one_and_stays_in_its_zone() {
    let mut last: BTreeMap<u64, (u64, u16)> = BTreeMap::new();
    for (partition, _, _, line) in events(OPTIONS, 20_000) {
        let (Some(player), Some(seq)) = (line.player_id, line.seq) else {
            continue;
        };
        let (last_seq, zone) = last.get(&player).copied().unwrap_or((0, partition));
        assert_eq!((seq, partition), (last_seq + 1, zone), "player {player}");
        last.insert(player, (seq, zone));
    }
    assert_eq!(last.len(), 50);
}

#[test]
fn offsets_are_dense_and_intended_times_follow_the_rate() {
    let mut offsets = [0; 3];
    for (number, (partition, offset, time_ms, line)) in (0..).zip(events(OPTIONS, 10_000)) {
        assert_eq!(offset, offsets[usize::from(partition)]);
        offsets[usize::from(partition)] += 1;
        assert_eq!(line.ts_us, OPTIONS.base_us + number * 1_000);
        assert_eq!(time_ms, line.ts_us / 1_000);
    }
}

#[test]
fn nobody_walks_faster_than_half_a_metre_in_a_tenth_of_a_second() {
    let mut places: BTreeMap<u64, (i64, i64, i64)> = BTreeMap::new();
    for (.., line) in events(BotOptions { rate: 20_000, ..OPTIONS }, 50_000) {
        let (Some(player), Some(x), Some(y)) = (line.player_id, line.x, line.y) else {
            continue;
        };
        if let Some((from_x, from_y, from_us)) = places.insert(player, (x, y, line.ts_us)) {
            let step_cm = (x - from_x).abs().max((y - from_y).abs());
            // One centimetre more for the fraction that a position omits.
            assert!((step_cm - 1) * 100_000 <= 50 * (line.ts_us - from_us), "player {player}");
        }
    }
}
