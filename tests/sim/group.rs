//! The consumer group: who has which partition, as the coordinator sees it, and when members learn
//! of it. Or the operator's list of partitions, which takes its place.

use crate::chance::{Chance, Fault};
use crate::sim::HOSTS;
use huntd::kafka::group_description::GroupDescription;
use huntd::kafka::membership::GroupMember;
use std::collections::{BTreeMap, VecDeque};

/// What a member is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GroupEvent {
    Assigned(Vec<i32>),
    /// To be answered with [`Group::release`], at once.
    Revoked(Vec<i32>),
    Lost(Vec<i32>),
    /// Another member has our instance id.
    InstanceTaken,
    /// The broker that was asked does not know the input topic.
    TopicMissing,
}

/// The coordinator.
pub(crate) struct Group {
    partitions: i32,
    /// True if the operator assigns the partitions: each daemon plays those of its host.
    is_listed: bool,
    members: BTreeMap<u64, Member>,
    /// The member that each partition belongs to.
    owners: Vec<Option<u64>>,
    /// The input offset that is committed of each partition.
    committed: BTreeMap<i32, i64>,
    session_us: u64,
    /// Something has changed since partitions were shared out.
    is_unsettled: bool,
    /// The coordinator does nothing by itself.
    pub(crate) is_away: bool,
    /// The name of the last member.
    names: u64,
}

/// Heartbeats of a member within its group session.
const HEARTBEATS: u64 = 3;

struct Member {
    host: usize,
    heard_at: u64,
    /// Its instance id was given to another one: it has to join under a new name.
    is_fenced: bool,
    /// Expelled; its next heartbeat, at this time, will tell it.
    expelled_until: Option<u64>,
    /// The partitions that it believes to own.
    has: Vec<i32>,
    /// Revoked, and not answered.
    revoked: Vec<i32>,
    events: VecDeque<(u64, GroupEvent)>,
}

impl Group {
    pub(crate) fn new(chance: &mut Chance, partitions: i32, is_listed: bool) -> Group {
        let session_us = chance.pick(&[500_000, 2_000_000, 6_000_000]);
        let owners = vec![None; partitions as usize];
        Group {
            partitions,
            is_listed,
            members: BTreeMap::new(),
            owners,
            committed: BTreeMap::new(),
            session_us,
            is_unsettled: false,
            is_away: false,
            names: 0,
        }
    }

    /// A name that no member has had.
    pub(crate) fn next_name(&mut self) -> u64 {
        self.names += 1;
        self.names
    }

    /// The id of a daemon among the members.
    pub(crate) fn id(&self, node: u64, host: usize) -> String {
        if self.is_listed { host.to_string() } else { node.to_string() }
    }

    /// The topic has one partition more.
    pub(crate) fn add_partition(&mut self) {
        let partition = self.partitions;
        self.partitions += 1;
        self.owners.push(None);
        self.is_unsettled = true;
        if self.is_listed
            && let Some(member) =
                self.members.values_mut().find(|member| member.host == host_of(partition))
        {
            member.assign(vec![partition]);
        }
    }

    /// A member calls: what it is told. A stranger joins by calling.
    pub(crate) fn poll(&mut self, (node, host): (u64, usize), now: u64) -> Option<GroupEvent> {
        let is_new = !self.members.contains_key(&node);
        if is_new {
            // A host's new daemon takes the place of its old one at once (KIP-345).
            let old = self.members.iter().find(|(_, member)| member.host == host);
            if let Some((old, _)) = old.map(|(old, member)| (*old, member.heard_at)) {
                self.leave(old);
            }
        }
        let member = self.members.entry(node).or_insert_with(|| Member::new(host, now));
        if self.is_listed && is_new {
            member.assign((0..self.partitions).filter(|it| host_of(*it) == host).collect());
        }
        if member.is_fenced {
            return Some(GroupEvent::InstanceTaken);
        }
        member.heard_at = now;
        self.is_unsettled |= is_new;
        if member.expelled_until.is_some_and(|heartbeat_at| heartbeat_at <= now) {
            let lost = std::mem::take(&mut member.has);
            *member = Member::new(host, now);
            self.is_unsettled = true;
            return Some(GroupEvent::Lost(lost));
        }
        self.members.get_mut(&node).expect("just entered").next_event(now)
    }

    /// The member has left the group.
    pub(crate) fn leave(&mut self, node: u64) {
        self.members.remove(&node);
        self.disown(node);
    }

    fn disown(&mut self, node: u64) {
        self.owners.iter_mut().for_each(|owner| *owner = owner.filter(|owner| *owner != node));
        self.is_unsettled = true;
    }

    /// A member leaves, if others are there that can have its partitions: whether there are.
    pub(crate) fn resign(&mut self, node: u64, has_copies: bool) -> bool {
        if self.is_listed {
            return has_copies;
        }
        let others = self.members.iter().filter(|(name, _)| **name != node);
        let has_successors = others.map(|(_, member)| member).any(Member::is_counted);
        if has_successors {
            self.leave(node);
        }
        has_successors
    }

    /// Whether anybody is left.
    pub(crate) fn has_members(&self) -> bool {
        self.is_listed || self.members.values().any(Member::is_counted)
    }

    /// The member has answered a revocation.
    pub(crate) fn release(&mut self, node: u64, partitions: &[i32]) {
        let Some(member) = self.members.get_mut(&node) else { return };
        member.revoked.retain(|revoked| !partitions.contains(revoked));
        member.has.retain(|has| !partitions.contains(has));
        for partition in partitions {
            let owner = &mut self.owners[*partition as usize];
            *owner = owner.filter(|owner| *owner != node);
        }
        self.is_unsettled = true;
    }

    /// A member commits input offsets. One that is no member cannot.
    pub(crate) fn commit(&mut self, node: u64, offsets: &[(i32, i64)]) {
        if self.is_listed || self.members.get(&node).is_some_and(Member::is_counted) {
            self.committed.extend(offsets.iter().copied());
        }
    }

    /// What is committed of a partition.
    pub(crate) fn committed(&self, partition: i32) -> Option<i64> {
        self.committed.get(&partition).copied()
    }

    /// A topic that is deleted takes the offsets with it.
    pub(crate) fn forget_commits(&mut self) {
        self.committed.clear();
    }

    /// Whether a commit of this member would be taken.
    pub(crate) fn counts_in(&self, node: u64, partition: i32) -> bool {
        let member = self.members.get(&node);
        let is_member = member.is_some_and(Member::is_counted);
        self.is_listed || is_member && self.owners[partition as usize] == Some(node)
    }

    /// The partitions of a member that the group counts in, if it has been told of all of them.
    pub(crate) fn settled(&self, node: u64) -> Option<&[i32]> {
        let member = self.members.get(&node).filter(|member| member.is_counted())?;
        (member.events.is_empty() && member.revoked.is_empty()).then_some(&member.has)
    }

    /// The member that has the partition.
    pub(crate) fn owner(&self, partition: i32) -> Option<u64> {
        let is_its = |member: &Member| member.host == host_of(partition);
        match self.is_listed {
            true => self.members.iter().find(|(_, member)| is_its(member)).map(|(node, _)| *node),
            false => self.owners[partition as usize],
        }
    }

    /// The group, as its coordinator describes it. While partitions are shared out, it does not say
    /// who has which.
    pub(crate) fn describe(&self) -> GroupDescription {
        if self.is_listed {
            let partitions = |host| (0..self.partitions).filter(move |it| host_of(*it) == host);
            let member = |host: usize| GroupMember {
                id: host.to_string(),
                host: host.to_string(),
                partitions: partitions(host).collect(),
            };
            return GroupDescription { is_stable: true, members: (0..HOSTS).map(member).collect() };
        }
        let is_stable = self.owners.iter().all(Option::is_some) && !self.is_unsettled;
        let owned =
            |node: u64| (0..self.partitions).filter(move |at| is_stable && self.owns(node, *at));
        let member = |(node, member): (&u64, &Member)| GroupMember {
            id: node.to_string(),
            host: member.host.to_string(),
            partitions: owned(*node).collect(),
        };
        let members = self.members.iter().filter(|(_, member)| member.is_counted());
        GroupDescription { is_stable, members: members.map(member).collect() }
    }

    /// All that is committed, by partition.
    pub(crate) fn all_committed(&self) -> Vec<(i32, i64)> {
        self.committed.iter().map(|(at, offset)| (*at, *offset)).collect()
    }

    /// A member has come or gone, and the group waits for another one before it shares partitions
    /// out.
    pub(crate) fn unsettle(&mut self) {
        self.is_unsettled = true;
    }

    fn owns(&self, node: u64, partition: i32) -> bool {
        self.owners[partition as usize] == Some(node)
    }

    /// The coordinator's own time: group sessions end, partitions are shared out.
    pub(crate) fn turn(&mut self, chance: &mut Chance, now: u64, has_input: bool) {
        if self.is_away || self.is_listed {
            return;
        }
        let expels = chance.strikes(Fault::Expelled);
        let victim = chance.next();
        let nodes: Vec<u64> = self.members.keys().copied().collect();
        for (place, node) in nodes.iter().enumerate() {
            let member = self.members.get_mut(node).expect("just listed");
            let is_silent = member.heard_at + self.session_us < now;
            let is_victim = expels && victim as usize % nodes.len() == place;
            if (is_silent || is_victim) && member.is_counted() {
                // Until then it goes on, and does not know that others own its partitions.
                let heartbeat_at = now + chance.between(0, self.session_us / HEARTBEATS);
                member.expelled_until = Some(heartbeat_at);
                member.events.clear();
                self.disown(*node);
            }
        }
        if (!has_input && chance.one_in(10)) || chance.strikes(Fault::TopicUnknown) {
            let members = self.members.values_mut().filter(|member| member.is_counted());
            members.for_each(|member| member.tell(chance, now, GroupEvent::TopicMissing));
        }
        if chance.strikes(Fault::InstanceTaken) {
            self.fence_at_random(chance);
        }
        if chance.strikes(Fault::Revoked) {
            self.revoke_at_random(chance, now);
        }
        if self.is_unsettled {
            self.is_unsettled = false;
            self.share_out(chance, now);
        }
    }

    fn fence_at_random(&mut self, chance: &mut Chance) {
        let nodes: Vec<u64> = self.members.keys().copied().collect();
        if let Some(node) = nodes.get(chance.below(nodes.len().max(1) as u64) as usize) {
            let member = self.members.get_mut(node).expect("just listed");
            member.is_fenced = true;
            self.disown(*node);
        }
    }

    fn revoke_at_random(&mut self, chance: &mut Chance, now: u64) {
        let partition = chance.below(self.partitions as u64) as i32;
        if let Some(owner) = self.owners[partition as usize] {
            self.revoke(chance, owner, partition, now);
        }
    }

    fn revoke(&mut self, chance: &mut Chance, node: u64, partition: i32, now: u64) {
        let member = self.members.get_mut(&node).expect("owners are members");
        if member.has.contains(&partition) && !member.revoked.contains(&partition) {
            member.revoked.push(partition);
            member.tell(chance, now, GroupEvent::Revoked(vec![partition]));
        }
    }

    fn share_out(&mut self, chance: &mut Chance, now: u64) {
        let live = self.members.iter().filter(|(_, member)| member.is_counted());
        let nodes: Vec<u64> = live.map(|(node, _)| *node).collect();
        if nodes.is_empty() {
            return;
        }
        for partition in 0..self.partitions {
            let wanted = nodes[partition as usize % nodes.len()];
            match self.owners[partition as usize] {
                Some(owner) if owner == wanted => {}
                Some(owner) => self.revoke(chance, owner, partition, now),
                None => {
                    self.owners[partition as usize] = Some(wanted);
                    let member = self.members.get_mut(&wanted).expect("just listed");
                    member.has.push(partition);
                    member.tell(chance, now, GroupEvent::Assigned(vec![partition]));
                }
            }
        }
    }
}

/// The host to which the operator has assigned a partition.
fn host_of(partition: i32) -> usize {
    partition as usize % HOSTS
}

impl Member {
    fn new(host: usize, now: u64) -> Member {
        let (has, revoked) = (Vec::new(), Vec::new());
        let events = VecDeque::new();
        Member { host, heard_at: now, is_fenced: false, expelled_until: None, has, revoked, events }
    }

    /// Whether the coordinator counts it in.
    fn is_counted(&self) -> bool {
        !self.is_fenced && self.expelled_until.is_none()
    }

    /// The operator gives it these partitions.
    fn assign(&mut self, partitions: Vec<i32>) {
        self.has.extend(&partitions);
        self.events.push_back((0, GroupEvent::Assigned(partitions)));
    }

    fn tell(&mut self, chance: &mut Chance, now: u64, event: GroupEvent) {
        let earliest = self.events.back().map_or(now, |(at, _)| (*at).max(now));
        self.events.push_back((earliest + chance.delay_us(), event));
    }

    fn next_event(&mut self, now: u64) -> Option<GroupEvent> {
        self.events.pop_front_if(|(at, _)| *at <= now).map(|(_, event)| event)
    }
}
