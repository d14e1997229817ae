//! What an answer says before its body, as HTTP/1.1.

use crate::serve::answers::Moment;
use crate::serve::json::Json;
use crate::serve::problem::Problem;
use crate::serve::request::Persistence;
use crate::view::zone::ZonePosition;

/// What an answer's head says beside its length.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AnswerHead {
    /// The body is left out.
    pub is_head_only: bool,
    /// What becomes of the connection.
    pub persistence: Persistence,
    /// The moment of the zone that the answer is about.
    pub at: Option<Moment>,
}

impl AnswerHead {
    /// Writes an answer with a body.
    pub(super) fn write(
        self,
        out: &mut Vec<u8>,
        status: &str,
        content_type: &str,
        body: &[u8],
        more: &str,
    ) {
        let mut digits = itoa::Buffer::new();
        let parts = ["HTTP/1.1 ", status, "\r\nContent-Type: ", content_type];
        parts.iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
        out.extend_from_slice(b"\r\nContent-Length: ");
        out.extend_from_slice(digits.format(body.len()).as_bytes());
        out.extend_from_slice(b"\r\nCache-Control: no-store\r\n");
        out.extend_from_slice(more.as_bytes());
        self.finish(out);
        if !self.is_head_only {
            out.extend_from_slice(body);
        }
    }

    /// Writes that nothing has changed.
    pub(super) fn write_unchanged(self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"HTTP/1.1 204 No Content\r\nCache-Control: no-store\r\n");
        self.finish(out);
    }

    /// Writes which methods a path takes.
    pub(super) fn write_allowed(self, out: &mut Vec<u8>, allowed: &str) {
        let parts = ["HTTP/1.1 204 No Content\r\nAllow: ", allowed, "\r\n"];
        parts.iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
        self.finish(out);
    }

    /// Writes why there is no answer.
    pub(super) fn refuse(mut self, out: &mut Vec<u8>, problem: &Problem) {
        let mut body = Vec::new();
        let status = problem.status();
        Json::object(&mut body, |json| {
            json.text("title", &status[4..]).text("detail", &problem.sentence());
            json.number("status", status[..3].parse().unwrap_or_default());
        });
        let more = match problem {
            Problem::MethodNotAllowed(allowed) => format!("Allow: {allowed}\r\n"),
            Problem::Unauthorized | Problem::TokenExpired => {
                "WWW-Authenticate: Bearer\r\n".to_owned()
            }
            _ if problem.is_passing() => "Retry-After: 1\r\n".to_owned(),
            _ => String::new(),
        };
        if let Problem::NotThereYet(at) = problem {
            self.at = Some(*at);
        }
        self.write(out, status, "application/problem+json", &body, &more);
    }

    fn finish(self, out: &mut Vec<u8>) {
        if let Some(Moment { zone, position, stale_ms }) = self.at {
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
        out.extend_from_slice(match self.persistence {
            Persistence::Stays => b"".as_slice(),
            Persistence::KeptAlive => b"Connection: keep-alive\r\n",
            Persistence::Closes => b"Connection: close\r\n",
        });
        out.extend_from_slice(b"\r\n");
    }
}
