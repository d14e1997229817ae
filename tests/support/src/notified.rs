//! systemd's side of its notification protocol, for tests of what it is told.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

/// What systemd would hear.
pub struct Systemd {
    socket: UnixDatagram,
    /// For `NOTIFY_SOCKET`.
    pub path: String,
    _folder: tempfile::TempDir,
}

impl Systemd {
    /// Nothing was heard yet.
    pub fn listen() -> Systemd {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("notify").display().to_string();
        let socket = UnixDatagram::bind(&path).expect("a socket");
        // Only a guard against waiting for ever.
        socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
        Systemd { socket, path, _folder: folder }
    }

    /// The next message's lines.
    pub fn hear(&self) -> Vec<String> {
        let mut message = [0; 1024];
        let length = loop {
            match self.socket.recv(&mut message) {
                // Another test of this process sends itself signals.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                received => break received.expect("the child says something"),
            }
        };
        let message = std::str::from_utf8(&message[..length]).expect("text");
        message.lines().map(str::to_owned).collect()
    }

    /// Messages until one has a line that begins like this, that one included.
    pub fn hear_until(&self, start: &str) -> Vec<Vec<String>> {
        let mut heard = Vec::new();
        loop {
            let message = self.hear();
            let found = message.iter().any(|line| line.starts_with(start));
            heard.push(message);
            if found {
                return heard;
            }
        }
    }
}
