//! What `--help` says about each verb: what it does, what to expect, an example.

use crate::service::exit::ExitCode;

/// The end of `huntd --help`: every exit code.
pub(crate) fn exit_codes() -> String {
    let line =
        |code: ExitCode| format!("{:>5}  {}\n", code.number(), code.meaning().replace('`', ""));
    format!("Exit codes:\n{}", ExitCode::ALL.map(line).concat())
}

/// `huntd run --help`.
pub(crate) const RUN: &str = "\
Run the daemon until SIGTERM or SIGINT, which make it drain and exit 0.

It joins the consumer group, takes the partitions that the group gives it, and reports to systemd \
when it was started there.

Examples:
  huntd run --config /etc/huntd/huntd.toml
  huntd run --config huntd.toml --skip 3:4711";

/// `huntd check --help`.
pub(crate) const CHECK: &str = "\
Check everything that would keep `huntd run` from starting, and say about each trouble what to do.

Offline: every key, the rules, the cores, and whether the kernel gives io_uring. Otherwise also \
the brokers, the topics, and whether rules.files have the rules that each zone plays by. It warns \
where it cannot be sure that something is wrong: a password or a token is sent without TLS, an \
address to listen on is taken, a topic has one replica, some brokers do not answer, or the last \
updates cannot be read in time. --deny-warnings makes each warning an error with exit code 3.

Examples:
  huntd check --config huntd.toml --offline
  huntd check --config huntd.toml --deny-warnings";

/// `huntd demo --help`.
pub(crate) const DEMO: &str = "\
Run load generator, daemon and verifying reader in this process, with librdkafka's mock cluster \
between them, and end with a table of what happened. Exit 0 only if every event is accounted for.

Latencies are the mock's, not a real broker's.

Examples:
  huntd demo
  huntd demo --page --stay
  huntd demo --page --match FILE --speed 1
  huntd demo --events 1000000 --rate 200000 --json";

/// `huntd load --help`.
pub(crate) const LOAD: &str = "\
Produce player events to a topic: made-up ones, or a recorded match. With --rate the load is open \
loop: events are due at their times, however slow the broker is. Players count their events from 1 \
on, so a second load into one topic is mostly no-ops, as a producer's repeats are.

Examples:
  huntd load --topic hunt-events --events 4000000
  huntd load --topic hunt-events --match match.jsonl.zst --format prbf2 --rate 50000";

/// `huntd replay --help`.
pub(crate) const REPLAY: &str = "\
Apply events with the daemon's own decoder and engine, without the daemon: what it prints is what \
the daemon must publish. Take the events from a file (a recorded match, or one JSON event a line) \
or from a topic, from its start to its present end.

Examples:
  huntd replay --file match.jsonl.zst --format prbf2 --partitions 4
  huntd replay --brokers 127.0.0.1:9092 --topic hunt-events --json";

/// `huntd rules --help`.
pub(crate) const RULES: &str = "\
List the rules that a configuration names, each with its ruleset: the number that stands in every \
frame. With --zones, print also the ruleset of each zone, as the last updates of the output topic \
say, and which file has it. With --switch-to, append an event to each partition of the input after \
which the game plays by these rules. Every daemon must have them in rules.files before: if not, \
its zones halt at the event.

Examples:
  huntd rules --config huntd.toml
  huntd rules --config huntd.toml --zones
  huntd rules --config huntd.toml --switch-to /etc/huntd/rules-2.toml";

/// `huntd serve --help`.
pub(crate) const SERVE: &str = "\
Answer players, pages and game servers over HTTP until SIGTERM or SIGINT: cards, boards, hunts and \
tiles, from what the daemons have published. It reads the output topic without joining the group, \
so any number of these processes can run, anywhere, with the daemons' configuration.

Example:
  huntd serve --config huntd.toml";

/// `huntd snapshot --help`.
pub(crate) const SNAPSHOT: &str = "\
Look at the snapshots in the state directory that a configuration names, or remove them, so that \
the next start takes an older state or replays the input from its start.

Examples:
  huntd snapshot list --config huntd.toml
  huntd snapshot verify --config huntd.toml
  huntd snapshot drop --config huntd.toml --partition 3";

/// `huntd tap --help`.
pub(crate) const TAP: &str = "\
Print the updates of an output topic as JSON lines, once each and in order: frames of former \
owners and repeated frames are dropped, gaps and broken chains are reported on standard error.

Examples:
  huntd tap --zone 3 --kind refused
  huntd tap --player 76561198000000042 --from start
  huntd tap --dead-letters --until-end";

/// `huntd topics --help`.
pub(crate) const TOPICS: &str = "\
Create the topics that a configuration names: input, output, dead letters, and snapshots if it \
names one for them. They get the settings that huntd relies on; topics that exist are checked, and \
never changed.

Examples:
  huntd topics --config huntd.toml --partitions 12 --replicas 3
  huntd topics --config huntd.toml --check";

/// `huntd config --help`.
pub(crate) const CONFIG: &str = "\
Print a configuration with every key, what it means, and its default: a file of yours needs only \
what differs. With --schema, print a JSON Schema of it.

Examples:
  huntd config > huntd.toml
  huntd config --schema > huntd.schema.json";

/// `huntd schema --help`.
pub(crate) const SCHEMA: &str = "\
Print the tables of events and updates as JSON: the type, fields and ranges of each event, and the \
number, fields and names of each update. Clients in other languages read frames by them.

Example:
  huntd schema | jq '.updates[] | select(.kind == \"moved\")'";

/// `huntd completions --help`.
pub(crate) const COMPLETIONS: &str = "\
Print a script with which a shell completes huntd's verbs, options and their values.

Examples:
  huntd completions bash > /usr/share/bash-completion/completions/huntd
  huntd completions zsh > /usr/share/zsh/vendor-completions/_huntd";

/// `huntd man --help`.
pub(crate) const MAN: &str = "\
Write the manual pages, as this command line's own help has them.

Examples:
  huntd man | man -l -
  huntd man --directory /usr/local/share/man/man1";
