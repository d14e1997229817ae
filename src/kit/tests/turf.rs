//! Turf, played by the kit alone.

use crate::decoder::{Decoder, RecordPosition};
use crate::kit::engine::{AnyRulebook, BlockReport};
use crate::kit::event::{ACTIONS_MAX, Event, EventTable, Subject};
use crate::kit::event_list::Events;
use crate::kit::field::{FieldForm, FieldSpec};
use crate::kit::game::Game;
use crate::kit::kinds::Kinds;
use crate::kit::mix;
use crate::kit::rulebook::{self, GameRules, Rulebook};
use crate::kit::update::{Update, Updates};
use crate::kit::zone::Zone;
use crate::output::encode::{decode, encode};
use crate::output::event_json::write_event;
use crate::output::frame::{Format, Frame, FrameHeader};
use crate::testing::proof::prove;
use crate::testing::random::Random;
use crate::testing::turf::events::{TurfAction, TurfKind, TurfRefusal, TurfUpdate};
use crate::testing::turf::first::play::{Turf, TurfRules};
use crate::testing::turf::{FIRST_RULES, boastful, forgetful, random_events, secretive};
use crate::view::game::Viewed;
use std::panic::catch_unwind;

fn play(zone: &mut Zone<Turf>, events: &[(u64, u64, i64, TurfAction)]) -> Vec<TurfUpdate> {
    let mut updates = Updates::new();
    for (player_id, seq, time_ms, action) in events.iter().copied() {
        let event = Event { offset: 0, time_ms, player_id, seq, ts_us: 1, action };
        zone.apply(&event, &mut updates);
    }
    let made = updates.as_slice().iter().map(Update::change::<TurfUpdate>);
    made.filter(|update| !matches!(update, TurfUpdate::Clock { .. })).collect()
}

#[test]
fn another_game_is_played_by_the_kit_s_clock_counters_and_refusals() {
    let mut zone = Zone::<Turf>::new(0, &Rulebook::of(FIRST_RULES));
    let ticks: Vec<_> = (1..=8).map(|id| (0, id, 1000, TurfAction::Tick)).collect();
    assert_eq!(play(&mut zone, &ticks), []);
    let (join, paint) = (TurfAction::Join { field: 5 }, TurfAction::Paint);
    let began = [
        (7, 1, 1000, paint),
        (7, 2, 1000, join),
        (7, 2, 1000, paint),
        (7, 3, 1000, paint),
        (0, 0, 1000, TurfAction::Round { seconds: 1 }),
        (7, 4, 1000, paint),
        (7, 5, 1000, join),
        (7, 6, 1000, TurfAction::Leave),
        (7, 6, 1000, join),
    ];
    let refused = |reason, seq| TurfUpdate::Refused { reason, seq };
    let expected = [
        refused(TurfRefusal::NotJoined, 1),
        TurfUpdate::Joined { team: 2, field: 5 },
        refused(TurfRefusal::NotNow, 3),
        TurfUpdate::Began { seconds: 1 },
        TurfUpdate::Painted { field: 5, score: 1 },
        refused(TurfRefusal::AlreadyJoined, 5),
        TurfUpdate::Left { seq: 6 },
    ];
    assert_eq!(play(&mut zone, &began), expected);
    let late: Vec<_> = (9..=16).map(|id| (0, id, 9000, TurfAction::Tick)).collect();
    assert_eq!(play(&mut zone, &late), [TurfUpdate::Ended { red: 0, blue: 1 }]);
}

/// Reads records as the fetch path does, plays them as the hot thread does, and publishes frames.
#[test]
fn another_game_goes_from_records_to_frames_by_its_tables() {
    let rulebook = AnyRulebook::from(Rulebook::of(FIRST_RULES));
    let schema = rulebook.schema();
    let (mut decoder, mut zone) = (Decoder::new(schema.events), rulebook.new_zone(0));
    let mut single = Zone::<Turf>::new(0, &Rulebook::of(FIRST_RULES));
    let (mut updates, mut expected) = (Updates::new(), Updates::new());
    let mut report = BlockReport::new(0, u64::MAX);
    let (mut counts, mut kinds) = ([0; ACTIONS_MAX], std::collections::BTreeSet::new());
    for events in random_events(&mut Random::new(3), 5000).chunks(50) {
        let mut block = Events::default();
        for event in events {
            // The records of players without an id, or with a `seq` of 0, are no events.
            let mut event = *event;
            let is_world = event.action.kind().spec().subject == Subject::World;
            event.player_id += u64::from(!event.action.kind().spec().subject.is_world());
            event.seq = if is_world { 0 } else { event.seq + 1 };
            let Event { offset, time_ms, player_id, seq, ts_us, action } = event;
            let mut record = Vec::new();
            write_event(&mut record, player_id, seq, ts_us, &action);
            let origin = RecordPosition { offset, time_ms };
            let read = decoder.decode_within(origin, &record, 0..record.len(), &mut block);
            assert_eq!(read, Ok(()), "{}", record.escape_ascii());
            let decoded = block.plain().last().map(|event| event.unpack(block.carried()));
            assert_eq!(decoded, Some(event));
            single.apply(&event, &mut expected);
        }
        report.clear();
        zone.apply_part(&block, 0..block.len(), &mut updates, &mut report);
        assert_eq!((report.events, report.missing), (events.len(), None));
        counts.iter_mut().zip(report.applied).for_each(|(sum, count)| *sum += count);
        assert_eq!(updates.as_slice(), expected.as_slice());
        for format in [Format::Json, Format::Binary] {
            let mut frame = Vec::new();
            let header = FrameHeader { count: updates.len() as u32, ..Frame::new().header };
            encode(format, schema.updates, (&header, updates.as_slice()), &mut frame);
            assert_eq!(decode(&frame, schema.updates), Ok((header, updates.as_slice().to_vec())));
        }
        kinds.extend(updates.as_slice().iter().map(|update| update.payload().kind));
        updates.clear();
        expected.clear();
    }
    assert_eq!((zone.digest(), zone.counts()), (single.digest(), Turf::counts(&single)));
    assert!(counts[..TurfKind::ALL.len()].iter().all(|count| *count > 0), "{counts:?}");
    assert_eq!(kinds.len(), schema.updates.kinds.len() - 1, "no random game changes its rules");
    assert!(decoder.tier_counts().unparsed() > 4000, "{:?}", decoder.tier_counts());
    for record in [
        r#"{"type":"step","player_id":1,"seq":1,"ts_us":1,"east":2}"#,
        r#"{"type":"move","player_id":1,"seq":1,"ts_us":1}"#,
        r#"{"type":"round","ts_us":1}"#,
    ] {
        let origin = RecordPosition { offset: 0, time_ms: 0 };
        let read = decoder.decode::<TurfAction>(origin, Some(record.as_bytes()));
        assert!(read.is_err(), "{record}: {read:?}");
    }
}

mod sized {
    #![allow(unreachable_pub, reason = "the macros declare what other modules see")]

    /// Sizes that nothing else limits.
    #[derive(Clone, Copy, Debug)]
    pub struct Sizes {
        pub players: u32,
        pub cells: u32,
    }

    row! { player Runner {} }

    row! { numbered Cell { first: u64, second: u64, } }

    state! {
        /// A state of such sizes.
        SizedState of b"SIZEDST\x01" by rules: Sizes {
            players: Players<Runner> = rules.players,
            cells: Numbered<Cell> = rules.cells,
        }
    }
}

#[test]
fn rules_by_which_a_table_is_empty_or_too_large_are_refused() {
    use sized::{SizedState, Sizes};
    let check = |players, cells| rulebook::check_sizes::<SizedState>(&Sizes { players, cells });
    assert_eq!(check(1, 1), Ok(()));
    assert_eq!(check(131_072, 1), Ok(()));
    let refused = |players, cells| check(players, cells).expect_err("refused").to_string();
    for players in [0, 131_073, 1_000_000, u32::MAX] {
        let refused = refused(players, 1);
        assert_eq!(refused, "the number of players in a zone must be 1..=131072", "{players}");
    }
    assert_eq!(refused(1, 0), "the number of rows in a table must be at least 1");
    // 2 words for each row, and 5 MiB for players who have left.
    assert_eq!(check(1, 3_600_000), Ok(()));
    for cells in [3_900_000, u32::MAX] {
        assert_eq!(refused(1, cells), "the state of a full zone must be at most 64 MiB");
    }
}

#[test]
fn a_book_has_no_rules_by_which_a_table_is_too_large_or_has_another_size() {
    let rules = |players_max| TurfRules { side: 64, players_max };
    let mut book = Rulebook::of(rules(131_072));
    let refused = book.add(rules(131_071)).expect_err("the zones have larger tables");
    assert_eq!(refused.to_string(), "the sizes of tables must be as in the first rules");
    let refused = book.add(rules(131_073)).expect_err("too many players");
    assert_eq!(Err(refused), rulebook::check(&rules(131_073)));
    assert!(catch_unwind(|| Rulebook::of(rules(131_073))).is_err());
}

#[test]
fn a_game_on_the_kit_is_a_function_of_its_log() {
    let mut made = std::collections::BTreeSet::new();
    for seed in 0..100 {
        let events = random_events(&mut Random::new(seed), 1000);
        let updates = prove::<Turf>(&FIRST_RULES, &events, seed);
        let updates = updates.unwrap_or_else(|difference| panic!("{difference}"));
        made.extend(updates.iter().map(|update| update.payload().kind));
    }
    let never = (1..).zip(TurfUpdate::KINDS).filter(|(number, _)| !made.contains(number));
    let never: Vec<_> = never.map(|(_, kind)| kind.name).collect();
    assert_eq!(never, ["rules_changed"], "no random game makes these");
    let names = TurfRefusal::ALL.iter().map(|refusal| refusal.name());
    assert!(names.eq(TurfRefusal::NAMES.iter().copied()));
    assert_eq!(TurfKind::Paint.name(), TurfKind::Paint.spec().name);
}

#[test]
fn the_hash_of_a_game_s_rules_contains_what_the_kit_decides_by() {
    let words = [rulebook::kit_hash(), Turf::VERSION.into(), 8, 6];
    assert_eq!(FIRST_RULES.hash(), mix::hash(&words, 1) as u32);
}

/// Returns whether an event table with this field compiles.
fn compiles(field: FieldSpec) -> bool {
    let fields: &'static [FieldSpec] = Vec::leak(vec![field]);
    catch_unwind(|| EventTable::new(fields, &[], &[])).is_ok()
}

#[test]
fn a_digit_in_the_name_of_a_field_does_not_compile() {
    let is_name = |key| compiles(FieldSpec { key, form: FieldForm::Integer, least: 0, most: 9 });
    assert!(is_name("x"));
    assert!(["x1", "1", "x_2_y"].into_iter().all(|key| !is_name(key)));
}

#[test]
fn a_range_that_not_every_tier_of_the_decoder_holds_does_not_compile() {
    let is_range =
        |form, [least, most]: [i128; 2]| compiles(FieldSpec { key: "x", form, least, most });
    let whole = [i32::MIN.into(), i32::MAX.into()];
    for range in [[0, 0], [-10, 0], [-10, 5], [5, 5], whole] {
        assert!(is_range(FieldForm::Integer, range), "{range:?}");
    }
    for range in [[-10, -5], [9, 8], [1 << 63, u64::MAX.into()], [-1 << 64, 0], [0, 1 << 64]] {
        assert!(!is_range(FieldForm::Integer, range), "{range:?}");
    }
    assert!(is_range(FieldForm::Position, whole));
    for range in [[0, 0], [0, 1000], [i32::MIN.into(), 0], [-1 << 40, 1 << 40]] {
        assert!(!is_range(FieldForm::Position, range), "{range:?}");
    }
}

/// How the property of every game fails for a game that has these rules.
fn caught<R: GameRules>(rules: R) -> Option<String>
where
    R::Game: Viewed<Action = TurfAction>,
{
    (0..100).find_map(|seed| {
        let events = random_events(&mut Random::new(seed), 1000);
        prove::<R::Game>(&rules, &events, seed).err()
    })
}

#[test]
fn a_game_whose_state_is_in_no_table_or_is_not_stored_is_caught() {
    assert_eq!(caught(FIRST_RULES), None);
    let secretive = caught(secretive::play::TurfRules { side: 8, players_max: 6 });
    let forgetful = caught(forgetful::play::TurfRules { side: 8, players_max: 6 });
    for difference in [secretive, forgetful] {
        let difference = difference.expect("it is caught");
        for part in ["event ", r#"{"type":"paint","player_id":"#, "the updates differ: [", " seed "]
        {
            assert!(difference.contains(part), "{difference}");
        }
    }
}

#[test]
fn a_view_that_shows_what_a_stored_state_does_not_have_is_caught() {
    let query = caught(boastful::play::TurfRules { side: 8, players_max: 6 });
    let query = query.expect("the query is caught");
    assert!(query.contains(r#"shows paints {"painted":"#), "{query}");
    let card = caught(boastful::play::TurfRules { side: 9, players_max: 6 });
    let card = card.expect("the card is caught");
    assert!(card.contains("shows player ") && card.contains(r#""team":0"#), "{card}");
}
