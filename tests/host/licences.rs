//! The licences and the sources of all crates that huntd and its tests are built of.

use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;

/// Licences that let anyone use, change and sell what is built with them, if they are named.
const PERMISSIVE: [&str; 8] =
    ["0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "Unlicense", "Zlib"];

/// Expressions whose parts are all permissive.
const COMBINED: [&str; 3] =
    ["(MIT OR Apache-2.0) AND NCSA", "(MIT OR Apache-2.0) AND Unicode-3.0", "Apache-2.0 AND ISC"];

/// Returns whether a crate with this SPDX expression may be used; `/` is an older `OR`.
fn is_permissive(expression: &str) -> bool {
    let choices = expression.split(" OR ").flat_map(|choice| choice.split('/')).map(str::trim);
    COMBINED.contains(&expression)
        || (!expression.contains("AND") && choices.into_iter().any(|one| PERMISSIVE.contains(&one)))
}

/// All packages that a build of the workspace reads.
fn packages() -> Vec<Value> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--locked", "--format-version", "1", "--filter-platform", &target])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    match metadata["packages"].take() {
        Value::Array(packages) => packages,
        other => panic!("{other} is no list"),
    }
}

#[test]
fn every_crate_is_of_this_workspace_or_of_the_registry() {
    let is_known = |source: &Value| match source.as_str() {
        Some(source) => source.starts_with("registry+"),
        None => source.is_null(),
    };
    let unknown: Vec<String> = packages()
        .iter()
        .filter(|package| !is_known(&package["source"]))
        .map(|package| format!("{} of {}", package["name"], package["source"]))
        .collect();
    assert!(unknown.is_empty(), "publish these, or copy what is needed of them: {unknown:#?}");
    assert!(!is_known(&Value::from("git+file:///somewhere")));
}

#[test]
fn every_crate_has_a_permissive_licence() {
    let crates = packages();
    let of_others = crates.iter().filter(|package| !package["source"].is_null());
    let refused: BTreeSet<String> = of_others
        .filter(|package| !package["license"].as_str().is_some_and(is_permissive))
        .map(|package| {
            format!("{} {}: {}", package["name"], package["version"], package["license"])
        })
        .collect();
    assert!(refused.is_empty(), "read these licences, then list or replace them: {refused:#?}");
    assert!(crates.len() > 100, "of {} crates", crates.len());
    assert!(!is_permissive("GPL-3.0") && !is_permissive("MIT AND GPL-3.0"));
}
