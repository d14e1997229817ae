//! The settings that huntd's topics must have. `huntd topics` creates topics with them. It checks
//! them, and so do `huntd check` and every start of the daemon.

use crate::kafka::record_batch::BROKER_BATCH_BYTES;
use crate::kafka::right::Right;
use crate::kafka::topic_requests::TopicSettings;
use crate::kit::event::RECORD_BYTES_MAX;
use crate::output::frame::FRAME_BYTES_MAX;

/// How far ahead of the broker's clock an event's timestamp may be: one bad clock must not run a
/// zone into the future.
const TIMESTAMP_AFTER_MS_MAX: u64 = 60_000;

/// Milliseconds of input and output that must be kept where snapshots are: a daemon that was down
/// for less than that finds what came after its snapshots.
const RETENTION_MS_MIN: u64 = 24 * 60 * 60 * 1_000;

/// Bytes of a segment of the topic for copies: a few copies of a busy zone.
const COPY_SEGMENT_BYTES: u64 = 128 * 1024 * 1024;

/// The topics of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TopicNames {
    /// With the events.
    pub input: String,
    /// For the updates.
    pub output: String,
    /// For records that are no events.
    pub dead_letters: String,
    /// For replicas of snapshots, if there are any.
    pub replicas: Option<String>,
    /// Whether there are snapshots at all, so that not all of the input has to be kept.
    pub keeps_snapshots: bool,
}

/// A topic, as it has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WantedTopic {
    /// Its name.
    pub name: String,
    /// Its partitions; `None`: any number is fine.
    pub partitions: Option<u16>,
    /// Its settings.
    pub settings: Vec<TopicSetting>,
}

/// A setting of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TopicSetting {
    /// Kafka's name.
    pub name: &'static str,
    /// What a topic is created with.
    pub value: String,
    rule: Rule,
    /// Whether the daemon cannot work without it.
    is_needed: bool,
    /// Whether every broker that huntd works with knows it: Kafka 3.3 and later.
    pub is_known_everywhere: bool,
}

/// When an existing setting is good enough.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    /// Exactly this value.
    Same,
    /// This number or more.
    AtLeast(u64),
    /// This number or less.
    AtMost(u64),
    /// This number or more, or -1, which is without a limit.
    AtLeastOrUnlimited(u64),
}

/// Something that is wrong with a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TopicProblem {
    /// What is wrong, and what to do.
    pub sentence: String,
    /// Whether the daemon cannot work until it is mended. With others it works, until a broker
    /// fails, a clock is wrong, or records get too old.
    pub is_fatal: bool,
}

impl TopicNames {
    /// All topics as they have to be. How many replicas input and output have decides how many of
    /// them must be in sync.
    pub(crate) fn wanted(
        &self,
        partitions: u16,
        [of_input, of_output]: [u16; 2],
    ) -> Vec<WantedTopic> {
        let mut wanted = vec![
            wanted_input(&self.input, partitions, of_input, self.keeps_snapshots),
            wanted_output(&self.output, partitions, of_output, self.keeps_snapshots),
            wanted_dead_letters(&self.dead_letters),
        ];
        wanted.extend(self.replicas.as_ref().map(|topic| wanted_replicas(topic, partitions)));
        wanted
    }

    /// The topics that have to be there: input, output, dead letters, with what the daemon needs
    /// of each.
    pub(crate) fn needed(&self) -> [(&String, Right); 3] {
        [
            (&self.input, Right::ReadAndWrite),
            (&self.output, Right::ReadAndWrite),
            (&self.dead_letters, Right::Write),
        ]
    }

    /// All topics, with what the daemon needs of each.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&String, Right)> {
        let replicas = self.replicas.iter().map(|topic| (topic, Right::ReadAndWrite));
        self.needed().into_iter().chain(replicas)
    }
}

fn setting(name: &'static str, value: impl ToString, rule: Rule) -> TopicSetting {
    TopicSetting {
        name,
        value: value.to_string(),
        rule,
        is_needed: false,
        is_known_everywhere: true,
    }
}

/// Records expire by age. With compaction, a broker refuses frames, which have no key, and deletes
/// events that a replay needs, and dead letters without a value.
fn deleted_by_age() -> TopicSetting {
    TopicSetting { is_needed: true, ..setting("cleanup.policy", "delete", Rule::Same) }
}

/// A shard is rebuilt from its newest snapshot, or else from the start of its input, and the output
/// says what was published and what was skipped on the way.
fn kept_for_replays(keeps_snapshots: bool) -> [TopicSetting; 2] {
    let age = match keeps_snapshots {
        true => Rule::AtLeastOrUnlimited(RETENTION_MS_MIN),
        false => Rule::Same,
    };
    [setting("retention.ms", -1, age), setting("retention.bytes", -1, Rule::Same)]
}

/// A log that is cut short after an acknowledgement breaks any recovery.
fn kept_by_brokers(replicas: u16) -> [TopicSetting; 2] {
    let in_sync = replicas.min(2);
    [
        setting("unclean.leader.election.enable", "false", Rule::Same),
        setting("min.insync.replicas", in_sync, Rule::AtLeast(in_sync.into())),
    ]
}

fn wanted_input(name: &str, partitions: u16, replicas: u16, keeps_snapshots: bool) -> WantedTopic {
    let after = TIMESTAMP_AFTER_MS_MAX;
    let [age, bytes] = kept_for_replays(keeps_snapshots);
    let [election, in_sync] = kept_by_brokers(replicas);
    WantedTopic {
        name: name.to_owned(),
        partitions: Some(partitions),
        settings: vec![
            // A shard's clock is made of the producers' timestamps.
            setting("message.timestamp.type", "CreateTime", Rule::Same),
            // From Kafka 3.6 on (KIP-937).
            TopicSetting {
                is_known_everywhere: false,
                ..setting("message.timestamp.after.max.ms", after, Rule::AtMost(after))
            },
            deleted_by_age(),
            age,
            bytes,
            election,
            in_sync,
        ],
    }
}

fn wanted_output(name: &str, partitions: u16, replicas: u16, keeps_snapshots: bool) -> WantedTopic {
    let [age, bytes_kept] = kept_for_replays(keeps_snapshots);
    let [election, in_sync] = kept_by_brokers(replicas);
    // A frame, and what the batch around it needs.
    let bytes = (FRAME_BYTES_MAX + RECORD_BYTES_MAX) as u64;
    WantedTopic {
        name: name.to_owned(),
        partitions: Some(partitions),
        settings: vec![
            deleted_by_age(),
            age,
            bytes_kept,
            election,
            in_sync,
            setting("max.message.bytes", BROKER_BATCH_BYTES, Rule::AtLeast(bytes)),
        ],
    }
}

/// Every letter fits into what a topic with default settings takes.
fn wanted_dead_letters(name: &str) -> WantedTopic {
    let bytes = BROKER_BATCH_BYTES;
    let settings =
        vec![deleted_by_age(), setting("max.message.bytes", bytes, Rule::AtLeast(bytes as u64))];
    WantedTopic { name: name.to_owned(), partitions: None, settings }
}

fn wanted_replicas(name: &str, partitions: u16) -> WantedTopic {
    let bytes = (FRAME_BYTES_MAX + RECORD_BYTES_MAX) as u64;
    WantedTopic {
        name: name.to_owned(),
        partitions: Some(partitions),
        settings: vec![
            setting("cleanup.policy", "compact", Rule::Same),
            setting("max.message.bytes", BROKER_BATCH_BYTES, Rule::AtLeast(bytes)),
            // Only closed segments are compacted, so small segments keep little garbage.
            setting("segment.bytes", COPY_SEGMENT_BYTES, Rule::AtMost(1 << 30)),
        ],
    }
}

impl WantedTopic {
    /// What is wrong with the settings that this topic has.
    pub(crate) fn problems(&self, settings: &TopicSettings) -> Vec<TopicProblem> {
        let problem = |setting: &TopicSetting| {
            let sentence = setting.problem(&self.name, settings)?;
            Some(TopicProblem { sentence, is_fatal: setting.is_needed })
        };
        self.settings.iter().filter_map(problem).collect()
    }
}

impl TopicSetting {
    /// What is wrong with the setting of an existing topic, if anything is.
    fn problem(&self, topic: &str, settings: &TopicSettings) -> Option<String> {
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
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> TopicSettings {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn problems(wanted: &WantedTopic, pairs: &[(&str, &str)]) -> Vec<String> {
        let problems = wanted.problems(&settings(pairs));
        problems.into_iter().map(|problem| problem.sentence).collect()
    }

    #[test]
    fn a_topic_as_it_is_created_has_no_problem() {
        let of_both =
            |snapshots| [wanted_input("t", 4, 3, snapshots), wanted_output("t", 4, 3, snapshots)];
        for wanted in of_both(false).into_iter().chain(of_both(true)) {
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
        let found = problems(&wanted_input("t", 4, 3, false), &pairs);
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
        for wanted in [wanted_input("t", 4, 3, true), wanted_output("t", 4, 3, true)] {
            assert_eq!(problems(&wanted, &pairs).len(), 2);
        }
    }

    #[test]
    fn input_and_output_may_be_deleted_after_a_day_where_snapshots_are_kept() {
        let found = |snapshots, ms| {
            let wanted = [wanted_input("t", 4, 3, snapshots), wanted_output("t", 4, 3, snapshots)];
            let [input, output] = wanted.map(|topic| problems(&topic, &[("retention.ms", ms)]));
            assert_eq!(input, output);
            input
        };
        for ms in ["-1", "86400000", "604800000"] {
            assert_eq!(found(true, ms), Vec::<String>::new());
        }
        let too_short = ["`t` has retention.ms = 3600000; set it to at least 86400000, or -1"];
        assert_eq!(found(true, "3600000"), too_short);
        assert_eq!(found(false, "604800000"), ["`t` has retention.ms = 604800000; set it to -1"]);
    }

    #[test]
    fn only_a_topic_whose_records_go_by_their_keys_is_one_that_the_daemon_cannot_work_with() {
        let names = TopicNames {
            input: "in".to_owned(),
            output: "out".to_owned(),
            dead_letters: "dead".to_owned(),
            replicas: Some("copies".to_owned()),
            keeps_snapshots: true,
        };
        let wrong = [
            ("cleanup.policy", "compact,delete"),
            ("retention.ms", "1"),
            ("min.insync.replicas", "1"),
            ("max.message.bytes", "1"),
        ];
        let fatal = |wanted: &WantedTopic| -> Vec<String> {
            let problems = wanted.problems(&settings(&wrong));
            let fatal = problems.into_iter().filter(|problem| problem.is_fatal);
            fatal.map(|problem| problem.sentence).collect()
        };
        let found: Vec<String> = names.wanted(4, [3, 3]).iter().flat_map(fatal).collect();
        let sentence =
            |name| format!("`{name}` has cleanup.policy = compact,delete; set it to delete");
        assert_eq!(found, ["in", "out", "dead"].map(sentence));
    }

    #[test]
    fn settings_that_an_old_broker_does_not_know_are_no_problem() {
        assert!(problems(&wanted_input("t", 4, 3, false), &[]).is_empty());
    }
}
