//! DescribeGroups, version 1, and ConsumerGroupDescribe, version 0 (KIP-848): who is in a group,
//! and which partitions each member is told to own. A group's coordinator answers. Brokers support
//! the first since Kafka 0.11, the second since 3.7.

use crate::kafka::error_code::ErrorCode;
use crate::kafka::group::GroupProtocol;
use crate::kafka::membership::GroupMember;
use crate::kafka::message::{Api, Envelope, MessageError, encode, parse, read_array, text};
use crate::kafka::wire::{WireError, WireReader};
use kafka_protocol::messages::{
    ApiKey, ConsumerGroupDescribeRequest, DescribeGroupsRequest, GroupId,
};

const DESCRIBE_GROUPS: Api =
    Api { key: ApiKey::DescribeGroups, name: "DescribeGroups", version_min: 1, version_max: 1 };

const CONSUMER_GROUP_DESCRIBE: Api = Api {
    key: ApiKey::ConsumerGroupDescribe,
    name: "ConsumerGroupDescribe",
    version_min: 0,
    version_max: 0,
};

/// The state of a group that is not being rebalanced, in both requests.
const STABLE: &str = "Stable";

/// The broker does not know the group.
const GROUP_ID_NOT_FOUND: ErrorCode = ErrorCode(69);

/// A group, as its coordinator describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDescription {
    /// True unless it is being rebalanced.
    pub is_stable: bool,
    /// Its members.
    pub members: Vec<GroupMember>,
}

/// The members of a group that is described from time to time.
#[derive(Debug, Default)]
pub struct SeenMembers {
    /// As they were when the group was not being rebalanced.
    stable: Vec<GroupMember>,
}

impl SeenMembers {
    /// Takes a description. Returns the members; `None`: the group is being rebalanced and no zone
    /// is quiet, so that the members can be asked for again soon. While it is being rebalanced, its
    /// coordinator does not say what they own: what they owned before is theirs. A member that dies
    /// meanwhile counts until its session times out, and keeps the group waiting for as long.
    pub fn take(
        &mut self,
        described: GroupDescription,
        is_quiet: bool,
    ) -> Option<Vec<GroupMember>> {
        let GroupDescription { is_stable, mut members } = described;
        if is_stable {
            self.stable.clone_from(&members);
            return Some(members);
        }
        for member in members.iter_mut().filter(|member| member.partitions.is_empty()) {
            let before = self.stable.iter().find(|before| before.id == member.id);
            member.partitions = before.map_or_else(Vec::new, |before| before.partitions.clone());
        }
        is_quiet.then_some(members)
    }
}

/// The request for groups of a protocol.
fn api(protocol: GroupProtocol) -> &'static Api {
    match protocol {
        GroupProtocol::Classic | GroupProtocol::Eager => &DESCRIBE_GROUPS,
        GroupProtocol::Consumer => &CONSUMER_GROUP_DESCRIBE,
    }
}

/// Kafka's name of the request.
pub(crate) fn name(protocol: GroupProtocol) -> &'static str {
    api(protocol).name
}

/// Appends a request for one group.
pub(crate) fn request(
    protocol: GroupProtocol,
    correlation_id: i32,
    client_id: &str,
    group: &str,
    out: &mut Vec<u8>,
) {
    let api = api(protocol);
    let envelope = Envelope { version: api.version_max, correlation_id, client_id };
    let groups = vec![GroupId(text(group))];
    match protocol {
        GroupProtocol::Classic | GroupProtocol::Eager => {
            encode(api, envelope, &DescribeGroupsRequest::default().with_groups(groups), out);
        }
        GroupProtocol::Consumer => {
            let request = ConsumerGroupDescribeRequest::default().with_group_ids(groups);
            encode(api, envelope, &request, out);
        }
    }
}

/// Parses an answer: the group with the members' partitions of this topic, or the error.
pub fn parse_answer(
    protocol: GroupProtocol,
    bytes: &[u8],
    correlation_id: i32,
    topic: &str,
) -> Result<GroupDescription, MessageError> {
    let api = api(protocol);
    let groups = match protocol {
        GroupProtocol::Classic | GroupProtocol::Eager => {
            parse(api, false, bytes, correlation_id, |reader| {
                let _throttle_ms = reader.i32()?;
                read_array(reader, false, |reader| classic_group(reader, topic))
            })
        }
        GroupProtocol::Consumer => parse(api, true, bytes, correlation_id, |reader| {
            let _throttle_ms = reader.i32()?;
            read_array(reader, true, |reader| consumer_group(reader, topic))
        }),
    };
    // One group was asked for.
    let missing = MessageError::Refused { api: api.name, error: GROUP_ID_NOT_FOUND };
    let (error, group) = groups?.into_iter().next().ok_or(missing)?;
    match error.is_none() {
        true => Ok(group),
        false => Err(MessageError::Refused { api: api.name, error }),
    }
}

fn classic_group(
    reader: &mut WireReader<'_>,
    topic: &str,
) -> Result<(ErrorCode, GroupDescription), WireError> {
    let error = ErrorCode(reader.i16()?);
    let _group = reader.string(false)?;
    let is_stable = reader.string(false)? == STABLE;
    let _protocol_type = reader.string(false)?;
    let _assignor = reader.string(false)?;
    let members = read_array(reader, false, |reader| {
        let id = reader.string(false)?.to_owned();
        let _client_id = reader.string(false)?;
        let host = reader.string(false)?.to_owned();
        let _subscription = bytes(reader)?;
        let partitions = classic_assignment(bytes(reader)?, topic)?;
        Ok(GroupMember { id, host, partitions })
    })?;
    Ok((error, GroupDescription { is_stable, members }))
}

fn bytes<'a>(reader: &mut WireReader<'a>) -> Result<&'a [u8], WireError> {
    let count = reader.array(false)?;
    reader.take(count)
}

/// The partitions of a topic in a member's assignment (`ConsumerProtocolAssignment`).
fn classic_assignment(assignment: &[u8], topic: &str) -> Result<Vec<i32>, WireError> {
    if assignment.is_empty() {
        return Ok(Vec::new());
    }
    let mut reader = WireReader::resume(assignment, 0);
    let _version = reader.i16()?;
    let topics = read_array(&mut reader, false, |reader| {
        let is_ours = reader.string(false)? == topic;
        let partitions = read_array(reader, false, |reader| reader.i32())?;
        Ok(if is_ours { partitions } else { Vec::new() })
    })?;
    Ok(topics.concat())
}

fn consumer_group(
    reader: &mut WireReader<'_>,
    topic: &str,
) -> Result<(ErrorCode, GroupDescription), WireError> {
    let error = ErrorCode(reader.i16()?);
    let _sentence = reader.nullable_string(true)?;
    let _group = reader.string(true)?;
    let is_stable = reader.string(true)? == STABLE;
    let _epochs = (reader.i32()?, reader.i32()?);
    let _assignor = reader.string(true)?;
    let members = read_array(reader, true, |reader| {
        let id = reader.string(true)?.to_owned();
        let _instance_and_rack = (reader.nullable_string(true)?, reader.nullable_string(true)?);
        let _epoch = reader.i32()?;
        let _client_id = reader.string(true)?;
        let host = reader.string(true)?.to_owned();
        let topics = reader.array(true)?;
        for _ in 0..topics {
            let _name = reader.string(true)?;
        }
        let _pattern = reader.nullable_string(true)?;
        let partitions = consumer_assignment(reader, topic)?;
        let _target = consumer_assignment(reader, topic)?;
        Ok(GroupMember { id, host, partitions })
    })?;
    let _operations = reader.i32()?;
    Ok((error, GroupDescription { is_stable, members }))
}

/// The partitions of a topic in an `Assignment`.
fn consumer_assignment(reader: &mut WireReader<'_>, topic: &str) -> Result<Vec<i32>, WireError> {
    let topics = read_array(reader, true, |reader| {
        let _topic_id = reader.u128()?;
        let is_ours = reader.string(true)? == topic;
        let mut partitions = Vec::new();
        for _ in 0..reader.array(true)? {
            partitions.push(reader.i32()?);
        }
        Ok(if is_ours { partitions } else { Vec::new() })
    })?;
    reader.skip_tagged_fields()?;
    Ok(topics.concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::wire::WireWriter;
    use ::bytes::Bytes;
    use kafka_protocol::messages::{ConsumerGroupDescribeResponse, DescribeGroupsResponse};
    use kafka_protocol::protocol::Decodable;
    use std::slice;

    const CLASSIC: GroupProtocol = GroupProtocol::Classic;
    const CONSUMER: GroupProtocol = GroupProtocol::Consumer;

    fn group(state: &str) -> GroupDescription {
        let member = |id: &str, partitions: &[i32]| GroupMember {
            id: id.to_owned(),
            host: "/10.0.0.7".to_owned(),
            partitions: partitions.to_vec(),
        };
        let members = vec![member("a", &[0, 3]), member("b", &[])];
        GroupDescription { is_stable: state == STABLE, members }
    }

    /// Topics of an assignment, one of them another one's.
    fn topics(member: &GroupMember) -> [(&str, &[i32]); 2] {
        [("others", &[7]), ("events", &member.partitions)]
    }

    /// A broker's answer to request 5.
    fn classic(error: i16, state: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = WireWriter::new(&mut bytes);
        writer.i32(5);
        writer.i32(0); // throttle time
        writer.array(1, false);
        writer.i16(error);
        for text in ["zones", state, "consumer", "cooperative-sticky"] {
            writer.string(text, false);
        }
        let members = group(state).members;
        writer.array(members.len(), false);
        for member in &members {
            for text in [&member.id, "huntd", &member.host] {
                writer.string(text, false);
            }
            writer.bytes(b"subscription", false);
            let mut assignment = Vec::new();
            if !member.partitions.is_empty() {
                let mut writer = WireWriter::new(&mut assignment);
                writer.i16(1);
                writer.array(2, false);
                for (topic, partitions) in topics(member) {
                    writer.string(topic, false);
                    writer.array(partitions.len(), false);
                    partitions.iter().for_each(|partition| writer.i32(*partition));
                }
                writer.i32(-1); // user data
            }
            writer.bytes(&assignment, false);
        }
        bytes
    }

    /// A broker's answer to request 5.
    fn consumer(error: i16, state: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = WireWriter::new(&mut bytes);
        writer.i32(5);
        writer.no_tagged_fields();
        writer.i32(0); // throttle time
        writer.array(1, true);
        writer.i16(error);
        writer.null_string(true);
        writer.string("zones", true);
        writer.string(state, true);
        writer.i32(8); // group epoch
        writer.i32(8); // assignment epoch
        writer.string("uniform", true);
        let members = group(state).members;
        writer.array(members.len(), true);
        for member in &members {
            writer.string(&member.id, true);
            writer.string("host-7", true);
            writer.null_string(true);
            writer.i32(8); // member epoch
            writer.string("huntd", true);
            writer.string(&member.host, true);
            writer.array(1, true);
            writer.string("events", true);
            writer.null_string(true);
            for _target in [false, true] {
                writer.array(2, true);
                for (topic, partitions) in topics(member) {
                    writer.raw(&[9; 16]);
                    writer.string(topic, true);
                    writer.array(partitions.len(), true);
                    partitions.iter().for_each(|partition| writer.i32(*partition));
                    writer.no_tagged_fields();
                }
                writer.no_tagged_fields();
            }
            writer.no_tagged_fields();
        }
        writer.i32(i32::MIN); // operations: not asked for
        writer.no_tagged_fields();
        writer.no_tagged_fields();
        bytes
    }

    #[test]
    fn while_a_group_is_rebalanced_its_members_own_what_they_did_and_newcomers_count() {
        let mut seen = SeenMembers::default();
        let unstable = |ids: &[&str]| {
            let member = |id: &&str| GroupMember {
                id: (*id).to_owned(),
                host: "/10.0.0.7".to_owned(),
                partitions: Vec::new(),
            };
            GroupDescription { is_stable: false, members: ids.iter().map(member).collect() }
        };
        let owned = |members: Option<Vec<GroupMember>>| {
            let members = members.into_iter().flatten();
            members.map(|it| (it.id, it.partitions)).collect::<Vec<_>>()
        };
        let [owner, b, c] = [("a", vec![0, 3]), ("b", Vec::new()), ("c", Vec::new())]
            .map(|(id, partitions)| (id.to_owned(), partitions));
        assert_eq!(seen.take(unstable(&["c"]), false), None);
        let newcomer = owned(seen.take(unstable(&["c"]), true));
        assert_eq!(newcomer, slice::from_ref(&c), "it has seen no owner");
        assert_eq!(owned(seen.take(group(STABLE), false)), [owner.clone(), b]);
        assert_eq!(seen.take(unstable(&["a", "c"]), false), None);
        assert_eq!(owned(seen.take(unstable(&["a", "c"]), true)), [owner, c]);
    }

    #[test]
    fn a_request_names_the_group() {
        for (protocol, key, version) in [(CLASSIC, 15, 1), (CONSUMER, 69, 0)] {
            let mut bytes = Vec::new();
            request(protocol, 5, "huntd", "zones", &mut bytes);
            let mut reader = WireReader::resume(&bytes, 4);
            assert_eq!((reader.i16(), reader.i16(), reader.i32()), (Ok(key), Ok(version), Ok(5)));
            assert!(bytes.windows(5).any(|word| word == b"zones"));
        }
    }

    #[test]
    fn an_answer_names_the_members_and_their_partitions_of_the_topic() {
        for state in [STABLE, "PreparingRebalance"] {
            let answer = parse_answer(CLASSIC, &classic(0, state), 5, "events");
            assert_eq!(answer, Ok(group(state)));
            let answer = parse_answer(CONSUMER, &consumer(0, state), 5, "events");
            assert_eq!(answer, Ok(group(state)));
        }
        let mut rest = Bytes::from(classic(0, STABLE).split_off(4));
        let theirs = DescribeGroupsResponse::decode(&mut rest, 1).expect("it is one");
        assert_eq!((theirs.groups[0].members.len(), rest.len()), (2, 0));
        let mut rest = Bytes::from(consumer(0, STABLE).split_off(5));
        let theirs = ConsumerGroupDescribeResponse::decode(&mut rest, 0).expect("it is one");
        let assigned = &theirs.groups[0].members[0].assignment.topic_partitions[1];
        assert_eq!((&assigned.partitions, rest.len()), (&vec![0, 3], 0));
    }

    #[test]
    fn an_answer_that_is_cut_or_an_error_is_no_group() {
        for (protocol, whole) in [(CLASSIC, classic(0, STABLE)), (CONSUMER, consumer(0, STABLE))] {
            // The array's last member ends the part that is read of the first protocol.
            for cut in 0..whole.len() - 2 {
                let answer = parse_answer(protocol, &whole[..cut], 5, "events");
                assert!(answer.is_err(), "{protocol:?} cut at {cut}");
            }
            assert!(parse_answer(protocol, &whole, 6, "events").is_err());
        }
        for (protocol, refused) in [(CLASSIC, classic(16, "")), (CONSUMER, consumer(16, ""))] {
            let refused = parse_answer(protocol, &refused, 5, "events");
            let api = name(protocol);
            assert_eq!(refused, Err(MessageError::Refused { api, error: ErrorCode(16) }));
        }
    }

    #[test]
    fn a_count_beyond_the_end_is_no_assignment() {
        let mut bytes = vec![0, 1];
        bytes.extend(i32::MAX.to_be_bytes());
        assert!(classic_assignment(&bytes, "events").is_err());
    }
}
