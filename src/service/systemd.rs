//! The way to systemd: messages to its socket, without waiting for it.
//!
//! A socket that nobody reads has room for few messages. What systemd acts on is owed until there
//! is room. A status line, a ping of the watchdog or a plea for patience is lost instead: the next
//! one comes within a second or two, and an old one would no longer be true.

use sd_notify::NotifyState;
use std::cell::Cell;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// What systemd must hear, and has not heard yet. It is said in this order, so a stop comes last.
#[derive(Clone, Copy, Debug, Default)]
struct Owed {
    /// Microseconds by the clock that systemd compares with, when the last reload began.
    reloading_since: Option<i128>,
    ready: bool,
    stopping: bool,
}

/// Which messages make sense to systemd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotifiedPhase {
    /// It has not heard the first READY: it would take a reload for a start.
    Starting,
    Running,
    /// A reload that goes on while the daemon ends is none of its business.
    Stopping,
}

/// The service manager that started this process, if it wants to be told.
pub(super) struct Systemd {
    address: Option<SocketAddr>,
    owed: Cell<Owed>,
    phase: Cell<NotifiedPhase>,
}

impl Systemd {
    /// What the environment names. A name that no socket can have is nobody's.
    pub(super) fn of_environment() -> Systemd {
        let name = std::env::var_os("NOTIFY_SOCKET");
        Systemd::at(name.and_then(|name| address(&name).ok()))
    }

    fn at(address: Option<SocketAddr>) -> Systemd {
        Systemd { address, owed: Cell::default(), phase: Cell::new(NotifiedPhase::Starting) }
    }

    /// How long it waits for a ping, if it waits for any.
    pub(super) fn watchdog() -> Option<Duration> {
        sd_notify::watchdog_enabled()
    }

    /// The start, or a reload, has ended.
    pub(super) fn ready(&self) {
        if self.phase.get() != NotifiedPhase::Stopping {
            self.owe(|owed| owed.ready = true);
        }
    }

    /// A reload begins. One that systemd has not heard of has ended by now, and this one stands for
    /// both. Before the first READY=1 and after a stop systemd is not told of it: then this is
    /// false, and no READY must follow.
    pub(super) fn reloading(&self) -> bool {
        let Ok(NotifyState::MonotonicUsec(now)) = NotifyState::monotonic_usec_now() else {
            return false;
        };
        let is_running = self.phase.get() == NotifiedPhase::Running;
        if is_running {
            self.owe(|owed| (owed.reloading_since, owed.ready) = (Some(now), false));
        }
        is_running
    }

    /// The daemon begins to end.
    pub(super) fn stopping(&self) {
        self.phase.set(NotifiedPhase::Stopping);
        self.owe(|owed| owed.stopping = true);
    }

    fn owe(&self, change: impl FnOnce(&mut Owed)) {
        let mut owed = self.owed.get();
        change(&mut owed);
        self.owed.set(owed);
        self.say_owed();
    }

    /// Says what found no room before, as far as there is room now.
    pub(super) fn say_owed(&self) {
        let mut owed = self.owed.get();
        owed.reloading_since = owed.reloading_since.filter(|since| {
            !self.say(&[NotifyState::Reloading, NotifyState::MonotonicUsec(*since)])
        });
        if owed.ready && owed.reloading_since.is_none() {
            owed.ready = !self.say(&[NotifyState::Ready]);
            if !owed.ready && self.phase.get() == NotifiedPhase::Starting {
                self.phase.set(NotifiedPhase::Running);
            }
        }
        if owed.stopping && !owed.ready && owed.reloading_since.is_none() {
            owed.stopping = !self.say(&[NotifyState::Stopping]);
        }
        self.owed.set(owed);
    }

    /// Says this now or never.
    pub(super) fn mention(&self, states: &[NotifyState<'_>]) {
        if !states.is_empty() {
            self.say(states);
        }
    }

    /// Whether systemd will hear it, or nobody wants to. A lost message is not worth a log line a
    /// second: the journal would be gone as well.
    fn say(&self, states: &[NotifyState<'_>]) -> bool {
        let Some(address) = &self.address else { return true };
        let message: String = states.iter().map(|state| format!("{state}\n")).collect();
        send(message.as_bytes(), address).is_ok()
    }
}

fn send(message: &[u8], address: &SocketAddr) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(message, address).map(|_| ())
}

/// A path, or `@` and an abstract name.
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A socket, and the way to it.
    fn listening() -> (tempfile::TempDir, UnixDatagram, Systemd) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_nonblocking(true).expect("a flag");
        let systemd = Systemd::at(Some(address(path.as_os_str()).expect("it is short")));
        (folder, socket, systemd)
    }

    /// The next message's first line.
    fn next(socket: &UnixDatagram) -> Option<String> {
        let mut message = [0; 1024];
        let length = socket.recv(&mut message).ok()?;
        let text = std::str::from_utf8(&message[..length]).expect("text");
        text.lines().next().map(str::to_owned)
    }

    fn fill(systemd: &Systemd) {
        while systemd.say(&[NotifyState::Custom("FILLER=1")]) {}
    }

    fn heard(socket: &UnixDatagram) -> Vec<String> {
        let all = std::iter::from_fn(|| next(socket));
        all.filter(|line| line != "FILLER=1").collect()
    }

    #[test]
    fn what_found_no_room_is_said_in_order_and_two_reloads_as_one() {
        let (_folder, socket, systemd) = listening();
        fill(&systemd);
        systemd.ready();
        assert!(!systemd.reloading(), "it would be taken for a start");
        assert_eq!(heard(&socket), [""; 0]);
        systemd.say_owed();
        assert_eq!(heard(&socket), ["READY=1"]);

        fill(&systemd);
        for _ in 0..2 {
            assert!(systemd.reloading());
            systemd.ready();
        }
        systemd.stopping();
        systemd.mention(&[NotifyState::Status("lost")]);
        assert_eq!(heard(&socket), [""; 0]);
        systemd.say_owed();
        assert_eq!(heard(&socket), ["RELOADING=1", "READY=1", "STOPPING=1"]);
        systemd.say_owed();
        assert_eq!(heard(&socket), [""; 0], "it is said once");
    }

    #[test]
    fn a_reload_that_ends_or_begins_after_a_stop_is_not_announced() {
        let (_folder, socket, systemd) = listening();
        systemd.ready();
        assert!(systemd.reloading());
        systemd.stopping();
        assert_eq!(heard(&socket), ["READY=1", "RELOADING=1", "STOPPING=1"]);
        systemd.ready();
        assert!(!systemd.reloading());
        systemd.ready();
        systemd.say_owed();
        assert_eq!(heard(&socket), [""; 0]);
    }
}
