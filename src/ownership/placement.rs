//! Which instance keeps a copy of which zone: rendezvous hashing over the group's members. All
//! instances come to the same answer without a word to each other. A member that comes or goes
//! moves its own share of the copies only.

use crate::kafka::membership::{GroupMember, GroupView};
use crate::kit::mix;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Copies of a zone, at most.
pub(crate) const COPIES_MAX: u32 = 2;

/// Time that a member has to take over a zone that has fallen quiet, before it is the next one's
/// turn: it may be dead, too, and the group does not know it yet.
pub(super) const TURN: Duration = Duration::from_secs(2);

impl GroupView {
    /// Returns whether the group counts a member in.
    pub(super) fn has(&self, member: &str) -> bool {
        self.members.iter().any(|it| it.id == member)
    }

    /// The place among the members of the one that the group names as a zone's owner.
    pub(crate) fn owner_of(&self, partition: i32) -> Option<usize> {
        self.members.iter().position(|member| member.partitions.contains(&partition))
    }

    /// Returns for how long a zone has to owe frames before it is the first member's turn. If zones
    /// of several owners are quiet, the brokers may have paused: each further owner costs one more
    /// turn.
    pub(super) fn first_turn(&self) -> Duration {
        let owners: BTreeSet<_> = self.quiet.keys().map(|quiet| self.owner_of(*quiet)).collect();
        TURN * owners.len().saturating_sub(1) as u32
    }

    /// The zones of which a member keeps a copy, each with its rank: how many other copies come
    /// first.
    pub fn copies_of(&self, member: &str, partitions: i32, copies: u32) -> BTreeMap<i32, u32> {
        let ranked = |partition| Some((partition, self.rank_of(member, partition, copies)?));
        (0..partitions).filter_map(ranked).collect()
    }

    fn rank_of(&self, member: &str, partition: i32, copies: u32) -> Option<u32> {
        let rank = self.keepers_of(partition, copies).iter().position(|it| it.id == member);
        rank.map(|rank| rank as u32)
    }

    /// The members that keep the copies of a zone, by rank: those with the highest hashes. Those on
    /// the owner's host come last.
    pub(crate) fn keepers_of(&self, partition: i32, copies: u32) -> Vec<&GroupMember> {
        let owner = self.owner_of(partition);
        let owner_host = owner.map(|owner| &self.members[owner].host);
        let mut others: Vec<&GroupMember> = self.members.iter().collect();
        if let Some(owner) = owner {
            others.remove(owner);
        }
        others.sort_by_key(|other| {
            let shares_host = Some(&other.host) == owner_host;
            (shares_host, Reverse(weight(&other.id, partition)), &other.id)
        });
        others.truncate(copies as usize);
        others
    }
}

/// The hash of a member and a zone.
fn weight(id: &str, partition: i32) -> u64 {
    let words = id.bytes().map(u64::from);
    words.fold(u64::from(partition.unsigned_abs()), |hash, word| mix::hash(&[word], hash))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::quiet_outputs::QuietOutput;
    use std::collections::BTreeSet;

    const ZONES: i32 = 64;

    /// A group of these instances, each on a host of its own.
    fn group(names: &[&str]) -> GroupView {
        let owned = |place: usize| (0..ZONES).filter(move |at| *at as usize % names.len() == place);
        let member = |(place, name): (usize, &&str)| GroupMember {
            id: (*name).to_owned(),
            host: format!("/10.0.0.{place}"),
            partitions: owned(place).collect(),
        };
        let members = names.iter().enumerate().map(member).collect();
        GroupView { members, ..GroupView::default() }
    }

    /// Who keeps which copies, as each instance sees it by itself.
    fn placed(names: &[&str], copies: u32) -> BTreeSet<(i32, u32, String)> {
        let of = |name: &&str| {
            let kept = group(names).copies_of(name, ZONES, copies);
            let name = (*name).to_owned();
            kept.into_iter().map(move |(partition, rank)| (partition, rank, name.clone()))
        };
        names.iter().flat_map(of).collect()
    }

    #[test]
    fn each_zone_has_its_copies_on_members_that_do_not_own_it() {
        let names = ["a", "b", "c", "d"];
        let placed = placed(&names, 2);
        assert_eq!(placed.len(), 2 * ZONES as usize);
        for (partition, _, name) in &placed {
            assert_ne!(*name, names[*partition as usize % names.len()], "zone {partition}");
        }
        let share = placed.iter().filter(|(_, _, name)| name == "a").count();
        assert!((16..48).contains(&share), "a has {share} of {} copies", placed.len());
    }

    #[test]
    fn a_group_of_one_has_no_copies_and_a_group_of_two_has_one_of_each_zone() {
        assert_eq!(placed(&["a"], 2).len(), 0);
        let two = placed(&["a", "b"], 2);
        assert_eq!(two.len(), ZONES as usize);
        assert!(two.iter().all(|(_, rank, _)| *rank == 0));
    }

    #[test]
    fn a_copy_is_on_the_owner_s_host_only_if_there_is_no_other() {
        let mut view = group(&["a", "b", "c"]);
        view.members[1].host = view.members[0].host.clone();
        let of_a = |view: &GroupView| {
            let copies = view.copies_of("b", ZONES, 1);
            copies.keys().filter(|partition| *partition % 3 == 0).count()
        };
        assert_eq!(of_a(&view), 0, "c is on another host");
        view.members.pop();
        assert_eq!(of_a(&view), 22, "there is nobody else");
    }

    #[test]
    fn a_member_that_comes_moves_only_copies_to_itself() {
        let before = group(&["a", "b", "c"]);
        let mut after = before.clone();
        let host = "/10.0.0.9".to_owned();
        after.members.push(GroupMember { id: "d".to_owned(), host, partitions: Vec::new() });
        let [before, kept] = [before, after].map(|view| view.copies_of("a", ZONES, 1));
        assert!(kept.keys().all(|partition| before.contains_key(partition)));
        assert!(kept.len() < before.len());
    }

    #[test]
    fn each_member_has_its_turn_at_a_quiet_zone_and_later_if_zones_of_several_owners_are_quiet() {
        let turns = |partitions: &[i32], owed: Duration| {
            let quiet = QuietOutput { owed, end: 0 };
            let quiet = partitions.iter().map(|partition| (*partition, quiet)).collect();
            let view = GroupView { quiet, ..group(&["a", "b", "c"]) };
            (0..5).filter(|rank| view.first_turn() + TURN * *rank <= owed).count()
        };
        let alone: [&[i32]; 2] = [&[1], &[1, 4, 61]];
        for of_one in alone {
            assert_eq!([0, 1, 2, 3].map(|turn| turns(of_one, TURN * turn)), [1, 2, 3, 4]);
        }
        assert_eq!([0, 1, 2, 3].map(|turn| turns(&[1, 2], TURN * turn)), [0, 1, 2, 3]);
        assert_eq!([0, 1, 2, 3].map(|turn| turns(&[1, 2, 3, 6], TURN * turn)), [0, 0, 1, 2]);
        let unowned = turns(&[1, ZONES], TURN);
        assert_eq!(unowned, 1, "a zone that the group gives to nobody is not b's");
    }

    #[test]
    fn who_is_not_in_the_group_keeps_no_copy() {
        let view = group(&["a", "b"]);
        assert!(!view.has("z") && view.copies_of("z", ZONES, 2).is_empty());
    }
}
