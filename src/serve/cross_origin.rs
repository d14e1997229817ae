//! The header lines for pages of other origins (CORS, in the Fetch standard).
//!
//! Nothing here lets a request in: a browser keeps an answer from a page if it does not name the
//! page's origin. There are no cookies, so nobody has to be named for those.

use crate::service::AllowedOrigins;

/// Header lines of an answer that a page may read, besides those that it always may.
const EXPOSED: &str = "Huntd-At, Huntd-Stale-Ms, Retry-After, WWW-Authenticate";

/// Header lines of a request that a page may set, besides those that it always may.
const SETTABLE: &str = "Authorization, Content-Type, Huntd-At, Last-Event-ID";

/// Seconds for which a browser need not ask again: no browser takes more than a day.
const REMEMBERED_S: &str = "86400";

/// The header lines of an answer for the page that asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CrossOrigin<'a> {
    /// None: pages of other origins are not served.
    #[default]
    Silent,
    /// Pages of other origins than this one are served.
    Foreign,
    /// Pages of this origin are served.
    Served(&'a str),
    /// Every page is served.
    Any,
}

impl<'a> CrossOrigin<'a> {
    /// The lines for a page of this origin. `None`: the request has no `Origin`.
    pub(crate) fn of(allowed: &AllowedOrigins, origin: Option<&'a str>) -> CrossOrigin<'a> {
        match (allowed, origin) {
            (AllowedOrigins::Any, _) => CrossOrigin::Any,
            (AllowedOrigins::Listed(listed), _) if listed.is_empty() => CrossOrigin::Silent,
            (AllowedOrigins::Listed(listed), Some(origin))
                if listed.iter().any(|one| one == origin) =>
            {
                CrossOrigin::Served(origin)
            }
            (AllowedOrigins::Listed(_), _) => CrossOrigin::Foreign,
        }
    }

    /// Writes the lines of every answer.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        let origin = match self {
            CrossOrigin::Silent => return,
            CrossOrigin::Foreign => "",
            CrossOrigin::Served(origin) => origin,
            CrossOrigin::Any => "*",
        };
        if self != CrossOrigin::Any {
            write_line(out, "Vary", "Origin");
        }
        if !origin.is_empty() {
            write_line(out, "Access-Control-Allow-Origin", origin);
            write_line(out, "Access-Control-Expose-Headers", EXPOSED);
        }
    }

    /// Writes the further lines of an answer to OPTIONS, by which a browser asks what a page may
    /// send to a path that takes these methods.
    pub(crate) fn write_preflight(self, out: &mut Vec<u8>, methods: &str) {
        if let CrossOrigin::Served(_) | CrossOrigin::Any = self {
            write_line(out, "Access-Control-Allow-Methods", methods);
            write_line(out, "Access-Control-Allow-Headers", SETTABLE);
            write_line(out, "Access-Control-Max-Age", REMEMBERED_S);
        }
    }
}

fn write_line(out: &mut Vec<u8>, name: &str, value: &str) {
    for part in [name, ": ", value, "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
}
