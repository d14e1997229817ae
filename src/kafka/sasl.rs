//! SASL over Kafka's protocol (KIP-43, KIP-368): values and bytes, no I/O. The `rsasl` crate
//! implements the mechanisms.

use crate::kafka::error_code::ErrorCode;
use crate::kafka::message::{Api, Envelope, MessageError, encode, parse, read_array, text};
use crate::kafka::security::{Mechanism, SaslOptions, Secret, SecurityFileError};
use kafka_protocol::messages::{ApiKey, SaslAuthenticateRequest, SaslHandshakeRequest};
use rsasl::callback::{Context, Request, SessionCallback, SessionData};
use rsasl::prelude::{Mechname, MessageSent, SASLClient, SASLConfig, Session, SessionError, State};
use rsasl::property::{AuthId, OAuthBearerToken, Password};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Supported versions, which all brokers since Kafka 2.2 have.
const HANDSHAKE: Api =
    Api { key: ApiKey::SaslHandshake, name: "SaslHandshake", version_min: 1, version_max: 1 };
const AUTHENTICATE: Api =
    Api { key: ApiKey::SaslAuthenticate, name: "SaslAuthenticate", version_min: 1, version_max: 1 };

/// The version of both requests.
pub(crate) const SASL_VERSION: i16 = 1;

/// The broker does not offer the requested mechanism.
const UNSUPPORTED_SASL_MECHANISM: ErrorCode = ErrorCode(33);

/// The listener does not expect authentication.
const ILLEGAL_SASL_STATE: ErrorCode = ErrorCode(34);

/// The broker refuses the user or the secret.
const SASL_AUTHENTICATION_FAILED: ErrorCode = ErrorCode(58);

/// Iterations that SCRAM may use. RFC 7677 requires the lower bound, and brokers ask for a few
/// thousand. librdkafka has the same upper bound.
const SCRAM_ITERATIONS: RangeInclusive<u32> = 4_096..=1_000_000;

/// Why a broker does not authenticate this client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SaslError {
    /// The secret cannot be read.
    #[error("the SASL secret cannot be used: {0}")]
    Secret(#[from] SecurityFileError),
    /// The broker does not offer the mechanism.
    #[error(
        "the broker does not offer {mechanism}, it offers {offered}: choose one of these as \
         kafka.sasl.mechanism, or enable {mechanism} on the listener"
    )]
    MechanismNotOffered {
        /// The requested mechanism.
        mechanism: &'static str,
        /// The mechanisms that the broker offers.
        offered: String,
    },
    /// The listener does not use SASL.
    #[error(
        "the listener does not use SASL: leave out [kafka.sasl], or connect to the port \
         of a SASL listener"
    )]
    NotAsked,
    /// The broker refuses the secret.
    #[error(
        "the broker refuses {who} ({mechanism}): {sentence}; check [kafka.sasl] and the file that \
         it names"
    )]
    Refused {
        /// The user, or the subject of the token.
        who: String,
        /// The mechanism.
        mechanism: &'static str,
        /// The broker's reason.
        sentence: String,
    },
    /// The mechanism does not accept the user or the secret. The broker has not been contacted yet.
    #[error(
        "{mechanism} cannot be started: {sentence}; check [kafka.sasl] and the file that it names"
    )]
    NotBegun {
        /// The mechanism.
        mechanism: &'static str,
        /// The cause.
        sentence: String,
    },
    /// The broker's answer is not a valid step of the mechanism: it may not know the password
    /// either.
    #[error("the broker's {mechanism} answer is invalid: {sentence}; is it the right broker?")]
    Exchange {
        /// The mechanism.
        mechanism: &'static str,
        /// The cause.
        sentence: String,
    },
    /// An answer cannot be parsed.
    #[error(transparent)]
    Message(#[from] MessageError),
}

/// An authentication in progress: [`SaslExchange::step`] and the broker take turns.
pub struct SaslExchange {
    session: Session,
    mechanism: Mechanism,
    user: String,
    is_over: bool,
}

/// The credentials that a mechanism asks for.
struct Credentials {
    user: String,
    secret: Secret,
}

impl SessionCallback for Credentials {
    fn callback(
        &self,
        _session: &SessionData,
        _context: &Context<'_>,
        request: &mut Request<'_>,
    ) -> Result<(), SessionError> {
        let secret = self.secret.expose();
        request
            .satisfy::<AuthId>(&self.user)?
            .satisfy::<Password>(secret.as_bytes())?
            .satisfy::<OAuthBearerToken>(secret)?;
        Ok(())
    }
}

impl SaslExchange {
    /// Starts an authentication with the secret that is in the file now.
    pub fn begin(options: &SaslOptions) -> Result<SaslExchange, SaslError> {
        let mechanism = options.mechanism.name();
        let secret = Secret::read(&options.secret_file)?;
        let credentials = Credentials { user: options.user.clone(), secret };
        let wrong = |sentence: String| SaslError::NotBegun { mechanism, sentence };
        let config = SASLConfig::builder()
            .with_default_mechanisms()
            .with_callback(credentials)
            .map_err(|error| wrong(error.to_string()))?;
        let name = Mechname::parse(mechanism.as_bytes()).expect("a registered name is valid");
        let session = SASLClient::new(config)
            .start_suggested([&name])
            .map_err(|error| wrong(error.to_string()))?;
        let (mechanism, user) = (options.mechanism, options.user.clone());
        Ok(SaslExchange { session, mechanism, user, is_over: false })
    }

    /// Returns the next bytes for the broker, given its last answer; none before its first. `None`
    /// if the client has nothing more to send.
    pub fn step(&mut self, from_broker: Option<&[u8]>) -> Result<Option<Vec<u8>>, SaslError> {
        // A broker that refuses a token sends the reason instead of an empty answer (RFC 7628), and
        // ends the exchange.
        if self.mechanism == Mechanism::OauthBearer
            && let Some(why) = from_broker.filter(|why| !why.is_empty())
        {
            return Err(self.refused(String::from_utf8_lossy(why).into_owned()));
        }
        let mut out = Vec::new();
        let mechanism = self.mechanism.name();
        let wrong = |sentence: String| match from_broker {
            None => SaslError::NotBegun { mechanism, sentence },
            Some(_) => SaslError::Exchange { mechanism, sentence },
        };
        if self.mechanism.is_scram() {
            check_iterations(from_broker).map_err(wrong)?;
        }
        let state = self.session.step(from_broker, &mut out);
        let state = state.map_err(|error| wrong(error.to_string()))?;
        self.is_over = matches!(state, State::Finished(_));
        Ok((state != State::Finished(MessageSent::No)).then_some(out))
    }

    /// Returns whether the broker's next answer is the last one.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns the error for a refusal.
    fn refused(&self, sentence: String) -> SaslError {
        let who = match self.mechanism {
            Mechanism::OauthBearer => "the token".to_owned(),
            _ => format!("the user {}", self.user),
        };
        SaslError::Refused { who, mechanism: self.mechanism.name(), sentence }
    }
}

/// Checks the iteration count in a broker's first SCRAM message. With few iterations the password
/// can be guessed from the proof, and with very many the proof takes hours.
fn check_iterations(from_broker: Option<&[u8]>) -> Result<(), String> {
    let attributes = from_broker.unwrap_or_default().split(|byte| *byte == b',');
    for iterations in attributes.filter_map(|attribute| attribute.strip_prefix(b"i=")) {
        let asked = String::from_utf8_lossy(iterations);
        if !asked.parse().is_ok_and(|asked: u32| SCRAM_ITERATIONS.contains(&asked)) {
            let (min, max) = (SCRAM_ITERATIONS.start(), SCRAM_ITERATIONS.end());
            return Err(format!("it asks for {asked} iterations, not for {min} to {max}"));
        }
    }
    Ok(())
}

/// Appends a SaslHandshake request for this mechanism.
pub(crate) fn handshake_request(envelope: Envelope<'_>, mechanism: Mechanism, out: &mut Vec<u8>) {
    let request = SaslHandshakeRequest::default().with_mechanism(text(mechanism.name()));
    encode(&HANDSHAKE, envelope, &request, out);
}

/// Parses the answer to a SaslHandshake request.
pub(crate) fn parse_handshake(
    bytes: &[u8],
    correlation_id: i32,
    mechanism: Mechanism,
) -> Result<(), SaslError> {
    let (error, offered) = parse(&HANDSHAKE, false, bytes, correlation_id, |reader| {
        let error = ErrorCode(reader.i16()?);
        let offered = read_array(reader, false, |reader| Ok(reader.string(false)?.to_owned()))?;
        Ok((error, offered))
    })?;
    match error {
        ErrorCode::NONE => Ok(()),
        UNSUPPORTED_SASL_MECHANISM => Err(SaslError::MechanismNotOffered {
            mechanism: mechanism.name(),
            offered: if offered.is_empty() { "none".to_owned() } else { offered.join(", ") },
        }),
        ILLEGAL_SASL_STATE => Err(SaslError::NotAsked),
        error => Err(MessageError::Refused { api: HANDSHAKE.name, error }.into()),
    }
}

/// Appends a SaslAuthenticate request with the mechanism's bytes.
pub(crate) fn authenticate_request(envelope: Envelope<'_>, bytes: Vec<u8>, out: &mut Vec<u8>) {
    let request = SaslAuthenticateRequest::default().with_auth_bytes(bytes.into());
    encode(&AUTHENTICATE, envelope, &request, out);
}

/// A broker's step of the exchange.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Authenticated {
    /// The mechanism's bytes.
    pub bytes: Vec<u8>,
    /// The time for which the authentication is valid; `None` for as long as the connection lasts
    /// (KIP-368).
    pub lifetime: Option<Duration>,
}

/// Parses the answer to a SaslAuthenticate request.
pub(crate) fn parse_authenticate(
    bytes: &[u8],
    correlation_id: i32,
    exchange: &SaslExchange,
) -> Result<Authenticated, SaslError> {
    let (error, sentence, answer) = parse(&AUTHENTICATE, false, bytes, correlation_id, |reader| {
        let error = ErrorCode(reader.i16()?);
        let sentence = reader.nullable_string(false)?.unwrap_or_default().to_owned();
        let range = reader.nullable_bytes(false)?.unwrap_or(0..0);
        let lifetime_ms = u64::try_from(reader.i64()?).unwrap_or(0);
        let lifetime = (lifetime_ms > 0).then(|| Duration::from_millis(lifetime_ms));
        Ok((error, sentence, Authenticated { bytes: bytes[range].to_vec(), lifetime }))
    })?;
    match error {
        ErrorCode::NONE => Ok(answer),
        SASL_AUTHENTICATION_FAILED => Err(exchange.refused(sentence)),
        error => Err(MessageError::Refused { api: AUTHENTICATE.name, error }.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of an exchange with a broker that asks for this many iterations.
    fn asked_for(iterations: &str) -> Result<(), SaslError> {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), "secret").expect("it can be written");
        let (user, secret_file) = ("hunt".to_owned(), file.path().to_owned());
        let options = SaslOptions { mechanism: Mechanism::ScramSha256, user, secret_file };
        let mut exchange = SaslExchange::begin(&options)?;
        let first = exchange.step(None)?.expect("the client begins");
        let first = String::from_utf8(first).expect("it is text");
        let (_, nonce) = first.split_once("r=").expect("it has a nonce");
        let answer = format!("r={nonce}of-the-broker,s=c2FsdA==,i={iterations}");
        exchange.step(Some(answer.as_bytes())).map(drop)
    }

    #[test]
    fn a_broker_that_has_said_nothing_yet_is_not_blamed() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), "secret").expect("it can be written");
        let (user, secret_file) = ("hu\0nt".to_owned(), file.path().to_owned());
        let options = SaslOptions { mechanism: Mechanism::Plain, user, secret_file };
        let stepped = SaslExchange::begin(&options).and_then(|mut exchange| exchange.step(None));
        let sentence = stepped.expect_err("PLAIN has no such user").to_string();
        assert!(sentence.starts_with("PLAIN cannot be started: "), "{sentence}");
        assert!(!sentence.contains("broker"), "{sentence}");
    }

    #[test]
    fn a_password_is_proved_with_neither_too_few_rounds_of_the_hash_nor_endless_ones() {
        for iterations in ["4096", "16384"] {
            assert_eq!(asked_for(iterations), Ok(()));
        }
        for iterations in ["1", "4095", "1000001", "4294967295", "99999999999", "many"] {
            let error = asked_for(iterations).expect_err(iterations).to_string();
            assert!(error.contains(&format!("asks for {iterations} iterations")), "{error}");
        }
    }
}
