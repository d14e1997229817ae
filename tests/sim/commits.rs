//! What daemons tell the group, and what it says: everything before a committed offset is settled,
//! the dead letters and handoffs too.

use crate::control::Control;
use crate::mutation::Mutation;
use crate::reader::Replay;
use crate::sim::Sim;
use crate::surroundings::Surroundings;
use huntd::hunt::event::EVENTS;
use huntd::output::handoff::HandoffRecord;

/// A commit, with what was there when it was made.
pub(crate) struct Commit {
    partition: i32,
    offset: i64,
    /// How many dead letters there were.
    letters: usize,
    /// Where the inputs ended.
    input_ends: Vec<i64>,
    /// It was made of the zone's first history.
    is_first: bool,
}

impl Control {
    /// Commits input offsets.
    pub(crate) fn commit(&mut self, around: &mut Surroundings<'_>, offsets: &[(i32, i64)]) {
        let progress = &self.ends.progress;
        let told = |(partition, offset): &(i32, i64)| match self.mutation {
            Mutation::FramesTakenForSettled => (*partition, progress.shard(*partition).acked.get()),
            _ => (*partition, *offset),
        };
        let told: Vec<(i32, i64)> = offsets.iter().map(told).collect();
        around.group.commit(self.member, &told);
        self.committed.extend(told);
    }
}

impl Sim {
    /// Notes the commits of a turn. Only one that moves the group's offset says something new.
    pub(crate) fn note_commits(&mut self, committed: Vec<(i32, i64)>) {
        for (partition, offset) in committed {
            let is_known = |commit: &Commit| commit.partition == partition;
            let last = self.commits.iter().rev().find(|commit| is_known(commit));
            if last.is_some_and(|last| last.offset == offset) {
                continue;
            }
            self.commits.push(Commit {
                partition,
                offset,
                letters: self.broker.letters.len(),
                input_ends: self.broker.inputs.iter().map(|input| input.end).collect(),
                is_first: self.followers[partition as usize].past.is_empty()
                    && !self.broker.was_input_deleted(),
            });
        }
    }

    /// Whatever stands beside the output of the input before a commit was there.
    pub(crate) fn check_commits(&self, partition: i32, replay: &Replay) -> Result<(), String> {
        if !self.followers[partition as usize].past.is_empty() || self.broker.was_input_deleted() {
            return Ok(());
        }
        let is_of_it = |commit: &&Commit| commit.partition == partition && commit.is_first;
        for Commit { offset, letters, input_ends, .. } in self.commits.iter().filter(is_of_it) {
            let there = self.letters(partition, *letters);
            let mut before = replay.letters.range(..offset);
            if let Some(lost) = before.find(|letter| !there.contains(letter)) {
                return Err(format!("a commit is past the dead letter {lost}, which is not there"));
            }
            let mut before = replay.handoffs.iter().filter(|handoff| handoff.offset < *offset);
            let is_missing = |handoff: &&HandoffRecord| !self.has_arrived(handoff, input_ends);
            if let Some(handoff) = before.find(is_missing) {
                let player_id = handoff.departure.player_id;
                return Err(format!("a commit is past the handoff of {player_id}"));
            }
        }
        Ok(())
    }

    /// Whether a player's handoff was in the input of its zone when the inputs ended there.
    fn has_arrived(&self, handoff: &HandoffRecord, input_ends: &[i64]) -> bool {
        let to = &self.broker.inputs[handoff.to_partition() as usize];
        let Some(end) = input_ends.get(handoff.to_partition() as usize) else { return true };
        let mut value = Vec::new();
        handoff.write(&EVENTS, &mut value);
        to.truncated_to.is_some()
            || to.records.range(..end).any(|(_, record)| record.value.as_ref() == Some(&value))
    }
}
