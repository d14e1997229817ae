//! Following one zone's output partition: from its records to what the view folds.
//!
//! Pure: the feed reads the records and gives them in the order of the log. The reader rule decides
//! which updates count, and its chain that they are those that were published.

use crate::engine::Shard;
use crate::engine::rules::rulebook::Rulebook;
use crate::engine::update::Update;
use crate::output::encode::{FrameError, decode_frame};
use crate::output::frame::{FrameHeader, FrameKind};
use crate::output::reader::{Position, Reader, Verdict};
use crate::snapshot::format::Header;
use crate::view::zone::{ZonePosition, ZoneView};

/// Records before a snapshot's mark from which on a zone is read: the mark may lie behind frames
/// that the state has not seen, as many as a shard has on their way, and their fences.
const RECORDS_BEFORE_MARK: i64 = 64;

/// What one record means to the view.
#[derive(Debug)]
pub enum Followed {
    /// The zone begins, in place of what was known of it.
    Begun(Box<ZoneView>),
    /// New updates, possibly none, up to this input offset.
    Updates(Vec<Update>, i64),
    /// The zone cannot be followed any further: why, and what to do.
    Halted(String),
}

/// Where a zone stands, record by record.
#[derive(Clone)]
pub struct Follower {
    partition: u16,
    rulebook: Rulebook,
    reader: Reader,
    begun: Begun,
    has_halted: bool,
}

/// Whether a zone was made, and by which rules.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begun {
    /// Not yet: the first frame decides.
    Nothing,
    /// By this ruleset, unless an owner takes over that would begin by another one before anything
    /// was played.
    By(u32),
    /// By what nobody changes any more: a snapshot, a genesis, a frame of what was played.
    ForGood,
}

impl Follower {
    /// A follower at the log's very start.
    pub fn from_start(partition: u16, rulebook: &Rulebook) -> Follower {
        let (reader, rulebook) = (Reader::new(), rulebook.clone());
        Follower { partition, rulebook, reader, begun: Begun::Nothing, has_halted: false }
    }

    /// A follower behind a snapshot's state, with the zone that it is, and the first record that it
    /// takes of a log that begins at `log_start`.
    pub fn from_snapshot(
        shard: &Shard,
        header: &Header,
        rulebook: &Rulebook,
        log_start: i64,
    ) -> (Follower, Box<ZoneView>, i64) {
        let Header { next_update, next_offset, chain, mark, .. } = *header;
        // What lies before the mark may be an earlier owner's.
        let position = Position { owner_epoch: 0, next_update, next_offset, chain };
        let follower = Follower {
            partition: shard.partition(),
            rulebook: rulebook.clone(),
            reader: Reader::at(position),
            begun: Begun::ForGood,
            has_halted: false,
        };
        let at = ZonePosition { update: next_update, next_offset };
        let zone = Box::new(ZoneView::of_shard(shard, rulebook, at));
        (follower, zone, (mark.output_offset - RECORDS_BEFORE_MARK).max(log_start))
    }

    /// Number of the present owner's epoch.
    pub fn owner_epoch(&self) -> u64 {
        self.reader.position().owner_epoch
    }

    /// The log has no further record at present: a zone without any begins by the first rules.
    pub fn at_end(&mut self) -> Option<Followed> {
        if self.begun != Begun::Nothing || self.has_halted {
            return None;
        }
        self.begun = Begun::By(self.rulebook.first().ruleset);
        Some(Followed::Begun(Box::new(ZoneView::new(self.partition, &self.rulebook))))
    }

    /// Takes the next record of the log, and gives what it means, in order.
    pub fn take(&mut self, offset: i64, payload: &[u8], give: &mut dyn FnMut(Followed)) {
        if self.has_halted {
            return;
        }
        if let Err(sentence) = self.follow(offset, payload, give) {
            self.has_halted = true;
            give(Followed::Halted(sentence));
        }
    }

    fn follow(
        &mut self,
        offset: i64,
        payload: &[u8],
        give: &mut dyn FnMut(Followed),
    ) -> Result<(), String> {
        let (header, updates) = match decode_frame(payload) {
            Ok(frame) => frame,
            Err(FrameError::Version(version)) => {
                return Err(format!(
                    "the frame at offset {offset} has version {version}, which this huntd cannot \
                     read; run the version that wrote it"
                ));
            }
            // What is no frame counts for no reader.
            Err(_) => return Ok(()),
        };
        let before = self.reader.position();
        let verdict = self.reader.fold(&header, &updates);
        let after = self.reader.position();
        let counts = !matches!(verdict, Verdict::Stale | Verdict::Halt);
        if verdict == Verdict::Genesis {
            give(Followed::Begun(self.begin(&header, after)?));
            self.begun = Begun::ForGood;
        } else if counts && self.is_begun_by(&header, before) {
            give(Followed::Begun(self.begin(&header, before)?));
        }
        if matches!(verdict, Verdict::Accepted { .. } | Verdict::Progress) {
            self.begun = Begun::ForGood;
        }
        match verdict {
            Verdict::Halt => {
                return Err(format!(
                    "the updates at offset {offset} are not those that were published; restore the \
                     output topic, or start the shard over with `huntd run --genesis`"
                ));
            }
            Verdict::Accepted { from } => {
                give(Followed::Updates(updates[from..].to_vec(), after.next_offset));
            }
            Verdict::Progress if before.next_offset != after.next_offset => {
                give(Followed::Updates(Vec::new(), after.next_offset));
            }
            Verdict::Progress
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

    /// Whether this frame says by which rules the zone begins.
    fn is_begun_by(&self, header: &FrameHeader, before: Position) -> bool {
        // A fence of an epoch that was taken already is of an owner that has lost the race.
        let takes_over = header.kind == FrameKind::Fence
            && header.next_offset < 0
            && before.owner_epoch < header.owner_epoch;
        match self.begun {
            Begun::Nothing => true,
            Begun::By(ruleset) => takes_over && ruleset != header.ruleset,
            Begun::ForGood => false,
        }
    }

    /// An empty zone by the rules of this frame.
    fn begin(&mut self, header: &FrameHeader, position: Position) -> Result<Box<ZoneView>, String> {
        let FrameHeader { ruleset, .. } = *header;
        let rulebook = self.rulebook.beginning_by(ruleset).ok_or_else(|| {
            format!(
                "it plays by ruleset {ruleset}, which this process does not have; name its file in \
                 rules.files, and run the version of huntd that wrote it"
            )
        })?;
        self.begun = Begun::By(ruleset);
        let Position { next_update: update, next_offset, .. } = position;
        let shard = Shard::new(self.partition, &rulebook);
        Ok(Box::new(ZoneView::of_shard(&shard, &rulebook, ZonePosition { update, next_offset })))
    }
}
