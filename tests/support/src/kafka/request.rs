//! Requests that rdkafka's admin client does not have, in forms without tagged fields.

use std::io::{Read, Write};
use std::net::TcpStream;

/// A request of this kind and version, without its fields.
pub(super) fn begin(api: i16, version: i16) -> Vec<u8> {
    let mut request = Vec::new();
    request.extend(api.to_be_bytes());
    request.extend(version.to_be_bytes());
    request.extend(1i32.to_be_bytes());
    text(&mut request, "test");
    request
}

pub(super) fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as i16).to_be_bytes());
    out.extend(text.as_bytes());
}

/// What the broker at the address answers.
pub(super) fn send(address: &str, request: &[u8]) -> Vec<u8> {
    let mut connection = TcpStream::connect(address).expect("a broker listens");
    connection.write_all(&(request.len() as u32).to_be_bytes()).expect("it is sent");
    connection.write_all(request).expect("it is sent");
    let mut size = [0; 4];
    connection.read_exact(&mut size).expect("an answer");
    let mut answer = vec![0; u32::from_be_bytes(size) as usize];
    connection.read_exact(&mut answer).expect("an answer");
    answer
}
