//! The fields that an event has changed.

use super::migrating::{encoded, first_book};
use crate::kit::state_changes::{FieldValue, RowName, changed_fields};
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
