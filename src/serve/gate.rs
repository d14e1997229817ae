//! The gate: lets a request in, by its token and by how many came before it.
//!
//! Without tokens everybody on the host may do everything: the address is a loopback one then. A
//! page of another site that is open in a browser of this host is not let in, unless its origin is
//! listed: a request of it has that site's `Origin`, or, where a name leads here only since the
//! page was loaded, its `Host`. And a body of a type that browsers send without asking the server
//! first is not read.

use crate::http::request::{ClientRequest, RequestMethod, parameter};
use crate::kit::event::Subject;
use crate::serve::access::{Access, Client, Permit, Scopes, TokenRefusal};
use crate::serve::command::COMMANDS_MAX;
use crate::serve::cross_origin::CrossOrigin;
use crate::serve::key_set::KeySet;
use crate::serve::permits::Permits;
use crate::serve::problem::Problem;
use crate::serve::routes::{PlayerQuery, Route, STREAM, TICKET_KEY};
use crate::service::AllowedOrigins;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Clients whose requests are counted at once. Beyond that, those who were quiet are forgotten.
const CLIENTS_MAX: usize = 65_536;

/// Streams that a player may read at once: on a few devices, and those that it has lost.
const STREAMS_PER_PLAYER_MAX: usize = 16;

/// Streams that a client who is no player may read at once: about a third of what keeps the serving
/// thread busy.
const STREAMS_PER_SUBJECT_MAX: usize = 2_048;

/// Streams that may be read at once without tokens, where all programs on this host are one client,
/// and a proxy may be among them: about as many as keep the serving thread busy.
const STREAMS_WITHOUT_TOKENS_MAX: usize = 10_000;

/// Decides who gets in.
pub struct Gate {
    /// `None`: requests need no token.
    access: RefCell<Option<Access>>,
    /// Whose pages are served.
    origins: AllowedOrigins,
    permits: RefCell<Permits>,
    /// Counts how often the keys were replaced.
    edition: Cell<u32>,
    /// The Unix time at 0 of the caller's clock, in milliseconds, by the host's clock as it is now.
    origin_ms: Cell<u64>,
    buckets: RefCell<HashMap<Client, RequestBucket>>,
    /// Each stream that is read without a token has a reference.
    streams: Arc<()>,
}

/// The requests that a client may send now.
struct RequestBucket {
    /// Requests, in thousandths.
    left: u64,
    filled_ms: u64,
    /// Each stream that the client reads has a reference.
    streams: Arc<()>,
}

/// The result of an admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pass {
    /// `None`: everybody is let in.
    client: Option<Client>,
    edition: u32,
    scopes: Scopes,
    /// In seconds since the Unix epoch.
    ends_s: u64,
}

impl Gate {
    /// A gate that is open to everybody.
    pub fn open() -> Gate {
        Gate::new(None, AllowedOrigins::default(), 0)
    }

    /// A gate for these tokens and for pages of these origins. `origin_ms` is the Unix time at 0 of
    /// the caller's clock.
    pub(crate) fn new(access: Option<Access>, origins: AllowedOrigins, origin_ms: u64) -> Gate {
        Gate {
            access: RefCell::new(access),
            origins,
            permits: RefCell::default(),
            edition: Cell::new(0),
            origin_ms: Cell::new(origin_ms),
            buckets: RefCell::new(HashMap::new()),
            streams: Arc::default(),
        }
    }

    /// These keys count from now on. If they are others than before, streams end, and their
    /// clients show their tokens again.
    pub(crate) fn replace(&self, keys: KeySet) {
        let mut access = self.access.borrow_mut();
        if !access.as_mut().is_some_and(|access| access.replace(keys)) {
            return;
        }
        self.permits.borrow_mut().clear();
        self.edition.set(self.edition.get() + 1);
        self.buckets.borrow_mut().clear();
    }

    /// Follows the host's clock, which may be set, and which goes on while the host is suspended.
    /// It is `unix_ms` when the caller's is `now_ms`.
    pub(crate) fn set_time(&self, unix_ms: u64, now_ms: u64) {
        self.origin_ms.set(unix_ms.saturating_sub(now_ms));
    }

    /// The header lines for the page that asks.
    pub(crate) fn cross_origin<'a>(&self, request: &ClientRequest<'a>) -> CrossOrigin<'a> {
        CrossOrigin::of(&self.origins, request.origin)
    }

    /// Lets a request in.
    pub(crate) fn admit(&self, request: &ClientRequest, now_ms: u64) -> Result<Pass, Problem> {
        let edition = self.edition.get();
        let access = self.access.borrow();
        let Some(access) = access.as_ref() else {
            let scopes = admit_local(request, self.cross_origin(request))?;
            return Ok(Pass { client: None, edition, scopes, ends_s: u64::MAX });
        };
        if request.web_socket.is_some() && !is_page_served(request, self.cross_origin(request)) {
            return Err(Problem::OriginForeign);
        }
        let permit = self.permit(access, request, now_ms).map_err(Problem::Unauthorized)?;
        let Permit { client, scopes, ends_s, .. } = permit;
        self.count(access, client, 1, now_ms)?;
        Ok(Pass { client: Some(client), edition, scopes, ends_s })
    }

    /// A ticket with which the holder of this pass may open streams; an empty one if streams need
    /// none.
    pub(crate) fn ticket(&self, pass: &Pass, now_ms: u64) -> String {
        let access = self.access.borrow();
        let Some((access, client)) = access.as_ref().zip(pass.client) else {
            return String::new();
        };
        let permit = Permit::until(client, pass.scopes, pass.ends_s);
        access.tickets().issue(permit, self.unix_s(now_ms))
    }

    /// The permit of the request's token or ticket, valid now.
    fn permit(
        &self,
        access: &Access,
        request: &ClientRequest,
        now_ms: u64,
    ) -> Result<Permit, TokenRefusal> {
        let shown = request.authorization.and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
        });
        let is_stream = request.path == STREAM && request.method == RequestMethod::Get;
        let ticket = || parameter(request.query, TICKET_KEY).filter(|_| is_stream);
        let now_s = self.unix_s(now_ms);
        let permit = match shown {
            Some(token) => self.permits.borrow_mut().of(token, || access.permit(token))?,
            None => {
                let ticket = ticket().ok_or(TokenRefusal::Missing)?;
                access.tickets().permit(&ticket, now_s)?
            }
        };
        permit.check(now_s)?;
        Ok(permit)
    }

    /// Returns whether an admitted client may stay.
    pub(crate) fn still_admits(&self, pass: &Pass, now_ms: u64) -> bool {
        pass.edition == self.edition.get() && self.unix_s(now_ms) < pass.ends_s
    }

    /// Lets this many events of a request in, of which the request itself counted as one.
    pub(crate) fn count_commands(
        &self,
        pass: &Pass,
        commands: usize,
        now_ms: u64,
    ) -> Result<(), Problem> {
        self.count_more(pass, commands.saturating_sub(1), now_ms)
    }

    fn count_more(&self, pass: &Pass, requests: usize, now_ms: u64) -> Result<(), Problem> {
        match (pass.client, self.access.borrow().as_ref()) {
            (Some(client), Some(access)) if pass.edition == self.edition.get() => {
                self.count(access, client, requests, now_ms)
            }
            _ => Ok(()),
        }
    }

    /// Lets a message of a WebSocket in, which counts as a request.
    pub(crate) fn count_message(&self, pass: &Pass, now_ms: u64) -> Result<(), Problem> {
        self.count_more(pass, 1, now_ms)
    }

    /// Lets a stream in. It counts as its client's as long as the result exists.
    pub(crate) fn count_stream(&self, pass: &Pass) -> Result<Arc<()>, Problem> {
        let buckets = self.buckets.borrow();
        let (streams_max, streams) = match pass.client {
            None => (STREAMS_WITHOUT_TOKENS_MAX, &self.streams),
            Some(client) => {
                let streams_max = match client {
                    Client::Subject(_) => STREAMS_PER_SUBJECT_MAX,
                    Client::Player(_) => STREAMS_PER_PLAYER_MAX,
                };
                // Its request made one.
                (streams_max, &buckets.get(&client).ok_or(Problem::TooMany)?.streams)
            }
        };
        match Arc::strong_count(streams) > streams_max {
            true => Err(Problem::TooManyStreams(streams_max)),
            false => Ok(streams.clone()),
        }
    }

    fn unix_s(&self, now_ms: u64) -> u64 {
        (self.origin_ms.get() + now_ms) / 1000
    }

    fn count(
        &self,
        access: &Access,
        client: Client,
        requests: usize,
        now_ms: u64,
    ) -> Result<(), Problem> {
        let rate = u64::from(access.requests_per_s(client));
        // A whole array of events fits in.
        let most = 1000 * rate.max(COMMANDS_MAX as u64);
        let mut buckets = self.buckets.borrow_mut();
        if buckets.len() >= CLIENTS_MAX && !buckets.contains_key(&client) {
            // In a second or, at the lowest rate, some more, every bucket is full again.
            buckets.retain(|_, bucket| {
                now_ms.saturating_sub(bucket.filled_ms) < 1000
                    || Arc::strong_count(&bucket.streams) > 1
            });
            if buckets.len() >= CLIENTS_MAX {
                return Err(Problem::TooMany);
            }
        }
        let full = || RequestBucket { left: most, filled_ms: now_ms, streams: Arc::default() };
        let bucket = buckets.entry(client).or_insert_with(full);
        let passed_ms = now_ms.saturating_sub(bucket.filled_ms);
        bucket.left = (bucket.left + rate.saturating_mul(passed_ms)).min(most);
        bucket.filled_ms = now_ms;
        let taken = 1000 * requests as u64;
        bucket.left = bucket.left.checked_sub(taken).ok_or(Problem::TooMany)?;
        Ok(())
    }
}

impl Pass {
    /// Returns whether it allows this answer. A player sees itself, the boards and the state of the
    /// zones, but not what happens in a zone.
    pub(crate) fn may_read(&self, route: &Route) -> bool {
        self.scopes.reads
            && match (self.player(), route) {
                (None, _) => true,
                (
                    Some(player_id),
                    Route::Player(PlayerQuery { player_id: asked, .. })
                    | Route::Poll(PlayerQuery { player_id: asked, .. }),
                ) => player_id == *asked,
                (Some(_), route) => {
                    matches!(route, Route::Board(_) | Route::Zones | Route::OpenApi)
                }
            }
    }

    /// Returns whether it allows every answer.
    pub(crate) fn may_read_all(&self) -> bool {
        self.scopes.reads && self.player().is_none()
    }

    /// Returns whether it allows any event.
    pub(crate) fn may_post(&self) -> bool {
        let Scopes { commands, joins, world, .. } = self.scopes;
        commands || joins || (world && self.player().is_none())
    }

    /// The player whose token was shown.
    pub(crate) fn player(&self) -> Option<u64> {
        match self.client {
            Some(Client::Player(player_id)) => Some(player_id),
            _ => None,
        }
    }

    /// Returns whether it allows this event. A player's allows events of this player alone.
    pub(crate) fn may_command(&self, player_id: u64, subject: Subject) -> bool {
        let Scopes { commands, joins, world, .. } = self.scopes;
        let is_its_own = self.player().is_none_or(|own| own == player_id);
        is_its_own
            && match subject {
                Subject::World | Subject::Tick => world && self.player().is_none(),
                // What a player brings along, another zone's owner says.
                Subject::Arrival => joins && self.player().is_none(),
                Subject::Enter => joins,
                Subject::Player | Subject::Leave => commands,
            }
    }
}

/// Returns whether the page that asks for a WebSocket came from this server, or is served. A
/// browser does not ask that before, as it does for other requests (RFC 6455, 10.2).
fn is_page_served(request: &ClientRequest, cross_origin: CrossOrigin) -> bool {
    let is_same = |origin: &str| host_of(origin).is_some_and(|host| Some(host) == request.host);
    match cross_origin {
        CrossOrigin::Served(_) | CrossOrigin::Any => true,
        CrossOrigin::Silent | CrossOrigin::Foreign => request.origin.is_none_or(is_same),
    }
}

/// Returns the host of an origin, with its port if it has one.
fn host_of(origin: &str) -> Option<&str> {
    origin.split_once("://").map(|(_, host)| host)
}

/// Lets in what a program on this host asks, a page that came from it, or one that is served. Where
/// all pages are, they may ask, but change nothing.
fn admit_local(request: &ClientRequest, cross_origin: CrossOrigin) -> Result<Scopes, Problem> {
    // HTTP/1.0 may have no Host; no browser speaks that.
    if !request.host.is_none_or(is_local) {
        return Err(Problem::HostForeign);
    }
    let is_served = match cross_origin {
        CrossOrigin::Served(_) => true,
        CrossOrigin::Any => request.method != RequestMethod::Post,
        CrossOrigin::Silent | CrossOrigin::Foreign => false,
    };
    let is_own = request.origin.is_none_or(|origin| host_of(origin).is_some_and(is_local));
    if !is_served && !is_own {
        return Err(Problem::OriginForeign);
    }
    let content_type = request.content_type.and_then(|value| value.split(';').next());
    let is_json = content_type.is_some_and(|of| of.trim().eq_ignore_ascii_case("application/json"));
    match request.method {
        RequestMethod::Post if !is_json => Err(Problem::NotJson),
        // A WebSocket takes events, too.
        _ if cross_origin == CrossOrigin::Any && !is_own => Ok(Scopes::READ),
        _ => Ok(Scopes::ALL),
    }
}

/// Returns whether a host, perhaps with a port, is this one by a name that nobody else can assign.
fn is_local(authority: &str) -> bool {
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => authority.split(':').next(),
    };
    let host = host.unwrap_or_default();
    let is_loopback = host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    is_loopback || host.eq_ignore_ascii_case("localhost")
}
