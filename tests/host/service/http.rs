//! The pages, and what becomes of requests that are none.

use huntd::hunt;
use huntd::service::exporter::HTTP_CONNECTIONS_MAX;
use huntd::service::exposition::render;
use huntd::service::status::{Phase, Status};
use huntd::service::{Observed, Service, ServiceOptions, log};
use huntd::telemetry::metrics::{Counter, Gauge, Metrics};
use huntd::telemetry::progress::Progress;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use support::PATIENCE;
use support::scrape::families;

fn observed() -> Observed {
    Observed {
        metrics: Arc::new(
            Metrics::with_names(&["join", "move"], &["too_far", "no_treasure"], &["not_json"])
                .counting_in_zones(hunt::schema().counts),
        ),
        progress: Arc::new(Progress::new()),
        status: Arc::new(Status::new()),
    }
}

fn start(observed: &Observed) -> Service {
    let options = ServiceOptions {
        listen: "127.0.0.1:0".parse().expect("an address"),
        log_format: log::LogFormat::Text,
        log_level: tracing::Level::ERROR,
    };
    Service::start(&options, observed.clone(), None, || ()).expect("a free port")
}

fn connect(service: &Service) -> TcpStream {
    let stream = TcpStream::connect(service.address()).expect("the service listens");
    // Only a guard against waiting for ever.
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// Everything that comes back for these bytes.
fn answer(service: &Service, request: &[u8]) -> String {
    let mut stream = connect(service);
    stream.write_all(request).expect("the service reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer, then the end");
    answer
}

/// Status and body of a page.
fn get(service: &Service, path: &str) -> (u16, String) {
    let answer = answer(service, format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.expect("a status"), body.to_owned())
}

#[test]
fn readiness_follows_the_phase_and_gives_the_reason() {
    let observed = observed();
    let service = start(&observed);
    let reason = |text: &str| (503, format!("{text}\n"));
    assert_eq!(get(&service, "/readyz"), reason("huntd is starting"));
    observed.status.enter(Phase::Joining);
    assert_eq!(get(&service, "/readyz"), reason("huntd waits to join the consumer group"));
    observed.status.enter(Phase::Connecting);
    assert_eq!(get(&service, "/readyz"), reason("huntd waits for connections to the brokers"));
    observed.status.enter(Phase::Ready);
    assert_eq!(get(&service, "/readyz"), (200, "ready\n".to_owned()));
    observed.status.set_halted_shards(2);
    assert_eq!(get(&service, "/readyz"), reason("halted shards: 2; read the log"));
    observed.status.enter(Phase::Draining);
    observed.status.enter(Phase::Ready);
    let draining = "huntd is draining\nhalted shards: 2; read the log";
    assert_eq!(get(&service, "/readyz"), reason(draining), "draining is final");
    assert_eq!(get(&service, "/livez"), (200, "live\n".to_owned()));
    service.finish(Ok(()));
}

/// Decision 044: the instance plays its own partitions, and alerts watch the metric.
#[test]
fn partitions_that_nobody_reads_are_in_the_metrics_and_make_no_instance_unready() {
    let observed = observed();
    let service = start(&observed);
    observed.status.enter(Phase::Ready);
    observed.progress.unread_partitions.set(3);
    assert_eq!(get(&service, "/readyz"), (200, "ready\n".to_owned()));
    let (_, page) = get(&service, "/metrics");
    assert!(page.contains("\nhuntd_partitions_unread 3\n"), "{page}");
    assert!(page.contains("\nhuntd_ready 1\n"), "{page}");
    service.finish(Ok(()));
}

#[test]
fn a_path_without_a_page_gets_a_status_that_says_so() {
    let service = start(&observed());
    let status = |line: &str, rest: &str| {
        answer(&service, format!("{line} HTTP/1.1\r\nHost: x\r\n{rest}").as_bytes())[9..12]
            .to_owned()
    };
    assert_eq!(get(&service, "/").0, 404);
    assert_eq!(get(&service, "/metrics/x").0, 404);
    assert_eq!(get(&service, "/livez?verbose").0, 200);
    assert_eq!(status("POST /metrics", "Content-Length: 3\r\n\r\nabc"), "405");
    // One that waits to be asked for its body is not.
    let expecting = "Content-Length: 3\r\nExpect: 100-continue\r\n\r\n";
    assert_eq!(status("POST /metrics", expecting), "405");
    assert_eq!(status("DELETE /livez", "\r\n"), "405");
    assert_eq!(status("BREW /livez", "\r\n"), "501");
    assert_eq!(status("GET nonsense", "\r\n"), "400");
    assert_eq!(status(&format!("GET /{}", "x".repeat(4096)), ""), "431");
    let headers: String = (0..100).map(|n| format!("h{n}: v\r\n")).collect();
    assert_eq!(status("GET /", &format!("{headers}\r\n")), "431");
    assert_eq!(answer(&service, b"GET /livez HTTP/1.1\r\n\r\n")[9..12], *"400", "no Host");
    service.finish(Ok(()));
}

#[test]
fn a_page_is_found_whatever_form_its_target_and_its_version_have() {
    let service = start(&observed());
    for request in [
        "GET http://monitoring.example:9000/livez HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /%6civez HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /livez HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    ] {
        let answer = answer(&service, request.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{request}: {answer}");
        assert!(answer.contains("\r\nConnection: close\r\n"), "{request}: {answer}");
    }
    service.finish(Ok(()));
}

#[test]
fn an_answer_to_head_has_no_body_whatever_its_status() {
    let service = start(&observed());
    for (target, status) in [("/livez", 200), ("/readyz", 503), ("/", 404), ("nonsense", 400)] {
        let request = format!("HEAD {target} HTTP/1.1\r\nHost: x\r\n\r\n");
        let head = answer(&service, request.as_bytes());
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
        let (_, body) = head.split_once("\r\n\r\n").expect("a whole head");
        assert_eq!(body, "", "{target}");
    }
    service.finish(Ok(()));
}

#[test]
fn a_request_may_come_in_pieces() {
    let service = start(&observed());
    let mut stream = connect(&service);
    for byte in b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n" {
        stream.write_all(&[*byte]).expect("the service reads");
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    service.finish(Ok(()));
}

#[test]
fn idle_clients_give_way_to_those_that_come_later() {
    let service = start(&observed());
    let mut idle: Vec<_> = (0..10 * HTTP_CONNECTIONS_MAX).map(|_| connect(&service)).collect();
    assert_eq!(get(&service, "/livez").0, 200);
    // The oldest were closed for it; the last ones have their time, and are closed then.
    for stream in &mut idle {
        assert_eq!(stream.read(&mut [0]).expect("the service closes it"), 0);
    }
    service.finish(Ok(()));
}

/// Seeds a random test, new for each run unless it is given. A failing test shows the line.
fn seed() -> u64 {
    let given = std::env::var("HUNTD_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or(std::process::id().into());
    println!("to run this again: HUNTD_TEST_SEED={seed}");
    seed
}

#[test]
fn whatever_bytes_come_get_an_answer_or_a_close() {
    let service = start(&observed());
    let seed = seed();
    let mut state = seed;
    let mut random = move |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % bound
    };
    let mut seen = BTreeSet::new();
    for round in 0..400 {
        let page = ["/metrics", "/elsewhere"][random(2)];
        let valid = format!("GET {page} HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n");
        let mut bytes = valid.into_bytes();
        for _ in 0..random(4) {
            let at = random(bytes.len());
            match random(4) {
                0 => bytes[at] = random(256) as u8,
                1 => bytes.insert(at, random(256) as u8),
                2 => bytes.truncate(at + 1),
                _ => bytes = (0..random(100) + 1).map(|_| random(256) as u8).collect(),
            }
        }
        let mut stream = connect(&service);
        stream.write_all(&bytes).expect("the service reads");
        stream.shutdown(std::net::Shutdown::Write).expect("half closes");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer or a close");
        let is_answer = answer.is_empty() || answer.starts_with(b"HTTP/1.1 ");
        assert!(is_answer, "seed={seed} round={round}");
        seen.insert(String::from_utf8_lossy(answer.get(9..12).unwrap_or_default()).into_owned());
    }
    for status in ["", "200", "400", "404"] {
        assert!(seen.contains(status), "{status:?} never came up: seed={seed}");
    }
    assert_eq!(get(&service, "/livez").0, 200);
    service.finish(Ok(()));
}

/// The samples of a page, checked against the format: each belongs to the family announced last,
/// and none comes twice.
fn samples(page: &str) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    let mut family = (String::new(), String::new());
    let mut announced = BTreeSet::new();
    for line in page.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, sentence) = help.split_once(' ').expect("a name and a sentence");
            assert!(sentence.ends_with('.'), "{line}");
            assert!(announced.insert(name.to_owned()), "announced twice: {line}");
            family.0 = name.to_owned();
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a name and a kind");
            assert_eq!(name, family.0);
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            family.1 = kind.to_owned();
        } else {
            let (sample, value) = line.rsplit_once(' ').expect("a sample and a value");
            let name = sample.split('{').next().expect("a name");
            let suffix = name.strip_prefix(&family.0).expect("a sample of the family");
            let suffixes: &[&str] =
                if family.1 == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(suffixes.contains(&suffix), "{line}");
            let value = value.parse().expect("a number");
            assert!(samples.insert(sample.to_owned(), value).is_none(), "twice: {line}");
        }
    }
    samples
}

#[test]
fn the_metrics_page_has_every_value_under_its_name() {
    let observed = observed();
    observed.metrics.add(Counter::UpdatesMade, 41);
    observed.metrics.add(Counter::UpdatesMade, 1);
    observed.metrics.applied.add(7, 1, 5);
    observed.metrics.refusals.add(3, 1, 1);
    observed.metrics.no_ops.add(7, 0, 2);
    observed.metrics.set_gauge(Gauge::Partitions, 8);
    observed.metrics.set_gauge(Gauge::QueueBlocks, 3);
    observed.metrics.end_to_end.record_age(1_000);
    observed.metrics.end_to_end.record_age(70_000_000);
    observed.metrics.end_to_end.record_age(-5);
    let shard = observed.progress.shard(7);
    shard.ownership_id.set(1);
    shard.fetched.set(20);
    shard.acked.set(12);
    shard.counts[0].set(20);
    shard.snapshot_at_ms.set(1_767_225_600_999);
    let service = start(&observed);
    let (status, page) = get(&service, "/metrics");
    assert_eq!(status, 200);
    let values = samples(&page);
    for (sample, value) in [
        ("huntd_updates_made_total", 42.0),
        ("huntd_events_applied_total{partition=\"7\",type=\"move\"}", 5.0),
        ("huntd_events_refused_total{partition=\"3\",reason=\"no_treasure\"}", 1.0),
        ("huntd_events_no_op_total{partition=\"7\"}", 2.0),
        ("huntd_players{partition=\"7\"}", 20.0),
        ("huntd_snapshot_timestamp_seconds{partition=\"7\"}", 1_767_225_600.0),
        ("huntd_partitions", 8.0),
        ("huntd_queue_blocks", 3.0),
        ("huntd_shards_owned", 1.0),
        ("huntd_shard_owned{partition=\"7\"}", 1.0),
        ("huntd_progress_offset{partition=\"7\",stage=\"fetched\"}", 20.0),
        ("huntd_progress_offset{partition=\"7\",stage=\"acked\"}", 12.0),
        ("huntd_end_to_end_seconds_sum", 70.001),
        ("huntd_end_to_end_seconds_count", 3.0),
        ("huntd_end_to_end_seconds_bucket{le=\"0.000064\"}", 1.0),
        ("huntd_end_to_end_seconds_bucket{le=\"67.108864\"}", 2.0),
        ("huntd_end_to_end_seconds_bucket{le=\"+Inf\"}", 3.0),
        ("huntd_ready", 0.0),
    ] {
        assert_eq!(values.get(sample), Some(&value), "{sample}");
    }
    assert!(values["process_resident_memory_bytes"] > 1e6);
    assert!(values["process_start_time_seconds"] > 1.7e9);
    assert!(page.contains(concat!("{version=\"", env!("CARGO_PKG_VERSION"), "\",revision=\"")));
    for name in families().into_iter().map(|family| family.name) {
        assert!(page.contains(&format!("# HELP {name} ")), "{name}");
    }
    // The process that follows another owner stores no snapshots.
    shard.following.set(1);
    assert!(!samples(&render(&observed)).keys().any(|it| it.contains("snapshot_timestamp")));
    service.finish(Ok(()));
}

#[test]
fn a_counter_of_a_shard_stays_when_the_shard_goes_to_another_instance() {
    let observed = observed();
    let (shard, name) = (observed.progress.shard(7), "huntd_throttled_seconds_total");
    let shown = || {
        let is_it = |sample: &String| sample.starts_with(name);
        samples(&render(&observed)).into_keys().filter(is_it).count()
    };
    assert_eq!(shown(), 0);
    shard.ownership_id.set(2);
    assert_eq!(shown(), 2, "it begins at 0");
    shard.fetch_throttled_ms.set(1_500);
    shard.ownership_id.set(0);
    assert_eq!(shown(), 1);
}

#[test]
fn lag_in_seconds_is_the_age_of_the_newest_event_that_was_applied() {
    let observed = observed();
    let seconds = || samples(&render(&observed)).remove("huntd_lag_seconds{partition=\"3\"}");
    let shard = observed.progress.shard(3);
    shard.ownership_id.set(2);
    shard.acked.set(10);
    shard.high_watermark.set(10);
    assert_eq!(seconds(), Some(0.0), "there is nothing to apply");
    shard.high_watermark.set(25);
    assert_eq!(seconds(), None, "nothing was applied");
    let since_epoch = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("it is later");
    shard.applied_time_ms.set(since_epoch.as_millis() as i64 - 60_000);
    assert!(seconds().is_some_and(|seconds| seconds >= 60.0), "{:?}", seconds());
}

#[test]
fn lag_is_absent_while_the_end_of_the_log_is_unknown() {
    let observed = observed();
    let lag = || samples(&render(&observed)).remove("huntd_lag_records{partition=\"3\"}");
    let shard = observed.progress.shard(3);
    shard.acked.set(10);
    shard.high_watermark.set(25);
    assert_eq!(lag(), None, "not owned");
    shard.ownership_id.set(2);
    assert_eq!(lag(), Some(15.0));
    shard.high_watermark.set(-1);
    assert_eq!(lag(), None, "unknown");
}
