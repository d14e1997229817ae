//! A soak: three daemons with a copy of each zone beside three brokers, on a busy host. The brokers
//! are restarted in order, one after the other, again and again. No copy may take a zone over whose
//! output goes on.

use super::instance::Instance;
use super::surroundings::{Brokers, Surroundings};
use super::{Campaign, PARTITIONS};
use std::process::Command;
use std::time::{Duration, Instant};
use support::process::OwnedChild;

/// Events a second: what brokers keep of an hour fits on any disk.
const RATE: u32 = 5_000;

/// Processes that do nothing but keep the cores busy.
const BUSY: usize = 2;

/// Time between two restarts of brokers.
const CALM: Duration = Duration::from_secs(60);

/// Time for which a copy waits before it takes a zone over whose owner publishes nothing.
const SILENCE: Duration = Duration::from_millis(400);

/// Runs for so long.
pub(super) fn run(soak_for: Duration) {
    let _busy: Vec<OwnedChild> = (0..BUSY).map(|_| be_busy()).collect();
    let surroundings = Surroundings { brokers: Brokers::Three, group_protocol: "classic" };
    let mut soak = Campaign::start(0, RATE, 1, &surroundings);
    let end = Instant::now() + soak_for;
    let (mut restarts, mut takeovers) = (0, [0; 3]);
    soak.witness.watch();
    while Instant::now() < end {
        soak.stay_calm(&mut takeovers);
        soak.running.cluster().client().wait_until_in_sync();
        let broker = soak.running.cluster_mut().broker_mut(restarts % 3);
        broker.stop();
        broker.restart(3);
        restarts += 1;
        soak.stay_calm(&mut takeovers);
    }
    let takeovers: usize = takeovers.iter().sum();
    println!("{restarts} restarts of brokers, {takeovers} takeovers, each after a pause");
    soak.finish();
}

impl Campaign {
    /// Lets time pass. Fails if a zone was taken over whose output went on. `before` is how many
    /// zones each instance had taken over.
    fn stay_calm(&mut self, before: &mut [usize; 3]) {
        let end = Instant::now() + CALM / 2;
        while Instant::now() < end {
            self.check();
        }
        let taken = self.instances.each_ref().map(Instance::taken_over);
        // Until then the pauses before takeovers have not ended.
        let now = Instant::now();
        self.wait_for("output of all partitions", |campaign| {
            (0..PARTITIONS).all(|partition| campaign.witness.has_moved_on(partition, now))
        });
        let all: Vec<i32> = (0..PARTITIONS).collect();
        for (taken, before) in taken.iter().zip(before) {
            for partition in &taken[*before..] {
                let pause = self.witness.pause(&[*partition]).expect("it is a partition");
                println!("zone {partition} was taken over, and its output paused for {pause:?}");
                assert!(pause >= SILENCE, "nothing had happened\n{self}");
            }
            *before = taken.len();
        }
        println!("outputs paused for at most {:?}", self.witness.pause(&all));
        self.witness.forget_pauses();
    }
}

/// A process that keeps a core busy.
fn be_busy() -> OwnedChild {
    let spin = Command::new("sh").args(["-c", "while :; do :; done"]).spawn();
    spin.expect("there is a shell").into()
}
