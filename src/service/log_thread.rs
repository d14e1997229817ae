//! The log thread writes the log lines of all threads, so that a log reader that stalls delays none
//! of them.
//!
//! Lines wait in a queue. A line that does not fit is lost and counted. Once the queue is written,
//! a line reports how many were lost.

use crate::queue::bell::Bell;
use crate::queue::{Receiver, Sender, bounded_with_bell};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const LOG_THREAD: &str = "log";

/// Lines that may wait: those of a bad minute.
const LOG_LINES_MAX: usize = 1_024;

/// Bytes of lines that may wait.
const LOG_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Milliseconds for which the end of the process waits for lines to be written.
const FLUSH_MS_MAX: u64 = 1_000;

/// Interval of that check, in milliseconds.
const FLUSH_POLL_MS: u64 = 1;

/// Upper limit of the log thread's sleep, in milliseconds; its bell ends it earlier.
const LOG_SLEEP_MS_MAX: u64 = 1_000;

/// The journal's socket: <https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>.
const JOURNAL_SOCKET: &str = "/run/systemd/journal/socket";

/// The destination of log lines.
pub(super) enum Sink {
    /// Standard error.
    Stderr,
    /// The journal, one datagram per line.
    Journal(UnixDatagram),
}

impl Sink {
    /// Opens the journal, if it exists.
    pub(super) fn journal() -> io::Result<Sink> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        match socket.send_to(&[], JOURNAL_SOCKET) {
            // It is busy, but exists.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            sent => drop(sent?),
        }
        // From now on only the log thread waits for it.
        socket.set_nonblocking(false)?;
        Ok(Sink::Journal(socket))
    }
}

/// An item to write.
enum LogItem {
    /// A line in the format of the sink.
    Line(Vec<u8>),
    /// Text for standard error, whatever the sink is.
    Text(Vec<u8>),
}

impl LogItem {
    fn bytes(&self) -> &[u8] {
        let (LogItem::Line(bytes) | LogItem::Text(bytes)) = self;
        bytes
    }
}

/// Counters shared by all ends of the log.
#[derive(Default)]
struct LogCounts {
    /// Lines that are sent but not written.
    unwritten: AtomicUsize,
    unwritten_bytes: AtomicUsize,
    lost: AtomicU64,
}

/// The sending end of the log, for other threads.
#[derive(Clone)]
pub(super) struct LogSender {
    items: Sender<LogItem>,
    counts: Arc<LogCounts>,
    /// Lines go to the journal, so nothing but text is written to standard error.
    is_journal: bool,
}

impl LogSender {
    /// Starts the log thread.
    pub(super) fn start(sink: Sink) -> io::Result<LogSender> {
        let bell = Arc::new(Bell::new()?);
        let (items, inbox) = bounded_with_bell(LOG_LINES_MAX, &bell);
        let counts = Arc::new(LogCounts::default());
        let stderr = stderr()?;
        let is_journal = matches!(sink, Sink::Journal(_));
        let writer = LogWriter { inbox, bell, sink, stderr, counts: counts.clone() };
        thread::Builder::new().name(LOG_THREAD.to_owned()).spawn(move || writer.run())?;
        Ok(LogSender { items, counts, is_journal })
    }

    /// Sends a line, or drops and counts it if the queue is full.
    pub(super) fn send_line(&self, line: Vec<u8>) {
        self.send(LogItem::Line(line));
    }

    /// Sends text for standard error, or drops and counts it if the queue is full. Returns whether
    /// it is sent.
    pub(super) fn send_text(&self, text: String) -> bool {
        self.send(LogItem::Text(text.into_bytes()))
    }

    /// Sends text for standard error, and waits until everything sent is written, as
    /// [`LogSender::flush`] does. If the log thread does not write the text, this thread does,
    /// unless it would wait for a reader that stalls. Returns whether the text is written.
    pub(super) fn say_last(&self, text: String) -> bool {
        let is_sent = self.send_text(text.clone());
        let is_flushed = self.flush();
        if is_sent && is_flushed {
            return true;
        }
        let is_log_thread = thread::current().name() == Some(LOG_THREAD);
        let is_stderr_free = is_flushed || self.is_journal || is_log_thread;
        is_stderr_free && io::stderr().write_all(text.as_bytes()).is_ok()
    }

    fn send(&self, item: LogItem) -> bool {
        let (counts, bytes) = (&self.counts, item.bytes().len());
        counts.unwritten.fetch_add(1, Ordering::AcqRel);
        let waiting = counts.unwritten_bytes.fetch_add(bytes, Ordering::AcqRel);
        let is_sent = waiting + bytes <= LOG_BYTES_MAX && self.items.try_send(item).is_ok();
        if !is_sent {
            counts.settle(bytes, false);
        }
        is_sent
    }

    /// Number of lines lost.
    pub(super) fn lost(&self) -> u64 {
        self.counts.lost.load(Ordering::Acquire)
    }

    /// Waits until everything sent is written, at most [`FLUSH_MS_MAX`]. Returns whether it is.
    pub(super) fn flush(&self) -> bool {
        let end = Instant::now() + Duration::from_millis(FLUSH_MS_MAX);
        let is_unwritten = || self.counts.unwritten.load(Ordering::Acquire) > 0;
        while is_unwritten() && Instant::now() < end {
            // A confined thread may not sleep, but may wait for a lock.
            thread::park_timeout(Duration::from_millis(FLUSH_POLL_MS));
        }
        !is_unwritten()
    }
}

impl LogCounts {
    /// Records that an item was written or is lost.
    fn settle(&self, bytes: usize, is_written: bool) {
        if !is_written {
            self.lost.fetch_add(1, Ordering::AcqRel);
        }
        self.unwritten_bytes.fetch_sub(bytes, Ordering::AcqRel);
        self.unwritten.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Opens standard error without the lock of the standard library, which other threads could not
/// take while a write waits for the reader.
fn stderr() -> io::Result<File> {
    use std::os::fd::AsFd;
    Ok(File::from(io::stderr().as_fd().try_clone_to_owned()?))
}

/// The log thread's state.
struct LogWriter {
    inbox: Receiver<LogItem>,
    bell: Arc<Bell>,
    sink: Sink,
    stderr: File,
    counts: Arc<LogCounts>,
}

impl LogWriter {
    /// Writes for the life of the process, because the subscriber keeps a sender.
    fn run(mut self) {
        let mut reported = 0;
        loop {
            let mut has_written = false;
            while let Some(item) = self.inbox.try_receive() {
                let is_written = self.write(&item).is_ok();
                self.counts.settle(item.bytes().len(), is_written);
                has_written |= is_written;
            }
            let lost = self.counts.lost.load(Ordering::Acquire);
            // Reported only once the reader reads again.
            if has_written && lost > reported {
                reported = lost;
                tracing::error!(
                    lost,
                    "log lines are lost: their reader was slow or away; the number counts all \
                     since the start"
                );
                continue;
            }
            if self.inbox.senders_gone() {
                return;
            }
            let wait = Duration::from_millis(LOG_SLEEP_MS_MAX);
            if self.bell.sleep(wait).is_err() {
                thread::sleep(wait);
            }
        }
    }

    fn write(&mut self, item: &LogItem) -> io::Result<()> {
        match (item, &self.sink) {
            (LogItem::Line(line), Sink::Journal(socket)) => {
                socket.send_to(line, JOURNAL_SOCKET).map(drop)
            }
            (LogItem::Line(text), Sink::Stderr) | (LogItem::Text(text), _) => {
                self.stderr.write_all(text)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log whose lines go to a socket pair that only the test reads.
    fn log() -> (LogSender, LogWriter, UnixDatagram) {
        let (socket, reader) = UnixDatagram::pair().expect("sockets");
        let bell = Arc::new(Bell::new().expect("an eventfd"));
        let (items, inbox) = bounded_with_bell(LOG_LINES_MAX, &bell);
        let counts = Arc::new(LogCounts::default());
        let stderr = stderr().expect("a descriptor");
        let writer =
            LogWriter { inbox, bell, sink: Sink::Journal(socket), stderr, counts: counts.clone() };
        (LogSender { items, counts, is_journal: true }, writer, reader)
    }

    #[test]
    fn lines_that_do_not_fit_are_lost_and_counted_and_nobody_waits() {
        let (sender, mut writer, _reader) = log();
        for _ in 0..LOG_LINES_MAX + 7 {
            sender.send_line(b"line".to_vec());
        }
        assert_eq!(sender.lost(), 7);
        while let Some(item) = writer.inbox.try_receive() {
            writer.counts.settle(item.bytes().len(), true);
        }
        sender.send_line(vec![0; LOG_BYTES_MAX]);
        sender.send_line(vec![0; 1]);
        assert_eq!(sender.lost(), 8, "the bytes are bounded, too");
        let item = writer.inbox.try_receive().expect("it fits");
        writer.counts.settle(item.bytes().len(), true);
        sender.send_line(vec![0; LOG_BYTES_MAX + 1]);
        assert_eq!(sender.lost(), 9, "a line may be too long by itself");
        sender.flush();
        assert_eq!(sender.counts.unwritten_bytes.load(Ordering::Acquire), 0);
    }

    #[test]
    fn the_end_does_not_wait_for_a_reader_for_longer_than_its_bound() {
        let (sender, _writer, _reader) = log();
        sender.send_line(b"line".to_vec());
        assert!(!sender.flush(), "nobody has read it");
    }

    #[test]
    fn a_last_word_is_written_unless_it_would_wait_for_a_reader_that_stalls() {
        for is_journal in [true, false] {
            let (sender, mut writer, _reader) = log();
            let sender = LogSender { is_journal, ..sender };
            for _ in 0..LOG_LINES_MAX {
                sender.send_line(b"line".to_vec());
            }
            let last_word = || sender.say_last("a last word of a test\n".to_owned());
            assert_eq!(last_word(), is_journal, "the reader stalls");
            while let Some(item) = writer.inbox.try_receive() {
                writer.counts.settle(item.bytes().len(), true);
            }
            let is_read = thread::scope(|scope| {
                let reads = scope.spawn(last_word);
                while !reads.is_finished() {
                    let item = writer.inbox.try_receive();
                    item.iter().for_each(|item| writer.counts.settle(item.bytes().len(), true));
                    thread::yield_now();
                }
                reads.join().expect("it does not panic")
            });
            assert!(is_read);
        }
    }
}
