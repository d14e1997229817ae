//! The gate: lets a request in, by its token and by how many came before it.
//!
//! Without tokens everybody may ask everything: the address is a loopback one then.

use crate::engine::event::Subject;
use crate::serve::access::{Client, Scope, Tokens};
use crate::serve::command::{COMMANDS_MAX, Command};
use crate::serve::problem::Problem;
use crate::serve::request::ClientRequest;
use crate::serve::routes::{PlayerQuery, Route};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

/// Clients whose requests are counted at once. Beyond that, those who were quiet are forgotten.
const CLIENTS_MAX: usize = 65_536;

/// Decides who gets in.
pub struct Gate {
    tokens: RefCell<Option<Tokens>>,
    /// Counts how often the tokens were replaced.
    edition: Cell<u32>,
    /// The Unix time at 0 of the caller's clock, in milliseconds.
    origin_ms: u64,
    buckets: RefCell<HashMap<BucketKey, RequestBucket>>,
}

/// Whose requests are counted together.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum BucketKey {
    Token(usize),
    Player(u64),
}

/// Requests that a client has left, in thousandths.
struct RequestBucket {
    left: u64,
    filled_ms: u64,
}

/// What was shown at the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pass {
    /// `None`: everybody is let in.
    client: Option<Client>,
    edition: u32,
    reads: bool,
    commands: bool,
}

impl Gate {
    /// A gate that is open to everybody.
    pub fn open() -> Gate {
        Gate::new(None, 0)
    }

    /// A gate for these tokens. `origin_ms` is the Unix time at 0 of the caller's clock.
    pub(crate) fn new(tokens: Option<Tokens>, origin_ms: u64) -> Gate {
        Gate {
            tokens: RefCell::new(tokens),
            edition: Cell::new(0),
            origin_ms,
            buckets: RefCell::new(HashMap::new()),
        }
    }

    /// These tokens count from now on. If they are others than before, streams end, and their
    /// clients show theirs again.
    pub(crate) fn replace(&self, tokens: Tokens) {
        if self.tokens.borrow().as_ref() == Some(&tokens) {
            return;
        }
        self.tokens.replace(Some(tokens));
        self.edition.set(self.edition.get() + 1);
        self.buckets.borrow_mut().clear();
    }

    /// Lets a request in.
    pub(crate) fn admit(&self, request: &ClientRequest, now_ms: u64) -> Result<Pass, Problem> {
        let edition = self.edition.get();
        let tokens = self.tokens.borrow();
        let Some(tokens) = tokens.as_ref() else {
            return Ok(Pass { client: None, edition, reads: true, commands: true });
        };
        let shown = request.authorization.and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
        });
        let client = shown.and_then(|token| tokens.client(token, self.unix_s(now_ms)));
        let client = client.ok_or(Problem::Unauthorized)?;
        self.count(tokens, client, 1, now_ms)?;
        let (reads, commands) =
            (tokens.has(client, Scope::Read), tokens.has(client, Scope::Command));
        Ok(Pass { client: Some(client), edition, reads, commands })
    }

    /// Whether a client that was let in may stay.
    pub(crate) fn still_admits(&self, pass: &Pass, now_ms: u64) -> bool {
        let is_over = match pass.client {
            Some(Client::Player { expires_s, .. }) => expires_s <= self.unix_s(now_ms),
            _ => false,
        };
        pass.edition == self.edition.get() && !is_over
    }

    /// Lets the events of a request in, of which the request itself counted as one.
    pub(crate) fn admit_commands(
        &self,
        pass: &Pass,
        commands: &[Command],
        now_ms: u64,
    ) -> Result<(), Problem> {
        if !commands.iter().all(|command| pass.may_command(command)) {
            return Err(Problem::OutOfScope);
        }
        match (pass.client, self.tokens.borrow().as_ref()) {
            (Some(client), Some(tokens)) if pass.edition == self.edition.get() => {
                self.count(tokens, client, commands.len().saturating_sub(1), now_ms)
            }
            _ => Ok(()),
        }
    }

    fn unix_s(&self, now_ms: u64) -> u64 {
        (self.origin_ms + now_ms) / 1000
    }

    fn count(
        &self,
        tokens: &Tokens,
        client: Client,
        requests: usize,
        now_ms: u64,
    ) -> Result<(), Problem> {
        let rate = u64::from(tokens.requests_per_s(client));
        // A whole array of events fits in.
        let most = 1000 * rate.max(COMMANDS_MAX as u64);
        let key = match client {
            Client::Token(at) => BucketKey::Token(at),
            Client::Player { player_id, .. } => BucketKey::Player(player_id),
        };
        let mut buckets = self.buckets.borrow_mut();
        if buckets.len() >= CLIENTS_MAX && !buckets.contains_key(&key) {
            // In a second or, at the lowest rate, some more, every bucket is full again.
            buckets.retain(|_, bucket| now_ms.saturating_sub(bucket.filled_ms) < 1000);
            if buckets.len() >= CLIENTS_MAX {
                return Err(Problem::TooMany);
            }
        }
        let bucket = buckets.entry(key).or_insert(RequestBucket { left: most, filled_ms: now_ms });
        let passed_ms = now_ms.saturating_sub(bucket.filled_ms);
        bucket.left = (bucket.left + rate.saturating_mul(passed_ms)).min(most);
        bucket.filled_ms = now_ms;
        let taken = 1000 * requests as u64;
        bucket.left = bucket.left.checked_sub(taken).ok_or(Problem::TooMany)?;
        Ok(())
    }
}

impl Pass {
    /// Whether it is good for this answer. A player sees itself, the boards and how the zones are,
    /// but not where the others and the treasures are.
    pub(crate) fn may_read(&self, route: &Route) -> bool {
        let is_public = matches!(route, Route::Board(_) | Route::Zones | Route::OpenApi);
        match (self.client, route) {
            _ if self.reads => true,
            (
                Some(Client::Player { player_id, .. }),
                Route::Player(PlayerQuery { player_id: asked, .. })
                | Route::Poll(PlayerQuery { player_id: asked, .. }),
            ) => player_id == *asked,
            (Some(Client::Player { .. }), _) => is_public,
            _ => false,
        }
    }

    /// Whether it is good for everything that is to be read.
    pub(crate) fn may_read_all(&self) -> bool {
        self.reads
    }

    /// Whether it is good for any event at all.
    pub(crate) fn may_post(&self) -> bool {
        self.commands || matches!(self.client, Some(Client::Player { .. }))
    }

    fn may_command(&self, command: &Command) -> bool {
        match self.client {
            _ if self.commands => true,
            Some(Client::Player { player_id, .. }) => {
                // An arrival would bring something along from elsewhere.
                player_id == command.player_id && command.action.subject() == Subject::Player
            }
            _ => false,
        }
    }
}
