//! The output topic as a control thread reads it and appends to it: late, twice, or not at all.

use crate::answers::OUTPUT_TOPIC;
use crate::broker::OutputLog;
use crate::chance::{Fault, Sight};
use crate::line::{Lane, Late, Sent, append};
use crate::mutation::Mutation;
use crate::stranger::EPOCH_STEP_MAX;
use crate::surroundings::Surroundings;
use huntd::control::output_log::FENCE_MS_MAX;
use huntd::hunt::frames::{decode_frame, encode};
use huntd::kafka::right::Right;
use huntd::kafka::topic_error::TopicError;
use huntd::output::frame::{Format, FrameHeader, FrameKind};
use huntd::ownership::event::OutputEvent;
use std::collections::{BTreeMap, BTreeSet};

/// The partitions that are read and appended to.
pub(crate) struct Output {
    readers: BTreeMap<i32, Reader>,
    appends: BTreeMap<i32, Append>,
    /// Where each output ended before the last append, and where the daemon's own frames stand: for
    /// the mutation that reads nothing else after its fence.
    own: BTreeMap<i32, (i64, Vec<i64>)>,
    /// Partitions whose reading has failed, and that nobody has given up since.
    pub(crate) failed: BTreeSet<i32>,
    /// Fences since the shard was opened last.
    fences: BTreeMap<i32, usize>,
    /// The last fence of each partition.
    own_fences: BTreeMap<i32, FrameHeader>,
    /// Notes that are on their way.
    notes: Vec<(i32, Append)>,
    /// The partitions in which a probe has landed since they were taken over last.
    pub(crate) probed: BTreeSet<i32>,
    mutation: Mutation,
}

/// A partition that is read.
struct Reader {
    next: i64,
    /// The end was reached and reported.
    is_at_end: bool,
}

/// A frame that is being appended.
enum Append {
    Flying { lands_at: u64, sent: Sent, fails: bool },
    Told { at: u64, offset: Option<i64> },
}

/// Something that happened to a partition.
pub(crate) enum Happened {
    Record { partition: i32, offset: i64, payload: Vec<u8> },
    Other(OutputEvent<'static>),
}

impl Happened {
    pub(crate) fn event(&self) -> OutputEvent<'_> {
        match self {
            Happened::Record { partition, offset, payload } => {
                OutputEvent::Record { partition: *partition, offset: *offset, payload }
            }
            Happened::Other(event) => event.clone(),
        }
    }
}

impl Happened {
    pub(crate) fn is_failure(&self) -> bool {
        matches!(self, Happened::Other(OutputEvent::Failed(_)))
    }
}

impl Output {
    pub(crate) fn new(mutation: Mutation) -> Output {
        let (readers, appends) = (BTreeMap::new(), BTreeMap::new());
        let (own, failed, fences) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        let own_fences = BTreeMap::new();
        let (notes, probed) = (Vec::new(), BTreeSet::new());
        Output { readers, appends, own, failed, fences, own_fences, notes, probed, mutation }
    }

    pub(crate) fn read(&mut self, partition: i32, from: i64) {
        self.readers.insert(partition, Reader { next: from, is_at_end: false });
    }

    pub(crate) fn forget(&mut self, partition: i32) {
        self.readers.remove(&partition);
        self.appends.remove(&partition);
        self.failed.remove(&partition);
    }

    /// A shard was opened: from now on, reading its output means checking a foreign span.
    pub(crate) fn opened(&mut self, partition: i32) {
        self.fences.remove(&partition);
        self.own.remove(&partition);
    }

    /// Whether something is left to be read.
    pub(crate) fn is_behind(&self, around: &Surroundings<'_>) -> bool {
        let end = |partition: i32| around.broker.outputs[partition as usize].end();
        self.readers.iter().any(|(partition, reader)| reader.next < end(*partition))
    }

    /// The process is gone. What was about to be appended may still be appended.
    pub(crate) fn die(self, late: &mut Vec<Late>) {
        for append in self.appends.into_values() {
            if let Append::Flying { lands_at, sent, fails: false } = append {
                late.push(Late::record(lands_at, sent));
            }
        }
    }

    /// Reads some records of each partition, in their order, and lets appends land.
    pub(crate) fn turn(&mut self, around: &mut Surroundings<'_>) -> Vec<Happened> {
        let mut happened = Vec::new();
        for partition in self.readers.keys().copied().collect::<Vec<i32>>() {
            self.read_some(around, partition, &mut happened);
        }
        for partition in self.appends.keys().copied().collect::<Vec<i32>>() {
            happened.extend(self.go_on_appending(around, partition).map(Happened::Other));
        }
        happened.extend(self.go_on_noting(around).into_iter().map(Happened::Other));
        happened.extend(self.fail(around).map(OutputEvent::Failed).map(Happened::Other));
        happened
    }

    /// The topic cannot be read now, or may not be read at all.
    fn fail(&mut self, around: &mut Surroundings<'_>) -> Option<TopicError> {
        if self.readers.is_empty() {
            return None;
        }
        let error = if around.chance.strikes(Fault::OutputUnreachable) {
            TopicError::Unreachable("the broker does not know the topic now".to_owned())
        } else if around.chance.strikes(Fault::OutputForbidden) {
            TopicError::NotAuthorised { topic: OUTPUT_TOPIC.to_owned(), right: Right::Read }
        } else {
            return None;
        };
        self.failed.extend(self.readers.keys());
        Some(error)
    }

    fn read_some(
        &mut self,
        around: &mut Surroundings<'_>,
        partition: i32,
        happened: &mut Vec<Happened>,
    ) {
        let log = &around.broker.outputs[partition as usize];
        let from = self.readers[&partition].next;
        if !(log.start..=log.end()).contains(&from) {
            self.readers.remove(&partition);
            let error = TopicError::NotNow("the offset is not in the log".to_owned());
            let failed = OutputEvent::RequestFailed { partition, error };
            return happened.push(Happened::Other(failed));
        }
        let end = log.end().min(from + around.chance.between(1, 200) as i64);
        for offset in from..end {
            if !self.hides(partition, offset) {
                let payload = self.taken(log, partition, offset);
                happened.push(Happened::Record { partition, offset, payload });
            }
        }
        // As librdkafka reports it: only if nothing came.
        let is_at_end = from == log.end();
        // A leader that is cut off has an earlier one than the leader that was surveyed.
        let is_told_early = !is_at_end && around.chance.strikes_of(Fault::EndEarly, 500);
        let reader = self.readers.get_mut(&partition).expect("just looked at");
        let was_at_end = reader.is_at_end;
        *reader = Reader { next: end, is_at_end };
        if is_told_early || (is_at_end && !was_at_end) {
            happened.push(Happened::Other(OutputEvent::End { partition }));
        }
    }

    /// The record, as a daemon takes it.
    fn taken(&self, log: &OutputLog, partition: i32, offset: i64) -> Vec<u8> {
        let payload = log.records[offset as usize].clone();
        if self.mutation == Mutation::SecondFenceTaken
            && let Some(own) = self.own_fences.get(&partition)
            && decode_frame(&payload).is_ok_and(|(header, _)| is_bid_for(&header, own.owner_epoch))
        {
            let mut bytes = Vec::new();
            encode(Format::Binary, own, &[], &mut bytes);
            return bytes;
        }
        if self.mutation != Mutation::EpochOfNoOwnerTaken {
            return payload;
        }
        let header = |bytes: &Vec<u8>| decode_frame(bytes).expect("a frame").0;
        let mut taken = header(&payload);
        let before = log.records[..offset as usize].iter().map(|bytes| header(bytes).owner_epoch);
        let before = before.filter(|epoch| *epoch < EPOCH_STEP_MAX).max().unwrap_or(0);
        if taken.owner_epoch <= before + EPOCH_STEP_MAX {
            return payload;
        }
        taken.owner_epoch = before + EPOCH_STEP_MAX;
        let mut bytes = Vec::new();
        encode(Format::Binary, &taken, &[], &mut bytes);
        bytes
    }

    /// Whether the mutation that reads nothing after its fence leaves a record out.
    fn hides(&self, partition: i32, offset: i64) -> bool {
        let is_foreign = |(read_before, appended): &(i64, Vec<i64>)| {
            offset >= *read_before && !appended.contains(&offset)
        };
        self.mutation == Mutation::TailBeforeFence
            && self.own.get(&partition).is_some_and(is_foreign)
    }

    pub(crate) fn append(
        &mut self,
        around: &mut Surroundings<'_>,
        partition: i32,
        header: &FrameHeader,
    ) {
        if header.kind == FrameKind::Fence {
            self.own_fences.insert(partition, *header);
            let fences = self.fences.entry(partition).or_default();
            *fences += 1;
            if *fences == 2 {
                around.chance.see(Sight::FenceContended);
            }
        }
        let end = around.broker.outputs[partition as usize].end();
        self.own.entry(partition).or_default().0 = end;
        let mut bytes = Vec::new();
        encode(Format::Binary, header, &[], &mut bytes);
        let mut lands_at = around.now + around.chance.delay_us();
        if around.chance.one_in(2) {
            lands_at += around.chance.between(0, 300_000);
        }
        let fails = around.chance.strikes_of(Fault::FenceFails, 5);
        let sent = Sent { id: 0, lane: Lane::Output(partition), bytes, alone: 0 };
        self.appends.insert(partition, Append::Flying { lands_at, sent, fails });
    }

    pub(crate) fn append_note(
        &mut self,
        around: &mut Surroundings<'_>,
        partition: i32,
        header: &FrameHeader,
    ) {
        if self.mutation == Mutation::ProbeSkipped {
            let told = Append::Told { at: around.now, offset: Some(-1) };
            return self.notes.push((partition, told));
        }
        let mut bytes = Vec::new();
        encode(Format::Binary, header, &[], &mut bytes);
        let mut lands_at = around.now + note_delay_us(around);
        if around.chance.strikes_of(Fault::NoteLate, 20) {
            lands_at += around.chance.between(0, 3_000_000);
        }
        let fails = around.chance.strikes_of(Fault::NoteLost, 20);
        let sent = Sent { id: 0, lane: Lane::Output(partition), bytes, alone: 0 };
        self.notes.push((partition, Append::Flying { lands_at, sent, fails }));
    }

    fn go_on_noting(&mut self, around: &mut Surroundings<'_>) -> Vec<OutputEvent<'static>> {
        let mut told = Vec::new();
        for (partition, note) in std::mem::take(&mut self.notes) {
            let is_due = match &note {
                Append::Flying { lands_at: at, .. } | Append::Told { at, .. } => *at <= around.now,
            };
            match note {
                Append::Flying { sent, fails, .. } if is_due => {
                    let offset = (!fails).then(|| append(around.broker, &sent, around.now));
                    let wait = match offset {
                        Some(_) => note_delay_us(around),
                        None => FENCE_MS_MAX * 1000,
                    };
                    let at = around.now + wait;
                    self.notes.push((partition, Append::Told { at, offset }));
                }
                Append::Told { offset, .. } if is_due => {
                    if offset.is_some_and(|offset| offset >= 0) {
                        self.probed.insert(partition);
                    }
                    let is_told = self.mutation != Mutation::ProbeUnanswered;
                    let offset = offset.filter(|_| is_told);
                    told.push(OutputEvent::Noted { partition, offset });
                }
                waits => self.notes.push((partition, waits)),
            }
        }
        told
    }

    fn go_on_appending(
        &mut self,
        around: &mut Surroundings<'_>,
        partition: i32,
    ) -> Option<OutputEvent<'static>> {
        match &self.appends[&partition] {
            Append::Flying { lands_at, sent, fails } if *lands_at <= around.now => {
                let mut offset = None;
                if !*fails {
                    offset = Some(append(around.broker, sent, around.now));
                    if around.chance.strikes_of(Fault::FenceTwice, 5) {
                        append(around.broker, sent, around.now);
                    }
                }
                if around.chance.strikes_of(Fault::FenceAckLost, 5) {
                    offset = None;
                }
                let wait = match offset {
                    Some(_) => around.chance.delay_us(),
                    None => FENCE_MS_MAX * 1000,
                };
                let told = Append::Told { at: around.now + wait, offset };
                self.appends.insert(partition, told);
                None
            }
            Append::Told { at, offset } if *at <= around.now => {
                let offset = *offset;
                self.appends.remove(&partition);
                Some(match offset {
                    Some(offset) => {
                        self.own.entry(partition).or_default().1.push(offset);
                        OutputEvent::Appended { partition, offset }
                    }
                    None => {
                        let error = TopicError::Unreachable("nobody knows".to_owned());
                        OutputEvent::RequestFailed { partition, error }
                    }
                })
            }
            _ => None,
        }
    }
}

/// Whether this is the fence of somebody who wants this owner epoch.
fn is_bid_for(header: &FrameHeader, owner_epoch: u64) -> bool {
    header.kind == FrameKind::Fence && header.next_offset < 0 && header.owner_epoch == owner_epoch
}

/// Microseconds until a note is in the log, or until its answer is there.
fn note_delay_us(around: &mut Surroundings<'_>) -> u64 {
    let delay_us = around.chance.delay_us();
    if around.broker.answers_notes_at_once { 0 } else { delay_us }
}
