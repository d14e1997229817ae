//! systemd's side of its notification protocol, for tests of what it is told.

use crate::PATIENCE;
use std::io::ErrorKind;
use std::net::Shutdown;
use std::os::unix::net::UnixDatagram;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// What systemd would hear. Like systemd it reads at once, whatever the test does meanwhile.
pub struct Systemd {
    socket: UnixDatagram,
    reading: Option<JoinHandle<()>>,
    heard: Receiver<Vec<String>>,
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
        let (hears, heard) = channel();
        let read = socket.try_clone().expect("a descriptor");
        let reading = Some(std::thread::spawn(move || read_until_shut_down(&read, &hears)));
        Systemd { socket, reading, heard, path, _folder: folder }
    }

    /// The next message's lines.
    pub fn hear(&self) -> Vec<String> {
        // Only a guard against waiting for ever.
        self.heard.recv_timeout(PATIENCE).expect("the child says something")
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

impl Drop for Systemd {
    fn drop(&mut self) {
        self.socket.shutdown(Shutdown::Both).expect("it is open");
        let ended = self.reading.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || matches!(ended, Some(Ok(()))), "a message is text");
    }
}

/// A socket that is shut down brings messages without a byte.
fn read_until_shut_down(socket: &UnixDatagram, hears: &Sender<Vec<String>>) {
    let mut message = [0; 1024];
    loop {
        let length = match socket.recv(&mut message) {
            // Another test of this process sends itself signals.
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            received => received.expect("the socket is open"),
        };
        if length == 0 {
            return;
        }
        let text = std::str::from_utf8(&message[..length]).expect("text");
        if hears.send(text.lines().map(str::to_owned).collect()).is_err() {
            return;
        }
    }
}
