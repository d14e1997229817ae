//! The configuration as in its file: one type per section, one field per key.

use serde::Deserialize;

/// The whole file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    pub(super) kafka: WrittenKafka,
    #[serde(rename = "kafka.tls")]
    pub(super) tls: WrittenTls,
    #[serde(rename = "kafka.sasl")]
    pub(super) sasl: WrittenSasl,
    pub(super) fetch: WrittenFetch,
    pub(super) input: WrittenInput,
    pub(super) publish: WrittenPublish,
    pub(super) snapshot: WrittenSnapshot,
    pub(super) cpu: WrittenCpu,
    pub(super) rules: WrittenRules,
    pub(super) service: WrittenService,
    pub(super) serve: WrittenServe,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenKafka {
    pub(super) brokers: Vec<String>,
    pub(super) client_id: String,
    pub(super) group: String,
    pub(super) group_instance_id: String,
    pub(super) group_protocol: String,
    pub(super) session_timeout_ms: i64,
    pub(super) input_topic: String,
    pub(super) output_topic: String,
    pub(super) dead_letter_topic: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenTls {
    pub(super) enabled: bool,
    pub(super) ca_file: String,
    pub(super) certificate_file: String,
    pub(super) key_file: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenSasl {
    pub(super) mechanism: String,
    pub(super) user: String,
    pub(super) secret_file: String,
    pub(super) token_file: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenFetch {
    pub(super) connections_per_broker: i64,
    pub(super) wait_ms_max: i64,
    pub(super) bytes_max: i64,
    pub(super) partition_bytes_max: i64,
    pub(super) receive_buffer_bytes: i64,
    pub(super) batch_bytes_max: i64,
    pub(super) read_committed: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenInput {
    pub(super) tick_every_ms: i64,
    pub(super) carry_players: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenPublish {
    pub(super) format: String,
    pub(super) compression: String,
    pub(super) linger_us_max: i64,
    pub(super) frames_per_shard: i64,
    pub(super) queue_kbytes_max: i64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenSnapshot {
    pub(super) directory: String,
    pub(super) every_ms: i64,
    pub(super) keep: i64,
    pub(super) topic: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenCpu {
    pub(super) hot_core: String,
    pub(super) helper_cores: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenRules {
    pub(super) files: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenService {
    pub(super) listen: String,
    pub(super) log_format: String,
    pub(super) log_level: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenServe {
    pub(super) listen: String,
    pub(super) share_address: bool,
    pub(super) keys: String,
    pub(super) audience: String,
    pub(super) requests_per_s: i64,
    pub(super) player_requests_per_s: i64,
    pub(super) origins: Vec<String>,
}
