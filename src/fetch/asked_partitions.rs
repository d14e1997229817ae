//! Chooses the partitions that a connection fetches, so that no two connections fetch the same one.

use crate::fetch::FetchOptions;
use crate::fetch::cursor::{Cursor, UNKNOWN_EPOCH};
use crate::fetch::task::{AskedPartition, FetchTask};
use crate::kafka::fetch::FetchPartition;
use std::rc::Rc;

/// Milliseconds that a broker may wait for records if the Fetch leaves out a partition that cannot
/// be fetched now, and may within a moment.
const LEFT_OUT_WAIT_MS: u32 = 10;

/// Bytes of one partition that a Fetch asks for at least, unless the operator wants fewer: the
/// events of a full frame.
const SHARE_BYTES_MIN: usize = 128 * 1024;

/// Milliseconds for which a broker collects records if all partitions of a Fetch follow another
/// owner and records keep coming. They wait for the output anyway, and each answer wakes the hot
/// thread.
const COLLECTING_MS_MAX: u32 = 10;

/// Fetches of which one begins with any partition, and the others with one that is played.
const ANY_FIRST_EVERY: usize = 4;

/// How long a broker may wait before it answers a Fetch.
pub(super) struct FetchWait {
    /// Milliseconds that it may wait for `bytes_min`.
    pub(super) ms_max: u32,
    /// Bytes of records with which it answers at once.
    pub(super) bytes_min: usize,
}

impl FetchTask {
    /// Returns whether this connection fetches the partition.
    pub(super) fn serves(&self, cursor: &Cursor) -> bool {
        self.leads(cursor) && cursor.owner_task.get().is_none_or(|owner_task| owner_task == self.id)
    }

    /// Returns whether this connection leads to the partition's leader and is the one, of the
    /// connections to that broker, that fetches the partition.
    pub(super) fn leads(&self, cursor: &Cursor) -> bool {
        let leader = self.shared.table.borrow().leader(cursor.partition);
        leader.is_some_and(|leader| leader.node_id == self.node_id)
            && cursor.partition as usize % self.shared.options.connections_per_broker == self.index
    }

    /// Returns whether there is anything to ask the broker for.
    pub(super) fn is_needed(&self) -> bool {
        self.has_partitions() || self.has_old_ends()
    }

    fn has_partitions(&self) -> bool {
        let now = self.shared.context.turns.now();
        let mut found = false;
        self.shared.cursors.each(|cursor| {
            found |= cursor.is_fetchable(now) && self.serves(cursor);
            if let Some(at) = cursor.retry_at.get().filter(|at| *at > now) {
                self.shared.context.turns.turn_at(at);
            }
        });
        found
    }

    /// Chooses the partitions to ask for. Returns how long the broker may wait for records: if a
    /// partition of this task cannot be fetched now, no longer than that state may last, because
    /// only the next Fetch can ask for it.
    pub(super) fn choose_partitions(&mut self) -> FetchWait {
        let now = self.shared.context.turns.now();
        let mut asked = std::mem::take(&mut self.asked);
        asked.clear();
        let mut wait = FetchWait { ms_max: self.shared.options.fetch_wait_ms_max, bytes_min: 1 };
        self.shared.cursors.each(|cursor| {
            if !self.serves(cursor) {
                return;
            }
            if cursor.is_fetchable(now) {
                cursor.owner_task.set(Some(self.id));
                asked.push(AskedPartition {
                    cursor: cursor.clone(),
                    offset: cursor.fetch_offset.get(),
                });
            } else {
                let retry_at = cursor.retry_at.get().unwrap_or(now);
                let left_ms = retry_at.saturating_duration_since(now).as_millis() as u32;
                wait.ms_max = wait.ms_max.min(left_ms.max(LEFT_OUT_WAIT_MS));
            }
        });
        let turn = self.correlation_id.unsigned_abs() as usize;
        // A broker fills its answer in the order of the request, so zones that are played come
        // first. Sometimes another one does: a batch larger than its share comes only there.
        let is_following = |asked: &AskedPartition| asked.cursor.is_following.get();
        asked.sort_unstable_by_key(|asked| (is_following(asked), asked.cursor.partition));
        let played = asked.partition_point(|asked| !is_following(asked));
        if self.alone_left > 0 {
            self.alone_left -= 1;
            rotate(&mut asked, turn);
            asked.truncate(1);
        } else {
            order(&mut asked, played, turn, |it| self.is_behind(it));
        }
        if played == 0 && !self.answers.is_empty() {
            wait.ms_max = wait.ms_max.min(COLLECTING_MS_MAX);
            wait.bytes_min = SHARE_BYTES_MIN.min(self.shared.options.partition_bytes_max);
        }
        self.asked = asked;
        self.partitions.clear();
        let share = share_bytes(&self.shared.options, self.count_behind());
        let table = self.shared.table.borrow();
        for AskedPartition { cursor, offset } in &self.asked {
            let leader = table.leader(cursor.partition);
            let leader_epoch = leader.map_or(UNKNOWN_EPOCH, |leader| leader.leader_epoch);
            cursor.current_leader_epoch.set(leader_epoch);
            // Zones that are played wait until the whole answer is decoded and applied.
            let bytes_max = match cursor.is_following.get() && played > 0 {
                true => share.min(SHARE_BYTES_MIN),
                false => share,
            };
            self.partitions.push(FetchPartition {
                partition: cursor.partition,
                offset: *offset,
                leader_epoch,
                last_fetched_epoch: cursor.fetch_leader_epoch.get(),
                bytes_max: bytes_max as i32,
            });
        }
        wait
    }

    /// Returns how many of the asked partitions have records that are not fetched, as far as known.
    fn count_behind(&self) -> usize {
        self.asked.iter().filter(|asked| self.is_behind(asked)).count()
    }

    fn is_behind(&self, asked: &AskedPartition) -> bool {
        let shard = self.shared.context.progress.shard(asked.cursor.partition);
        asked.offset < shard.high_watermark.get()
    }

    /// Returns whether the outstanding response is worth waiting for: every partition in it still
    /// has this broker as its leader, or no known leader.
    pub(super) fn is_wanted(&self) -> bool {
        let table = self.shared.table.borrow();
        let mut leaders = self.asked.iter().map(|asked| table.leader(asked.cursor.partition));
        leaders.all(|leader| leader.is_none_or(|leader| leader.node_id == self.node_id))
    }

    /// Releases the partitions that this connection no longer asks for. Another broker may lead
    /// them now, and its task must not start while this one still decodes.
    pub(super) fn release_partitions(&self) {
        self.shared.cursors.each(|cursor| {
            let is_asked = || self.asked.iter().any(|asked| Rc::ptr_eq(&asked.cursor, cursor));
            if cursor.owner_task.get() == Some(self.id) && !is_asked() {
                cursor.owner_task.set(None);
                self.shared.context.turns.turn_again();
            }
        });
    }
}

/// Orders the partitions of a Fetch, of which the first `played` are played. Of [`ANY_FIRST_EVERY`]
/// turns, one begins with any partition that is behind, and the others with one that is played.
pub(super) fn order<T>(
    asked: &mut [T],
    played: usize,
    turn: usize,
    is_behind: impl Fn(&T) -> bool,
) {
    if turn.is_multiple_of(ANY_FIRST_EVERY) {
        let turn = turn / ANY_FIRST_EVERY;
        let mut behind = (0..asked.len()).filter(|at| is_behind(&asked[*at]));
        let count = behind.clone().count();
        rotate(asked, behind.nth(turn % count.max(1)).unwrap_or(turn));
    } else {
        // Each of them comes first as often as the others, however many they are.
        let turn = turn - turn / ANY_FIRST_EVERY;
        let (played, following) = asked.split_at_mut(played);
        rotate(played, turn);
        rotate(following, turn);
    }
}

/// Begins with another partition each turn.
fn rotate<T>(asked: &mut [T], turn: usize) {
    asked.rotate_left(turn % asked.len().max(1));
}

/// Returns how many bytes to ask for from each partition. If many are behind, each gets a share of
/// the response: a shard that has more events than its frames hold stalls, and the rest of its part
/// is fetched again. Half of those that are behind fill the response.
pub(super) fn share_bytes(options: &FetchOptions, behind: usize) -> usize {
    let share = 2 * options.fetch_bytes_max / behind.max(1);
    share.max(SHARE_BYTES_MIN).min(options.partition_bytes_max)
}
