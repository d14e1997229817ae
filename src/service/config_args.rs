//! Arguments that name a verb's configuration, and settings that override it.

use super::addresses;
use super::config::{self, Config};
use super::settings::ConfigErrors;
use clap::Args;
use std::path::PathBuf;

/// The configuration of a verb that needs one.
#[derive(Clone, Debug, Args)]
pub struct ConfigArgs {
    /// The configuration; `huntd config` prints one with every key.
    #[arg(long = "config", value_name = "FILE")]
    pub file: PathBuf,
    /// Set one key, overriding the file and the environment; repeatable.
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    pub set: Vec<String>,
}

impl ConfigArgs {
    /// Loads the configuration.
    pub(crate) fn load(&self) -> Result<Config, ConfigErrors> {
        config::load(&self.file, &self.set)
    }
}

/// The cluster of a verb that needs no configuration.
#[derive(Clone, Debug, Args)]
pub struct ClusterArgs {
    /// Bootstrap brokers, as host:port, separated by commas.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "127.0.0.1:9092",
        value_parser = addresses::broker
    )]
    pub brokers: Vec<String>,
    /// Take brokers, TLS, SASL and topic names from the daemons' configuration instead.
    #[arg(long = "config", value_name = "FILE", conflicts_with = "brokers")]
    pub config_file: Option<PathBuf>,
    /// Set one key of it, overriding the file and the environment; repeatable.
    #[arg(long, value_name = "SECTION.KEY=VALUE", requires = "config_file")]
    pub set: Vec<String>,
}

impl ClusterArgs {
    /// Loads the configuration, if one is named.
    pub(crate) fn load(&self) -> Result<Option<Config>, ConfigErrors> {
        self.config_file.as_deref().map(|file| config::load(file, &self.set)).transpose()
    }
}
