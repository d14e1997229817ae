//! The configuration: `Written` as in the file, [`Config`] as validated.
//!
//! Everything that can be checked without the network is checked here, before the first socket is
//! opened. Each stage takes its own options from [`Config`]; nothing reads the configuration later.

use super::schema::{Limit, Limits};
use super::settings::{self, ConfigError, ConfigErrors, Settings, variables};
use super::written::{Written, WrittenCpu, WrittenPublish, WrittenService, WrittenSnapshot};
use crate::fetch::FetchOptions;
use crate::kafka::client::ClientOptions;
use crate::kafka::group::{GroupOptions, GroupProtocol};
use crate::kit::rulebook::RULES_FILES_MAX;
use crate::output::frame::{Compression, FRAME_BYTES_MAX, Format};
use crate::ownership::acquisition::Remedy;
use crate::shards::{LINGER_US_MAX, SHARD_FRAMES_MAX, ShardOptions};
use crate::{fetch, kafka, publisher, runtime, snapshot};
use serde::Deserialize;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The validated configuration, in one part per stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where to read it again; `None` if it was made from a text.
    pub(crate) source: Option<ConfigSource>,
    /// Options of the group membership.
    pub group: GroupOptions,
    /// Options of the fetch path.
    pub fetch: FetchOptions,
    /// Options of the publisher.
    pub publisher: publisher::PublisherOptions,
    /// Options of the shards.
    pub shards: ShardOptions,
    /// Options of snapshots.
    pub snapshot: snapshot::SnapshotOptions,
    /// Remedy for a shard without a usable state; set on the command line.
    pub remedy: Remedy,
    /// Options of the hot thread.
    pub runtime: runtime::RuntimeOptions,
    /// The files with the game's rules, the first for new zones. If empty, the built-in rules are
    /// used.
    pub rules_files: Vec<PathBuf>,
    /// Options of the service thread.
    pub service: super::ServiceOptions,
    /// Options of `huntd serve`.
    pub serve: super::ServeOptions,
}

/// The source of a configuration, and its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigSource {
    /// The file.
    pub file: PathBuf,
    /// The `--set` arguments.
    pub arguments: Vec<String>,
    /// Every value as written, by `section.key`.
    pub values: BTreeMap<String, String>,
}

/// Reads a file and the process's environment, and applies the settings of the command line.
pub(crate) fn load(file: &Path, arguments: &[String]) -> Result<Config, ConfigErrors> {
    let text = settings::read_file(file)?;
    let variables = variables(std::env::vars_os())?;
    let name = file.display().to_string();
    let (config, settings) = parse_layers(&name, &text, variables.into_iter(), arguments)?;
    let (file, arguments) = (file.to_owned(), arguments.to_vec());
    let source = ConfigSource { file, arguments, values: settings.by_path() };
    Ok(Config { source: Some(source), ..config })
}

/// Parses a configuration from a text and environment variables. `file` is the text's name.
pub fn parse(
    file: &str,
    text: &str,
    variables: impl Iterator<Item = (String, String)>,
) -> Result<Config, ConfigErrors> {
    parse_layers(file, text, variables, &[]).map(|(config, _)| config)
}

fn parse_layers(
    file: &str,
    text: &str,
    variables: impl Iterator<Item = (String, String)>,
    arguments: &[String],
) -> Result<(Config, Settings), ConfigErrors> {
    let mut settings = Settings::defaults();
    let mut errors = settings.lay_file(file, text);
    let mut state_directory = None;
    errors.extend(settings.lay_environment(variables.inspect(|(name, text)| {
        if name == STATE_DIRECTORY {
            state_directory = first_directory(text);
        }
    })));
    errors.extend(arguments.iter().filter_map(|argument| settings.lay_argument(argument).err()));
    // Replaces each refused value by its default, to find all other errors.
    let mut config = loop {
        let error = match check(&settings) {
            Ok(config) if errors.is_empty() => break config,
            Ok(_) => return Err(ConfigErrors(errors)),
            Err(error) => error,
        };
        let is_known = errors.iter().any(|known| known.value_of == error.value_of);
        let Some((section, key)) = error.value_of.clone().filter(|_| !is_known) else {
            return Err(ConfigErrors(errors));
        };
        settings.reset(&section, &key);
        errors.push(error);
    };
    config.snapshot.directory = config.snapshot.directory.or(state_directory);
    Ok((config, settings))
}

fn check(settings: &Settings) -> Result<Config, ConfigError> {
    let raw = Written::deserialize(settings.values().clone())
        .expect("every layer has the keys and types of the defaults, which a test parses");
    Check { settings, limits: RefCell::default() }.config(&raw)
}

/// The limits of all values that have limits.
pub(super) fn limits() -> Limits {
    let settings = Settings::defaults();
    let raw = Written::deserialize(settings.values().clone()).expect("a test parses the defaults");
    let check = Check { settings: &settings, limits: RefCell::default() };
    check.config(&raw).expect("the defaults are valid");
    check.limits.into_inner()
}

/// The variable in which systemd passes `StateDirectory=` (systemd.exec(5)): folders, separated by
/// colons.
const STATE_DIRECTORY: &str = "STATE_DIRECTORY";

fn first_directory(text: &str) -> Option<PathBuf> {
    text.split(':').find_map(optional).map(PathBuf::from)
}

/// Validates values, and knows where they are written, for errors.
pub(super) struct Check<'a> {
    settings: &'a Settings,
    /// The limits checked so far.
    limits: RefCell<Limits>,
}

impl Check<'_> {
    fn config(&self, raw: &Written) -> Result<Config, ConfigError> {
        self.topics_differ(raw)?;
        let publisher = self.publisher(raw)?;
        Ok(Config {
            source: None,
            group: self.group(raw)?,
            fetch: self.fetch(raw)?,
            shards: self.shards(&raw.publish, publisher.queue_kbytes_max as u64 * 1024)?,
            publisher,
            snapshot: self.snapshot(&raw.snapshot)?,
            remedy: Remedy::Refuse,
            runtime: self.runtime(&raw.cpu)?,
            rules_files: self.rules_files(&raw.rules.files)?,
            service: self.service(&raw.service)?,
            serve: self.serve(&raw.serve)?,
        })
    }

    fn client(&self, raw: &Written) -> Result<ClientOptions, ConfigError> {
        let Written { kafka, tls, sasl, .. } = raw;
        Ok(ClientOptions {
            brokers: self.brokers(&kafka.brokers)?,
            client_id: self.name("kafka.client_id", &kafka.client_id)?,
            security: self.security(tls, sasl)?,
            group: self.name("kafka.group", &kafka.group)?,
        })
    }

    fn group(&self, raw: &Written) -> Result<GroupOptions, ConfigError> {
        let kafka = &raw.kafka;
        Ok(GroupOptions {
            client: self.client(raw)?,
            input_topic: self.topic("kafka.input_topic", &kafka.input_topic)?,
            instance_id: match optional(&kafka.group_instance_id) {
                Some(name) => Some(self.name("kafka.group_instance_id", name)?),
                None => None,
            },
            protocol: self.choice(
                "kafka.group_protocol",
                &kafka.group_protocol,
                &[
                    ("classic", GroupProtocol::Classic),
                    ("eager", GroupProtocol::Eager),
                    ("consumer", GroupProtocol::Consumer),
                ],
            )?,
            session_timeout_ms: self.number(
                "kafka.session_timeout_ms",
                kafka.session_timeout_ms,
                kafka::group::SESSION_TIMEOUT_MS_MIN..=kafka::group::SESSION_TIMEOUT_MS_MAX,
            )?,
        })
    }

    fn tick_every_ms(&self, raw: &Written) -> Result<u32, ConfigError> {
        let every_ms = raw.input.tick_every_ms;
        self.number("input.tick_every_ms", every_ms, 0..=publisher::ticker::TICK_EVERY_MS_MAX)
    }

    fn fetch(&self, all: &Written) -> Result<FetchOptions, ConfigError> {
        let Written { kafka, fetch: raw, .. } = all;
        let options = FetchOptions {
            client_id: self.name("kafka.client_id", &kafka.client_id)?,
            input_topic: self.topic("kafka.input_topic", &kafka.input_topic)?,
            connections_per_broker: self.number(
                "fetch.connections_per_broker",
                raw.connections_per_broker,
                1..=fetch::CONNECTIONS_PER_BROKER_MAX,
            )?,
            fetch_wait_ms_max: self.number(
                "fetch.wait_ms_max",
                raw.wait_ms_max,
                0..=fetch::FETCH_WAIT_MS_MAX,
            )?,
            tick_every_ms: self.tick_every_ms(all)?,
            receive_buffer_bytes: self.number(
                "fetch.receive_buffer_bytes",
                raw.receive_buffer_bytes,
                fetch::RECEIVE_BUFFER_BYTES_MIN..=fetch::RECEIVE_BUFFER_BYTES_MAX,
            )?,
            fetch_bytes_max: self.number(
                "fetch.bytes_max",
                raw.bytes_max,
                fetch::FETCH_BYTES_MIN..=fetch::RECEIVE_BUFFER_BYTES_MAX / 2,
            )?,
            partition_bytes_max: self.number(
                "fetch.partition_bytes_max",
                raw.partition_bytes_max,
                fetch::FETCH_BYTES_MIN..=fetch::RECEIVE_BUFFER_BYTES_MAX / 2,
            )?,
            batch_bytes_max: self.number(
                "fetch.batch_bytes_max",
                raw.batch_bytes_max,
                fetch::RECEIVE_BUFFER_STEP_BYTES..=fetch::FETCHED_BATCH_BYTES_MAX,
            )?,
            read_committed: raw.read_committed,
        };
        self.receive_buffer_fits(&options)?;
        Ok(options)
    }

    fn receive_buffer_fits(&self, options: &FetchOptions) -> Result<(), ConfigError> {
        let buffer_bytes = options.receive_buffer_bytes;
        if !buffer_bytes.is_multiple_of(fetch::RECEIVE_BUFFER_STEP_BYTES) {
            let sentence = format!(
                "= {buffer_bytes}: choose a multiple of {}",
                fetch::RECEIVE_BUFFER_STEP_BYTES
            );
            return Err(self.error("fetch.receive_buffer_bytes", sentence));
        }
        if options.fetch_bytes_max > buffer_bytes / 2 {
            let sentence = format!(
                "= {}: choose at most half of fetch.receive_buffer_bytes, {}",
                options.fetch_bytes_max,
                buffer_bytes / 2
            );
            let related = ["receive_buffer_bytes"];
            return Err(self.settings.error("fetch", "bytes_max", &related, sentence));
        }
        if options.partition_bytes_max > options.fetch_bytes_max {
            let sentence = format!(
                "= {}: choose at most fetch.bytes_max, {}",
                options.partition_bytes_max, options.fetch_bytes_max
            );
            return Err(self.settings.error(
                "fetch",
                "partition_bytes_max",
                &["bytes_max"],
                sentence,
            ));
        }
        Ok(())
    }

    fn publisher(&self, raw: &Written) -> Result<publisher::PublisherOptions, ConfigError> {
        let Written { kafka, publish, input, .. } = raw;
        let format = self.choice(
            "publish.format",
            &publish.format,
            &[("json", Format::Json), ("binary", Format::Binary)],
        )?;
        Ok(publisher::PublisherOptions {
            client: self.client(raw)?,
            input_topic: self.topic("kafka.input_topic", &kafka.input_topic)?,
            output_topic: self.topic("kafka.output_topic", &kafka.output_topic)?,
            dead_letter_topic: self.topic("kafka.dead_letter_topic", &kafka.dead_letter_topic)?,
            format,
            compression: self.choice(
                "publish.compression",
                &publish.compression,
                &[
                    ("auto", Compression::best_for(format)),
                    ("none", Compression::None),
                    ("lz4", Compression::Lz4),
                ],
            )?,
            queue_kbytes_max: self.number(
                "publish.queue_kbytes_max",
                publish.queue_kbytes_max,
                // With less than one frame, nothing could be sent.
                FRAME_BYTES_MAX / 1024..=publisher::producer::PUBLISH_QUEUE_KBYTES_MAX,
            )?,
            tick_every_ms: self.tick_every_ms(raw)?,
            carry_players: input.carry_players,
            skips: Vec::new(),
        })
    }

    fn shards(&self, raw: &WrittenPublish, bytes_max: u64) -> Result<ShardOptions, ConfigError> {
        let (linger, frames) = (raw.linger_us_max, raw.frames_per_shard);
        let linger: u32 = self.number("publish.linger_us_max", linger, 0..=LINGER_US_MAX)?;
        let frames = self.number("publish.frames_per_shard", frames, 1..=SHARD_FRAMES_MAX)?;
        let linger = Duration::from_micros(linger.into());
        Ok(ShardOptions { linger, frames_per_shard: frames, bytes_max })
    }

    fn snapshot(&self, raw: &WrittenSnapshot) -> Result<snapshot::SnapshotOptions, ConfigError> {
        Ok(snapshot::SnapshotOptions {
            directory: optional(&raw.directory).map(PathBuf::from),
            every_ms: self.number(
                "snapshot.every_ms",
                raw.every_ms,
                snapshot::SNAPSHOT_EVERY_MS_MIN..=snapshot::SNAPSHOT_EVERY_MS_MAX,
            )?,
            keep: self.number(
                "snapshot.keep",
                raw.keep,
                snapshot::SNAPSHOTS_KEPT_MIN..=snapshot::SNAPSHOTS_KEPT_MAX,
            )?,
            topic: match optional(&raw.topic) {
                Some(topic) => Some(self.topic("snapshot.topic", topic)?),
                None => None,
            },
        })
    }

    fn runtime(&self, raw: &WrittenCpu) -> Result<runtime::RuntimeOptions, ConfigError> {
        let hot_core = match raw.hot_core.as_str() {
            "auto" => None,
            text => {
                Some(text.parse().ok().filter(|core| *core < runtime::cpu::CORES_MAX).ok_or_else(
                    || {
                        let sentence =
                            format!("= \"{text}\": write \"auto\" or one core, as in \"3\"");
                        self.error("cpu.hot_core", sentence)
                    },
                )?)
            }
        };
        let helper_cores = match raw.helper_cores.as_str() {
            "auto" => None,
            text => Some(runtime::cpu::parse_list(text).ok_or_else(|| {
                let sentence =
                    format!("= \"{text}\": write \"auto\" or a list of cores, as in \"0-1,4\"");
                self.error("cpu.helper_cores", sentence)
            })?),
        };
        if let (Some(hot), Some(helpers)) = (hot_core, &helper_cores)
            && helpers.contains(&hot)
        {
            let sentence = format!("has the hot core, {hot}: leave it out of the list");
            return Err(self.error("cpu.helper_cores", sentence));
        }
        Ok(runtime::RuntimeOptions {
            hot_core,
            helper_cores,
            ring_entries: runtime::ring::RING_ENTRIES,
        })
    }

    fn service(&self, raw: &WrittenService) -> Result<super::ServiceOptions, ConfigError> {
        let listen = super::addresses::parse(&raw.listen);
        Ok(super::ServiceOptions {
            listen: listen.map_err(|sentence| self.error("service.listen", sentence))?,
            log_format: self.choice("service.log_format", &raw.log_format, &super::log::FORMATS)?,
            log_level: self.choice("service.log_level", &raw.log_level, &super::log::LEVELS)?,
        })
    }

    /// A number within its limits, as the type of its option.
    pub(super) fn number<T>(
        &self,
        path: &str,
        written: i64,
        range: RangeInclusive<T>,
    ) -> Result<T, ConfigError>
    where
        T: TryFrom<i64> + PartialOrd + std::fmt::Display,
    {
        let limit = Limit::Range(range.start().to_string(), range.end().to_string());
        self.limits.borrow_mut().insert(path.to_owned(), limit);
        T::try_from(written).ok().filter(|number| range.contains(number)).ok_or_else(|| {
            let sentence = format!("= {written}: choose {} to {}", range.start(), range.end());
            self.error(path, sentence)
        })
    }

    /// Maps one of a few words to its value.
    pub(super) fn choice<T: Copy>(
        &self,
        path: &str,
        written: &str,
        choices: &[(&str, T)],
    ) -> Result<T, ConfigError> {
        let words = choices.iter().map(|(word, _)| (*word).to_owned()).collect();
        self.limits.borrow_mut().insert(path.to_owned(), Limit::OneOf(words));
        match choices.iter().find(|(word, _)| *word == written) {
            Some((_, choice)) => Ok(*choice),
            None => {
                let words: Vec<_> = choices.iter().map(|(word, _)| format!("\"{word}\"")).collect();
                let sentence = format!("= \"{written}\": choose one of {}", words.join(", "));
                Err(self.error(path, sentence))
            }
        }
    }

    /// Checks a name that brokers show in logs and tools.
    fn name(&self, path: &str, written: &str) -> Result<String, ConfigError> {
        let printable = written.chars().all(|c| c.is_ascii_graphic());
        if written.is_empty() || written.len() > kafka::NAME_CHARS_MAX || !printable {
            let sentence = format!(
                "= \"{written}\": choose 1 to {} printable ASCII characters without spaces",
                kafka::NAME_CHARS_MAX
            );
            return Err(self.error(path, sentence));
        }
        Ok(written.to_owned())
    }

    /// Checks a topic name by Kafka's rule (`org.apache.kafka.common.internals.Topic`).
    fn topic(&self, path: &str, written: &str) -> Result<String, ConfigError> {
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let length = 1..=kafka::TOPIC_NAME_CHARS_MAX;
        let dots = matches!(written, "." | "..");
        if !length.contains(&written.len()) || !written.chars().all(legal) || dots {
            let sentence = format!(
                "= \"{written}\": choose 1 to {} letters, digits, '.', '_' or '-'",
                kafka::TOPIC_NAME_CHARS_MAX
            );
            return Err(self.error(path, sentence));
        }
        Ok(written.to_owned())
    }

    fn topics_differ(&self, raw: &Written) -> Result<(), ConfigError> {
        let Written { kafka, snapshot, .. } = raw;
        let mut seen = BTreeSet::from([kafka.input_topic.as_str()]);
        let others = [
            ("kafka", "output_topic", &kafka.output_topic),
            ("kafka", "dead_letter_topic", &kafka.dead_letter_topic),
            ("snapshot", "topic", &snapshot.topic),
        ];
        for (section, key, topic) in others {
            if !seen.insert(topic) {
                let sentence = format!("= \"{topic}\": choose a topic that no other key names");
                let related = ["input_topic", "output_topic"];
                return Err(self.settings.error(section, key, &related, sentence));
            }
        }
        Ok(())
    }

    fn rules_files(&self, files: &[String]) -> Result<Vec<PathBuf>, ConfigError> {
        if files.len() > RULES_FILES_MAX || files.iter().any(String::is_empty) {
            let most = RULES_FILES_MAX;
            return Err(self.error("rules.files", format!("must be at most {most} paths")));
        }
        Ok(files.iter().map(PathBuf::from).collect())
    }

    pub(super) fn error(&self, path: &str, sentence: String) -> ConfigError {
        let (section, key) = path.rsplit_once('.').expect("a path is section.key");
        self.settings.error(section, key, &[], sentence)
    }
}

/// Returns the text, or `None` if it is empty.
pub(super) fn optional(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}
