//! The fields that an event has changed.

use super::migrating::{encoded, first_book};
use crate::kit::state_changes::{FieldChange, FieldValue, RowName, changed_fields};
use crate::kit::stored_names::{GAME_TABLES, RowRun, StoredField, StoredTable, names_words};
use crate::kit::update::Updates;
use crate::kit::zone::{Outcome, Zone};
use crate::testing::random::Random;
use crate::testing::turf::first::play::Turf;
use crate::testing::turf::random_events;

#[test]
fn the_fields_in_which_two_states_differ_are_those_that_the_event_has_changed() {
    let mut zone = Zone::<Turf>::new(3, &first_book());
    let (mut updates, mut applied) = (Updates::new(), 0);
    for event in random_events(&mut Random::new(11), 400) {
        let before = encoded(&mut zone);
        updates.clear();
        let outcome = zone.apply(&event, &mut updates);
        let after = encoded(&mut zone);
        let changes = changed_fields(&before, &after).expect("both have names");
        assert_eq!(changes.is_empty(), before == after);
        assert!(changes.iter().all(|change| change.before != change.after));
        let seq = changes.iter().find(|change| {
            (change.row, change.field.as_str()) == (RowName::Player(event.player_id), "seq")
        });
        if outcome == Outcome::Applied
            && let Some(seq) = seq
            && seq.after.is_some()
        {
            assert_eq!(seq.after, Some(FieldValue::Bits(event.seq)));
            applied += 1;
        }
        // What has changed from the later state to the earlier one is the reverse.
        let back = changed_fields(&after, &before).expect("both have names");
        let reversed = changes.into_iter().map(|change| (change.after, change.before));
        assert!(back.into_iter().map(|change| (change.before, change.after)).eq(reversed));
    }
    assert!(applied > 50, "{applied} events of players were applied");
}

#[test]
fn bytes_that_are_no_state_with_names_have_no_fields() {
    let mut zone = Zone::<Turf>::new(3, &first_book());
    let whole = encoded(&mut zone);
    for length in (0..whole.len()).step_by(8) {
        assert_eq!(changed_fields(&whole[..length], &whole), None, "{length} bytes");
    }
}

/// A state of seats, which say who sits there, in each of these parts of a table.
fn seats(parts: &[&[u64]]) -> Vec<u8> {
    const FIELDS: &[StoredField] = &[StoredField::new("player_id", "u64", 0, 64)];
    let mut words = names_words(1, &[StoredTable::of_rows("seats", 1, FIELDS)]);
    words.push(parts.len() as u64);
    let table = GAME_TABLES;
    let runs = (0..).zip(parts).map(|(instance, part)| {
        let rows = part.len() as u32;
        RowRun { table, instance, is_counted: false, rows }
    });
    words.extend(runs.map(RowRun::to_word));
    words.extend(parts.concat());
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The only change between two such states: part, row, and the player before and after.
fn changed(
    before: &[&[u64]],
    after: &[&[u64]],
) -> (Option<u8>, RowName, Option<FieldValue>, Option<FieldValue>) {
    let changes = changed_fields(&seats(before), &seats(after)).expect("both have names");
    let [FieldChange { instance, row, before, after, .. }] = &changes[..] else {
        panic!("{changes:?}")
    };
    (*instance, *row, before.clone(), after.clone())
}

#[test]
fn numbered_rows_about_one_player_are_told_apart() {
    let player = |id| Some(FieldValue::Bits(id));
    let number = RowName::Number;
    assert_eq!(changed(&[&[7, 7]], &[&[8, 7]]), (None, number(0), player(7), player(8)));
    // Finishers who have been published are stored no more.
    assert_eq!(changed(&[&[7, 8]], &[&[8]]), (None, RowName::Player(7), player(7), None));
}

#[test]
fn a_change_in_a_table_of_several_parts_says_in_which() {
    let before: [&[u64]; 2] = [&[1, 2], &[3, 4]];
    assert_eq!(changed(&before, &[&[1, 9], &[3, 4]]).0, Some(0));
    assert_eq!(changed(&before, &[&[1, 2], &[3, 9]]).0, Some(1));
}
