//! Frames in the output that no owner of the log wrote, with every absurd value: readers pass over
//! them, or the owner notices and acquires the shard again, or it halts with a reason. No later
//! frame of an owner is lost to a reader.

use crate::hunt::change::UPDATES;
use crate::hunt::frames::{decode_frame, encode};
use crate::kit::update::Updates;
use crate::output::frame::{Chain, Format, Frame, FrameHeader, FrameKind, POSITION_UNKNOWN};
use crate::output::mark::Mark;
use crate::output::reader::{Reader, Verdict};
use crate::output::verified::{Ack, Verified};
use crate::ownership::acquired::Acquired;
use crate::ownership::acquisition::*;
use crate::ownership::foreign_span::{ForeignSpan, SpanCheck, SpanResult};
use crate::ownership::start_error::StartError;
use crate::testing::frame_maker::FrameMaker;
use crate::testing::random::Random;
use std::panic::catch_unwind;

use super::log::{Log, RULESET, brief, owned_log, snapshot};

/// By how much one frame may raise the owner epoch.
const STEP: u64 = 1 << 32;

/// Games, and in each how often the owner publishes.
const SEEDS: u64 = 5_000;
const ROUNDS: u64 = 6;

/// Updates that a replay of the input makes at most: one an offset.
const REPLAY_UPDATES_MAX: u64 = 1_000;

/// A number at an edge: of its type, or of what counts.
fn edge(random: &mut Random, own: u64) -> u64 {
    let near = own.wrapping_add(random.below(5)).wrapping_sub(2);
    let edges = [0, 1, near, near.wrapping_add(STEP), 1 << 31, 1 << 32, 1 << 62, 1 << 63, u64::MAX];
    let edge = edges[random.below(edges.len() as u64) as usize];
    edge.wrapping_add(random.below(3)).wrapping_sub(1)
}

/// The owner's own number, or an edge.
fn own_or_edge(random: &mut Random, own: u64) -> u64 {
    if random.below(2) == 0 { own } else { edge(random, own) }
}

/// A shard, its log and a reader that has read all of it.
struct Scene {
    random: Random,
    log: Log,
    owner: FrameMaker,
    fence_id: u128,
    verified: Verified,
    kept: Candidate,
    reader: Reader,
    /// Records that the reader has taken.
    taken: usize,
    /// A frame has an epoch that readers at different places may judge differently: it is just out
    /// of reach, and the next owner's is not.
    is_at_step: bool,
    /// The reader has halted, or has met what it cannot read.
    has_stopped: bool,
}

impl Scene {
    fn new(seed: u64) -> Scene {
        let (mut log, mut owner) = owned_log(6);
        let acquired = log.acquire(brief(Vec::new())).expect("acquired");
        owner.owner_epoch = acquired.owner_epoch;
        let kept = snapshot(&log, &owner);
        let mut scene = Scene {
            random: Random::new(seed),
            log,
            owner,
            fence_id: acquired.fence_id,
            verified: Verified::new(acquired.mark),
            kept,
            reader: Reader::new(),
            taken: 0,
            is_at_step: false,
            has_stopped: false,
        };
        scene.read();
        scene
    }

    /// The reader takes what has come: the verdict on the last frame.
    fn read(&mut self) -> Option<Verdict> {
        let mut last = None;
        for (_, bytes) in &self.log.records[self.taken..] {
            let Ok((header, updates)) = decode_frame(bytes) else {
                self.has_stopped = true;
                return None;
            };
            let verdict = self.reader.fold(&header, &updates);
            self.has_stopped |= verdict == Verdict::Halt;
            last = Some(verdict);
        }
        self.taken = self.log.records.len();
        last
    }

    /// A frame as another program may write it, a clone of the owner among them.
    fn foreign_frame(&mut self) -> (FrameHeader, Updates) {
        let count = self.random.below(3) as u32;
        let mut frame = self.owner_at_work().frame(count);
        let random = &mut self.random;
        let kinds = [FrameKind::Updates, FrameKind::Fence, FrameKind::Skip, FrameKind::Genesis];
        let header = &mut frame.header;
        header.kind = kinds[random.below(4) as usize];
        header.owner_epoch = own_or_edge(random, header.owner_epoch);
        header.first_update = own_or_edge(random, header.first_update);
        header.next_offset = own_or_edge(random, header.next_offset as u64) as i64;
        header.chain = Chain(own_or_edge(random, header.chain.0));
        header.ruleset = own_or_edge(random, RULESET.into()) as u32;
        let mut updates = Updates::new();
        if header.kind == FrameKind::Updates {
            std::mem::swap(&mut updates, &mut frame.updates);
        } else {
            header.count = 0;
        }
        if header.kind == FrameKind::Fence {
            let own = self.fence_id;
            header.fence_id = if random.below(2) == 0 { own } else { edge(random, 1).into() };
            header.next_offset = header.next_offset.max(POSITION_UNKNOWN);
        } else {
            header.next_offset = header.next_offset.max(0);
        }
        let above = header.owner_epoch.saturating_sub(self.owner.owner_epoch);
        self.is_at_step |= (STEP - 64..STEP + 64).contains(&above);
        (frame.header, updates)
    }

    /// What goes on where the owner is.
    fn owner_at_work(&self) -> FrameMaker {
        FrameMaker { ..self.owner }
    }

    /// Publishes a frame of the owner's. Whatever stands before it, the reader takes it in the end.
    fn publish(&mut self) {
        let frame = match self.random.below(3) {
            0 => FrameFrom::Fence(self.owner.fence(self.fence_id)),
            count => FrameFrom::Work(self.owner.frame(count as u32 - 1)),
        };
        let (header, updates) = match &frame {
            FrameFrom::Fence(header) => (*header, Updates::new()),
            FrameFrom::Work(frame) => (frame.header, copy(frame)),
        };
        let offset = self.log.append(&header, &updates);
        let mut ack = self.verified.ack(offset, &header);
        if ack == Ack::AfterForeign {
            match self.check_span(offset) {
                SpanResult::Passed(mark) => {
                    self.verified.pass_foreign(mark);
                    ack = self.verified.ack(offset, &header);
                    assert_eq!(ack, Ack::Counts, "a span that was passed changes nothing");
                }
                SpanResult::Fenced { .. } | SpanResult::Torn => return self.acquire_again(),
            }
        }
        assert_eq!(ack, Ack::Counts);
        let verdict = self.read();
        assert!(
            matches!(
                verdict,
                Some(Verdict::Accepted { .. } | Verdict::Progress { .. } | Verdict::Fence)
            ),
            "{verdict:?} on {header:?}"
        );
        let stands = Mark::new(self.log.end, self.reader.position());
        assert_eq!(self.verified.mark(), stands, "the owner knows where readers stand");
    }

    fn check_span(&self, to: i64) -> SpanResult {
        let from = self.verified.mark();
        let mut check =
            SpanCheck::new(ForeignSpan { partition: 0, ownership_id: 1, from, to }, UPDATES);
        for (offset, bytes) in &self.log.records {
            if check.result().is_none() {
                check.take(*offset, bytes);
            }
        }
        check.result().expect("everything was read")
    }

    /// What the owner does about frames that are not its own. If only an operator can help, one
    /// does; if nothing does, readers have stopped as well.
    fn acquire_again(&mut self) {
        let refuse = brief(vec![self.kept.clone()]);
        let replayed = self.acquire(refuse.clone()).and_then(|acquired| self.replay(acquired));
        let remedy = Remedy::StartOver;
        let acquired = match replayed {
            Err(StartError::Diverged { .. }) => {
                self.acquire(Brief { diverged: true, remedy, ..refuse })
            }
            Err(error) if !is_unread(error) => self.acquire(Brief { remedy, ..refuse }),
            tried => tried,
        };
        let acquired = match acquired {
            Ok(acquired) => acquired,
            Err(error) => {
                assert!(is_unread(error), "an operator can start it over: {error}");
                self.read();
                assert!(self.has_stopped, "no reader goes on where the owner cannot");
                return;
            }
        };
        let Acquired { owner_epoch, mark, start, .. } = acquired;
        self.fence_id = acquired.fence_id;
        self.verified = Verified::new(mark);
        let next_offset = start.next_offset.max(mark.next_offset.min(self.log.input.1));
        let Mark { next_update, chain, .. } = mark;
        self.owner =
            FrameMaker { owner_epoch, next_update, next_offset, chain, ..self.owner_at_work() };
        self.read();
        assert!(!self.has_stopped);
        assert_eq!(Mark::new(self.log.end, self.reader.position()), mark);
    }

    /// Foreign frames come while the shard is acquired, too.
    fn acquire(&mut self, brief: Brief) -> Result<Acquired, StartError> {
        let foreign: Vec<_> = (0..self.random.below(2)).map(|_| self.foreign_frame()).collect();
        let mut foreign = foreign.into_iter();
        self.log.elsewhere.clone_from(&brief.candidates);
        self.log.acquire_beside(brief, |log| {
            if let Some((header, updates)) = foreign.next() {
                log.append(&header, &updates);
            }
        })
    }

    /// The replay must make what is published.
    fn replay(&self, acquired: Acquired) -> Result<Acquired, StartError> {
        let Acquired { start, mark, .. } = acquired;
        let diverged = Err(StartError::Diverged { update: mark.next_update });
        let mut replay = FrameMaker::new(0);
        (replay.next_update, replay.chain) = (start.next_update, start.chain);
        if mark.next_update - start.next_update > REPLAY_UPDATES_MAX {
            return diverged;
        }
        while replay.next_update < mark.next_update {
            replay.frame(1);
        }
        if replay.chain == mark.chain { Ok(acquired) } else { diverged }
    }

    /// Wherever a reader begins to join, it stands with the others once the owner has repeated its
    /// fence twice.
    fn check_joining(&mut self) {
        if self.is_at_step || self.has_stopped {
            return;
        }
        self.log.append_empty(&self.owner.fence(self.fence_id));
        let frame = self.owner.frame(1);
        self.log.append(&frame.header, &frame.updates);
        self.log.append_empty(&self.owner.fence(self.fence_id));
        self.read();
        let all = self.reader.position();
        for from in 0..self.log.records.len() - 2 {
            let mut reader = Reader::joining();
            for (_, bytes) in &self.log.records[from..] {
                let (header, updates) = decode_frame(bytes).expect("the first reader read it");
                reader.fold(&header, &updates);
            }
            let position = reader.position();
            let stands = (position.owner_epoch, position.next_update, position.chain);
            assert!(reader.has_joined(), "from {from}: {:#?}", self.headers());
            assert_eq!(
                stands,
                (all.owner_epoch, all.next_update, all.chain),
                "from {from}: {:#?}",
                self.headers()
            );
        }
    }

    fn headers(&self) -> Vec<FrameHeader> {
        let frames = self.log.records.iter().map(|(_, bytes)| decode_frame(bytes));
        frames.filter_map(|frame| Some(frame.ok()?.0)).collect()
    }
}

/// Whether nobody can read on, neither owner nor reader.
fn is_unread(error: StartError) -> bool {
    matches!(error, StartError::Damaged { .. } | StartError::Unreadable { .. })
}

/// What the owner publishes next.
enum FrameFrom {
    Work(Box<Frame>),
    Fence(FrameHeader),
}

fn copy(frame: &Frame) -> Updates {
    let mut updates = Updates::new();
    frame.updates.as_slice().iter().for_each(|update| updates.push(*update));
    updates
}

/// Returns whether the readers have stopped.
fn play(seed: u64) -> bool {
    let mut scene = Scene::new(seed);
    for _ in 0..ROUNDS {
        for _ in 0..scene.random.below(3) {
            let (header, updates) = scene.foreign_frame();
            let mut bytes = Vec::new();
            encode(Format::Binary, &header, updates.as_slice(), &mut bytes);
            if scene.random.below(50) == 0 {
                bytes[5] = 9;
            }
            scene.log.records.push((scene.log.end, bytes));
            scene.log.end += 1;
        }
        scene.publish();
        if scene.has_stopped {
            return true;
        }
    }
    scene.check_joining();
    false
}

#[test]
fn whatever_frame_is_not_the_owner_s_no_later_frame_is_lost_to_a_reader() {
    let mut stopped = 0;
    for seed in 0..SEEDS {
        let played = catch_unwind(|| play(seed));
        stopped += u64::from(played.unwrap_or_else(|_| panic!("seed {seed} failed, see above")));
    }
    assert!((SEEDS / 100..SEEDS / 3 * 2).contains(&stopped), "{stopped} of {SEEDS} have stopped");
}
