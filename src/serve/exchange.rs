//! One client's requests and answers, without its socket: bytes in, bytes out.
//!
//! Requests are answered one after another, in their order. One that has to wait for a zone keeps
//! those behind it waiting, and nothing is read for them: the client's own window is the bound.

use crate::serve::answers::{Answer, Served};
use crate::serve::json::Json;
use crate::serve::problem::Problem;
use crate::serve::request::{Method, Parsed, Request, parse};
use crate::serve::routes::{At, Route, at, route};
use crate::view::zone::ZonePosition;

/// Bytes of answers that wait to be sent before another request is answered.
const UNSENT_BYTES_MAX: usize = 16 * 1024;

/// What an exchange needs to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// More bytes of the client.
    Bytes,
    /// What was answered has to be sent first.
    Sending,
    /// The next frame of some zone, or this time.
    Frame {
        /// Milliseconds of the caller's clock.
        until_ms: u64,
    },
    /// Nothing: what was answered is the last.
    Close,
}

/// What an answer's head says beside its length.
#[derive(Clone, Copy, Debug, Default)]
struct Head {
    is_head_only: bool,
    closes: bool,
    at: Option<(u16, ZonePosition)>,
}

/// A client's requests that are not answered, and answers that are not sent.
#[derive(Debug, Default)]
pub struct Exchange {
    received: Vec<u8>,
    unsent: Vec<u8>,
    body: Vec<u8>,
    /// When the request that waits for a zone is refused.
    until_ms: Option<u64>,
    was_asked_on: bool,
    is_closing: bool,
}

impl Exchange {
    /// Bytes of the client.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
    }

    /// Whether the client has sent part of a request.
    pub fn is_within_request(&self) -> bool {
        !self.received.is_empty()
    }

    /// What is to be sent.
    pub fn unsent(&self) -> &[u8] {
        &self.unsent
    }

    /// So many bytes were sent. An idle exchange keeps no memory.
    pub fn sent(&mut self, count: usize) {
        self.unsent.drain(..count);
        if self.unsent.is_empty() && self.received.is_empty() {
            (self.unsent, self.received, self.body) = (Vec::new(), Vec::new(), Vec::new());
        }
    }

    /// Answers what can be answered. `now_ms` is the caller's clock.
    pub fn advance(&mut self, served: &Served, now_ms: u64) -> Need {
        let received = std::mem::take(&mut self.received);
        let mut taken = 0;
        let need = loop {
            if self.is_closing {
                break Need::Close;
            }
            if self.unsent.len() >= UNSENT_BYTES_MAX {
                break Need::Sending;
            }
            match parse(&received[taken..]) {
                Parsed::More => break Need::Bytes,
                Parsed::Expects => {
                    if !std::mem::replace(&mut self.was_asked_on, true) {
                        self.unsent.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
                    }
                    break Need::Bytes;
                }
                Parsed::Refused(problem) => {
                    self.refuse(Head { closes: true, ..Head::default() }, &problem);
                    self.is_closing = true;
                }
                Parsed::Request(request, bytes) => match self.answer(served, &request, now_ms) {
                    Some(until_ms) => break Need::Frame { until_ms },
                    None => {
                        taken += bytes;
                        self.was_asked_on = false;
                    }
                },
            }
        };
        self.received = received;
        self.received.drain(..taken);
        need
    }

    /// Answers a request, or gives the time until which it waits.
    fn answer(&mut self, served: &Served, request: &Request, now_ms: u64) -> Option<u64> {
        let is_head_only = request.method == Method::Head;
        let mut head = Head { is_head_only, closes: !request.keep_alive, at: None };
        self.body.clear();
        match self.answer_of(served, request, now_ms) {
            Ok(Ok(Answer::Json(at))) => {
                head.at = at;
                let body = std::mem::take(&mut self.body);
                self.write(head, "200 OK", "application/json", &body, "");
                self.body = body;
            }
            Ok(Ok(Answer::Unchanged(zone, position))) => {
                head.at = Some((zone, position));
                self.write_unchanged(head);
            }
            Ok(Ok(Answer::NotYet(_))) => unreachable!("it waits"),
            Ok(Err(until_ms)) => return Some(until_ms),
            Err(problem) => self.refuse(head, &problem),
        }
        self.until_ms = None;
        self.is_closing |= head.closes;
        None
    }

    /// The answer, or the time until which it waits.
    fn answer_of(
        &mut self,
        served: &Served,
        request: &Request,
        now_ms: u64,
    ) -> Result<Result<Answer, u64>, Problem> {
        let route: Route = route(request)?;
        let at = at(request)?;
        let waits_ms = at.map_or(crate::serve::routes::WAIT_MS_MAX, |at| at.wait_ms);
        let until_ms = *self.until_ms.get_or_insert(now_ms.saturating_add(waits_ms));
        if let Some(at) = at
            && !served.has_reached(&at)?
        {
            return not_there(served, &at, now_ms, until_ms);
        }
        match served.answer(&route, &mut self.body)? {
            Answer::NotYet(zone) if now_ms >= until_ms => Err(Problem::ZoneLoading(zone)),
            Answer::NotYet(_) => Ok(Err(until_ms)),
            answer => Ok(Ok(answer)),
        }
    }

    fn refuse(&mut self, head: Head, problem: &Problem) {
        let mut body = Vec::new();
        let status = problem.status();
        Json::object(&mut body, |json| {
            json.text("title", &status[4..]).text("detail", &problem.sentence());
            json.number("status", status[..3].parse().unwrap_or_default());
        });
        let more = match problem {
            Problem::MethodNotAllowed(allowed) => format!("Allow: {allowed}\r\n"),
            Problem::Unauthorized => "WWW-Authenticate: Bearer\r\n".to_owned(),
            _ if problem.is_passing() => "Retry-After: 1\r\n".to_owned(),
            _ => String::new(),
        };
        self.write(head, status, "application/problem+json", &body, &more);
    }

    fn write(&mut self, head: Head, status: &str, content_type: &str, body: &[u8], more: &str) {
        let out = &mut self.unsent;
        let mut digits = itoa::Buffer::new();
        let parts = ["HTTP/1.1 ", status, "\r\nContent-Type: ", content_type];
        parts.iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
        out.extend_from_slice(b"\r\nContent-Length: ");
        out.extend_from_slice(digits.format(body.len()).as_bytes());
        out.extend_from_slice(b"\r\nCache-Control: no-store\r\n");
        out.extend_from_slice(more.as_bytes());
        finish_head(out, head);
        if !head.is_head_only {
            out.extend_from_slice(body);
        }
    }

    fn write_unchanged(&mut self, head: Head) {
        self.unsent.extend_from_slice(b"HTTP/1.1 204 No Content\r\nCache-Control: no-store\r\n");
        finish_head(&mut self.unsent, head);
    }
}

fn not_there(
    served: &Served,
    at: &At,
    now_ms: u64,
    until_ms: u64,
) -> Result<Result<Answer, u64>, Problem> {
    if now_ms < until_ms {
        return Ok(Err(until_ms));
    }
    let position = served.zone(at.zone)?.position();
    Err(Problem::NotThereYet { zone: at.zone, at: position })
}

fn finish_head(out: &mut Vec<u8>, head: Head) {
    if let Some((zone, ZonePosition { update, next_offset })) = head.at {
        out.extend_from_slice(b"Huntd-At: ");
        let mut digits = itoa::Buffer::new();
        out.extend_from_slice(digits.format(zone).as_bytes());
        out.push(b':');
        out.extend_from_slice(digits.format(update).as_bytes());
        out.push(b':');
        out.extend_from_slice(digits.format(next_offset).as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    if head.closes {
        out.extend_from_slice(b"Connection: close\r\n");
    }
    out.extend_from_slice(b"\r\n");
}
