//! The command line's entry: a verb in, an exit code out.

use crate::edition::Edition;
use crate::runtime::allocator;
use crate::service::cli::{Cli, Verb};
use crate::service::exit::{self, ExitCode};
use crate::shards;
use crate::tools::{
    check, demo, explain, load, reference, rehearse, replay, resources, rules, run, schema, serve,
    snapshot, tap, topics, zones,
};
use std::process;

/// Does what the command line asks, as the whole of a program's `main`, with the versions of a game
/// that the program has: the first one, or the one that the command line names.
pub fn main(editions: &[Edition]) -> process::ExitCode {
    assert!(!editions.is_empty(), "a program plays a game");
    allocator::refuse_huge_pages();
    exit::end_on_panic(shards::is_engine_at_work);
    let (Cli { verb }, edition) = Cli::read(editions);
    let done = resources::check(&verb).and_then(|()| match verb {
        Verb::Run(args) => run::run(&args, edition),
        Verb::Check(args) => check::run(&args, edition),
        Verb::Demo(args) => demo::run(&args, edition),
        Verb::Explain(args) => explain::run(&args, edition),
        Verb::Load(args) => load::run(&args, edition),
        Verb::Rehearse(args) => rehearse::run(&args, edition, editions),
        Verb::Replay(args) => replay::run(&args, edition),
        Verb::Rules(args) => rules::run(&args, edition),
        Verb::Serve(args) => serve::run(&args, edition),
        Verb::Snapshot(args) => snapshot::run(&args, edition),
        Verb::Tap(args) => tap::run(&args, edition),
        Verb::Topics(args) => topics::run(&args),
        Verb::Zones(args) => zones::run(&args, edition),
        Verb::Config(args) => reference::config(&args),
        Verb::Schema => schema::run(edition),
        Verb::Completions(args) => reference::completions(&args, editions),
        Verb::Man(args) => reference::man(&args, editions),
    });
    let code = match done {
        Ok(()) => ExitCode::Ok,
        Err(error) => {
            let code = error.exit_code();
            if code != ExitCode::Ok {
                exit::say(&error.to_string());
            }
            code
        }
    };
    exit::end(code)
}
