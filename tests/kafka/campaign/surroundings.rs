//! The brokers of a campaign, and the protocol by which its daemons form a group.

use crate::security::{sasl, tls};
use support::kafka::secure::{Kind, SecureCluster};
use support::kafka::{Cluster, Options};

/// After how long a group gives the partitions of a silent member away.
pub(super) const SESSION_MS: u32 = 6_000;

/// What the daemons run on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Surroundings {
    pub brokers: Brokers,
    /// `kafka.group_protocol`.
    pub group_protocol: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Brokers {
    One,
    /// One, which daemons reach by TLS with SASL.
    Secured,
    Three,
}

/// What a long campaign runs on, for an equal part of its cycles each. A short one has the first.
pub(super) const ALL: [Surroundings; 6] = [
    Surroundings { brokers: Brokers::One, group_protocol: "classic" },
    Surroundings { brokers: Brokers::Secured, group_protocol: "classic" },
    Surroundings { brokers: Brokers::Three, group_protocol: "classic" },
    Surroundings { brokers: Brokers::One, group_protocol: "consumer" },
    Surroundings { brokers: Brokers::Secured, group_protocol: "consumer" },
    Surroundings { brokers: Brokers::Three, group_protocol: "consumer" },
];

/// Running brokers.
pub(super) enum Running {
    Open(Cluster),
    Secured(SecureCluster),
}

impl Surroundings {
    /// Starts the brokers.
    pub(super) fn start(&self) -> Running {
        // Of the protocol "consumer" the broker sets what a daemon sets of the other one.
        let properties = [
            ("group.consumer.min.session.timeout.ms", SESSION_MS.to_string()),
            ("group.consumer.session.timeout.ms", SESSION_MS.to_string()),
            ("group.consumer.min.heartbeat.interval.ms", "1000".to_owned()),
            ("group.consumer.heartbeat.interval.ms", "1000".to_owned()),
        ];
        let mut options = Options::for_rates();
        match self.brokers {
            Brokers::Secured => {
                Running::Secured(SecureCluster::start_as(options, &properties, &[]))
            }
            Brokers::One | Brokers::Three => {
                options.properties.extend(properties);
                let count = if matches!(self.brokers, Brokers::One) { 1 } else { 3 };
                Running::Open(Cluster::start(count, &options))
            }
        }
    }

    /// Keys of the daemons' section `[kafka]`, as lines.
    pub(super) fn keys(&self, running: &Running) -> String {
        let (address, security) = match running {
            Running::Open(cluster) => (cluster.bootstrap(), String::new()),
            Running::Secured(secure) => {
                let tls = tls(&secure.file("ca.pem")).replace('\n', ", ");
                let sasl = sasl("SCRAM-SHA-512", &secure.file("password")).replace('\n', ", ");
                (secure.address(Kind::Sasl), format!("tls = {{ {tls} }}\nsasl = {{ {sasl} }}\n"))
            }
        };
        let brokers: Vec<&str> = address.split(',').collect();
        let protocol = self.group_protocol;
        format!(
            "brokers = {brokers:?}\ngroup_protocol = {protocol:?}\n\
             session_timeout_ms = {SESSION_MS}\n{security}"
        )
    }
}

impl Running {
    pub(super) fn cluster(&self) -> &Cluster {
        match self {
            Running::Open(cluster) => cluster,
            Running::Secured(secure) => &secure.cluster,
        }
    }

    pub(super) fn cluster_mut(&mut self) -> &mut Cluster {
        match self {
            Running::Open(cluster) => cluster,
            Running::Secured(secure) => &mut secure.cluster,
        }
    }
}
