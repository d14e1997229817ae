//! Programs of others as clients, and one in front: each has its own way to write HTTP.

use super::read_answer;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use support::PATIENCE;
use support::needs;
use support::playing::Playing;
use support::process::OwnedChild;
use tungstenite::protocol::{Message, Role, WebSocket};

/// The interpreter that the distribution's modules are for.
const PYTHON: &str = "/usr/bin/python3";

/// A body that a demo refuses only once it has read it: a demo takes no events.
const EVENT: &str = r#"{"type":"loot","player_id":1}"#;

/// The directives with which nginx passes a WebSocket on, as docs/QUERIES.md lists them.
const UPGRADE: [&str; 3] = [
    "proxy_http_version 1.1",
    "proxy_set_header Upgrade $http_upgrade",
    "proxy_set_header Connection upgrade",
];

/// What `curl --write-out` says of each answer: its status, and how many connections it took.
const STATUS_AND_CONNECTS: &str = "%{http_code} %{num_connects}\\n";

fn quiet() -> Playing {
    Playing::start(&["--events", "2000", "--rate", "0", "--partitions", "2"])
}

/// All that a program prints that succeeds.
fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect("it is installed");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {printed}{errors}");
    printed
}

fn curl(arguments: &[&str]) -> String {
    run("curl", &[&["--silent", "--show-error", "--max-time", "60"], arguments].concat())
}

#[test]
fn curl_is_answered_in_every_form_that_it_asks_in() {
    if !needs::has_program("curl", "--version") {
        return;
    }
    let playing = quiet();
    let url = |path: &str| format!("http://{}{path}", playing.address);
    let (zones, live, events) = (url("/v1/zones"), url("/livez"), url("/v1/events?zone=0"));
    for version in ["--http1.1", "--http1.0"] {
        let keep = ["--header", "Connection: keep-alive", "--output", "/dev/null"];
        let say = ["--write-out", STATUS_AND_CONNECTS, "--output", "/dev/null"];
        let asked = [&[version][..], &keep, &say, &[&zones, &live]].concat();
        assert_eq!(curl(&asked), "200 1\n200 0\n", "{version}");
    }
    let (head, body) = (curl(&["--head", &zones]), curl(&[&zones]));
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    assert_eq!(length.map(str::trim), Some(body.len().to_string().as_str()), "{head}");
    assert!(head.ends_with("\r\n\r\n"), "{head}");
    let options = curl(&["--include", "--request", "OPTIONS", &zones]);
    assert!(options.starts_with("HTTP/1.1 204 ") && options.contains("\r\nAllow: GET, HEAD"));
    let all = ["--include", "--request", "OPTIONS", "--request-target", "*", &zones];
    assert!(curl(&all).starts_with("HTTP/1.1 204 "));
    // The body is read as a whole: the next request on the connection is understood.
    let upload = ["--header", "Content-Type: application/json", "--data", EVENT];
    let say = ["--write-out", STATUS_AND_CONNECTS, "--output", "/dev/null"];
    for framing in ["Transfer-Encoding: chunked", "Expect: 100-continue"] {
        let post = [&upload[..], &say, &["--header", framing, &events]].concat();
        let both = [&post[..], &["--next", "--silent"], &say, &[&live]].concat();
        assert_eq!(curl(&both), "403 1\n200 0\n", "{framing}");
    }
    let encoded = ["--get", "--data-urlencode", "at=0:0", &zones];
    assert_eq!(curl(&[&say[..], &encoded].concat()), "200 1\n");
    // A client that takes the server for a proxy sends the absolute form.
    let proxy = url("");
    let absolute = ["--proxy", &proxy, "http://localhost/livez"];
    assert_eq!(curl(&[&say[..], &absolute].concat()), "200 1\n");
}

#[test]
fn python_reads_answers_on_one_connection_and_posts_chunks() {
    if !needs::has_program(PYTHON, "--version") {
        return;
    }
    let script = r#"
import http.client, json, sys, urllib.parse, urllib.request
host, event = sys.argv[1:]
connection = http.client.HTTPConnection(host, timeout=60)
def ask(method, path, status, **rest):
    connection.request(method, path, **rest)
    answer = connection.getresponse()
    body = answer.read()
    assert answer.status == status, (method, path, answer.status, body)
    return body
zones = ask("GET", "/v1/zones", 200)
kept = connection.sock
assert len(json.loads(zones)["zones"]) == 2
assert ask("HEAD", "/v1/zones", 200) == b""
json_type = {"Content-Type": "application/json"}
pieces = (event[at:at + 5].encode() for at in range(0, len(event), 5))
ask("POST", "/v1/events?zone=0", 403, body=pieces, headers=json_type, encode_chunked=True)
ask("GET", "/livez", 200)
assert connection.sock is kept, "another connection"
query = urllib.parse.urlencode({"at": "0:0", "wait_ms": 0})
with urllib.request.urlopen(f"http://{host}/v1/zones?{query}", timeout=60) as answer:
    assert answer.status == 200
"#;
    let playing = quiet();
    run(PYTHON, &["-c", script, &playing.address, EVENT]);
}

#[test]
fn python_requests_keeps_its_session() {
    let has = Command::new(PYTHON).args(["-c", "import requests"]).output();
    if !needs::has("python3-requests", has.is_ok_and(|output| output.status.success())) {
        return;
    }
    let script = r#"
import requests, sys
host, event = sys.argv[1:]
session = requests.Session()
session.trust_env = False
def ask(method, path, status, **rest):
    answer = session.request(method, f"http://{host}{path}", timeout=60, **rest)
    assert answer.status_code == status, (method, path, answer.status_code, answer.text)
    return answer
assert len(ask("GET", "/v1/zones", 200, params={"at": "0:0"}).json()["zones"]) == 2
assert "GET" in ask("OPTIONS", "/v1/zones", 204).headers["Allow"]
pieces = iter([event[:5].encode(), event[5:].encode()])
ask("POST", "/v1/events?zone=0", 403, data=pieces, headers={"Content-Type": "application/json"})
ask("GET", "/livez", 200)
with session.get(f"http://{host}/v1/stream?zone=0", stream=True, timeout=60) as stream:
    lines = stream.iter_lines(chunk_size=1)
    assert next(lines) == b"event: at"
"#;
    let playing = quiet();
    run(PYTHON, &["-c", script, &playing.address, EVENT]);
}

/// As .NET's `HttpClient` sends a body whose length it does not know: the head, each chunk's size
/// in capital digits, its bytes and the end in writes of their own.
#[test]
fn a_body_whose_chunks_come_in_small_writes_is_read_as_one() {
    let playing = quiet();
    let mut stream = playing.connect();
    let head = format!(
        "POST /v1/events?zone=0 HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\n\
         Content-Type: application/json; charset=utf-8\r\n\r\n",
        playing.address
    );
    let size = format!("{:X}\r\n", EVENT.len());
    for piece in [&head, &size, EVENT, "\r\n", "0\r\n\r\n"] {
        stream.write_all(piece.as_bytes()).expect("it reads");
    }
    assert!(read_answer(&mut stream).0.starts_with("HTTP/1.1 403 "));
    stream.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it reads");
    assert!(read_answer(&mut stream).0.starts_with("HTTP/1.1 200 "));
}

/// `ab` speaks HTTP/1.0, and keeps a connection only if the answer says so.
#[test]
fn apache_bench_keeps_its_connections_for_all_requests() {
    if !needs::has_program("ab", "-V") {
        return;
    }
    let playing = quiet();
    let url = format!("http://{}/v1/openapi.json", playing.address);
    let report = run("ab", &["-k", "-q", "-n", "1000", "-c", "8", &url]);
    let value = |name: &str| {
        let line = report.lines().find_map(|line| line.strip_prefix(name));
        line.map(|value| value.trim().to_owned())
    };
    assert_eq!(value("Failed requests:").as_deref(), Some("0"), "{report}");
    assert_eq!(value("Keep-Alive requests:").as_deref(), Some("1000"), "{report}");
    assert_eq!(value("Non-2xx responses:"), None, "{report}");
}

/// nginx in front of a server, at a socket in a folder of its own. Dropped, it is killed.
struct Nginx {
    _child: OwnedChild,
    folder: tempfile::TempDir,
}

impl Nginx {
    fn start(upstream: &str) -> Nginx {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|of| format!("{of}_temp_path {};\n", path(of)))
            .concat();
        let config = format!(
            "daemon off; master_process off; pid {}; error_log stderr;\n\
             events {{}}\n\
             http {{ access_log off;\n{temporary}\
             upstream huntd {{ server {upstream}; keepalive 4; }}\n\
             server {{ listen unix:{}; location / {{ proxy_pass http://huntd;\n\
             proxy_set_header Host localhost;\n\
             proxy_http_version 1.1; proxy_set_header Connection \"\"; }}\n\
             location = /v1/stream {{ proxy_pass http://huntd;\n\
             proxy_set_header Host localhost;\n{}; }} }} }}\n",
            path("pid"),
            path("socket"),
            UPGRADE.join(";\n"),
        );
        std::fs::write(path("nginx.conf"), config).expect("the file is written");
        let child = Command::new("nginx")
            .args(["-e", "stderr", "-p", &path(""), "-c", &path("nginx.conf")])
            .stdin(Stdio::null())
            .spawn()
            .expect("nginx is started");
        Nginx { _child: child.into(), folder }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }
}

fn connect(socket: &Path) -> UnixStream {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Ok(stream) = UnixStream::connect(socket) {
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
            return stream;
        }
        assert!(Instant::now() < end, "nginx does not listen");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn behind_nginx_requests_are_answered_and_an_event_of_a_stream_comes_at_once() {
    if !needs::has_program("nginx", "-v") {
        return;
    }
    let playing = quiet();
    let nginx = Nginx::start(&playing.address);
    let mut stream = connect(&nginx.socket());
    let mut ask = |request: &str| {
        stream.write_all(request.as_bytes()).expect("it reads");
        read_answer(&mut stream).0
    };
    for _ in 0..20 {
        let answer = ask("GET /v1/openapi.json HTTP/1.1\r\nHost: example.org\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    let post = "POST /v1/events?zone=0 HTTP/1.1\r\nHost: example.org\r\n\
                Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    let answer = ask(&format!("{post}{:x}\r\n{EVENT}\r\n0\r\n\r\n", EVENT.len()));
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    // The board of a quiet world is the last event for long, and shorter than what nginx collects
    // before it passes on what it buffers: 4,000 bytes.
    let mut stream = connect(&nginx.socket());
    let board = "GET /v1/stream?board=world HTTP/1.1\r\nHost: example.org\r\n\r\n";
    stream.write_all(board.as_bytes()).expect("it reads");
    let (mut received, mut piece) = (String::new(), [0; 1024]);
    while !received.contains("event: board\n") || !received.contains("}\n\n") {
        let bytes = stream.read(&mut piece).expect("the event comes");
        received += &String::from_utf8_lossy(&piece[..bytes]);
        assert!(bytes > 0 && received.len() < 4_000, "{received}");
    }
}

#[test]
fn behind_nginx_a_websocket_has_the_events_of_its_topics() {
    if !needs::has_program("nginx", "-v") {
        return;
    }
    let queries = include_str!("../../../docs/QUERIES.md");
    for directive in UPGRADE {
        assert!(queries.contains(directive), "docs/QUERIES.md does not ask for {directive}");
    }
    let playing = quiet();
    let nginx = Nginx::start(&playing.address);
    let mut stream = connect(&nginx.socket());
    let upgrade = "GET /v1/stream?board=world HTTP/1.1\r\nHost: example.org\r\n\
                   Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(upgrade.as_bytes()).expect("it reads");
    let (head, _) = read_answer(&mut stream);
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    let mut socket = WebSocket::from_raw_socket(stream, Role::Client, None);
    let message = socket.read().expect("the event comes").into_text().expect("it is text");
    assert!(message.starts_with(r#"[{"event":"board","#), "{message}");
    socket.close(None).expect("it reads");
    assert!(matches!(socket.read(), Ok(Message::Close(_))));
}
