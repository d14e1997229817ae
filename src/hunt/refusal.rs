//! Why the rules refuse an event: a closed list, each with its name in updates and metrics.

list! {
    /// Why a valid event was refused.
    Refusal {
        /// The player is not in this zone.
        NotJoined = 0 "not_joined",
        /// The player is already in this zone.
        AlreadyJoined = 1 "already_joined",
        /// The zone has reached its limit of actors.
        ZoneFull = 2 "zone_full",
        /// The tile has reached its limit of actors.
        TileFull = 3 "tile_full",
        /// The position is not on the map.
        OffMap = 4 "off_map",
        /// A wall is at the position, or on the way.
        Wall = 5 "wall",
        /// The move is longer than the actor's speed allows.
        TooFast = 6 "too_fast",
        /// The actor is down and waits for its respawn.
        Downed = 7 "downed",
        /// The heading is above 35,999 centidegrees.
        HeadingOutOfRange = 8 "heading_out_of_range",
        /// The rules have no such weapon.
        UnknownWeapon = 9 "unknown_weapon",
        /// The weapon's pause after the last shot is not over.
        Reloading = 10 "reloading",
        /// No unopened treasure is within reach.
        NothingInReach = 11 "nothing_in_reach",
        /// No such hunt is running.
        UnknownHunt = 12 "unknown_hunt",
        /// The zone has reached its limit of hunts that run or are being closed.
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
        /// A `leave` names its own zone, or an arrival names this zone as its origin.
        SameZone = 19 "same_zone",
        /// The player id is 0, which names the world.
        NoPlayer = 20 "no_player",
    }
}

list! {
    /// The cause of a score.
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

list! {
    /// Why a hunt ended.
    HuntEndCause {
        /// Every treasure was opened.
        AllFound = 0 "all_found",
        /// Its time is over by the zone's clock.
        TimeUp = 1 "time_up",
        /// A `hunt_end` event arrived.
        CalledOff = 2 "called_off",
    }
}

list! {
    /// A timed change to an actor, who has each at most once.
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

list! {
    /// The direction of the nearest unopened treasure: the next step of a shortest path, or
    /// unknown.
    Hint {
        /// Unknown: the search is not finished, or the path led to a treasure that is open.
        Stale = 0 "stale",
        /// On the same tile.
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
