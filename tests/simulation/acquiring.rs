//! What is done at one output partition: the decisions of an acquisition or a bridge, and a log
//! that answers late, twice, or not at all.

use crate::chance::{Fault, Sight};
use crate::line::{Lane, Late, Sent, append};
use crate::mutation::Mutation;
use crate::surroundings::{Place, Surroundings};
use huntd::control::output_log::FENCE_MS_MAX;
use huntd::output::encode::encode;
use huntd::output::frame::{Format, FrameHeader, FrameKind};
use huntd::ownership::ANSWER_MS_MAX;
use huntd::ownership::acquisition::{Acquired, Acquisition, Need};
use huntd::ownership::gap_check::{Gap, GapCheck, GapResult};
use huntd::ownership::start_error::StartError;
use std::collections::BTreeSet;

/// What became of it.
pub(crate) enum Outcome {
    Acquired(Box<Acquired>),
    Refused(StartError),
    /// The brokers or the group did not answer as they should have.
    Failed,
    Crossed(Box<(Gap, GapResult)>),
}

enum Errand {
    Acquire(Box<Acquisition>),
    Bridge(Box<GapCheck>),
    Ended,
}

/// What the errand waits for.
enum Waiting {
    Nothing,
    /// The group's answer comes at this time; `None`: it never comes.
    Answer {
        at: u64,
        is_lost: bool,
    },
    /// A frame lands, and later that is told.
    Append {
        lands_at: u64,
        sent: Sent,
        fails: bool,
    },
    Told {
        at: u64,
        offset: Option<i64>,
    },
}

/// One errand at one partition.
pub(crate) struct Work {
    errand: Errand,
    waiting: Waiting,
    /// The states that the acquisition was told of.
    pub(crate) places: Vec<Place>,
    /// For the mutation that reads nothing after its fence: what it had read by then, and where its
    /// own frames stand.
    read_before: i64,
    appended: Vec<i64>,
    fences: usize,
}

impl Work {
    pub(crate) fn acquire(acquisition: Acquisition, places: Vec<Place>) -> Work {
        Work::new(Errand::Acquire(Box::new(acquisition)), places)
    }

    pub(crate) fn bridge(bridge: GapCheck) -> Work {
        Work::new(Errand::Bridge(Box::new(bridge)), Vec::new())
    }

    fn new(errand: Errand, places: Vec<Place>) -> Work {
        Work {
            errand,
            waiting: Waiting::Nothing,
            places,
            read_before: i64::MAX,
            appended: Vec::new(),
            fences: 0,
        }
    }

    /// Goes on. Something comes of it once.
    pub(crate) fn turn(
        &mut self,
        around: &mut Surroundings<'_>,
        node: u64,
        damaged: &BTreeSet<u64>,
        mutation: Mutation,
    ) -> Option<Outcome> {
        match &mut self.errand {
            Errand::Bridge(bridge) => {
                let (partition, mut next) = (bridge.jump.partition, bridge.next());
                let log = &around.broker.outputs[partition as usize];
                let end = log.end().min(next + around.chance.between(1, 40) as i64);
                while next < end {
                    bridge.take(next, &log.records[next as usize]);
                    next += 1;
                }
                bridge.result().map(|crossed| Outcome::Crossed(Box::new((bridge.jump, crossed))))
            }
            Errand::Acquire(_) => self.go_on(around, node, damaged, mutation),
            Errand::Ended => unreachable!("something comes of it once"),
        }
    }

    fn go_on(
        &mut self,
        around: &mut Surroundings<'_>,
        node: u64,
        damaged: &BTreeSet<u64>,
        mutation: Mutation,
    ) -> Option<Outcome> {
        let Errand::Acquire(acquisition) = &mut self.errand else { unreachable!("not a bridge") };
        let partition = acquisition.partition();
        match (acquisition.wish(), &mut self.waiting) {
            (Need::End, _) => {}
            (Need::Read { from }, _) => {
                let own = (mutation == Mutation::TailBeforeFence)
                    .then_some((self.read_before, &self.appended[..]));
                if let Some(failed) = read(around, acquisition, from, own) {
                    return Some(failed);
                }
            }
            (Need::States, _) => {
                self.places = around.everywhere(partition, damaged);
                acquisition
                    .offer(self.places.iter().map(|place| place.candidate(mutation)).collect());
            }
            (Need::Confirm { .. }, Waiting::Answer { at, is_lost }) => {
                if around.now < *at {
                    return None;
                }
                if *is_lost || !around.group.counts_in(node, partition) {
                    return Some(Outcome::Failed);
                }
                self.waiting = Waiting::Nothing;
                let id = u128::from(around.chance.next()) << 64 | u128::from(around.chance.next());
                acquisition.confirm(id.max(1));
            }
            (Need::Confirm { .. }, _) => {
                let is_lost = around.chance.strikes_of(Fault::AnswerLost, 5);
                let refused = around.chance.strikes_of(Fault::NotCounted, 5);
                let wait = if is_lost { ANSWER_MS_MAX * 1000 } else { around.chance.delay_us() };
                let at = around.now + wait;
                self.waiting = Waiting::Answer { at, is_lost: is_lost || refused };
            }
            (Need::Append(header), Waiting::Nothing) => {
                self.fences += usize::from(header.kind == FrameKind::Fence);
                if self.fences == 2 {
                    around.chance.see(Sight::FenceContended);
                }
                self.read_before = around.broker.outputs[partition as usize].end();
                self.waiting = begin_append(around, partition, &header);
            }
            (Need::Append(_), waiting) => {
                return go_on_appending(around, acquisition, waiting, &mut self.appended);
            }
        }
        self.end()
    }

    fn end(&mut self) -> Option<Outcome> {
        let Errand::Acquire(acquisition) = &self.errand else { return None };
        if acquisition.wish() != Need::End {
            return None;
        }
        let Errand::Acquire(acquisition) = std::mem::replace(&mut self.errand, Errand::Ended)
        else {
            unreachable!("just looked at");
        };
        Some(match acquisition.into_outcome() {
            Ok(acquired) => Outcome::Acquired(Box::new(acquired)),
            Err(refusal) => Outcome::Refused(refusal),
        })
    }

    /// The daemon has died: what was about to land may land all the same.
    pub(crate) fn die(self, late: &mut Vec<Late>) {
        if let Waiting::Append { lands_at, sent, fails: false } = self.waiting {
            late.push(Late { at: lands_at, sent });
        }
    }
}

/// Reads some records of the output, in their order; with `own` no others than those from before
/// the fence and the daemon's own.
fn read(
    around: &mut Surroundings<'_>,
    acquisition: &mut Acquisition,
    from: i64,
    own: Option<(i64, &[i64])>,
) -> Option<Outcome> {
    let log = &around.broker.outputs[acquisition.partition() as usize];
    if !(log.start..=log.end()).contains(&from) {
        // The log is not what it was: its bounds have to be asked for again.
        return Some(Outcome::Failed);
    }
    let end = log.end().min(from + around.chance.between(1, 200) as i64);
    for offset in from..end {
        let is_read = own.is_none_or(|(read_before, appended)| {
            offset < read_before || appended.contains(&offset)
        });
        if is_read {
            acquisition.take(offset, &log.records[offset as usize]);
        }
    }
    if end == log.end() {
        acquisition.reach_end();
    }
    None
}

fn begin_append(around: &mut Surroundings<'_>, partition: i32, header: &FrameHeader) -> Waiting {
    let mut bytes = Vec::new();
    encode(Format::Binary, header, &[], &mut bytes);
    let mut lands_at = around.now + around.chance.delay_us();
    if around.chance.one_in(2) {
        lands_at += around.chance.between(0, 300_000);
    }
    let fails = around.chance.strikes_of(Fault::FenceFails, 5);
    let sent = Sent { id: 0, lane: Lane::Output(partition), bytes, alone: 0 };
    Waiting::Append { lands_at, sent, fails }
}

fn go_on_appending(
    around: &mut Surroundings<'_>,
    acquisition: &mut Acquisition,
    waiting: &mut Waiting,
    appended: &mut Vec<i64>,
) -> Option<Outcome> {
    match waiting {
        Waiting::Append { lands_at, sent, fails } if *lands_at <= around.now => {
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
            *waiting = Waiting::Told { at: around.now + wait, offset };
            None
        }
        Waiting::Told { at, offset } if *at <= around.now => {
            let Some(offset) = *offset else { return Some(Outcome::Failed) };
            *waiting = Waiting::Nothing;
            appended.push(offset);
            acquisition.appended(offset);
            None
        }
        _ => None,
    }
}
