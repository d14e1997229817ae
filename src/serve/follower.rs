//! Following one zone's output partition: from its records to what the view folds.
//!
//! Pure: the feed reads the records and passes them in the order of the log. The reader rule
//! decides which updates count, and its chain that they are those that were published.

use crate::kit::update::Update;
use crate::output::encode::{FrameError, decode};
use crate::output::fence_id::InputTag;
use crate::output::frame::{FrameHeader, FrameKind};
use crate::output::mark::Mark;
use crate::output::reader::{Position, Reader, Verdict};
use crate::ownership::start_error::StartError;
use crate::snapshot::format::Header;
use crate::view::game::{ViewedGame, ZoneImage};
use crate::view::zone::{ZonePosition, ZoneView};
use std::sync::Arc;

/// Records before a snapshot's mark from which on a zone is read: the mark may lie after frames
/// that the state has not seen, as many as a shard has on their way, and their fences.
const RECORDS_BEFORE_MARK: i64 = 64;

/// The meaning of a record for the view.
#[derive(Debug)]
pub enum Followed {
    /// The zone begins, in place of what was known of it.
    Begun(Box<ZoneView>),
    /// New updates, possibly none, up to this input offset.
    Updates(Vec<Update>, i64),
    /// The owner in force has published, but nothing that the view did not know.
    OwnerHeard,
    /// The log is not the one that the zone's snapshot was taken in: why.
    OtherLog(String),
    /// The zone cannot be followed any further: why, and what to do.
    Halted(String),
}

/// Follows the log of a zone, record by record.
#[derive(Clone)]
pub struct Follower {
    partition: u16,
    game: Arc<dyn ViewedGame>,
    reader: Reader,
    /// The mark of the snapshot that the zone began with; at the log's start without one.
    mark: Mark,
    /// Set until the records before the mark are read, if they have updates that come next.
    approach: Option<Approach>,
    begun: Begun,
    /// The input that the zone is played from; `None`: not known yet.
    input: Option<InputTag>,
    /// Updates are missing before the last frame.
    is_at_gap: bool,
    has_ended: bool,
}

/// From a snapshot's state to its mark. What lies between is in the log before the mark, among
/// frames of owners that were overtaken; the mark's chain tells which updates count.
#[derive(Clone)]
struct Approach {
    at: Position,
    mark: Mark,
}

impl Approach {
    /// The updates of this frame that come next.
    fn take(&mut self, header: &FrameHeader, updates: &[Update]) -> Option<Vec<Update>> {
        let known = usize::try_from(self.at.next_update.checked_sub(header.first_update)?).ok()?;
        let new = updates.get(known..).filter(|new| !new.is_empty())?;
        let chain = new.iter().fold(self.at.chain, |chain, update| chain.with(update));
        let next_update = self.at.next_update + new.len() as u64;
        if chain != header.chain || next_update > self.mark.next_update {
            return None;
        }
        (self.at.chain, self.at.next_update) = (chain, next_update);
        self.at.next_offset =
            header.next_offset.min(self.mark.next_offset).max(self.at.next_offset);
        Some(new.to_vec())
    }

    /// At the mark: what is missing to stand where it says.
    fn finish(&self) -> Result<Followed, Followed> {
        let Mark { next_update, chain, next_offset, output_offset, .. } = self.mark;
        match (self.at.next_update, self.at.chain) == (next_update, chain) {
            true => Ok(Followed::Updates(Vec::new(), next_offset.max(self.at.next_offset))),
            false => Err(Followed::OtherLog(format!(
                "the updates from {} to {next_update} are not before offset {output_offset} of \
                 the output",
                self.at.next_update
            ))),
        }
    }
}

/// The rules that a zone began with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begun {
    /// It has not begun: the first frame decides.
    Nothing,
    /// By this ruleset, unless an owner takes over that would begin by another one before anything
    /// was played.
    By(u32),
    /// By something final: a snapshot, a genesis, or a frame with updates.
    Settled,
}

impl Follower {
    /// Creates a follower at the start of the log.
    pub fn from_start(partition: u16, game: Arc<dyn ViewedGame>) -> Follower {
        Follower {
            partition,
            game,
            reader: Reader::new(),
            mark: Mark::default(),
            approach: None,
            begun: Begun::Nothing,
            input: None,
            is_at_gap: false,
            has_ended: false,
        }
    }

    /// Creates a follower that begins with a snapshot of this state. Returns it with the zone, and
    /// the first record that it takes of a log that begins at `log_start`.
    pub fn from_snapshot(
        image: ZoneImage,
        header: &Header,
        game: Arc<dyn ViewedGame>,
        log_start: i64,
    ) -> (Follower, Box<ZoneView>, i64) {
        let Header { next_update, mut next_offset, chain, mark, .. } = *header;
        if (next_update, chain) == (mark.next_update, mark.chain) {
            // The frames up to there are empty.
            next_offset = next_offset.max(mark.next_offset);
        }
        let owner_epoch = mark.owner_epoch;
        let at = Position { owner_epoch, next_update, next_offset, chain };
        let approach = (next_update < mark.next_update).then_some(Approach { at, mark });
        let (reader, from) = match approach {
            Some(_) => (Reader::at(mark.position()), mark.output_offset - RECORDS_BEFORE_MARK),
            None => (Reader::at(at), mark.output_offset - 1),
        };
        let (partition, at) =
            (image.partition(), ZonePosition { update: next_update, next_offset });
        let zone = Box::new(ZoneView::of_engine(image, game.clone(), at));
        let follower = Follower {
            partition,
            game,
            reader,
            mark,
            approach,
            begun: Begun::Settled,
            input: header.origin.input_topic_id.get().map(InputTag::of_topic),
            is_at_gap: false,
            has_ended: false,
        };
        (follower, zone, from.max(log_start))
    }

    /// Adopts more rules of the same game.
    pub(crate) fn know(&mut self, game: &Arc<dyn ViewedGame>) {
        self.game.clone_from(game);
    }

    /// Returns the mark of the snapshot that the zone began with.
    pub(crate) fn mark(&self) -> Mark {
        self.mark
    }

    /// Returns the owner epoch in force.
    pub fn owner_epoch(&self) -> u64 {
        self.reader.position().owner_epoch
    }

    /// Returns whether the zone is played from the present input. If neither a snapshot nor a fence
    /// names the zone's input, it is the first one that is asked about.
    pub(crate) fn is_played_from(&mut self, present: InputTag) -> bool {
        *self.input.get_or_insert(present) == present
    }

    /// Returns whether updates are missing, so that nothing after them counts. An owner that has
    /// lost a frame acquires its shard again, and publishes them then.
    pub(crate) fn is_at_gap(&self) -> bool {
        self.is_at_gap
    }

    /// The log has no further record at present: a zone without any begins by the first rules.
    pub fn at_end(&mut self) -> Option<Followed> {
        if self.has_ended {
            return None;
        }
        if let Some(approach) = self.approach.take() {
            return Some(approach.finish().unwrap_or_else(|last| {
                self.has_ended = true;
                last
            }));
        }
        if self.begun != Begun::Nothing {
            return None;
        }
        self.begun = Begun::By(self.game.first_ruleset());
        let zone = ZoneView::new(self.partition, self.game.clone(), ZonePosition::default());
        Some(Followed::Begun(Box::new(zone)))
    }

    /// Takes the next record of the log, and passes on its meanings in order.
    pub fn take(&mut self, offset: i64, payload: &[u8], give: &mut dyn FnMut(Followed)) {
        if self.has_ended {
            return;
        }
        if let Err(last) = self.follow(offset, payload, give) {
            self.has_ended = true;
            give(last);
        }
    }

    fn follow(
        &mut self,
        offset: i64,
        payload: &[u8],
        give: &mut dyn FnMut(Followed),
    ) -> Result<(), Followed> {
        let frame = match decode(payload, self.game.view_schema().game.updates) {
            Err(FrameError::NotAFrame) => None,
            frame => Some(frame.map_err(|error| unreadable(offset, error))?),
        };
        let is_taken_at = |(header, _): &(FrameHeader, _)| self.mark.is_taken_at(header);
        if offset + 1 == self.mark.output_offset && !frame.as_ref().is_some_and(is_taken_at) {
            return Err(other_log(offset));
        }
        // What is no frame counts for no reader.
        let Some((header, updates)) = frame else { return Ok(()) };
        if let Some(approach) = &mut self.approach {
            if offset < self.mark.output_offset {
                let new = approach.take(&header, &updates);
                if let Some(new) = new {
                    give(Followed::Updates(new, approach.at.next_offset));
                }
                return Ok(());
            }
            give(approach.finish()?);
            self.approach = None;
        }
        if offset < self.mark.output_offset {
            return Ok(());
        }
        let before = self.reader.position();
        let verdict = self.reader.fold(&header, &updates);
        let after = self.reader.position();
        let counts = !matches!(verdict, Verdict::Stale | Verdict::Halt);
        if verdict == Verdict::Genesis {
            give(Followed::Begun(self.begin(&header, after)?));
        } else if counts && self.is_begun_by(&header, before) {
            give(Followed::Begun(self.begin(&header, before)?));
        }
        self.note(verdict);
        match verdict {
            // A reader halts at the same place after a genesis, too.
            Verdict::Halt => {
                return Err(Followed::Halted(StartError::Damaged { offset }.to_string()));
            }
            Verdict::Accepted { from } => {
                give(Followed::Updates(updates[from..].to_vec(), after.next_offset));
            }
            Verdict::Progress { .. } if before.next_offset != after.next_offset => {
                give(Followed::Updates(Vec::new(), after.next_offset));
            }
            Verdict::Progress { .. } | Verdict::Fence
                if !self.is_at_gap && is_of_owner(&header, before, after) =>
            {
                give(Followed::OwnerHeard);
            }
            Verdict::Progress { .. }
            | Verdict::Fence
            | Verdict::Skip { .. }
            | Verdict::Genesis
            | Verdict::Joined
            | Verdict::Waiting
            | Verdict::Stale
            | Verdict::Duplicate
            | Verdict::Gap { .. } => {}
        }
        Ok(())
    }

    /// Notes what a frame with this verdict shows of the zone.
    fn note(&mut self, verdict: Verdict) {
        // An empty frame that is not at the next update is of an owner whose frames before it are
        // lost: it does not show that the zone was played.
        if let Verdict::Accepted { .. }
        | Verdict::Progress { is_at_next: true }
        | Verdict::Genesis = verdict
        {
            self.begun = Begun::Settled;
            self.input = InputTag::of_fence(self.reader.fence_id()).or(self.input);
        }
        self.is_at_gap = match verdict {
            Verdict::Gap { .. } => true,
            Verdict::Accepted { .. } => false,
            _ => self.is_at_gap,
        };
    }

    /// Returns whether this frame decides the rules with which the zone begins.
    fn is_begun_by(&self, header: &FrameHeader, before: Position) -> bool {
        // A fence of an owner epoch that was taken already is of an owner that has lost the race.
        let takes_over = header.kind == FrameKind::Fence
            && header.next_offset < 0
            && before.owner_epoch < header.owner_epoch;
        match self.begun {
            Begun::Nothing => true,
            Begun::By(ruleset) => takes_over && ruleset != header.ruleset,
            Begun::Settled => false,
        }
    }

    /// An empty zone by the rules of this frame.
    fn begin(
        &mut self,
        header: &FrameHeader,
        position: Position,
    ) -> Result<Box<ZoneView>, Followed> {
        let FrameHeader { ruleset, .. } = *header;
        let game = self.game.with_first(ruleset).ok_or_else(|| {
            let version = self.game.view_schema().version;
            Followed::Halted(format!(
                "it plays by ruleset {ruleset}, which no rules file has by engine version \
                 {version}, this huntd's: name its file in rules.files, or run the huntd that \
                 published"
            ))
        })?;
        self.begun = Begun::By(ruleset);
        let Position { next_update: update, next_offset, .. } = position;
        let position = ZonePosition { update, next_offset };
        Ok(Box::new(ZoneView::new(self.partition, game, position)))
    }
}

/// Returns whether a fence or an empty frame comes from the owner in force, and not from one of
/// another log
/// with the same epoch: it takes over, or it knows all updates up to here.
fn is_of_owner(header: &FrameHeader, before: Position, after: Position) -> bool {
    let Position { owner_epoch, next_update, chain, .. } = after;
    let takes_over = header.kind == FrameKind::Fence && before.owner_epoch < owner_epoch;
    let knows_all = (header.first_update, header.chain) == (next_update, chain);
    takes_over || (header.owner_epoch == owner_epoch && knows_all)
}

/// Explains why a snapshot is not of this log, whose record before the mark is at this offset.
fn other_log(offset: i64) -> Followed {
    let what = "holds another record than the one that it was taken after";
    Followed::OtherLog(format!("offset {offset} of the output {what}"))
}

/// Explains what to do about a frame that only another version can read.
fn unreadable(offset: i64, error: FrameError) -> Followed {
    Followed::Halted(format!(
        "the frame at offset {offset} cannot be read: {error}; run the version that wrote it"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hunt::Shard;
    use crate::hunt::frames::encode;
    use crate::hunt::rules::ENGINE_VERSION;
    use crate::output::frame::{Chain, Format, Frame};
    use crate::snapshot::checkpoint::{CheckpointHeader, CheckpointId};
    use crate::snapshot::format::Origin;
    use crate::telemetry::progress::TopicId;
    use crate::testing::frame_maker::FrameMaker;
    use crate::testing::hostile_zone::rulebook;
    use std::sync::{Arc, OnceLock};

    fn take(follower: &mut Follower, offset: i64, record: &[u8]) -> Vec<Followed> {
        let mut given = Vec::new();
        follower.take(offset, record, &mut |followed| given.push(followed));
        given
    }

    fn encoded(frame: &Frame) -> Vec<u8> {
        let mut bytes = Vec::new();
        let header = FrameHeader { ruleset: rulebook(false).first().ruleset, ..frame.header };
        encode(Format::Binary, &header, frame.updates.as_slice(), &mut bytes);
        bytes
    }

    fn game() -> Arc<dyn ViewedGame> {
        Arc::new(rulebook(false))
    }

    fn follower() -> (Follower, FrameMaker) {
        (Follower::from_start(0, game()), FrameMaker::new(0))
    }

    #[test]
    fn a_zone_halts_at_a_frame_that_cannot_be_read_and_passes_over_what_is_no_frame() {
        let (mut follower, mut shard) = follower();
        assert!(take(&mut follower, 0, b"no frame").is_empty());
        assert_eq!(take(&mut follower, 1, &encoded(&shard.frame(1))).len(), 2);
        let mut unknown = encoded(&shard.frame(1));
        unknown[64 + 16] = u8::MAX;
        let given = take(&mut follower, 2, &unknown);
        let [Followed::Halted(sentence)] = given.as_slice() else { panic!("{given:?}") };
        assert!(sentence.contains("offset 2") && sentence.contains("update 0"), "{sentence}");
        assert!(take(&mut follower, 3, &encoded(&shard.frame(1))).is_empty());
    }

    #[test]
    fn who_takes_over_begins_by_its_own_rules_when_the_first_frames_of_the_owner_before_are_lost() {
        let (mut follower, mut shard) = follower();
        let rulesets: Vec<u32> = rulebook(false).rulesets().collect();
        let take_over = |owner_epoch, ruleset| FrameHeader {
            owner_epoch,
            ruleset,
            next_offset: -1,
            ..FrameMaker::new(0).fence(1)
        };
        let record = |header: &FrameHeader, updates: &[Update]| {
            let mut bytes = Vec::new();
            encode(Format::Binary, header, updates, &mut bytes);
            bytes
        };
        take(&mut follower, 0, &record(&take_over(1, rulesets[0]), &[]));
        // Its updates were refused; what it sent after them was not.
        shard.frame(5);
        let empty = FrameHeader { ruleset: rulesets[0], ..shard.frame(0).header };
        take(&mut follower, 1, &record(&empty, &[]));
        let given = take(&mut follower, 2, &record(&take_over(2, rulesets[1]), &[]));
        let begins_again = matches!(given.as_slice(), [Followed::Begun(_), Followed::OwnerHeard]);
        assert!(begins_again, "{} parts", given.len());
        // After the first frame that counts, no owner begins the zone by other rules.
        let first = FrameHeader {
            owner_epoch: 2,
            ruleset: rulesets[1],
            ..FrameMaker::new(0).frame(0).header
        };
        take(&mut follower, 3, &record(&first, &[]));
        let given = take(&mut follower, 4, &record(&take_over(3, rulesets[0]), &[]));
        assert!(matches!(given.as_slice(), [Followed::OwnerHeard]), "{} parts", given.len());
    }

    #[test]
    fn a_zone_goes_on_when_a_version_that_it_does_not_know_takes_over() {
        let (mut follower, mut shard) = follower();
        take(&mut follower, 0, &encoded(&shard.frame(3)));
        let record = |header: FrameHeader, updates: &[Update]| {
            let mut bytes = Vec::new();
            let header = FrameHeader { owner_epoch: 2, ruleset: 1, ..header };
            encode(Format::Binary, &header, updates, &mut bytes);
            bytes
        };
        let fence = FrameHeader { next_offset: -1, ..FrameMaker::new(0).fence(2) };
        take(&mut follower, 1, &record(fence, &[]));
        take(&mut follower, 2, &record(shard.frame(0).header, &[]));
        let frame = shard.frame(2);
        let given = take(&mut follower, 3, &record(frame.header, frame.updates.as_slice()));
        let [Followed::Updates(updates, offset)] = given.as_slice() else { panic!("{given:?}") };
        assert_eq!((updates.len(), *offset), (2, shard.next_offset));
    }

    /// The header of a snapshot of an empty shard.
    fn header_at(shard: &Shard, next_offset: i64) -> Header {
        let checkpoint = CheckpointHeader {
            id: CheckpointId { partition: 0, ownership_id: 1, number: 1 },
            ruleset: shard.ruleset(),
            engine_version: ENGINE_VERSION as u32,
            next_offset,
            leader_epoch: None,
            next_update: 0,
            chain: Chain::default(),
            digest: 0,
            skips: Vec::new(),
            state_bytes: 0,
        };
        Header::new(Origin::default(), &checkpoint, 1)
    }

    #[test]
    fn a_zone_begins_behind_the_empty_frames_that_its_snapshot_has_not_seen() {
        let shard = Shard::new(0, &rulebook(false));
        let mut header = header_at(&shard, 2);
        let begun_at = |header: &Header| {
            let (follower, zone, _) =
                Follower::from_snapshot(ZoneImage::of(&shard), header, game(), 0);
            assert!(follower.approach.is_none());
            zone.position().next_offset
        };
        header.mark = Mark { output_offset: 5, owner_epoch: 2, next_offset: 7, ..Mark::default() };
        assert_eq!(begun_at(&header), 7);
        header.mark.next_offset = 1;
        assert_eq!(begun_at(&header), 2);
    }

    #[test]
    fn a_snapshot_is_given_up_where_the_log_does_not_confirm_its_mark() {
        let shard = Shard::new(0, &rulebook(false));
        let mut owner = FrameMaker::new(0);
        let frames = [owner.frame(2), owner.frame(3)];
        let mut header = header_at(&shard, owner.next_offset);
        let FrameMaker { owner_epoch, next_update, next_offset, chain, .. } = owner;
        header.mark = Mark { output_offset: 9, owner_epoch, next_update, next_offset, chain };
        let next = owner.frame(1);
        let begun_at = |header: &Header, records: [&[u8]; 2]| {
            let (mut follower, _, from) =
                Follower::from_snapshot(ZoneImage::of(&shard), header, game(), 5);
            assert!(from <= 7 || (from == 8 && follower.approach.is_none()), "{from}");
            let given: Vec<Followed> = (7..)
                .zip(records.into_iter().chain([encoded(&next).as_slice()]))
                .filter(|(offset, _)| *offset >= from)
                .flat_map(|(offset, record)| take(&mut follower, offset, record))
                .collect();
            match given.as_slice() {
                [.., Followed::OtherLog(why)] => Err(why.clone()),
                given => {
                    let new = |of: &Followed| match of {
                        Followed::Updates(new, _) => new.len(),
                        other => panic!("{other:?}"),
                    };
                    Ok(given.iter().map(new).collect::<Vec<_>>())
                }
            }
        };
        let [first, second] = frames.each_ref().map(|frame| encoded(frame));
        let other = encoded(&FrameMaker::new(0).frame(1));
        // The state has all updates before the mark, or none of them.
        let behind = header.clone();
        (header.next_update, header.chain) = (next_update, chain);
        assert_eq!(begun_at(&header, [&first, &second]), Ok(vec![1]));
        assert_eq!(begun_at(&behind, [&first, &second]), Ok(vec![2, 3, 0, 1]));
        for record in [&first, &other, &b"no frame".to_vec()] {
            for header in [&header, &behind] {
                let why = begun_at(header, [&first, record]).unwrap_err();
                assert!(why.contains("offset 8 of the output"), "{why}");
            }
        }
        let why = begun_at(&behind, [&other, &second]).unwrap_err();
        assert!(why.contains("the updates from 1 to 5 are not before offset 9"), "{why}");
    }

    #[test]
    fn a_zone_is_played_from_the_input_of_its_snapshot_or_else_from_the_first_that_is_present() {
        let inputs = [5_u128, 6].map(|id| InputTag::of_topic(&id.to_be_bytes()));
        let mut unknown = follower().0;
        assert_eq!(inputs.map(|input| unknown.is_played_from(input)), [true, false]);
        let shard = Shard::new(0, &rulebook(false));
        let mut header = header_at(&shard, 0);
        header.origin.input_topic_id = TopicId::new(OnceLock::from(6_u128.to_be_bytes()));
        let (mut known, ..) = Follower::from_snapshot(ZoneImage::of(&shard), &header, game(), 0);
        assert_eq!(inputs.map(|input| known.is_played_from(input)), [false, true]);
    }

    #[test]
    fn updates_that_do_not_match_the_chain_halt_a_zone_and_starting_over_is_not_advised() {
        let (mut follower, mut shard) = follower();
        let mut forged = shard.frame(1);
        forged.header.chain = Chain(1);
        let given = take(&mut follower, 7, &encoded(&forged));
        let Some(Followed::Halted(sentence)) = given.last() else { panic!("{given:?}") };
        assert!(
            sentence.contains("offset 7") && sentence.contains("new output topic"),
            "{sentence}"
        );
        assert!(!sentence.contains("--genesis"), "{sentence}");
    }

    #[test]
    fn a_gap_lasts_until_the_missing_updates_come() {
        let (mut follower, mut shard) = follower();
        let [first, second] = [encoded(&shard.frame(1)), encoded(&shard.frame(1))];
        take(&mut follower, 0, &second);
        assert!(follower.is_at_gap());
        take(&mut follower, 1, &first);
        assert!(!follower.is_at_gap());
        take(&mut follower, 2, &second);
        assert_eq!(follower.reader.position().next_update, 2);
    }
}
