//! The configuration, validated.
//!
//! Everything that can be checked without the network is checked here, before the first socket is
//! opened. Each stage takes its own options from [`Config`]; nothing reads the configuration later.

use super::schema::{Limit, Limits};
use super::settings::{self, ConfigError, ConfigErrors, Settings, variables};
use crate::edition::Edition;
use crate::fetch::FetchOptions;
use crate::kafka::assignment::Assignment;
use crate::kafka::client::ClientOptions;
use crate::kafka::group::{GroupOptions, GroupProtocol};
use crate::kit::rulebook::RULES_FILES_MAX;
use crate::output::frame::{Compression, FRAME_BYTES_MAX, Format};
use crate::ownership::acquisition::Remedy;
use crate::ownership::placement::COPIES_MAX;
use crate::ownership::silence::{SILENCE_MS_MAX, SILENCE_MS_MIN};
use crate::ownership::standby::StandbyOptions;
use crate::runtime::ring::{RING_KINDS, RingKind};
use crate::shards::{LINGER_US_MAX, PUBLISH_QUEUE_KBYTES_MAX, SHARD_FRAMES_MAX, ShardOptions};
use crate::{fetch, kafka, publisher, runtime, snapshot};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Value;

/// The validated configuration, in one part per stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where to read it again; `None` if it was made from a text.
    pub(crate) source: Option<ConfigSource>,
    /// The game whose rules a reload reads again; set by the verb. `None`: there is no reload.
    pub(crate) edition: Option<Edition>,
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
    /// Options of copies of zones.
    pub standby: StandbyOptions,
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
    Check { settings, limits: RefCell::default() }.config()
}

/// The limits of all values.
pub(super) fn limits() -> Limits {
    let settings = Settings::defaults();
    let check = Check { settings: &settings, limits: RefCell::default() };
    check.config().expect("the defaults are valid");
    check.limits.into_inner()
}

/// The variable in which systemd passes `StateDirectory=` (systemd.exec(5)): folders, separated by
/// colons.
const STATE_DIRECTORY: &str = "STATE_DIRECTORY";

fn first_directory(text: &str) -> Option<PathBuf> {
    text.split(':').find(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// Validates values, and knows where they are written, for errors.
pub(super) struct Check<'a> {
    settings: &'a Settings,
    /// The limits of the values read so far.
    limits: RefCell<Limits>,
}

impl Check<'_> {
    fn config(&self) -> Result<Config, ConfigError> {
        self.topics_differ()?;
        Ok(Config {
            source: None,
            group: self.group()?,
            fetch: self.fetch()?,
            shards: self.shards()?,
            publisher: self.publisher()?,
            snapshot: self.snapshot()?,
            remedy: Remedy::Refuse,
            standby: self.standby()?,
            edition: None,
            runtime: self.runtime()?,
            rules_files: self.rules_files()?,
            service: self.service()?,
            serve: self.serve()?,
        })
    }

    fn client(&self) -> Result<ClientOptions, ConfigError> {
        Ok(ClientOptions {
            brokers: self.brokers()?,
            client_id: self.name("kafka.client_id")?,
            security: self.security()?,
            group: self.name("kafka.group")?,
        })
    }

    /// The zones of all instances, unless the group shares them out.
    fn assignment(&self) -> Result<Option<Assignment>, ConfigError> {
        let lines = self.texts("kafka.assignment");
        if lines.is_empty() {
            return Ok(None);
        }
        Assignment::parse(&lines)
            .map(Some)
            .map_err(|sentence| self.error("kafka.assignment", format!("is wrong: {sentence}")))
    }

    fn group(&self) -> Result<GroupOptions, ConfigError> {
        Ok(GroupOptions {
            client: self.client()?,
            input_topic: self.topic("kafka.input_topic")?,
            instance_id: self.unless_empty("kafka.group_instance_id", Check::name)?,
            assignment: self.assignment()?,
            protocol: self.choice(
                "kafka.group_protocol",
                &[
                    ("classic", GroupProtocol::Classic),
                    ("eager", GroupProtocol::Eager),
                    ("consumer", GroupProtocol::Consumer),
                ],
            )?,
            session_timeout_ms: self.number(
                "kafka.session_timeout_ms",
                kafka::group::SESSION_TIMEOUT_MS_MIN..=kafka::group::SESSION_TIMEOUT_MS_MAX,
            )?,
        })
    }

    fn tick_every_ms(&self) -> Result<u32, ConfigError> {
        self.number("input.tick_every_ms", 0..=publisher::ticker::TICK_EVERY_MS_MAX)
    }

    fn fetch(&self) -> Result<FetchOptions, ConfigError> {
        let options = FetchOptions {
            client_id: self.name("kafka.client_id")?,
            input_topic: self.topic("kafka.input_topic")?,
            connections_per_broker: self
                .number("fetch.connections_per_broker", 1..=fetch::CONNECTIONS_PER_BROKER_MAX)?,
            fetch_wait_ms_max: self.number("fetch.wait_ms_max", 0..=fetch::FETCH_WAIT_MS_MAX)?,
            tick_every_ms: self.tick_every_ms()?,
            receive_buffer_bytes: self.number(
                "fetch.receive_buffer_bytes",
                fetch::RECEIVE_BUFFER_BYTES_MIN..=fetch::RECEIVE_BUFFER_BYTES_MAX,
            )?,
            fetch_bytes_max: self.number(
                "fetch.bytes_max",
                fetch::FETCH_BYTES_MIN..=fetch::RECEIVE_BUFFER_BYTES_MAX / 2,
            )?,
            partition_bytes_max: self.number(
                "fetch.partition_bytes_max",
                fetch::FETCH_BYTES_MIN..=fetch::RECEIVE_BUFFER_BYTES_MAX / 2,
            )?,
            batch_bytes_max: self.number(
                "fetch.batch_bytes_max",
                fetch::RECEIVE_BUFFER_STEP_BYTES..=fetch::FETCHED_BATCH_BYTES_MAX,
            )?,
            read_committed: self.is_true("fetch.read_committed"),
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

    fn publisher(&self) -> Result<publisher::PublisherOptions, ConfigError> {
        let format =
            self.choice("publish.format", &[("json", Format::Json), ("binary", Format::Binary)])?;
        Ok(publisher::PublisherOptions {
            client: self.client()?,
            ring: self.ring()?,
            input_topic: self.topic("kafka.input_topic")?,
            output_topic: self.topic("kafka.output_topic")?,
            dead_letter_topic: self.topic("kafka.dead_letter_topic")?,
            format,
            compression: self.choice(
                "publish.compression",
                &[
                    ("auto", Compression::best_for(format)),
                    ("none", Compression::None),
                    ("lz4", Compression::Lz4),
                ],
            )?,
            tick_every_ms: self.tick_every_ms()?,
            carry_players: self.is_true("input.carry_players"),
            skips: Vec::new(),
        })
    }

    fn shards(&self) -> Result<ShardOptions, ConfigError> {
        let linger: u32 = self.number("publish.linger_us_max", 0..=LINGER_US_MAX)?;
        let kbytes: u64 = self.number(
            "publish.queue_kbytes_max",
            // Less than a frame bounds nothing: each shard may have one on its way.
            FRAME_BYTES_MAX as u64 / 1024..=PUBLISH_QUEUE_KBYTES_MAX,
        )?;
        Ok(ShardOptions {
            linger: Duration::from_micros(linger.into()),
            frames_per_shard: self.number("publish.frames_per_shard", 1..=SHARD_FRAMES_MAX)?,
            bytes_max: kbytes * 1024,
        })
    }

    fn snapshot(&self) -> Result<snapshot::SnapshotOptions, ConfigError> {
        Ok(snapshot::SnapshotOptions {
            directory: self.optional("snapshot.directory").map(PathBuf::from),
            every_ms: self.number(
                "snapshot.every_ms",
                snapshot::SNAPSHOT_EVERY_MS_MIN..=snapshot::SNAPSHOT_EVERY_MS_MAX,
            )?,
            keep: self.number(
                "snapshot.keep",
                snapshot::SNAPSHOTS_KEPT_MIN..=snapshot::SNAPSHOTS_KEPT_MAX,
            )?,
            topic: self.unless_empty("snapshot.topic", Check::topic)?,
        })
    }

    fn standby(&self) -> Result<StandbyOptions, ConfigError> {
        let copies = self.number("standby.copies", 0..=COPIES_MAX)?;
        let silence_ms = self.number("standby.silence_ms", 0..=SILENCE_MS_MAX)?;
        if (1..SILENCE_MS_MIN).contains(&silence_ms) {
            let sentence = format!("= {silence_ms}: choose 0, or at least {SILENCE_MS_MIN}");
            return Err(self.error("standby.silence_ms", sentence));
        }
        let is_without_group = self.assignment()?.is_some();
        if is_without_group && silence_ms == 0 {
            let sentence = format!(
                "= 0: with kafka.assignment, nothing else gives the zones of an instance that dies \
                 to others: choose at least {SILENCE_MS_MIN}"
            );
            return Err(self.error("standby.silence_ms", sentence));
        }
        Ok(StandbyOptions { copies, silence_ms, is_without_group })
    }

    fn runtime(&self) -> Result<runtime::RuntimeOptions, ConfigError> {
        let hot_core = match self.text("cpu.hot_core") {
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
        let helper_cores = match self.text("cpu.helper_cores") {
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
        Ok(runtime::RuntimeOptions { hot_core, helper_cores, ring: self.ring()? })
    }

    pub(super) fn ring(&self) -> Result<RingKind, ConfigError> {
        self.choice("runtime.ring", &RING_KINDS)
    }

    fn service(&self) -> Result<super::ServiceOptions, ConfigError> {
        let listen = super::addresses::parse(self.text("service.listen"));
        Ok(super::ServiceOptions {
            listen: listen.map_err(|sentence| self.error("service.listen", sentence))?,
            log_format: self.choice("service.log_format", &super::log::FORMATS)?,
            log_level: self.choice("service.log_level", &super::log::LEVELS)?,
        })
    }

    /// A number within its limits, as the type of its option.
    pub(super) fn number<T>(&self, path: &str, range: RangeInclusive<T>) -> Result<T, ConfigError>
    where
        T: TryFrom<i64> + PartialOrd + std::fmt::Display,
    {
        let limit = Limit::Range(range.start().to_string(), range.end().to_string());
        let written = self.value(path, limit).as_integer().expect(AS_DEFAULT);
        T::try_from(written).ok().filter(|number| range.contains(number)).ok_or_else(|| {
            let sentence = format!("= {written}: choose {} to {}", range.start(), range.end());
            self.error(path, sentence)
        })
    }

    /// Maps one of a few words to its value.
    pub(super) fn choice<T: Copy>(
        &self,
        path: &str,
        choices: &[(&str, T)],
    ) -> Result<T, ConfigError> {
        let words = choices.iter().map(|(word, _)| (*word).to_owned()).collect();
        let written = self.value(path, Limit::OneOf(words)).as_str().expect(AS_DEFAULT);
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
    fn name(&self, path: &str) -> Result<String, ConfigError> {
        let written = self.text(path);
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

    fn topic(&self, path: &str) -> Result<String, ConfigError> {
        let written = self.text(path);
        topic_name(written)
            .map_err(|choice| self.error(path, format!("= \"{written}\": {choice}")))?;
        Ok(written.to_owned())
    }

    fn topics_differ(&self) -> Result<(), ConfigError> {
        let mut seen = BTreeSet::from([self.text("kafka.input_topic")]);
        for (section, key) in
            [("kafka", "output_topic"), ("kafka", "dead_letter_topic"), ("snapshot", "topic")]
        {
            let topic = self.text(&format!("{section}.{key}"));
            if !seen.insert(topic) {
                let sentence = format!("= \"{topic}\": choose a topic that no other key names");
                let related = ["input_topic", "output_topic"];
                return Err(self.settings.error(section, key, &related, sentence));
            }
        }
        Ok(())
    }

    fn rules_files(&self) -> Result<Vec<PathBuf>, ConfigError> {
        let files = self.texts("rules.files");
        if files.len() > RULES_FILES_MAX || files.iter().any(String::is_empty) {
            let most = RULES_FILES_MAX;
            return Err(self.error("rules.files", format!("must be at most {most} paths")));
        }
        Ok(files.iter().map(PathBuf::from).collect())
    }

    /// Returns the value of a key, and records its limit.
    fn value(&self, path: &str, limit: Limit) -> &Value {
        self.limits.borrow_mut().insert(path.to_owned(), limit);
        let (section, key) = split(path);
        &self.settings.values()[section][key]
    }

    pub(super) fn text(&self, path: &str) -> &str {
        self.value(path, Limit::None).as_str().expect(AS_DEFAULT)
    }

    /// Returns the text, or `None` if it is empty.
    pub(super) fn optional(&self, path: &str) -> Option<&str> {
        Some(self.text(path)).filter(|text| !text.is_empty())
    }

    /// Returns the checked text, or `None` if it is empty.
    fn unless_empty<T>(
        &self,
        path: &str,
        check: fn(&Self, &str) -> Result<T, ConfigError>,
    ) -> Result<Option<T>, ConfigError> {
        self.optional(path).map(|_| check(self, path)).transpose()
    }

    pub(super) fn texts(&self, path: &str) -> Vec<String> {
        let texts = self.value(path, Limit::None).as_array().expect(AS_DEFAULT);
        texts.iter().map(|text| text.as_str().expect(AS_DEFAULT).to_owned()).collect()
    }

    pub(super) fn is_true(&self, path: &str) -> bool {
        self.value(path, Limit::None).as_bool().expect(AS_DEFAULT)
    }

    pub(super) fn error(&self, path: &str, sentence: String) -> ConfigError {
        let (section, key) = split(path);
        self.settings.error(section, key, &[], sentence)
    }
}

/// Checks a topic name by Kafka's rule (`org.apache.kafka.common.internals.Topic`). The error lists
/// the characters that are allowed.
pub(crate) fn topic_name(written: &str) -> Result<(), String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let length = 1..=kafka::TOPIC_NAME_CHARS_MAX;
    let dots = matches!(written, "." | "..");
    if length.contains(&written.len()) && written.chars().all(legal) && !dots {
        return Ok(());
    }
    let chars_max = kafka::TOPIC_NAME_CHARS_MAX;
    Err(format!("choose 1 to {chars_max} letters, digits, '.', '_' or '-'"))
}

/// Why a value has the type that is asked for.
const AS_DEFAULT: &str = "every layer has the types of the defaults, which a test checks";

/// The section and the key of a path.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('.').expect("a path is section.key")
}
