//! A second edition of the game, which daemons go to and leave again while it is played: the same
//! hunt under another version and by other rules, which no event names. So what one edition makes
//! of the input is not what the other makes, and a zone's state has to be converted between them.

use crate::broker::OutputLog;
use crate::chance::{Chance, Fault, Sight};
use crate::control::Control;
use crate::game::{fewer_rules, later_rules};
use crate::mutation::Mutation;
use crate::node::Common;
use crate::sim::{HOSTS, Sim};
use crate::surroundings::{Surroundings, whole_store};
use huntd::hunt::Shard;
use huntd::hunt::frames::{decode_frame, encode};
use huntd::hunt::rules::rulebook::Rulebook;
use huntd::kit::checkpoint::{CheckpointRead, StateError};
use huntd::kit::engine::{
    AnyRulebook, BlockReport, COUNTS_MAX, Engine, GameRulebook, GameSchema, ZoneDecoder,
    encode_state,
};
use huntd::kit::event_list::Events;
use huntd::kit::update::Updates;
use huntd::output::fold::Start;
use huntd::output::frame::{Format, FrameHeader, FrameKind};
use huntd::output::reader::{Position, Reader};
use huntd::ownership::acquired::Acquired;
use huntd::ownership::acquisition::Candidate;
use huntd::snapshot::format::Header;
use huntd::snapshot::stored_states::StoredState;
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

/// Of so many simulations, one has both editions.
pub(crate) const PLAYED_IN: u64 = 8;

/// Of so many occasions to do something to a daemon, one brings its host another version.
pub(crate) const CHANGED_IN: u64 = 200;

/// Microseconds for which things go wrong in such a simulation: a version waits for some seconds
/// until it takes over.
pub(crate) const CHAOS_US: &[u64] = &[3_000_000, 3_000_000, 13_000_000];

/// The faults that such a simulation leaves out: lost records, and other writers to the output.
/// Replicas are not lost either: one may be the only state with which an edition can go on.
pub(crate) const LEFT_OUT: &[Fault] = &[
    Fault::LogTruncated,
    Fault::InputRetained,
    Fault::OutputRetained,
    Fault::SkipAsked,
    Fault::GenesisAsked,
    Fault::RulesLacking,
    Fault::OutputRecreated,
    Fault::InputRecreated,
    Fault::CloneGoesOn,
    Fault::FenceForged,
];

/// Prepares a simulation with both editions, and returns all rules that there are in it.
pub(crate) fn prepare(chance: &mut Chance, common: &mut Common) -> Rulebook {
    chance.leave_out(LEFT_OUT);
    common.rulebook = fewer_rules();
    let mut rulebook = common.rulebook.clone();
    rulebook.add(later_rules()).expect("the map is the same");
    rulebook
}

/// The rules of the second edition.
struct Later(AnyRulebook);

/// A zone of the second edition.
struct LaterZone(Box<dyn Engine>);

impl GameRulebook for Later {
    fn schema(&self) -> &'static GameSchema {
        self.0.schema()
    }

    fn version(&self) -> u32 {
        self.0.version() + 1
    }

    fn rulesets(&self) -> Vec<u32> {
        self.0.rulesets()
    }

    fn beginning_by(&self, ruleset: u32) -> Option<AnyRulebook> {
        Some(later(self.0.beginning_by(ruleset)?))
    }

    fn new_zone(&self, partition: u16) -> Box<dyn Engine> {
        Box::new(LaterZone(self.0.new_zone(partition)))
    }

    fn stored_zone(&self, bytes: &[u8]) -> Result<Box<dyn Engine>, StateError> {
        Ok(Box::new(LaterZone(self.0.stored_zone(bytes)?)))
    }

    fn migrated_zone(&self, bytes: &[u8]) -> Result<Box<dyn Engine>, StateError> {
        Ok(Box::new(LaterZone(self.0.migrated_zone(bytes)?)))
    }
}

impl Engine for LaterZone {
    fn partition(&self) -> u16 {
        self.0.partition()
    }

    fn version(&self) -> u32 {
        self.0.version() + 1
    }

    fn ruleset(&self) -> u32 {
        self.0.ruleset()
    }

    fn digest(&self) -> u64 {
        self.0.digest()
    }

    fn last_seq(&self, player_id: u64) -> u64 {
        self.0.last_seq(player_id)
    }

    fn counts(&self) -> [u64; COUNTS_MAX] {
        self.0.counts()
    }

    fn know(&mut self, rulebook: &AnyRulebook) {
        let rulebook: &dyn Any = &**rulebook;
        self.0.know(&rulebook.downcast_ref::<Later>().expect("it is of this edition").0);
    }

    fn apply_part(
        &mut self,
        events: &Events,
        part: Range<usize>,
        updates: &mut Updates,
        report: &mut BlockReport,
    ) {
        self.0.apply_part(events, part, updates, report);
    }

    fn begin_checkpoint(&mut self) -> u64 {
        self.0.begin_checkpoint()
    }

    fn write_checkpoint(&mut self, out: &mut Vec<u8>, bytes_max: usize) -> CheckpointRead {
        self.0.write_checkpoint(out, bytes_max)
    }

    fn end_checkpoint(&mut self) {
        self.0.end_checkpoint();
    }
}

/// The second edition, by these rules.
pub(crate) fn later(rulebook: AnyRulebook) -> AnyRulebook {
    Arc::new(Later(rulebook))
}

/// Decodes states of the other edition, and converts them.
struct Converted {
    rulebook: AnyRulebook,
    mutation: Mutation,
}

impl ZoneDecoder for Converted {
    type Zone = dyn Engine;

    fn decode_zone(&self, bytes: &[u8]) -> Result<Box<dyn Engine>, StateError> {
        let mut bytes = bytes.to_vec();
        if self.mutation == Mutation::FieldForgotten {
            let field = b"\n score ";
            let at = bytes.windows(field.len()).position(|name| name == field);
            bytes[at.expect("actors have a score") + 2] = b'x';
        }
        self.rulebook.migrated_zone(&bytes)
    }

    fn keeps_digest(&self) -> bool {
        false
    }
}

/// A zone whose rules are these of another edition from now on.
pub(crate) fn converted(mut shard: Shard, ruleset: u32, rulebook: &Rulebook) -> Shard {
    let mut bytes = Vec::new();
    encode_state(&mut shard, &mut bytes);
    let rulebook = rulebook.beginning_by(ruleset).expect("all rules there are");
    Shard::migrate_state(&bytes, &rulebook).expect("both editions have the same tables")
}

/// A frame of an owner whose zone another edition has taken over gets the owner epoch in force.
pub(crate) fn go_on_after_takeover(log: &OutputLog, frame: &mut Vec<u8>) {
    let (mut header, updates) = decode_frame(frame).expect("owners write frames");
    let headers = log.records.iter().map(|bytes| decode_frame(bytes).expect("a frame").0);
    let is_after =
        |it: &FrameHeader| it.owner_epoch > header.owner_epoch && it.ruleset != header.ruleset;
    let takes_over = |it: &FrameHeader| it.kind == FrameKind::Updates && it.count == 0;
    if headers.clone().any(|it| is_after(&it) && takes_over(&it)) {
        header.owner_epoch = headers.map(|it| it.owner_epoch).max().expect("there are some");
        frame.clear();
        encode(Format::Binary, &header, &updates, frame);
    }
}

impl Control {
    /// Loads a state of the other edition, which goes on by these rules.
    pub(crate) fn convert(
        &mut self,
        around: &mut Surroundings<'_>,
        partition: i32,
        candidate: usize,
        ruleset: u32,
    ) {
        let frames = around.broker.outputs[partition as usize].records.iter().rev();
        let mut headers = frames.map(|bytes| decode_frame(bytes).expect("a frame").0);
        let last = headers.find(|header| header.kind == FrameKind::Updates);
        if last.is_some_and(|last| self.rulebook.rulesets().contains(&last.ruleset)) {
            around.chance.see(Sight::ConvertedAgain);
        }
        let mut state = self.states.choose(partition, Some(candidate)).expect("it was chosen");
        let rulebook = self.rulebook.beginning_by(ruleset).expect("the brief has them");
        if self.mutation == Mutation::OtherStateConverted
            && let Ok(mut stored) = whole_store(around.disk).candidates(partition)
            && let Some(oldest) = stored.pop()
        {
            state = StoredState::Here(oldest);
        }
        let engine = match self.mutation {
            Mutation::ReplayedByOtherEdition => Some(rulebook.new_zone(partition as u16)),
            mutation => around.load(&state, &Converted { rulebook, mutation }),
        };
        self.load_ended(around, partition, Some(state), engine);
    }

    /// The candidates, or what the mutation makes of the newest one, if it is of the other edition.
    pub(crate) fn moved_to_end(
        &self,
        around: &Surroundings<'_>,
        partition: i32,
        mut candidates: Vec<Candidate>,
    ) -> Vec<Candidate> {
        if let (Mutation::SwitchNotAtEnd, Some(newest)) = (self.mutation, candidates.first_mut())
            && newest.version != self.rulebook.version()
        {
            let mut reader = Reader::new();
            for bytes in &around.broker.outputs[partition as usize].records {
                let (header, updates) = decode_frame(bytes).expect("owners write frames");
                reader.fold(&header, &updates);
            }
            let Position { next_update, next_offset, chain, .. } = reader.position();
            newest.start = Start { next_offset, leader_epoch: None, next_update, chain };
        }
        candidates
    }

    /// Where a shard begins, or what the mutation makes of it.
    pub(crate) fn begin_edition(&self, acquired: &mut Acquired) {
        if acquired.migrates_to.is_some() && self.mutation == Mutation::ReplayedByOtherEdition {
            acquired.start = Start::default();
        }
    }

    /// The daemon publishes from now on what another edition has published before.
    pub(crate) fn see_edition(&self, around: &mut Surroundings<'_>) {
        let is_later = self.rulebook.version() != around.rulebook.version();
        around.chance.see(if is_later { Sight::Upgraded } else { Sight::Downgraded });
    }
}

impl Sim {
    /// An operator has another version started on a host.
    pub(crate) fn change_version(&mut self, host: usize) {
        self.chance.see(Sight::VersionChanged);
        let versions = self.common.versions();
        let is_other = |version: &u32| *version != self.hosts[host].version;
        let other = versions.into_iter().find(is_other).expect("there are two");
        self.set_version(host, other);
    }

    fn set_version(&mut self, host: usize, version: u32) {
        self.trace(&format!("host {host} is to have version {version}"));
        self.hosts[host].version = version;
        if self.hosts[host].stop_at.is_none() {
            self.stop(host);
        }
    }

    /// Returns whether all hosts are to have one version, and all running daemons have it.
    pub(crate) fn have_one_version(&self) -> bool {
        self.hosts.iter().all(|host| {
            let runs = host.node.as_ref().map(|node| node.control.rulebook.version());
            host.version == self.hosts[0].version && runs.is_none_or(|it| it == host.version)
        })
    }

    /// All daemons have had this version for a while, and nothing goes wrong any more: no zone may
    /// wait for a state that the version before has left at its end.
    fn check_states_left(&mut self, version: u32) {
        let is_left = |partition: &i32| {
            let mark = self.followers[*partition as usize].mark();
            let is_at_end = |header: &Header| {
                header.engine_version != version
                    && (header.next_update, header.chain) == (mark.next_update, mark.chain)
                    && header.next_offset >= mark.next_offset
            };
            let replica = self.replicas.get(partition);
            replica.is_some_and(|(header, _)| is_at_end(header)) && !self.is_live(*partition)
        };
        let left = (0..self.followers.len() as i32).find(is_left);
        self.wrong = left.map(|partition| {
            let stuck = self.stuck();
            format!(
                "partition {partition} waits for a state, and the version before has left it: \
                 {stuck}"
            )
        });
    }

    /// All hosts get one version, once nothing goes wrong any more. If a zone cannot go on by it,
    /// the last owner was killed: the version of that one has to run once, and to be stopped in
    /// order.
    pub(crate) fn agree_on_version(&mut self) {
        let mut version = self.hosts[0].version;
        let has_one_version = self.have_one_version();
        if std::mem::replace(&mut self.had_one_version, has_one_version) && has_one_version {
            self.check_states_left(version);
        }
        if self.hosts.iter().all(|host| host.version == version) {
            let published = |partition: i32| {
                let era = &self.followers[partition as usize].era;
                self.common.version_of(era.ruleset_or(&self.rulebook))
            };
            let is_behind = |of: &i32| !self.is_live(*of) && published(*of) != version;
            let behind = (0..self.followers.len() as i32).find(is_behind);
            version = behind.map_or(version, published);
        }
        for host in 0..HOSTS {
            if self.hosts[host].version != version {
                self.set_version(host, version);
                self.had_one_version = false;
            }
        }
    }
}

/// Where an edition takes a zone over.
pub(crate) struct Takeover {
    /// The first record that it plays.
    pub(crate) next_offset: i64,
    /// The rules in force before, and from then on.
    pub(crate) before: u32,
    pub(crate) ruleset: u32,
}

impl Common {
    /// The versions of both editions.
    fn versions(&self) -> [u32; 2] {
        [self.first_version(), self.later.version()]
    }

    /// The version that hosts have at first.
    pub(crate) fn first_version(&self) -> u32 {
        AnyRulebook::from(self.rulebook.clone()).version()
    }

    /// The version that has these rules.
    pub(crate) fn version_of(&self, ruleset: u32) -> u32 {
        match self.later.rulesets().contains(&ruleset) {
            true => self.later.version(),
            false => self.first_version(),
        }
    }

    /// The rules change without an event only where another edition takes over.
    pub(crate) fn check_takeovers(&self, takeovers: &[Takeover]) -> Result<(), String> {
        let is_wrong = |takeover: &&Takeover| {
            self.version_of(takeover.before) == self.version_of(takeover.ruleset)
        };
        match takeovers.iter().find(is_wrong) {
            Some(Takeover { before, ruleset, .. }) => {
                Err(format!("a frame of ruleset {ruleset} under {before}"))
            }
            None => Ok(()),
        }
    }
}
