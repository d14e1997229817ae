//! Build script: which revision the program is made of, as `HUNTD_REVISION`.
//!
//! A package's build says it in the environment; a release build asks git. A development build does
//! not, because each commit would compile everything again.

#![allow(clippy::print_stdout, reason = "this is how a build script talks to cargo")]

use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=package/revision.rs");
    println!("cargo:rerun-if-env-changed=HUNTD_REVISION");
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let revision = match env::var("HUNTD_REVISION") {
        Ok(revision) => revision,
        Err(_) if is_release => {
            for file in ["HEAD", "logs/HEAD"] {
                if let Some(path) = git(&["rev-parse", "--git-path", file]) {
                    println!("cargo:rerun-if-changed={path}");
                }
            }
            git(&["describe", "--always", "--dirty", "--abbrev=12"])
                .unwrap_or_else(|| "unknown".to_owned())
        }
        Err(_) => "development".to_owned(),
    };
    println!("cargo:rustc-env=HUNTD_REVISION={revision}");
}

/// What git prints, if it is there and this is a repository.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let printed = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !printed.trim().is_empty()).then(|| printed.trim().to_owned())
}
