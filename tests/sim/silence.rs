//! What a copy is for: the owner of a zone freezes, and the zone goes on without the group.

use crate::sim::{HOSTS, Sim};
use huntd::kafka::membership::GroupView;

/// The zone on trial. The group gives it to the daemon that has been there longest.
const PARTITION: i32 = 0;

/// Of so many simulations, one has a trial: it takes longer than the rest.
const TRIED_IN: u64 = 8;

/// Microseconds after which nothing stalls any more that faults have stalled.
const STALLED_US_MAX: u64 = 10_000_000;

/// Microseconds in which copies of a daemon that has just started are warm.
const WARM_US_MAX: u64 = 60_000_000;

/// Microseconds beyond the configured silence after which the zone goes on, if there is a copy. Of
/// these, a fence may take 400,000 until it is acknowledged.
const SILENT_US_MAX: u64 = 1_500_000;

/// The same if a copy has to be made first.
const COPIED_US_MAX: u64 = 6_000_000;

/// The same if another host died just before, and the group does not know it yet: it has its turns.
const DEAD_US_MAX: u64 = 10_000_000;

/// The same if a broker is cut off: a copy may have to find out that another one leads.
const CUT_OFF_US_MAX: u64 = 20_000_000;

/// Owners that a zone has after one fell silent, at most.
const TAKEOVERS_MAX: u64 = 1;

/// The same if a broker is cut off, which holds the new owner's first frame back.
const TAKEOVERS_CUT_OFF_MAX: u64 = 2;

/// Groups of events before its owner freezes, if no copy watches it, and microseconds between two:
/// an output is quiet only if it was seen to grow, and if its input goes on.
const PLAYED_TIMES: u32 = 20;
const PLAYED_EVERY_US: u64 = 200_000;

/// Microseconds for which the owner is frozen at most: longer than the zone may be silent.
const FREEZE_US: u64 = 60_000_000;

impl Sim {
    /// Everything is caught up, and nothing goes wrong from here on. The owner of a zone freezes in
    /// the middle of its game: a copy that knows nothing of earlier silences takes its place.
    pub(crate) fn try_silence(&mut self) -> Result<(), String> {
        if self.standby.silence_ms == 0
            || self.is_hopeless(PARTITION)
            || !self.chance.one_in(TRIED_IN)
        {
            return Ok(());
        }
        let begun = self.now;
        while self.now < begun + STALLED_US_MAX {
            self.step()?;
        }
        let Some(owner) = self.owner(PARTITION) else { return Ok(()) };
        let others = (0..HOSTS).filter(|host| *host != owner);
        others.for_each(|host| self.end(host));
        let warm_by = self.now + WARM_US_MAX;
        let needs_copy = self.standby.copies > 0;
        while !self.is_caught_up()
            || !self.is_shared_out()
            || (needs_copy && !self.are_copies_warm())
        {
            if self.now > warm_by {
                // A zone that is halted for good has no owner.
                return match self.is_shared_out() {
                    true => Err(format!("no copy is warm, {}", self.stuck())),
                    false => Ok(()),
                };
            }
            self.step()?;
        }
        if !needs_copy || self.standby.is_without_group {
            self.play_for_a_while()?;
        }
        match self.owner(PARTITION) == Some(owner) {
            true => self.freeze(owner),
            false => Ok(()),
        }
    }

    fn freeze(&mut self, owner: usize) -> Result<(), String> {
        self.trace(&format!("host {owner} freezes"));
        self.group.is_away = true;
        let needs_none =
            self.standby.copies == 0 || (self.standby.is_without_group && self.standby.copies == 1);
        let is_one_dead = needs_none && self.chance.one_in(2);
        if is_one_dead {
            let dead = self.copying_host().unwrap_or((owner + 1) % HOSTS);
            self.trace(&format!("host {dead} is dead"));
            self.set_paused(dead, self.now + FREEZE_US);
            if self.chance.one_in(2) {
                self.group.unsettle();
            }
        }
        self.broker.answers_notes_at_once = true;
        self.set_paused(owner, self.now + FREEZE_US);
        self.play_in(PARTITION);
        let end = self.broker.inputs[PARTITION as usize].end;
        let (more_us, takeovers_max) = match self.standby.copies {
            _ if self.broker.cut_off.is_some() => (CUT_OFF_US_MAX, TAKEOVERS_CUT_OFF_MAX),
            _ if is_one_dead => (DEAD_US_MAX, TAKEOVERS_MAX),
            0 => (COPIED_US_MAX, TAKEOVERS_MAX),
            _ => (SILENT_US_MAX, TAKEOVERS_MAX),
        };
        let silent_by = self.now + 1_000 * u64::from(self.standby.silence_ms) + more_us;
        let mut played_at = self.now;
        let owner_epoch = self.followers[PARTITION as usize].mark().owner_epoch;
        while self.followers[PARTITION as usize].mark().next_offset < end {
            if self.now > silent_by {
                // Records are lost that no copy can do without.
                if self.is_hopeless(PARTITION) {
                    break;
                }
                return Err(format!("partition {PARTITION} is silent: {}", self.stuck()));
            }
            if needs_none && self.now > played_at + PLAYED_EVERY_US {
                self.play_in(PARTITION);
                played_at = self.now;
            }
            self.step()?;
        }
        let takeovers = self.followers[PARTITION as usize].mark().owner_epoch - owner_epoch;
        if takeovers > takeovers_max {
            return Err(format!("partition {PARTITION} has had {takeovers} owners since"));
        }
        self.group.is_away = false;
        (0..HOSTS).for_each(|host| self.set_paused(host, self.now));
        Ok(())
    }

    /// The host that keeps the first copy of the zone, if there are copies.
    fn copying_host(&self) -> Option<usize> {
        let view = GroupView { members: self.group.describe().members, ..GroupView::default() };
        let (partitions, copies) = (self.followers.len() as i32, self.standby.copies.min(1));
        let has_copy = |host: &usize| {
            view.copies_of(&host.to_string(), partitions, copies).contains_key(&PARTITION)
        };
        (0..HOSTS).find(has_copy)
    }

    fn play_for_a_while(&mut self) -> Result<(), String> {
        for _ in 0..PLAYED_TIMES {
            self.play_in(PARTITION);
            let until = self.now + PLAYED_EVERY_US;
            while self.now < until {
                self.step()?;
            }
        }
        Ok(())
    }

    /// The host whose daemon owns the zone.
    fn owner(&self, partition: i32) -> Option<usize> {
        self.hosts.iter().position(|host| {
            host.node.as_ref().is_some_and(|node| {
                let progress = node.progress.shard(partition);
                progress.ownership_id.get() != 0 && progress.following.get() == 0
            })
        })
    }

    /// Whether all daemons run, and each zone is owned by the one that the group names.
    fn is_shared_out(&self) -> bool {
        let member = |host: usize| {
            let member = self.hosts[host].node.as_ref()?.control.member;
            self.group.settled(member).map(|_| member)
        };
        let is_where_named = |partition: i32| {
            let owner = self.owner(partition).and_then(member);
            owner.is_some() && owner == self.group.owner(partition)
        };
        self.group.describe().is_stable
            && (0..HOSTS).all(|host| member(host).is_some())
            && (0..self.followers.len() as i32).all(is_where_named)
    }

    /// Whether each daemon that is to keep a copy of the zone now follows it, and has come to where
    /// its output ends. One that begins its copy later cannot know that another one has just taken
    /// the zone over.
    fn are_copies_warm(&self) -> bool {
        let view = GroupView { members: self.group.describe().members, ..GroupView::default() };
        let (partitions, copies) = (self.followers.len() as i32, self.standby.copies);
        let end = self.broker.inputs[PARTITION as usize].end;
        self.hosts.iter().filter_map(|host| host.node.as_ref()).all(|node| {
            let id = self.group.id(node.control.member, node.control.host);
            let placed = view.copies_of(&id, partitions, copies);
            let progress = node.progress.shard(PARTITION);
            let is_warm = progress.following.get() != 0 && progress.applied.get() == end;
            is_warm || !placed.contains_key(&PARTITION)
        })
    }
}
