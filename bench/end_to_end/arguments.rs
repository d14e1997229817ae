//! The command line.

use crate::programs::Program;
use std::path::PathBuf;
use std::time::Duration;

const USAGE: &str = "cargo bench --bench end_to_end -- \
                     [--rate R | --drain | --tls | --native | --search | --soak R | --generator R] \
                     [--zones N] [--players N] [--seconds S] [--rounds N] [--peers a,b,c] \
                     [--json FILE] [--smoke]\npeers: \
                     rdkafka-channel, rdkafka-tokio, rdkafka-smol, franz-go, kafka-streams, none";

/// Of each build tool that the tests have already, one peer.
const PEERS_SMOKE: &str = "rdkafka-tokio,kafka-streams";

/// Zones, one partition each, and the players in all of them, if the command line says nothing.
const ZONES: usize = 4;
const PLAYERS: u64 = 3_000;

/// How often each program drains and is measured at a rate, if the command line says nothing.
const ROUNDS: usize = 3;

/// What is to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// How fast a preloaded topic is drained.
    Drain,
    /// The same in plaintext and over TLS, by turns.
    Tls,
    /// How fast huntd alone takes events from memory.
    Native,
    /// Latency at so many events a second.
    Rate(u64),
    /// The highest rate at which huntd's latency holds its bounds.
    Search,
    /// Memory, allocations and latency of huntd over a long time at so many events a second.
    Soak(u64),
    /// The generator alone at so many events a second, and as fast as it goes, without a broker.
    Generator(u64),
}

/// The command line, read.
pub(crate) struct Arguments {
    /// The modes in their order; without any named one, the drain and two rates.
    pub modes: Vec<Mode>,
    /// Zones, one partition each.
    pub zones: usize,
    /// Players in all zones together.
    pub players: u64,
    pub seconds: Option<Duration>,
    pub rounds: usize,
    pub programs: Vec<Program>,
    pub json: Option<PathBuf>,
    pub smoke: bool,
}

impl Arguments {
    /// Reads the command line; a wrong one ends the process with a sentence.
    pub(crate) fn read() -> Arguments {
        match Arguments::parse(std::env::args().skip(1)) {
            Ok(arguments) => arguments,
            Err(sentence) => panic!("{sentence}\n{USAGE}"),
        }
    }

    fn parse(mut given: impl Iterator<Item = String>) -> Result<Arguments, String> {
        let (mut modes, mut seconds, mut json, mut peers) = (Vec::new(), None, None, None);
        let (mut rounds, mut zones, mut players) = (None, ZONES, PLAYERS);
        // Without `--bench`, `cargo test` runs it.
        let (mut smoke, mut bench) = (false, false);
        while let Some(argument) = given.next() {
            let mut value = || given.next().ok_or(format!("{argument} needs a value"));
            let number =
                |text: String| text.parse::<u64>().map_err(|_| format!("{text} is no number"));
            match argument.as_str() {
                "--bench" => bench = true,
                "--smoke" => smoke = true,
                "--drain" => modes.push(Mode::Drain),
                "--tls" => modes.push(Mode::Tls),
                "--native" => modes.push(Mode::Native),
                "--search" => modes.push(Mode::Search),
                "--rate" => modes.push(Mode::Rate(number(value()?)?)),
                "--soak" => modes.push(Mode::Soak(number(value()?)?)),
                "--generator" => modes.push(Mode::Generator(number(value()?)?)),
                "--zones" => zones = number(value()?)? as usize,
                "--players" => players = number(value()?)?,
                "--seconds" => seconds = Some(Duration::from_secs(number(value()?)?)),
                "--rounds" => rounds = Some(number(value()?)? as usize),
                "--peers" => peers = Some(value()?),
                "--json" => json = Some(PathBuf::from(value()?)),
                other => return Err(format!("{other} is not known")),
            }
        }
        let smoke = smoke || !bench;
        if modes.is_empty() {
            modes = match smoke {
                true => {
                    let (rate, soak) = (Mode::Rate(5_000), Mode::Soak(5_000));
                    let more =
                        [Mode::Tls, Mode::Native, Mode::Search, soak, Mode::Generator(5_000)];
                    [Mode::Drain, rate].into_iter().chain(more).collect()
                }
                false => vec![Mode::Drain, Mode::Rate(250_000), Mode::Rate(1_000_000)],
            };
        }
        let rounds = rounds.unwrap_or(if smoke { 1 } else { ROUNDS });
        if rounds == 0 {
            return Err("there is no figure of 0 rounds".to_owned());
        }
        if zones == 0 || players < zones as u64 {
            return Err("each zone needs a player".to_owned());
        }
        let peers = peers.unwrap_or(if smoke { PEERS_SMOKE } else { "all" }.to_owned());
        let programs = programs(&peers)?;
        Ok(Arguments { modes, zones, players, seconds, rounds, programs, json, smoke })
    }
}

/// The echo, huntd in both formats, and the peers that are named.
fn programs(peers: &str) -> Result<Vec<Program>, String> {
    let known = |name: &str| Program::ALL.iter().any(|peer| peer.is_peer() && peer.name() == name);
    let names: Vec<&str> = match peers {
        "all" => Program::ALL.iter().map(|program| program.name()).collect(),
        "none" => Vec::new(),
        names => names.split(',').collect(),
    };
    if let Some(wrong) = names.iter().find(|name| !matches!(peers, "all") && !known(name)) {
        return Err(format!("there is no peer {wrong}"));
    }
    let chosen = |program: &&Program| !program.is_peer() || names.contains(&program.name());
    Ok(Program::ALL.iter().filter(chosen).copied().collect())
}
