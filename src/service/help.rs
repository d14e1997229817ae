//! The `--help` text of each verb: what it does, what to expect, an example.

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
Check everything that would keep `huntd run` from starting, and say how to fix each problem.

Offline: every key, the rules, the cores, and whether the ring of `runtime.ring` is available. \
Otherwise also the brokers, the topics, and whether rules.files contain the rules of each zone. \
Warnings: a password or a token is sent without TLS, an address to listen on is in use, a topic \
has one replica, some brokers do not answer, or the last updates cannot be read in time. \
--deny-warnings makes each warning an error with exit code 3.

Examples:
  huntd check --config huntd.toml --offline
  huntd check --config huntd.toml --deny-warnings";

/// `huntd demo --help`.
pub(crate) const DEMO: &str = "\
Run load generator, daemon and verifying reader in this process, with librdkafka's mock cluster \
between them, and say at the end how fast it was and that nothing was lost. --verbose adds a \
table. Exit 0 if every event is accounted for, or if a signal ended it earlier.

Latencies are the mock's, not a real broker's.

Examples:
  huntd demo
  huntd demo --page --stay
  huntd demo --page --file events.txt --speed 1
  huntd demo --events 1000000 --rate 200000 --json";

/// `huntd load --help`.
pub(crate) const LOAD: &str = "\
Produce player events to a topic: generated ones, or those of a file. With --rate the load is \
open-loop: events are sent at their times, however slow the broker is. Each player's seq starts at \
1, so a second load into the same topic is mostly no-ops, like a producer's repeats.

Examples:
  huntd load --topic hunt-events --events 4000000
  huntd load --topic hunt-events --file events.txt --rate 50000";

/// `huntd replay --help`.
pub(crate) const REPLAY: &str = "\
Apply events with the daemon's own decoder and engine, without the daemon: it prints what the \
daemon must publish. Take the events from a file, one per line, or from a topic, from its start to \
its current end.

With --until, it plays one zone of a configuration up to a record: from the newest snapshot \
before that, on disk or in the snapshot topic, or from the first record. The digest and the chain \
are those of that moment; the counts are of the records since the snapshot.

Examples:
  huntd replay --file events.txt
  huntd replay --brokers 127.0.0.1:9092 --topic hunt-events --json
  huntd replay --config huntd.toml --until 3:4711";

/// `huntd explain --help`.
pub(crate) const EXPLAIN: &str = "\
Explain what became of an event: the record, its outcome and the reason, the updates, and each \
field of the zone's state that it changed, before and after. The zone is played again from the \
newest snapshot before the event, on disk or in the snapshot topic, or from the first record of \
the input. Nothing is changed anywhere, and the daemons may run.

Examples:
  huntd explain --config huntd.toml 3:4711
  huntd explain --config huntd.toml --zone 3 --player 76561198000000001 --seq 1207 --json";

/// `huntd rehearse --help`.
pub(crate) const REHEARSE: &str = "\
Try another version of the game beside the running one: apply each event of the live input to the \
zone by both versions, and report how many had another outcome or other updates, and the first of \
them. Each zone begins with the newest snapshot of the version that plays, and the other version \
takes it over as at an upgrade; from then on each plays its own game, so a difference may cause \
others. A change of the rules counts by itself: the other version plays on by its first rules. \
Nothing is published and no group is joined.

A program has to be built with both versions for this (docs/OPERATIONS.md); its first one is \
rehearsed, unless its argument --edition, which a program with one version does not have, names \
another.

Examples, of a program `mygame` with two versions:
  mygame rehearse --config huntd.toml --once
  mygame rehearse --config huntd.toml --rules new-rules.toml --json";

/// `huntd rules --help`.
pub(crate) const RULES: &str = "\
List the rules in a configuration, each with its ruleset, the number in every frame. With --zones, \
also print the ruleset of each zone, from the last updates of the output topic, and its file. With \
--switch-to, append an event to each partition of the input that switches the game to these rules. \
Every daemon must have them in rules.files before that; otherwise its zones halt at the event.

Examples:
  huntd rules --config huntd.toml
  huntd rules --config huntd.toml --zones
  huntd rules --config huntd.toml --switch-to /etc/huntd/rules-2.toml";

/// `huntd serve --help`.
pub(crate) const SERVE: &str = "\
Answer players, pages and game servers over HTTP until SIGTERM or SIGINT: cards, boards, streams, \
and what the game adds, from what the daemons have published. It reads the output topic without \
joining the group, so any number of these processes can run, anywhere, with the daemons' \
configuration. With --at, it shows one zone as it was after a record of the input, takes no \
commands, and its streams send nothing more.

Examples:
  huntd serve --config huntd.toml
  huntd serve --config huntd.toml --at 3:4711";

/// `huntd snapshot --help`.
pub(crate) const SNAPSHOT: &str = "\
List, verify or remove the snapshots in a configuration's state directory. After a removal, the \
next start uses an older state or replays the input from its start.

Examples:
  huntd snapshot list --config huntd.toml
  huntd snapshot verify --config huntd.toml
  huntd snapshot drop --config huntd.toml --partition 3";

/// `huntd tap --help`.
pub(crate) const TAP: &str = "\
Print the updates of an output topic as JSON lines, once each and in order: frames of former \
owners and repeated frames are dropped, gaps and broken chains are reported on standard error. The \
clocks of the zones are left out, unless --kind clock asks for them.

Examples:
  huntd tap --zone 3 --kind refused
  huntd tap --player 76561198000000042 --from start
  huntd tap --dead-letters --until-end";

/// `huntd topics --help`.
pub(crate) const TOPICS: &str = "\
Create the topics of a configuration: input, output, dead letters, and snapshots if it names a \
topic for them, with the settings that huntd requires. Existing topics are checked and never \
changed.

Examples:
  huntd topics --config huntd.toml --partitions 12 --replicas 3
  huntd topics --config huntd.toml --check";

/// `huntd config --help`.
pub(crate) const CONFIG: &str = "\
Print a configuration with every key, its meaning and its default: your own file needs only what \
differs. With --schema, print its JSON Schema.

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
Print a shell completion script for huntd's verbs, options and their values.

Examples:
  huntd completions bash > /usr/share/bash-completion/completions/huntd
  huntd completions zsh > /usr/share/zsh/vendor-completions/_huntd";

/// `huntd man --help`.
pub(crate) const MAN: &str = "\
Write the manual pages, with the text of `--help`.

Examples:
  huntd man | man -l -
  huntd man --directory /usr/local/share/man/man1";

/// `huntd zones --help`.
pub(crate) const LIST_ZONES: &str = "\
Print a line for each zone: the owner that the group or kafka.assignment names, the instances that \
keep copies of it, in the order in which they take it over, the owner epoch in force, how long ago \
its output was appended to, and how many records of its input the output does not cover. Members \
of a group are printed as HOST/MEMBER.

Examples:
  huntd zones --config huntd.toml
  huntd zones --config huntd.toml --json";
