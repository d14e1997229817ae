//! The Go client of the documentation, built if the machine has the version of Go that it asks for.

use crate::needs;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = "docs/clients/go";

/// The version of Go in the client's `go.mod`, such as `1.26.0`.
pub fn wanted_version() -> String {
    let module = fs::read_to_string(Path::new(SOURCE).join("go.mod")).expect("it is there");
    let version = module.lines().find_map(|line| line.strip_prefix("go "));
    version.expect("a module names its version of Go").to_owned()
}

/// Builds the client into a folder. `None`: there are no minutes for it, or this machine has no Go,
/// an older one that cannot fetch the wanted one, or no way to the client's modules. A client that
/// does not compile fails the test.
pub fn build(folder: &Path) -> Option<PathBuf> {
    if !needs::has_minutes() {
        return None;
    }
    let go = |arguments: &[&str]| {
        let output = Command::new("go").args(arguments).current_dir(SOURCE).output();
        output.map(|output| (output.status.success(), output.stderr))
    };
    let succeeds = |arguments: &[&str]| go(arguments).is_ok_and(|(is_done, _)| is_done);
    // An older Go fails at the first look at the module.
    let wanted = format!("Go {}, or a Go that can fetch it", wanted_version());
    if !needs::has(&wanted, succeeds(&["list", "-m"]))
        || !needs::has("the modules of the Go client", succeeds(&["mod", "download"]))
    {
        return None;
    }
    let program = folder.join("client");
    let path = program.to_str().expect("the path is text");
    let (is_built, errors) = go(&["build", "-o", path, "."]).expect("go is there");
    assert!(is_built, "the Go client does not compile: {}", String::from_utf8_lossy(&errors));
    Some(program)
}
