//! A connection to a broker while it is being made ready: blocking I/O, off the hot thread.

use crate::control::dialler::DialOptions;
use crate::fetch::dialling::{DialError, Dialled, Endpoint, TlsChannel, open_any};
use crate::kafka::message::{
    self, API_VERSIONS_VERSION_MAX, ApiVersionsAnswer, Envelope, MessageError, Metadata, Versions,
};
use crate::kafka::sasl::{self, SaslError, SaslExchange};
use crate::kafka::security::{SaslOptions, TlsOptions};
use crate::kafka::tls::records::Opened;
use crate::kafka::tls::{self, Handshake, HandshakeStep, TlsConfig, TlsError};
use crate::kafka::topic_requests::{self, Creation, NewTopic, TopicSettings};
use crate::kafka::wire::FRAME_PREFIX_BYTES;
use rustix::net::sockopt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Milliseconds that connecting to one of a name's addresses may take.
const CONNECT_MS_MAX: u64 = 3_000;

/// Milliseconds that a broker may take for one answer.
pub(super) const BROKER_ANSWER_MS_MAX: u64 = 10_000;

/// Milliseconds after which a peer that acknowledges nothing is gone: sent data, or keep-alives.
const SILENCE_MS_MAX: u32 = 5_000;

/// Seconds without traffic after which the kernel asks whether the peer is still there, seconds
/// between two such questions, and how many may go unanswered.
const KEEPALIVE: (u64, u64, u32) = (2, 1, 3);

/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 16;

/// Bytes of a response other than Fetch: a cluster of thousands of brokers and partitions fits.
const RESPONSE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Bytes that are received at once.
const RECEIVE_BYTES: usize = 16 * 1024;

/// Rounds of an authentication: SCRAM takes two.
const SASL_ROUNDS_MAX: usize = 8;

/// The share of an authentication's lifetime after which the connection is replaced, in percent.
const LIFETIME_PERCENT: u32 = 85;

/// Makes the settings of TLS of the files that hold them.
type TlsSource<'a> = &'a dyn Fn(&TlsOptions) -> Result<TlsConfig, TlsError>;

/// A connection that is ready.
pub(super) struct Link {
    channel: Channel,
    address: SocketAddr,
    versions: Versions,
    replace_at: Option<Instant>,
    /// Whether the broker let it ask for more than the versions.
    is_admitted: bool,
}

/// Questions and answers.
struct Channel {
    stream: TcpStream,
    endpoint: Endpoint,
    tls: Option<Box<TlsChannel>>,
}

impl Link {
    /// Opens a connection with the files of `[kafka.tls]` as they are now.
    pub(super) fn open(endpoint: &Endpoint, options: &DialOptions) -> Result<Link, DialError> {
        Link::open_with(endpoint, options, &tls::client_config)
    }

    /// Tries all addresses of the name, one after the other.
    pub(super) fn open_with(
        endpoint: &Endpoint,
        options: &DialOptions,
        tls_config: TlsSource<'_>,
    ) -> Result<Link, DialError> {
        let unknown = |error| DialError::of_name(&endpoint.host, error);
        let addresses = (endpoint.host.as_str(), endpoint.port).to_socket_addrs();
        let addresses = addresses.map_err(unknown)?.take(ADDRESSES_MAX);
        open_any(addresses, |address| Link::open_at(endpoint, address, options, tls_config))
            .unwrap_or_else(|| Err(unknown(io::Error::other("it has no address"))))
    }

    fn open_at(
        endpoint: &Endpoint,
        address: SocketAddr,
        options: &DialOptions,
        tls_config: TlsSource<'_>,
    ) -> Result<Link, DialError> {
        let wrong = |error| DialError::of_io(endpoint, error);
        let wait = Duration::from_millis(CONNECT_MS_MAX);
        let stream = TcpStream::connect_timeout(&address, wait).map_err(wrong)?;
        set_up(&stream).map_err(wrong)?;
        let mut channel = Channel { stream, endpoint: endpoint.clone(), tls: None };
        if let Some(tls) = &options.security.tls {
            let config = tls_config(tls).map_err(|error| channel.tls_error(error))?;
            channel.tls = Some(channel.shake_hands(&config).map_err(|error| match error {
                DialError::Silent { .. } if speaks_plaintext(endpoint, address, options) => {
                    channel.tls_error(TlsError::NotTls)
                }
                other => other,
            })?);
        }
        let versions = channel.ask_versions(options).map_err(|error| match error {
            DialError::Silent { endpoint, .. } if channel.tls.is_none() && speaks_tls(address) => {
                DialError::TlsListener(endpoint)
            }
            other => other,
        })?;
        let replace_at = match &options.security.sasl {
            Some(sasl) => channel.authenticate(sasl, options)?,
            None => None,
        };
        Ok(Link { channel, address, versions, replace_at, is_admitted: false })
    }

    /// The connection for the thread that asked for it.
    pub(super) fn into_dialled(self) -> Dialled {
        let Link { channel, address, versions, replace_at, .. } = self;
        let Channel { stream, tls, .. } = channel;
        Dialled { socket: Arc::new(OwnedFd::from(stream)), address, versions, tls, replace_at }
    }

    /// Asks about the cluster and a topic.
    pub(super) fn ask_metadata(
        &mut self,
        options: &DialOptions,
        topic: &str,
    ) -> Result<Metadata, DialError> {
        let asked = self.ask_metadata_once(options, topic);
        match asked {
            Err(DialError::Silent { endpoint, .. })
                if !self.is_admitted
                    && options.security.sasl.is_none()
                    && closes_again(&endpoint, self.address, options, topic) =>
            {
                Err(DialError::SaslListener(endpoint))
            }
            asked => asked,
        }
    }

    fn ask_metadata_once(
        &mut self,
        options: &DialOptions,
        topic: &str,
    ) -> Result<Metadata, DialError> {
        let version = self.versions.metadata;
        let answer = self.channel.ask("Metadata", |out| {
            message::metadata_request(envelope(options, version), topic, out);
        })?;
        self.is_admitted = true;
        message::parse_metadata(&answer, version, CORRELATION_ID, topic)
            .map_err(|error| self.channel.answer_error(error))
    }

    /// Asks for a topic's settings. A broker that does not tell any has none.
    pub(super) fn ask_settings(
        &mut self,
        options: &DialOptions,
        topic: &str,
    ) -> Result<TopicSettings, DialError> {
        if !self.versions.tells_settings {
            return Ok(TopicSettings::new());
        }
        let answer = self.channel.ask("DescribeConfigs", |out| {
            let envelope = envelope(options, topic_requests::SETTINGS_VERSION);
            topic_requests::settings_request(envelope, topic, out);
        })?;
        topic_requests::parse_settings(&answer, CORRELATION_ID, topic)
            .map_err(|error| self.channel.answer_error(error))
    }

    /// Asks the controller, to which this connection leads, to create a topic.
    pub(super) fn create_topic(
        &mut self,
        options: &DialOptions,
        topic: &NewTopic<'_>,
        wait_ms: u64,
    ) -> Result<Creation, DialError> {
        let answer = self.channel.ask("CreateTopics", |out| {
            let envelope = envelope(options, topic_requests::CREATE_VERSION);
            topic_requests::create_request(envelope, topic, wait_ms as i32, out);
        })?;
        topic_requests::parse_create(&answer, CORRELATION_ID, topic.name)
            .map_err(|error| self.channel.answer_error(error))
    }
}

impl Channel {
    fn ask_versions(&mut self, options: &DialOptions) -> Result<Versions, DialError> {
        let mut version = API_VERSIONS_VERSION_MAX;
        loop {
            let answer = self.ask("ApiVersions", |out| {
                message::api_versions_request(envelope(options, version), out);
            })?;
            let answer = message::parse_api_versions(&answer, version, CORRELATION_ID);
            match answer.map_err(|error| self.answer_error(error))? {
                ApiVersionsAnswer::Chosen(versions) => return Ok(versions),
                ApiVersionsAnswer::AskWithVersionZero => version = 0,
            }
        }
    }

    /// When the connection must be replaced.
    fn authenticate(
        &mut self,
        sasl: &SaslOptions,
        options: &DialOptions,
    ) -> Result<Option<Instant>, DialError> {
        let begun = Instant::now();
        let answer = self.ask("SaslHandshake", |out| {
            sasl::handshake_request(envelope(options, sasl::SASL_VERSION), sasl.mechanism, out);
        })?;
        sasl::parse_handshake(&answer, CORRELATION_ID, sasl.mechanism)
            .map_err(|error| self.sasl_error(error))?;
        let mut exchange = SaslExchange::begin(sasl).map_err(|error| self.sasl_error(error))?;
        let mut from_broker = None;
        let mut lifetime = None;
        for _ in 0..SASL_ROUNDS_MAX {
            let step = exchange.step(from_broker.as_deref());
            let Some(bytes) = step.map_err(|error| self.sasl_error(error))? else { break };
            let answer = self.ask("SaslAuthenticate", |out| {
                sasl::authenticate_request(envelope(options, sasl::SASL_VERSION), bytes, out);
            })?;
            let answer = sasl::parse_authenticate(&answer, CORRELATION_ID, &exchange)
                .map_err(|error| self.sasl_error(error))?;
            lifetime = answer.lifetime;
            if exchange.is_over() {
                break;
            }
            from_broker = Some(answer.bytes);
        }
        Ok(lifetime.map(|lifetime| begun + lifetime * LIFETIME_PERCENT / 100))
    }

    fn shake_hands(&mut self, config: &TlsConfig) -> Result<Box<TlsChannel>, DialError> {
        let begun = Handshake::begin(config, &self.endpoint.host);
        let mut handshake = begun.map_err(|error| self.tls_error(error))?;
        let (mut received, mut outgoing) = (Vec::new(), Vec::new());
        let deadline = Instant::now() + Duration::from_millis(BROKER_ANSWER_MS_MAX);
        loop {
            let step = handshake.step(&mut received, &mut outgoing);
            // An error may come with an alert for the broker, which is not waited for.
            match step.map_err(|error| self.tls_error(error))? {
                HandshakeStep::Send => {
                    self.write(&outgoing, HANDSHAKE)?;
                    outgoing.clear();
                }
                HandshakeStep::Receive => {
                    if self.read(&mut received, deadline)? == 0 {
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
    fn ask(
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
        let deadline = Instant::now() + Duration::from_millis(BROKER_ANSWER_MS_MAX);
        let mut answer = Vec::new();
        loop {
            if let Some(end) = self.frame_end(&answer)?
                && answer.len() >= end
            {
                return Ok(answer.split_off(FRAME_PREFIX_BYTES));
            }
            if self.receive(&mut answer, deadline)? == 0 {
                return Err(DialError::Silent { endpoint: self.endpoint.clone(), asked });
            }
        }
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
    fn receive(&mut self, plaintext: &mut Vec<u8>, deadline: Instant) -> Result<usize, DialError> {
        let Some(mut tls) = self.tls.take() else {
            return self.read(plaintext, deadline);
        };
        let result = self.receive_record(&mut tls, plaintext, deadline);
        self.tls = Some(tls);
        result
    }

    fn receive_record(
        &mut self,
        tls: &mut TlsChannel,
        plaintext: &mut Vec<u8>,
        deadline: Instant,
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
                    if self.read(&mut tls.received, deadline)? == 0 {
                        return Ok(0);
                    }
                }
            }
        }
    }

    fn read(&self, into: &mut Vec<u8>, deadline: Instant) -> Result<usize, DialError> {
        let mut piece = [0; RECEIVE_BYTES];
        let read = loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.io_error(io::ErrorKind::TimedOut.into()));
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
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(self.io_error(io::ErrorKind::TimedOut.into()))
            }
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

    fn io_error(&self, error: io::Error) -> DialError {
        DialError::Io { endpoint: self.endpoint.clone(), error }
    }

    fn tls_error(&self, error: TlsError) -> DialError {
        DialError::Tls { endpoint: self.endpoint.clone(), error }
    }

    fn sasl_error(&self, error: SaslError) -> DialError {
        DialError::Sasl { endpoint: self.endpoint.clone(), error }
    }

    fn answer_error(&self, error: MessageError) -> DialError {
        DialError::Answer { endpoint: self.endpoint.clone(), error }
    }
}

/// Whether a listener closes another connection as well when it is asked for more than its
/// versions. One with SASL does that to a client that does not authenticate.
fn closes_again(
    endpoint: &Endpoint,
    address: SocketAddr,
    options: &DialOptions,
    topic: &str,
) -> bool {
    let asked = Link::open_at(endpoint, address, options, &tls::client_config)
        .and_then(|mut link| link.ask_metadata_once(options, topic));
    matches!(asked, Err(DialError::Silent { .. }))
}

/// Whether a listener that breaks off a handshake tells its versions to a client without TLS.
fn speaks_plaintext(endpoint: &Endpoint, address: SocketAddr, options: &DialOptions) -> bool {
    let stream = TcpStream::connect_timeout(&address, Duration::from_millis(CONNECT_MS_MAX));
    let asked = stream.and_then(|stream| set_up(&stream).map(|()| stream)).map(|stream| {
        Channel { stream, endpoint: endpoint.clone(), tls: None }.ask_versions(options)
    });
    asked.is_ok_and(|versions| versions.is_ok())
}

/// Whether a listener that closes the connection without an answer speaks TLS: then it answers a
/// greeting in TLS.
fn speaks_tls(address: SocketAddr) -> bool {
    let answer_to_greeting = || -> Result<[u8; 2], Box<dyn std::error::Error>> {
        let mut stream =
            TcpStream::connect_timeout(&address, Duration::from_millis(CONNECT_MS_MAX))?;
        set_up(&stream)?;
        stream.set_read_timeout(Some(Duration::from_millis(CONNECT_MS_MAX)))?;
        stream.write_all(&tls::greeting()?)?;
        let mut answer = [0; 2];
        stream.read_exact(&mut answer)?;
        Ok(answer)
    };
    answer_to_greeting().is_ok_and(|answer| is_tls(&answer))
}

/// Whether an answer begins like a TLS alert or handshake record, versions 3.x.
fn is_tls(answer: &[u8]) -> bool {
    matches!(answer, [0x15 | 0x16, 3, ..])
}

/// What a broker is asked with the first bytes of a connection with TLS.
const HANDSHAKE: &str = "a TLS handshake";

/// One request is under way at a time.
const CORRELATION_ID: i32 = 0;

fn envelope(options: &DialOptions, version: i16) -> Envelope<'_> {
    Envelope { version, correlation_id: CORRELATION_ID, client_id: &options.client_id }
}

/// What every connection has: no delay for small requests, and an end within seconds if the peer
/// falls silent.
fn set_up(stream: &TcpStream) -> io::Result<()> {
    let (idle_s, between_s, count) = KEEPALIVE;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(Duration::from_millis(BROKER_ANSWER_MS_MAX)))?;
    sockopt::set_tcp_user_timeout(stream, SILENCE_MS_MAX)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(idle_s))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(between_s))?;
    Ok(sockopt::set_tcp_keepcnt(stream, count)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// It may send a byte now and then, for ever.
    #[test]
    fn a_broker_that_goes_on_sending_has_no_longer_than_one_that_is_silent() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let stream = TcpStream::connect(address).expect("it listens");
        let (mut broker, _) = listener.accept().expect("it was connected to");
        broker.write_all(b"a few bytes").expect("it is connected");
        let endpoint = Endpoint { host: "127.0.0.1".to_owned(), port: address.port() };
        let channel = Channel { stream, endpoint, tls: None };
        let mut received = Vec::new();
        let later = Instant::now() + Duration::from_secs(60);
        assert!(channel.read(&mut received, later).is_ok_and(|count| count > 0));
        broker.write_all(b"and a few more").expect("it is connected");
        let error = channel.read(&mut received, Instant::now()).expect_err("its time is over");
        assert!(error.to_string().contains("timed out"), "{error}");
    }
}
