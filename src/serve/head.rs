//! The heads of answers, as HTTP/1.1.

use crate::http::head_lines;
use crate::http::request::Persistence;
use crate::serve::access::TokenRefusal;
use crate::serve::answers::Moment;
use crate::serve::cross_origin::CrossOrigin;
use crate::serve::problem::Problem;
use crate::view::zone::ZonePosition;

/// The head of an answer, without its length.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AnswerHead<'a> {
    /// The body is left out.
    pub is_head_only: bool,
    /// Whether the connection stays open.
    pub persistence: Persistence,
    /// The moment of the zone that the answer is about.
    pub at: Option<Moment>,
    /// The header lines for the page that asks.
    pub cross_origin: CrossOrigin<'a>,
}

impl AnswerHead<'_> {
    /// Writes an answer with a body.
    pub(super) fn write(
        self,
        out: &mut Vec<u8>,
        status: &str,
        content_type: &str,
        body: &[u8],
        more: &str,
    ) {
        head_lines::begin(out, status);
        out.extend_from_slice(more.as_bytes());
        self.write_moment(out);
        self.cross_origin.write(out);
        head_lines::describe(out, content_type, body);
        head_lines::end(out, self.persistence);
        if !self.is_head_only {
            out.extend_from_slice(body);
        }
    }

    /// Writes an answer that has no body for any method.
    pub(super) fn write_empty(self, out: &mut Vec<u8>) {
        head_lines::begin(out, "204 No Content");
        self.write_moment(out);
        self.cross_origin.write(out);
        head_lines::end(out, self.persistence);
    }

    /// Writes which methods a path takes.
    pub(super) fn write_methods(self, out: &mut Vec<u8>, methods: &str) {
        head_lines::begin(out, "204 No Content");
        out.extend_from_slice(format!("Allow: {methods}\r\n").as_bytes());
        self.cross_origin.write(out);
        self.cross_origin.write_preflight(out, methods);
        head_lines::end(out, self.persistence);
    }

    /// Writes why there is no answer.
    pub(super) fn refuse(mut self, out: &mut Vec<u8>, problem: &Problem) {
        let mut body = Vec::new();
        problem.write(&mut body);
        let more = match problem {
            Problem::MethodNotAllowed(allowed) => format!("Allow: {allowed}\r\n"),
            Problem::Unauthorized(TokenRefusal::Missing) => {
                "WWW-Authenticate: Bearer\r\n".to_owned()
            }
            Problem::Unauthorized(_) => {
                "WWW-Authenticate: Bearer error=\"invalid_token\"\r\n".to_owned()
            }
            Problem::SocketVersion => "Sec-WebSocket-Version: 13\r\n".to_owned(),
            _ if problem.is_passing() => "Retry-After: 1\r\n".to_owned(),
            _ => String::new(),
        };
        if let Problem::NotThereYet(at) = problem {
            self.at = Some(*at);
        }
        self.write(out, problem.status(), "application/problem+json", &body, &more);
    }

    fn write_moment(self, out: &mut Vec<u8>) {
        let Some(Moment { zone, position, stale_ms }) = self.at else { return };
        let ZonePosition { update, next_offset } = position;
        out.extend_from_slice(b"Huntd-At: ");
        let mut digits = itoa::Buffer::new();
        out.extend_from_slice(digits.format(zone).as_bytes());
        out.push(b':');
        out.extend_from_slice(digits.format(update).as_bytes());
        out.push(b':');
        out.extend_from_slice(digits.format(next_offset).as_bytes());
        out.extend_from_slice(b"\r\n");
        if let Some(stale_ms) = stale_ms {
            out.extend_from_slice(b"Huntd-Stale-Ms: ");
            out.extend_from_slice(digits.format(stale_ms).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }
}
