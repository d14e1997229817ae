//! Tickets of streams: what a page puts into the address of a stream, because `EventSource` cannot
//! send a token. Addresses end up in logs, so a ticket soon expires.
//!
//! A ticket is a JWT of this process's own: the process remembers none.

use crate::serve::access::{Client, Permit, Scopes, TokenRefusal};
use crate::serve::key_set::{claims, validation};
use crate::serve::signatures;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation, encode};
use serde::{Deserialize, Serialize};

/// Seconds for which a ticket opens streams.
pub(crate) const TICKET_S: u64 = 60;

/// Signs and verifies tickets.
pub(crate) struct StreamTickets {
    signing: EncodingKey,
    verifying: DecodingKey,
    validation: Validation,
}

/// The claims of a ticket.
#[derive(Serialize, Deserialize)]
struct TicketClaims {
    /// Until when it opens streams, in seconds since the Unix epoch.
    exp: u64,
    /// Until when they go on.
    ends: u64,
    scope: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    player_id: Option<u64>,
    /// Another client, in hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
}

impl StreamTickets {
    /// Tickets that this secret signs.
    pub(crate) fn new(secret: &[u8]) -> StreamTickets {
        signatures::install();
        StreamTickets {
            signing: EncodingKey::from_secret(secret),
            verifying: DecodingKey::from_secret(secret),
            validation: validation(Algorithm::HS256),
        }
    }

    /// A ticket with the rights of this permit.
    pub(crate) fn issue(&self, permit: Permit, now_s: u64) -> String {
        let (player_id, subject) = match permit.client {
            Client::Player(player_id) => (Some(player_id), None),
            Client::Subject(subject) => (None, Some(format!("{subject:032x}"))),
        };
        let (exp, ends) = (now_s + TICKET_S, permit.ends_s);
        let claims =
            TicketClaims { exp, ends, scope: permit.scopes.to_claim(), player_id, subject };
        encode(&Header::new(Algorithm::HS256), &claims, &self.signing).expect("a secret signs")
    }

    /// The permit of a ticket.
    pub(crate) fn permit(&self, ticket: &str, now_s: u64) -> Result<Permit, TokenRefusal> {
        let claims = claims(ticket, &self.verifying, &self.validation);
        let TicketClaims { exp, ends, scope, player_id, subject } =
            claims.map_err(|_| TokenRefusal::WrongTicket)?;
        let subject = subject.and_then(|digits| u128::from_str_radix(&digits, 16).ok());
        let client = player_id.map(Client::Player).or(subject.map(Client::Subject));
        let client = client.filter(|_| now_s < exp).ok_or(TokenRefusal::WrongTicket)?;
        Ok(Permit::until(client, Scopes::of(&scope), ends))
    }
}
