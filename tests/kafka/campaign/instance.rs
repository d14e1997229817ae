//! One daemon of the campaign, with a folder that outlives its processes.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::PATIENCE;
use support::scrape::Page;

/// Lines of a log that a failure shows.
const LOG_LINES_SHOWN: usize = 60;

pub(super) struct Instance {
    name: &'static str,
    folder: tempfile::TempDir,
    child: Option<Child>,
    frozen: bool,
    /// Processes so far; each has a log of its own.
    launched: u32,
}

impl Instance {
    /// Writes the configuration. `kafka` is further lines of the section `[kafka]`.
    pub(super) fn new(name: &'static str, kafka: &str, topic: &str) -> Instance {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let state = folder.path().join("state");
        fs::create_dir(&state).expect("the folder can be written");
        let text = format!(
            "[kafka]\n{kafka}group = \"{topic}\"\ngroup_instance_id = \"{name}\"\n\
             input_topic = \"{topic}\"\noutput_topic = \"{topic}-updates\"\n\
             dead_letter_topic = \"{topic}-dead\"\n\
             [publish]\nformat = \"binary\"\n\
             [snapshot]\ndirectory = \"{}\"\ntopic = \"{topic}-snapshots\"\nevery_ms = 2000\n\
             [service]\nlisten = \"127.0.0.1:0\"\nlog_format = \"json\"\n",
            state.display()
        );
        fs::write(folder.path().join("huntd.toml"), text).expect("the folder can be written");
        Instance { name, folder, child: None, frozen: false, launched: 0 }
    }

    /// Starts a process with these keys of its configuration, as variables of its environment.
    pub(super) fn launch(&mut self, variables: &[(&str, &str)]) {
        assert!(self.child.is_none(), "{} runs already", self.name);
        self.launched += 1;
        let log = File::create(self.log_file()).expect("the folder can be written");
        let child = Command::new(env!("CARGO_BIN_EXE_huntd"))
            .args(["run", "--config"])
            .arg(self.folder.path().join("huntd.toml"))
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the daemon is started");
        self.child = Some(child);
    }

    /// As a power cut would.
    pub(super) fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("it is a child");
        child.wait().expect("it is a child");
    }

    /// In order.
    pub(super) fn stop(&mut self) {
        self.signal(Signal::TERM);
        let mut child = self.child.take().expect("it runs");
        let end = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = child.try_wait().expect("it is a child") {
                break status;
            }
            if Instant::now() > end {
                child.kill().expect("it is a child");
                child.wait().expect("it is a child");
                panic!("the daemon does not end within {PATIENCE:?}\n{self}");
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert!(status.success(), "{status}\n{self}");
    }

    pub(super) fn freeze(&mut self) {
        self.signal(Signal::STOP);
        self.frozen = true;
    }

    pub(super) fn thaw(&mut self) {
        self.signal(Signal::CONT);
        self.frozen = false;
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("it runs");
        kill_process(Pid::from_child(child), signal).expect("it is a child");
    }

    /// A daemon that ended by itself has failed.
    pub(super) fn assert_runs(&mut self) {
        if let Some(child) = &mut self.child {
            let ended = child.try_wait().expect("it is a child");
            assert!(ended.is_none(), "{ended:?}\n{self}");
        }
    }

    /// The partitions that it says it owns; none while it does not answer.
    pub(super) fn owned(&self) -> Vec<i32> {
        self.page().map_or_else(Vec::new, |page| page.owned())
    }

    /// Returns whether its page shows that it is ready.
    pub(super) fn is_ready(&self) -> bool {
        self.page().is_some_and(|page| page.value("huntd_ready") == 1)
    }

    /// Whether it owns all partitions, and has applied them up to these offsets.
    pub(super) fn has_applied(&self, ends: &[i64]) -> bool {
        let ends: Vec<u64> = ends.iter().map(|end| end.cast_unsigned()).collect();
        self.page().is_some_and(|page| {
            page.owned().len() == ends.len() && page.progress_by_partition("applied") == ends
        })
    }

    /// `/metrics`, if it is served.
    fn page(&self) -> Option<Page> {
        if self.child.is_none() || self.frozen {
            return None;
        }
        let log = self.log();
        let (_, rest) = log.split_once("\"address\":\"")?;
        Page::try_of(rest.split('"').next()?)
    }

    /// The digest of each partition that the last process released.
    pub(super) fn digests(&self) -> BTreeMap<i32, String> {
        let released = self.logged("\"message\":\"released\"").into_iter().map(|fields| {
            let digest = fields["digest"].as_str().expect("a digest").to_owned();
            (partition_of(&fields), digest)
        });
        released.collect()
    }

    /// The zones that its process has taken over because their owner was silent, in order.
    pub(super) fn taken_over(&self) -> Vec<i32> {
        self.logged("\"silent_ms\":").iter().map(partition_of).collect()
    }

    /// The fields of each line in its log that has these words.
    fn logged(&self, words: &str) -> Vec<Value> {
        let parse = |line: &str| {
            let line: Value = serde_json::from_str(line).expect("a log line is JSON");
            line["fields"].clone()
        };
        self.log().lines().filter(|line| line.contains(words)).map(parse).collect()
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join(format!("log-{}", self.launched))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }
}

fn partition_of(fields: &Value) -> i32 {
    fields["partition"].as_i64().expect("a partition") as i32
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let shown = &lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..];
        write!(formatter, "{}, process {}:\n{}", self.name, self.launched, shown.join("\n"))
    }
}
