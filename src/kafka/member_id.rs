//! The id that a group has given a member; the `rdkafka` crate has no function for it.

#![allow(unsafe_code)]

use rdkafka::bindings::{rd_kafka_mem_free, rd_kafka_memberid};
use rdkafka::client::{Client, ClientContext};
use std::ffi::CStr;

/// The id of a client in its group; `None` before it has joined.
pub(super) fn member_id(client: &Client<impl ClientContext>) -> Option<String> {
    let kafka = client.native_ptr();
    // SAFETY: the client outlives the call. librdkafka returns null or a string that ends with a
    // zero, and that is freed once, after it was copied.
    unsafe {
        let id = rd_kafka_memberid(kafka);
        if id.is_null() {
            return None;
        }
        let copied = CStr::from_ptr(id).to_string_lossy().into_owned();
        rd_kafka_mem_free(kafka, id.cast());
        Some(copied).filter(|id| !id.is_empty())
    }
}
