//! Why the rules turn an event down: a closed list, each with its name in updates and metrics.

macro_rules! names {
    (
        $(#[$doc:meta])*
        $type:ident { $($(#[$of:meta])* $variant:ident = $number:literal $name:literal,)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $type {
            $($(#[$of])* $variant = $number,)*
        }

        impl $type {
            /// Every one, in the order of the numbers.
            pub const ALL: &[$type] = &[$($type::$variant,)*];

            /// The names, in the order of the numbers.
            pub const NAMES: &[&str] = &[$($name,)*];

            /// The one with this number.
            pub fn from_code(code: u8) -> Option<$type> {
                $type::ALL.get(usize::from(code)).copied()
            }

            /// Its name in updates and metrics.
            pub fn name(self) -> &'static str {
                $type::NAMES[self as usize]
            }
        }

        const _: () = {
            let mut at = 0;
            while at < $type::ALL.len() {
                assert!($type::ALL[at] as usize == at);
                at += 1;
            }
        };
    };
}

names! {
    /// Why an event that is valid was not allowed.
    Refusal {
        /// The player is not in this zone.
        NotJoined = 0 "not_joined",
        /// The player is in this zone already.
        AlreadyJoined = 1 "already_joined",
        /// The zone holds as many actors as it may.
        ZoneFull = 2 "zone_full",
        /// The tile holds as many actors as it may.
        TileFull = 3 "tile_full",
        /// The position is not on the map.
        OffMap = 4 "off_map",
        /// A wall stands there, or on the way.
        Wall = 5 "wall",
        /// The move is longer than the actor's speed allows.
        TooFast = 6 "too_fast",
        /// The actor is down and waits for its respawn.
        Downed = 7 "downed",
        /// A heading is 0..=35,999 centidegrees.
        HeadingOutOfRange = 8 "heading_out_of_range",
        /// The rules have no such weapon.
        UnknownWeapon = 9 "unknown_weapon",
        /// The weapon's pause after the last shot is not over.
        Reloading = 10 "reloading",
        /// No unopened treasure lies within reach.
        NothingInReach = 11 "nothing_in_reach",
        /// No such hunt is running.
        UnknownHunt = 12 "unknown_hunt",
        /// As many hunts are running, or being closed, as a zone may have.
        HuntsFull = 13 "hunts_full",
        /// The number of treasures is 0 or above the limit.
        TreasuresOutOfRange = 14 "treasures_out_of_range",
        /// The hunt's duration is 0 or above the limit.
        DurationOutOfRange = 15 "duration_out_of_range",
        /// The rules have no such item.
        UnknownItem = 16 "unknown_item",
        /// The actor holds no such item.
        ItemNotHeld = 17 "item_not_held",
        /// The item would change nothing now.
        ItemUseless = 18 "item_useless",
        /// The zone to go to is the zone to leave, or the one that an arrival comes from.
        SameZone = 19 "same_zone",
        /// Player 0 is the world.
        NoPlayer = 20 "no_player",
    }
}

names! {
    /// The events as an update names them.
    ActionKind {
        /// A player enters.
        Join = 0 "join",
        /// A player enters from another zone.
        Arrive = 1 "arrive",
        /// A player leaves.
        Leave = 2 "leave",
        /// A new position.
        Move = 3 "move",
        /// A new heading.
        Rotate = 4 "rotate",
        /// A shot.
        Shoot = 5 "shoot",
        /// A treasure is opened.
        Loot = 6 "loot",
        /// An item is used.
        Use = 7 "use",
        /// Time passes.
        Tick = 8 "tick",
        /// A hunt begins.
        HuntStart = 9 "hunt_start",
        /// A hunt is called off.
        HuntEnd = 10 "hunt_end",
        /// The rules change.
        RulesChange = 11 "rules_change",
    }
}

names! {
    /// What points were given for.
    ScoreCause {
        /// A treasure.
        Loot = 0 "loot",
        /// Another actor was downed.
        Downed = 1 "downed",
        /// A place among a hunt's finishers.
        Prize = 2 "prize",
        /// Points brought from another zone.
        Arrival = 3 "arrival",
    }
}

names! {
    /// Why a hunt is over.
    HuntEndCause {
        /// Every treasure was opened.
        AllFound = 0 "all_found",
        /// Its window of event time is over.
        TimeUp = 1 "time_up",
        /// A `hunt_end` event came.
        CalledOff = 2 "called_off",
    }
}

names! {
    /// A timed change to an actor. An actor has each at most once.
    Effect {
        /// A larger speed allowance.
        Haste = 0 "haste",
        /// Less damage.
        Shield = 1 "shield",
        /// Path hints.
        Compass = 2 "compass",
        /// More points from a treasure.
        DoubleLoot = 3 "double_loot",
    }
}

names! {
    /// Where the nearest unopened treasure is: the next step of a shortest path, or unknown now.
    Hint {
        /// Not known now: a treasure was opened and the paths around it are being searched again.
        Stale = 0 "stale",
        /// On this very tile.
        Here = 1 "here",
        /// Towards larger x.
        East = 2 "east",
        /// Towards larger y.
        North = 3 "north",
        /// Towards smaller x.
        West = 4 "west",
        /// Towards smaller y.
        South = 5 "south",
    }
}
