//! A campaign of faults against real brokers: three daemons of one group under load are killed,
//! stopped, frozen beyond their group session, restarted one after the other with another number
//! of copies, and robbed of a broker, again and again. In the end the output must be what one
//! uninterrupted run makes.
//!
//! `cargo test` runs a short one. `HUNTD_CYCLES=200 cargo test --release --test kafka campaign --
//! --nocapture` runs a long one, against each kind of brokers and groups in turn, and prints how
//! long the output paused; `HUNTD_SEED=N` repeats its faults. `HUNTD_SOAK_S=3600` runs an hour of
//! restarts of brokers instead.

mod instance;
mod load;
mod soak;
mod surroundings;
mod witness;

use instance::Instance;
use load::Load;
use std::collections::BTreeMap;
use std::fmt;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use support::PATIENCE;
use support::needs;
use surroundings::{Running, SESSION_MS, Surroundings};
use witness::Witness;

/// Cycles that `cargo test` runs.
const CYCLES: u32 = 20;

/// Events a second: as many as three daemons and three brokers manage on two cores.
const RATE: u32 = 100_000;

/// Events a second in `cargo test`, which runs other tests beside this one.
const RATE_BESIDE_OTHERS: u32 = 50_000;

/// Zones of the world.
const PARTITIONS: i32 = 6;

/// Longer than the group session of a member: the group has given its partitions away by then.
const FROZEN: Duration = Duration::from_millis(SESSION_MS as u64 + 3_000);

/// The largest number of copies of a zone.
const COPIES_MAX: u32 = 2;

/// What a cycle does to the daemons or their broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// One daemon is killed and started again at once.
    KillAndRestart,
    /// One daemon is ended in order and started again.
    StopAndRestart,
    /// One daemon is killed, and joins again once others have taken its partitions over.
    KillAndLeave,
    /// One daemon is frozen, and goes on when others have taken its partitions over.
    Freeze,
    /// A broker is killed and started again.
    KillBroker,
    /// Each daemon is ended in order and started again, with another number of copies.
    RollingRestart,
}

impl Fault {
    /// Its name among the causes of pauses.
    fn cause(self) -> &'static str {
        match self {
            Fault::KillAndRestart => "killed, started again at once",
            Fault::StopAndRestart => "stopped and started again",
            Fault::KillAndLeave => "killed",
            Fault::Freeze => "frozen",
            Fault::KillBroker => "a broker killed and started again",
            Fault::RollingRestart => "rolling restart",
        }
    }
}

/// Each fault, as often as it comes in eleven cycles.
const FAULTS: [Fault; 11] = [
    Fault::KillAndRestart,
    Fault::KillAndRestart,
    Fault::StopAndRestart,
    Fault::KillAndLeave,
    Fault::KillAndLeave,
    Fault::Freeze,
    Fault::RollingRestart,
    Fault::StopAndRestart,
    Fault::KillAndLeave,
    Fault::Freeze,
    Fault::KillBroker,
];

#[test]
fn whatever_dies_a_reader_sees_the_updates_of_one_uninterrupted_run() {
    if let Some(seconds) = number("HUNTD_SOAK_S") {
        return soak::run(Duration::from_secs(seconds));
    }
    let wanted = number("HUNTD_CYCLES");
    if wanted.is_none() && !needs::has_minutes() {
        return;
    }
    let cycles = wanted.map_or(CYCLES, |cycles| cycles as u32);
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    let seed = number("HUNTD_SEED").unwrap_or(since_epoch.as_nanos() as u64);
    println!("campaign of {cycles} cycles, HUNTD_SEED={seed}");
    let rate = if wanted.is_some() { RATE } else { RATE_BESIDE_OTHERS };
    let all = if wanted.is_some() { &surroundings::ALL[..] } else { &surroundings::ALL[..1] };
    let mut pauses = Pauses::default();
    for (at, surroundings) in (0..).zip(all) {
        println!("{surroundings:?}");
        let mut campaign = Campaign::start(seed + at, rate, 0, surroundings);
        for cycle in 0..cycles.div_ceil(all.len() as u32) {
            let fault = campaign.fault_of(cycle);
            campaign.cycle(fault);
        }
        for (cause, times) in campaign.finish() {
            pauses.entry(cause).or_default().extend(times);
        }
    }
    print(&pauses);
}

/// How long the output of a partition paused, by the number of copies and the cause.
type Pauses = BTreeMap<(u32, &'static str), Vec<Duration>>;

/// A number in the environment.
pub(crate) fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} must be a number")))
}

struct Campaign {
    random: u64,
    running: Running,
    topic: String,
    load: Load,
    witness: Witness,
    instances: [Instance; 3],
    copies: u32,
    pauses: Pauses,
}

impl Campaign {
    fn start(seed: u64, rate: u32, copies: u32, surroundings: &Surroundings) -> Campaign {
        let running = surroundings.start();
        let topic = "campaign".to_owned();
        let client = running.cluster().client();
        // After a kill a broker reads the last segment of each log again, which takes longer than
        // the load waits if segments are large and the host is slow.
        let kept = [("retention.ms", "-1"), ("segment.bytes", "67108864")];
        client.create_topic(&topic, PARTITIONS, &kept);
        let updates = format!("{topic}-updates");
        let by_brokers = [("message.timestamp.type", "LogAppendTime")];
        client.create_topic(&updates, PARTITIONS, &[&kept[..], &by_brokers].concat());
        client.create_topic(&format!("{topic}-dead"), 1, &kept);
        client.create_topic(
            &format!("{topic}-snapshots"),
            PARTITIONS,
            &[("cleanup.policy", "compact")],
        );
        let witness = Witness::start(&client.config(), &updates, PARTITIONS);
        let keys = surroundings.keys(&running);
        let instances = ["one", "two", "three"].map(|name| Instance::new(name, &keys, &topic));
        let load = Load::start(&running.cluster().bootstrap(), &topic, rate);
        // The splitmix step makes even a small seed a good start for xorshift.
        let random = (seed ^ 0x9e37_79b9_7f4a_7c15).max(1);
        let mut campaign = Campaign {
            random,
            running,
            topic,
            load,
            witness,
            instances,
            copies,
            pauses: Pauses::default(),
        };
        (0..campaign.instances.len()).for_each(|at| campaign.launch(at));
        campaign.settle();
        campaign
    }

    fn launch(&mut self, at: usize) {
        let copies = self.copies.to_string();
        self.instances[at].launch(&[("HUNTD_STANDBY__COPIES", &copies)]);
    }

    /// The first cycles have each fault once, so that even a short campaign has them all.
    fn fault_of(&mut self, cycle: u32) -> Fault {
        match FAULTS.get(cycle as usize) {
            Some(fault) => *fault,
            None => FAULTS[self.below(FAULTS.len() as u64) as usize],
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % bound
    }

    /// Lets a fault happen at a random moment, and notes how long the output of a partition that it
    /// hit paused at most.
    fn cycle(&mut self, fault: Fault) {
        let moment = self.below(1_500);
        sleep(Duration::from_millis(moment));
        let victim = self.victim();
        // First the epochs: a partition that changes hands in between has a later one already.
        let before = self.witness.epochs();
        let hit = match fault {
            Fault::KillBroker | Fault::RollingRestart => (0..PARTITIONS).collect(),
            _ => self.instances[victim].owned(),
        };
        self.witness.watch();
        let begin = Instant::now();
        self.strike(fault, victim);
        let since = Instant::now();
        self.wait_for(&format!("output of {hit:?} after {fault:?}"), |campaign| {
            let others_own = |partition| {
                let others = campaign.instances.iter().enumerate().filter(|(at, _)| *at != victim);
                others.flat_map(|(_, other)| other.owned()).any(|owned| owned == partition)
            };
            hit.iter().all(|&partition| {
                let epoch = campaign.witness.position(partition).owner_epoch;
                // A daemon may say that it owns what another one has taken over already.
                let has_owner = fault == Fault::KillBroker
                    || epoch > before[partition as usize]
                    || others_own(partition);
                has_owner && campaign.witness.has_moved_on(partition, since)
            })
        });
        self.note(fault.cause(), &hit);
        match fault {
            Fault::KillAndLeave => {
                self.witness.watch();
                self.launch(victim);
            }
            Fault::Freeze => {
                sleep(FROZEN.saturating_sub(begin.elapsed()));
                self.witness.watch();
                self.instances[victim].thaw();
            }
            _ => {}
        }
        self.settle();
        match fault {
            Fault::KillAndLeave => self.note("joins", &Vec::from_iter(0..PARTITIONS)),
            Fault::Freeze => self.note("is back after a freeze", &Vec::from_iter(0..PARTITIONS)),
            _ => {}
        }
    }

    /// Lets a fault begin.
    fn strike(&mut self, fault: Fault, victim: usize) {
        match fault {
            Fault::KillAndRestart => {
                self.instances[victim].kill();
                self.launch(victim);
            }
            Fault::StopAndRestart => {
                self.instances[victim].stop();
                self.launch(victim);
            }
            Fault::KillAndLeave => self.instances[victim].kill(),
            Fault::Freeze => self.instances[victim].freeze(),
            Fault::KillBroker => {
                let count = self.running.cluster().broker_count();
                self.running.cluster().client().wait_until_in_sync();
                let broker = self.below(count as u64) as usize;
                self.witness.watch();
                let broker = self.running.cluster_mut().broker_mut(broker);
                broker.kill9();
                broker.restart(count);
            }
            Fault::RollingRestart => {
                self.copies = (self.copies + 1) % (COPIES_MAX + 1);
                for at in 0..self.instances.len() {
                    self.instances[at].stop();
                    self.launch(at);
                    self.settle();
                }
            }
        }
    }

    /// A daemon that owns something.
    fn victim(&mut self) -> usize {
        loop {
            let owns = |at: &usize| !self.instances[*at].owned().is_empty();
            let owners: Vec<usize> = (0..self.instances.len()).filter(owns).collect();
            if !owners.is_empty() {
                return owners[self.below(owners.len() as u64) as usize];
            }
            // A page may be late on a busy host.
            self.check();
        }
    }

    /// Notes the pause of partitions that were hit, and prints it.
    fn note(&mut self, cause: &'static str, hit: &[i32]) {
        if let Some(pause) = self.witness.pause(hit) {
            println!("{} copies, {cause}: {} ms, {hit:?}", self.copies, pause.as_millis());
            self.pauses.entry((self.copies, cause)).or_default().push(pause);
        }
    }

    /// Waits until every daemon is ready, each partition has one owner, and its output goes on.
    fn settle(&mut self) {
        let end = Instant::now() + PATIENCE;
        loop {
            let owned = self.instances.each_ref().map(|instance| instance.owned().len());
            let are_ready = self.instances.iter().all(Instance::is_ready);
            // With copies, placement may leave a daemon copies alone.
            let are_busy = self.copies > 0 || owned.iter().all(|count| *count > 0);
            if are_ready && are_busy && owned.iter().sum::<usize>() == PARTITIONS as usize {
                break;
            }
            assert!(Instant::now() < end, "the partitions are owned as {owned:?}\n{self}");
            self.check();
        }
        let now = Instant::now();
        self.wait_for("output of all partitions", |campaign| {
            (0..PARTITIONS).all(|partition| campaign.witness.has_moved_on(partition, now))
        });
    }

    fn wait_for(&mut self, what: &str, done: impl Fn(&Campaign) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !done(self) {
            assert!(Instant::now() < end, "waited in vain for {what}\n{self}");
            self.check();
        }
    }

    fn check(&mut self) {
        self.witness.assert_nothing_is_wrong();
        self.load.assert_no_early_end();
        for instance in &mut self.instances {
            instance.assert_runs();
        }
        sleep(Duration::from_millis(20));
    }

    /// Ends load and daemons, and compares the output with an offline replay of the input.
    fn finish(mut self) -> Pauses {
        self.load.stop();
        for instance in &mut self.instances {
            instance.stop();
        }
        // What daemons append to their input themselves would have no end.
        let [last, ..] = &mut self.instances;
        last.launch(&[("HUNTD_INPUT__TICK_EVERY_MS", "0")]);
        let ends = self.running.cluster().client().ends(&self.topic, PARTITIONS);
        self.wait_for("output of the whole input", |campaign| campaign.witness.covers(&ends));
        // All of that may have been published before. The digests are those of the end.
        let end = Instant::now() + PATIENCE;
        while !self.instances[0].has_applied(&ends) {
            assert!(Instant::now() < end, "the input was not applied to its end\n{self}");
            self.check();
        }
        let [last, ..] = &mut self.instances;
        last.stop();
        let digests = last.digests();
        let replayed = load::replay(&self.running.cluster().bootstrap(), &self.topic);
        for partition in 0..PARTITIONS {
            let seen = self.witness.position(partition);
            let account = &replayed["partitions"][partition.to_string()];
            let count = |key: &str| account[key].as_u64().expect("reports have counts");
            let hash = |key: &str| account[key].as_str().expect("reports have hashes").to_owned();
            assert_eq!(seen.next_offset, count("events") as i64, "lost in {partition}\n{self}");
            assert_eq!(seen.next_update, count("updates"), "updates of {partition}\n{self}");
            assert_eq!(format!("{:016x}", seen.chain.0), hash("chain"), "{partition}\n{self}");
            let digest = digests.get(&partition).map(String::as_str);
            assert_eq!(digest, Some(&*hash("digest")), "partition {partition}\n{self}");
        }
        println!(
            "{} events and {} updates, none lost, none twice, digests equal to a replay's; \
             a reader dropped {} repeated frames, {} of former owners and {} after gaps",
            replayed["total"]["events"],
            replayed["total"]["updates"],
            self.witness.repeated(),
            self.witness.stale(),
            self.witness.gaps()
        );
        std::mem::take(&mut self.pauses)
    }
}

fn print(pauses: &Pauses) {
    for ((copies, cause), times) in pauses {
        let mut times = times.clone();
        times.sort();
        if let (Some(median), Some(worst)) = (at(&times, 50), at(&times, 99)) {
            let count = times.len();
            println!("{copies} copies, {cause}: {count} times, p50 {median:.2?}, p99 {worst:.2?}");
        }
    }
}

/// The smallest time that this many percent do not exceed.
fn at(times: &[Duration], percent: usize) -> Option<Duration> {
    let rank = (times.len() * percent).div_ceil(100);
    times.get(rank.saturating_sub(1)).copied()
}

impl fmt::Display for Campaign {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "after {:?}", self.pauses)?;
        writeln!(formatter, "{}", self.witness)?;
        self.instances.iter().try_for_each(|instance| writeln!(formatter, "{instance}"))
    }
}
