//! A property of every game: batches, and restarts from a stored state, change nothing.

use crate::kit::engine::encode_state;
use crate::kit::event::Event;
use crate::kit::event_list::Events;
use crate::kit::game::Game;
use crate::kit::rulebook::Rulebook;
use crate::kit::update::{EVENT_UPDATES_MAX, Update, Updates};
use crate::kit::zone::Zone;
use crate::testing::random::Random;

/// Plays events one by one, and again in random batches with a restart from a stored state after
/// each. Returns the updates, or how the two games differ.
pub fn prove<G: Game>(
    rules: &G::Rules,
    events: &[Event<G::Action>],
    random: &mut Random,
) -> Result<Vec<Update>, String> {
    let rulebook = Rulebook::of(rules.clone());
    let (mut single, mut batched) = (Zone::<G>::new(3, &rulebook), Zone::<G>::new(3, &rulebook));
    let (mut made, mut made_again) = (Vec::new(), Vec::new());
    let mut updates = Updates::new();
    for event in events {
        updates.clear();
        single.apply(event, &mut updates);
        assert!(updates.len() <= EVENT_UPDATES_MAX, "an event makes too many updates");
        made.extend_from_slice(updates.as_slice());
    }
    let (events, mut applied) = (events.iter().copied().collect::<Events>(), 0);
    while applied < events.len() {
        updates.clear();
        let left = events.len() - applied;
        let batch = applied..applied + 1 + random.below(left.min(200) as u64) as usize;
        applied += batched.apply_all(&events, batch, &mut updates, |_, _, _| {});
        made_again.extend_from_slice(updates.as_slice());
        let mut bytes = Vec::new();
        encode_state(&mut batched, &mut bytes);
        batched = match Zone::decode_state(&bytes, &rulebook) {
            Ok(zone) => zone,
            Err(error) => return Err(format!("its own state is refused: {error}")),
        };
    }
    if made != made_again {
        return Err("the updates differ".to_owned());
    }
    if single.digest() != batched.digest() {
        return Err("the digests differ".to_owned());
    }
    Ok(made)
}
