//! A request from bytes: HTTP/1.1 and 1.0, read strictly.
//!
//! What two readers could take for different requests is refused: two lengths, a length beside a
//! transfer coding, bytes that are no header. Nothing here can panic, whatever the bytes are.

use crate::http::request_error::RequestError;
use std::borrow::Cow;

/// Bytes of a request line and its headers.
const HEAD_BYTES_MAX: usize = 4096;

/// Headers of one request.
const HEADERS_MAX: usize = 64;

/// Bytes of a request's body: one record of the input topic at its longest, or some shorter ones.
const BODY_BYTES_MAX: usize = 16 * 1024;

/// Bytes that a chunked body may have besides what it carries: lines of sizes and ends of chunks.
const CHUNK_FRAMING_BYTES_MAX: usize = 4096;

/// Bytes of a chunk's line: its size, and extensions, which are passed over.
const CHUNK_LINE_BYTES_MAX: usize = 256;

/// Methods that are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestMethod {
    /// Head and body.
    Get,
    /// The head alone.
    Head,
    /// With a body.
    Post,
    /// Which methods there are.
    Options,
    /// A method of HTTP that no route has.
    Other,
}

/// What becomes of a connection when its request is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Persistence {
    /// It stays open, as every one of HTTP/1.1.
    #[default]
    Stays,
    /// It stays open because a client of HTTP/1.0 has asked for that.
    KeptAlive,
    /// It is closed.
    Closes,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientRequest<'a> {
    /// What is asked for.
    pub method: RequestMethod,
    /// The path. Escapes of characters that need none are decoded (RFC 3986, 6.2.2.2): no route has
    /// another character.
    pub path: Cow<'a, str>,
    /// What follows the path's `?`, undecoded; empty without.
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
    /// `None`: the client does not ask for a WebSocket.
    pub web_socket: Option<WebSocketAsk<'a>>,
    /// The body.
    pub body: Cow<'a, [u8]>,
    /// What becomes of the connection.
    pub persistence: Persistence,
}

/// The headers of a request for a WebSocket (RFC 6455, 4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WebSocketAsk<'a> {
    /// The value of `Sec-WebSocket-Key`.
    pub key: Option<&'a str>,
    /// The value of `Sec-WebSocket-Version`.
    pub version: Option<&'a str>,
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
    Refused(RequestError),
}

/// Headers that count.
#[derive(Default)]
struct Headers<'a> {
    length: Option<usize>,
    is_chunked: bool,
    host: Option<&'a str>,
    origin: Option<&'a str>,
    content_type: Option<&'a str>,
    is_expecting: bool,
    closes: bool,
    stays: bool,
    authorization: Option<&'a str>,
    last_event_id: Option<&'a str>,
    huntd_at: Option<&'a str>,
    /// `Connection` says that `Upgrade` counts.
    upgrades: bool,
    is_web_socket: bool,
    web_socket: WebSocketAsk<'a>,
}

/// Reads the first request of these bytes.
pub(crate) fn parse(bytes: &[u8]) -> Parsed<'_> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let head = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(head)) if head <= HEAD_BYTES_MAX => head,
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => return Parsed::More,
        Ok(_) | Err(httparse::Error::TooManyHeaders) => {
            return Parsed::Refused(RequestError::HeadTooLong);
        }
        Err(_) => return Parsed::Refused(RequestError::Malformed),
    };
    // httparse takes a line that ends without a carriage return; others may not.
    let mut lines = bytes[..head].split_inclusive(|byte| *byte == b'\n');
    if lines.any(|line| !line.ends_with(b"\r\n")) {
        return Parsed::Refused(RequestError::Malformed);
    }
    match read(&parsed, bytes, head) {
        Ok(parsed) => parsed,
        Err(error) => Parsed::Refused(error),
    }
}

fn read<'a>(
    parsed: &httparse::Request<'_, 'a>,
    bytes: &'a [u8],
    head: usize,
) -> Result<Parsed<'a>, RequestError> {
    let headers = read_headers(parsed.headers)?;
    let is_newer = parsed.version == Some(1);
    if is_newer && headers.host.is_none() {
        return Err(RequestError::Malformed);
    }
    let method = match parsed.method {
        Some("GET") => RequestMethod::Get,
        Some("HEAD") => RequestMethod::Head,
        Some("POST") => RequestMethod::Post,
        Some("OPTIONS") => RequestMethod::Options,
        Some("DELETE" | "PATCH" | "PUT" | "TRACE") => RequestMethod::Other,
        _ => return Err(RequestError::MethodUnknown),
    };
    let length = headers.length.unwrap_or(0);
    if length > BODY_BYTES_MAX {
        return Err(RequestError::BodyTooLong);
    }
    // Two readers could take one or the other for the length, and HTTP/1.0 knows no chunks.
    if headers.is_chunked && (headers.length.is_some() || !is_newer) {
        return Err(RequestError::Malformed);
    }
    let (authority, target) = target(parsed.path.unwrap_or_default(), method)?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut request = ClientRequest {
        method,
        path: path_of(if path.is_empty() { "/" } else { path }),
        query,
        // The absolute form counts (RFC 9112, 3.2.2).
        host: authority.or(headers.host),
        origin: headers.origin,
        content_type: headers.content_type,
        authorization: headers.authorization,
        last_event_id: headers.last_event_id,
        huntd_at: headers.huntd_at,
        // HTTP/1.0 knows no other protocol (RFC 9110, 7.8).
        web_socket: Some(headers.web_socket)
            .filter(|_| is_newer && headers.upgrades && headers.is_web_socket),
        body: Cow::Borrowed(&[]),
        persistence: match (is_newer, headers.closes, headers.stays) {
            (_, true, _) | (false, _, false) => Persistence::Closes,
            (true, false, _) => Persistence::Stays,
            (false, false, true) => Persistence::KeptAlive,
        },
    };
    let body = match headers.is_chunked {
        true => chunked(&bytes[head..])?.map(|(body, taken)| (Cow::Owned(body), taken)),
        false => bytes[head..].get(..length).map(|body| (Cow::Borrowed(body), length)),
    };
    if let Some((body, taken)) = body {
        request.body = body;
        return Ok(Parsed::Request(request, head + taken));
    }
    // A client of HTTP/1.0 waits for nothing, and one that sends already does not either.
    let waits = headers.is_expecting && is_newer && bytes.len() == head;
    Ok(if waits { Parsed::Expects(request) } else { Parsed::More })
}

/// Authority, if there is one, and path with query of a request's target.
fn target(text: &str, method: RequestMethod) -> Result<(Option<&str>, &str), RequestError> {
    if text.starts_with('/') || (text == "*" && method == RequestMethod::Options) {
        return Ok((None, text));
    }
    let (scheme, rest) = text.split_once("://").ok_or(RequestError::Malformed)?;
    if !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        return Err(RequestError::Malformed);
    }
    let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    Ok((Some(authority), target))
}

/// A body in chunks, and how many bytes it took; `None`: it is not whole.
fn chunked(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, RequestError> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let rest = &bytes[at..];
        let line = rest.iter().take(CHUNK_LINE_BYTES_MAX).position(|byte| *byte == b'\n');
        let Some(line) = line else {
            let is_short = rest.len() < CHUNK_LINE_BYTES_MAX;
            return if is_short { Ok(None) } else { Err(RequestError::Malformed) };
        };
        let size = rest[..line].strip_suffix(b"\r").and_then(chunk_size);
        let size = size.ok_or(RequestError::Malformed)?;
        at += line + 1;
        let framing = at + 2 - body.len();
        if body.len() + size > BODY_BYTES_MAX || framing > CHUNK_FRAMING_BYTES_MAX {
            return Err(RequestError::BodyTooLong);
        }
        let Some(chunk) = bytes.get(at..at + size + 2) else { return Ok(None) };
        // Fields after the last chunk would come here; nobody sends them, so they are refused.
        body.extend_from_slice(chunk.strip_suffix(b"\r\n").ok_or(RequestError::Malformed)?);
        at += size + 2;
        if size == 0 {
            return Ok(Some((body, at)));
        }
    }
}

/// The size that a chunk's line says.
fn chunk_size(line: &[u8]) -> Option<usize> {
    let digits = line.split(|byte| *byte == b';').next()?;
    let is_size = (1..=8).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
    if !is_size || line.contains(&b'\r') {
        return None;
    }
    usize::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

fn read_headers<'a>(headers: &[httparse::Header<'a>]) -> Result<Headers<'a>, RequestError> {
    let mut read = Headers::default();
    let once = |place: &mut Option<&'a str>, value: &'a str| match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(RequestError::Malformed),
    };
    for header in headers {
        let named = |name: &str| header.name.eq_ignore_ascii_case(name);
        if named("transfer-encoding") {
            let is_chunked = header.value.eq_ignore_ascii_case(b"chunked");
            if !is_chunked || std::mem::replace(&mut read.is_chunked, true) {
                return Err(RequestError::TransferCoding);
            }
            continue;
        }
        let text = || std::str::from_utf8(header.value).map_err(|_| RequestError::Malformed);
        if named("content-length") {
            let length = length(text()?).ok_or(RequestError::Malformed)?;
            if read.length.replace(length).is_some() {
                return Err(RequestError::Malformed);
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
                    return Err(RequestError::ExpectationUnknown);
                }
                read.is_expecting = true;
            }
        } else if named("connection") {
            for token in text()?.split(',').map(str::trim) {
                read.closes |= token.eq_ignore_ascii_case("close");
                read.stays |= token.eq_ignore_ascii_case("keep-alive");
                read.upgrades |= token.eq_ignore_ascii_case("upgrade");
            }
        } else if named("authorization") {
            once(&mut read.authorization, text()?)?;
        } else if named("last-event-id") {
            once(&mut read.last_event_id, text()?)?;
        } else if named("huntd-at") {
            once(&mut read.huntd_at, text()?)?;
        } else if named("upgrade") {
            let mut protocols = text()?.split(',').map(str::trim);
            read.is_web_socket |= protocols.any(|one| one.eq_ignore_ascii_case("websocket"));
        } else if named("sec-websocket-key") {
            once(&mut read.web_socket.key, text()?)?;
        } else if named("sec-websocket-version") {
            once(&mut read.web_socket.version, text()?)?;
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
pub(crate) fn parameter<'a>(query: &'a str, key: &str) -> Option<Cow<'a, str>> {
    parameters(query).find(|(name, _)| *name == key).map(|(_, value)| value)
}

/// All keys and values of a query.
pub(crate) fn parameters(query: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    let parts = query.split('&').filter(|part| !part.is_empty());
    parts.map(|part| {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        (query_text(key), query_text(value))
    })
}

/// A key or a value of a query, decoded. What is no escape stays as it is, and what is no text gets
/// a character that no parameter has.
fn query_text(text: &str) -> Cow<'_, str> {
    if !text.contains(['%', '+']) {
        return Cow::Borrowed(text);
    }
    let spaced = text.replace('+', " ");
    Cow::Owned(String::from_utf8_lossy(&unescaped(&spaced, |_| true)).into_owned())
}

fn path_of(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    Cow::Owned(String::from_utf8_lossy(&unescaped(text, is_unreserved)).into_owned())
}

/// A text whose escapes of these bytes are decoded.
fn unescaped(text: &str, decodes: impl Fn(u8) -> bool) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((&first, after)) = rest.split_first() {
        let digit = |at: usize| char::from(*after.get(at)?).to_digit(16);
        let escaped = match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => Some((high * 16 + low) as u8),
            _ => None,
        };
        match escaped.filter(|byte| decodes(*byte)) {
            Some(byte) => {
                out.push(byte);
                rest = &after[2..];
            }
            None => {
                out.push(first);
                rest = after;
            }
        }
    }
    out
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
        let expected = (RequestMethod::Get, "/v1/zones", "a=1", Persistence::Stays);
        let ClientRequest { method, path, query, persistence, .. } = &request;
        assert_eq!((*method, &**path, *query, *persistence), expected);
        assert_eq!(parameter("a=1&b=2&c", "b").as_deref(), Some("2"));
        assert_eq!(parameter("a=1&b=2&c", "c").as_deref(), Some(""));
        assert_eq!(parameter("a=1", "d"), None);
    }

    #[test]
    fn a_connection_stays_open_unless_its_version_or_its_header_says_otherwise() {
        let stays = |version: &str, header: &str| {
            let text = format!("GET / HTTP/1.{version}\r\nHost: h\r\n{header}\r\n");
            match parse(text.as_bytes()) {
                Parsed::Request(request, _) => request.persistence,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(stays("1", ""), Persistence::Stays);
        assert_eq!(stays("1", "Connection: foo, Close\r\n"), Persistence::Closes);
        assert_eq!(stays("0", ""), Persistence::Closes);
        assert_eq!(stays("0", "Connection: keep-alive\r\n"), Persistence::KeptAlive);
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
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
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
        assert_eq!(parse(bare), Parsed::Refused(RequestError::Malformed));
    }

    #[test]
    fn heads_and_bodies_without_an_end_are_refused_at_their_bound() {
        let endless = [b"GET / HTTP/1.1\r\nX: ".to_vec(), vec![b'a'; HEAD_BYTES_MAX]].concat();
        assert_eq!(parse(&endless[..HEAD_BYTES_MAX - 1]), Parsed::More);
        assert_eq!(parse(&endless), Parsed::Refused(RequestError::HeadTooLong));
        let long = format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", 1 << 20);
        assert_eq!(parse(long.as_bytes()), Parsed::Refused(RequestError::BodyTooLong));
        let many = format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", "X: y\r\n".repeat(HEADERS_MAX));
        assert_eq!(parse(many.as_bytes()), Parsed::Refused(RequestError::HeadTooLong));
    }

    #[test]
    fn a_sender_that_expects_to_be_asked_for_its_body_is_asked() {
        let head = "POST /v1/events HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\
                    Expect: 100-continue\r\n\r\n";
        let Parsed::Expects(request) = parse(head.as_bytes()) else { panic!("it expects") };
        assert_eq!((&*request.path, &*request.body), ("/v1/events", &b""[..]));
        assert_eq!(parse(format!("{head}a").as_bytes()), Parsed::More);
        assert!(matches!(parse(format!("{head}ab").as_bytes()), Parsed::Request(..)));
        // A client of HTTP/1.0 does not wait, whatever it says.
        let older = head.replace("HTTP/1.1", "HTTP/1.0");
        assert_eq!(parse(older.as_bytes()), Parsed::More);
        let listed = head.replace("100-continue", ", 100-Continue ,");
        assert!(matches!(parse(listed.as_bytes()), Parsed::Expects(_)));
        for other in ["200-ok", "100-continue, 200-ok", "100-continue=1"] {
            let refused = Parsed::Refused(RequestError::ExpectationUnknown);
            assert_eq!(parse(head.replace("100-continue", other).as_bytes()), refused, "{other}");
        }
    }

    /// Of a post in chunks: the body, and how many bytes of the text are left.
    fn chunks(text: &str) -> Result<Option<(Vec<u8>, usize)>, RequestError> {
        let head = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\n";
        let bytes = [head, text].concat().into_bytes();
        match parse(&bytes) {
            Parsed::Request(request, taken) => {
                Ok(Some((request.body.into_owned(), bytes.len() - taken)))
            }
            Parsed::Refused(error) => Err(error),
            _ => Ok(None),
        }
    }

    #[test]
    fn a_body_in_chunks_is_whole_at_its_last_byte_and_within_its_bounds() {
        let text = "3\r\nabc\r\nA;x=\"y\"\r\n0123456789\r\n0\r\n\r\n";
        for end in 0..text.len() {
            assert_eq!(chunks(&text[..end]), Ok(None), "{end}");
        }
        assert_eq!(chunks(text), Ok(Some((b"abc0123456789".to_vec(), 0))));
        assert_eq!(chunks(&format!("{text}GET")), Ok(Some((b"abc0123456789".to_vec(), 3))));
        let whole = format!("{BODY_BYTES_MAX:x}\r\n{}\r\n", "x".repeat(BODY_BYTES_MAX));
        let body = chunks(&format!("{whole}0\r\n\r\n")).expect("it fits").expect("it is whole").0;
        assert_eq!(body.len(), BODY_BYTES_MAX);
        assert_eq!(chunks(&format!("{whole}1\r\n")), Err(RequestError::BodyTooLong));
        assert_eq!(chunks(&"1\r\nx\r\n".repeat(4096)), Err(RequestError::BodyTooLong));
        for wrong in [
            "x\r\n",
            "\r\n",
            " 1\r\na\r\n",
            "+1\r\na\r\n",
            "0x1\r\na\r\n",
            "123456789\r\n",
            "1\na\r\n",
            "1;\r;\r\na\r\n",
            "1\r\nab\r\n",
            "0\r\nX: y\r\n\r\n",
        ] {
            assert_eq!(chunks(wrong), Err(RequestError::Malformed), "{wrong:?}");
        }
        assert_eq!(chunks(&format!("1;{}", "x".repeat(256))), Err(RequestError::Malformed));
    }

    #[test]
    fn a_target_is_decoded_whatever_form_it_has() {
        let asked = |method: &str, target: &str| {
            let text = format!("{method} {target} HTTP/1.1\r\nHost: h\r\n\r\n");
            match parse(text.as_bytes()) {
                Parsed::Request(of, _) => {
                    Some((of.host.unwrap_or_default().to_owned(), of.path.into_owned()))
                }
                _ => None,
            }
        };
        for (target, host, path) in [
            ("/v1/zones", "h", "/v1/zones"),
            ("/v%31/%7aones", "h", "/v1/zones"),
            ("/v1%2Fzones", "h", "/v1%2Fzones"),
            ("/%", "h", "/%"),
            ("/%4", "h", "/%4"),
            ("http://i:80/v1/zones?at=1", "i:80", "/v1/zones"),
            ("HTTP://i", "i", "/"),
            ("http://i?at=1", "i", "/"),
        ] {
            assert_eq!(asked("GET", target), Some((host.to_owned(), path.to_owned())), "{target}");
        }
        assert!(asked("OPTIONS", "*").is_some());
        for target in ["*", "x/v1/zones", "../v1/zones", "ftp://h/v1/zones", "h:80"] {
            assert_eq!(asked("GET", target), None, "{target}");
        }
        assert_eq!(parameter("%61t=0%3A5", "at").as_deref(), Some("0:5"));
        assert_eq!(parameter("at=0%3a5+%zz%", "at").as_deref(), Some("0:5 %zz%"));
        assert_eq!(parameter("at=%ff", "at").as_deref(), Some("\u{fffd}"));
    }

    #[test]
    fn no_bytes_make_the_parser_panic() {
        let mut random = crate::testing::random::Random::new(1);
        let text = "POST /v1/events?a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello";
        let framed = text.replace(
            "Content-Length: 5\r\n\r\nhello",
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        );
        for number in 0..40_000 {
            let mut bytes = if number % 2 == 0 { text } else { &framed }.as_bytes().to_vec();
            for _ in 0..1 + random.below(4) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.below(256) as u8;
            }
            parse(&bytes);
        }
    }
}
