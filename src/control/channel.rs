//! Questions to a broker and its answers, one at a time, over TCP or TLS: blocking I/O, off the hot
//! thread.

use crate::fetch::dialling::{DialError, Endpoint, TlsChannel};
use crate::kafka::BROKER_ANSWER_MS_MAX;
use crate::kafka::message::{self, MessageError};
use crate::kafka::sasl::SaslError;
use crate::kafka::tls::records::Opened;
use crate::kafka::tls::{Handshake, HandshakeStep, TlsConfig, TlsError};
use crate::kafka::wire::FRAME_PREFIX_BYTES;
use rustix::net::sockopt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Milliseconds that connecting to one of a name's addresses may take.
pub(super) const CONNECT_MS_MAX: u64 = 3_000;

/// Seconds without traffic after which the kernel asks whether the peer is still there, seconds
/// between two such questions, and how many may go unanswered.
const KEEPALIVE: (u64, u64, u32) = (2, 1, 3);

/// Bytes of a response other than Fetch: a cluster of thousands of brokers and partitions fits.
const RESPONSE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Bytes that are received at once.
const RECEIVE_BYTES: usize = 16 * 1024;

/// What a broker is asked with the first bytes of a connection with TLS.
const HANDSHAKE: &str = "a TLS handshake, as brokers do that have no certificate with an RSA, \
     P-256, P-384 or Ed25519 key, the kinds that huntd can check";

/// Questions and answers.
pub(super) struct Channel {
    pub(super) stream: TcpStream,
    pub(super) endpoint: Endpoint,
    pub(super) tls: Option<Box<TlsChannel>>,
    /// Milliseconds that the next answer may take, if those are fewer than usual.
    pub(super) haste_ms: Option<u64>,
}

impl Channel {
    /// Connects, without TLS.
    pub(super) fn connect(endpoint: &Endpoint, address: SocketAddr) -> Result<Channel, DialError> {
        let wait = Duration::from_millis(CONNECT_MS_MAX);
        let stream = TcpStream::connect_timeout(&address, wait)
            .and_then(|stream| set_up(&stream).map(|()| stream))
            .map_err(|error| DialError::of_io(endpoint, error))?;
        Ok(Channel { stream, endpoint: endpoint.clone(), tls: None, haste_ms: None })
    }

    pub(super) fn shake_hands(&mut self, config: &TlsConfig) -> Result<Box<TlsChannel>, DialError> {
        let begun = Handshake::begin(config, &self.endpoint.host);
        let mut handshake = begun.map_err(|error| self.tls_error(error))?;
        let (mut received, mut outgoing) = (Vec::new(), Vec::new());
        let wait = self.next_wait();
        loop {
            let step = handshake.step(&mut received, &mut outgoing);
            // An error may come with an alert for the broker, which is not waited for.
            match step.map_err(|error| self.tls_error(error))? {
                HandshakeStep::Send => {
                    self.write(&outgoing, HANDSHAKE)?;
                    outgoing.clear();
                }
                HandshakeStep::Receive => {
                    if self.read(&mut received, wait)? == 0 {
                        let endpoint = self.endpoint.clone();
                        return Err(DialError::Silent { endpoint, asked: HANDSHAKE });
                    }
                }
                HandshakeStep::Done => break,
            }
        }
        let session = handshake.finish().map_err(|error| self.tls_error(error))?;
        Ok(Box::new(TlsChannel { session, received }))
    }

    /// Sends a request and receives its answer, its length left out.
    pub(super) fn ask(
        &mut self,
        asked: &'static str,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Vec<u8>, DialError> {
        let mut request = Vec::new();
        write(&mut request);
        if let Some(tls) = &mut self.tls {
            let mut sealed = Vec::new();
            let result = tls.session.seal(&request, &mut sealed);
            result.map_err(|error| self.tls_error(error))?;
            request = sealed;
        }
        self.write(&request, asked)?;
        let wait = self.next_wait();
        let mut answer = Vec::new();
        loop {
            if let Some(end) = self.frame_end(&answer)?
                && answer.len() >= end
            {
                return Ok(answer.split_off(FRAME_PREFIX_BYTES));
            }
            if self.receive(&mut answer, wait)? == 0 {
                return Err(DialError::Silent { endpoint: self.endpoint.clone(), asked });
            }
        }
    }

    fn next_wait(&mut self) -> Wait {
        let haste_ms = self.haste_ms.take();
        let wait_ms = haste_ms.unwrap_or(BROKER_ANSWER_MS_MAX);
        Wait { until: Instant::now() + Duration::from_millis(wait_ms), haste_ms }
    }

    /// Where the answer ends, once that is known.
    fn frame_end(&self, answer: &[u8]) -> Result<Option<usize>, DialError> {
        if self.tls.is_none() && is_tls(answer) {
            return Err(DialError::TlsListener(self.endpoint.clone()));
        }
        let length = message::frame_length(answer, RESPONSE_BYTES_MAX);
        let length = length.map_err(|error| self.answer_error(error))?;
        Ok(length.map(|length| length + FRAME_PREFIX_BYTES))
    }

    /// Appends plaintext as it comes: how many bytes of the stream there were, 0 at its end.
    fn receive(&mut self, plaintext: &mut Vec<u8>, wait: Wait) -> Result<usize, DialError> {
        let Some(mut tls) = self.tls.take() else {
            return self.read(plaintext, wait);
        };
        let result = self.receive_record(&mut tls, plaintext, wait);
        self.tls = Some(tls);
        result
    }

    fn receive_record(
        &mut self,
        tls: &mut TlsChannel,
        plaintext: &mut Vec<u8>,
        wait: Wait,
    ) -> Result<usize, DialError> {
        loop {
            let opened = match tls.session.open(&mut tls.received) {
                Err(TlsError::Closed) => return Ok(0),
                opened => opened.map_err(|error| self.tls_error(error))?,
            };
            match opened {
                // TLS's own records are passed over.
                Opened::Record { bytes, plaintext: opened } => {
                    plaintext.extend_from_slice(&tls.received[opened]);
                    tls.received.drain(..bytes);
                    return Ok(bytes);
                }
                Opened::Incomplete => {
                    if self.read(&mut tls.received, wait)? == 0 {
                        return Ok(0);
                    }
                }
            }
        }
    }

    fn read(&self, into: &mut Vec<u8>, wait: Wait) -> Result<usize, DialError> {
        let mut piece = [0; RECEIVE_BYTES];
        let read = loop {
            let left = wait.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.timeout(wait));
            }
            let timed = self.stream.set_read_timeout(Some(left));
            match timed.and_then(|()| (&self.stream).read(&mut piece)) {
                // A signal, or work of a ring: with a timeout the kernel begins no read again
                // (signal(7)).
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        match read {
            Ok(count) => {
                into.extend_from_slice(&piece[..count]);
                Ok(count)
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(0),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(self.timeout(wait)),
            Err(error) => Err(self.io_error(error)),
        }
    }

    fn write(&self, bytes: &[u8], asked: &'static str) -> Result<(), DialError> {
        use io::ErrorKind::{BrokenPipe, ConnectionReset};
        (&self.stream).write_all(bytes).map_err(|error| match error.kind() {
            BrokenPipe | ConnectionReset => {
                DialError::Silent { endpoint: self.endpoint.clone(), asked }
            }
            _ => self.io_error(error),
        })
    }

    fn timeout(&self, wait: Wait) -> DialError {
        match wait.haste_ms {
            Some(wait_ms) => DialError::Late { endpoint: self.endpoint.clone(), wait_ms },
            None => self.io_error(io::ErrorKind::TimedOut.into()),
        }
    }

    fn io_error(&self, error: io::Error) -> DialError {
        DialError::Io { endpoint: self.endpoint.clone(), error }
    }

    pub(super) fn tls_error(&self, error: TlsError) -> DialError {
        DialError::Tls { endpoint: self.endpoint.clone(), error }
    }

    pub(super) fn sasl_error(&self, error: SaslError) -> DialError {
        DialError::Sasl { endpoint: self.endpoint.clone(), error }
    }

    pub(super) fn answer_error(&self, error: MessageError) -> DialError {
        DialError::Answer { endpoint: self.endpoint.clone(), error }
    }
}

/// How long an answer is waited for.
#[derive(Clone, Copy)]
struct Wait {
    until: Instant,
    /// The bound, if it is not the usual one.
    haste_ms: Option<u64>,
}

/// Whether an answer begins like a TLS alert or handshake record, versions 3.x.
pub(super) fn is_tls(answer: &[u8]) -> bool {
    matches!(answer, [0x15 | 0x16, 3, ..])
}

/// Sends small requests without a delay, and ends the connection within seconds if the peer's host
/// falls silent while nothing is sent. There is no `TCP_USER_TIMEOUT`: it would also end the
/// connection to a broker that reads nothing for a while, as one does that waits for replicas or
/// holds a client to its quota (tcp(7)). Each answer has a deadline instead.
fn set_up(stream: &TcpStream) -> io::Result<()> {
    let (idle_s, between_s, count) = KEEPALIVE;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(Duration::from_millis(BROKER_ANSWER_MS_MAX)))?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(idle_s))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(between_s))?;
    Ok(sockopt::set_tcp_keepcnt(stream, count)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// A channel, and the broker's end of its connection.
    fn connected() -> (Channel, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let endpoint = Endpoint { host: "127.0.0.1".to_owned(), port: address.port() };
        let channel = Channel::connect(&endpoint, address).expect("it listens");
        let (broker, _) = listener.accept().expect("it was connected to");
        (channel, broker)
    }

    /// It may send a byte now and then, for ever.
    #[test]
    fn a_broker_that_goes_on_sending_has_no_longer_than_one_that_is_silent() {
        let (channel, mut broker) = connected();
        broker.write_all(b"a few bytes").expect("it is connected");
        let mut received = Vec::new();
        let later = Wait { until: Instant::now() + Duration::from_secs(60), haste_ms: None };
        assert!(channel.read(&mut received, later).is_ok_and(|count| count > 0));
        broker.write_all(b"and a few more").expect("it is connected");
        let now = Wait { until: Instant::now(), haste_ms: None };
        let error = channel.read(&mut received, now).expect_err("its time is over");
        assert!(error.to_string().contains("timed out"), "{error}");
    }

    /// It may wait for replicas for longer than any timeout of the kernel that would suit a dead
    /// host.
    #[test]
    fn the_kernel_ends_no_connection_because_its_broker_reads_nothing() {
        let (channel, _broker) = connected();
        let timeout_ms = sockopt::tcp_user_timeout(&channel.stream).expect("it is a socket");
        assert_eq!(timeout_ms, 0, "0 is none");
        assert!(sockopt::socket_keepalive(&channel.stream).expect("it is a socket"));
    }

    /// The one after it may be to a login, which takes its time.
    #[test]
    fn one_answer_is_waited_for_in_haste_and_the_next_as_long_as_usual() {
        let (mut channel, mut broker) = connected();
        channel.haste_ms = Some(50);
        let error = channel.ask("ApiVersions", |_| {}).expect_err("the broker says nothing");
        assert!(matches!(error, DialError::Late { wait_ms: 50, .. }), "{error}");
        let slow = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            broker.write_all(&[0, 0, 0, 4, 7, 7, 7, 7]).expect("it is connected");
        });
        assert_eq!(channel.ask("SaslAuthenticate", |_| {}).expect("an answer"), [7; 4]);
        slow.join().expect("it has answered");
    }
}
