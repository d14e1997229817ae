//! HTTP/1.1 and 1.0 without sockets: requests from bytes, lines of an answer's head, and the pages
//! that monitoring asks every process for.

pub(crate) mod head_lines;
pub(crate) mod monitoring;
pub(crate) mod request;
pub(crate) mod request_error;
