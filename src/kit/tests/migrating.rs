//! A state moves to another version of its game by the names of its tables and fields.

use crate::kit::checkpoint::StateError;
use crate::kit::engine::{Engine, encode_state};
use crate::kit::rulebook::Rulebook;
use crate::kit::stored_names::{
    Migration, NamedState, StoredField, StoredTable, check_migrations, check_names,
};
use crate::kit::update::{Update, Updates};
use crate::kit::zone::Zone;
use crate::testing::random::Random;
use crate::testing::turf::{FIRST_RULES, SECOND_RULES, first, random_events, second, third};
use proptest::prelude::*;
use std::panic::catch_unwind;

pub(super) fn encoded(zone: &mut (impl Engine + ?Sized)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_state(zone, &mut bytes);
    bytes
}

pub(super) fn first_book() -> Rulebook<first::play::TurfRules> {
    Rulebook::of(FIRST_RULES)
}

fn second_book() -> Rulebook<second::play::TurfRules> {
    Rulebook::of(SECOND_RULES)
}

fn third_book() -> Rulebook<third::play::TurfRules> {
    Rulebook::of(third::play::TurfRules { side: 8, players_max: 6 })
}

/// A zone of the first edition in the middle of a game.
fn played(seed: u64) -> Zone<first::play::Turf> {
    let mut zone = Zone::<first::play::Turf>::new(3, &first_book());
    let mut updates = Updates::new();
    for event in random_events(&mut Random::new(seed), 700) {
        updates.clear();
        zone.apply(&event, &mut updates);
    }
    zone
}

/// Each player's id, `seq`, field, team and score.
macro_rules! standings {
    ($zone:expr) => {{
        let players = &$zone.game.players;
        let rows = (0..players.used()).map(|row| *players.row(row));
        let here = rows.filter(|player| player.player_id != 0);
        let mut standings: Vec<_> = here
            .map(|player| (player.player_id, player.seq, player.field, player.team, player.score))
            .collect();
        standings.sort_unstable();
        standings
    }};
}

#[test]
fn a_state_goes_to_a_later_version_and_back_and_nobody_loses_a_point() {
    let mut points = 0;
    for seed in 0..50 {
        let mut zone = played(seed);
        let bytes = encoded(&mut zone);
        let later = Zone::<second::play::Turf>::migrate_state(&bytes, &second_book());
        let mut later = later.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(standings!(later), standings!(zone), "seed {seed}");
        assert_eq!(later.tombstones.digest(), zone.tombstones.digest());
        assert_eq!(later.clock, zone.clock);
        let colours = |field| (zone.game.fields.row(field).team, later.game.fields.row(field).team);
        assert!((0..64).map(colours).all(|(before, after)| before == after));
        // The new version reads its own checkpoint as its own.
        let restored =
            Zone::<second::play::Turf>::decode_state(&encoded(&mut later), &second_book());
        assert_eq!(restored.expect("its own state").digest(), later.digest());
        let back = Zone::<first::play::Turf>::migrate_state(&encoded(&mut later), &first_book());
        let back = back.expect("no type has changed");
        assert_eq!(standings!(back), standings!(zone), "seed {seed}");
        points += standings!(zone).iter().map(|(.., score)| score).sum::<u64>();
    }
    assert!(points > 100, "{points} points");
}

#[test]
fn a_new_field_starts_at_its_default_and_a_removed_one_is_dropped() {
    let mut zone = played(1);
    let row = (0..).find(|row| zone.game.players.row(*row).player_id != 0).expect("a player");
    let before = *zone.game.players.row(row);
    zone.game.players.write(row, first::edition::Runner { steps: 9, ..before });
    let later = Zone::<second::play::Turf>::migrate_state(&encoded(&mut zone), &second_book());
    let mut later = later.expect("nothing needs a migration");
    let row = later.game.players.find(before.player_id).expect("the player is still here");
    let after = *later.game.players.row(row);
    assert_eq!((after.painted.into(), after.score), (before.score, before.score));
    later.game.players.write(row, second::edition::Runner { painted: 2, ..after });
    let back = Zone::<first::play::Turf>::migrate_state(&encoded(&mut later), &first_book());
    let back = back.expect("nothing needs a migration");
    let row = back.game.players.find(before.player_id).expect("the player is still here");
    assert_eq!(back.game.players.row(row).steps, 0);
}

#[test]
fn a_changed_type_needs_a_migration_and_the_refusal_names_the_field() {
    let mut zone = played(2);
    let later = Zone::<third::play::Turf>::migrate_state(&encoded(&mut zone), &third_book());
    let mut later = later.expect("the third edition has migrations");
    assert_eq!(standings!(later), standings!(zone));
    let before = *zone.game.round.row(0);
    let after = *later.game.round.row(0);
    let counts = (u64::from(before.red), u64::from(before.blue), before.ends_ms);
    assert_eq!((after.red, after.blue, after.ends_ms), counts);
    let player = *later.game.players.row(0);
    assert_eq!(player.tenths, 10 * player.score);
    let refused = Zone::<first::play::Turf>::migrate_state(&encoded(&mut later), &first_book());
    let refused = refused.expect_err("the first edition has no migration");
    assert_eq!(
        refused.to_string(),
        "round.red is u64 in the state of version 3 and u32 in this game: add a migration of \
         round.red to the game, or run version 3"
    );
    // 2^63 points have more tenths than a field has room for.
    let player = *zone.game.players.row(0);
    zone.game.players.write(0, first::edition::Runner { score: 1 << 63, ..player });
    let refused = Zone::<third::play::Turf>::migrate_state(&encoded(&mut zone), &third_book());
    assert_eq!(
        refused.expect_err("too many points").to_string(),
        "the game's migration of players.tenths does not accept a stored value: mend the \
         migration, or run the version that stored the state"
    );
    // A 32-bit field has no room for 2^32 points, though its row has a word for it.
    zone.game.players.write(0, first::edition::Runner { score: 1 << 32, ..player });
    let refused = Zone::<second::play::Turf>::migrate_state(&encoded(&mut zone), &second_book());
    let field = "players.painted".into();
    assert_eq!(refused.expect_err("too many points"), StateError::NotMigrated { field });
    let most = u64::from(u32::MAX);
    zone.game.players.write(0, first::edition::Runner { score: most, ..player });
    let later = Zone::<second::play::Turf>::migrate_state(&encoded(&mut zone), &second_book());
    let later = later.expect("there is room for that");
    let row = later.game.players.find(player.player_id).expect("the player is still here");
    assert_eq!(u64::from(later.game.players.row(row).painted), most);
}

#[test]
fn a_state_of_before_names_is_read_by_its_own_version_and_by_no_other() {
    let mut zone = played(3);
    let bytes = encoded(&mut zone);
    let unnamed = NamedState::of(&bytes).expect("a state").body();
    assert!(unnamed.len() < bytes.len());
    let restored = Zone::<first::play::Turf>::decode_state(unnamed, &first_book());
    assert_eq!(restored.expect("its own rows").digest(), zone.digest());
    let refused = Zone::<second::play::Turf>::migrate_state(unnamed, &second_book());
    assert_eq!(refused.expect_err("it has no names"), StateError::Unnamed);
    let refused = Zone::<second::play::Turf>::decode_state(&bytes, &second_book());
    assert_eq!(
        refused.expect_err("it is of another version"),
        StateError::OtherRules { ruleset: zone.ruleset() }
    );
}

#[test]
fn a_migration_names_a_field_of_a_word_at_most() {
    const FIELDS: &[StoredField] =
        &[StoredField::new("score", "u64", 0, 64), StoredField::new("items", "[u64; 2]", 64, 128)];
    let tables = [StoredTable::of_rows("players", 3, FIELDS)];
    let names = |table, field| {
        let migrations = [Migration { table, field, migrate: |_| None }];
        catch_unwind(|| check_migrations(&migrations, &tables)).is_ok()
    };
    assert!(names("players", "score"));
    let wrong = [("player", "score"), ("players", "scores"), ("players", "items"), ("", "score")];
    assert!(wrong.iter().all(|(table, field)| !names(table, field)));
}

#[test]
fn tables_with_the_same_name_as_another_or_as_one_of_the_kit_do_not_compile() {
    let names = |names: [&'static str; 3]| {
        let tables = names.map(|name| StoredTable::of_rows(name, 1, &[]));
        catch_unwind(|| check_names(&tables)).is_ok()
    };
    assert!(names(["players", "zones", "round"]));
    for taken in ["players", "zone", "tombstone_ring", "tombstones", "digest"] {
        assert!(!names(["players", "fields", taken]), "{taken}");
    }
}

#[test]
fn rows_that_a_checkpoint_cannot_read_are_in_no_table() {
    assert!(catch_unwind(|| StoredTable::of_rows("cells", 32, &[])).is_ok());
    assert!(catch_unwind(|| StoredTable::of_rows("cells", 33, &[])).is_err());
}

#[test]
fn a_state_that_the_rules_of_the_later_version_do_not_allow_is_refused() {
    let mut zone = played(4);
    let players = zone.game.players.count();
    assert!(players > 1);
    let rules = second::play::TurfRules { players_max: players - 1, ..SECOND_RULES };
    let refused =
        Zone::<second::play::Turf>::migrate_state(&encoded(&mut zone), &Rulebook::of(rules));
    assert_eq!(refused.expect_err("there is no room"), StateError::Unfit);
}

#[test]
fn a_table_whose_rows_have_other_numbers_in_the_later_version_is_refused() {
    let mut zone = played(5);
    for side in [7, 9, 16] {
        let book = Rulebook::of(second::play::TurfRules { side, ..SECOND_RULES });
        let refused = Zone::<second::play::Turf>::migrate_state(&encoded(&mut zone), &book);
        assert_eq!(refused.expect_err("a field is elsewhere"), StateError::Unfit, "side {side}");
    }
}

/// What a zone of the second edition makes of events.
fn published(zone: &mut Zone<second::play::Turf>, seed: u64) -> Vec<Update> {
    let mut updates = Updates::new();
    let mut made = Vec::new();
    for mut event in random_events(&mut Random::new(seed), 200) {
        (event.seq, event.time_ms) = (event.seq + 10_000, event.time_ms + 100_000);
        updates.clear();
        zone.apply(&event, &mut updates);
        made.extend_from_slice(updates.as_slice());
    }
    made
}

proptest! {
    #[test]
    fn a_migrated_state_plays_like_its_checkpoint(seed: u64) {
        let bytes = encoded(&mut played(seed));
        let migrate = || Zone::<second::play::Turf>::migrate_state(&bytes, &second_book()).unwrap();
        let (mut migrated, mut again) = (migrate(), migrate());
        let mut restored =
            Zone::<second::play::Turf>::decode_state(&encoded(&mut again), &second_book()).unwrap();
        prop_assert_eq!(published(&mut migrated, seed), published(&mut restored, seed));
        prop_assert_eq!(migrated.digest(), restored.digest());
    }

    #[test]
    fn damaged_names_are_refused_or_migrated_and_never_panic(
        seed in 0_u64..20, damages: [(prop::sample::Index, u8); 3], cut: prop::sample::Index,
    ) {
        let mut bytes = encoded(&mut played(seed));
        for (at, byte) in damages {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let cut = cut.index(bytes.len() * 4);
        let bytes = &bytes[..cut.min(bytes.len())];
        let migrated = Zone::<second::play::Turf>::migrate_state(bytes, &second_book());
        if let Ok(mut zone) = migrated {
            let restored =
                Zone::<second::play::Turf>::decode_state(&encoded(&mut zone), &second_book());
            prop_assert_eq!(restored.unwrap().digest(), zone.digest());
        }
        let strict = Zone::<first::play::Turf>::decode_state(bytes, &first_book());
        prop_assert!(strict.is_err() || bytes.len() == encoded(&mut played(seed)).len());
    }
}
