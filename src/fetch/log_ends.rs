//! ListOffsets requests of a fetch task, on its own connection. They supply the lag of partitions
//! that are not being fetched, and the reason why an offset is out of range.

use crate::fetch::connection::ConnectionError;
use crate::fetch::cursor::{Cursor, CursorState};
use crate::fetch::stage::SharedFetch;
use crate::fetch::task::{BrokerLink, FetchTask};
use crate::kafka::RECONNECT_MS_MAX;
use crate::kafka::list_offsets::{self, LogEnd, Offsets};
use std::time::{Duration, Instant};

/// Milliseconds between two questions for the end of a partition that is left out of Fetches.
pub(super) const ENDS_EVERY_MS: u64 = 1_000;

/// Milliseconds for which an answer about a log's end is valid, in addition to the Fetch wait. It
/// allows for several questions, so that one slow answer does not matter.
const END_AGE_MS_MAX: u64 = 5_000;

/// Correlation id of a ListOffsets request. Fetches never use it, because their ids count up.
const ENDS_ID: i32 = -2;

/// An unknown log end.
const END_UNKNOWN: i64 = -1;

impl SharedFetch {
    /// Marks a log's end as unknown if no broker has confirmed it recently: the log may have grown.
    pub(super) fn forget_old_ends(&self) {
        let now = self.context.turns.now();
        let wait_ms = u64::from(self.options.fetch_wait_ms_max);
        let age_max = Duration::from_millis(END_AGE_MS_MAX + wait_ms);
        let is_old = |at: Instant| now.saturating_duration_since(at) > age_max;
        self.forget_ends(|cursor| cursor.end_known_at.get().is_some_and(is_old));
    }

    fn forget_ends(&self, is_unknown: impl Fn(&Cursor) -> bool) {
        self.cursors.each(|cursor| {
            if is_unknown(cursor) {
                let progress = self.context.progress.shard(cursor.partition);
                progress.high_watermark.set(END_UNKNOWN);
            }
        });
    }
}

impl FetchTask {
    /// Returns whether this task has to ask for the end of a partition's log: it fetches from the
    /// leader, and the known end is out of date because the partition is left out of Fetches (its
    /// shard is stalled, or the broker does not serve it).
    pub(super) fn has_old_ends(&self) -> bool {
        let turns = &self.shared.context.turns;
        let mut has_old = false;
        self.shared.cursors.each(|cursor| {
            if cursor.state.get() != CursorState::Closed && self.leads(cursor) {
                match ends_due_at(cursor) {
                    Some(at) if at > turns.now() => turns.turn_at(at),
                    Some(_) => has_old = true,
                    // The first Fetch of the partition will report it.
                    None => {}
                }
            }
        });
        has_old
    }

    /// Asks for the log ends that are out of date, to keep the lag correct.
    pub(super) async fn ask_ends(&mut self, link: &mut BrokerLink) -> Result<(), ConnectionError> {
        if !self.has_old_ends() {
            return Ok(());
        }
        let now = self.shared.context.turns.now();
        let (mut partitions, mut offsets) = std::mem::take(&mut self.asked_ends);
        partitions.clear();
        self.shared.cursors.each(|cursor| {
            if self.leads(cursor) && ends_due_at(cursor).is_some_and(|at| at <= now) {
                partitions.push(cursor.partition);
            }
        });
        self.ask_offsets(link, &partitions, LogEnd::Latest, &mut offsets).await?;
        self.shared.cursors.each(|cursor| {
            if partitions.contains(&cursor.partition) {
                cursor.end_known_at.set(Some(now));
                let end = offset_of(&offsets, cursor.partition).unwrap_or(END_UNKNOWN);
                self.shared.context.progress.shard(cursor.partition).high_watermark.set(end);
            }
        });
        self.asked_ends = (partitions, offsets);
        Ok(())
    }

    /// Forgets the ends of this connection's logs: they are unknown until another connection
    /// replaces it.
    pub(super) fn forget_ends(&self) {
        self.shared.forget_ends(|cursor| self.leads(cursor));
    }

    /// Finds out why offsets are out of range. Each shard halts with the reason, or continues if
    /// its offset is in the log after all.
    pub(super) async fn find_bounds(
        &mut self,
        link: &mut BrokerLink,
    ) -> Result<(), ConnectionError> {
        while let Some(cursor) = self.out_of_range.pop() {
            let (partition, position) = (cursor.partition, cursor.position.get());
            let (mut first, mut end) = (Offsets::new(), Offsets::new());
            self.ask_offsets(link, &[partition], LogEnd::Earliest, &mut first).await?;
            self.ask_offsets(link, &[partition], LogEnd::Latest, &mut end).await?;
            match (offset_of(&first, partition), offset_of(&end, partition)) {
                (Some(first), _) if position < first => cursor.fail(format!(
                    "retention has passed offset {position} of input partition {partition}, whose \
                     log begins at {first} now: raise retention.ms, and start over with `huntd run \
                     --genesis` (docs/RUNBOOKS.md#input-begins-late)"
                )),
                (_, Some(end)) if position > end => cursor.fail(format!(
                    "the log of input partition {partition} ends at {end}, below offset {position} \
                     that is applied already: an unclean election lost records; restore them, or \
                     start over with `huntd run --genesis` (docs/RUNBOOKS.md#input-ends-early)"
                )),
                // The offset is in the log, or the broker does not know its log yet.
                _ => {
                    cursor.trust();
                    let now = self.shared.context.turns.now();
                    cursor.retry_at.set(Some(now + Duration::from_millis(RECONNECT_MS_MAX)));
                }
            }
        }
        Ok(())
    }

    async fn ask_offsets(
        &mut self,
        link: &mut BrokerLink,
        partitions: &[i32],
        end: LogEnd,
        offsets: &mut Offsets,
    ) -> Result<(), ConnectionError> {
        let mut request = std::mem::take(&mut self.request);
        let shared = &self.shared;
        let (deadline, connection) = (link.deadline(shared), &mut link.connection);
        let topic = &shared.options.input_topic;
        request.clear();
        let envelope = shared.envelope(list_offsets::LIST_OFFSETS_VERSION, ENDS_ID);
        list_offsets::request(envelope, topic, partitions, end, &mut request);
        self.request = connection.send(request, deadline).await?;
        let mut response = connection.receive(deadline).await?;
        let parsed = list_offsets::parse(response.bytes(), ENDS_ID, topic, offsets);
        connection.give_back(response);
        parsed.map_err(|error| connection.protocol(error))
    }
}

fn ends_due_at(cursor: &Cursor) -> Option<Instant> {
    let known_at = cursor.end_known_at.get()?;
    Some(known_at + Duration::from_millis(ENDS_EVERY_MS))
}

fn offset_of(offsets: &Offsets, partition: i32) -> Option<i64> {
    offsets.iter().find(|(of, _)| *of == partition)?.1.ok()
}
