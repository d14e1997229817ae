//! The classes of a broker as a JVM has loaded them (JEP 350). A JVM that maps this archive starts
//! a broker in half the time, and there are many brokers.

use super::broker::{Broker, Place};
use super::jars::{self, Jars};
use super::{Options, client::Client};
use std::fs;
use std::path::Path;

/// Gives the jars their archive. The first caller makes it.
pub(super) fn add(jars: &mut Jars) {
    let [archive, made_for] = ["classes.jsa", "classes.txt"].map(|name| jars.beside(name));
    // A JVM of another version, or one that finds the jars at another path, ignores the archive
    // without a word.
    let wanted = format!("{}\n{}", jars.class_path(), jars::java_says());
    jars::unless_done_make(&made_for, &wanted, || {
        let draft = jars.beside("draft.jsa");
        write(jars, &draft);
        fs::rename(&draft, &archive).expect("a JVM that ends in order writes the archive");
    });
    jars.archive = Some(format!("-XX:SharedArchiveFile={}", archive.display()));
}

/// Runs a broker that is used like the tests' brokers. Its JVM writes the archive when it ends.
fn write(jars: &Jars, archive: &Path) {
    let dump = format!("-XX:ArchiveClassesAtExit={}", archive.display());
    let options = Options { java: vec![dump], ..Options::for_tests() };
    let places = Place::reserve(1);
    let mut broker = Broker::format(places[0], &places, jars, &options);
    broker.launch();
    broker.wait_until_ready(1);
    let client = Client::new(&broker.address());
    client.create_topic("archived", 1, &[]);
    client.produce("archived", [(0, b"".as_slice(), b"a record".as_slice())]);
    assert_eq!(client.consume("archived", 0).len(), 1);
    assert_eq!(client.committed("archived", "archived", 1).len(), 1);
    broker.stop();
}
