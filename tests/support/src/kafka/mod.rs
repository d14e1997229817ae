//! Real Apache Kafka brokers for tests and benchmarks: plain `java` on free loopback ports, data in
//! a temporary folder, gone with their owner however it ends.
//!
//! A test binary starts one broker for all its tests with [`shared`]; a test that stops or kills
//! brokers starts its own [`Cluster`].

mod archive;

mod jars;

mod request;

mod storage;

mod tls_records;

pub mod acl;

pub mod broker;

pub mod client;

pub mod proxy;

pub mod quota;

pub mod reassign;

pub mod secure;

use broker::{Broker, Place};
use client::Client;
use jars::Jars;
use std::ops::Index;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The version of Kafka that the tests run on, if they do not say another one.
pub const VERSION: &str = "4.3.0";

/// How brokers are started.
pub struct Options {
    /// The version of Kafka.
    pub version: &'static str,
    /// Heap of each broker in MiB.
    pub heap_mib: u32,
    /// Whether the JVM compiles to its best code: it does so for minutes.
    pub optimized: bool,
    /// Further lines of `server.properties`; they override those of the harness.
    pub properties: Vec<(&'static str, String)>,
    /// Further listeners.
    pub listeners: Vec<Listener>,
    /// Users with passwords, as `StorageTool --add-scram` takes them.
    pub scram: Vec<String>,
    /// Further options of the JVM.
    pub java: Vec<String>,
}

/// A listener of a broker.
pub struct Listener {
    pub name: &'static str,
    /// What it speaks, by Kafka's names: `SASL_SSL`.
    pub protocol: &'static str,
    /// Where it listens, `host:port`.
    pub address: String,
    /// Where clients are told that it listens.
    pub told: String,
    /// Settings of this listener alone, by their names without its prefix.
    pub settings: Vec<(&'static str, String)>,
}

impl Listener {
    /// A listener on `localhost`.
    pub fn local(name: &'static str, protocol: &'static str, port: u16) -> Listener {
        let address = format!("localhost:{port}");
        Listener { name, protocol, told: address.clone(), address, settings: Vec::new() }
    }

    /// This listener, with another port advertised to clients.
    pub fn told_at(self, port: u16) -> Listener {
        Listener { told: format!("localhost:{port}"), ..self }
    }
}

impl Options {
    fn new(heap_mib: u32, optimized: bool) -> Options {
        let (properties, listeners, scram, java) = (vec![], vec![], vec![], vec![]);
        let version = VERSION;
        Options { version, heap_mib, optimized, properties, listeners, scram, java }
    }

    /// Small and quick to start.
    pub fn for_tests() -> Options {
        Options::new(256, false)
    }

    /// Room for millions of records, which few and large requests bring. The slow compiler would
    /// work beside what is measured, and take a fifth of the machine.
    pub fn for_drains() -> Options {
        Options::new(1024, false)
    }

    /// For thousands of requests a second, once it has seen this many for a while.
    pub fn for_rates() -> Options {
        Options::new(1024, true)
    }
}

/// Brokers that form one cluster, each of them controller too, so that a cluster of three goes on
/// when any one of them is gone. Dropped, it leaves no process and no file.
pub struct Cluster {
    brokers: Vec<Broker>,
    client: Client,
}

impl Cluster {
    /// Starts a cluster and waits until it can be used.
    pub fn start(broker_count: usize, options: &Options) -> Cluster {
        Cluster::start_each(&vec![options; broker_count])
    }

    /// Like [`Cluster::start`], with one broker for each of these options.
    pub fn start_each(options: &[&Options]) -> Cluster {
        Cluster::start_at(&Place::reserve(options.len()), options)
    }

    /// Like [`Cluster::start_each`], at these places.
    pub fn start_at(places: &[Place], options: &[&Options]) -> Cluster {
        let version = options.first().expect("a cluster has a broker").version;
        let mut jars = Jars::of(version);
        // Of another version there is one broker only.
        if version == VERSION {
            archive::add(&mut jars);
        }
        let format =
            |(place, options): (&Place, &&Options)| Broker::format(*place, places, &jars, options);
        let mut brokers: Vec<Broker> = places.iter().zip(options).map(format).collect();
        for broker in &mut brokers {
            broker.launch();
        }
        for broker in &mut brokers {
            broker.wait_until_ready(options.len());
        }
        let addresses: Vec<String> = brokers.iter().map(Broker::address).collect();
        Cluster { brokers, client: Client::new(&addresses.join(",")) }
    }

    /// The addresses of all brokers, as `host:port,host:port`.
    pub fn bootstrap(&self) -> String {
        self.client.bootstrap().to_owned()
    }

    /// The client of this cluster: topics, records in, records out.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Number of brokers, running or not.
    pub fn broker_count(&self) -> usize {
        self.brokers.len()
    }

    /// One broker, to stop, kill, freeze and restart. Its number is its place; its id one more.
    pub fn broker_mut(&mut self, number: usize) -> &mut Broker {
        &mut self.brokers[number]
    }
}

impl Index<usize> for Cluster {
    type Output = Broker;

    fn index(&self, number: usize) -> &Broker {
        &self.brokers[number]
    }
}

/// The one broker that all tests of a binary share, started by the first that asks.
///
/// Statics are never dropped: this broker ends because its standard input closes with the process.
pub fn shared() -> &'static Cluster {
    static SHARED: OnceLock<Cluster> = OnceLock::new();
    SHARED.get_or_init(|| Cluster::start(1, &Options::for_tests()))
}

/// The class path of the brokers' jars, which hold Kafka's own client.
pub fn class_path() -> String {
    Jars::of(VERSION).class_path()
}

/// A name that no other test on the shared broker uses, for a topic or a group.
pub fn unique_name(what: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{what}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}
