//! Limits what clients may send or fetch.

use super::request::{begin, send, text};

const ALTER_CLIENT_QUOTAS: i16 = 49;

/// Limits the clients of one id to a rate, such as `producer_byte_rate`, or no longer.
pub fn limit(address: &str, client_id: &str, quota: &str, rate: Option<f64>) {
    let one = 1i32.to_be_bytes();
    let mut request = begin(ALTER_CLIENT_QUOTAS, 0);
    request.extend(one);
    request.extend(one);
    text(&mut request, "client-id");
    text(&mut request, client_id);
    request.extend(one);
    text(&mut request, quota);
    request.extend(rate.unwrap_or(0.0).to_be_bytes());
    request.push(rate.is_none().into());
    request.push(false.into()); // validate_only
    let answer = send(address, &request);
    // Correlation id, throttle time, and one result, which begins with its error code.
    assert_eq!(answer[8..14], [0, 0, 0, 1, 0, 0], "the quota was not changed");
}
