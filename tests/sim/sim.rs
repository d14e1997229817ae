//! A world of three hosts, one cluster and one seed: who has the next turn, and what goes wrong.

use crate::broker::{BROKERS, Broker};
use crate::chance::{Chance, Counts, Fault, Sight};
use crate::check::CROWDED_US;
use crate::commits::Commit;
use crate::disk::HostDisk;
use crate::editions;
use crate::game::{Game, Record, WEIGHTS, WEIGHTS_OF_EDITIONS};
use crate::group::Group;
use crate::line::Late;
use crate::mutation::Mutation;
use crate::node::{Common, Node, Thread};
use crate::other_engine;
use crate::reader::Follower;
use crate::surroundings::{KeptPanics, Surroundings, whole_store};
use crate::viewer::Viewer;
use huntd::hunt::event::ActionKind;
use huntd::hunt::rules::rulebook::Rulebook;
use huntd::kit::engine::AnyRulebook;
use huntd::ownership::acquisition::Remedy;
use huntd::ownership::standby::StandbyOptions;
use huntd::ownership::start_error::StartError;
use huntd::shards::STALL_RETRY_MS;
use huntd::snapshot::format::Header;
use std::collections::BTreeMap;

/// Hosts, and daemons at once.
pub(crate) const HOSTS: usize = 3;

/// Partitions of a topic, after some were added.
pub(crate) const PARTITIONS_MAX: usize = 3;

/// Simulated time in which everything has to be caught up once faults are off: the longest wait
/// anywhere is for an answer that never comes, and it may be followed by another.
const CALM_US_MAX: u64 = 240_000_000;

/// Simulated time for each record that the engine fails at, beyond that: its shard is acquired four
/// times before it is behind such a record.
const POISON_US_MAX: u64 = 20_000_000;

/// Simulated time for which everything stays caught up before it counts as that.
const SETTLE_US: u64 = 5 * 1_000 * STALL_RETRY_MS;

/// Turns of threads in one simulation: beyond it something turns without end.
const TURNS_MAX: u64 = 1_000_000;

/// The simulated world.
pub(crate) struct Sim {
    pub(crate) chance: Chance,
    pub(crate) broker: Broker,
    pub(crate) group: Group,
    pub(crate) hosts: Vec<Host>,
    pub(crate) games: Vec<Game>,
    pub(crate) followers: Vec<Follower>,
    /// Beside each reader.
    pub(crate) viewers: Vec<Viewer>,
    late: Vec<Late>,
    pub(crate) replicas: BTreeMap<i32, (Header, Vec<u8>)>,
    pub(crate) rulebook: Rulebook,
    any_rulebook: AnyRulebook,
    pub(crate) common: Common,
    pub(crate) now: u64,
    pub(crate) is_traced: bool,
    /// Why shards could not start, by partition: the last reason.
    pub(crate) start_errors: BTreeMap<i32, StartError>,
    /// All daemons had one version when operators looked last.
    pub(crate) had_one_version: bool,
    /// An error that operators have found.
    pub(crate) wrong: Option<String>,
    /// When the group, the players and the operator have their next turn.
    next_group: u64,
    next_input: u64,
    pub(crate) next_operator: u64,
    /// Until when things go wrong, and until when players play.
    pub(crate) chaos_until: u64,
    turns: u64,
    /// Snapshots, each with how many dead letters there were when it was stored.
    pub(crate) snapshots: Vec<(Header, usize)>,
    pub(crate) commits: Vec<Commit>,
    pub(crate) mutation: Mutation,
    /// Records that operators have asked to pass over, by partition and offset; and whether an
    /// output was seen that does.
    pub(crate) asked_skips: BTreeMap<(i32, i64), bool>,
    /// The operator lets shards that cannot be started start over, and has asked for that.
    pub(crate) starts_over: bool,
    pub(crate) is_genesis_asked: bool,
    /// The copies that all daemons keep.
    pub(crate) standby: StandbyOptions,
    /// Daemons go from one edition of the game to the other.
    pub(crate) plays_editions: bool,
    /// How often players do what.
    pub(crate) weights: &'static [(ActionKind, u64)],
}

/// A host: what lasts longer than its daemon.
pub(crate) struct Host {
    pub(crate) disk: HostDisk,
    panics: KeptPanics,
    pub(crate) seen_panics: BTreeMap<(i32, i64), u32>,
    /// All of them, when it was last decided whether the daemon is killed.
    panics_before: u32,
    /// What to do at the next start about shards that cannot be started.
    pub(crate) remedy: Remedy,
    /// The version of the game that its next daemon has.
    pub(crate) version: u32,
    pub(crate) node: Option<Node>,
    start_at: u64,
    /// Asked to end, and killed at this time.
    pub(crate) stop_at: Option<u64>,
}

impl Sim {
    pub(crate) fn new(seed: u64, mut common: Common, mutation: Mutation) -> Sim {
        let mut chance = Chance::new(seed);
        let plays_editions = mutation.is_of_editions() || seed.is_multiple_of(editions::PLAYED_IN);
        let has_other_engine = other_engine::is_there(seed, mutation);
        let mut rulebook = common.rulebook.clone();
        if plays_editions {
            rulebook = editions::prepare(&mut chance, &mut common);
        }
        chance.insist_on(mutation.faults());
        let partitions = chance.between(1, 2) as usize;
        let weights = if plays_editions { WEIGHTS_OF_EDITIONS } else { WEIGHTS };
        let host = |chance: &mut Chance| Host {
            disk: HostDisk::new(Chance::new(chance.next())),
            panics: KeptPanics::default(),
            seen_panics: BTreeMap::new(),
            panics_before: 0,
            remedy: Remedy::Refuse,
            version: common.first_version(),
            node: None,
            start_at: chance.between(0, 300_000),
            stop_at: None,
        };
        let chaos_us = match chance.below(50) {
            _ if plays_editions || has_other_engine => chance.pick(editions::CHAOS_US),
            0 => 13_000_000,
            1..6 => 3_000_000,
            6..26 => 1_200_000,
            _ => 300_000,
        };
        let standby = standby(&mut chance);
        let mut sim = Sim {
            broker: Broker::new(&mut chance, partitions, mutation),
            group: Group::new(&mut chance, partitions as i32, standby.is_without_group),
            hosts: (0..HOSTS).map(|_| host(&mut chance)).collect(),
            games: (0..partitions as u16)
                .map(|zone| Game::new(zone, partitions as u16, &rulebook, weights))
                .collect(),
            followers: (0..partitions).map(|_| Follower::new(mutation)).collect(),
            viewers: (0..partitions as u16)
                .map(|zone| Viewer::from_start(zone, &rulebook, mutation))
                .collect(),
            late: Vec::new(),
            replicas: BTreeMap::new(),
            any_rulebook: rulebook.clone().into(),
            rulebook,
            is_traced: common.is_traced,
            common,
            mutation,
            now: 0,
            start_errors: BTreeMap::new(),
            had_one_version: false,
            wrong: None,
            next_group: 0,
            next_input: 0,
            next_operator: 1_000_000,
            chaos_until: chaos_us,
            turns: 0,
            snapshots: Vec::new(),
            commits: Vec::new(),
            asked_skips: BTreeMap::new(),
            starts_over: chance.is_on(Fault::GenesisAsked),
            is_genesis_asked: false,
            standby,
            plays_editions,
            weights,
            chance,
        };
        if has_other_engine {
            sim.bring_other_engine();
        }
        sim
    }

    /// Runs to the end, and says what is wrong.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        while self.now < self.chaos_until {
            self.step()?;
        }
        self.calm_down();
        self.catch_up()?;
        self.try_silence()?;
        self.catch_up()?;
        self.check_end()
    }

    /// Goes on until everything is caught up, and stays so.
    pub(crate) fn catch_up(&mut self) -> Result<(), String> {
        let begun = self.now;
        let mut end = begun + CALM_US_MAX;
        // A shard whose quota is used up by frames hands over its handoffs at its next turn.
        let (mut caught_up_at, mut crowded_at) = (None, self.now + CROWDED_US);
        while caught_up_at.is_none_or(|at| self.now < at + SETTLE_US) {
            if self.now > end {
                end = begun + CALM_US_MAX + POISON_US_MAX * self.poison_count();
            }
            if self.now > end {
                return Err(self.stuck());
            }
            if self.now > crowded_at {
                crowded_at = u64::MAX;
                self.make_room();
            }
            self.step()?;
            let is_caught_up = self.is_caught_up();
            caught_up_at = is_caught_up.then(|| caught_up_at.unwrap_or(self.now));
        }
        Ok(())
    }

    pub(crate) fn counts(&self) -> Counts {
        let mut counts = self.chance.counts.clone();
        self.hosts.iter().for_each(|host| counts.add(&host.disk.counts()));
        counts
    }

    fn calm_down(&mut self) {
        self.trace("faults stop");
        self.chance.stop_faults();
        self.bring_right_engine();
        for host in &mut self.hosts {
            host.disk.stop_faults();
            host.start_at = host.start_at.min(self.now + 1_000_000);
            if let Some(node) = &mut host.node {
                node.paused_until = node.paused_until.min(self.now);
            }
        }
    }

    pub(crate) fn trace(&self, line: &str) {
        if self.is_traced {
            println!("{:>12} {line}", self.now);
        }
    }

    /// The one whose time comes first has a turn.
    pub(crate) fn step(&mut self) -> Result<(), String> {
        self.turns += 1;
        if self.turns > TURNS_MAX {
            return Err(format!("threads turn without end, {}", self.stuck()));
        }
        let (mut at, mut who) = (self.next_world(), None);
        for (host, state) in self.hosts.iter().enumerate() {
            if let Some((earlier, thread)) = state.node.as_ref().map(Node::next)
                && earlier < at
            {
                (at, who) = (earlier, Some((host, thread)));
            }
        }
        self.now = self.now.max(at);
        match who {
            Some((host, thread)) => self.turn(host, thread)?,
            None => self.turn_world(),
        }
        self.strike();
        self.follow()?;
        if self.chance.one_in(16) {
            self.strike_outputs();
        }
        self.watch_threads()
    }

    /// The daemon of a host, if it runs, and the world outside it.
    fn daemon(&mut self, host: usize) -> Option<(&mut Node, Surroundings<'_>)> {
        let Sim { chance, broker, group, late, replicas, any_rulebook, common, is_traced, .. } =
            self;
        let keeps_replicas = self.plays_editions;
        let Host { disk, panics, seen_panics, node, .. } = &mut self.hosts[host];
        let node = node.as_mut()?;
        let around = Surroundings {
            chance,
            broker,
            group,
            late,
            line: node.line.clone(),
            panics,
            seen_panics,
            is_disturbed: node.is_disturbed(),
            disk,
            replicas,
            keeps_replicas,
            rulebook: any_rulebook,
            base: common.base,
            now: self.now,
            is_traced: *is_traced,
        };
        Some((node, around))
    }

    fn turn(&mut self, host: usize, thread: Thread) -> Result<(), String> {
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        let (partitions, is_checked) = (self.followers.len() as i32, self.turns.is_multiple_of(16));
        let (node, mut around) = self.daemon(host).expect("it has a turn");
        node.turn(thread, &mut around);
        if let Some(wrong) = node.control.wrong.take() {
            return Err(wrong);
        }
        if is_checked {
            node.check_bounds(partitions)?;
        }
        let acquired = std::mem::take(&mut node.control.acquired);
        let stored = std::mem::take(&mut node.snapshots.stored);
        let committed = std::mem::take(&mut node.control.committed);
        self.note_commits(committed);
        for (partition, came) in acquired {
            match came {
                Ok(_) => self.start_errors.remove(&partition),
                Err(error) => self.start_errors.insert(partition, error),
            };
        }
        stored.into_iter().try_for_each(|header| self.check_snapshot(header))?;
        match thread {
            Thread::Control => self.check_readiness(host),
            _ => Ok(()),
        }
    }

    fn next_world(&self) -> u64 {
        let created_at = self.broker.input_topic.created_at.unwrap_or(u64::MAX);
        let own = [self.next_group, self.next_input, self.next_operator, created_at];
        let mut at = own.into_iter().min().expect("there are some");
        for host in &self.hosts {
            match host.node {
                Some(_) => at = at.min(host.stop_at.unwrap_or(u64::MAX)),
                None => at = at.min(host.start_at),
            }
        }
        self.late.iter().fold(at, |at, late| at.min(late.at))
    }

    fn turn_world(&mut self) {
        let now = self.now;
        while let Some(at) = self.late.iter().position(|late| late.at <= now) {
            let late = self.late.remove(at);
            self.chance.see(Sight::ZombieWrote);
            late.land(&mut self.broker, &mut self.chance, now);
        }
        for host in 0..HOSTS {
            if self.hosts[host].node.is_none() && self.hosts[host].start_at <= now {
                self.start(host);
            }
            self.go_on_stopping(host);
        }
        if self.next_group <= now {
            self.group.turn(&mut self.chance, now, self.broker.has_input());
            self.next_group = now + self.chance.between(2_000, 60_000);
        }
        if self.broker.input_topic.created_at.is_some_and(|at| at <= now) {
            self.create_input_again();
        }
        if self.next_input <= now {
            self.play();
        }
        if self.next_operator <= now {
            self.operate();
        }
    }

    fn start(&mut self, host: usize) {
        let options = self.options(host);
        let Sim { chance, common, group, hosts, mutation, now, .. } = self;
        let (name, disk) = (group.next_name(), &hosts[host].disk);
        let node = Node::start(chance, common, (name, host), disk, options, *mutation, *now);
        self.trace(&format!("host {host} starts node {}", node.name));
        self.hosts[host].node = Some(node);
    }

    fn go_on_stopping(&mut self, host: usize) {
        let Host { node, stop_at, .. } = &self.hosts[host];
        let has_ended = node.as_ref().is_some_and(|node| node.control.has_ended());
        if has_ended || stop_at.is_some_and(|at| at <= self.now || node.is_none()) {
            self.end(host);
        }
    }

    /// A signal stops the daemon of a host until this time.
    pub(crate) fn set_paused(&mut self, host: usize, until: u64) {
        self.hosts[host].node.as_mut().expect("it runs").paused_until = until;
    }

    /// The daemon of a host is gone.
    pub(crate) fn end(&mut self, host: usize) {
        let down_us = self.chance.pick(&[1_000, 100_000, 1_500_000]);
        let Host { node, stop_at, start_at, .. } = &mut self.hosts[host];
        (*stop_at, *start_at) = (None, self.now + down_us);
        if let Some(node) = node.take() {
            if self.is_traced {
                println!("{:>12} node {} ends", self.now, node.name);
            }
            node.die(&mut self.chance, &mut self.late, self.now);
        }
    }

    /// Players write to the input, as long as there is chaos.
    fn play(&mut self) {
        let now = self.now;
        self.next_input = now + self.chance.pick(&[5_000, 50_000, 200_000]);
        if now >= self.chaos_until {
            self.next_input = u64::MAX;
        }
        if !self.broker.has_input() {
            return;
        }
        let partition = self.chance.below(self.games.len() as u64) as i32;
        self.play_in(partition);
    }

    /// Players write to a zone.
    pub(crate) fn play_in(&mut self, partition: i32) {
        let (partition, now) = (partition as usize, self.now);
        let most = if self.chance.strikes_of(Fault::Burst, 5) { 60 } else { 5 };
        let records: Vec<Record> = (0..self.chance.between(1, most))
            .map(|_| self.games[partition].record(&mut self.chance, now))
            .collect();
        self.broker.inputs[partition].append(&mut self.chance, &records);
        self.broker.changes += 1;
        for host in &mut self.hosts {
            if let Some(node) = &mut host.node {
                node.notice_records(now + self.chance.between(1, 2_000));
            }
        }
    }

    pub(crate) fn stop(&mut self, host: usize) {
        let stop_at = self.now + 16_000_000;
        let Some((node, mut around)) = self.daemon(host) else { return };
        node.control.stop(&mut around);
        self.hosts[host].stop_at = Some(stop_at);
    }

    /// What goes wrong at any time.
    fn strike(&mut self) {
        let host = self.chance.below(HOSTS as u64) as usize;
        // There are some thousand turns in a simulation.
        if self.hosts[host].node.is_some() && self.chance.one_in(8) {
            self.strike_daemon(host);
        }
        (0..HOSTS).for_each(|host| self.strike_panicked(host));
        if self.chance.one_in(16) {
            self.strike_logs();
            self.broker.reach_again();
        }
    }

    /// A daemon must remember a record that has panicked. So it is often killed just then.
    fn strike_panicked(&mut self, host: usize) {
        let Host { seen_panics, panics_before, node, .. } = &mut self.hosts[host];
        let panics = seen_panics.values().sum();
        let has_panicked = std::mem::replace(panics_before, panics) < panics;
        if has_panicked && node.is_some() && self.chance.one_in(2) {
            self.chance.counts.faults[Fault::Kill as usize] += 1;
            self.end(host);
        }
    }

    fn strike_daemon(&mut self, host: usize) {
        if self.chance.strikes(Fault::Kill) {
            if self.hosts[host].node.as_ref().is_some_and(|node| node.snapshots.is_writing) {
                self.chance.counts.faults[Fault::KillWhileWriting as usize] += 1;
            }
            self.end(host);
            if self.chance.one_in(2) {
                self.hosts[host].disk.lose_power();
            }
        } else if self.chance.strikes(Fault::Pause) {
            let pause_us = self.chance.pick(&[10_000, 1_000_000, 8_000_000]);
            let until = self.now + pause_us;
            self.hosts[host].node.as_mut().expect("just looked").paused_until = until;
            self.trace(&format!("host {host} pauses until {until}"));
        } else if let Some(node) = &mut self.hosts[host].node
            && node.strike_threads(&mut self.chance, self.now)
        {
            self.trace(&format!("a thread of host {host} stalls"));
        } else if self.chance.strikes(Fault::Stop) && self.hosts[host].stop_at.is_none() {
            self.stop(host);
        } else if self.plays_editions
            && self.now < self.chaos_until
            && self.chance.one_in(editions::CHANGED_IN)
        {
            self.change_version(host);
        } else if self.chance.one_in(8)
            && self.chance.strikes(Fault::OutputRecreated)
            && let Some(node) = &mut self.hosts[host].node
        {
            node.control.is_output_recreated = true;
        }
    }

    fn strike_logs(&mut self) {
        if !self.broker.has_input() || self.strike_topic() {
            return;
        }
        if self.broker.inputs.len() < PARTITIONS_MAX && self.chance.strikes(Fault::PartitionAdded) {
            return self.add_partition();
        }
        if self.broker.can_be_cut_off() && self.chance.strikes(Fault::BrokerCutOff) {
            let node_id = 1 + self.chance.below(BROKERS as u64) as i32;
            let alone = 1 + self.chance.below(BROKERS as u64) as i32;
            let cut_off = match alone == node_id {
                true => (1..=BROKERS).filter(|other| *other != alone).collect(),
                false => vec![node_id],
            };
            return self.broker.cut_off(cut_off);
        }
        let partition = self.chance.below(self.broker.inputs.len() as u64) as usize;
        let Broker { inputs, outputs, changes, .. } = &mut self.broker;
        let (input, output) = (&mut inputs[partition], &mut outputs[partition]);
        if self.chance.strikes(Fault::LeaderMoves) {
            input.elect(1 + input.leader % BROKERS);
            *changes += 1;
        }
        if self.chance.is_on(Fault::LeaderEpochFalls)
            && self.chance.one_in(4)
            && input.forget_elections()
        {
            self.chance.counts.faults[Fault::LeaderEpochFalls as usize] += 1;
            *changes += 1;
        }
        if self.chance.strikes(Fault::LogTruncated) && self.chance.one_in(4) {
            input.truncate(self.chance.between(1, 2) as usize);
            *changes += 1;
        }
        // A shard that has published nothing begins where its input begins.
        let is_begun = self.followers[partition].mark().next_update > 0;
        if is_begun && self.chance.strikes(Fault::InputRetained) {
            // Retention deletes whole batches, and mostly what nobody needs any more.
            let kept = self.hosts.iter().map(|host| {
                let stored = whole_store(&host.disk).candidates(partition as i32);
                let stored = stored.expect("it can be read");
                stored.first().map_or(0, |header| header.next_offset)
            });
            let needed = kept.min().expect("there are hosts");
            let all = self.chance.one_in(8);
            input.retain_from(if all { input.end } else { needed });
        }
        if self.chance.strikes(Fault::OutputRetained) {
            let upto = self.chance.below(output.end() as u64 + 1) as i64;
            output.start = output.start.max(upto - 20);
        }
    }

    /// Somebody adds a partition to both topics.
    fn add_partition(&mut self) {
        self.broker.add_partition();
        self.group.add_partition();
        let zone = self.games.len() as u16;
        self.games.push(Game::new(zone, zone + 1, &self.rulebook, self.weights));
        self.followers.push(Follower::new(self.mutation));
        self.viewers.push(Viewer::from_start(zone, &self.rulebook, self.mutation));
    }

    /// Records that land without a report.
    pub(crate) fn late_outputs(&self) -> usize {
        self.late.iter().filter(|late| late.is_for_output()).count()
    }
}

/// How all hosts keep copies.
fn standby(chance: &mut Chance) -> StandbyOptions {
    StandbyOptions {
        copies: chance.pick(&[0, 0, 1, 2]) as u32,
        silence_ms: chance.pick(&[0, 150, 400]) as u32,
        is_without_group: chance.one_in(8),
    }
}
