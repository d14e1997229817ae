//! A demo with its page, as a child process.

use crate::PATIENCE;
use crate::daemon::program;
use crate::process::{OwnedChild, resident_bytes, wait_for_line};
use crate::scrape::get;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A demo that serves its page. Dropped, it is killed.
pub struct Playing {
    child: OwnedChild,
    /// Where the page is.
    pub address: String,
}

impl Playing {
    /// Starts a demo, and waits until all its zones are served.
    pub fn start(arguments: &[&str]) -> Playing {
        Playing::run(Command::new(program()), arguments)
    }

    /// A demo that may have this many descriptors.
    pub fn start_within(descriptors: u32, arguments: &[&str]) -> Playing {
        let mut shell = Command::new("sh");
        let limited = format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"");
        shell.args(["-c", &limited]).arg(program());
        Playing::run(shell, arguments)
    }

    fn run(mut command: Command, arguments: &[&str]) -> Playing {
        let child = command
            .args(["demo", "--page", "--stay"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the demo is started");
        let mut child = OwnedChild::from(child);
        let address = wait_for_line(child.stderr.take().expect("it was piped"), |line| {
            let rest = line.strip_prefix("page: http://")?;
            Some(rest.trim_end_matches('/').to_owned())
        });
        let address = address.expect("the page has an address");
        let playing = Playing { child, address };
        playing.wait_until("all zones are served", |playing| playing.status("/readyz") == 200);
        playing
    }

    pub fn wait_until(&self, what: &str, is_true: impl Fn(&Playing) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_true(self) {
            assert!(Instant::now() < end, "it never happens that {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn status(&self, path: &str) -> u16 {
        get(&self.address, path).0
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        stream.set_nodelay(true).expect("a socket takes the option");
        stream
    }

    /// All that is answered to these bytes, which are the last that the client sends.
    pub fn answer(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        // It may be refused before its end.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("it answers and closes");
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Presses Ctrl-C, and waits until the demo has ended.
    pub fn interrupt(mut self) -> ExitStatus {
        let process = Pid::from_raw(self.child.id().cast_signed());
        kill_process(process.expect("a process has a number"), Signal::INT).expect("it runs");
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("the child can be asked") {
                return status;
            }
            assert!(Instant::now() < end, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Bytes of memory that it has.
    pub fn resident(&self) -> u64 {
        resident_bytes(self.child.id())
    }

    /// Descriptors that it has open.
    pub fn descriptors(&self) -> usize {
        let folder = std::fs::read_dir(format!("/proc/{}/fd", self.child.id()));
        folder.expect("the process is there").count()
    }
}
