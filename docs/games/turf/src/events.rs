//! What happens in turf: its events, its updates, and why an event is refused.

use huntd::kit::game::KitRefusal;

huntd::list! {
    /// Why an event was refused.
    TurfRefusal {
        /// The player id is 0.
        NoPlayer = 0 "no_player",
        /// The player is not in the zone.
        NotJoined = 1 "not_joined",
        /// The player is in the zone already.
        AlreadyJoined = 2 "already_joined",
        /// The zone is full.
        ZoneFull = 3 "zone_full",
        /// There is no such field.
        OffMap = 4 "off_map",
        /// No round runs, or one already runs.
        NotNow = 5 "not_now",
        /// The field has the team's colour.
        OwnField = 6 "own_field",
    }
}

impl From<KitRefusal> for TurfRefusal {
    fn from(refusal: KitRefusal) -> TurfRefusal {
        match refusal {
            KitRefusal::NoPlayer => TurfRefusal::NoPlayer,
            KitRefusal::NotJoined => TurfRefusal::NotJoined,
            KitRefusal::AlreadyJoined => TurfRefusal::AlreadyJoined,
        }
    }
}

huntd::kinds! {
    /// The published updates.
    pub enum TurfUpdate {
        /// An event was refused.
        Refused = 1 "refused" untimed Refusal {
            reason: TurfRefusal = Code Name "reason",
            seq: u64 = Long Number "seq",
        },
        /// A player is on a field.
        Placed = 2 "placed" untimed Player {
            team: u8 = Code Number "team",
            field: u32 = Word Number "field",
        },
        /// A field was painted.
        Painted = 3 "painted" timed Player {
            field: u32 = Word Number "field",
            score: u64 = Long Number "score",
        },
        /// A player has left.
        Left = 4 "left" untimed Leave { seq: u64 = Long Number "seq", },
        /// A round began.
        Began = 5 "began" timed World { seconds: u16 = Short Number "seconds", },
        /// A round is over.
        Ended = 6 "ended" untimed World {
            red: u32 = Low Number "red",
            blue: u32 = High Number "blue",
        },
        /// The zone's clock.
        Clock = 7 "clock" untimed Clock { unix_ms: u64 = Long Number "unix_ms", },
        /// The zone uses other rules.
        RulesChanged = 8 "rules_changed" untimed Rules { ruleset: u32 = Word Number "ruleset", },
        /// A player entered the zone.
        Joined = 9 "joined" untimed Enter {
            team: u8 = Code Number "team",
            field: u32 = Word Number "field",
        },
    }
}

huntd::events! {
    /// The events of turf.
    TURF_EVENTS = &[];
    fields TurfField {
        /// A field of the zone.
        Field = "field" Integer[0, u32::MAX],
        /// 1 for a step east, 0 for a step north.
        East = "east" Integer[0, 1],
        /// The length of a round.
        Seconds = "seconds" Integer[0, u16::MAX],
    }
    kinds TurfKind;
    /// An action of a player or the world.
    actions TurfAction {
        /// The player enters the zone.
        Join = 0 "join" Enter { field: u32 = Field Required, },
        /// The player goes one field on.
        Step = 1 "step" Player { east: u8 = East Required, },
        /// The player paints its field.
        Paint = 2 "paint" Player,
        /// The player leaves the game.
        Leave = 3 "leave" Leave,
        /// A round begins.
        Round = 4 "round" World { seconds: u16 = Seconds Required, },
        /// Time passes.
        Tick = 5 "tick" Tick,
    }
}
