//! The head of an answer, in the order in which it is written.

use crate::http::request::Persistence;

/// Begins an answer. Further header lines may follow.
pub(crate) fn begin(out: &mut Vec<u8>, status: &str) {
    let parts = ["HTTP/1.1 ", status, "\r\nCache-Control: no-store\r\n"];
    parts.iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
}

/// Says what body the answer to a GET has.
pub(crate) fn describe(out: &mut Vec<u8>, content_type: &str, body: &[u8]) {
    let mut digits = itoa::Buffer::new();
    let length = digits.format(body.len());
    let parts = ["Content-Length: ", length, "\r\nContent-Type: ", content_type, "\r\n"];
    parts.iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
}

/// Ends the head.
pub(crate) fn end(out: &mut Vec<u8>, persistence: Persistence) {
    out.extend_from_slice(match persistence {
        Persistence::Stays => b"\r\n".as_slice(),
        Persistence::KeptAlive => b"Connection: keep-alive\r\n\r\n",
        Persistence::Closes => b"Connection: close\r\n\r\n",
    });
}
