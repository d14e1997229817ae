//! What a running daemon shows: its HTTP pages, and its tasks in `/proc`.

use crate::PATIENCE;
use huntd::hunt;
use huntd::service::Observed;
use huntd::service::exposition::render;
use huntd::service::status::Status;
use huntd::telemetry::metrics::Metrics;
use huntd::telemetry::progress::Progress;
use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

/// A metric family of the daemon's page.
pub struct Family {
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: String,
    pub help: String,
}

/// All families of the daemon, in the order of the page.
pub fn families() -> Vec<Family> {
    let page = render(&Observed {
        metrics: Arc::new(Metrics::new().counting_in_zones(hunt::schema().counts)),
        progress: Arc::new(Progress::new()),
        status: Arc::new(Status::new()),
    });
    let words = |line: &str, start| Some(line.strip_prefix(start)?.split_once(' ')?.1.to_owned());
    let mut families = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(rest) = line.strip_prefix("# HELP ") else { continue };
        let (name, help) = rest.split_once(' ').expect("a family has a help text");
        let kind = lines.next().and_then(|line| words(line, "# TYPE ")).expect("and a kind");
        families.push(Family { name: name.to_owned(), kind, help: help.to_owned() });
    }
    assert!(families.len() > 40, "only {}", families.len());
    families
}

/// One GET: the status code and the body.
pub fn get(address: &str, path: &str) -> (u16, String) {
    try_get(address, path).expect("the daemon answers")
}

/// Like [`get`], for a daemon that may end meanwhile.
pub(crate) fn try_get(address: &str, path: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Ok((code.expect("an answer has a status code"), body.to_owned()))
}

/// The page `/metrics` at one moment.
pub struct Page(String);

impl Page {
    pub fn of(address: &str) -> Page {
        let (code, body) = get(address, "/metrics");
        assert_eq!(code, 200, "{body}");
        Page(body)
    }

    /// The page of a daemon that may end meanwhile.
    pub fn try_of(address: &str) -> Option<Page> {
        try_get(address, "/metrics").ok().map(|(_, body)| Page(body))
    }

    /// Values of all samples of a family, with their labels as they stand between the braces.
    pub fn samples<'a>(&'a self, family: &'a str) -> impl Iterator<Item = (&'a str, u64)> {
        self.0.lines().filter_map(move |line| {
            let (name, value) = line.strip_prefix(family)?.rsplit_once(' ')?;
            let labels = match name {
                "" => "",
                _ => name.strip_prefix('{')?.strip_suffix('}')?,
            };
            Some((labels, value.parse().ok()?))
        })
    }

    /// Upper bounds and cumulative counts of a histogram.
    pub fn buckets(&self, family: &str) -> Vec<(f64, u64)> {
        let bucket = format!("{family}_bucket");
        let of_sample = |(labels, count): (&str, u64)| {
            let bound = labels.strip_prefix("le=\"")?.strip_suffix('"')?;
            Some((bound.parse().unwrap_or(f64::INFINITY), count))
        };
        self.samples(&bucket).filter_map(of_sample).collect()
    }

    /// The value of a family, summed up over its labels.
    pub fn value(&self, family: &str) -> u64 {
        let is_there = |line: &str| line.trim_start_matches("# TYPE ").starts_with(family);
        assert!(self.0.lines().any(is_there), "no {family}");
        self.samples(family).map(|(_, value)| value).sum()
    }

    /// Events that the engine has dealt with, and records that were rejected.
    pub fn events(&self) -> u64 {
        let counted = ["events_applied", "events_refused", "events_no_op", "records_rejected"];
        counted.iter().map(|name| self.value(&format!("huntd_{name}_total"))).sum()
    }

    /// The sum over all partitions of the offset that a stage has reached.
    pub fn progress(&self, stage: &str) -> u64 {
        self.progress_by_partition(stage).iter().sum()
    }

    /// The offset that a stage has reached, for each partition that is owned or followed.
    pub fn progress_by_partition(&self, stage: &str) -> Vec<u64> {
        let label = format!("stage=\"{stage}\"");
        let offsets = self.samples("huntd_progress_offset");
        offsets.filter(|(labels, _)| labels.contains(&label)).map(|(_, offset)| offset).collect()
    }

    /// The partitions that the daemon owns, without those that it follows.
    pub fn owned(&self) -> Vec<i32> {
        let owned = self.samples("huntd_shard_owned").filter(|(_, value)| *value == 1);
        let partition =
            |labels: &str| labels.strip_prefix("partition=\"")?.strip_suffix('"')?.parse().ok();
        owned.map(|(labels, _)| partition(labels).expect("a partition")).collect()
    }
}

/// A thread of the daemon, or one that the kernel runs for it.
#[derive(Debug)]
pub struct Task {
    pub id: u32,
    pub name: String,
    /// The cores that it may run on, in the kernel's form: `0-2,5`.
    pub cores_allowed: String,
    /// Whether a filter of system calls confines it.
    pub is_confined: bool,
    /// Nanoseconds that it ran.
    pub ran_ns: u64,
    /// Nanoseconds that it was ready to run and waited for a core.
    pub waited_ns: u64,
    /// How many times it was given a core.
    pub times: u64,
}

/// All tasks of a process now.
pub fn tasks(pid: u32) -> Vec<Task> {
    let folder = fs::read_dir(format!("/proc/{pid}/task")).expect("the process is there");
    let names = folder.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    // A task that ends while it is looked at is none.
    names.filter_map(|name| task(pid, name.parse().ok()?)).collect()
}

fn task(pid: u32, id: u32) -> Option<Task> {
    let read = |file| fs::read_to_string(format!("/proc/{pid}/task/{id}/{file}")).ok();
    let status = read("status")?;
    let field = |name| Some(status.lines().find_map(|line| line.strip_prefix(name))?.trim());
    let schedule = read("schedstat")?;
    let mut numbers = schedule.split_whitespace().map(str::parse);
    Some(Task {
        id,
        name: field("Name:")?.to_owned(),
        cores_allowed: field("Cpus_allowed_list:")?.to_owned(),
        is_confined: field("Seccomp:")? == "2",
        ran_ns: numbers.next()?.ok()?,
        waited_ns: numbers.next()?.ok()?,
        times: numbers.next()?.ok()?,
    })
}

/// The thread that runs the event path.
pub fn hot_task(pid: u32) -> Task {
    tasks(pid).into_iter().find(|task| task.name == "hot").expect("there is a hot thread")
}
