//! Why a request is not answered as it asks: a status and one sentence, as problem+json (RFC 9457).

use crate::decoder::reject::Reject;
use crate::http::request_error::RequestError;
use crate::serve::access::TokenRefusal;
use crate::serve::answers::Moment;
use crate::view::json::Json;

/// The reason why a request gets no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// It cannot be read.
    Refused(RequestError),
    /// There is no such path.
    NoRoute,
    /// The path does not take this method; it takes this one.
    MethodNotAllowed(&'static str),
    /// A part of the path or of the query is not what it has to be.
    Parameter {
        /// Its name.
        name: &'static str,
        /// What to write.
        must_be: &'static str,
    },
    /// The query has a key that the path does not take.
    ParameterUnknown {
        /// The key.
        name: String,
        /// What the path takes.
        takes: &'static [&'static str],
    },
    /// The player is in none of the zones.
    PlayerNotHere,
    /// There is no such zone.
    ZoneUnknown(u16),
    /// The zone has no state yet.
    ZoneLoading(u16),
    /// The zone is halted.
    ZoneHalted {
        /// The zone.
        zone: u16,
        /// Why, and what to do.
        sentence: String,
    },
    /// The zone did not reach the position in time.
    NotThereYet(Moment),
    /// The body is no event.
    NoEvent {
        /// The reason.
        reject: Reject,
        /// The reason in words, with the field that is to blame.
        words: String,
    },
    /// The rules that a `rules_change` names are not known here.
    RulesetUnknown(u32),
    /// A body that is not said to be JSON.
    NotJson,
    /// The request was sent to another host's name.
    HostForeign,
    /// The request is of another site's page.
    OriginForeign,
    /// The body is no JSON object, and no array of a few.
    NoEvents,
    /// The request shows no token that is good here and now.
    Unauthorized(TokenRefusal),
    /// The token is not good for this.
    OutOfScope,
    /// The client has sent too many requests.
    TooMany,
    /// The client reads as many streams as it may, which is this many.
    TooManyStreams(usize),
    /// The client speaks another version of the WebSocket protocol.
    SocketVersion,
    /// The client that asks for a WebSocket shows no key of one.
    SocketKey,
    /// A message of a WebSocket is no command.
    NoCommand,
    /// Clients may not do this here.
    Forbidden,
    /// As many commands are under way as there may be.
    Busy,
    /// The brokers do not take events from this process.
    NotTaken,
    /// The zone was played from an input that is gone. Nothing was appended to the new one.
    InputRecreated(u16),
    /// The zone was played from an input that is gone, and the event is perhaps in the new one,
    /// which nobody plays yet.
    AppendedElsewhere(u16),
    /// It is not known whether the event was appended.
    Unknown,
}

impl Problem {
    /// The status line's number and phrase.
    pub(crate) fn status(&self) -> &'static str {
        match self {
            Problem::Refused(error) => error.status(),
            Problem::Parameter { .. }
            | Problem::ParameterUnknown { .. }
            | Problem::NoEvent { .. }
            | Problem::RulesetUnknown(_)
            | Problem::NoEvents
            | Problem::SocketKey
            | Problem::NoCommand => "400 Bad Request",
            Problem::Unauthorized(_) => "401 Unauthorized",
            Problem::Forbidden
            | Problem::OutOfScope
            | Problem::HostForeign
            | Problem::OriginForeign => "403 Forbidden",
            Problem::NoRoute | Problem::PlayerNotHere | Problem::ZoneUnknown(_) => "404 Not Found",
            Problem::MethodNotAllowed(_) => "405 Method Not Allowed",
            Problem::NotThereYet(_) => "412 Precondition Failed",
            Problem::NotJson => "415 Unsupported Media Type",
            Problem::SocketVersion => "426 Upgrade Required",
            Problem::TooMany | Problem::TooManyStreams(_) => "429 Too Many Requests",
            Problem::ZoneLoading(_)
            | Problem::ZoneHalted { .. }
            | Problem::Busy
            | Problem::InputRecreated(_)
            | Problem::AppendedElsewhere(_)
            | Problem::NotTaken => "503 Service Unavailable",
            Problem::Unknown => "504 Gateway Timeout",
        }
    }

    /// Returns whether the request may be sent again as it is, after a while.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(
            self,
            Problem::ZoneLoading(_) | Problem::Busy | Problem::TooMany | Problem::TooManyStreams(_)
        )
    }

    /// Returns true if finding it takes so long that a client may cause one per connection.
    pub(crate) fn is_costly(&self) -> bool {
        matches!(self, Problem::Unauthorized(refusal) if refusal.is_costly())
    }

    /// Writes the problem as JSON.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let status = self.status();
        Json::object(out, |json| {
            json.text("title", &status[4..]).text("detail", &self.sentence());
            json.number("status", status[..3].parse().unwrap_or_default());
        });
    }

    /// Returns what the client can do about it.
    pub(crate) fn sentence(&self) -> String {
        let sentence = match self {
            Problem::Refused(error) => error.sentence(),
            Problem::NoRoute => "ask for a path of /v1/openapi.json",
            Problem::MethodNotAllowed(_) => "use a method of the Allow header",
            Problem::Parameter { name, must_be } => return format!("write `{name}` as {must_be}"),
            Problem::ParameterUnknown { name, takes } => {
                return format!("`{name}` is no parameter here; these are: {}", takes.join(", "));
            }
            Problem::PlayerNotHere => "the player is in none of the zones that are served here",
            Problem::ZoneUnknown(zone) => return format!("zone {zone} is none of the world's"),
            Problem::ZoneLoading(zone) => {
                return format!("zone {zone} is being loaded; try again in a second");
            }
            Problem::ZoneHalted { zone, sentence } => {
                return format!("zone {zone} is halted: {sentence}");
            }
            Problem::NotThereYet(Moment { zone, position, .. }) => {
                let next_offset = position.next_offset;
                return format!("zone {zone} has come to offset {next_offset} only; wait");
            }
            Problem::InputRecreated(zone) => {
                return format!(
                    "the input of zone {zone} was deleted and created again: no event was \
                     appended; an operator has to start the zone over first"
                );
            }
            Problem::AppendedElsewhere(zone) => {
                return format!(
                    "the input of zone {zone} was created again: its event waits there until an \
                     operator starts the zone over"
                );
            }
            Problem::NoEvent { reject, words } => {
                return format!("the body is no event: {}: {words}", reject.name());
            }
            Problem::RulesetUnknown(ruleset) => {
                return format!(
                    "ruleset {ruleset} is in no file of rules.files of this process; add its \
                     file, at every daemon first"
                );
            }
            Problem::NotJson => "send the body as Content-Type: application/json",
            Problem::HostForeign => "use an address of this host, as localhost, or set serve.keys",
            Problem::OriginForeign => {
                "pages of other sites are not served here; list this one in serve.origins"
            }
            Problem::NoEvents => "send one event, or an array of at most 64",
            Problem::Unauthorized(refusal) => refusal.sentence(),
            Problem::OutOfScope => "use a token whose scope has this, or ask for your own player",
            Problem::TooMany => "send fewer requests per second; try again in a second",
            Problem::TooManyStreams(most) => {
                return format!("end one of the client's streams: it may read {most} at once");
            }
            Problem::SocketVersion => "speak version 13 of the WebSocket protocol (RFC 6455)",
            Problem::SocketKey => "send a Sec-WebSocket-Key of 16 bytes in base64",
            Problem::NoCommand => {
                "send {\"request\": NUMBER, \"post\": EVENT} with `zone` and `wait_ms` as needed"
            }
            Problem::Forbidden => "this process takes no events; post them to another one",
            Problem::Busy => "as much is under way as there may be; try again in a second",
            Problem::NotTaken => "the brokers take no events from this process; its log says why",
            Problem::Unknown => {
                "whether the event was appended is not known; send it again with the same seq"
            }
        };
        sentence.to_owned()
    }
}
