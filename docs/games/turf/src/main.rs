//! The program that plays turf, with both of its versions. The newest one comes first.

mod bots;
mod events;
mod first;
mod second;
#[cfg(test)]
mod tests;

use huntd::edition::edition;
use std::process::ExitCode;

fn main() -> ExitCode {
    huntd::main(&[edition::<second::play::Turf>(), edition::<first::play::Turf>()])
}
