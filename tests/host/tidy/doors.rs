//! Rules about outside crates, and their tests: each dependency has a list of the files that may
//! name it.

use super::check;
use super::form::Finding;
use super::source::{Source, Token, Tree, find};

/// The files or folders that may name an outside crate. Replacing the crate touches these alone.
/// What has no boundary, such as a log line, may stand anywhere but in the pure engine.
const DOORS: &[(&str, &[&str])] = &[
    ("async_io", &["src/service/exporter.rs"]),
    ("async_signal", &["src/service/shutdown.rs"]),
    ("atomic_waker", &["src/service/status.rs"]),
    ("base64", &["src/serve/socket.rs"]),
    ("bytes", &["src/kafka/message.rs"]),
    ("clap", &["src/service/cli.rs", "src/service/config_args.rs"]),
    ("clap_complete", &["src/service/cli.rs", "src/tools/reference.rs"]),
    ("clap_mangen", &["src/tools/reference.rs"]),
    ("core_affinity", &["src/runtime/cpu.rs"]),
    ("crc_fast", &["src/kafka/checksum.rs"]),
    ("crossbeam_queue", &["src/queue/"]),
    ("flate2", &["src/kafka/codec.rs", "src/testing/batch_builder.rs"]),
    ("futures_lite", &["src/publisher/native/leader.rs", "src/serve/", "src/service/"]),
    ("hdrhistogram", &["src/tools/demo/verifier.rs"]),
    ("httparse", &["src/http/request.rs"]),
    ("indicatif", &["src/tools/progress_bar.rs"]),
    ("io_uring", &["src/runtime/io_uring_ring.rs", "src/runtime/io_uring_sockets.rs"]),
    (
        "itoa",
        &[
            "src/http/head_lines.rs",
            "src/output/encode.rs",
            "src/output/event_json.rs",
            "src/serve/",
            "src/tools/tap.rs",
            "src/view/json.rs",
        ],
    ),
    ("jiff", &["src/tools/snapshot.rs"]),
    (
        "jsonwebtoken",
        &["src/serve/key_set.rs", "src/serve/signatures.rs", "src/serve/stream_tickets.rs"],
    ),
    (
        "kafka_protocol",
        &[
            "src/kafka/coordinator.rs",
            "src/kafka/group_description.rs",
            "src/kafka/message.rs",
            "src/kafka/producer_id.rs",
            "src/kafka/sasl.rs",
            "src/kafka/topic_requests.rs",
        ],
    ),
    ("libc", &["src/runtime/", "src/snapshot/disk.rs"]),
    ("lz4_flex", &["src/kafka/codec.rs", "src/testing/batch_builder.rs"]),
    ("mimalloc", &["src/runtime/allocator.rs"]),
    (
        "rdkafka",
        &[
            "src/kafka/client.rs",
            "src/kafka/group.rs",
            "src/kafka/group_lag.rs",
            "src/kafka/member_id.rs",
            "src/kafka/topic_writer.rs",
            "src/publisher/producer.rs",
            "src/control/output_log.rs",
            "src/snapshot/replicas.rs",
            "src/serve/feed.rs",
            "src/serve/appender.rs",
            "src/tools/",
        ],
    ),
    (
        "ring",
        &[
            "src/kafka/tls/sealer.rs",
            "src/serve/access.rs",
            "src/serve/key_set.rs",
            "src/serve/signatures.rs",
        ],
    ),
    ("rsasl", &["src/kafka/sasl.rs"]),
    (
        "rustix",
        &[
            "src/queue/bell.rs",
            "src/runtime/",
            "src/fetch/dialling.rs",
            "src/snapshot/disk.rs",
            "src/service/process.rs",
            "src/serve/mod.rs",
            "src/serve/sessions.rs",
            "src/control/channel.rs",
            "src/control/random.rs",
            "src/testing/resident.rs",
            "src/tools/tap.rs",
        ],
    ),
    ("rustls", &["src/kafka/tls/", "src/testing/tls_peer.rs", "src/testing/tls_script.rs"]),
    ("rustls_native_certs", &["src/kafka/tls/mod.rs"]),
    ("sd_notify", &["src/service/notify.rs", "src/service/systemd.rs"]),
    ("seccompiler", &["src/runtime/confinement.rs"]),
    ("serde", &["src/edition.rs", "src/hunt/rules_file.rs", "src/serve/", "src/tools/"]),
    (
        "serde_json",
        &[
            "src/serve/key_set.rs",
            "src/serve/openapi.rs",
            "src/serve/socket.rs",
            "src/service/schema.rs",
            "src/testing/vectors.rs",
            "src/tools/",
        ],
    ),
    ("simd_json", &["src/decoder/json.rs"]),
    ("smol", &["src/runtime/ring_loop.rs", "src/serve/", "src/service/", "src/tools/demo/page.rs"]),
    ("snap", &["src/kafka/codec.rs", "src/testing/batch_builder.rs"]),
    ("strsim", &["src/service/settings.rs"]),
    ("thiserror", &["src/"]),
    ("toml", &["src/edition.rs", "src/service/"]),
    ("tracing", &["src/"]),
    ("tracing_subscriber", &["src/service/journal_line.rs", "src/service/log.rs"]),
    ("tungstenite", &["src/serve/event_form.rs", "src/serve/socket.rs"]),
    ("zstd", &["src/kafka/codec.rs", "src/testing/batch_builder.rs"]),
];

/// Outside crates are named behind their doors alone. Tests may name them: they are not what a
/// replacement has to change.
fn doors(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in tree.product() {
        for (name, doors) in DOORS {
            if doors.iter().any(|door| source.path.starts_with(door)) {
                continue;
            }
            for line in crate_uses(&source.product, name) {
                let message = format!("{name} may only be named in {doors:?}");
                findings.push(Finding::at(source, line, message));
            }
        }
    }
    findings
}

/// Lines that name an outside crate: `name::...`, `use name;`, `use name as ...`.
fn crate_uses(tokens: &[Token], name: &str) -> Vec<usize> {
    let is_first = |&start: &usize| start == 0 || tokens[start - 1].text != "::";
    let paths = find(tokens, &format!("{name} ::")).into_iter().filter(is_first);
    let mut starts: Vec<usize> = paths.collect();
    starts.extend(find(tokens, &format!("use {name} ;")));
    starts.extend(find(tokens, &format!("use {name} as")));
    starts.into_iter().map(|start| tokens[start].line).collect()
}

/// Each dependency has its doors, and nothing else has.
fn dependencies(tree: &Tree) -> Vec<Finding> {
    let Some(manifest) = tree.get("Cargo.toml") else { return Vec::new() };
    let section = manifest.lines().skip_while(|(_, line)| *line != "[dependencies]").skip(1);
    let section = section.take_while(|(_, line)| !line.starts_with('['));
    let named = section.filter_map(|(line, text)| Some((line, text.split_once(" = ")?.0)));
    let named: Vec<(usize, String)> =
        named.map(|(line, name)| (line, name.replace('-', "_"))).collect();
    let mut findings = Vec::new();
    for (line, name) in &named {
        if !DOORS.iter().any(|(door, _)| door == name) {
            let message = format!("list the files that may name {name} in DOORS");
            findings.push(Finding::at(manifest, *line, message));
        }
    }
    for (door, _) in DOORS.iter().filter(|(door, _)| !named.iter().any(|(_, name)| name == door)) {
        findings.push(Finding::at(manifest, 1, format!("{door} is in DOORS and no dependency")));
    }
    findings
}

/// A door is there because somebody goes through it.
fn unused_doors(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, doors) in DOORS {
        for door in *doors {
            let behind: Vec<&Source> =
                tree.product().filter(|source| source.path.starts_with(door)).collect();
            let is_used = |source: &&Source| !crate_uses(&source.product, name).is_empty();
            let Some(first) = behind.first().filter(|_| !behind.iter().any(is_used)) else {
                continue;
            };
            findings.push(Finding::at(first, 1, format!("{door} is a door of {name} for nothing")));
        }
    }
    findings
}

#[test]
fn outside_crates_are_named_behind_their_doors() {
    check(
        doors,
        &[
            &[("src/fetch/connection.rs", "use io_uring::opcode;")],
            &[("src/ownership/fence.rs", "fn f() { rdkafka::util::get_rdkafka_version(); }")],
            &[("src/snapshot/slots.rs", "fn f() { crc_fast::crc32_iscsi(&[]); }")],
            &[("src/decoder/mod.rs", "use simd_json as json;")],
            &[("src/daemon/mod.rs", "use crossbeam_queue::ArrayQueue;")],
            &[("src/service/cpu.rs", "use core_affinity::CoreId;")],
            &[("src/main.rs", "static A: mimalloc::MiMalloc = mimalloc::MiMalloc;")],
            &[("src/output/frame.rs", "#[derive(serde::Serialize)] struct A;")],
            &[("src/fetch/task.rs", "use ring::aead;")],
        ],
        &[
            &[("src/runtime/io_uring_ring.rs", "use io_uring::opcode;")],
            &[("src/tools/load.rs", "use rdkafka::ClientConfig;")],
            &[("src/queue/mod.rs", "use crossbeam_queue::ArrayQueue;")],
            &[("src/service/exit.rs", "enum Exit { io_uring }")],
            &[("src/publisher/mod.rs", "#[cfg(test)] mod tests { use rdkafka::mocking; }")],
            &[("src/fetch/task.rs", "use crate::runtime::ring::Ring; tracing::info!(\"x\");")],
        ],
    );
}

#[test]
fn each_dependency_has_its_doors() {
    let all: String = DOORS.iter().map(|(name, _)| format!("{name} = \"1\"\n")).collect();
    let manifest = |further: &str| {
        format!("[package]\nname = \"a\"\n\n[dependencies]\n{all}{further}\n[dev-dependencies]\n")
    };
    check(
        dependencies,
        &[
            &[("Cargo.toml", &manifest("left-pad = \"1\"\n"))],
            &[("Cargo.toml", &manifest("").replace("rdkafka = \"1\"\n", ""))],
        ],
        &[
            &[("Cargo.toml", &manifest(""))],
            &[("Cargo.toml", &format!("{}left-pad = \"1\"\n", manifest("")))],
            &[("fuzz/Cargo.toml", "[dependencies]\nleft-pad = \"1\"\n")],
        ],
    );
}

#[test]
fn each_door_has_somebody_who_goes_through_it() {
    check(
        unused_doors,
        &[
            &[("src/decoder/json.rs", "fn f() {}")],
            &[("src/decoder/json.rs", "use super::simd_json::Node;")],
        ],
        &[&[(
            "src/decoder/json.rs",
            "use simd_json::Node; use thiserror::Error; use tracing::Span;",
        )]],
    );
}
