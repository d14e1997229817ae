//! A systemd user session of its own, in mount and PID namespaces that end with it.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use support::PATIENCE;
use support::needs;
use support::process::OwnedChild;

/// Starts D-Bus and systemd on a fresh /run, then runs the commands that come in, one a line.
const SCRIPT: &str = r#"
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system "$XDG_RUNTIME_DIR"
chmod 700 "$XDG_RUNTIME_DIR"
export DBUS_SESSION_BUS_ADDRESS="unix:path=$XDG_RUNTIME_DIR/bus"
dbus-daemon --session --address="$DBUS_SESSION_BUS_ADDRESS" --nofork --nopidfile </dev/null &
/lib/systemd/systemd --user --log-target=console </dev/null &
while read -r line; do
    eval "$line" </dev/null 2>&1
    echo "::$?"
done
"#;

/// What must be there, with the way to ask for it.
const NEEDS: &[&str] = &["unshare", "mount", "dbus-daemon", "systemctl", "/lib/systemd/systemd"];

/// Whether there can be one.
pub(crate) fn is_possible() -> bool {
    let found = |need: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        Path::new(need).is_absolute() && Path::new(need).exists()
            || std::env::split_paths(&path).any(|folder| folder.join(need).is_file())
    };
    let is_root = rustix::process::geteuid().is_root();
    NEEDS.iter().all(|need| needs::has(need, found(need)))
        && needs::has("root, for a mount namespace", is_root)
}

/// The running session. Dropping it ends every process of its namespace.
pub(crate) struct Session {
    /// The shell is the namespace's init: with it every process in there ends.
    _process: OwnedChild,
    commands: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Session {
    /// Starts a session that finds its units in `folder`/config/systemd/user.
    pub(crate) fn start(folder: &Path) -> Session {
        let mut process = Command::new("unshare")
            .args(["--mount", "--pid", "--fork", "--mount-proc", "--kill-child"])
            .args(["sh", "-c", SCRIPT])
            .env("XDG_RUNTIME_DIR", "/run/user/0")
            .env("XDG_CONFIG_HOME", folder.join("config"))
            .env("HOME", folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("unshare runs");
        let commands = process.stdin.take().expect("piped");
        let answers = BufReader::new(process.stdout.take().expect("piped")).lines();
        let mut session = Session { _process: process.into(), commands, answers };
        session.until("systemctl --user is-system-running", |state| state == "running");
        session
    }

    /// Runs a shell command inside: its exit code and what it printed.
    pub(crate) fn run(&mut self, command: &str) -> (i32, String) {
        writeln!(self.commands, "{command}").expect("the shell reads");
        let mut printed = Vec::new();
        loop {
            let line = self.answers.next().expect("the shell lives").expect("it prints text");
            if let Some(code) = line.strip_prefix("::") {
                return (code.parse().expect("an exit code"), printed.join("\n"));
            }
            printed.push(line);
        }
    }

    /// A property of a unit.
    pub(crate) fn property(&mut self, unit: &str, name: &str) -> String {
        self.run(&format!("systemctl --user show {unit} --value --property {name}")).1
    }

    /// Repeats a command until what it prints is as wanted.
    pub(crate) fn until(&mut self, command: &str, wanted: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let (_, printed) = self.run(command);
            if wanted(&printed) {
                return printed;
            }
            assert!(start.elapsed() < PATIENCE, "{command} still says {printed:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Repeats [`Session::property`] until it is as wanted.
    pub(crate) fn property_until(
        &mut self,
        unit: &str,
        name: &str,
        wanted: impl Fn(&str) -> bool,
    ) -> String {
        self.until(&format!("systemctl --user show {unit} --value --property {name}"), wanted)
    }
}
