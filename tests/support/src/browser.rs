//! A real browser without a window, driven by WebDriver (W3C): Debian's chromium and
//! chromium-driver.

use crate::PATIENCE;
use crate::needs;
use crate::process::{OwnedChild, wait_for_line};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A process has one browser at a time: each draws without a graphics card and takes a whole core.
static TURN: Mutex<()> = Mutex::new(());

/// A browser with one page. Dropped, it is closed.
pub struct Browser {
    _driver: OwnedChild,
    address: String,
    session: String,
    _profile: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

/// How a page is looked at.
#[derive(Clone, Copy)]
pub struct Look {
    pub width: u32,
    pub height: u32,
    pub is_dark: bool,
}

/// Times that the driver is started: it takes a free port of one address family, and ends if that
/// of the other is in use.
const DRIVER_STARTS_MAX: usize = 5;

/// The driver and its port; `None` if it has ended before it had one.
fn start_driver() -> Option<(OwnedChild, String)> {
    let driver = Command::new("chromedriver")
        .arg("--port=0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the driver is started");
    let mut driver = OwnedChild::from(driver);
    let port = wait_for_line(driver.stdout.take().expect("it was piped"), |line| {
        let (_, port) = line.split_once("started successfully on port ")?;
        Some(port.trim_end_matches('.').to_owned())
    });
    Some((driver, port?))
}

impl Browser {
    /// Starts the browser, or nothing where it is absent and may be.
    pub fn start() -> Option<Browser> {
        let is_there = ["chromium", "chromedriver"]
            .iter()
            .all(|program| needs::has_program(program, "--version"));
        if !is_there {
            return None;
        }
        // A test that failed has closed its browser.
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let profile = tempfile::tempdir().expect("a temporary folder");
        let (driver, port) =
            (0..DRIVER_STARTS_MAX).find_map(|_| start_driver()).expect("the driver says its port");
        let mut browser = Browser {
            _driver: driver,
            address: format!("127.0.0.1:{port}"),
            session: String::new(),
            _profile: profile,
            _turn: turn,
        };
        let folder = browser._profile.path().to_str().expect("the path is text");
        let options = json!({"args": [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--no-first-run", format!("--user-data-dir={folder}"),
        ]});
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
            "timeouts": {"script": PATIENCE.as_millis(), "pageLoad": PATIENCE.as_millis()},
        }}});
        let session = browser.call("POST", "/session", &wanted);
        browser.session = session["sessionId"].as_str().expect("a session").to_owned();
        Some(browser)
    }

    /// Opens an address.
    pub fn open(&self, url: &str) {
        self.command("url", &json!({ "url": url }));
    }

    /// What a function body gives.
    pub fn run(&self, script: &str) -> Value {
        self.command("execute/sync", &json!({"script": script, "args": []}))
    }

    /// Waits until a function body gives something true.
    pub fn wait_until(&self, script: &str) {
        let end = Instant::now() + PATIENCE;
        while self.run(script) != Value::Bool(true) {
            assert!(Instant::now() < end, "never true: {script}\n{:?}", self.console());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until a function body gives something true, in which `page` is what huntd's page
    /// exports.
    pub fn wait_until_page(&self, script: &str) {
        self.wait_until(&format!(
            "return import(`${{location.origin}}/page.js`).then(({{ page }}) => {{ {script} }});"
        ));
    }

    /// Waits until an element has exactly this text.
    pub fn wait_for_text(&self, id: &str, text: &str) {
        self.wait_until(&format!(
            "return document.getElementById('{id}').textContent === '{text}'"
        ));
    }

    /// Looks at the page like this from now on.
    pub fn look(&self, look: Look) {
        let Look { width, height, is_dark } = look;
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.devtools("Emulation.setEmulatedMedia", &json!({ "features": features }));
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600,
        });
        self.devtools("Emulation.setDeviceMetricsOverride", &size);
    }

    /// Writes a picture of the whole page.
    pub fn photograph(&self, file: &Path) {
        let whole = json!({"format": "png", "captureBeyondViewport": true});
        let shot = self.devtools("Page.captureScreenshot", &whole);
        let picture = base64(shot["data"].as_str().expect("a picture"));
        assert!(picture.starts_with(b"\x89PNG"));
        std::fs::write(file, picture).expect("the picture is written");
    }

    /// Errors that the page wrote to its console since the last call; one against its security
    /// policy is among them.
    pub fn errors(&self) -> Vec<String> {
        let entries = self.console();
        let severe = entries.iter().filter(|entry| entry["level"] == "SEVERE");
        severe.map(|entry| entry["message"].to_string()).collect()
    }

    fn console(&self) -> Vec<Value> {
        let log = self.command("se/log", &json!({"type": "browser"}));
        log.as_array().expect("a list").clone()
    }

    fn devtools(&self, name: &str, parameters: &Value) -> Value {
        self.command("goog/cdp/execute", &json!({"cmd": name, "params": parameters}))
    }

    fn command(&self, path: &str, body: &Value) -> Value {
        self.call("POST", &format!("/session/{}/{path}", self.session), body)
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut stream = TcpStream::connect(&self.address).expect("the driver listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        let body = body.to_string();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).expect("it reads");
        let mut answer = BufReader::new(stream);
        let (mut line, mut length) = (String::new(), 0);
        while line != "\r\n" {
            line.clear();
            answer.read_line(&mut line).expect("it answers with a head");
            let header = line.split_once(':').unwrap_or_default();
            if header.0.eq_ignore_ascii_case("content-length") {
                length = header.1.trim().parse().expect("a length is a number");
            }
        }
        let mut body = vec![0; length];
        answer.read_exact(&mut body).expect("it answers with a body");
        let mut answer: Value = serde_json::from_slice(&body).expect("it is JSON");
        let value = answer["value"].take();
        assert!(value.get("error").is_none(), "{path}: {value}");
        value
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser ends with its session; where that fails, the driver's end ends it.
        if !self.session.is_empty()
            && let Ok(mut stream) = TcpStream::connect(&self.address)
        {
            let path = format!("/session/{}", self.session);
            let head = "HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            let _ = write!(stream, "DELETE {path} {head}");
            let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
            let _ = stream.read_to_end(&mut Vec::new());
        }
    }
}

/// Bytes of a text in base64 (RFC 4648).
fn base64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = text.bytes().filter_map(|byte| DIGITS.iter().position(|digit| *digit == byte));
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_usize, 0);
    for digit in digits {
        (bits, count) = ((bits << 6 | digit) & 0xffff, count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}
