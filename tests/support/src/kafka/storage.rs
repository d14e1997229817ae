//! What the storage of a broker begins with. Kafka's tool writes it, in a JVM that takes a second;
//! so it is run once for each kind of storage, and all others are copies.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Any 16 bytes in base64: the name that the brokers of one cluster share.
pub(super) const CLUSTER_ID: &str = "aHVudGQtdGVzdC1rYWZrYQ";

/// A version of Kafka, and the users that the storage begins with.
pub(super) type Kind = (&'static str, Vec<String>);

/// The file that names the broker.
const NAMES: &str = "meta.properties";

/// Files by name.
type Files = Vec<(String, Vec<u8>)>;

static FORMATTED: Mutex<BTreeMap<Kind, Files>> = Mutex::new(BTreeMap::new());

/// Formats the folder of a broker with this id; `tool` does it if none of this kind was formatted.
pub(super) fn format(kind: Kind, folder: &Path, id: usize, tool: impl FnOnce()) {
    // What a panic leaves behind is whole: files come in when the tool has ended well.
    let mut formatted = FORMATTED.lock().unwrap_or_else(PoisonError::into_inner);
    let files = formatted.entry(kind).or_insert_with(|| {
        tool();
        read(folder)
    });
    fs::create_dir_all(folder).expect("the temporary folder can be written");
    for (name, content) in files {
        let content = match name.as_str() {
            NAMES => named(content, id),
            _ => content.clone(),
        };
        fs::write(folder.join(name), content).expect("the temporary folder can be written");
    }
}

fn read(folder: &Path) -> Files {
    let entries = fs::read_dir(folder).expect("the tool has made it");
    let file = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.expect("the folder can be read");
        let name = entry.file_name().into_string().expect("Kafka's names are ASCII");
        (name, fs::read(entry.path()).expect("the tool writes files"))
    };
    entries.map(file).collect()
}

/// The file of names for another broker of a cluster, whose folder has an id of its own too.
fn named(content: &[u8], id: usize) -> Vec<u8> {
    let text = String::from_utf8_lossy(content);
    let letter = char::from(b'a' + u8::try_from(id).expect("a few brokers"));
    let line = |line: &str| match line.split_once('=') {
        Some(("node.id", _)) => format!("node.id={id}\n"),
        Some(("directory.id", _)) => format!("directory.id={letter}{}\n", &CLUSTER_ID[1..]),
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect::<String>().into_bytes()
}
