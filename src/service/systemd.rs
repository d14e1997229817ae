//! Sends messages to systemd's socket, without waiting for it.
//!
//! A socket that nobody reads has room for few messages. Messages that systemd acts on are kept
//! until there is room. A status line, a watchdog ping or a timeout extension is dropped instead:
//! the next one follows within a second or two, and an old one would be outdated.

use sd_notify::NotifyState;
use std::cell::Cell;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Messages that systemd has not received yet. They are sent in this order, so a stop comes last.
#[derive(Clone, Copy, Debug, Default)]
struct Owed {
    /// Monotonic time in microseconds when the last reload began.
    reloading_since: Option<i128>,
    ready: bool,
    stopping: bool,
}

/// Which messages systemd can interpret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotifiedPhase {
    /// It has not received the first READY: it would mistake the end of a reload for the start.
    Starting,
    Running,
    /// A reload during the shutdown is not reported.
    Stopping,
}

/// The service manager that started this process, if it wants notifications.
pub(super) struct Systemd {
    address: Option<SocketAddr>,
    owed: Cell<Owed>,
    phase: Cell<NotifiedPhase>,
}

impl Systemd {
    /// Returns the service manager in the environment. An invalid socket name counts as none.
    pub(super) fn of_environment() -> Systemd {
        let name = std::env::var_os("NOTIFY_SOCKET");
        Systemd::at(name.and_then(|name| address(&name).ok()))
    }

    fn at(address: Option<SocketAddr>) -> Systemd {
        Systemd { address, owed: Cell::default(), phase: Cell::new(NotifiedPhase::Starting) }
    }

    /// The watchdog's timeout, if enabled.
    pub(super) fn watchdog() -> Option<Duration> {
        sd_notify::watchdog_enabled()
    }

    /// Reports that the start, or a reload, is complete.
    pub(super) fn ready(&self) {
        if self.phase.get() != NotifiedPhase::Stopping {
            self.owe(|owed| owed.ready = true);
        }
    }

    /// Reports the start of a reload. An earlier one that systemd has not been notified of has
    /// ended by now, and this one covers both. Returns false before the first READY=1 and after a
    /// stop: systemd is not notified then, and no READY must follow.
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

    /// Reports that the daemon is stopping.
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

    /// Sends the messages that are kept, as far as there is room.
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

    /// Sends a message, or drops it.
    pub(super) fn mention(&self, states: &[NotifyState<'_>]) {
        if !states.is_empty() {
            self.say(states);
        }
    }

    /// Returns whether the message was sent, or nobody wants it. A lost message is not worth a log
    /// line per second: the journal would be unavailable as well.
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

/// Parses a path, or `@` and an abstract name.
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A socket, and a `Systemd` that sends to it.
    fn listening() -> (tempfile::TempDir, UnixDatagram, Systemd) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_nonblocking(true).expect("a flag");
        let systemd = Systemd::at(Some(address(path.as_os_str()).expect("it is short")));
        (folder, socket, systemd)
    }

    /// The first line of the next message.
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
