//! The broker that coordinates the group, asked who is in it.

use crate::control::control_error::ControlError;
use crate::control::dialler::DialOptions;
use crate::control::link::Link;
use crate::control::topic_client::TopicClient;
use crate::fetch::dialling::Endpoint;
use crate::kafka::group::GroupOptions;
use crate::kafka::group_description::GroupDescription;
use std::time::Instant;

/// Milliseconds that the coordinator may take for an answer.
const ANSWER_MS_MAX: u64 = 2_000;

/// Asks the coordinator, and looks for it if it is another broker now.
pub(crate) struct GroupCoordinator {
    dial: DialOptions,
    group: GroupOptions,
    link: Option<Link>,
    /// How often the coordinator was looked for.
    tried: usize,
}

impl GroupCoordinator {
    /// Nobody is asked yet.
    pub(crate) fn new(dial: DialOptions, group: GroupOptions) -> GroupCoordinator {
        GroupCoordinator { dial, group, link: None, tried: 0 }
    }

    /// The group as it is now, or as the operator lists it.
    pub(crate) fn describe(&mut self) -> Result<GroupDescription, ControlError> {
        if let Some(assignment) = &self.group.assignment {
            return Ok(assignment.describe());
        }
        let ready = self.link.take().filter(|link| !link.is_outdated(Instant::now()));
        // A broker closes a connection that has been idle for some minutes, and another one may
        // coordinate the group by now.
        if let Some(described) = ready.and_then(|link| self.ask(link).ok()) {
            return Ok(described);
        }
        let link = self.open()?;
        self.ask(link)
    }

    /// Asks over a connection, and keeps it for the next question if it answers.
    fn ask(&mut self, mut link: Link) -> Result<GroupDescription, ControlError> {
        link.hasten(ANSWER_MS_MAX);
        let (protocol, group) = (self.group.protocol, &self.group.client.group);
        let described = link.ask_group(&self.dial, protocol, group)?;
        self.link = Some(link);
        Ok(described)
    }

    fn open(&mut self) -> Result<Link, ControlError> {
        let tried = self.tried;
        self.tried += 1;
        let mut any = TopicClient::connect(&self.dial, tried)?;
        let broker = any.coordinator(&self.group.client.group)?;
        Ok(Link::open_in_haste(ANSWER_MS_MAX, &Endpoint::of(&broker), &self.dial)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::dialler::tests::{listener, options};
    use crate::kafka::client::ClientOptions;
    use crate::kafka::error_code::ErrorCode;
    use crate::kafka::group::GroupProtocol;
    use crate::kafka::security::Security;
    use crate::kafka::wire::{WireReader, WireWriter};
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    /// Kafka's numbers of the requests.
    const METADATA: i16 = 3;
    const FIND_COORDINATOR: i16 = 10;
    const DESCRIBE_GROUPS: i16 = 15;
    const API_VERSIONS: i16 = 18;

    /// A broker that coordinates a group without members, and closes each connection after it has
    /// described the group.
    fn coordinate(listener: &TcpListener, port: u16) {
        while let Ok((connection, _)) = listener.accept() {
            thread::spawn(move || serve(connection, port));
        }
    }

    fn serve(mut connection: TcpStream, port: u16) {
        while let Some((api_key, version)) = next_request(&mut connection) {
            let mut answer = Vec::new();
            let mut writer = WireWriter::new(&mut answer);
            let start = writer.begin_frame();
            writer.i32(0); // the correlation id
            write_answer(&mut writer, api_key, version, port);
            writer.end_frame(start);
            let is_sent = connection.write_all(&answer).is_ok();
            if !is_sent || api_key == DESCRIBE_GROUPS {
                break;
            }
        }
    }

    /// The key and the version of the next request.
    fn next_request(connection: &mut TcpStream) -> Option<(i16, i16)> {
        let mut length = [0; 4];
        connection.read_exact(&mut length).ok()?;
        let mut request = vec![0; u32::from_be_bytes(length) as usize];
        connection.read_exact(&mut request).ok()?;
        let mut reader = WireReader::new(&request);
        Some((reader.i16().ok()?, reader.i16().ok()?))
    }

    fn write_answer(writer: &mut WireWriter<'_>, api_key: i16, version: i16, port: u16) {
        match api_key {
            API_VERSIONS if version > 0 => writer.i16(ErrorCode::UNSUPPORTED_VERSION.0),
            API_VERSIONS => {
                writer.i16(0);
                // Produce, Fetch, Metadata and InitProducerId.
                let ranges = [[0, 3, 9], [1, 4, 13], [METADATA, 4, 12], [22, 0, 1]];
                writer.array(ranges.len(), false);
                ranges.as_flattened().iter().for_each(|number| writer.i16(*number));
            }
            METADATA => {
                writer.no_tagged_fields();
                writer.i32(0);
                writer.array(1, true);
                writer.i32(1);
                writer.string("127.0.0.1", true);
                writer.i32(port.into());
                writer.null_string(true);
                writer.no_tagged_fields();
                writer.null_string(true);
                writer.i32(1);
                writer.array(1, true);
                writer.i16(0);
                writer.string("input", true);
                writer.raw(&7u128.to_be_bytes());
                writer.i8(0);
                writer.array(0, true);
                writer.i32(i32::MIN);
                writer.no_tagged_fields();
                writer.no_tagged_fields();
            }
            FIND_COORDINATOR => {
                writer.i32(0);
                writer.i16(0);
                writer.null_string(false);
                writer.i32(1);
                writer.string("127.0.0.1", false);
                writer.i32(port.into());
            }
            _ => {
                writer.i32(0);
                writer.array(1, false);
                writer.i16(0);
                ["zones", "Empty", "", ""].iter().for_each(|text| writer.string(text, false));
                writer.array(0, false);
            }
        }
    }

    #[test]
    fn a_connection_that_was_closed_while_it_was_idle_is_opened_again() {
        let (listener, endpoint) = listener();
        let port = endpoint.port;
        thread::spawn(move || coordinate(&listener, port));
        let group = GroupOptions {
            client: ClientOptions {
                brokers: Vec::new(),
                client_id: "huntd".to_owned(),
                security: Security::default(),
                group: "zones".to_owned(),
            },
            input_topic: "input".to_owned(),
            instance_id: None,
            assignment: None,
            protocol: GroupProtocol::Classic,
            session_timeout_ms: 10_000,
        };
        let mut coordinator = GroupCoordinator::new(options(vec![endpoint]), group);
        for _ in 0..3 {
            let described = coordinator.describe().expect("it is asked again");
            assert!(described.members.is_empty() && coordinator.link.is_some());
        }
        assert_eq!(coordinator.tried, 3);
    }
}
