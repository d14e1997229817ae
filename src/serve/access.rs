//! Who may do what: JSON Web Tokens (RFC 7519) that the game or its identity provider signs.

use crate::serve::key_set::KeySet;
use crate::serve::signatures::sha256;
use crate::serve::stream_tickets::StreamTickets;
use crate::service::AccessOptions;
use ring::rand::{self, SystemRandom};
use serde::{Deserialize, Deserializer};

/// Seconds by which the signer's clock may differ from this host's.
const CLOCK_SKEW_S: u64 = 30;

/// Seconds since the Unix epoch that a token may name: up to the year 10000.
const SECONDS_MAX: u64 = 253_402_300_799;

/// The reason to refuse a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenRefusal {
    /// There is none.
    Missing,
    /// It is longer than any that is read.
    TooLong,
    /// It is no signed JWT.
    Malformed,
    /// Its `kid` names no key.
    KeyUnknown,
    /// Its `alg` is not that of its key.
    WrongAlgorithm,
    /// Its key has not signed it.
    WrongSignature,
    /// A claim has the wrong form, or occurs twice.
    WrongClaims,
    /// It is for others.
    WrongAudience,
    /// It names nobody.
    SubjectMissing,
    /// It says no end.
    EndMissing,
    /// It is not good yet.
    Early,
    /// It was good once.
    Expired,
    /// The ticket has expired, or this service has not signed it.
    WrongTicket,
}

impl TokenRefusal {
    /// Returns true if a signature was verified for it, and would be again for the same token.
    pub(crate) fn is_costly(self) -> bool {
        match self {
            TokenRefusal::WrongSignature
            | TokenRefusal::WrongClaims
            | TokenRefusal::WrongAudience
            | TokenRefusal::SubjectMissing
            | TokenRefusal::EndMissing => true,
            TokenRefusal::Missing
            | TokenRefusal::TooLong
            | TokenRefusal::Malformed
            | TokenRefusal::KeyUnknown
            | TokenRefusal::WrongAlgorithm
            // The permits of these tokens are remembered, and tickets have the cheapest signature.
            | TokenRefusal::Early
            | TokenRefusal::Expired
            | TokenRefusal::WrongTicket => false,
        }
    }

    /// Returns what the client can do about it.
    pub(crate) fn sentence(self) -> &'static str {
        match self {
            TokenRefusal::Missing => "send a token, as Authorization: Bearer TOKEN",
            TokenRefusal::TooLong => "send a token of at most 3 KiB",
            TokenRefusal::Malformed => {
                "send a JWT whose `alg` is HS256, RS256, ES256 or EdDSA, without `crit`"
            }
            TokenRefusal::KeyUnknown => "the token's `kid` names no key of this process",
            TokenRefusal::WrongAlgorithm => "the token's `alg` is not that of its key",
            TokenRefusal::WrongSignature => "the token's signature is not that of its key",
            TokenRefusal::WrongClaims => {
                "a claim of the token has the wrong form, or occurs twice; see docs/QUERIES.md"
            }
            TokenRefusal::WrongAudience => "the token's `aud` does not name this service",
            TokenRefusal::SubjectMissing => "the token has no `sub` and no `player_id`",
            TokenRefusal::EndMissing => "the token has no `exp`",
            TokenRefusal::Early => "the token is not valid yet: its `nbf` is ahead of the time",
            TokenRefusal::Expired => "the token has expired; ask the game for a new one",
            TokenRefusal::WrongTicket => {
                "the ticket is not valid here, or not any more; post to /v1/ticket for a new one"
            }
        }
    }
}

/// The claims of a token that count.
#[derive(Deserialize)]
pub(crate) struct TokenClaims {
    sub: Option<String>,
    #[serde(default, deserialize_with = "stated")]
    player_id: Option<String>,
    aud: Option<Audience>,
    exp: Option<NumericDate>,
    #[serde(default, deserialize_with = "stated")]
    nbf: Option<NumericDate>,
    scope: Option<String>,
}

/// A claim that limits a token. Without it the token has more rights, so `null` is an error.
fn stated<'de, D, T>(claim: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(claim).map(Some)
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

/// Seconds since the Unix epoch, perhaps with a fraction (RFC 7519, 2).
#[derive(Deserialize)]
#[serde(untagged)]
enum NumericDate {
    Whole(u64),
    Fraction(f64),
}

/// A client that has shown who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Client {
    /// Half of the SHA-256 of its name.
    Subject(u128),
    /// A player.
    Player(u64),
}

/// The rights of a token. That of a player grants them for the player alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scopes {
    /// Asking.
    pub(super) reads: bool,
    /// Posting events of players who are in a zone.
    pub(super) commands: bool,
    /// Posting where players enter: `join`.
    pub(super) joins: bool,
    /// Posting events of the world, such as changes of rules and ticks.
    pub(super) world: bool,
}

impl Scopes {
    /// Everything.
    pub(super) const ALL: Scopes = Scopes { reads: true, commands: true, joins: true, world: true };

    /// Asking alone.
    pub(super) const READ: Scopes =
        Scopes { reads: true, commands: false, joins: false, world: false };

    /// The scopes of a claim (RFC 8693, 4.2). Those of other services are passed over.
    pub(super) fn of(claim: &str) -> Scopes {
        let has = |name: &str| claim.split(' ').any(|scope| scope == name);
        Scopes {
            reads: has("read"),
            commands: has("command"),
            joins: has("join"),
            world: has("world"),
        }
    }

    /// The claim that says them.
    pub(super) fn to_claim(self) -> String {
        let Scopes { reads, commands, joins, world } = self;
        let all = [("read", reads), ("command", commands), ("join", joins), ("world", world)];
        all.iter().filter(|(_, has)| *has).map(|(name, _)| *name).collect::<Vec<_>>().join(" ")
    }
}

/// A token's rights: whose, which, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Permit {
    /// Who has them.
    pub client: Client,
    /// The rights.
    pub scopes: Scopes,
    /// From this second since the Unix epoch on.
    begins_s: u64,
    /// Up to this second, exclusive.
    pub ends_s: u64,
}

impl Permit {
    /// A permit that is good now and up to this second since the Unix epoch, exclusive.
    pub(crate) fn until(client: Client, scopes: Scopes, ends_s: u64) -> Permit {
        Permit { client, scopes, begins_s: 0, ends_s }
    }

    /// Refuses a permit that is not valid at this time.
    pub(crate) fn check(&self, now_s: u64) -> Result<(), TokenRefusal> {
        match now_s {
            _ if now_s < self.begins_s => Err(TokenRefusal::Early),
            _ if now_s >= self.ends_s => Err(TokenRefusal::Expired),
            _ => Ok(()),
        }
    }
}

/// Who may ask.
pub(crate) struct Access {
    keys: KeySet,
    tickets: StreamTickets,
    /// Of this process alone.
    random: [u8; 32],
    audience: String,
    requests_per_s: u32,
    player_requests_per_s: u32,
}

impl Access {
    /// For tokens that these keys have signed.
    pub(crate) fn new(keys: KeySet, options: &AccessOptions) -> Access {
        let random = rand::generate(&SystemRandom::new()).expect("the kernel has random bytes");
        let random: [u8; 32] = random.expose();
        let tickets = StreamTickets::new(keys.ticket_secret(&random).as_ref());
        Access {
            keys,
            tickets,
            random,
            audience: options.audience.clone(),
            requests_per_s: options.requests_per_s,
            player_requests_per_s: options.player_requests_per_s,
        }
    }

    /// Uses these keys from now on. Returns whether they differ from those before.
    pub(crate) fn replace(&mut self, keys: KeySet) -> bool {
        if self.keys.is_same(&keys) {
            return false;
        }
        self.tickets = StreamTickets::new(keys.ticket_secret(&self.random).as_ref());
        self.keys = keys;
        true
    }

    /// The tickets of those who have shown a token.
    pub(crate) fn tickets(&self) -> &StreamTickets {
        &self.tickets
    }

    /// The permit of a token. The caller checks the time.
    pub(crate) fn permit(&self, token: &str) -> Result<Permit, TokenRefusal> {
        let TokenClaims { sub, player_id, aud, exp, nbf, scope } = self.keys.claims(token)?;
        let is_ours = match aud {
            Some(Audience::One(one)) => one == self.audience,
            Some(Audience::Several(several)) => several.contains(&self.audience),
            None => false,
        };
        if !is_ours {
            return Err(TokenRefusal::WrongAudience);
        }
        let ends_s = exp.ok_or(TokenRefusal::EndMissing)?.seconds()?;
        let begins_s = nbf.map_or(Ok(0), NumericDate::seconds)?;
        let client = match (player_id, sub) {
            (Some(player_id), _) => Client::Player(player(&player_id)?),
            (None, Some(name)) if !name.is_empty() => Client::named(&name),
            _ => return Err(TokenRefusal::SubjectMissing),
        };
        let scopes = scope.as_deref().map(Scopes::of).unwrap_or_default();
        Ok(Permit {
            client,
            scopes,
            begins_s: begins_s.saturating_sub(CLOCK_SKEW_S),
            ends_s: ends_s + CLOCK_SKEW_S,
        })
    }

    /// Requests per second that a client may send.
    pub(crate) fn requests_per_s(&self, client: Client) -> u32 {
        match client {
            Client::Subject(_) => self.requests_per_s,
            Client::Player(_) => self.player_requests_per_s,
        }
    }
}

impl Client {
    fn named(name: &str) -> Client {
        let digest = sha256(name.as_bytes());
        let half = digest.first_chunk().expect("it has 16 bytes and more");
        Client::Subject(u128::from_be_bytes(*half))
    }
}

impl NumericDate {
    fn seconds(self) -> Result<u64, TokenRefusal> {
        let seconds = match self {
            NumericDate::Whole(seconds) => seconds,
            NumericDate::Fraction(seconds) if seconds >= 0.0 => seconds as u64,
            NumericDate::Fraction(_) => return Err(TokenRefusal::WrongClaims),
        };
        if seconds <= SECONDS_MAX { Ok(seconds) } else { Err(TokenRefusal::WrongClaims) }
    }
}

/// The player of a claim: digits alone, as a text, because numbers beyond 2^53 reach many programs
/// as others.
fn player(text: &str) -> Result<u64, TokenRefusal> {
    let player_id = text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok());
    player_id.flatten().filter(|player_id| *player_id != 0).ok_or(TokenRefusal::WrongClaims)
}
