//! ListOffsets requests of a fetch task, on its own connection. They supply the lag of partitions
//! that are not being fetched, and the reason why an offset is out of range.

use crate::fetch::connection::ConnectionError;
use crate::fetch::cursor::{Cursor, CursorState};
use crate::fetch::stage::SharedFetch;
use crate::fetch::task::{BrokerLink, FetchTask};
use crate::kafka::RECONNECT_MS_MAX;
use crate::kafka::list_offsets::{self, LogEnd};
use std::rc::Rc;
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

type EndsByPartition = Vec<(i32, Option<i64>)>;

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
        let mut cursors: Vec<Rc<Cursor>> = Vec::new();
        self.shared.cursors.each(|cursor| {
            if self.leads(cursor) && ends_due_at(cursor).is_some_and(|at| at <= now) {
                cursors.push(cursor.clone());
            }
        });
        let partitions: Vec<i32> = cursors.iter().map(|cursor| cursor.partition).collect();
        let ends = self.ask_offsets(link, &partitions, LogEnd::Latest).await?;
        for cursor in cursors {
            cursor.end_known_at.set(Some(now));
            let end = offset_of(&ends, cursor.partition).unwrap_or(END_UNKNOWN);
            self.shared.context.progress.shard(cursor.partition).high_watermark.set(end);
        }
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
            let first = self.ask_offsets(link, &[partition], LogEnd::Earliest).await?;
            let end = self.ask_offsets(link, &[partition], LogEnd::Latest).await?;
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
        &self,
        link: &mut BrokerLink,
        partitions: &[i32],
        end: LogEnd,
    ) -> Result<EndsByPartition, ConnectionError> {
        let shared = &self.shared;
        let (deadline, connection) = (link.deadline(shared), &mut link.connection);
        let topic = &shared.options.input_topic;
        let mut request = Vec::new();
        let envelope = shared.envelope(list_offsets::LIST_OFFSETS_VERSION, ENDS_ID);
        list_offsets::request(envelope, topic, partitions, end, &mut request);
        connection.send(request, deadline).await?;
        let mut response = connection.receive(deadline).await?;
        let offsets = list_offsets::parse(response.bytes(), ENDS_ID, topic);
        connection.give_back(response);
        let offsets = offsets.map_err(|error| connection.protocol(error))?;
        Ok(offsets.into_iter().map(|(partition, offset)| (partition, offset.ok())).collect())
    }
}

fn ends_due_at(cursor: &Cursor) -> Option<Instant> {
    let known_at = cursor.end_known_at.get()?;
    Some(known_at + Duration::from_millis(ENDS_EVERY_MS))
}

fn offset_of(offsets: &EndsByPartition, partition: i32) -> Option<i64> {
    offsets.iter().find(|(of, _)| *of == partition)?.1
}
