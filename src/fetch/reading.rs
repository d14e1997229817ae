//! Reads the responses of a fetch task: where each partition continues, and how errors are handled.
//!
//! An answer that would halt a shard or leave records out counts only after two connections have
//! brought it: bits may flip in transit, and a broker that has just started may be wrong about its
//! log.

use crate::fetch::connection::Response;
use crate::fetch::cursor::{Cursor, CursorFault};
use crate::fetch::decoding::UnreadableBatch;
use crate::fetch::dialling::Endpoint;
use crate::fetch::leadership_claims::LeadershipClaim;
use crate::fetch::task::{AskedPartition, FetchTask, PartitionAnswer, UnconfirmedClaim};
use crate::kafka::error_code::ErrorCode;
use crate::kafka::fetch::{self, EpochEnd, FetchError, FetchRemedy, FetchedPartition};
use crate::kafka::leader_hint::CurrentLeader;
use crate::kafka::message::Broker;
use crate::kafka::record_batch::{self, BatchError, BatchHeader, BatchReason, BatchStart};
use crate::ownership::event::{Claim, InputTrouble, ToControl};
use crate::ownership::start_error::StartError;
use crate::telemetry::metrics::Counter;
use std::iter;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Delay before refetching a partition that its broker cannot serve now.
const RETRY_MS: u64 = 50;

/// Minimum delay between two metadata queries that no change of leaders requires: a leader names a
/// follower, or makes a claim that is not confirmed yet.
const SEARCH_MS: u64 = 1_000;

impl FetchTask {
    /// Reads a response down to the batch headers: records errors, and where each partition
    /// continues. Returns the throttle time in milliseconds.
    pub(super) fn read_response(&mut self, bytes: &[u8]) -> Result<u32, FetchError> {
        self.answers.clear();
        let response = fetch::parse(bytes, self.correlation_id)?;
        self.shared.context.metrics.add(Counter::BytesReceived, bytes.len() as u64);
        if let Some(remedy) = fetch::trouble(response.error) {
            for place in 0..self.asked.len() {
                let cursor = self.asked[place].cursor.clone();
                self.handle_trouble(&cursor, remedy, response.error, None);
            }
            self.follow_hints(iter::empty());
            return Ok(response.throttle_ms);
        }
        let mut partitions = response.partitions;
        let shared = self.shared.clone();
        let topic_id = shared.table.borrow().topic_id();
        let mut place = 0;
        while let Some(part) = partitions.next_partition(bytes, topic_id)? {
            // Brokers answer in the order of the request, so the search is short.
            let asked = self.asked[place..]
                .iter()
                .chain(&self.asked[..place])
                .position(|asked| asked.cursor.partition == part.partition);
            let Some(steps) = asked else { continue };
            place = (place + steps) % self.asked.len();
            let AskedPartition { cursor, offset } = &self.asked[place];
            if cursor.position.get() == *offset {
                let cursor = cursor.clone();
                self.read_part(cursor, part, bytes);
            } else {
                // The data before this part was thrown away, so this part cannot be used.
                cursor.rewind();
            }
        }
        self.follow_hints(partitions.endpoints(bytes));
        Ok(response.throttle_ms)
    }

    /// Applies the leaders named in the response, and their endpoints (KIP-951).
    fn follow_hints(&mut self, endpoints: impl Iterator<Item = Broker>) {
        let mut table = self.shared.table.borrow_mut();
        endpoints.for_each(|broker| table.learn_broker(broker));
        for (cursor, leader) in std::mem::take(&mut self.hints) {
            if table.refused(cursor.partition, self.node_id, leader) {
                cursor.retry_at.set(Some(self.retry_at()));
            }
            self.shared.context.turns.turn_again();
        }
    }

    fn read_part(&mut self, cursor: Rc<Cursor>, part: FetchedPartition, bytes: &[u8]) {
        if let Some(remedy) = fetch::trouble(part.error) {
            self.handle_trouble(&cursor, remedy, part.error, part.leader);
            return;
        }
        if let Some(EpochEnd { end_offset: input_end, .. }) = part.diverging {
            self.diverge(&cursor, input_end);
            return;
        }
        if part.names_follower {
            let (partition, trouble) = (cursor.partition, InputTrouble::FollowerNamed);
            self.shared.report(ToControl::InputTrouble { partition, trouble });
            cursor.retry_at.set(Some(self.search(partition)));
            return;
        }
        let shared = self.shared.clone();
        let progress = shared.context.progress.shard(cursor.partition);
        self.note_end(&cursor, part.high_watermark);
        let (bytes_max, records) = (shared.options.batch_bytes_max, &bytes[part.records.clone()]);
        let (offset, start) = (cursor.position.get(), cursor.batch_start.get());
        if !start.is_known()
            && let Ok(Some(first)) = BatchHeader::read(records, bytes_max)
            && !cursor.confirms_batch_start(first.base_offset)
        {
            return;
        }
        match record_batch::scan_headers(records, offset, start, bytes_max) {
            Ok(scan) if scan.batches > 0 => {
                cursor.run_ahead(&scan);
                progress.fetched.set(scan.next_offset);
                self.answers.push(PartitionAnswer { cursor, part });
            }
            // This part has no whole batch. The next Fetch begins with this partition and gets one.
            Ok(_) if !part.records.is_empty() => cursor.retry_at.set(Some(self.retry_at())),
            // The log ends here, so earlier claims about this position were wrong.
            Ok(_) if part.high_watermark == offset => cursor.trust(),
            Ok(_) => {}
            // The batches before a damaged one are valid and are decoded.
            Err(_) => self.answers.push(PartitionAnswer { cursor, part }),
        }
    }

    /// Records the log's end as reported by the leader.
    fn note_end(&self, cursor: &Cursor, end: i64) {
        let context = &self.shared.context;
        if self.leads(cursor) {
            context.progress.shard(cursor.partition).high_watermark.set(end);
            cursor.end_known_at.set(Some(context.turns.now()));
        }
    }

    /// Asks about the cluster again, at a limited rate. Returns when to ask the leader again.
    fn search(&self, partition: i32) -> Instant {
        let (shared, now) = (&self.shared, self.shared.context.turns.now());
        let next_at = shared.searched_at.get().map(|at| at + Duration::from_millis(SEARCH_MS));
        if let Some(next_at) = next_at.filter(|next_at| *next_at > now) {
            return next_at;
        }
        shared.searched_at.set(Some(now));
        shared.table.borrow_mut().mark_stale(partition, self.node_id);
        self.retry_at()
    }

    fn handle_trouble(
        &mut self,
        cursor: &Rc<Cursor>,
        remedy: FetchRemedy,
        error: ErrorCode,
        leader: Option<CurrentLeader>,
    ) {
        let (partition, position) = (cursor.partition, cursor.position.get());
        self.shared.context.metrics.fetch_errors.add(partition, error.place(), 1);
        let trouble = InputTrouble::FetchRefused(error);
        self.shared.report(ToControl::InputTrouble { partition, trouble });
        // After its first refusal, a ListOffsets request has to find the log's end.
        let now = self.shared.context.turns.now();
        cursor.end_known_at.set(cursor.end_known_at.get().or(Some(now)));
        cursor.rewind();
        match remedy {
            FetchRemedy::RetryLater => cursor.retry_at.set(Some(self.retry_at())),
            FetchRemedy::RefreshMetadata => self.hints.push((cursor.clone(), leader)),
            FetchRemedy::OffsetOutOfRange => {
                let sentence =
                    format!("offset {position} of input partition {partition} is not in its log");
                if self.believes(cursor, Claim::OutOfRange, sentence) {
                    self.out_of_range.push(cursor.clone());
                }
            }
            FetchRemedy::Fatal => {
                let sentence = format!(
                    "input partition {partition} cannot be fetched at offset {position}: {error}"
                );
                self.stop(cursor, Claim::Refused(error), CursorFault::Unreadable(sentence));
            }
        }
    }

    /// Handles a leader whose log is not the one that was read.
    fn diverge(&mut self, cursor: &Cursor, input_end: i64) {
        let applied = cursor.position.get();
        let error = StartError::InputDiverged { applied, input_end };
        self.stop(cursor, Claim::Truncated, CursorFault::Diverged(error));
    }

    /// Stops the shard, if another connection has confirmed the claim.
    pub(super) fn stop(&mut self, cursor: &Cursor, claim: Claim, fault: CursorFault) {
        let sentence = match &fault {
            CursorFault::Unreadable(sentence) => sentence.clone(),
            CursorFault::Diverged(error) => {
                format!("input partition {}: {error}", cursor.partition)
            }
        };
        if self.believes(cursor, claim, sentence) {
            cursor.stop(fault);
        }
    }

    /// Returns whether another connection has made an equal claim about the position, after another
    /// broker was asked who leads, if the claim is a leader's. If not, another connection is asked.
    fn believes(&mut self, cursor: &Cursor, claim: Claim, sentence: String) -> bool {
        if claim.is_of_leader() && self.holds(cursor, claim, &sentence) {
            return false;
        }
        let is_confirmed = cursor.is_confirmed(claim, &sentence, (self.node_id, self.connection));
        if !is_confirmed {
            cursor.rewind();
            if claim.is_of_leader() {
                self.shared.leadership_claims.add(self.leadership_claim(cursor));
            }
            self.doubt = Some(UnconfirmedClaim { partition: cursor.partition, claim, sentence });
        }
        is_confirmed
    }

    fn leadership_claim(&self, cursor: &Cursor) -> LeadershipClaim {
        LeadershipClaim { node_id: self.node_id, partition: cursor.partition }
    }

    /// Holds a partition whose broker may be cut off and no longer lead: more connections to that
    /// broker could not confirm its claim.
    fn holds(&self, cursor: &Cursor, claim: Claim, sentence: &str) -> bool {
        let (shared, partition) = (&self.shared, cursor.partition);
        let why = match cursor.epoch_beyond_leader() {
            Some((epoch, leader_epoch)) => format!(
                "it leads with leader epoch {leader_epoch}, but the previous record has leader \
                 epoch {epoch}: waiting for another leader; if the brokers' disks were restored, \
                 start over with `huntd run --genesis`"
            ),
            None if shared.is_unconfirmed(self.leadership_claim(cursor)) => {
                "confirming with another broker who leads".to_owned()
            }
            None => return false,
        };
        let broker = shared.table.borrow().broker(self.node_id).map(Endpoint::of);
        let who = broker.map_or_else(String::new, |broker| format!("broker {broker}: "));
        cursor.rewind();
        cursor.retry_at.set(Some(self.search(partition)));
        let trouble = InputTrouble::Doubted(claim, format!("{who}{sentence}: {why}"));
        shared.report(ToControl::InputTrouble { partition, trouble });
        shared.context.turns.turn_again();
        true
    }

    /// Handles a batch that begins later than expected. Kafka itself skips no offset, but records
    /// may be missing: another connection has to find the batch at the same offset.
    fn meet_gap(&mut self, cursor: &Cursor, error: BatchError, expected: i64) {
        let (partition, offset) = (cursor.partition, error.offset);
        let sentence = format!(
            "input partition {partition} continues at offset {offset} instead of {expected}"
        );
        if !self.believes(cursor, Claim::Gap, sentence.clone()) {
            return;
        }
        cursor.batch_start.set(BatchStart::at(offset));
        cursor.rewind();
        let trouble = InputTrouble::RecordsGone(sentence);
        self.shared.report(ToControl::InputTrouble { partition, trouble });
    }

    /// Handles a batch that cannot be read: it stops its shard. An operator can skip it; see
    /// decision 039.
    async fn meet_unreadable(&mut self, cursor: &Cursor, batch: UnreadableBatch) {
        let (partition, position) = (cursor.partition, cursor.position.get());
        let UnreadableBatch { error, offsets } = batch;
        if let BatchReason::Gap { expected } = error.reason {
            return self.meet_gap(cursor, error, expected);
        }
        let sentence = format!(
            "input partition {partition} cannot be read beyond offset {position}: {error}; \
             nothing was skipped (docs/RUNBOOKS.md#batch-unreadable)"
        );
        let Some(offsets) = offsets else {
            return self.stop(cursor, Claim::Unreadable, CursorFault::Unreadable(sentence));
        };
        let (first, last) = (offsets.start(), offsets.end());
        if !cursor.skips_any_of(&offsets) {
            let sentence = format!(
                "{sentence}; if nobody can restore it, `huntd run --skip {partition}:{first}` \
                 skips the offsets {first} to {last}"
            );
            return self.stop(cursor, Claim::Unreadable, CursorFault::Unreadable(sentence));
        }
        // Bits that flip in transit seldom flip twice alike. The next owner reads the batch again,
        // and its replay would diverge if the batch were valid.
        if !self.believes(cursor, Claim::Unreadable, sentence) {
            return;
        }
        let sentence = format!("the offsets {first} to {last} are skipped: {error}");
        if self.decoding.pass_over(cursor, &offsets, &sentence).await {
            let trouble = InputTrouble::BatchPassedOver(sentence);
            self.shared.report(ToControl::InputTrouble { partition, trouble });
        }
    }

    pub(super) fn retry_at(&self) -> Instant {
        self.shared.context.turns.now() + Duration::from_millis(RETRY_MS)
    }

    /// Decodes the records in the response.
    pub(super) async fn decode(&mut self, response: &mut Response) {
        self.decoding.received(response.received_at());
        let bytes = response.bytes();
        let mut answers = std::mem::take(&mut self.answers);
        for PartitionAnswer { cursor, part } in answers.drain(..) {
            self.aborted.load(part.aborted.iter(bytes));
            let records = &mut bytes[part.records.clone()];
            let decoded = self.decoding.decode(&cursor, records, &mut self.aborted).await;
            if let Err(batch) = decoded {
                self.meet_unreadable(&cursor, batch).await;
            }
        }
        self.answers = answers;
    }
}
