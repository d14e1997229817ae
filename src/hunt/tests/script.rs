//! Plays a script of events and compares every update with the script.
//!
//! A line is an event, `player action key=value ...`; the following lines that begin with `>` are
//! the updates that it causes, `player kind key=value ...`, as in their JSON. Without such a line,
//! there must be no update. `seq` counts automatically; `seq=3` sets it. `wait 500` lets that many
//! milliseconds pass. `# ...` is a comment.

use crate::hunt::Shard;
use crate::hunt::change::UPDATES;
use crate::hunt::change::{Change, KINDS};
use crate::hunt::event::{Action, ActionKind, Event, Handoff};
use crate::hunt::rules::Rules;
use crate::hunt::rules::rulebook::Rulebook;
use crate::hunt::rules_file::built_in;
use crate::kit::event::{ActionField, GameAction, Presence};
use crate::kit::field::{ActionWords, FieldForm, FieldSpec};
use crate::kit::update::{Update, Updates};
use std::collections::BTreeMap;
use std::fmt::Write;

/// A zone in which scripts are played.
pub(crate) struct Game {
    pub(crate) shard: Shard,
    time_ms: i64,
    seqs: BTreeMap<u64, u64>,
    ticks: u64,
}

/// The rules for which the scripts are written: the built-in ones on a small map.
pub(crate) fn rules() -> Rules {
    let mut rules = built_in();
    rules.world.tiles_per_side = 16;
    rules
}

/// The same rules, except that every treasure is worth 100 points and contains nothing else, and
/// that two make a finisher.
pub(crate) fn plain() -> Rules {
    let mut rules = rules();
    rules.points.truncate(1);
    rules.finds.truncate(1);
    rules.hunts.finish_treasures = 2;
    rules
}

/// Plays a script with the usual rules.
pub(crate) fn check(script: &str) {
    Game::new(rules()).check(script);
}

impl Game {
    pub(crate) fn new(rules: Rules) -> Game {
        Game::of_zone(0, rules)
    }

    /// A game with the usual rules on a map with walls: a bit per tile, row by row.
    pub(crate) fn walled(walls: [u64; 4]) -> Game {
        let mut rules = rules();
        rules.world.walls = walls.to_vec();
        Game::new(rules)
    }

    pub(crate) fn of_zone(partition: u16, rules: Rules) -> Game {
        Game::by(partition, &Rulebook::of(rules))
    }

    pub(crate) fn by(partition: u16, rulebook: &Rulebook) -> Game {
        let shard = Shard::new(partition, rulebook);
        let mut game = Game { shard, time_ms: 1_000_000, seqs: BTreeMap::new(), ticks: 0 };
        game.wait(0);
        game
    }

    /// A game before its clock starts.
    pub(crate) fn unstarted(rules: Rules) -> Game {
        let shard = Shard::new(0, &Rulebook::of(rules));
        Game { shard, time_ms: 1_000_000, seqs: BTreeMap::new(), ticks: 0 }
    }

    /// Lets time pass without a tick, by events without effect.
    pub(crate) fn pass(&mut self, ms: i64) {
        self.time_ms += ms;
        for _ in 0..8 {
            assert_eq!(self.apply_clocked(0, 0, Action::HuntEnd { hunt: 0 }), []);
        }
    }

    /// Applies one event at the game's time. Omits updates of the clock, which has its own tests.
    pub(crate) fn apply(&mut self, player_id: u64, seq: u64, action: Action) -> Vec<Update> {
        let mut updates = self.apply_clocked(player_id, seq, action);
        updates.retain(|update| !matches!(update.change(), Change::Clock { .. }));
        updates
    }

    /// Applies one event at the game's time.
    pub(crate) fn apply_clocked(
        &mut self,
        player_id: u64,
        seq: u64,
        action: Action,
    ) -> Vec<Update> {
        let mut updates = Updates::new();
        let time_ms = self.time_ms;
        let event = Event { offset: 0, time_ms, player_id, seq, ts_us: 5, action };
        self.shard.apply(&event, &mut updates);
        updates.as_slice().to_vec()
    }

    /// Lets time pass: eight ticks, because the shard's clock follows the smallest of eight times.
    pub(crate) fn wait(&mut self, ms: i64) -> Vec<Update> {
        self.time_ms += ms;
        self.tick(8)
    }

    /// Plays a line whose event is the eighth at a later time, which moves the shard's clock.
    pub(crate) fn play_late(&mut self, line: &str, ms: i64) -> Vec<Update> {
        self.time_ms += ms;
        assert_eq!(self.tick(7), []);
        self.play(line)
    }

    fn tick(&mut self, times: u32) -> Vec<Update> {
        let mut updates = Vec::new();
        for _ in 0..times {
            self.ticks += 1;
            updates.extend(self.apply(0, self.ticks, Action::Tick));
        }
        updates
    }

    pub(crate) fn check(&mut self, script: &str) {
        let mut played = String::new();
        let lines = script.lines().map(str::trim);
        let wanted: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
        for line in wanted.iter().filter(|line| !line.starts_with('>')) {
            writeln!(played, "{line}").unwrap();
            if line.starts_with('#') {
                continue;
            }
            for update in self.play(line) {
                writeln!(played, "> {}", sentence(&update)).unwrap();
            }
        }
        let wanted = wanted.iter().map(|line| format!("{line}\n")).collect::<String>();
        assert!(played == wanted, "played:\n{played}\nwanted:\n{wanted}");
    }

    /// Plays one line.
    pub(crate) fn play(&mut self, line: &str) -> Vec<Update> {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap();
        let second = words.next().unwrap();
        if first == "wait" {
            return self.wait(second.parse().unwrap());
        }
        let player_id = first.parse().unwrap();
        let fields: BTreeMap<&str, i64> = words
            .map(|word| word.split_once('=').unwrap())
            .map(|(key, value)| (key, value.parse().unwrap()))
            .collect();
        let counted = self.seqs.entry(player_id).or_default();
        let seq = fields.get("seq").map_or(*counted + 1, |seq| *seq as u64);
        *counted = seq.max(*counted);
        self.apply(player_id, seq, action(second, &fields))
    }
}

/// Returns the action of a line, by the table of all events.
fn action(name: &str, fields: &BTreeMap<&str, i64>) -> Action {
    let kind = ActionKind::ALL.iter().find(|kind| kind.name() == name);
    let kind = *kind.unwrap_or_else(|| panic!("no such action: {name}"));
    let (mut words, mut carried) = (ActionWords::new(kind as u8), Vec::new());
    for ActionField { spec, presence, place, .. } in kind.spec().fields {
        let FieldSpec { key, form, .. } = **spec;
        match fields.get(key) {
            _ if form == FieldForm::Handoff => {
                words.put(*place, 0);
                carried.extend(handoff(fields).to_words());
            }
            Some(number) => words.put(*place, *number as u64),
            None => assert_eq!(*presence, Presence::Optional, "{name} needs {key}"),
        }
    }
    Action::unpack(&words, &carried)
}

/// A handoff with up to one item and one effect: `item`, `count`, `effect`, `left_ms`. It comes
/// from zone 9 unless the script names another.
fn handoff(fields: &BTreeMap<&str, i64>) -> Handoff {
    let get = |key| fields.get(key).copied().unwrap_or(0);
    let mut handoff = Handoff {
        from_zone: fields.get("from_zone").map_or(9, |zone| *zone as u16),
        crossing: get("crossing") as u32,
        score: get("score") as u64,
        last_seq: get("last_seq") as u64,
        ..Handoff::default()
    };
    handoff.items[0].item = get("item") as u8;
    handoff.items[0].count = get("count") as u8;
    handoff.effects[0] = get("effect") as u8;
    handoff.effects_left_ms[0] = get("left_ms") as u32;
    handoff
}

/// An update in the format of the scripts.
pub(crate) fn sentence(update: &Update) -> String {
    let mut bytes = Vec::new();
    UPDATES.write(std::slice::from_ref(update), &mut bytes);
    let json: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    let text = |value: &serde_json::Value| value.to_string().replace('"', "");
    let mut out = format!("{} {}", text(&json["player_id"]), text(&json["kind"]));
    let payload = update.payload();
    let kind = &KINDS[usize::from(payload.kind) - 1];
    for field in kind.fields {
        if let Some(value) = json.get(field.name) {
            write!(out, " {}={}", field.name, text(value)).unwrap();
        }
    }
    out
}
