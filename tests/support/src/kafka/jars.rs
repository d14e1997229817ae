//! The broker's jars: fetched once by Maven into the target folder, used offline afterwards.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// What to do when there is no Java, or no Maven to fetch the jars with.
const INSTALL: &str = "tests with a real Kafka need a JDK 17 and Maven: \
                       apt-get install openjdk-17-jdk-headless maven";

/// The least major version of Java that the broker runs on.
const JAVA_VERSION_MIN: u32 = 17;

const POM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/kafka/pom.xml");

/// The jars of a broker of one version, in place.
pub struct Jars {
    folder: PathBuf,
    /// The JVM's option that maps an archive of their classes, if there is one.
    pub(super) archive: Option<String>,
}

impl Jars {
    /// Fetches them, unless that was done before.
    pub(super) fn of(version: &str) -> Jars {
        Jars { folder: folder(version), archive: None }
    }

    /// A file beside them, which goes when they are fetched again.
    pub(super) fn beside(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// What `java -cp` takes.
    pub(super) fn class_path(&self) -> String {
        format!("{}/*", self.folder.display())
    }
}

fn folder(version: &str) -> PathBuf {
    let folder = kafka_folder().join(version);
    check_java();
    // A copy of the pom stands beside the jars that were fetched for it, written after them.
    let pom = fs::read_to_string(POM).expect("the pom is part of the source");
    let fetched = folder.join("fetched.xml");
    unless_done_make(&fetched, &pom, || {
        fs::create_dir_all(&folder).expect("the target folder can be written");
        fetch(version, &folder.join("jars"));
    });
    folder.join("jars")
}

/// Makes something unless its mark has this text, and marks it then. Tests run side by side: one
/// makes it, and others that want it or something else that is not made yet wait meanwhile, because
/// Maven's own store is not made for several at once.
pub(super) fn unless_done_make(mark: &Path, text: &str, make: impl FnOnce()) {
    let is_made = || fs::read_to_string(mark).is_ok_and(|marked| marked == text);
    if is_made() {
        return;
    }
    let _lock = lock();
    if !is_made() {
        make();
        fs::write(mark, text).expect("the target folder can be written");
    }
}

/// Closing the file unlocks it.
fn lock() -> File {
    fs::create_dir_all(kafka_folder()).expect("the target folder can be written");
    let lock = File::create(kafka_folder().join("lock")).expect("the target folder can be written");
    lock.lock().expect("the file system has file locks");
    lock
}

/// Cargo puts tests and benchmarks into `<target>/<profile>/deps`, wherever the target folder is.
fn kafka_folder() -> PathBuf {
    let running = std::env::current_exe().expect("a program knows its file");
    running.ancestors().nth(3).expect("it is inside the target folder").join("kafka")
}

fn check_java() {
    let text = java_says();
    let version = java_version(text).unwrap_or_else(|| panic!("{INSTALL}; java says: {text}"));
    assert!(version >= JAVA_VERSION_MIN, "{INSTALL}; this is Java {version}");
}

/// What `java -version` prints. It is asked once: there are many brokers.
pub(super) fn java_says() -> &'static str {
    static SAID: OnceLock<String> = OnceLock::new();
    SAID.get_or_init(|| {
        let output = Command::new("java").arg("-version").output();
        let output = output.unwrap_or_else(|_| panic!("{INSTALL}"));
        String::from_utf8_lossy(&output.stderr).into_owned()
    })
}

/// The major version in what `java -version` prints: `openjdk version "17.0.15" 2025-04-15`.
fn java_version(text: &str) -> Option<u32> {
    let quoted = text.split('"').nth(1)?;
    quoted.split(['.', '-', '+']).next()?.parse().ok()
}

fn fetch(version: &str, jars: &PathBuf) {
    if let Err(error) = fs::remove_dir_all(jars) {
        assert_eq!(error.kind(), ErrorKind::NotFound, "old jars can be removed: {error}");
    }
    let output = Command::new("mvn")
        .args(["--batch-mode", "--quiet", "--file", POM, "dependency:copy-dependencies"])
        .arg(format!("-Dkafka.version={version}"))
        .arg(format!("-DoutputDirectory={}", jars.display()))
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|_| panic!("{INSTALL}"));
    assert!(
        output.status.success(),
        "Maven could not fetch the Kafka broker, is there a network? It says:\n{}",
        String::from_utf8_lossy(&output.stdout)
    );
}
