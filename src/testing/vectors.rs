//! The examples in docs/vectors, which other implementations may test themselves by.

use serde_json::Value;

/// The list in one of the files.
pub fn vectors(name: &str) -> Vec<Value> {
    let path = format!("docs/vectors/{name}");
    let text = std::fs::read_to_string(&path).expect("the vectors are there");
    let vectors: Value = serde_json::from_str(&text).expect("the vectors are JSON");
    vectors.as_array().expect("a list").clone()
}

/// Bytes that are no text, as the vectors write them.
pub fn bytes_of(hexadecimal: &str) -> Vec<u8> {
    let digits = hexadecimal.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.map(byte).collect()
}
