//! The acquisition of one shard, as decisions alone. A start, a restart and a rebalance all use it.
//!
//! An [`Acquisition`] says what it needs to know or to have written, takes the result, and ends
//! with an [`Acquired`] shard or a start error. It touches no broker, clock or file.
//!
//! ```text
//! read to the log's end ─► confirm membership ─► follow until the engine is warm
//!                                                      │  ▲
//!      ┌───────────────────────────────────────────────┘  └── another fence is in force ◄───┐
//!      ▼                                                                                    │
//! confirm membership ─► write FENCE(owner epoch + 1) ─► read through it ────────────────────┤
//!                                                  SKIP, or GENESIS, if asked for ◄─────────┤
//!                                                                         acquired ◄────────┘
//! ```
//!
//! If no engine can follow, because the zone starts over or the log cannot be read to its end, the
//! fence comes first.

use crate::kit::update_json::UpdateTable;
use crate::output::fence_id::InputTag;
use crate::output::fold::{Broken, Fold, SKIPS_MAX, Start, Takeover};
use crate::output::frame::{Chain, FrameHeader, FrameKind, POSITION_UNKNOWN};
use crate::output::mark::Mark;
use crate::output::reader::{Position, Reader};
use crate::ownership::acquired::Acquired;
use crate::ownership::bounds::Bounds;
use crate::ownership::start_error::StartError;
use std::collections::BTreeSet;

/// Fences written for one acquisition. Each loss means that another instance raised the owner epoch
/// in between; this many losses in a row mean that two instances fight over the shard.
const FENCE_ATTEMPTS_MAX: usize = 8;

/// Records that may come to an input partition while its shard is acquired: at a million a second
/// they take half an hour. An output that covers more than that was written by no owner.
const INPUT_GROWTH_MAX: i64 = 1 << 31;

/// A state that a shard may start from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its place in input and output.
    pub start: Start,
    /// Its mark: where it became valid.
    pub mark: Mark,
    /// The rules that it was made by.
    pub ruleset: u32,
    /// The version of the game that has it made.
    pub version: u32,
    /// Input offsets that were passed over before.
    pub skips: Vec<i64>,
    /// The input was deleted and created again since, so its input offsets mean other records.
    pub is_of_deleted_input: bool,
    /// It is on this host. If it is another host's, that one may have stored newer ones since.
    pub is_here: bool,
}

/// What to do if no state of a shard can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Report it and stop.
    Refuse,
    /// Begin with an empty zone where the output ends: `--genesis`.
    StartOver,
}

/// What an acquisition begins with.
#[derive(Clone, Debug)]
pub struct Brief {
    /// Input and output partition.
    pub partition: i32,
    /// Hashes of the loaded rules; the first is that of an empty zone.
    pub rulesets: Vec<u32>,
    /// The version of the game.
    pub version: u32,
    /// Available states, newest first.
    pub candidates: Vec<Candidate>,
    /// Input offsets to skip: of records that panicked the engine too often, and of those that an
    /// operator passes over.
    pub to_skip: Vec<i64>,
    /// What to do if no state can be used.
    pub remedy: Remedy,
    /// Start over in any case: a replay from every available state differs from what is published.
    pub diverged: bool,
    /// Input offset from which on the input has other records than those that were applied, if a
    /// leader has said so.
    pub changed_from: Option<i64>,
    /// The input that the shard is played from.
    pub input: InputTag,
    /// The updates of the game.
    pub updates: &'static UpdateTable,
}

/// What an acquisition waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// All records of the output from this offset on. Pass each to [`Acquisition::take`], and call
    /// [`Acquisition::reach_end`] when there are no more.
    Read {
        /// Output offset of the first one.
        from: i64,
    },
    /// Further states to start from, if other hosts have any: [`Acquisition::offer`]. Another owner
    /// may have had the shard since the available states were taken.
    States,
    /// Whether the group still counts us in: [`Acquisition::confirm`] if
    /// [`Acquisition::may_fence`], otherwise [`Acquisition::follow`].
    Confirm {
        /// Where the input begins, to be committed as the question where nothing is.
        input_start: i64,
    },
    /// An engine that follows the output from [`Acquisition::followed`] on, and all records of the
    /// output from this offset on. Once the engine is warm: [`Acquisition::bid`].
    Follow {
        /// Output offset of the next record.
        from: i64,
    },
    /// All records of the output from this offset on: another version publishes, and is to leave a
    /// state at its end. It ends with [`Acquisition::give_up_waiting`], or once the owner has
    /// ended.
    Await {
        /// Output offset of the next record.
        from: i64,
    },
    /// A frame in the output, with acknowledgements from all replicas: [`Acquisition::appended`].
    Append(FrameHeader),
    /// Nothing: it has ended.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AcquisitionState {
    /// Reading up to the end that the log had, to learn the highest owner epoch.
    Head,
    /// Like `Head`, but all states are known.
    Offered,
    Asking,
    /// Asking the group before an engine follows.
    Checking,
    /// An engine follows what is published.
    Following,
    /// Waiting for the end of an owner of another version: this would be the outcome.
    Behind(StartError),
    /// Asking the group before the fence.
    Confirming,
    Fencing,
    /// Reading through the fence at this offset.
    Tail(i64),
    /// Writing a skip or a genesis.
    Amending(FrameHeader),
    /// Reading through that.
    Amended(i64),
    Ended,
}

/// One shard that is being acquired.
#[derive(Debug)]
pub struct Acquisition {
    brief: Brief,
    bounds: Bounds,
    /// The candidate that is tried; one past the last is the state before the first event.
    candidate: usize,
    fold: Fold,
    /// Where another candidate was chosen: records after this offset are out of order until reading
    /// has begun again before it.
    turned_at: Option<i64>,
    /// The end was reached since the candidate was chosen.
    is_at_end: bool,
    /// The input offset that the output covered when its end was surveyed, as far as is read.
    surveyed_cover: i64,
    state: AcquisitionState,
    /// It began while another instance played the zone, and may follow for weeks.
    is_copy: bool,
    owner_epoch: u64,
    fence_id: u128,
    fences: usize,
    /// Where the engine has begun that follows, and how many skips the output had shown then.
    followed: Option<Acquired>,
    skips_followed: usize,
    ended: Option<Result<Acquired, StartError>>,
}

impl Acquisition {
    /// Nothing is read or written yet.
    pub fn begin(brief: Brief, bounds: Bounds) -> Acquisition {
        let mut acquisition = Acquisition {
            fold: Fold::from_log_start(0, brief.updates),
            brief,
            bounds,
            candidate: 0,
            turned_at: None,
            is_at_end: false,
            surveyed_cover: 0,
            state: AcquisitionState::Head,
            is_copy: false,
            owner_epoch: 0,
            fence_id: 0,
            fences: 0,
            followed: None,
            skips_followed: 0,
            ended: None,
        };
        acquisition.try_candidate(0);
        acquisition
    }

    /// The same for a zone that another instance plays: its states are newer than those that are
    /// here, so all are looked at before the output is read.
    pub(super) fn begin_as_copy(brief: Brief, bounds: Bounds) -> Acquisition {
        let mut acquisition = Acquisition { is_copy: true, ..Acquisition::begin(brief, bounds) };
        if acquisition.state == AcquisitionState::Head {
            acquisition.state = AcquisitionState::Asking;
        }
        acquisition
    }

    /// Input and output partition.
    pub fn partition(&self) -> i32 {
        self.brief.partition
    }

    /// Folds from the mark of the first candidate, from this one on, whose mark the log can have.
    fn try_candidate(&mut self, from: usize) {
        let end = self.bounds.output_end;
        let candidates = &self.brief.candidates;
        let fits = |candidate: &Candidate| candidate.mark.output_offset <= end;
        let found = (from..candidates.len()).find(|at| fits(&candidates[*at]));
        self.candidate = found.unwrap_or(candidates.len());
        self.is_at_end = false;
        let output_start = self.bounds.output_start;
        self.fold = match candidates.get(self.candidate) {
            Some(candidate) if output_start <= candidate.mark.output_offset => {
                let Candidate { mark, start, ruleset, .. } = *candidate;
                let fold = Fold::from_mark(mark, output_start, self.brief.updates);
                match start.next_update == mark.next_update {
                    true => fold.under(ruleset),
                    // The updates in between may have changed the rules.
                    false => fold,
                }
            }
            // If retention has passed the mark, a reader joins later.
            _ => Fold::from_log_start(output_start, self.brief.updates),
        };
        self.note_surveyed_cover();
        self.go_on();
    }

    /// Takes the hashes of all loaded rules. An empty zone begins by the first.
    pub(super) fn know(&mut self, rulesets: &[u32]) {
        self.brief.rulesets = rulesets.to_vec();
    }

    /// The input ends here by now: it may have grown for as long as an engine has followed.
    pub(super) fn see_input_end(&mut self, input_end: i64) {
        self.bounds.input_end = self.bounds.input_end.max(input_end);
    }

    /// What it waits for now.
    pub fn need(&self) -> Need {
        match self.state {
            AcquisitionState::Asking => Need::States,
            AcquisitionState::Head
            | AcquisitionState::Offered
            | AcquisitionState::Tail(_)
            | AcquisitionState::Amended(_) => Need::Read { from: self.fold.next() },
            AcquisitionState::Following => Need::Follow { from: self.fold.next() },
            AcquisitionState::Behind(_) => Need::Await { from: self.fold.next() },
            AcquisitionState::Checking | AcquisitionState::Confirming => {
                Need::Confirm { input_start: self.bounds.input_start }
            }
            AcquisitionState::Fencing => Need::Append(self.fence()),
            AcquisitionState::Amending(header) => Need::Append(header),
            AcquisitionState::Ended => Need::End,
        }
    }

    /// The outcome, once [`Acquisition::need`] is [`Need::End`].
    pub fn into_outcome(mut self) -> Result<Acquired, StartError> {
        self.take_outcome()
    }

    /// See [`Acquisition::into_outcome`].
    pub(super) fn take_outcome(&mut self) -> Result<Acquired, StartError> {
        self.ended.take().expect("only an acquisition that has ended has an outcome")
    }

    /// Takes the next record of the output. One that was taken before is passed over.
    pub fn take(&mut self, offset: i64, payload: &[u8]) {
        if self.turned_at.is_some_and(|turned_at| turned_at < offset) {
            return;
        }
        self.turned_at = None;
        if self.state == AcquisitionState::Ended || offset < self.fold.next() {
            return;
        }
        match self.fold.take(offset, payload) {
            Ok(()) => {
                self.note_surveyed_cover();
                self.go_on();
            }
            Err(Broken::Damaged { offset }) => self.end(Err(StartError::Damaged { offset })),
            Err(Broken::Unreadable { offset, error }) => {
                self.end(Err(StartError::Unreadable { offset, error }));
            }
            // The snapshot belongs to another log; an older one may belong to this one.
            Err(Broken::OtherLog) => {
                self.try_candidate(self.candidate + 1);
                self.turned_at = Some(offset).filter(|offset| self.fold.next() <= *offset);
            }
        }
    }

    /// The owner before us may play on, so later records cover input that was not there when its
    /// end was surveyed.
    fn note_surveyed_cover(&mut self) {
        if self.fold.next() <= self.bounds.output_end {
            self.surveyed_cover = self.position().map_or(0, |position| position.next_offset);
        }
    }

    /// Returns whether an owner can follow at the position of the output.
    pub(super) fn can_go_on(&self) -> bool {
        self.position().is_some_and(can_go_on)
    }

    /// Returns whether all that was in the output when it was surveyed is read.
    pub(super) fn has_read_surveyed(&self) -> bool {
        self.fold.next() >= self.bounds.output_end
    }

    /// Returns whether one of these states was stored after the logs were surveyed: where they
    /// ended then does not tell whether it belongs to them. A state that was known before the
    /// survey and is beyond their ends belongs to other logs.
    pub(super) fn is_surveyed_before(&self, candidates: &[Candidate]) -> bool {
        let Bounds { output_end, input_end, .. } = self.bounds;
        let is_beyond = |Candidate { mark, start, .. }: &Candidate| {
            output_end < mark.output_offset || input_end < start.next_offset
        };
        let is_known = |candidate: &Candidate| self.brief.candidates.contains(candidate);
        candidates.iter().any(|candidate| is_beyond(candidate) && !is_known(candidate))
    }

    /// These are all states there are, newest first.
    pub fn offer(&mut self, candidates: Vec<Candidate>) {
        assert_eq!(self.state, AcquisitionState::Asking);
        self.state = AcquisitionState::Offered;
        if candidates == self.brief.candidates {
            return self.go_on();
        }
        self.brief.candidates = candidates;
        self.try_candidate(0);
    }

    /// The broker that is read from has no more records than those taken. Missing offsets up to the
    /// end have no record, or it is behind the leader, and what it lacks comes before our fence.
    pub fn reach_end(&mut self) {
        if let AcquisitionState::Head | AcquisitionState::Offered = self.state
            && self.turned_at.is_none()
        {
            self.is_at_end = true;
            self.go_on();
        }
    }

    /// Whether it reads on to a record of its own, which comes after whatever the end was before.
    pub(super) fn awaits_own_record(&self) -> bool {
        matches!(self.state, AcquisitionState::Tail(_) | AcquisitionState::Amended(_))
    }

    /// Returns whether the group is asked because a fence comes next.
    pub fn may_fence(&self) -> bool {
        self.state == AcquisitionState::Confirming
    }

    /// The group counts us in: an engine follows what is published.
    pub fn follow(&mut self) {
        assert_eq!(self.state, AcquisitionState::Checking);
        self.state = AcquisitionState::Following;
        self.go_on();
    }

    /// Where the engine that follows begins, and where a reader stood when that was chosen.
    pub(crate) fn followed(&self) -> Option<&Acquired> {
        self.followed.as_ref()
    }

    /// Where a reader stands. `None`: what came since an engine began to follow is more than
    /// updates, and it cannot go on to there.
    pub fn cover(&self) -> Option<Mark> {
        let followed = self.followed.as_ref()?;
        let is_begun_there = |genesis: Start| genesis == followed.start;
        // Two versions may have taken over while a fence was on its way: ours came back then.
        let has_begun_with = |takeover: Takeover| takeover.is_at(followed.start);
        // Before a zone's first owner it is not known which rules that will begin it by.
        let goes_on = self.fold.genesis().is_none_or(is_begun_there)
            && self.fold.takeover().is_none_or(has_begun_with)
            && self.begun_by() == followed.begun_by
            && self.fold.skips().len() == self.skips_followed;
        // An engine does not make the updates of another version.
        let follows = |mark: &Mark| !self.is_of_other_version() || is_at_end(followed.start, *mark);
        self.fold.mark().filter(|_| goes_on).filter(follows)
    }

    /// Another version has published from the newest state on; `None`: it does not wait for that.
    pub(super) fn behind(&self) -> Option<StartError> {
        match self.state {
            AcquisitionState::Behind(error) => Some(error),
            _ => None,
        }
    }

    /// No state was left so far.
    pub(super) fn give_up_waiting(&mut self) {
        let error = self.behind().expect("it waits");
        self.end(Err(error));
    }

    /// Returns whether the owner in force is of another version and may still publish. An instance
    /// of our version may have taken over from it since an engine began to follow.
    pub(super) fn may_other_version_publish(&self) -> bool {
        self.is_of_other_version() && !self.fold.has_owner_ended()
    }

    /// The engine that follows is warm: the output is to be ours.
    pub fn bid(&mut self) {
        assert_eq!(self.state, AcquisitionState::Following);
        self.ask_group();
    }

    /// The group counts us in. The id has never been used before.
    pub fn confirm(&mut self, fence_id: u128) {
        assert_eq!(self.state, AcquisitionState::Confirming);
        self.write_fence(fence_id);
    }

    /// The owner is silent or has resigned, and the engine that follows is warm: the output is to
    /// be ours, whatever the group says.
    pub(super) fn take_over(&mut self, fence_id: u128) {
        assert_eq!(self.state, AcquisitionState::Following);
        self.write_fence(fence_id);
    }

    /// Whether a fence of this acquisition is on its way, or in the output and not passed yet.
    pub(super) fn is_fencing(&self) -> bool {
        matches!(
            self.state,
            AcquisitionState::Fencing
                | AcquisitionState::Tail(_)
                | AcquisitionState::Amending(_)
                | AcquisitionState::Amended(_)
        )
    }

    fn write_fence(&mut self, fence_id: u128) {
        assert_ne!(fence_id, 0);
        // Not higher, whatever a state knows: a reader would conclude that it has missed a fence.
        self.owner_epoch = self.position().map_or(0, |position| position.owner_epoch) + 1;
        self.fence_id = fence_id;
        self.fences += 1;
        self.state = AcquisitionState::Fencing;
    }

    /// All replicas have the frame, at this offset of the output.
    pub fn appended(&mut self, offset: i64) {
        self.state = match self.state {
            AcquisitionState::Fencing => AcquisitionState::Tail(offset),
            AcquisitionState::Amending(_) => AcquisitionState::Amended(offset),
            other => unreachable!("nothing is written in {other:?}"),
        };
        self.go_on();
    }

    fn go_on(&mut self) {
        match self.state {
            AcquisitionState::Head if self.has_read_head() => match self.is_newest_here() {
                true => self.begin_to_follow(),
                false => self.state = AcquisitionState::Asking,
            },
            AcquisitionState::Offered if self.has_read_head() => self.begin_to_follow(),
            // The owner has passed over a record, or started over: another engine has to follow.
            AcquisitionState::Following if self.cover().is_none() => self.begin_to_follow(),
            AcquisitionState::Behind(error) if self.fold.has_owner_ended() => self.end(Err(error)),
            // Records that are read meanwhile may show that the shard's position is not known.
            AcquisitionState::Confirming => self.ask_group(),
            AcquisitionState::Tail(through) | AcquisitionState::Amended(through)
                if self.fold.next() > through =>
            {
                match self.is_in_force() {
                    true => self.decide(),
                    false => self.lose_fence(),
                }
            }
            _ => {}
        }
    }

    /// Chooses where an engine begins that follows. If none can, the fence comes first: only after
    /// it is known all that the log says, and an empty zone can begin. So it does if a record is to
    /// be skipped, which the fetch path may not be able to read. A copy may not fence yet, so it
    /// follows up to that record.
    fn begin_to_follow(&mut self) {
        self.followed = None;
        let mark = self.fold.mark().filter(|mark| can_go_on(mark.position()));
        let Some(mark) = mark else { return self.ask_group() };
        match self.choose_start(mark) {
            Ok(start) if !self.is_copy && self.next_skip(mark, start).is_some() => {
                self.ask_group();
            }
            Ok(start) => {
                self.followed = Some(self.acquired(mark, start));
                self.skips_followed = self.fold.skips().len();
                if self.state != AcquisitionState::Following {
                    self.state = AcquisitionState::Checking;
                }
            }
            Err(_) if self.brief.remedy == Remedy::StartOver => self.ask_group(),
            Err(_) if self.fold.next() < self.bounds.output_end => self.ask_group(),
            Err(error @ StartError::EditionBehind { .. }) => {
                self.state = AcquisitionState::Behind(error);
            }
            Err(error) => self.end(Err(error)),
        }
    }

    fn has_read_head(&self) -> bool {
        self.is_at_end || self.fold.next() >= self.bounds.output_end
    }

    /// A fence may be written once the group counts us in, if it is known where the shard stands.
    fn ask_group(&mut self) {
        match self.can_go_on() {
            true => self.state = AcquisitionState::Confirming,
            false => self.end(Err(StartError::StartGone)),
        }
    }

    /// Returns whether this host has the newest state, taken under the owner epoch in force.
    fn is_newest_here(&self) -> bool {
        if self.fold.next() < self.bounds.output_end {
            return false;
        }
        let owner_epoch = match self.brief.candidates.get(self.candidate) {
            Some(candidate) if candidate.is_here => candidate.mark.owner_epoch,
            Some(_) => return false,
            None if self.bounds.input_start == 0 => 0,
            // If the output says nothing, a replica may show that it was lost.
            None => return false,
        };
        self.position().is_some_and(|position| position.owner_epoch == owner_epoch)
    }

    fn is_in_force(&self) -> bool {
        self.fold.reader().is_some_and(|reader| {
            reader.position().owner_epoch == self.owner_epoch && reader.fence_id() == self.fence_id
        })
    }

    /// Another fence is in force: begins again.
    fn lose_fence(&mut self) {
        match self.fences < FENCE_ATTEMPTS_MAX || self.fold.reader().is_none() {
            true if self.followed.is_some() => {
                self.state = AcquisitionState::Following;
                self.go_on();
            }
            true => self.ask_group(),
            false => self.end(Err(StartError::Contended)),
        }
    }

    /// The output is ours: where to start, or what has to be written first.
    fn decide(&mut self) {
        let mark = self.fold.mark().expect("a fence in force was read by a reader");
        let start = match self.choose_start(mark) {
            Ok(start) => start,
            Err(_) if self.brief.remedy == Remedy::StartOver => return self.start_over(mark),
            Err(error) => return self.end(Err(error)),
        };
        // Readers learn of another version where it takes over.
        if self.takes_over(start, mark) {
            return self.amend(FrameKind::Updates, start);
        }
        if let Some(offset) = self.next_skip(mark, start) {
            let next_offset = offset + 1;
            return self.amend(FrameKind::Skip, Start { next_offset, ..at(mark) });
        }
        let Acquisition { owner_epoch, fence_id, .. } = *self;
        self.end(Ok(Acquired { owner_epoch, fence_id, ..self.acquired(mark, start) }));
    }

    /// Returns the offset that has to be skipped next. The updates of a record before the mark are
    /// published: a replay without it would differ. A record that does not exist yet may turn out
    /// to be good.
    fn next_skip(&self, mark: Mark, start: Start) -> Option<i64> {
        let skips = self.skips();
        let open = start.next_offset.max(mark.next_offset)..self.bounds.input_end;
        let is_new = |offset: &&i64| open.contains(*offset) && !skips.contains(*offset);
        self.brief.to_skip.iter().find(is_new).copied()
    }

    /// A shard that begins and stands there, without a fence of ours.
    fn acquired(&self, mark: Mark, start: Start) -> Acquired {
        Acquired {
            partition: self.brief.partition,
            owner_epoch: 0,
            fence_id: 0,
            mark,
            start,
            candidate: self.kept().map(|_| self.candidate),
            migrates_to: self.migrates_to(),
            begun_by: self.begun_by(),
            skips: self.skips(),
            input_leader_epoch: self.bounds.input_leader_epoch,
        }
    }

    /// The input offsets that a replay passes over.
    fn skips(&self) -> BTreeSet<i64> {
        let of_state = self.kept().into_iter().flat_map(|kept| &kept.skips);
        self.fold.skips().iter().chain(of_state).copied().collect()
    }

    /// The rules of the state before the first event.
    fn begun_by(&self) -> u32 {
        self.fold.begun_by().unwrap_or(self.brief.rulesets[0])
    }

    /// The candidate that is tried, unless a genesis has followed.
    fn kept(&self) -> Option<&Candidate> {
        self.brief.candidates.get(self.candidate).filter(|_| self.fold.genesis().is_none())
    }

    /// Whether what is published was made from an input of the same name that is gone. A state
    /// says which input it was made from; without one, the fence of the last frame that counts
    /// does.
    fn is_other_input(&self) -> bool {
        match self.kept() {
            Some(kept) => kept.is_of_deleted_input,
            None => self.fold.input().is_some_and(|input| input != self.brief.input),
        }
    }

    /// Where the engine can start so that it makes the published updates again, and goes on.
    fn choose_start(&self, published: Mark) -> Result<Start, StartError> {
        if self.brief.diverged {
            return Err(StartError::Diverged { update: published.next_update });
        }
        let (genesis, kept) = (self.fold.genesis(), self.kept());
        if self.is_other_input() {
            return Err(StartError::InputRecreated);
        }
        let mut start = genesis.or(kept.map(|kept| kept.start)).unwrap_or_default();
        self.check_rules(start, published)?;
        let input_start = self.bounds.input_start;
        let nothing_published = start == Start::default() && published.next_update == 0;
        if nothing_published {
            // The snapshots' updates were published to a log that is gone, and readers may have
            // them.
            let made = |candidate: &Candidate| candidate.start.next_update;
            let made = self.brief.candidates.iter().map(made).max().unwrap_or(0);
            if made > 0 && genesis.is_none() {
                return Err(StartError::OutputGone { made });
            }
            start.next_offset = input_start;
        }
        if start.next_update > published.next_update {
            return Err(StartError::OutputLost {
                made: start.next_update,
                held: published.next_update,
            });
        }
        if start.next_update == published.next_update && start.chain != published.chain {
            return Err(StartError::Diverged { update: start.next_update });
        }
        if start.next_offset < input_start {
            let wanted = start.next_offset;
            return Err(StartError::InputGone { wanted, input_start });
        }
        // A genesis may be newer than the survey.
        let surveyed_start = if genesis.is_some() { 0 } else { start.next_offset };
        let input_end = self.bounds.input_end;
        let covered = match published.next_offset.saturating_sub(input_end) > INPUT_GROWTH_MAX {
            true => published.next_offset,
            false => self.surveyed_cover.min(published.next_offset),
        };
        let wanted = surveyed_start.max(covered);
        if input_end < wanted {
            return Err(StartError::InputLost { wanted, input_end });
        }
        let skips = self.skips().range(start.next_offset..).count();
        if skips > SKIPS_MAX {
            return Err(StartError::SkipsTooMany { skips });
        }
        Ok(start)
    }

    /// Checks that the loaded rules made what is published after this start, or that another
    /// version of the game can take over here.
    fn check_rules(&self, start: Start, published: Mark) -> Result<(), StartError> {
        let (kept, migrates_to) = (self.kept(), self.migrates_to());
        let is_at_end = is_at_end(start, published);
        let is_behind = match self.fold.takeover() {
            Some(takeover) => !takeover.is_at(start) || (self.is_of_other_version() && !is_at_end),
            None => migrates_to.is_some() && !is_at_end,
        };
        if is_behind {
            return Err(StartError::EditionBehind {
                version: kept.map_or(self.brief.version, |kept| kept.version),
                made: start.next_update,
                published: published.next_update,
            });
        }
        let in_force = self.fold.ruleset().filter(|_| !self.takes_over(start, published));
        let begins_by = kept.map_or(self.begun_by(), |candidate| candidate.ruleset);
        let begins_by = Some(begins_by).filter(|_| migrates_to.is_none());
        match [in_force, begins_by].into_iter().flatten().find(|of| !self.is_loaded(*of)) {
            Some(published) => {
                Err(StartError::RulesetChanged { published, ours: self.brief.rulesets[0] })
            }
            None => Ok(()),
        }
    }

    fn is_loaded(&self, ruleset: u32) -> bool {
        self.brief.rulesets.contains(&ruleset)
    }

    /// Whether the game goes on by another version from here on: ours.
    fn takes_over(&self, start: Start, published: Mark) -> bool {
        self.is_of_other_version() && is_at_end(start, published)
    }

    /// Whether another version of the game made what is published last.
    pub(super) fn is_of_other_version(&self) -> bool {
        let is_known = self.migrates_to().is_some() || self.fold.takeover().is_some();
        is_known && self.fold.ruleset().is_none_or(|in_force| !self.is_loaded(in_force))
    }

    /// The rules by which the state of another version continues; `None` if the state is of this
    /// version.
    fn migrates_to(&self) -> Option<u32> {
        self.kept().filter(|kept| kept.version != self.brief.version)?;
        let taken_over_by = self.fold.takeover().map(|edition| edition.ruleset);
        let ours = taken_over_by.filter(|ruleset| self.is_loaded(*ruleset));
        Some(ours.unwrap_or(self.brief.rulesets[0]))
    }

    /// An empty zone continues where the output ends. If the input has lost records, it continues
    /// where those that were applied end: the records before that place are published, and those
    /// after it are not. An input that was created again has none that were applied.
    fn start_over(&mut self, mark: Mark) {
        let Bounds { input_start, input_end, .. } = self.bounds;
        let next_offset = match self.is_other_input() {
            true => input_start,
            // `max` last: a survey may find a start above an older end.
            false => {
                let applied_end = self.brief.changed_from.unwrap_or(i64::MAX).min(input_end);
                mark.next_offset.min(applied_end).max(input_start)
            }
        };
        // From now on this is where the shard starts, whatever snapshots there are.
        self.brief.diverged = false;
        self.amend(FrameKind::Genesis, Start { next_offset, ..at(mark) });
    }

    /// The rules that an empty zone begins with: the current ones, if they are loaded. Where the
    /// output ends with a state's mark, they are that state's.
    fn current_rules(&self) -> u32 {
        let of_state = self.kept().map(|kept| kept.ruleset);
        let current = self.fold.ruleset().or(of_state).or(self.fold.begun_by());
        current.filter(|of| self.is_loaded(*of)).unwrap_or(self.brief.rulesets[0])
    }

    fn amend(&mut self, kind: FrameKind, start: Start) {
        let of_state = self.migrates_to().or(self.kept().map(|kept| kept.ruleset));
        let edition = of_state.filter(|_| kind == FrameKind::Updates);
        self.state = AcquisitionState::Amending(FrameHeader {
            kind,
            next_offset: start.next_offset,
            first_update: start.next_update,
            chain: start.chain,
            fence_id: 0,
            ruleset: edition.unwrap_or_else(|| self.current_rules()),
            ..self.fence()
        });
    }

    fn fence(&self) -> FrameHeader {
        FrameHeader {
            kind: FrameKind::Fence,
            owner_epoch: self.owner_epoch,
            first_update: 0,
            count: 0,
            next_offset: POSITION_UNKNOWN,
            ruleset: self.brief.rulesets[0],
            chain: Chain::default(),
            fence_id: self.fence_id,
        }
    }

    fn position(&self) -> Option<Position> {
        self.fold.reader().map(Reader::position)
    }

    /// The owner epoch in force, and the id of the fence that has set it.
    pub(super) fn fence_in_force(&self) -> Option<(u64, u128)> {
        self.fold.reader().map(|reader| (reader.position().owner_epoch, reader.fence_id()))
    }

    /// The id of the last resignation in the output.
    pub(super) fn resignation(&self) -> Option<u128> {
        self.fold.resignation()
    }

    /// The first output offset that was not read.
    pub(super) fn read_to(&self) -> i64 {
        self.fold.next()
    }

    /// Where the output ended when it was surveyed.
    pub(super) fn output_end(&self) -> i64 {
        self.bounds.output_end
    }

    fn end(&mut self, outcome: Result<Acquired, StartError>) {
        self.ended = Some(outcome);
        self.state = AcquisitionState::Ended;
    }
}

/// Updates of a shard, at most: at a million a second it takes 292,000 years to make them.
const UPDATES_MAX: u64 = 1 << 63;

/// Whether an owner can follow at this position. None has written one with the greatest epoch, or
/// with more updates than a shard can make: a reader has joined at another program's fence.
fn can_go_on(position: Position) -> bool {
    position.owner_epoch < u64::MAX && position.next_update < UPDATES_MAX
}

/// Whether a state is the one at the end of what is published: it has made all updates, and has
/// seen all input that they cover.
fn is_at_end(start: Start, published: Mark) -> bool {
    (start.next_update, start.chain) == (published.next_update, published.chain)
        && start.next_offset >= published.next_offset
}

/// A start where the output ends.
fn at(mark: Mark) -> Start {
    let Mark { next_update, next_offset, chain, .. } = mark;
    Start { next_offset, leader_epoch: None, next_update, chain }
}
