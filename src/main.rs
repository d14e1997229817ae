//! The command line's entry: a verb in, an exit code out.

use huntd::runtime::allocator;
use huntd::service::cli::{Cli, Verb};
use huntd::service::exit::{self, ExitCode};
use huntd::shards;
use huntd::tools::{
    check, demo, explain, load, reference, replay, resources, rules, run, schema, serve, snapshot,
    tap, topics,
};

fn main() {
    allocator::refuse_huge_pages();
    exit::end_on_panic(shards::is_engine_at_work);
    let verb = Cli::read().verb;
    let done = resources::check(&verb).and_then(|()| match verb {
        Verb::Run(args) => run::run(&args),
        Verb::Check(args) => check::run(&args),
        Verb::Demo(args) => demo::run(&args),
        Verb::Explain(args) => explain::run(&args),
        Verb::Load(args) => load::run(&args),
        Verb::Replay(args) => replay::run(&args),
        Verb::Rules(args) => rules::run(&args),
        Verb::Serve(args) => serve::run(&args),
        Verb::Snapshot(args) => snapshot::run(&args),
        Verb::Tap(args) => tap::run(&args),
        Verb::Topics(args) => topics::run(&args),
        Verb::Config(args) => reference::config(&args),
        Verb::Schema => schema::run(),
        Verb::Completions(args) => reference::completions(&args),
        Verb::Man(args) => reference::man(&args),
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
