//! Instructions and cache misses of each stage, counted by valgrind: this program runs itself under
//! callgrind with cachegrind's caches and reads the inclusive cost of the stages' functions.

use crate::path::{Path, STAGES, Stage};
use crate::say;
use std::process::{Command, Stdio};

/// Tells this program that it runs under valgrind.
pub(crate) const ARGUMENT: &str = "--counted";

/// What a stage costs for an event.
pub(crate) struct Cost {
    stage: Stage,
    is_in_path: bool,
    instructions: f64,
    /// Misses of the first-level caches, instructions and data.
    first_level: f64,
    /// Misses of the last-level cache.
    last_level: f64,
}

/// What the program under valgrind says of itself: events of its whole life, and those that the
/// first tier has read.
pub(crate) fn told(path: &Path) -> String {
    let (events, first_tier) = path.events_ever();
    format!("{events} {first_tier}")
}

/// Counts. The error says why that cannot be done.
pub(crate) fn count() -> Result<Vec<Cost>, String> {
    let folder = tempfile::tempdir().expect("the temporary folder can be written");
    let counts = folder.path().join("counts");
    let this = std::env::current_exe().expect("this program");
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--cache-sim=yes", "--collect-atstart=no"]);
    for (stage, _) in STAGES {
        valgrind.arg(format!("--toggle-collect=*{}*", stage.function()));
    }
    valgrind.arg(format!("--callgrind-out-file={}", counts.display())).arg(this).arg(ARGUMENT);
    let told = run(&mut valgrind)?;
    let mut events = told.split_whitespace().map_while(|word| word.parse::<u64>().ok());
    let (Some(all), Some(first_tier)) = (events.next(), events.next()) else {
        return Err(format!("the program under valgrind says: {told}"));
    };
    let mut annotate = Command::new("callgrind_annotate");
    annotate.args(["--inclusive=yes", "--threshold=100", "--show-percs=no"]);
    let text = run(annotate.arg(&counts))?;
    let cost = |(stage, is_in_path): &(Stage, bool)| {
        let events = if *stage == Stage::FirstTier { first_tier } else { all };
        cost(&text, *stage, *is_in_path, events)
    };
    STAGES.iter().map(cost).collect()
}

fn run(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{name} cannot be started: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let trouble = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("{name} has failed: {said}{trouble}"));
    }
    Ok(said)
}

/// Reads one function's line: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw, then its name.
fn cost(text: &str, stage: Stage, is_in_path: bool, events: u64) -> Result<Cost, String> {
    let of_stage = |line: &&str| line.contains(stage.function());
    let line = text.lines().find(of_stage);
    let line = line.ok_or_else(|| format!("callgrind has not met {}", stage.function()))?;
    // A point stands for no event at all.
    let number = |word: &str| match word {
        "." => Some(0.0),
        word => word.replace(',', "").parse::<f64>().ok(),
    };
    let numbers: Vec<f64> = line.split_whitespace().map_while(number).collect();
    let [instructions, _, _, i1, d1_read, d1_write, il, dl_read, dl_write] = numbers[..] else {
        return Err(format!("callgrind_annotate prints what is not known: {line}"));
    };
    let per_event = |count: f64| count / events as f64;
    Ok(Cost {
        stage,
        is_in_path,
        instructions: per_event(instructions),
        first_level: per_event(i1 + d1_read + d1_write),
        last_level: per_event(il + dl_read + dl_write),
    })
}

pub(crate) fn print(costs: &[Cost]) {
    say("by valgrind, user space: instructions, first-level misses, last-level misses per event");
    let mut sums = [0.0; 3];
    for cost in costs {
        let numbers = [cost.instructions, cost.first_level, cost.last_level];
        if cost.is_in_path {
            sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
        }
        say(&line(cost.stage.name(), numbers));
    }
    say(&line("sum, binary frames", sums));
}

fn line(name: &str, [instructions, first_level, last_level]: [f64; 3]) -> String {
    format!("  {name:<28} {instructions:>8.1} {first_level:>8.2} {last_level:>8.3}")
}
