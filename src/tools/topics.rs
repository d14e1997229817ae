//! `huntd topics`: creates the topics, or checks that they are what huntd relies on.

use super::brokers;
use super::failure::ToolError;
use crate::engine::event::RECORD_BYTES_MAX;
use crate::kafka::client::client_config;
use crate::kafka::record_batch::BROKER_BATCH_BYTES;
use crate::output::frame::FRAME_BYTES_MAX;
use crate::service::cli::TopicsArgs;
use crate::service::config;
use futures_lite::future::block_on;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::metadata::MetadataTopic;
use rdkafka::types::RDKafkaErrorCode;
use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

/// Partitions of topics to create, if nobody says another number.
const PARTITIONS: u16 = 4;

/// Copies of each partition, if nobody says another number.
const REPLICAS: u16 = 1;

/// The longest wait for an answer.
const ANSWER_WAIT: Duration = Duration::from_secs(15);

/// How far ahead of the broker's clock an event's timestamp may be: one bad clock must not run a
/// zone into the future.
const TIMESTAMP_AFTER_MS_MAX: u64 = 60_000;

/// Milliseconds of input that must be kept where snapshots are: a daemon that was down for less
/// than that finds what came after its snapshots.
const RETENTION_MS_MIN: u64 = 24 * 60 * 60 * 1_000;

/// Bytes of a segment of the topic for copies: a few copies of a busy zone.
const COPY_SEGMENT_BYTES: u64 = 128 * 1024 * 1024;

/// A topic, as it has to be.
struct Wanted {
    name: String,
    /// `None`: any number is fine.
    partitions: Option<u16>,
    settings: Vec<Setting>,
}

/// A setting of a topic.
struct Setting {
    name: &'static str,
    value: String,
    rule: Rule,
}

/// When an existing setting is good enough.
enum Rule {
    /// The same value.
    Same,
    /// This number or more.
    AtLeast(u64),
    /// This number or less.
    AtMost(u64),
    /// This number or more, or -1, which is without a limit.
    AtLeastOrUnlimited(u64),
}

/// What one topic turned out to be.
struct Found {
    partitions: usize,
    replicas: usize,
    created: bool,
}

/// Creates what is missing, checks what is there, and prints a table. All that is wrong makes one
/// sentence.
pub fn run(args: &TopicsArgs) -> Result<(), ToolError> {
    let config = config::load(&args.config.file, &args.config.set)?;
    brokers::reach(&config.group.client.brokers)?;
    let client = &config.group.client;
    let client_config = client_config(client);
    let unreachable = |error: KafkaError| ToolError::Unreachable(error.to_string());
    let broker = Broker {
        admin: client_config.create().map_err(unreachable)?,
        consumer: client_config.create().map_err(unreachable)?,
    };
    broker.has_room_for(args.replicas)?;
    let file = args.config.file.display();
    let input = &config.fetch.input_topic;
    let partitions = match broker.topic(input)? {
        Some(found) => found.partitions as u16,
        None => args.partitions.unwrap_or(PARTITIONS),
    };
    let output = &config.publisher.output_topic;
    // How many copies there are decides how many of them must be in sync.
    let replicas = match broker.topic(output)? {
        Some(found) => found.replicas as u16,
        None => args.replicas.unwrap_or(REPLICAS),
    };
    let keeps_snapshots = config.snapshot.directory.is_some() || config.snapshot.topic.is_some();
    let mut wanted = vec![
        wanted_input(input, partitions, keeps_snapshots),
        wanted_output(output, partitions, replicas),
        wanted_dead_letters(&config.publisher.dead_letter_topic),
    ];
    wanted.extend(config.snapshot.topic.map(|topic| wanted_copies(&topic, partitions)));
    let mut out = std::io::stdout().lock();
    let (mut missing, mut problems) = (Vec::new(), Vec::new());
    for topic in &wanted {
        let found = broker.find_or_create(topic, args)?;
        if found.is_none() {
            missing.push(format!("`{}`", topic.name));
        }
        broker.check(topic, found.as_ref(), &mut problems)?;
        let name = &topic.name;
        match found {
            None => writeln!(out, "{name:<32} missing")?,
            Some(Found { partitions, replicas, created }) => {
                let state = if created { "created" } else { "checked" };
                writeln!(out, "{name:<32} {state}  {partitions} partitions  {replicas} replicas")?;
                if !created {
                    report_unmet(name, "--partitions", args.partitions, partitions)?;
                    report_unmet(name, "--replicas", args.replicas, replicas)?;
                }
            }
        }
    }
    if !missing.is_empty() {
        let missing = missing.join(", ");
        problems.push(format!("create {missing} with `huntd topics --config {file}`"));
    }
    if problems.is_empty() { Ok(()) } else { Err(ToolError::TopicWrong(problems.join("; "))) }
}

/// A number that was asked for is for topics to create: it changes none that is there.
fn report_unmet(
    name: &str,
    argument: &str,
    wish: Option<u16>,
    there: usize,
) -> std::io::Result<()> {
    match wish {
        Some(wish) if usize::from(wish) != there => writeln!(
            std::io::stderr(),
            "`{name}` is there already and stays as it is: {argument} {wish} is for new topics"
        ),
        _ => Ok(()),
    }
}

fn setting(name: &'static str, value: impl ToString, rule: Rule) -> Setting {
    Setting { name, value: value.to_string(), rule }
}

fn wanted_input(name: &str, partitions: u16, keeps_snapshots: bool) -> Wanted {
    let after = TIMESTAMP_AFTER_MS_MAX;
    // Without snapshots a shard is rebuilt from the start of its input.
    let retention = match keeps_snapshots {
        true => Rule::AtLeastOrUnlimited(RETENTION_MS_MIN),
        false => Rule::Same,
    };
    Wanted {
        name: name.to_owned(),
        partitions: Some(partitions),
        settings: vec![
            // A shard's clock is made of the producers' timestamps.
            setting("message.timestamp.type", "CreateTime", Rule::Same),
            setting("message.timestamp.after.max.ms", after, Rule::AtMost(after)),
            setting("cleanup.policy", "delete", Rule::Same),
            setting("retention.ms", -1, retention),
            setting("retention.bytes", -1, Rule::Same),
        ],
    }
}

fn wanted_output(name: &str, partitions: u16, replicas: u16) -> Wanted {
    let in_sync = replicas.min(2);
    // A frame, and what the batch around it needs.
    let bytes = (FRAME_BYTES_MAX + RECORD_BYTES_MAX) as u64;
    Wanted {
        name: name.to_owned(),
        partitions: Some(partitions),
        settings: vec![
            setting("cleanup.policy", "delete", Rule::Same),
            // A log that is cut short after an acknowledgement breaks any recovery.
            setting("unclean.leader.election.enable", "false", Rule::Same),
            setting("min.insync.replicas", in_sync, Rule::AtLeast(in_sync.into())),
            setting("max.message.bytes", BROKER_BATCH_BYTES, Rule::AtLeast(bytes)),
        ],
    }
}

/// Every letter fits into what a topic with default settings takes.
fn wanted_dead_letters(name: &str) -> Wanted {
    let bytes = BROKER_BATCH_BYTES;
    let settings = vec![
        setting("cleanup.policy", "delete", Rule::Same),
        setting("max.message.bytes", bytes, Rule::AtLeast(bytes as u64)),
    ];
    Wanted { name: name.to_owned(), partitions: None, settings }
}

fn wanted_copies(name: &str, partitions: u16) -> Wanted {
    let bytes = (FRAME_BYTES_MAX + RECORD_BYTES_MAX) as u64;
    Wanted {
        name: name.to_owned(),
        partitions: Some(partitions),
        settings: vec![
            setting("cleanup.policy", "compact", Rule::Same),
            setting("max.message.bytes", BROKER_BATCH_BYTES, Rule::AtLeast(bytes)),
            // Only closed segments are compacted: with small ones little is kept that nobody needs.
            setting("segment.bytes", COPY_SEGMENT_BYTES, Rule::AtMost(1 << 30)),
        ],
    }
}

struct Broker {
    admin: AdminClient<DefaultClientContext>,
    consumer: BaseConsumer,
}

impl Broker {
    /// Each copy of a partition is on a broker of its own.
    fn has_room_for(&self, replicas: Option<u16>) -> Result<(), ToolError> {
        let metadata = self
            .consumer
            .fetch_metadata(None, ANSWER_WAIT)
            .map_err(|error| ToolError::Unreachable(error.to_string()))?;
        let (brokers, replicas) = (metadata.brokers().len(), replicas.unwrap_or(REPLICAS));
        match usize::from(replicas) <= brokers {
            true => Ok(()),
            false => Err(ToolError::Usage(format!(
                "--replicas {replicas} needs as many brokers, and the cluster has {brokers}: ask \
                 for {brokers} at most, or start the others"
            ))),
        }
    }

    /// What the cluster knows of a topic, without creating it.
    fn topic(&self, name: &str) -> Result<Option<Found>, ToolError> {
        let metadata = self
            .consumer
            .fetch_metadata(Some(name), ANSWER_WAIT)
            .map_err(|error| ToolError::of_topic(name, &error))?;
        let found = |topic: &&MetadataTopic| topic.name() == name;
        let Some(topic) = metadata.topics().iter().find(found) else {
            return Ok(None);
        };
        if let Some(error) = topic.error() {
            let error = KafkaError::MetadataFetch(error.into());
            return match ToolError::of_topic(name, &error) {
                ToolError::TopicMissing(_) => Ok(None),
                other => Err(other),
            };
        }
        let partitions = topic.partitions();
        let replicas = partitions.iter().map(|partition| partition.replicas().len()).min();
        let replicas = replicas.unwrap_or(0);
        Ok(Some(Found { partitions: partitions.len(), replicas, created: false }))
    }

    fn find_or_create(
        &self,
        wanted: &Wanted,
        args: &TopicsArgs,
    ) -> Result<Option<Found>, ToolError> {
        let found = self.topic(&wanted.name)?;
        if found.is_some() || args.check {
            return Ok(found);
        }
        let partitions = wanted.partitions.or(args.partitions).unwrap_or(PARTITIONS);
        let replicas = args.replicas.unwrap_or(REPLICAS);
        let copies = TopicReplication::Fixed(replicas.into());
        let mut topic = NewTopic::new(&wanted.name, i32::from(partitions), copies);
        for setting in &wanted.settings {
            topic = topic.set(setting.name, &setting.value);
        }
        let options = AdminOptions::new().operation_timeout(Some(ANSWER_WAIT));
        let created = block_on(self.admin.create_topics([&topic], &options))
            .map_err(|error| ToolError::of_topic(&wanted.name, &error))?;
        for result in created {
            match result {
                // Somebody else was quicker; what they created is checked.
                Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
                Err((name, code)) => return Err(not_created(&name, code)),
            }
        }
        let (partitions, replicas) = (usize::from(partitions), usize::from(replicas));
        Ok(Some(Found { partitions, replicas, created: true }))
    }

    fn check(
        &self,
        wanted: &Wanted,
        found: Option<&Found>,
        problems: &mut Vec<String>,
    ) -> Result<(), ToolError> {
        let name = &wanted.name;
        let Some(found) = found else {
            return Ok(());
        };
        if let Some(partitions) = wanted.partitions
            && usize::from(partitions) != found.partitions
        {
            problems.push(format!(
                "`{name}` has {} partitions and must have {partitions}, as the input topic has",
                found.partitions
            ));
        }
        // What was created a moment ago may not be known on every broker yet.
        if !found.created {
            let settings = self.settings(name)?;
            problems.extend(wanted.settings.iter().filter_map(|s| s.problem(name, &settings)));
        }
        Ok(())
    }

    fn settings(&self, name: &str) -> Result<BTreeMap<String, String>, ToolError> {
        let options = AdminOptions::new().request_timeout(Some(ANSWER_WAIT));
        let described =
            block_on(self.admin.describe_configs([&ResourceSpecifier::Topic(name)], &options))
                .map_err(|error| ToolError::of_topic(name, &error))?;
        let mut settings = BTreeMap::new();
        for resource in described {
            let resource =
                resource.map_err(|code| ToolError::of_topic(name, &KafkaError::AdminOp(code)))?;
            for entry in resource.entries {
                settings.extend(entry.value.map(|value| (entry.name, value)));
            }
        }
        // Every topic has settings; rdkafka leaves out why there are none.
        if settings.is_empty() {
            let (topic, rights) = (name.to_owned(), "DESCRIBE_CONFIGS");
            return Err(ToolError::NotAuthorised { topic, rights });
        }
        Ok(settings)
    }
}

fn not_created(name: &str, code: RDKafkaErrorCode) -> ToolError {
    match ToolError::of_topic(name, &KafkaError::AdminOp(code)) {
        ToolError::Unreachable(_) => ToolError::TopicWrong(format!(
            "`{name}` was not created: {code}; check --partitions, --replicas and the brokers' \
             version, which must be 3.6 or later"
        )),
        other => other.wanting("CREATE"),
    }
}

impl Setting {
    /// What is wrong with the setting of an existing topic, if anything is.
    fn problem(&self, topic: &str, settings: &BTreeMap<String, String>) -> Option<String> {
        let value = settings.get(self.name)?;
        let number = value.parse::<u64>().ok();
        let (fits, wanted) = match self.rule {
            Rule::Same => (*value == self.value, self.value.clone()),
            Rule::AtLeast(least) => (number >= Some(least), format!("at least {least}")),
            Rule::AtMost(most) => {
                (number.is_some_and(|number| number <= most), format!("at most {most}"))
            }
            Rule::AtLeastOrUnlimited(least) => {
                (value == "-1" || number >= Some(least), format!("at least {least}, or -1"))
            }
        };
        (!fits).then(|| format!("`{topic}` has {} = {value}; set it to {wanted}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::{wanted_input, wanted_output};
    use std::collections::BTreeMap;

    fn settings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn problems(wanted: &super::Wanted, pairs: &[(&str, &str)]) -> Vec<String> {
        let settings = settings(pairs);
        wanted.settings.iter().filter_map(|s| s.problem("t", &settings)).collect()
    }

    #[test]
    fn a_topic_as_it_is_created_has_no_problem() {
        for wanted in
            [wanted_input("t", 4, false), wanted_input("t", 4, true), wanted_output("t", 4, 3)]
        {
            let pairs: Vec<(&str, &str)> =
                wanted.settings.iter().map(|s| (s.name, s.value.as_str())).collect();
            assert_eq!(problems(&wanted, &pairs), Vec::<String>::new());
        }
    }

    #[test]
    fn each_wrong_setting_is_named_with_what_it_should_be() {
        let pairs = [
            ("message.timestamp.type", "LogAppendTime"),
            ("message.timestamp.after.max.ms", "9223372036854775807"),
            ("cleanup.policy", "compact"),
        ];
        let found = problems(&wanted_input("t", 4, false), &pairs);
        assert_eq!(
            found,
            [
                "`t` has message.timestamp.type = LogAppendTime; set it to CreateTime",
                "`t` has message.timestamp.after.max.ms = 9223372036854775807; \
                 set it to at most 60000",
                "`t` has cleanup.policy = compact; set it to delete",
            ]
        );
        let pairs = [("unclean.leader.election.enable", "true"), ("min.insync.replicas", "1")];
        assert_eq!(problems(&wanted_output("t", 4, 3), &pairs).len(), 2);
    }

    #[test]
    fn input_may_be_deleted_after_a_day_where_snapshots_are_kept() {
        let found =
            |snapshots, ms| problems(&wanted_input("t", 4, snapshots), &[("retention.ms", ms)]);
        for ms in ["-1", "86400000", "604800000"] {
            assert_eq!(found(true, ms), Vec::<String>::new());
        }
        let too_short = ["`t` has retention.ms = 3600000; set it to at least 86400000, or -1"];
        assert_eq!(found(true, "3600000"), too_short);
        assert_eq!(found(false, "604800000"), ["`t` has retention.ms = 604800000; set it to -1"]);
    }

    #[test]
    fn settings_that_an_old_broker_does_not_know_are_no_problem() {
        assert!(problems(&wanted_input("t", 4, false), &[]).is_empty());
    }
}
