//! A blocking connection to a broker that speaks with huntd's own protocol code.

use std::io::{Read, Write};
use std::net::TcpStream;
use support::PATIENCE;

use huntd::kafka::aborted::{AbortedTransaction, AbortedTransactions};
use huntd::kafka::codec::Decompressor;
use huntd::kafka::error_code::ErrorCode;
use huntd::kafka::fetch::{self, FetchPartition, FetchRequest};
use huntd::kafka::message::{
    API_VERSIONS_VERSION_MAX, ApiVersionsAnswer, Envelope, Metadata, Versions,
    api_versions_request, frame_length, metadata_request, parse_api_versions, parse_metadata,
};
use huntd::kafka::record_batch::{BatchStart, scan_headers};

use huntd::testing::batch_builder::{BATCH_BYTES_MAX, Owned, read_committed};

const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What a Fetch of one partition brings.
pub(crate) struct Fetched {
    pub(crate) error: ErrorCode,
    pub(crate) aborted: Vec<AbortedTransaction>,
    pub(crate) records: Vec<u8>,
}

pub(crate) struct Connection {
    stream: TcpStream,
    correlation_id: i32,
    pub(crate) versions: Versions,
}

impl Connection {
    /// Connects and negotiates versions; says with which ApiVersions version that succeeded.
    pub(crate) fn open(address: &str) -> (Connection, i16) {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let versions =
            Versions { fetch: 0, produce: 0, init_producer_id: 0, tells_settings: false };
        let mut connection = Connection { stream, correlation_id: 0, versions };
        let mut version = API_VERSIONS_VERSION_MAX;
        loop {
            let (id, bytes) = connection.ask(version, api_versions_request);
            match parse_api_versions(&bytes, version, id).unwrap() {
                ApiVersionsAnswer::Chosen(versions) => {
                    connection.versions = versions;
                    return (connection, version);
                }
                ApiVersionsAnswer::AskWithVersionZero => version = 0,
            }
        }
    }

    fn ask(
        &mut self,
        version: i16,
        encode: impl FnOnce(Envelope<'_>, &mut Vec<u8>),
    ) -> (i32, Vec<u8>) {
        self.correlation_id += 1;
        let correlation_id = self.correlation_id;
        let mut request = Vec::new();
        encode(Envelope { version, correlation_id, client_id: "huntd-test" }, &mut request);
        self.stream.write_all(&request).unwrap();
        let mut prefix = [0; 4];
        self.stream.read_exact(&mut prefix).unwrap();
        let length = frame_length(&prefix, ANSWER_BYTES_MAX).unwrap().unwrap();
        let mut answer = vec![0; length];
        self.stream.read_exact(&mut answer).unwrap();
        (correlation_id, answer)
    }

    pub(crate) fn metadata(&mut self, topic: &str) -> Metadata {
        let (id, bytes) = self.ask(0, |Envelope { correlation_id, client_id, .. }, out| {
            metadata_request(correlation_id, client_id, topic, out);
        });
        parse_metadata(&bytes, id, topic).unwrap()
    }

    /// One Fetch of one partition; gives its error and its record batches as they came.
    pub(crate) fn fetch_once(
        &mut self,
        version: i16,
        topic: &str,
        partition: FetchPartition,
    ) -> Fetched {
        let asked = partition.partition;
        let topic_id = self.metadata(topic).topic_id;
        let (id, bytes) = self.ask(version, |envelope, out| {
            let request = FetchRequest {
                version,
                correlation_id: envelope.correlation_id,
                client_id: envelope.client_id,
                topic_id,
                wait_ms_max: 1,
                bytes_min: 1,
                bytes_max: 1 << 20,
                read_committed: true,
                partitions: &[partition],
            };
            fetch::encode(&request, out);
        });
        let response = fetch::parse(&bytes, id).unwrap();
        assert!(response.error.is_none());
        let mut partitions = response.partitions;
        let fetched = partitions.next_partition(&bytes, topic_id).unwrap().unwrap();
        assert_eq!(fetched.partition, asked);
        assert_eq!(partitions.next_partition(&bytes, topic_id), Ok(None));
        Fetched {
            error: fetched.error,
            aborted: fetched.aborted.iter(&bytes).collect(),
            records: bytes[fetched.records].to_vec(),
        }
    }

    /// Fetches a partition from `offset` on until `end`; gives all its committed records.
    pub(crate) fn drain(
        &mut self,
        version: i16,
        topic: &str,
        partition: i32,
        mut offset: i64,
        end: i64,
    ) -> Vec<Owned> {
        let mut decompressor = Decompressor::new(BATCH_BYTES_MAX);
        let mut aborted = AbortedTransactions::new();
        let mut all = Vec::new();
        while offset < end {
            let bytes_max = 100_000;
            let (leader_epoch, last_fetched_epoch) = (-1, -1);
            let asked =
                FetchPartition { partition, offset, leader_epoch, last_fetched_epoch, bytes_max };
            let mut fetched = self.fetch_once(version, topic, asked);
            assert_eq!(fetched.error, ErrorCode::NONE);
            let start = BatchStart::up_to(offset);
            let walked = scan_headers(&fetched.records, offset, start, BATCH_BYTES_MAX).unwrap();
            aborted.load(fetched.aborted.into_iter());
            let committed =
                read_committed(&mut fetched.records, offset, &mut aborted, &mut decompressor);
            all.extend(committed);
            assert!(all.last().is_none_or(|last: &Owned| last.offset < walked.next_offset));
            offset = walked.next_offset;
        }
        all
    }
}
