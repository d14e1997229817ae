//! What a test needs and a machine may lack: without it the test is skipped by name, and fails
//! under CI.

use std::io::Write;
use std::process::Command;

/// Whether the running test can have what it needs. Where it cannot, this says so.
pub fn has(need: &str, is_there: bool) -> bool {
    if is_there {
        return true;
    }
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    assert!(std::env::var_os("CI").is_none(), "under CI {test} must run, and it needs {need}");
    // What `eprintln!` writes is shown of tests that fail only.
    writeln!(std::io::stderr(), "skipped: {test} needs {need}").expect("standard error is open");
    false
}

/// Whether tests that take minutes, or fetch the packages of other languages, are to run: under CI.
pub fn has_minutes() -> bool {
    has("minutes: set CI=true", std::env::var_os("CI").is_some())
}

/// Whether a program is installed, which an option makes do nothing much.
pub fn has_program(name: &str, option: &str) -> bool {
    has(name, Command::new(name).arg(option).output().is_ok())
}
