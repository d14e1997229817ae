//! Taking rights away from everybody: a CreateAcls request, which rdkafka's admin client has not.

use std::io::{Read, Write};
use std::net::TcpStream;

/// What rights are about, by the numbers of Kafka's `ResourceType`.
#[derive(Clone, Copy)]
pub enum Resource {
    Topic = 2,
    Group = 3,
}

/// Properties of a broker that asks for rights, and gives all that nobody has taken away.
pub fn properties() -> Vec<(&'static str, String)> {
    let authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";
    vec![
        ("authorizer.class.name", authorizer.to_owned()),
        ("allow.everyone.if.no.acl.found", "true".to_owned()),
    ]
}

/// Denies everything on one resource to clients that have not said who they are.
pub fn deny(address: &str, resource: Resource, name: &str) {
    const CREATE_ACLS: i16 = 30;
    const VERSION: i16 = 1;
    const LITERAL: u8 = 3;
    const ALL: u8 = 2;
    const DENY: u8 = 2;
    let mut request = Vec::new();
    request.extend(CREATE_ACLS.to_be_bytes());
    request.extend(VERSION.to_be_bytes());
    request.extend(1i32.to_be_bytes());
    text(&mut request, "test");
    request.extend(1i32.to_be_bytes());
    request.push(resource as u8);
    text(&mut request, name);
    request.push(LITERAL);
    text(&mut request, "User:ANONYMOUS");
    text(&mut request, "*");
    request.extend([ALL, DENY]);
    let mut connection = TcpStream::connect(address).expect("a broker listens");
    connection.write_all(&(request.len() as u32).to_be_bytes()).expect("it is sent");
    connection.write_all(&request).expect("it is sent");
    let mut size = [0; 4];
    connection.read_exact(&mut size).expect("an answer");
    let mut answer = vec![0; u32::from_be_bytes(size) as usize];
    connection.read_exact(&mut answer).expect("an answer");
    // Correlation id, throttle time, and one result, which begins with its error code.
    assert_eq!(answer[8..14], [0, 0, 0, 1, 0, 0], "the right was not taken away");
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as i16).to_be_bytes());
    out.extend(text.as_bytes());
}
