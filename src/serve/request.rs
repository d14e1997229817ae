//! A request from bytes: HTTP/1.1 without chunked bodies, read strictly.
//!
//! What two readers could take for different requests is refused: two lengths, a length beside a
//! transfer coding, bytes that are no header. Nothing here can panic, whatever the bytes are.

use crate::serve::problem::Problem;

/// Bytes of a request line and its headers.
const HEAD_BYTES_MAX: usize = 4096;

/// Headers of one request.
const HEADERS_MAX: usize = 64;

/// Bytes of a request's body: one record of the input topic at its longest, or some shorter ones.
const BODY_BYTES_MAX: usize = 16 * 1024;

/// Methods that some route has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestMethod {
    /// Head and body.
    Get,
    /// The head alone.
    Head,
    /// With a body.
    Post,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientRequest<'a> {
    /// What is asked for.
    pub method: RequestMethod,
    /// The path, undecoded: no route has a character that would have to be.
    pub path: &'a str,
    /// What follows the path's `?`; empty without.
    pub query: &'a str,
    /// The value of `Host`; only HTTP/1.0 has none.
    pub host: Option<&'a str>,
    /// The value of `Origin`, which browsers send.
    pub origin: Option<&'a str>,
    /// The value of `Content-Type`.
    pub content_type: Option<&'a str>,
    /// The value of `Authorization`.
    pub authorization: Option<&'a str>,
    /// The value of `Last-Event-ID`.
    pub last_event_id: Option<&'a str>,
    /// The position that the client has echoed.
    pub huntd_at: Option<&'a str>,
    /// The body.
    pub body: &'a [u8],
    /// Whether the connection stays open for another request.
    pub keep_alive: bool,
}

/// What the bytes so far are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Parsed<'a> {
    /// Not yet a whole request.
    More,
    /// A whole head, whose sender waits for `100 Continue` before it sends the body: the request
    /// without it.
    Expects(ClientRequest<'a>),
    /// A request, and how many bytes it took.
    Request(ClientRequest<'a>, usize),
    /// No request; after this answer the connection is closed.
    Refused(Problem),
}

/// Headers that count.
#[derive(Default)]
struct Headers<'a> {
    length: Option<usize>,
    host: Option<&'a str>,
    origin: Option<&'a str>,
    content_type: Option<&'a str>,
    is_expecting: bool,
    closes: bool,
    stays: bool,
    authorization: Option<&'a str>,
    last_event_id: Option<&'a str>,
    huntd_at: Option<&'a str>,
}

/// Reads the first request of these bytes.
pub(crate) fn parse(bytes: &[u8]) -> Parsed<'_> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let head = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(head)) if head <= HEAD_BYTES_MAX => head,
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => return Parsed::More,
        Ok(_) | Err(httparse::Error::TooManyHeaders) => {
            return Parsed::Refused(Problem::HeadTooLong);
        }
        Err(_) => return Parsed::Refused(Problem::Malformed),
    };
    // httparse takes a line that ends without a carriage return; others may not.
    let mut lines = bytes[..head].split_inclusive(|byte| *byte == b'\n');
    if lines.any(|line| !line.ends_with(b"\r\n")) {
        return Parsed::Refused(Problem::Malformed);
    }
    match read(&parsed, bytes, head) {
        Ok(parsed) => parsed,
        Err(problem) => Parsed::Refused(problem),
    }
}

fn read<'a>(
    parsed: &httparse::Request<'_, 'a>,
    bytes: &'a [u8],
    head: usize,
) -> Result<Parsed<'a>, Problem> {
    let headers = read_headers(parsed.headers)?;
    let is_newer = parsed.version == Some(1);
    if is_newer && headers.host.is_none() {
        return Err(Problem::Malformed);
    }
    let method = match parsed.method {
        Some("GET") => RequestMethod::Get,
        Some("HEAD") => RequestMethod::Head,
        Some("POST") => RequestMethod::Post,
        _ => return Err(Problem::MethodUnknown),
    };
    let length = headers.length.unwrap_or(0);
    if length > BODY_BYTES_MAX {
        return Err(Problem::BodyTooLong);
    }
    let target = parsed.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut request = ClientRequest {
        method,
        path,
        query,
        host: headers.host,
        origin: headers.origin,
        content_type: headers.content_type,
        authorization: headers.authorization,
        last_event_id: headers.last_event_id,
        huntd_at: headers.huntd_at,
        body: &[],
        keep_alive: if is_newer { !headers.closes } else { headers.stays },
    };
    if let Some(body) = bytes[head..].get(..length) {
        request.body = body;
        return Ok(Parsed::Request(request, head + length));
    }
    // A client of HTTP/1.0 waits for nothing, and one that sends already does not either.
    let waits = headers.is_expecting && is_newer && bytes.len() == head;
    Ok(if waits { Parsed::Expects(request) } else { Parsed::More })
}

fn read_headers<'a>(headers: &[httparse::Header<'a>]) -> Result<Headers<'a>, Problem> {
    let mut read = Headers::default();
    let once = |place: &mut Option<&'a str>, value: &'a str| match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Problem::Malformed),
    };
    for header in headers {
        let named = |name: &str| header.name.eq_ignore_ascii_case(name);
        if named("transfer-encoding") {
            return Err(Problem::TransferCoding);
        }
        let text = || std::str::from_utf8(header.value).map_err(|_| Problem::Malformed);
        if named("content-length") {
            let length = length(text()?).ok_or(Problem::Malformed)?;
            if read.length.replace(length).is_some() {
                return Err(Problem::Malformed);
            }
        } else if named("host") {
            once(&mut read.host, text()?)?;
        } else if named("origin") {
            once(&mut read.origin, text()?)?;
        } else if named("content-type") {
            once(&mut read.content_type, text()?)?;
        } else if named("expect") {
            for expected in text()?.split(',').map(str::trim).filter(|one| !one.is_empty()) {
                if !expected.eq_ignore_ascii_case("100-continue") {
                    return Err(Problem::ExpectationUnknown);
                }
                read.is_expecting = true;
            }
        } else if named("connection") {
            for token in text()?.split(',').map(str::trim) {
                read.closes |= token.eq_ignore_ascii_case("close");
                read.stays |= token.eq_ignore_ascii_case("keep-alive");
            }
        } else if named("authorization") {
            once(&mut read.authorization, text()?)?;
        } else if named("last-event-id") {
            once(&mut read.last_event_id, text()?)?;
        } else if named("huntd-at") {
            once(&mut read.huntd_at, text()?)?;
        }
    }
    Ok(read)
}

/// Digits alone: `+5` and ` 5 ` are lengths to some readers only.
fn length(text: &str) -> Option<usize> {
    let is_number = !text.is_empty() && text.len() < 10 && text.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// The value of a key of a query; `None`: it is not there.
pub(crate) fn parameter<'a>(query: &'a str, key: &str) -> Option<&'a str> {
    parameters(query).find(|(name, _)| *name == key).map(|(_, value)| value)
}

/// All keys and values of a query, undecoded: no parameter has a character that would have to be.
pub(crate) fn parameters(query: &str) -> impl Iterator<Item = (&str, &str)> {
    let parts = query.split('&').filter(|part| !part.is_empty());
    parts.map(|part| part.split_once('=').unwrap_or((part, "")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: &str = "GET /v1/zones?a=1 HTTP/1.1\r\nHost: h\r\n\r\n";

    #[test]
    fn a_request_is_whole_at_its_last_byte_and_not_before() {
        let post = "POST /v1/events HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello";
        for whole in [GET, post] {
            for end in 0..whole.len() {
                assert_eq!(parse(&whole.as_bytes()[..end]), Parsed::More, "{end} of {whole}");
            }
            let twice = [whole, whole].concat();
            for end in whole.len()..=twice.len() {
                let parsed = parse(&twice.as_bytes()[..end]);
                assert!(matches!(parsed, Parsed::Request(_, taken) if taken == whole.len()));
            }
        }
    }

    #[test]
    fn a_request_says_what_it_asks_for() {
        let Parsed::Request(request, _) = parse(GET.as_bytes()) else { panic!("a request") };
        let expected = (RequestMethod::Get, "/v1/zones", "a=1", true);
        assert_eq!((request.method, request.path, request.query, request.keep_alive), expected);
        assert_eq!(parameter("a=1&b=2&c", "b"), Some("2"));
        assert_eq!(parameter("a=1&b=2&c", "c"), Some(""));
        assert_eq!(parameter("a=1", "d"), None);
    }

    #[test]
    fn a_connection_stays_open_unless_its_version_or_its_header_says_otherwise() {
        let stays = |version: &str, header: &str| {
            let text = format!("GET / HTTP/1.{version}\r\nHost: h\r\n{header}\r\n");
            match parse(text.as_bytes()) {
                Parsed::Request(request, _) => request.keep_alive,
                other => panic!("{other:?}"),
            }
        };
        assert!(stays("1", ""));
        assert!(!stays("1", "Connection: foo, Close\r\n"));
        assert!(!stays("0", ""));
        assert!(stays("0", "Connection: keep-alive\r\n"));
    }

    #[test]
    fn what_two_readers_could_read_differently_is_refused() {
        let heads = [
            "Content-Length: 5\r\nContent-Length: 5\r\n",
            "Content-Length: 5\r\nContent-Length: 6\r\n",
            "Content-Length: +5\r\n",
            "Content-Length: 5, 5\r\n",
            "Content-Length:\r\n",
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\n",
            "Transfer-Encoding : chunked\r\n",
            "Host: other\r\n",
            "X: a\0b\r\n",
            "Host\r\n",
            "X: a\n",
            "\n",
            " X: folded\r\n",
            "Authorization: \u{e4}\r\nAuthorization: b\r\n",
        ];
        for head in heads {
            let text = format!("POST / HTTP/1.1\r\nHost: h\r\n{head}\r\nhello");
            assert!(matches!(parse(text.as_bytes()), Parsed::Refused(_)), "{head:?}");
        }
        let refused =
            ["GET / HTTP/1.1\r\n\r\n", "\u{1}\r\n\r\n", "GET  / HTTP/1.1\r\nHost: h\r\n\r\n"];
        for text in refused {
            assert!(matches!(parse(text.as_bytes()), Parsed::Refused(_)), "{text:?}");
        }
        let bare = b"GET / HTTP/1.1\nHost: h\n\n";
        assert_eq!(parse(bare), Parsed::Refused(Problem::Malformed));
    }

    #[test]
    fn heads_and_bodies_without_an_end_are_refused_at_their_bound() {
        let endless = [b"GET / HTTP/1.1\r\nX: ".to_vec(), vec![b'a'; HEAD_BYTES_MAX]].concat();
        assert_eq!(parse(&endless[..HEAD_BYTES_MAX - 1]), Parsed::More);
        assert_eq!(parse(&endless), Parsed::Refused(Problem::HeadTooLong));
        let long = format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", 1 << 20);
        assert_eq!(parse(long.as_bytes()), Parsed::Refused(Problem::BodyTooLong));
        let many = format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", "X: y\r\n".repeat(HEADERS_MAX));
        assert_eq!(parse(many.as_bytes()), Parsed::Refused(Problem::HeadTooLong));
    }

    #[test]
    fn a_sender_that_expects_to_be_asked_for_its_body_is_asked() {
        let head = "POST /v1/events HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\
                    Expect: 100-continue\r\n\r\n";
        let Parsed::Expects(request) = parse(head.as_bytes()) else { panic!("it expects") };
        assert_eq!((request.path, request.body), ("/v1/events", &b""[..]));
        assert_eq!(parse(format!("{head}a").as_bytes()), Parsed::More);
        assert!(matches!(parse(format!("{head}ab").as_bytes()), Parsed::Request(..)));
        // A client of HTTP/1.0 does not wait, whatever it says.
        let older = head.replace("HTTP/1.1", "HTTP/1.0");
        assert_eq!(parse(older.as_bytes()), Parsed::More);
        let listed = head.replace("100-continue", ", 100-Continue ,");
        assert!(matches!(parse(listed.as_bytes()), Parsed::Expects(_)));
        for other in ["200-ok", "100-continue, 200-ok", "100-continue=1"] {
            let refused = Parsed::Refused(Problem::ExpectationUnknown);
            assert_eq!(parse(head.replace("100-continue", other).as_bytes()), refused, "{other}");
        }
    }

    #[test]
    fn no_bytes_make_the_parser_panic() {
        let mut random = crate::testing::random::Random::new(1);
        let text = "POST /v1/events?a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello";
        for _ in 0..20_000 {
            let mut bytes = text.as_bytes().to_vec();
            for _ in 0..1 + random.below(4) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.below(256) as u8;
            }
            parse(&bytes);
        }
    }
}
