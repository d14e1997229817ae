//! `huntd run` or `huntd serve` as a process, with a pipe for its log.

use crate::systemd::daemon::{free_port, get};
use rustix::process::{Pid, Signal, kill_process};
use std::io::PipeWriter;
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::PATIENCE;
use support::process::OwnedChild;

/// A process. Dropped, it is killed.
pub(super) struct Started {
    process: OwnedChild,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Started {
    /// Starts the verb with a command that ends with the program. The log goes to the pipe.
    pub(super) fn by(
        mut command: Command,
        verb: &str,
        broker: &str,
        more: &str,
        log: PipeWriter,
    ) -> Started {
        let (folder, port) = (tempfile::tempdir().expect("a temporary folder"), free_port());
        let section = if verb == "run" { "service" } else { "serve" };
        let config = folder.path().join("huntd.toml");
        let text = format!(
            "[kafka]\nbrokers = [\"{broker}\"]\n[{section}]\nlisten = \"127.0.0.1:{port}\"\n{more}"
        );
        std::fs::write(&config, text).expect("a file");
        let process = command
            .args([verb, "--config", config.to_str().expect("text")])
            .stderr(Stdio::from(log))
            .spawn()
            .expect("it can be started");
        Started { process: process.into(), port, _folder: folder }
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("it runs");
    }

    /// Waits until it answers HTTP, and the answer to a path is as it should be.
    pub(super) fn wait_until(&mut self, path: &str, is_so: impl Fn(&str) -> bool) {
        let end = Instant::now() + PATIENCE;
        loop {
            let is_there = TcpStream::connect(("127.0.0.1", self.port)).is_ok();
            if is_there && is_so(&get(self.port, path)) {
                return;
            }
            assert!(Instant::now() < end, "{path} is not as it should be");
            let ended = self.process.try_wait().expect("it can be waited for");
            assert_eq!(ended, None, "it has ended before");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends a signal again and again until the answer to a path is as it should be.
    pub(super) fn signal_until(&self, signal: Signal, path: &str, is_so: impl Fn(&str) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_so(&get(self.port, path)) {
            assert!(Instant::now() < end, "{path} is not as it should be");
            for _ in 0..100 {
                self.signal(signal);
                std::thread::sleep(Duration::from_millis(3));
            }
        }
    }

    /// Waits until it is ready.
    pub(super) fn wait_until_ready(&mut self) {
        self.wait_until("/readyz", |answer| answer.starts_with("HTTP/1.1 200 "));
    }

    /// Asks it to stop, and waits for a good end.
    pub(super) fn stop(mut self) {
        self.signal(Signal::TERM);
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.process.try_wait().expect("it can be waited for") {
                assert!(status.success(), "{status}");
                return;
            }
            assert!(Instant::now() < end, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
