//! What goes into the topic, and what must come out of it.

use serde_json::Value;
use std::process::{Child, Command, Stdio};

/// More than any campaign takes.
const EVENTS: &str = "1000000000000";

/// A running `huntd load`.
pub(super) struct Load {
    child: Option<Child>,
}

impl Load {
    /// Begins to produce this many events a second.
    pub(super) fn start(bootstrap: &str, topic: &str, rate: u32) -> Load {
        let child = Command::new(env!("CARGO_BIN_EXE_huntd"))
            .args(["load", "--brokers", bootstrap, "--topic", topic])
            .args(["--rate", &rate.to_string()])
            .args(["--events", EVENTS, "--compression", "lz4", "--base-ms", "1767225600000"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("the load is started");
        Load { child: Some(child) }
    }

    /// It has not ended by itself.
    pub(super) fn assert_no_early_end(&mut self) {
        let Some(child) = &mut self.child else { return };
        let ended = child.try_wait().expect("it is a child");
        assert!(ended.is_none(), "the load ended by itself: {ended:?}");
    }

    /// Ends it; what the broker has is what counts.
    pub(super) fn stop(&mut self) {
        self.assert_no_early_end();
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("it is a child");
        child.wait().expect("it is a child");
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The report of an offline replay of the topic.
pub(super) fn replay(bootstrap: &str, topic: &str) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_huntd"))
        .args(["replay", "--json", "--brokers", bootstrap, "--topic", topic])
        .stdin(Stdio::null())
        .output()
        .expect("the replay is started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("a report is one JSON object")
}
