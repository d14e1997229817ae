//! A connection to a broker while it is being made ready: blocking I/O, off the hot thread.

use crate::control::channel::{CONNECT_MS_MAX, Channel, is_tls};
use crate::control::dialler::DialOptions;
use crate::control::lookup::lookup;
use crate::fetch::dialling::{DialError, Dialled, Endpoint, open_any};
use crate::kafka::coordinator;
use crate::kafka::error_code::ErrorCode;
use crate::kafka::group::GroupProtocol;
use crate::kafka::group_description::{self, GroupDescription};
use crate::kafka::list_offsets::{self, LogEnd, Offsets};
use crate::kafka::message::{
    self, API_VERSIONS_VERSION_MAX, ApiVersionsAnswer, Broker, Envelope, Metadata, Versions,
};
use crate::kafka::sasl::{self, SaslExchange};
use crate::kafka::security::{SaslOptions, TlsOptions};
use crate::kafka::tls::{self, TlsConfig, TlsError};
use crate::kafka::topic_requests::{self, Creation, NewTopic, TopicSettings};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 16;

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

impl Link {
    /// Opens a connection with the files of `[kafka.tls]` as they are now.
    pub(super) fn open(endpoint: &Endpoint, options: &DialOptions) -> Result<Link, DialError> {
        Link::open_with(endpoint, options, &tls::client_config)
    }

    /// Like [`Link::open`], with other settings of TLS.
    pub(super) fn open_with(
        endpoint: &Endpoint,
        options: &DialOptions,
        tls_config: TlsSource<'_>,
    ) -> Result<Link, DialError> {
        Link::open_any_address(endpoint, |channel, address| {
            Link::open_over(channel, address, options, tls_config)
        })
    }

    /// Like [`Link::open`], but its first answer may take only this long: to the TLS handshake, or
    /// about the versions. It takes a broker little work.
    pub(super) fn open_in_haste(
        haste_ms: u64,
        endpoint: &Endpoint,
        options: &DialOptions,
    ) -> Result<Link, DialError> {
        Link::open_any_address(endpoint, |mut channel, address| {
            channel.haste_ms = Some(haste_ms);
            Link::open_over(channel, address, options, &tls::client_config)
        })
    }

    /// Tries all addresses of the name, one after the other.
    fn open_any_address(
        endpoint: &Endpoint,
        mut open: impl FnMut(Channel, SocketAddr) -> Result<Link, DialError>,
    ) -> Result<Link, DialError> {
        let unknown = |error| DialError::of_name(&endpoint.host, error);
        let addresses = lookup(&endpoint.host, endpoint.port).map_err(unknown)?;
        let addresses = addresses.into_iter().take(ADDRESSES_MAX);
        open_any(addresses, |address| open(Channel::connect(endpoint, address)?, address))
            .unwrap_or_else(|| Err(unknown(io::Error::other("it has no address"))))
    }

    fn open_over(
        mut channel: Channel,
        address: SocketAddr,
        options: &DialOptions,
        tls_config: TlsSource<'_>,
    ) -> Result<Link, DialError> {
        let endpoint = &channel.endpoint.clone();
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
            DialError::Silent { endpoint, .. }
                if channel.tls.is_none() && speaks_tls(&endpoint, address) =>
            {
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

    /// The next answer may take only this long.
    pub(super) fn hasten(&mut self, haste_ms: u64) {
        self.channel.haste_ms = Some(haste_ms);
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
        let answer = self.channel.ask("Metadata", |out| {
            message::metadata_request(CORRELATION_ID, &options.client_id, topic, out);
        })?;
        self.is_admitted = true;
        message::parse_metadata(&answer, CORRELATION_ID, topic)
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

    /// Asks a leader where logs begin, or where they end.
    pub(super) fn ask_offsets(
        &mut self,
        options: &DialOptions,
        topic: &str,
        partitions: &[i32],
        end: LogEnd,
    ) -> Result<Offsets, DialError> {
        let answer = self.channel.ask("ListOffsets", |out| {
            let envelope = envelope(options, list_offsets::LIST_OFFSETS_VERSION);
            list_offsets::request(envelope, topic, partitions, end, out);
        })?;
        let mut offsets = Offsets::new();
        list_offsets::parse(&answer, CORRELATION_ID, topic, &mut offsets)
            .map_err(|error| self.channel.answer_error(error))?;
        Ok(offsets)
    }

    /// Asks for the coordinator of a group: a broker, or why there is none.
    pub(super) fn ask_coordinator(
        &mut self,
        options: &DialOptions,
        group: &str,
    ) -> Result<Result<Broker, ErrorCode>, DialError> {
        let answer = self.channel.ask("FindCoordinator", |out| {
            let envelope = envelope(options, coordinator::FIND_COORDINATOR_VERSION);
            coordinator::request(envelope, group, out);
        })?;
        coordinator::parse_answer(&answer, CORRELATION_ID)
            .map_err(|error| self.channel.answer_error(error))
    }

    /// Asks the coordinator of a group, to which this connection leads, who is in the group.
    pub(super) fn ask_group(
        &mut self,
        options: &DialOptions,
        protocol: GroupProtocol,
        group: &str,
    ) -> Result<GroupDescription, DialError> {
        let answer = self.channel.ask(group_description::name(protocol), |out| {
            let client_id = &options.client_id;
            group_description::request(protocol, CORRELATION_ID, client_id, group, out);
        })?;
        group_description::parse_answer(protocol, &answer, CORRELATION_ID, &options.topic)
            .map_err(|error| self.channel.answer_error(error))
    }

    /// Returns whether the connection must be replaced, because its authentication ends soon.
    pub(super) fn is_outdated(&self, now: Instant) -> bool {
        self.replace_at.is_some_and(|at| at <= now)
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
}

/// Whether a listener closes another connection as well when it is asked for more than its
/// versions. One with SASL does that to a client that does not authenticate.
fn closes_again(
    endpoint: &Endpoint,
    address: SocketAddr,
    options: &DialOptions,
    topic: &str,
) -> bool {
    let asked = Channel::connect(endpoint, address)
        .and_then(|channel| Link::open_over(channel, address, options, &tls::client_config))
        .and_then(|mut link| link.ask_metadata_once(options, topic));
    matches!(asked, Err(DialError::Silent { .. }))
}

/// Whether a listener that breaks off a handshake tells its versions to a client without TLS.
fn speaks_plaintext(endpoint: &Endpoint, address: SocketAddr, options: &DialOptions) -> bool {
    let asked =
        Channel::connect(endpoint, address).map(|mut channel| channel.ask_versions(options));
    asked.is_ok_and(|versions| versions.is_ok())
}

/// Whether a listener that closes the connection without an answer speaks TLS: then it answers a
/// greeting in TLS.
fn speaks_tls(endpoint: &Endpoint, address: SocketAddr) -> bool {
    let answer_to_greeting = || -> Result<[u8; 2], Box<dyn std::error::Error>> {
        let Channel { mut stream, .. } = Channel::connect(endpoint, address)?;
        stream.set_read_timeout(Some(Duration::from_millis(CONNECT_MS_MAX)))?;
        stream.write_all(&tls::greeting()?)?;
        let mut answer = [0; 2];
        stream.read_exact(&mut answer)?;
        Ok(answer)
    };
    answer_to_greeting().is_ok_and(|answer| is_tls(&answer))
}

/// One request is under way at a time.
const CORRELATION_ID: i32 = 0;

fn envelope(options: &DialOptions, version: i16) -> Envelope<'_> {
    Envelope { version, correlation_id: CORRELATION_ID, client_id: &options.client_id }
}
