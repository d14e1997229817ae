//! Decides what to do about a shard that has a problem: try again, start over, or halt.

use crate::kafka::topic_error::TopicError;
use crate::ownership::PANICS_MAX;
use crate::ownership::acquirer::Acquirer;
use crate::ownership::acquisition::Remedy;
use crate::ownership::action::{CopyNews, Note, OwnershipAction, Waiting};
use crate::ownership::history::History;
use crate::ownership::shard_state::ShardState;
use crate::ownership::shard_table::ShardTable;
use crate::ownership::start_error::StartError;
use std::time::Instant;

impl Acquirer {
    /// Readers have positions in a log that is gone, so no shard can go on. This event is repeated,
    /// and halts the shards that the group has given to us meanwhile.
    pub(super) fn output_recreated(&mut self, table: &mut ShardTable) {
        self.standby.end();
        for partition in table.partitions() {
            if !table.is_halted(partition) {
                table.drop_shard(partition);
                table.halt_unstartable(partition, StartError::OutputRecreated);
            }
        }
    }

    /// Brokers, topics or the group prevent a start for now.
    pub(super) fn fail(
        &mut self,
        table: &mut ShardTable,
        partition: i32,
        error: &TopicError,
        now: Instant,
    ) {
        match table.get(partition) {
            Some(shard) if shard.is_being_acquired() && error.may_pass() => {
                // Time without an answer does not count as time of failed starts.
                let before = table.history(partition);
                let (kind, sentence) = (Waiting::Acquiring(partition), error.to_string());
                let why = Some(sentence.clone());
                let history = History { failing_since: None, why, ..before };
                table.log(Note::Waiting { kind, sentence });
                table.make_due(partition, now + history.wait(), history);
            }
            Some(shard) if shard.is_being_acquired() => table.halt(partition, error.to_string()),
            // The check of a foreign span failed: without it nothing more can be verified.
            Some(ShardState::Open(_)) => {
                self.acquire_again(table, partition, error.to_string(), now);
            }
            _ => {}
        }
    }

    /// The shard is ours and cannot be started. If the cause may pass, the start is tried again for
    /// a while. Otherwise it is tried once more: if the output belongs to a rival, the rival has
    /// published to it by then.
    pub(super) fn cannot_start(
        &mut self,
        table: &mut ShardTable,
        partition: i32,
        error: StartError,
        why_unknown: Option<String>,
        now: Instant,
    ) {
        if table.is_copy(partition) {
            return self.give_copy_up(table, partition, &error);
        }
        let is_played = self.look_for_owner(table, partition, now);
        if let Some(why) = why_unknown {
            let error = TopicError::NotNow(format!("{}, and {why}", error.cause()));
            return self.fail(table, partition, &error, now);
        }
        // It has waited already, and reads no more.
        if table.task(partition).is_some_and(|task| task.waits_until.is_some()) {
            let history = History { failing_since: None, ..table.history(partition) };
            return table.make_due(partition, now, history);
        }
        // Instances of the version before may play on, and leave their state once they stop.
        let may_be_left_a_state = match error {
            StartError::EditionBehind { .. } => true,
            StartError::RulesetChanged { .. } => is_played,
            _ => false,
        };
        if may_be_left_a_state {
            self.say_who_plays(table, partition, &error, now);
            let history = History { failing_since: None, ..table.history(partition) };
            return table.make_due(partition, now + history.wait(), history);
        }
        let mut history = table.history(partition);
        let since = *history.failing_since.get_or_insert(now);
        let failing_max = self.rivals.failing_max(partition);
        if now.saturating_duration_since(since) < failing_max {
            table.log(Note::CannotStart { partition, error });
            history.why = Some(error.cause());
            self.rivals.doubt(partition);
            let wait = if error.may_pass() { history.wait() } else { failing_max };
            return table.make_due(partition, now + wait, history);
        }
        if self.rivals.are_suspected(partition, now) {
            return table.halt_unstartable(partition, StartError::Contended);
        }
        if self.options.remedy == Remedy::StartOver && !history.starts_over {
            history.starts_over = true;
            history.why = Some(error.to_string());
            table.log(Note::StartsOver { partition, why: error.to_string() });
            return table.make_due(partition, now, history);
        }
        table.halt_unstartable(partition, error);
    }

    /// A copy cannot begin. While another version plays, that is as it should be.
    fn give_copy_up(&self, table: &mut ShardTable, partition: i32, error: &StartError) {
        match error {
            StartError::EditionBehind { .. } => {
                table.end_copy(partition);
                table.copies.entry(partition).and_modify(|copy| copy.awaits_version = true);
                let sentence = error.awaited(self.options.version);
                table.log(Note::AwaitsVersion { partition, sentence });
            }
            _ => table.give_copy_up(partition, error.cause()),
        }
    }

    /// Another instance leaves a state that can be used, once it stops. That is said once. If
    /// nobody plays any more, the operator has to act.
    pub(super) fn say_who_plays(
        &mut self,
        table: &mut ShardTable,
        partition: i32,
        error: &StartError,
        now: Instant,
    ) {
        let Some(ShardState::Acquiring { task, history, .. }) = table.get_mut(partition) else {
            return;
        };
        let acquisition = task.acquisition().expect("it acquires the shard");
        self.rivals.wait(partition, acquisition.output_end(), now);
        let is_over = self.rivals.are_gone(partition, now);
        let sentence = match is_over {
            true => error.to_string(),
            false => error.awaited(self.options.version),
        };
        let before = history.why.replace(sentence.clone());
        match is_over {
            true => {
                let kind = Waiting::Acquiring(partition);
                table.log(Note::Waiting { kind, sentence });
            }
            false if before.as_ref() == Some(&sentence) => {}
            false => table.log(Note::AwaitsVersion { partition, sentence }),
        }
    }

    /// A shard cannot be started. If it is being acquired, looks for an owner that plays it.
    /// Returns whether another instance of our group does.
    fn look_for_owner(&mut self, table: &mut ShardTable, partition: i32, now: Instant) -> bool {
        let Some(acquisition) = table.acquisition(partition) else { return false };
        let Some((_, in_force)) = acquisition.fence_in_force().filter(|(_, id)| *id != 0) else {
            return false;
        };
        let is_ours = self.options.fence_ids.are_of_deployment(in_force);
        self.rivals.start_failed(partition, acquisition.output_end(), is_ours, now)
    }

    /// The replay differs from what is published. A rival may have published it, so the shard is
    /// tried once more.
    pub(super) fn diverged(
        &mut self,
        table: &mut ShardTable,
        partition: i32,
        error: StartError,
        now: Instant,
    ) {
        if table.is_copy(partition) {
            table.end_copy(partition);
            return table.log(Note::Copy { partition, news: CopyNews::Diverged(error) });
        }
        // The second try may replay the other records, and only find that they differ.
        let seen = table.get(partition).and_then(ShardState::open).and_then(|at| at.changed_from);
        let changed_from = error.input_changed_from().into_iter().chain(seen).min();
        self.look_for_owner(table, partition, now);
        if self.rivals.doubt(partition) {
            return self.cannot_go_on(table, partition, error.to_string(), changed_from, now);
        }
        table.log(Note::CannotStart { partition, error });
        table.leave_hot_thread(partition);
        let history = History { changed_from, ..History::begin(error.cause()) };
        table.make_due(partition, now + self.rivals.failing_max(partition), history);
    }

    /// The published updates cannot be made again.
    fn cannot_go_on(
        &mut self,
        table: &mut ShardTable,
        partition: i32,
        why: String,
        changed_from: Option<i64>,
        now: Instant,
    ) {
        if table.is_copy(partition) {
            return table.give_copy_up(partition, why);
        }
        table.leave_hot_thread(partition);
        match self.options.remedy {
            _ if self.rivals.are_suspected(partition, now) => {
                table.halt_unstartable(partition, StartError::Contended);
            }
            Remedy::Refuse => table.halt(partition, why),
            Remedy::StartOver => {
                let before = History::begin(why.clone());
                table.log(Note::StartsOver { partition, why });
                let (starts_over, has_diverged) = (true, true);
                let history = History { starts_over, has_diverged, changed_from, ..before };
                table.make_due(partition, now, history);
            }
        }
    }

    /// Counts that a record panicked the engine, and returns how often it has.
    pub(super) fn count_panic(
        &mut self,
        table: &mut ShardTable,
        partition: i32,
        offset: i64,
    ) -> u32 {
        let panics = self.panics.as_mut().expect("a shard was opened, so they are known");
        let times = panics.add(partition, offset);
        table.actions.push_back(OwnershipAction::KeepPanicCounts(panics.clone()));
        times
    }

    /// The engine panicked at a record. Another attempt may succeed; if none does, this owner and
    /// all later ones pass over the record.
    pub(super) fn panicked(
        &mut self,
        table: &mut ShardTable,
        partition: i32,
        offset: i64,
        times: u32,
        now: Instant,
    ) {
        if times > PANICS_MAX {
            // It should be passed over, but its updates are published already.
            let sentence = format!(
                "the engine fails at offset {offset}, whose updates are published: run the version \
                 that published them, or start over with `huntd run --genesis` \
                 (docs/RUNBOOKS.md#engine-fails)"
            );
            return self.cannot_go_on(table, partition, sentence, None, now);
        }
        table.log(Note::EngineFailed { partition, offset, times });
        table.leave_hot_thread(partition);
        // Fences in vain do not count here: the record is passed over after few.
        let history = History::begin(format!("the engine failed at offset {offset}"));
        table.make_due(partition, now + history.wait(), history);
    }

    /// A shard on the hot thread is dropped, and acquired again in a moment: a longer one each time
    /// that it has just been acquired.
    pub(super) fn acquire_again(
        &mut self,
        table: &mut ShardTable,
        partition: i32,
        why: String,
        now: Instant,
    ) {
        let open = table.get(partition).and_then(ShardState::open);
        let history = open.expect("it is on the hot thread").history(why.clone(), now);
        let wait = history.wait();
        table.log(Note::AcquiresAgain { partition, wait, why });
        table.drop_shard(partition);
        table.make_due(partition, now + wait, history);
    }
}
