//! All shards of a daemon, and the steps that they take from one state to the next.

use crate::ownership::acquisition::Acquisition;
use crate::ownership::action::{CopyNews, Note, Opening, OwnershipAction};
use crate::ownership::history::History;
use crate::ownership::log_task::LogTask;
use crate::ownership::read_slots::ReadSlots;
use crate::ownership::release::Release;
use crate::ownership::shard_state::{OpenPhase, OpenShard, ShardState};
use crate::ownership::start_error::StartError;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Milliseconds for which loading other zones waits for a fence to be passed. A broker that is
/// silent for longer holds up no other zone.
const FENCE_AWAITED_MS_MAX: u64 = 200;

/// A zone that this instance follows beside its owner, without being told to own it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ZoneCopy {
    /// How many other copies come first when the zone is taken over.
    pub(super) rank: u32,
    /// When it began last, or took the zone over and failed.
    pub(super) begun_at: Instant,
    /// When its zone was quiet last.
    pub(super) quiet_at: Instant,
    /// It has ended because another version plays the zone.
    pub(super) awaits_version: bool,
}

impl ZoneCopy {
    /// A copy that begins at this time.
    pub(super) fn new(rank: u32, begun_at: Instant) -> ZoneCopy {
        ZoneCopy { rank, begun_at, quiet_at: begun_at, awaits_version: false }
    }
}

/// All shards of a daemon, with the actions that they need.
#[derive(Debug)]
pub(super) struct ShardTable {
    shards: BTreeMap<i32, ShardState>,
    /// Which of their outputs are read now.
    pub(super) slots: ReadSlots,
    /// The zones of which this instance keeps a copy beside an owner, each with its rank. What the
    /// group gives to us, and what we play, is none of them.
    pub(super) copies: BTreeMap<i32, ZoneCopy>,
    /// The daemon's end, once it is under way.
    pub(super) release: Option<Release>,
    /// The actions.
    pub(super) actions: VecDeque<OwnershipAction>,
}

impl ShardTable {
    /// No shard is ours.
    pub(super) fn new(read_slots: usize) -> ShardTable {
        ShardTable {
            shards: BTreeMap::new(),
            slots: ReadSlots::new(read_slots),
            copies: BTreeMap::new(),
            release: None,
            actions: VecDeque::new(),
        }
    }

    /// The partitions that are ours, in ascending order.
    pub(super) fn partitions(&self) -> Vec<i32> {
        self.shards.keys().copied().collect()
    }

    /// All shards with their partitions.
    pub(super) fn iter(&self) -> impl Iterator<Item = (i32, &ShardState)> {
        self.shards.iter().map(|(partition, shard)| (*partition, shard))
    }

    /// A shard; `None`: it is not ours.
    pub(super) fn get(&self, partition: i32) -> Option<&ShardState> {
        self.shards.get(&partition)
    }

    /// A shard; `None`: it is not ours.
    pub(super) fn get_mut(&mut self, partition: i32) -> Option<&mut ShardState> {
        self.shards.get_mut(&partition)
    }

    /// A shard that is on the hot thread.
    pub(super) fn open_mut(&mut self, partition: i32) -> Option<&mut OpenShard> {
        match self.shards.get_mut(&partition) {
            Some(ShardState::Open(open)) => Some(open),
            _ => None,
        }
    }

    /// Whether this is the ownership that is on the hot thread now. Reports about any other
    /// ownership do not count.
    pub(super) fn is_current(&self, partition: i32, ownership_id: u32) -> bool {
        let open = self.get(partition).and_then(ShardState::open);
        open.is_some_and(|open| open.ownership_id == ownership_id)
    }

    /// Returns whether an engine on the hot thread follows for this ownership.
    pub(super) fn is_following(&self, partition: i32, ownership_id: u32) -> bool {
        self.get(partition).and_then(ShardState::followed_for) == Some(ownership_id)
    }

    /// Returns whether a shard is a copy beside its owner.
    pub(super) fn is_copy(&self, partition: i32) -> bool {
        self.copies.contains_key(&partition)
    }

    /// Returns whether our fence of a shard is in the output or on its way, and the shard is not
    /// open yet. Nobody plays it until it is.
    pub(super) fn has_fenced(&self, partition: i32) -> bool {
        match self.get(partition) {
            Some(ShardState::Loading { .. }) => true,
            Some(ShardState::Acquiring { task, .. }) => task.has_fenced(),
            _ => false,
        }
    }

    /// A copy ends. Its zone goes on without it, and another one may begin later.
    pub(super) fn end_copy(&mut self, partition: i32) {
        self.stop_following(partition);
        self.stop_reading(partition);
        self.shards.remove(&partition);
    }

    /// Ends all copies but those to be kept and those that have fenced their zone.
    pub(super) fn drop_copies(&mut self, is_kept: impl Fn(&i32) -> bool) {
        let mut ended: Vec<i32> = self.copies.keys().copied().collect();
        ended.retain(|partition| !is_kept(partition) && !self.has_fenced(*partition));
        for partition in ended {
            self.copies.remove(&partition);
            self.end_copy(partition);
        }
    }

    /// A shard counts as a copy that was begun at this time.
    pub(super) fn keep_as_copy(&mut self, partition: i32, begun_at: Instant) {
        self.copies.insert(partition, ZoneCopy::new(0, begun_at));
    }

    /// A copy ends because of this.
    pub(super) fn give_copy_up(&mut self, partition: i32, why: String) {
        self.end_copy(partition);
        self.log(Note::Copy { partition, news: CopyNews::Ends(why) });
    }

    /// Whether a shard has stopped for good.
    pub(super) fn is_halted(&self, partition: i32) -> bool {
        matches!(self.get(partition), Some(ShardState::Halted))
    }

    /// The task that reads a shard's output.
    pub(super) fn task(&mut self, partition: i32) -> Option<&mut LogTask> {
        self.shards.get_mut(&partition)?.task()
    }

    /// Returns the acquisition of a shard that is being acquired.
    pub(super) fn acquisition(&mut self, partition: i32) -> Option<&Acquisition> {
        self.task(partition)?.acquisition()
    }

    /// What earlier attempts to acquire a shard have shown.
    pub(super) fn history(&self, partition: i32) -> History {
        self.get(partition).and_then(ShardState::history).cloned().unwrap_or_default()
    }

    /// Returns whether a fence was written a moment ago and is not passed yet. Nobody publishes its
    /// zone meanwhile, so nothing begins that keeps the control thread busy for long.
    pub(super) fn is_fence_on_its_way(&self, now: Instant) -> bool {
        let moment = Duration::from_millis(FENCE_AWAITED_MS_MAX);
        self.shards.iter().any(|(partition, shard)| match shard {
            ShardState::Acquiring { task, .. } => {
                let is_fencing = task.acquisition().is_some_and(Acquisition::is_fencing);
                is_fencing && self.slots.idle(*partition, now).is_some_and(|idle| idle < moment)
            }
            _ => false,
        })
    }

    /// Something is to be logged.
    pub(super) fn log(&mut self, note: Note) {
        self.actions.push_back(OwnershipAction::Log(note));
    }

    /// A shard has to be acquired, not before this time. One that the group does not give to us, or
    /// that is being released, is not taken back.
    pub(super) fn make_due(&mut self, partition: i32, at: Instant, history: History) {
        self.stop_following(partition);
        self.stop_reading(partition);
        let history = History { silent_at: None, ..history };
        match self.is_given_up(partition) {
            true => drop(self.shards.remove(&partition)),
            false => drop(self.shards.insert(partition, ShardState::Due { at, history })),
        }
    }

    /// Whether a shard is on the hot thread only until another instance takes it over, or until it
    /// is released.
    fn is_given_up(&self, partition: i32) -> bool {
        let is_released = self.release.as_ref().is_some_and(|release| release.contains(partition));
        is_released || self.is_left_to_others(partition)
    }

    /// Returns whether a shard is played although the group gives it to others.
    fn is_left_to_others(&self, partition: i32) -> bool {
        self.get(partition).and_then(ShardState::open).is_some_and(|open| !open.is_assigned)
    }

    /// A shard takes the next step on its way to the hot thread.
    pub(super) fn step(&mut self, partition: i32, next: ShardState) {
        let shard = self.shards.get_mut(&partition).expect("it is on its way");
        assert!(!matches!(shard, ShardState::Open(_) | ShardState::Halted), "{shard:?}");
        *shard = next;
    }

    /// A shard goes to the hot thread, or to the engine there that has followed.
    pub(super) fn open(&mut self, opening: Opening, now: Instant) {
        let partition = opening.acquired.partition;
        let settled_offset = opening.settled_offset;
        let has_followed = self.is_following(partition, opening.ownership_id);
        let ownership_id = opening.ownership_id;
        let phase = OpenPhase::Restoring(None);
        let History { fences, changed_from, .. } = self.history(partition);
        let opened_at = now;
        let is_assigned = self.copies.remove(&partition).is_none();
        let open = OpenShard {
            ownership_id,
            owner_epoch: opening.acquired.owner_epoch,
            is_assigned,
            opened_at,
            fences,
            changed_from,
            phase,
            settled_offset,
            span: None,
        };
        self.step(partition, ShardState::Open(open));
        let opening = Box::new(opening);
        self.actions.push_back(match has_followed {
            true => OwnershipAction::Promote(opening),
            false => OwnershipAction::Open(opening),
        });
    }

    /// A shard does not follow another owner any more.
    pub(super) fn stop_following(&mut self, partition: i32) {
        let Some(ShardState::Acquiring { follower, .. }) = self.shards.get_mut(&partition) else {
            return;
        };
        if follower.take().is_some_and(|follower| follower.ownership_id.is_some()) {
            self.actions.push_back(OwnershipAction::Drop { partition });
            self.actions.push_back(OwnershipAction::Disown { partition });
        }
    }

    /// A shard on the hot thread ends in order.
    pub(super) fn close(&mut self, partition: i32) {
        if let Some(open) = self.open_mut(partition)
            && !matches!(open.phase, OpenPhase::Closing | OpenPhase::Closed)
        {
            open.phase = OpenPhase::Closing;
            self.actions.push_back(OwnershipAction::Close { partition });
        }
    }

    /// A shard's output is not read any more.
    pub(super) fn stop_reading(&mut self, partition: i32) {
        if self.task(partition).is_some() {
            self.actions.push_back(OwnershipAction::Forget { partition });
        }
        self.slots.free(partition);
    }

    /// The hot thread has ended a shard, and not in order.
    pub(super) fn leave_hot_thread(&mut self, partition: i32) {
        self.stop_following(partition);
        self.stop_reading(partition);
        if let Some(release) = &mut self.release {
            release.give_up(partition);
        }
        self.actions.push_back(OwnershipAction::Disown { partition });
    }

    /// Ends all work on a shard at once.
    pub(super) fn drop_shard(&mut self, partition: i32) {
        if self.open_mut(partition).is_some_and(|open| open.phase != OpenPhase::Closed) {
            self.actions.push_back(OwnershipAction::Drop { partition });
        }
        self.leave_hot_thread(partition);
    }

    /// A shard stops for good, and is no longer on the hot thread.
    pub(super) fn halt(&mut self, partition: i32, sentence: String) {
        if self.is_copy(partition) {
            return self.give_copy_up(partition, sentence);
        }
        self.stop(partition);
        self.log(Note::Halted { partition, sentence, start_error: None });
    }

    /// Stops a shard. One that is played although the group gives it to others is left to them, and
    /// a copy does not take it over at once again.
    fn stop(&mut self, partition: i32) {
        self.leave_hot_thread(partition);
        match self.is_left_to_others(partition) {
            true => {
                let shard = self.shards.remove(&partition);
                if let Some(open) = shard.as_ref().and_then(ShardState::open) {
                    self.keep_as_copy(partition, open.opened_at);
                }
            }
            false => drop(self.shards.insert(partition, ShardState::Halted)),
        }
    }

    /// A shard stops for good, because it cannot be started.
    pub(super) fn halt_unstartable(&mut self, partition: i32, error: StartError) {
        if self.is_copy(partition) {
            return self.give_copy_up(partition, error.to_string());
        }
        self.stop(partition);
        let sentence = error.to_string();
        self.log(Note::Halted { partition, sentence, start_error: Some(error) });
    }

    /// A shard is not ours any more.
    pub(super) fn remove(&mut self, partition: i32) -> Option<ShardState> {
        self.stop_following(partition);
        self.slots.free(partition);
        self.shards.remove(&partition)
    }
}
