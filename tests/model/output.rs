//! The output of the zone, and the reader rule of `docs/PROTOCOL.md`.

use crate::world::{History, Mutation, World};
use std::collections::HashMap;

/// An owner epoch and the id of a fence. The default is that of a note, and of no fence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Fence {
    pub epoch: u8,
    pub id: u8,
}

/// A record of the output. A frame has the updates of a history from `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Record {
    Fence(Fence),
    Updates { epoch: u8, first: u8, history: History, next_offset: u8 },
}

/// The verdict of a reader on a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Fenced,
    /// A note, or a fence that comes too late.
    Passed,
    Stale,
    Progress,
    Duplicate,
    Gap,
    Accepted,
    Halt,
}

/// The position of a reader. The fence is that which raised the owner epoch.
#[derive(Clone, Copy)]
pub(crate) struct Position {
    pub fence: Fence,
    pub accepted: History,
    pub next_offset: u8,
}

/// An output that ends with a certain record, and the position of a reader at its end.
pub(crate) struct Output {
    before: u32,
    pub length: u8,
    pub record: Record,
    pub verdict: Verdict,
    pub end: Position,
}

/// All outputs that come about, each with a number: a tree, since each is another one and a record.
pub(crate) struct Outputs {
    world: World,
    outputs: Vec<Output>,
    longer: HashMap<(u32, Record), u32>,
}

impl Outputs {
    /// Returns the empty output, whose number is 0.
    pub(crate) fn new(world: World) -> Outputs {
        let (fence, accepted) = (Fence::default(), History::default());
        let end = Position { fence, accepted, next_offset: 0 };
        let (record, verdict) = (Record::Fence(fence), Verdict::Passed);
        let outputs = vec![Output { before: 0, length: 0, record, verdict, end }];
        Outputs { world, outputs, longer: HashMap::new() }
    }

    /// Returns an output by its number.
    pub(crate) fn get(&self, output: u32) -> &Output {
        &self.outputs[output as usize]
    }

    /// Returns an output as it was when it had this many records.
    pub(crate) fn start(&self, output: u32, length: u8) -> &Output {
        let mut start = self.get(output);
        while start.length > length {
            start = self.get(start.before);
        }
        start
    }

    /// Returns the output with one record more.
    pub(crate) fn append(&mut self, before: u32, record: Record) -> u32 {
        if let Some(output) = self.longer.get(&(before, record)) {
            return *output;
        }
        let (end, verdict) = self.fold(self.get(before).end, record);
        let (number, length) = (self.outputs.len() as u32, self.get(before).length + 1);
        self.outputs.push(Output { before, length, record, verdict, end });
        self.longer.insert((before, record), number);
        number
    }

    /// Returns where a reader is after a record, and its verdict.
    fn fold(&self, at: Position, record: Record) -> (Position, Verdict) {
        let (epoch, first, history, next_offset) = match record {
            Record::Updates { epoch, first, history, next_offset } => {
                (epoch, first, history, next_offset)
            }
            Record::Fence(fence) if fence.epoch > at.fence.epoch => {
                return (Position { fence, ..at }, Verdict::Fenced);
            }
            Record::Fence(_) => return (at, Verdict::Passed),
        };
        if epoch < at.fence.epoch && self.world.mutation != Mutation::AnyOwnerEpoch {
            return (at, Verdict::Stale);
        }
        let fence = if epoch > at.fence.epoch { Fence { epoch, id: 0 } } else { at.fence };
        let (at, next, end) = (Position { fence, ..at }, at.accepted.updates, history.updates);
        let covered = Position { next_offset: at.next_offset.max(next_offset), ..at };
        let in_gap = if self.world.mutation == Mutation::GapCovers { covered } else { at };
        match () {
            () if first == end => (if first == next { covered } else { at }, Verdict::Progress),
            () if end <= next => (at, Verdict::Duplicate),
            () if first > next => (in_gap, Verdict::Gap),
            () if self.world.prefix(history, next) != at.accepted => (at, Verdict::Halt),
            () => (Position { accepted: history, ..covered }, Verdict::Accepted),
        }
    }
}
