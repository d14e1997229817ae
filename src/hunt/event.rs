//! The events of the hunt: the table of all events, and what players carry to another zone.

use crate::kit::event::{GameAction, PlainEvent};
use crate::kit::field::{
    ActionWords, CARRIED_WORDS_MAX, CarriedBits, CarriedField, CarriedForm, FieldPlace, FieldType,
};

/// Slots of an actor's inventory, all of which a handoff carries.
pub(crate) const INVENTORY_SLOTS: usize = 8;

/// Limit of an actor's simultaneous timed effects, all of which a handoff carries.
pub(crate) const EFFECT_SLOTS: usize = 4;

/// An event of the hunt. What an arrival carries is part of the event, or in a list beside it.
pub type Event<H = Handoff> = crate::kit::event::Event<ActionOf<H>>;

/// An action with what it carries.
pub type Action = ActionOf<Handoff>;

/// The start of an arrival's handoff in the list beside the events.
pub(crate) type HandoffPlace = u32;

/// The data that an actor carries from one zone to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handoff {
    /// The zone that the player left.
    pub from_zone: u16,
    /// Rises with each of the player's handoffs: a zone accepts each (player, crossing) once.
    pub crossing: u32,
    /// The player's score.
    pub score: u64,
    /// The last `seq` of the player that was applied.
    pub last_seq: u64,
    /// The inventory; a slot with a count of 0 is empty.
    pub items: [ItemStack; INVENTORY_SLOTS],
    /// The active effects; 0 for an empty slot.
    pub effects: [u8; EFFECT_SLOTS],
    /// Remaining time of the effect in the same slot, in milliseconds.
    pub effects_left_ms: [u32; EFFECT_SLOTS],
}

/// A stack of one kind of item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemStack {
    /// The item, as numbered in the rules.
    pub item: u8,
    /// The number of items; 0 for an empty slot.
    pub count: u8,
}

/// Number of the words of a handoff.
pub(crate) const HANDOFF_WORDS: usize = 5 + EFFECT_SLOTS;
const _: () = assert!(HANDOFF_WORDS <= CARRIED_WORDS_MAX && INVENTORY_SLOTS == 8);

/// The handoff in a record, and its words.
const HANDOFF: &[CarriedField] = &[
    number("from_zone", (0, u16::MAX as u64), 0, 0),
    number("crossing", (1, u32::MAX as u64), 0, 32),
    number("score", (0, u64::MAX), 1, 0),
    number("last_seq", (0, u64::MAX), 2, 0),
    CarriedField {
        key: "items",
        is_required: false,
        form: CarriedForm::Pairs {
            count_max: INVENTORY_SLOTS,
            per_word: 4,
            first: [bits((0, u8::MAX as u64), 3, 0), bits((1, u8::MAX as u64), 3, 8)],
        },
    },
    CarriedField {
        key: "effects",
        is_required: false,
        form: CarriedForm::Pairs {
            count_max: EFFECT_SLOTS,
            per_word: 1,
            first: [bits((1, u8::MAX as u64), 5, 0), bits((0, u32::MAX as u64), 5, 32)],
        },
    },
];

const fn bits(range: (u64, u64), word: usize, shift: u32) -> CarriedBits {
    CarriedBits { range, word, shift }
}

const fn number(key: &'static str, range: (u64, u64), word: usize, shift: u32) -> CarriedField {
    CarriedField { key, is_required: true, form: CarriedForm::Number(bits(range, word, shift)) }
}

impl Handoff {
    /// Returns the handoff in these words.
    pub(crate) fn from_words(words: &[u64; HANDOFF_WORDS]) -> Handoff {
        let [zone_and_crossing, score, last_seq, low_items, high_items, effects @ ..] = words;
        let item = |slot: usize| {
            let word = if slot < 4 { low_items } else { high_items };
            let [item, count] = ((word >> (16 * (slot % 4))) as u16).to_le_bytes();
            ItemStack { item, count }
        };
        Handoff {
            from_zone: *zone_and_crossing as u16,
            crossing: (zone_and_crossing >> 32) as u32,
            score: *score,
            last_seq: *last_seq,
            items: std::array::from_fn(item),
            effects: effects.map(|word| word as u8),
            effects_left_ms: effects.map(|word| (word >> 32) as u32),
        }
    }

    /// Returns the handoff that begins here in a list of carried words.
    pub(crate) fn at(carried: &[u64], place: HandoffPlace) -> Handoff {
        let words = carried[place as usize..].first_chunk();
        Handoff::from_words(words.expect("a handoff is carried as a whole"))
    }

    /// Returns the handoff's words.
    pub(crate) fn to_words(self) -> [u64; HANDOFF_WORDS] {
        let Handoff { from_zone, crossing, score, last_seq, items, effects, effects_left_ms } =
            self;
        let stacks = |items: &[ItemStack]| {
            items.iter().rev().fold(0, |word, stack| {
                word << 16 | u64::from(u16::from_le_bytes([stack.item, stack.count]))
            })
        };
        let effect =
            |slot: usize| u64::from(effects[slot]) | u64::from(effects_left_ms[slot]) << 32;
        [
            u64::from(from_zone) | u64::from(crossing) << 32,
            score,
            last_seq,
            stacks(&items[..4]),
            stacks(&items[4..]),
            effect(0),
            effect(1),
            effect(2),
            effect(3),
        ]
    }
}

impl FieldType for Handoff {
    const LEAST: i128 = 0;
    const MOST: i128 = 0;

    fn of(words: &ActionWords, place: FieldPlace, carried: &[u64]) -> Handoff {
        Handoff::at(carried, words.get(place) as HandoffPlace)
    }

    fn put(self, words: &mut ActionWords, place: FieldPlace, carried: &mut Vec<u64>) {
        words.put(place, carried.len() as u64);
        carried.extend(self.to_words());
    }
}

/// Returns an event's action; what an arrival carries stays in the list beside the events.
#[inline(always)]
pub(crate) fn action(event: &PlainEvent) -> ActionOf<HandoffPlace> {
    GameAction::unpack(&event.action, &[])
}

// The table. docs/HACKING.md describes what a new event needs in addition to its rows.
events! {
    /// The events of the hunt.
    EVENTS = HANDOFF;
    fields EventField {
        /// Position, in cm.
        X = "x" Position[i32::MIN, i32::MAX],
        /// Position, in cm.
        Y = "y" Position[i32::MIN, i32::MAX],
        /// Heading, in centidegrees.
        Heading = "heading" Integer[0, 35_999],
        /// An item's number in the rules.
        Item = "item" Integer[0, u8::MAX],
        /// A weapon's number in the rules.
        Weapon = "weapon" Integer[0, u8::MAX],
        /// A hunt's id.
        Hunt = "hunt" Integer[0, u32::MAX],
        /// Determines the positions and contents of treasures.
        Seed = "seed" Integer[0, u64::MAX],
        /// Number of treasures of a hunt.
        Treasures = "treasures" Integer[0, u16::MAX],
        /// Duration of a hunt.
        DurationMs = "duration_ms" Integer[0, u32::MAX],
        /// The zone that a player leaves for.
        ToZone = "to_zone" Integer[0, u16::MAX],
        /// Hash of the rules to switch to.
        Ruleset = "ruleset" Integer[0, u32::MAX],
        /// The data that a player brings from another zone.
        Handoff = "handoff" Handoff,
    }
    kinds ActionKind;
    /// An action of a player or the world. Positions are in centimetres, headings in centidegrees.
    actions ActionOf<H = Handoff> {
        /// The player enters this zone, carrying nothing.
        Join = 0 "join" Enter { x: i32 = X Required, y: i32 = Y Required, },
        /// The player enters this zone from another one, with what it carried there.
        Arrive = 1 "arrive" Arrival as "join" {
            x: i32 = X Required,
            y: i32 = Y Required,
            handoff: H = Handoff Required,
        },
        /// The player leaves the game, or goes to the zone `to_zone`.
        Leave = 2 "leave" Leave { to_zone: Option<u16> = ToZone Optional, },
        /// The player is now at this position.
        Move = 3 "move" Player { x: i32 = X Required, y: i32 = Y Required, },
        /// The player now has this heading, 0..=35_999.
        Rotate = 4 "rotate" Player { heading: u16 = Heading Required, },
        /// The player fires along `heading`, or along its actor's heading if the event has none.
        Shoot = 5 "shoot" Player {
            weapon: u8 = Weapon Optional,
            heading: Option<u16> = Heading Optional,
        },
        /// The player opens a treasure within reach, of this hunt or of any.
        Loot = 6 "loot" Player { hunt: Option<u32> = Hunt Optional, },
        /// The player uses one item from its inventory.
        Use = 7 "use" Player { item: u8 = Item Required, },
        /// Time passes. `seq` is the tick's id; an id that is not above the last one is a no-op.
        Tick = 8 "tick" Tick,
        /// A hunt begins: `treasures` are laid according to `seed`, for `duration_ms` of the zone's
        /// clock.
        HuntStart = 9 "hunt_start" World {
            hunt: u32 = Hunt Required,
            seed: u64 = Seed Required,
            treasures: u16 = Treasures Required,
            duration_ms: u32 = DurationMs Required,
        },
        /// A hunt ends before its time.
        HuntEnd = 10 "hunt_end" World { hunt: u32 = Hunt Required, },
        /// The zone switches to the rules with this hash.
        RulesChange = 11 "rules_change" World { ruleset: u32 = Ruleset Required, },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::event_list::Events;

    #[test]
    fn an_arrival_keeps_what_it_carries_wherever_it_stands() {
        let arrival = |score| {
            let handoff = Handoff { score, last_seq: 9, ..Handoff::default() };
            Action::Arrive { x: -1, y: 2, handoff }
        };
        let event =
            |offset, action| Event { offset, time_ms: 1, player_id: 7, seq: 3, ts_us: -5, action };
        let all = [
            event(0, Action::Shoot { weapon: 1, heading: None }),
            event(1, arrival(10)),
            event(2, Action::Leave { to_zone: Some(0) }),
            event(3, arrival(20)),
        ];
        let mut events: Events = all.into_iter().collect();
        assert_eq!((events.len(), events.carried().len()), (4, 2 * HANDOFF_WORDS));
        let whole: Vec<_> =
            events.plain().iter().map(|event| event.unpack(events.carried())).collect();
        assert_eq!(whole, all);
        for event in all.into_iter().rev() {
            assert_eq!(events.pop(), Some(event));
        }
        assert_eq!((events.pop::<Action>(), events.carried().len()), (None, 0));
    }
}
