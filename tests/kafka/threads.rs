//! Which threads `huntd run` and `huntd serve` have: those that the architecture lists.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use support::PATIENCE;
use support::daemon::{Huntd, Topics};
use support::kafka;
use support::scrape::tasks;
use support::serving::Serving;

const PARTITIONS: i32 = 2;

/// For how long the threads are sampled: some work is done each second.
const SAMPLED_FOR: Duration = Duration::from_secs(3);

/// The names of threads in a table of the architecture. The first set has those that sleep, so
/// that they are there as long as the process; the second has those that end with their work.
fn listed_threads(program: &str) -> [BTreeSet<&'static str>; 2] {
    const PAGE: &str = include_str!("../../docs/ARCHITECTURE.md");
    let heading = format!("\nThe threads of `{program}`:\n");
    let (_, section) = PAGE.split_once(&heading).expect("each program has a table");
    let table = section.lines().skip_while(|line| !line.starts_with('|'));
    let mut listed = [BTreeSet::new(), BTreeSet::new()];
    for row in table.take_while(|line| line.starts_with('|')).skip(2) {
        let mut cells = row.split('|').skip(1).map(str::trim);
        let (thread, sleeps_in) = (cells.next().unwrap(), cells.next().unwrap());
        let names = thread.split([',', ':']).next().unwrap().split('`').skip(1).step_by(2);
        listed[usize::from(sleeps_in.is_empty())].extend(names);
    }
    listed
}

/// The names of a process's threads, without those of librdkafka and of io_uring.
fn own_threads(pid: u32) -> BTreeSet<String> {
    let is_own = |name: &String| !name.starts_with("rdk:") && !name.starts_with("iou-");
    tasks(pid).into_iter().map(|task| task.name).filter(is_own).collect()
}

/// A process has the threads that are listed and no others, once it has started.
fn assert_has_listed_threads(program: &str, pid: u32) {
    let [lasting, passing] = listed_threads(program);
    let end = Instant::now() + PATIENCE;
    loop {
        let running = own_threads(pid);
        let absent: Vec<_> = lasting.iter().filter(|name| !running.contains(**name)).collect();
        if absent.is_empty() {
            break;
        }
        assert!(Instant::now() < end, "`{program}` has no threads {absent:?}, only {running:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    // Some live for a moment only.
    let end = Instant::now() + SAMPLED_FOR;
    let mut seen = BTreeSet::new();
    while Instant::now() < end {
        seen.extend(own_threads(pid));
        std::thread::sleep(Duration::from_millis(5));
    }
    for name in seen {
        let is_listed = lasting.contains(name.as_str()) || passing.contains(name.as_str());
        assert!(is_listed, "docs/ARCHITECTURE.md has no thread {name} of `{program}`");
    }
}

#[test]
fn the_programs_have_the_threads_that_the_architecture_lists_and_no_others() {
    let topics = Topics::create(kafka::shared(), "threads", PARTITIONS);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let replicas = kafka::unique_name("replicas");
    let compacted = [("cleanup.policy", "compact")];
    kafka::shared().client().create_topic(&replicas, PARTITIONS, &compacted);
    let snapshot = format!("directory = {:?}\ntopic = {replicas:?}", folder.path());
    let mut huntd = Huntd::start(kafka::shared(), &topics, &[("snapshot", &snapshot)]);
    huntd.wait_for_address();
    let serving = Serving::start(&huntd);
    serving.wait_for("zones are served");
    assert_has_listed_threads("huntd run", huntd.pid());
    assert_has_listed_threads("huntd serve", serving.pid());
}
