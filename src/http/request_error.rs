//! Why bytes cannot be read as a request.

/// Why bytes cannot be read as a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestError {
    /// They are not a request of HTTP/1.
    Malformed,
    /// The body comes in an unknown transfer coding.
    TransferCoding,
    /// The head is too long.
    HeadTooLong,
    /// The body is too long.
    BodyTooLong,
    /// The sender expects something else than to be asked for the body.
    ExpectationUnknown,
    /// The method is unknown.
    MethodUnknown,
}

impl RequestError {
    /// The status line's number and phrase.
    pub(crate) fn status(self) -> &'static str {
        match self {
            RequestError::Malformed => "400 Bad Request",
            RequestError::BodyTooLong => "413 Content Too Large",
            RequestError::ExpectationUnknown => "417 Expectation Failed",
            RequestError::HeadTooLong => "431 Request Header Fields Too Large",
            RequestError::TransferCoding | RequestError::MethodUnknown => "501 Not Implemented",
        }
    }

    /// What to do about it.
    pub(crate) fn sentence(self) -> &'static str {
        match self {
            RequestError::Malformed => {
                "send a request of HTTP/1.1 with one Host and one Content-Length"
            }
            RequestError::TransferCoding => "send the body with a Content-Length, or chunked",
            RequestError::HeadTooLong => "send a request line and headers of at most 4 KiB",
            RequestError::BodyTooLong => "send a body of at most 16 KiB",
            RequestError::ExpectationUnknown => "expect nothing but 100-continue",
            RequestError::MethodUnknown => "use GET, HEAD, POST or OPTIONS",
        }
    }
}
