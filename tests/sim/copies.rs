//! Copies of zones: what the group tells a daemon about its members, and whether a zone is taken
//! over for a reason.

use crate::broker::Broker;
use crate::chance::{Fault, Sight};
use crate::control::Control;
use crate::mutation::Mutation;
use crate::surroundings::Surroundings;
use huntd::kafka::group_description::{GroupDescription, SeenMembers};
use huntd::kafka::membership::GroupView;
use huntd::kafka::quiet_outputs::QuietOutputs;
use huntd::ownership::action::{CopyNews, TakeoverCause};
use huntd::ownership::event::{OwnershipEvent, ShardFacts};
use huntd::ownership::standby::StandbyOptions;
use std::collections::BTreeMap;
use std::time::Duration;

/// Microseconds for which the control thread may stand still before it must not blame anybody.
const STOOD_STILL_US: u64 = 50_000;

/// Microseconds for which a copy waits for the one before it.
const RANK_US: u64 = 150_000;

/// What the simulator knows of the copies of a daemon.
pub(crate) struct CopyWatch {
    options: StandbyOptions,
    /// When the daemon is told of the group next.
    view_at: u64,
    described: Option<GroupDescription>,
    members: SeenMembers,
    outputs: QuietOutputs,
    /// How many copies come before its own, by partition.
    ranks: BTreeMap<i32, u32>,
    /// When the control thread went on after a standstill.
    went_on_at: u64,
}

impl CopyWatch {
    pub(crate) fn new(options: StandbyOptions, now: u64) -> CopyWatch {
        CopyWatch {
            options,
            view_at: now,
            described: None,
            members: SeenMembers::default(),
            outputs: QuietOutputs::new(options.is_without_group),
            ranks: BTreeMap::new(),
            went_on_at: now,
        }
    }

    pub(crate) fn keeps_copies(&self) -> bool {
        self.options.is_on()
    }

    /// Returns whether copies of each zone wait for its owner to resign.
    pub(crate) fn waits_for_resignations(&self) -> bool {
        self.options.copies > 0
    }

    /// Whether the daemon is to keep a copy of the zone.
    pub(crate) fn is_copy(&self, partition: i32) -> bool {
        self.ranks.contains_key(&partition)
    }
}

impl Control {
    /// The daemon hears who is in the group.
    pub(crate) fn see_group(&mut self, around: &mut Surroundings<'_>) {
        if !self.watch.keeps_copies() || around.now < self.watch.view_at {
            return;
        }
        self.watch.view_at = around.now + around.chance.pick(&[20_000, 100_000, 1_000_000]);
        if !around.chance.strikes_of(Fault::ViewStale, 20) {
            self.watch.described = Some(around.group.describe());
        }
        let Broker { inputs, outputs, .. } = &around.broker;
        let input_ends: Vec<_> = inputs.iter().map(|input| Some(input.end)).collect();
        let output_ends: Vec<_> = outputs.iter().map(|output| Some(output.end())).collect();
        let quiet = self.watch.outputs.look(&input_ends, &output_ends, around.instant());
        let Some(described) = self.watch.described.clone() else { return };
        let Some(members) = self.watch.members.take(described, !quiet.is_empty()) else { return };
        let mut view = GroupView { members, committed: around.group.all_committed(), quiet };
        let partitions = input_ends.len() as i32;
        let ours = around.group.id(self.member, self.host);
        self.watch.ranks = view.copies_of(&ours, partitions, self.watch.options.keepers());
        if self.mutation == Mutation::FirstTurnOnly && self.watch.options.copies == 0 {
            let ranks = &self.watch.ranks;
            view.quiet.retain(|partition, _| ranks.get(partition) == Some(&0));
        }
        if self.mutation == Mutation::RankIgnored {
            let ranks = &self.watch.ranks;
            let is_owner =
                |partitions: &Vec<i32>| partitions.iter().any(|of| ranks.contains_key(of));
            view.members.retain(|it| it.id == ours || is_owner(&it.partitions));
        }
        self.on(around, OwnershipEvent::GroupSeen { view: &view, ours: &ours });
        if self.ownership.warm_copies(around.instant()) > 0 {
            around.chance.see(Sight::CopyWarm);
        }
    }

    /// Notes whether the thread has stood still since its last turn.
    pub(crate) fn note_standstill(&mut self, around: &Surroundings<'_>, facts: &[ShardFacts]) {
        let before = std::mem::replace(&mut self.turned_at, around.now);
        if around.now - before < STOOD_STILL_US {
            return;
        }
        self.watch.went_on_at = around.now;
        if self.mutation == Mutation::TiltIgnored {
            for at in (before..around.now).step_by(STOOD_STILL_US as usize / 2) {
                let at = around.base + Duration::from_micros(at);
                self.ownership.on(OwnershipEvent::Tick(facts), at);
            }
        }
    }

    pub(crate) fn look_at_copy(
        &mut self,
        around: &mut Surroundings<'_>,
        partition: i32,
        news: &CopyNews,
    ) {
        match news {
            CopyNews::Begins { .. } => around.chance.see(Sight::Copied),
            CopyNews::Ends(_) => around.chance.see(Sight::CopyEnded),
            CopyNews::Diverged(_) => {
                around.chance.see(Sight::Diverged);
                self.see_divergence(around, partition);
            }
            CopyNews::Probes => around.chance.see(Sight::Probed),
            CopyNews::TakesOver(cause) => self.check_takeover(around, partition, *cause),
        }
    }

    /// The daemon takes a zone over without asking the group.
    fn check_takeover(
        &mut self,
        around: &mut Surroundings<'_>,
        partition: i32,
        cause: TakeoverCause,
    ) {
        self.confirmed.insert(partition);
        let is_probed = self.output.probed.remove(&partition);
        let TakeoverCause::Silence(_) = cause else {
            return around.chance.see(Sight::TakenAtResignation);
        };
        around.chance.see(Sight::TakenBySilence);
        let silence_us = 1_000 * u64::from(self.watch.options.silence_ms);
        let rank = self.watch.ranks.get(&partition).copied().unwrap_or(0);
        let moved_at = around.broker.outputs[partition as usize].moved_at;
        let why = if !is_probed {
            "no probe has shown that its output takes records"
        } else if around.now < moved_at + silence_us + RANK_US * u64::from(rank) {
            "its owner was silent for too short a time"
        } else if around.now < self.watch.went_on_at + silence_us {
            "the daemon itself has stood still"
        } else {
            return;
        };
        self.wrong = Some(format!("partition {partition} is taken over, and {why}"));
    }
}
