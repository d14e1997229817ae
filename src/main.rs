//! The program that plays the treasure hunt.

use huntd::edition::edition;
use huntd::hunt::state::TreasureHunt;
use std::process::ExitCode;

fn main() -> ExitCode {
    huntd::main(&[edition::<TreasureHunt>()])
}
