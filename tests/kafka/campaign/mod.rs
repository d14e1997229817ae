//! A campaign of faults against a real broker: two daemons of one group under load are killed,
//! stopped, frozen beyond their group session and robbed of their broker, again and again. In the
//! end the output must be what one uninterrupted run makes.
//!
//! `cargo test` runs a short one. `HUNTD_CYCLES=200 cargo test --release --test kafka campaign --
//! --nocapture` runs a long one and prints how long restarts and takeovers took;
//! `HUNTD_SEED=N` repeats its faults.

mod instance;
mod load;
mod witness;

use instance::Instance;
use load::Load;
use std::fmt;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use support::PATIENCE;
use support::kafka::{Cluster, Options};
use support::needs;
use witness::Witness;

/// Cycles that `cargo test` runs.
const CYCLES: u32 = 20;

/// Events a second: as many as two daemons and a broker manage on two cores.
const RATE: u32 = 200_000;

/// Events a second in `cargo test`, which runs other tests beside this one.
const RATE_BESIDE_OTHERS: u32 = 50_000;

/// Zones of the world.
const PARTITIONS: i32 = 4;

/// Longer than the group session of a member: the group has given its partitions away by then.
const FROZEN: Duration = Duration::from_secs(9);

/// What a cycle does to the daemons or their broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// One daemon is killed and started again at once: its partitions stay its own.
    KillAndRestart,
    /// One daemon is ended in order and started again.
    StopAndRestart,
    /// One daemon is killed, and is back only once the other has taken its partitions over.
    KillAndLeave,
    /// One daemon is frozen, and goes on when the other has taken its partitions over.
    Freeze,
    /// The broker is killed and started again.
    KillBroker,
}

/// Each fault, as often as it comes in ten cycles.
const FAULTS: [Fault; 10] = [
    Fault::KillAndRestart,
    Fault::KillAndRestart,
    Fault::KillAndRestart,
    Fault::KillAndRestart,
    Fault::StopAndRestart,
    Fault::KillAndLeave,
    Fault::KillAndLeave,
    Fault::Freeze,
    Fault::Freeze,
    Fault::KillBroker,
];

#[test]
fn whatever_dies_a_reader_sees_the_updates_of_one_uninterrupted_run() {
    let wanted = number("HUNTD_CYCLES");
    if wanted.is_none() && !needs::has_minutes() {
        return;
    }
    let cycles = wanted.map_or(CYCLES, |cycles| cycles as u32);
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    let seed = number("HUNTD_SEED").unwrap_or(since_epoch.as_nanos() as u64);
    println!("campaign of {cycles} cycles, HUNTD_SEED={seed}");
    let rate = if wanted.is_some() { RATE } else { RATE_BESIDE_OTHERS };
    let mut campaign = Campaign::start(seed, rate);
    for cycle in 0..cycles {
        let fault = campaign.fault_of(cycle);
        let took = campaign.cycle(fault);
        println!("cycle {cycle}: {fault:?} {} ms", took.as_millis());
        campaign.times.push((fault, took));
    }
    campaign.finish();
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} must be a number")))
}

struct Campaign {
    random: u64,
    cluster: Cluster,
    topic: String,
    load: Load,
    witness: Witness,
    instances: [Instance; 2],
    times: Vec<(Fault, Duration)>,
}

impl Campaign {
    fn start(seed: u64, rate: u32) -> Campaign {
        let cluster = Cluster::start(1, &Options::for_rates());
        let topic = "campaign".to_owned();
        let client = cluster.client();
        // After a kill a broker reads the last segment of each log again, which takes longer than
        // the load waits if segments are large and the host is slow.
        let kept = [("retention.ms", "-1"), ("segment.bytes", "67108864")];
        client.create_topic(&topic, PARTITIONS, &kept);
        client.create_topic(&format!("{topic}-updates"), PARTITIONS, &kept);
        client.create_topic(&format!("{topic}-dead"), 1, &kept);
        client.create_topic(
            &format!("{topic}-snapshots"),
            PARTITIONS,
            &[("cleanup.policy", "compact")],
        );
        let bootstrap = cluster.bootstrap();
        let witness = Witness::start(&client.config(), &format!("{topic}-updates"), PARTITIONS);
        let instances = ["one", "two"].map(|name| Instance::new(name, &bootstrap, &topic));
        let load = Load::start(&bootstrap, &topic, rate);
        // The splitmix step makes even a small seed a good start for xorshift.
        let random = (seed ^ 0x9e37_79b9_7f4a_7c15).max(1);
        let mut campaign =
            Campaign { random, cluster, topic, load, witness, instances, times: Vec::new() };
        campaign.instances.iter_mut().for_each(Instance::launch);
        campaign.settle();
        campaign
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

    /// Lets a fault happen at a random moment: how long it took until the output of every partition
    /// that it hit went on.
    fn cycle(&mut self, fault: Fault) -> Duration {
        let moment = self.below(1_500);
        sleep(Duration::from_millis(moment));
        let victim = self.below(2) as usize;
        // First the epochs: a partition that changes hands in between has a later one already.
        let before = self.witness.epochs();
        let hit = match fault {
            Fault::KillBroker => (0..PARTITIONS).collect(),
            _ => self.instances[victim].owned(),
        };
        let begin = Instant::now();
        match fault {
            Fault::KillAndRestart => {
                self.instances[victim].kill();
                self.instances[victim].launch();
            }
            Fault::StopAndRestart => {
                self.instances[victim].stop();
                self.instances[victim].launch();
            }
            Fault::KillAndLeave => self.instances[victim].kill(),
            Fault::Freeze => self.instances[victim].freeze(),
            Fault::KillBroker => {
                let broker = self.cluster.broker_mut(0);
                broker.kill9();
                broker.restart(1);
                println!("the broker was away for {} ms", begin.elapsed().as_millis());
            }
        }
        // Without an owner's end there is no new epoch, and the old ones go on.
        let least: Vec<(i32, u64)> = match fault {
            Fault::KillBroker => hit.iter().map(|at| (*at, before[*at as usize])).collect(),
            _ => hit.iter().map(|at| (*at, before[*at as usize] + 1)).collect(),
        };
        self.wait_for(&format!("{fault:?}: output of {least:?}"), |witness| {
            witness.has_moved_on(&least, begin)
        });
        let took = begin.elapsed();
        match fault {
            Fault::KillAndLeave => self.instances[victim].launch(),
            Fault::Freeze => {
                sleep(FROZEN.saturating_sub(took));
                self.instances[victim].thaw();
            }
            _ => {}
        }
        self.settle();
        took
    }

    /// Waits until both daemons own something, and the output of every partition goes on.
    fn settle(&mut self) {
        let end = Instant::now() + PATIENCE;
        loop {
            let owned = self.instances.each_ref().map(|instance| instance.owned().len());
            if owned.iter().all(|count| *count > 0) && owned.iter().sum::<usize>() == 4 {
                break;
            }
            assert!(Instant::now() < end, "the partitions are owned as {owned:?}\n{self}");
            self.check();
        }
        let now = Instant::now();
        let all: Vec<(i32, u64)> = (0..PARTITIONS).map(|partition| (partition, 0)).collect();
        self.wait_for("output of all partitions", |witness| witness.has_moved_on(&all, now));
    }

    fn wait_for(&mut self, what: &str, done: impl Fn(&Witness) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !done(&self.witness) {
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
    fn finish(mut self) {
        self.load.stop();
        for instance in &mut self.instances {
            instance.stop();
        }
        // What daemons append to their input themselves would have no end.
        let [last, _] = &mut self.instances;
        last.launch_without_ticks();
        let ends = self.cluster.client().ends(&self.topic, PARTITIONS);
        self.wait_for("output of the whole input", |witness| witness.covers(&ends));
        // All of that may have been published before. The digests are those of the end.
        let end = Instant::now() + PATIENCE;
        while !self.instances[0].has_applied(&ends) {
            assert!(Instant::now() < end, "the input was not applied to its end\n{self}");
            self.check();
        }
        let [last, _] = &mut self.instances;
        last.stop();
        let digests = last.digests();
        let replayed = load::replay(&self.cluster.bootstrap(), &self.topic);
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
        self.print(&replayed["total"]);
    }

    fn print(&self, total: &serde_json::Value) {
        println!(
            "{} events and {} updates, none lost, none twice, digests equal to a replay's; \
             a reader dropped {} repeated frames, {} of former owners and {} after gaps",
            total["events"],
            total["updates"],
            self.witness.repeated(),
            self.witness.stale(),
            self.witness.gaps()
        );
        for (what, faults) in [
            ("restart on the same host", &[Fault::KillAndRestart, Fault::StopAndRestart][..]),
            ("takeover after a kill (group session of 6 s included)", &[Fault::KillAndLeave]),
            ("takeover of a frozen one (group session of 6 s included)", &[Fault::Freeze]),
            ("broker killed and restarted", &[Fault::KillBroker]),
        ] {
            let of = |(fault, took): &(Fault, Duration)| faults.contains(fault).then_some(*took);
            let mut times: Vec<Duration> = self.times.iter().filter_map(of).collect();
            times.sort();
            if let (Some(median), Some(worst)) = (at(&times, 50), at(&times, 99)) {
                let count = times.len();
                println!("{what}: {count} times, p50 {median:.2?}, p99 {worst:.2?}");
            }
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
        writeln!(formatter, "after {:?}", self.times)?;
        writeln!(formatter, "{}", self.witness)?;
        self.instances.iter().try_for_each(|instance| writeln!(formatter, "{instance}"))
    }
}
