//! A zone that any events are applied to, valid or not, and that is checked from outside.
//! `src/hunt/tests/hostile.rs` draws them from a seed, `fuzz/fuzz_targets/engine.rs` from bytes.

use crate::decoder::{Decoder, RecordPosition};
use crate::hunt::change::UPDATES;
use crate::hunt::event::{Action, EVENTS, Event};
use crate::hunt::frames::{decode_frame, encode};
use crate::hunt::handoff::HandoffOut;
use crate::hunt::rules::rulebook::Rulebook;
use crate::hunt::rules_file::built_in;
use crate::hunt::state::TreasureHunt;
use crate::hunt::{Outcome, Shard};
use crate::kit::engine::encode_state;
use crate::kit::event_list::Events;
use crate::kit::update::{EVENT_UPDATES_MAX, Updates};
use crate::output::frame::{Chain, Format, Frame, FrameHeader};
use crate::output::handoff::HandoffRecord;
use crate::testing::random_game::Setting;

/// A small map on which much happens soon, without walls and with some; by two sets of rules.
pub fn rulebook(walls: bool) -> Rulebook {
    let mut rules = built_in();
    rules.world.tiles_per_side = 16;
    if walls {
        rules.world.walls = vec![0x0000_1ff0_0000_0404, 0x8080_0000_7f00_0000, 0, 0x3c3c];
    }
    rules.actors.count_max = 20;
    rules.actors.per_tile_max = 3;
    rules.actors.respawn_ms = 300;
    rules.hunts.finish_treasures = 2;
    rules.weapons[0].damage = 60;
    rules.weapons[0].reload_ms = 50;
    let mut others = rules.clone();
    others.actors.health = 50;
    others.actors.per_tile_max = 2;
    let mut rulebook = Rulebook::of(rules);
    rulebook.add(others).expect("the map is the same");
    rulebook
}

/// Any events at all, most of which make sense.
pub fn setting(rulebook: &Rulebook) -> Setting {
    Setting { edge_one_in: 40, ..Setting::of(rulebook) }
}

/// A zone, and the chain over its updates.
pub struct HostileZone {
    shard: Shard,
    rulebook: Rulebook,
    updates: Updates,
    chain: Chain,
    /// A bit for each kind of update that was made.
    kinds: u64,
    applied: u64,
    decoder: Decoder,
}

/// One event of so many has its updates written as a frame.
const FRAMED_ONE_IN: i64 = 8;

impl HostileZone {
    pub fn new(partition: u16, rulebook: &Rulebook) -> HostileZone {
        HostileZone {
            shard: Shard::new(partition, rulebook),
            rulebook: rulebook.clone(),
            updates: Updates::new(),
            chain: Chain::default(),
            kinds: 0,
            applied: 0,
            decoder: Decoder::new(&EVENTS),
        }
    }

    /// Applies one event and checks its updates.
    pub fn apply(&mut self, event: &Event) {
        self.updates.clear();
        let outcome = self.shard.apply(event, &mut self.updates);
        let told = self.updates.as_slice();
        assert!(told.len() <= EVENT_UPDATES_MAX, "{} updates of {event:?}", told.len());
        for update in told {
            assert_eq!(UPDATES.update(update.words()), Some(*update), "{event:?}");
            assert_eq!(update.ts_us(), event.ts_us);
            self.kinds |= 1 << update.payload().kind;
        }
        let refusals = told.iter().filter(|update| update.payload().kind == 1).count();
        assert_eq!(refusals, usize::from(matches!(outcome, Outcome::Refused(_))), "{event:?}");
        self.applied += u64::from(outcome == Outcome::Applied);
        self.fold();
        self.check_handoffs();
        if event.offset % FRAMED_ONE_IN == 0 {
            self.check_frame();
        }
    }

    /// Every player who has left arrives: the zone that it goes to reads what is sent.
    fn check_handoffs(&mut self) {
        let partition = self.shard.partition().into();
        for sent in HandoffRecord::all::<TreasureHunt>(partition, 0, self.updates.as_slice()) {
            let mut record = Vec::new();
            sent.write(&EVENTS, &mut record);
            let origin = RecordPosition { offset: 0, time_ms: 0 };
            let arrives = self.decoder.decode(origin, Some(&record)).expect("it is an event");
            let Action::Arrive { x, y, handoff } = arrives.action else { panic!("{arrives:?}") };
            // In its own order: empty slots are left out.
            let to_zone = sent.departure.to_zone;
            let handoff = HandoffOut { to_zone, x, y, handoff };
            let departure = handoff.departure(arrives.player_id, arrives.ts_us);
            let mut again = Vec::new();
            HandoffRecord { departure, ..sent }.write(&EVENTS, &mut again);
            assert_eq!(String::from_utf8(again), String::from_utf8(record));
        }
    }

    /// Readers get what the engine made, in both forms.
    fn check_frame(&self) {
        let updates = self.updates.as_slice();
        let count = updates.len() as u32;
        let header = FrameHeader { count, chain: self.chain, ..Frame::new().header };
        for format in [Format::Json, Format::Binary] {
            let mut bytes = Vec::new();
            encode(format, &header, updates, &mut bytes);
            assert_eq!(decode_frame(&bytes), Ok((header, updates.to_vec())));
        }
    }

    /// Returns the kinds of updates that [`HostileZone::apply`] made, a bit each, and the number of
    /// events that it applied.
    pub fn reached(&self) -> (u64, u64) {
        (self.kinds, self.applied)
    }

    /// Applies events as the daemon does, and does not read their updates.
    pub fn apply_ahead(&mut self, events: &[Event]) {
        let events: Events = events.iter().copied().collect();
        let mut applied = 0;
        while applied < events.len() {
            self.updates.clear();
            applied += self.shard.apply_all(
                &events,
                applied..events.len(),
                &mut self.updates,
                |_, _, _| {},
            );
            self.fold();
        }
    }

    fn fold(&mut self) {
        let told = self.updates.as_slice().iter();
        self.chain = told.fold(self.chain, |chain, update| chain.with(update));
    }

    /// Checks what must hold between events, and goes on from the encoded and decoded state.
    pub fn check_and_restart(&mut self) {
        let shard = &self.shard;
        let players = shard.outline();
        assert!(players.len() <= shard.rules().actors.count_max as usize);
        assert!(players.is_sorted_by_key(|player| u64::MAX - player.score), "{players:?}");
        for player in &players {
            assert_eq!(shard.inventory(player.player_id), Some(&player.items));
            for stack in &player.items {
                // A handoff may bring items that these rules do not know.
                let known = shard.rules().item(stack.item);
                assert!(known.is_none_or(|item| stack.count <= item.stack_max), "{stack:?}");
            }
        }
        let mut bytes = Vec::new();
        encode_state(&mut self.shard, &mut bytes);
        let shard = &self.shard;
        let decoded = Shard::decode_state(&bytes, &self.rulebook).expect("its own state");
        assert_eq!(decoded.digest(), shard.digest());
        self.shard = decoded;
    }

    /// What two runs over the same events have in common.
    pub fn outcome(&self) -> (Chain, u64) {
        (self.chain, self.shard.digest())
    }
}
