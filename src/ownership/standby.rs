//! The copies that this instance keeps of zones that other instances own. A copy follows its zone's
//! output, and takes the zone over if its owner resigns or falls silent. It asks nobody for that:
//! the fence decides who owns the zone.

use crate::kafka::membership::GroupView;
use crate::kafka::quiet_outputs::QuietOutput;
use crate::output::frame::{Chain, FrameHeader, FrameKind, POSITION_UNKNOWN};
use crate::ownership::acquirer::Acquirer;
use crate::ownership::acquisition::Need;
use crate::ownership::action::{CopyNews, Note, OwnershipAction, TakeoverCause};
use crate::ownership::event::ShardFacts;
use crate::ownership::history::History;
use crate::ownership::placement::TURN;
use crate::ownership::shard_state::ShardState;
use crate::ownership::shard_table::{ShardTable, ZoneCopy};
use crate::ownership::silence::{OwnerSighting, RANK_MS, Silence, SilenceStep};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Milliseconds before a copy that has ended because of a trouble begins again.
const COPY_AGAIN_MS: u64 = 30_000;

/// Milliseconds between two ticks after which nothing is known of the time between: this thread has
/// stood still, and others may be blamed for it.
const STOOD_STILL_MS: u64 = 50;

/// Milliseconds for which an instance leaves a zone to the copy that has taken it over, before it
/// takes the zone back: a host that stutters must not drag its zones to and fro.
pub(super) const TAKE_BACK_MS: u64 = 10_000;

/// Milliseconds for which a copy is kept after its zone was quiet, if that is why it was made.
const QUIET_COPY_MS: u64 = 10_000;

/// Limit of the output records that such a copy reads before it follows: those of some minutes. The
/// group finds another owner before more are read, and the brokers pay for each of them.
const UNREAD_MAX: i64 = 1_000_000;

/// How often that doubles, at most, for a zone whose copies are made again and again because its
/// owner pauses.
const DOUBLINGS_MAX: u32 = 3;

/// Milliseconds after its last copy for which it is remembered how often a zone was copied.
const COPIED_MS: u64 = 600_000;

/// Milliseconds for which copies wait for the zones that this instance is told to own: those have
/// to be loaded within them, or a zone that cannot be loaded would hold all copies up.
const OWNED_FIRST_MS_MAX: u64 = 5_000;

/// Milliseconds after which a copy is not warm any more that was.
const WARM_FOR_MS: u64 = 2_000;

/// What the operator chose for copies of zones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StandbyOptions {
    /// Copies of each zone beside its owner. 0: a copy is made once a zone has fallen quiet.
    pub copies: u32,
    /// Milliseconds for which an owner may publish nothing although there is input; 0: for ever.
    pub silence_ms: u32,
    /// No group gives the zones of dead instances to others.
    pub is_without_group: bool,
}

impl StandbyOptions {
    /// Returns whether there is ever a copy.
    pub fn is_on(self) -> bool {
        self.copies > 0 || self.silence_ms > 0
    }

    /// Returns whether an instance makes a copy of a zone that is not one of its own once the zone
    /// has fallen quiet.
    pub(crate) fn follows_quiet_zones(self) -> bool {
        self.silence_ms > 0 && (self.copies == 0 || self.is_without_group)
    }

    /// Returns how many members may keep a copy of a zone. If instances follow quiet zones, any
    /// member may, once its turn comes.
    pub fn keepers(self) -> u32 {
        match self.follows_quiet_zones() {
            true => u32::MAX,
            false => self.copies,
        }
    }
}

/// What all copies have in common.
#[derive(Debug)]
pub(super) struct Standby {
    options: StandbyOptions,
    /// What is known of the owners of all zones that were ever followed.
    silences: BTreeMap<i32, Silence>,
    /// The place in the group of the owner of each zone.
    owners: BTreeMap<i32, usize>,
    /// The zones of which copies were begun.
    begun: BTreeMap<i32, BegunCopies>,
    /// The positions, as updates and input offset, at which zones were taken over by silence. What
    /// has ended two owners there ends the next one, too.
    taken: BTreeMap<i32, (u64, i64)>,
    ticked_at: Option<Instant>,
    /// When this thread last went on after it had stood still.
    awake_since: Option<Instant>,
    /// Since when zones are on their way that this instance is told to own; `None`: none is.
    acquiring_since: Option<Instant>,
    /// The zones of several owners are silent.
    is_crowd: bool,
}

/// The copies of a zone that took nothing over.
#[derive(Clone, Copy, Debug)]
struct BegunCopies {
    count: u32,
    last_at: Instant,
}

impl BegunCopies {
    /// Returns whether they are forgotten.
    fn are_past(self, now: Instant) -> bool {
        now.saturating_duration_since(self.last_at) >= Duration::from_millis(COPIED_MS)
    }

    /// When the next one may begin.
    fn next_at(self) -> Instant {
        self.last_at + Duration::from_millis(COPY_AGAIN_MS << (self.count - 1).min(DOUBLINGS_MAX))
    }
}

impl Standby {
    /// No copy is kept yet.
    pub(super) fn new(options: StandbyOptions) -> Standby {
        Standby {
            options,
            silences: BTreeMap::new(),
            owners: BTreeMap::new(),
            begun: BTreeMap::new(),
            taken: BTreeMap::new(),
            ticked_at: None,
            awake_since: None,
            acquiring_since: None,
            is_crowd: false,
        }
    }

    /// Returns whether zones are taken over without a word of the group.
    pub(super) fn is_on(&self) -> bool {
        self.options.is_on()
    }

    /// Returns whether each zone has copies that wait for a resignation.
    pub(super) fn waits_for_resignations(&self) -> bool {
        self.options.copies > 0
    }

    /// No copy is kept any more.
    pub(super) fn end(&mut self) {
        self.options = StandbyOptions::default();
    }

    /// A note was appended, at this offset; `None`: it is not known to be.
    pub(super) fn noted(&mut self, partition: i32, offset: Option<i64>, now: Instant) {
        if let Some(silence) = self.silences.get_mut(&partition) {
            silence.probed(offset, now);
        }
    }

    /// A zone goes to the hot thread that was taken over at this position, as updates and input
    /// offset, from a silent owner.
    pub(super) fn took(&mut self, partition: i32, position: (u64, i64)) {
        self.taken.insert(partition, position);
    }

    /// Takes the time of a tick. Returns how long ago the last one was.
    pub(super) fn tick(&mut self, table: &ShardTable, now: Instant) -> Duration {
        let before = self.ticked_at.replace(now).unwrap_or(now);
        let turn = now.saturating_duration_since(before);
        if turn >= Duration::from_millis(STOOD_STILL_MS) {
            self.silences.values_mut().for_each(Silence::forget);
            self.awake_since = Some(now);
        }
        let is_suspicious = |partition: &&i32| {
            self.silences.get(partition).is_some_and(|silence| silence.is_suspicious(now))
        };
        let suspicious: Vec<i32> = table.copies.keys().filter(is_suspicious).copied().collect();
        let owners: BTreeSet<_> = suspicious.iter().map(|at| self.owners.get(at)).collect();
        self.is_crowd = owners.len() > 1 && 2 * suspicious.len() > table.copies.len();
        let is_on_its_way = |(partition, shard): (i32, &ShardState)| {
            shard.history().is_some() && !table.is_copy(partition)
        };
        let since = self.acquiring_since.unwrap_or(now);
        self.acquiring_since = table.iter().any(is_on_its_way).then_some(since);
        turn
    }

    /// Returns whether a shard that is due may begin. A copy leaves the threads to the zones that
    /// this instance is told to own, unless its own zone has fallen quiet.
    pub(super) fn may_acquire(&self, table: &ShardTable, partition: i32, now: Instant) -> bool {
        let is_standing = |copy: &ZoneCopy| copy.rank < self.options.copies;
        let lasts = |since| now.saturating_duration_since(since);
        let is_held_up = |since| lasts(since) < Duration::from_millis(OWNED_FIRST_MS_MAX);
        !table.copies.get(&partition).is_some_and(is_standing)
            || !self.acquiring_since.is_some_and(is_held_up)
    }

    /// Begins to watch the owner of a zone.
    pub(super) fn watch(&mut self, partition: i32, now: Instant) {
        let silence_ms = self.options.silence_ms;
        let silence = self.silences.entry(partition);
        silence.or_insert_with(|| Silence::new(silence_ms, now)).begin_again();
    }

    /// Takes what the brokers say of an output that has fallen quiet. What was before this thread
    /// stood still does not count.
    fn take_quiet(&mut self, partition: i32, quiet: Option<&QuietOutput>, now: Instant) {
        let Some(silence) = self.silences.get_mut(&partition) else { return };
        let since = |quiet: &QuietOutput| now.checked_sub(quiet.owed).max(self.awake_since);
        silence.take_quiet(quiet.and_then(|quiet| Some((quiet.end, since(quiet)?))));
    }

    fn begin_watching(&mut self, partition: i32, now: Instant) {
        self.watch(partition, now);
        let before = self.begun.get(&partition).filter(|begun| !begun.are_past(now));
        let count = before.map_or(1, |begun| begun.count.saturating_add(1));
        self.begun.insert(partition, BegunCopies { count, last_at: now });
    }

    /// Returns whether a copy may be made because its zone is quiet. One whose owner only pauses,
    /// again and again, is not copied each time.
    fn may_begin(&self, partition: i32, now: Instant) -> bool {
        let begun = self.begun.get(&partition);
        begun.is_none_or(|begun| begun.next_at() <= now || begun.are_past(now))
    }
}

impl Acquirer {
    /// Takes who is in the group: copies begin and end.
    pub(super) fn group_seen(
        &mut self,
        table: &mut ShardTable,
        view: &GroupView,
        ours: &str,
        now: Instant,
    ) {
        if !self.standby.is_on() || !view.has(ours) {
            return;
        }
        for (partition, offset) in &view.committed {
            if table.is_copy(*partition)
                && let Some(task) = table.task(*partition)
            {
                task.committed = Some(*offset);
            }
        }
        let copies = self.standby.options.copies;
        let mut placed = view.copies_of(ours, self.partitions(), self.standby.options.keepers());
        if self.standby.options.follows_quiet_zones() {
            let first_turn = view.first_turn();
            placed.retain(|partition, rank| {
                if *rank < copies {
                    return true;
                }
                let owed = view.quiet.get(partition).map(|quiet| quiet.owed);
                let is_quiet = owed.is_some();
                let is_there = table.get(*partition).is_some();
                let Some(copy) = table.copies.get_mut(partition) else {
                    let is_our_turn = owed.is_some_and(|owed| owed >= first_turn + TURN * *rank);
                    return is_our_turn && self.standby.may_begin(*partition, now);
                };
                if is_quiet {
                    copy.quiet_at = now;
                }
                // One that has failed is remembered, and does not begin again at once.
                let (since, kept_ms) = match is_there {
                    true => (copy.quiet_at, QUIET_COPY_MS),
                    false => (copy.begun_at, COPY_AGAIN_MS),
                };
                is_quiet || now.saturating_duration_since(since) < Duration::from_millis(kept_ms)
            });
        }
        let owner = |partition: &i32| Some((*partition, view.owner_of(*partition)?));
        self.standby.owners = placed.keys().filter_map(owner).collect();
        table.drop_copies(|partition| placed.contains_key(partition));
        for (partition, rank) in placed {
            self.place(table, partition, rank, now);
            self.standby.take_quiet(partition, view.quiet.get(&partition), now);
        }
    }

    /// This instance is to keep a copy.
    fn place(&mut self, table: &mut ShardTable, partition: i32, rank: u32, now: Instant) {
        let is_there = table.get(partition).is_some();
        let again = Duration::from_millis(COPY_AGAIN_MS);
        match table.copies.get_mut(&partition) {
            Some(copy) => {
                copy.rank = rank;
                let is_early = now.saturating_duration_since(copy.begun_at) < again;
                let may_begin =
                    rank < self.standby.options.copies || self.standby.may_begin(partition, now);
                if is_there || is_early || !may_begin {
                    return;
                }
            }
            // It is ours already, or on its way.
            None if is_there => return,
            None => table.log(Note::Copy { partition, news: CopyNews::Begins { rank } }),
        }
        table.copies.insert(partition, ZoneCopy::new(rank, now));
        table.make_due(partition, now, History::default());
        self.standby.begin_watching(partition, now);
    }

    /// All states are known from which a copy can begin. One that was made because its zone had
    /// fallen quiet ends if they are far from the end of the output.
    pub(super) fn leave_long_output(&self, table: &mut ShardTable, partition: i32) {
        let StandbyOptions { copies, is_without_group, .. } = self.standby.options;
        if copies > 0 || is_without_group || !table.is_copy(partition) {
            return;
        }
        let acquisition = table.acquisition(partition);
        let unread = acquisition.map_or(0, |it| it.output_end() - it.read_to());
        if unread > UNREAD_MAX {
            let why = format!(
                "{unread} records of its output follow the newest snapshot that this instance can \
                 read; set snapshot.topic"
            );
            table.give_copy_up(partition, why);
        }
    }

    /// A copy follows without a word of the group, and it fences nothing because of the group.
    pub(super) fn go_on_without_group(
        &mut self,
        table: &mut ShardTable,
        partition: i32,
        now: Instant,
    ) {
        if !table.is_copy(partition) {
            return;
        }
        let Some(task) = table.task(partition) else { return };
        if !matches!(task.need(), Need::Confirm { .. }) {
            return;
        }
        if task.acquisition().is_some_and(|acquisition| !acquisition.may_fence()) {
            task.follow();
            return table.slots.moved(partition, now);
        }
        let why = "no engine can follow its output now".to_owned();
        table.give_copy_up(partition, why);
    }

    /// Watches the owner of a zone, and takes the zone over if it resigns or is silent.
    pub(super) fn watch_owner(&mut self, table: &mut ShardTable, facts: &ShardFacts, now: Instant) {
        let partition = facts.partition;
        let Some(ZoneCopy { rank, .. }) = table.copies.get(&partition).copied() else { return };
        let Some(ShardState::Acquiring { task, follower: Some(follower), .. }) =
            table.get_mut(partition)
        else {
            return;
        };
        let (Need::Follow { .. }, Some(acquisition)) = (task.need(), task.acquisition()) else {
            return;
        };
        if follower.cannot_promote {
            let why = "it cannot go on as its owner; it begins at a snapshot again".to_owned();
            return table.give_copy_up(partition, why);
        }
        let (Some(mark), Some((owner_epoch, in_force))) =
            (acquisition.cover(), acquisition.fence_in_force())
        else {
            return;
        };
        if self.options.fence_ids.are_of_another(in_force) {
            return;
        }
        let is_eligible = !acquisition.is_of_other_version()
            && acquisition.can_go_on()
            && follower.ahead_since.is_none()
            && mark == follower.covered
            && facts.applied >= mark.next_offset
            && facts.next_update == mark.next_update;
        let resignation = self.options.fence_ids.resignation(owner_epoch);
        let is_resigned = acquisition.resignation() == Some(resignation);
        let sighting = OwnerSighting {
            owner_epoch,
            position: (mark.next_update, mark.next_offset),
            decoded: facts.decoded,
            read_to: acquisition.read_to(),
            is_eligible,
            is_crowd: self.standby.is_crowd,
        };
        if is_resigned {
            let known = follower.resigned_at.filter(|(of, _)| *of == owner_epoch);
            let (_, since) = *follower.resigned_at.insert(known.unwrap_or((owner_epoch, now)));
            let turn_at = since + Duration::from_millis(RANK_MS * u64::from(rank));
            if is_eligible && turn_at <= now {
                return self.take_over(table, partition, TakeoverCause::Resignation, None, now);
            }
        }
        // Without a group, nobody else is left.
        let was_taken_here = !self.standby.options.is_without_group
            && self.standby.taken.get(&partition) == Some(&sighting.position);
        if self.standby.options.silence_ms == 0 || was_taken_here {
            return;
        }
        let Some(silence) = self.standby.silences.get_mut(&partition) else { return };
        match silence.look(&sighting, rank, now) {
            SilenceStep::Wait => {}
            SilenceStep::Probe => {
                let probe = self.options.fence_ids.next_probe();
                let header = self.note(probe);
                table.log(Note::Copy { partition, news: CopyNews::Probes });
                table.actions.push_back(OwnershipAction::Note { partition, header });
            }
            SilenceStep::TakeOver(silence) => {
                let cause = TakeoverCause::Silence(silence);
                self.take_over(table, partition, cause, Some(sighting.position), now);
            }
        }
    }

    fn take_over(
        &mut self,
        table: &mut ShardTable,
        partition: i32,
        cause: TakeoverCause,
        silent_at: Option<(u64, i64)>,
        now: Instant,
    ) {
        let fence_id = self.options.fence_ids.next();
        let Some(ShardState::Acquiring { task, history, .. }) = table.get_mut(partition) else {
            unreachable!("the caller looked");
        };
        let owner_epoch = task.fence_in_force().map_or(0, |(owner_epoch, _)| owner_epoch);
        task.take_over(fence_id);
        self.standby.begun.remove(&partition);
        (history.fences, history.silent_at) = (history.fences + 1, silent_at);
        self.rivals.fence(partition, owner_epoch + 1);
        table.slots.moved(partition, now);
        table.log(Note::Copy { partition, news: CopyNews::TakesOver(cause) });
    }

    /// The owner of these shards is about to end: their copies need not wait for its silence.
    pub(super) fn resign(&self, table: &mut ShardTable) {
        let open = table.iter().filter_map(|(at, shard)| Some((at, shard.open()?.owner_epoch)));
        let notes: Vec<OwnershipAction> = open
            .map(|(partition, owner_epoch)| {
                let header = self.note(self.options.fence_ids.resignation(owner_epoch));
                OwnershipAction::Note { partition, header }
            })
            .collect();
        table.actions.extend(notes);
    }

    /// How many copies this instance keeps. One that has failed counts, although it begins again
    /// only after a while: its zone has no other. If it was made because its zone had fallen quiet,
    /// or waits for another version, nobody counts on it.
    pub(super) fn copies(&self, table: &ShardTable) -> u32 {
        let is_standing = self.standby.options.copies > 0;
        let counts = |(partition, copy): &(&i32, &ZoneCopy)| {
            table.get(**partition).is_some() || (is_standing && !copy.awaits_version)
        };
        table.copies.iter().filter(counts).count() as u32
    }

    /// How many copies are warm.
    pub(super) fn warm_copies(&self, table: &ShardTable, now: Instant) -> u32 {
        let is_warm = |partition: &&i32| match table.get(**partition) {
            Some(ShardState::Acquiring { follower: Some(follower), .. }) => {
                let warm_at = follower.warm_at;
                warm_at.is_some_and(|at| {
                    now.saturating_duration_since(at) < Duration::from_millis(WARM_FOR_MS)
                })
            }
            _ => false,
        };
        table.copies.keys().filter(is_warm).count() as u32
    }

    /// What the owner with this epoch appends last.
    pub(super) fn farewell(&self, owner_epoch: u64) -> FrameHeader {
        self.note(self.options.fence_ids.farewell(owner_epoch))
    }

    fn note(&self, fence_id: u128) -> FrameHeader {
        FrameHeader {
            kind: FrameKind::Fence,
            owner_epoch: 0,
            first_update: 0,
            count: 0,
            next_offset: POSITION_UNKNOWN,
            ruleset: self.options.rulesets[0],
            chain: Chain::default(),
            fence_id,
        }
    }
}
