//! Grants and denies rights: rdkafka's admin client does not have these requests.

use super::request::{begin, send, text};
use crate::PATIENCE;
use std::time::{Duration, Instant};

/// What rights are about, by the numbers of Kafka's `ResourceType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    Topic = 2,
    Group = 3,
}

/// Properties of a broker that checks rights, and grants every right that was not denied.
pub fn properties() -> Vec<(&'static str, String)> {
    let authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";
    vec![
        ("authorizer.class.name", authorizer.to_owned()),
        ("allow.everyone.if.no.acl.found", "true".to_owned()),
    ]
}

/// Properties of a broker that grants only rights that were given. The tests' own clients do not
/// authenticate, and have all rights.
pub fn strict_properties() -> Vec<(&'static str, String)> {
    let [authorizer, _]: [_; 2] = properties().try_into().expect("two properties");
    vec![authorizer, ("super.users", NOBODY.to_owned())]
}

/// What may be done, by the numbers of Kafka's `AclOperation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Any = 1,
    All = 2,
    Read = 3,
    Write = 4,
    Create = 5,
    Describe = 8,
    DescribeConfigs = 10,
}

const DESCRIBE_ACLS: i16 = 29;
const CREATE_ACLS: i16 = 30;
const DELETE_ACLS: i16 = 31;

/// Kafka's `AclPermissionType`.
const ANY: u8 = 1;
const DENY: u8 = 2;
const ALLOW: u8 = 3;

/// Clients that have not said who they are.
const NOBODY: &str = "User:ANONYMOUS";

/// Denies everything on one resource to clients that have not authenticated.
pub fn deny(address: &str, resource: Resource, name: &str) {
    change(address, CREATE_ACLS, (resource, name), NOBODY, (Operation::All, DENY));
}

/// Denies to read one resource.
pub fn deny_reading(address: &str, resource: Resource, name: &str) {
    change(address, CREATE_ACLS, (resource, name), NOBODY, (Operation::Read, DENY));
}

/// Removes all denials on one resource.
pub fn give_back(address: &str, resource: Resource, name: &str) {
    change(address, DELETE_ACLS, (resource, name), NOBODY, (Operation::Any, ANY));
}

/// Gives a user a right.
pub fn allow(address: &str, user: &str, operation: Operation, resource: Resource, name: &str) {
    let principal = format!("User:{user}");
    let right = ((resource, name), principal.as_str(), (operation, ALLOW));
    change(address, CREATE_ACLS, right.0, right.1, right.2);
    // The controller has it; the broker hears of it a little later.
    let end = Instant::now() + PATIENCE;
    while found(&ask(address, DESCRIBE_ACLS, right.0, right.1, right.2)) == 0 {
        assert!(Instant::now() < end, "the broker does not hear of the right");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// How many resources an answer of DescribeAcls has.
fn found(answer: &[u8]) -> i32 {
    // Correlation id, throttle time, error code, a message or none, resources.
    assert_eq!(answer[8..10], [0, 0], "the broker does not tell the rights");
    let message = i16::from_be_bytes([answer[10], answer[11]]).max(0);
    let resources = &answer[12 + usize::try_from(message).expect("it is not negative")..];
    i32::from_be_bytes(resources[..4].try_into().expect("four bytes"))
}

fn change(
    address: &str,
    api: i16,
    resource: (Resource, &str),
    principal: &str,
    what: (Operation, u8),
) {
    let answer = ask(address, api, resource, principal, what);
    // Correlation id, throttle time, and one result, which begins with its error code.
    assert_eq!(answer[8..14], [0, 0, 0, 1, 0, 0], "the right was not changed");
}

/// What the broker answers to a request about one right.
fn ask(
    address: &str,
    api: i16,
    (resource, name): (Resource, &str),
    principal: &str,
    (operation, permission): (Operation, u8),
) -> Vec<u8> {
    const VERSION: i16 = 1;
    const LITERAL: u8 = 3;
    let mut request = begin(api, VERSION);
    if api != DESCRIBE_ACLS {
        request.extend(1i32.to_be_bytes());
    }
    request.push(resource as u8);
    text(&mut request, name);
    request.push(LITERAL);
    text(&mut request, principal);
    text(&mut request, "*");
    request.extend([operation as u8, permission]);
    send(address, &request)
}
