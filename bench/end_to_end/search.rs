//! The highest rate at which the published latency still holds, and what stops it there.

use crate::open_loop::{self, Measured, Span};
use crate::programs::Program;
use crate::table::say;
use support::batch_load::Load;
use support::kafka::Cluster;

/// Bounds of the latency, published for 2.5 M events/s with the broker on other machines:
/// percentile and milliseconds.
const BOUNDS: [(f64, f64); 3] = [(50.0, 1.6), (99.0, 8.2), (99.9, 22.0)];

/// Where the search begins, in events per second, and how it goes on, until so many rates in a row
/// break.
const RATE_MIN: u64 = 1_000;
const RATE_STEP: u64 = 4;
const IN_VAIN_MAX: usize = 2;

/// The search ends when the rate is known within this part.
const PRECISION: f64 = 1.1;

/// A thread or the machine is called busy from this part of its time on.
const BUSY: f64 = 0.9;

/// A rate that breaks is tried so often: the machine's bad moment is not the rate's.
const TRIES: usize = 2;

/// Raises the rate in large steps, at most to `rate_max`, then halves the interval above the last
/// one that holds; with JSON frames, then with binary ones.
pub(crate) fn search(
    cluster: &Cluster,
    partitions: usize,
    players: u64,
    rate_max: u64,
    span: Span,
) {
    let try_rate = |program: Program, rate: u64| {
        let load = Load::new(open_loop::shape(partitions, players, rate));
        let measured = open_loop::run(cluster, program, &load, span);
        say(&line(&measured));
        measured
    };
    for program in [Program::HuntdJson, Program::HuntdBinary] {
        let (good, bad) = highest(rate_max, |rate| {
            let mut tries = (0..TRIES).map(|_| try_rate(program, rate));
            let first = tries.next().expect("it is tried");
            if holds(&first) { first } else { tries.find(holds).unwrap_or(first) }
        });
        let name = program.name();
        let found = match good {
            0 => format!("do not hold at {RATE_MIN} events/s, the lowest rate that is tried"),
            good => format!("hold up to {good} events/s"),
        };
        say(&format!("{name}: p50 <= 1.6, p99 <= 8.2 and p99.9 <= 22 ms {found}"));
        if let Some((rate, measured)) = bad {
            let echo = try_rate(Program::Echo, rate);
            say(&format!("{name} at {rate} events/s: {}", limit(&measured, &echo)));
        }
    }
}

/// The highest rate that holds, 0 if none does, and what was measured at the lowest above it that
/// does not. Latency need not grow with the rate: few events make many small requests.
fn highest(
    rate_max: u64,
    mut measure: impl FnMut(u64) -> Measured,
) -> (u64, Option<(u64, Measured)>) {
    let (mut good, mut bad) = (0, None);
    let mut in_vain = 0;
    let rates = std::iter::successors(Some(RATE_MIN), |rate| Some(rate * RATE_STEP));
    for rate in rates.take_while(|rate| *rate <= rate_max) {
        let measured = measure(rate);
        if holds(&measured) {
            (good, bad, in_vain) = (rate, None, 0);
        } else {
            in_vain += 1;
            bad = bad.or(Some((rate, measured)));
        }
        if in_vain == IN_VAIN_MAX {
            break;
        }
    }
    while good > 0
        && let Some((above, _)) = bad
        && above as f64 > good as f64 * PRECISION
    {
        let rate = (good as f64 * above as f64).sqrt() as u64;
        let measured = measure(rate);
        match holds(&measured) {
            true => good = rate,
            false => bad = Some((rate, measured)),
        }
    }
    (good, bad)
}

fn holds(measured: &Measured) -> bool {
    measured.keeps_up()
        && measured.missing == 0
        && BOUNDS.iter().all(|(percentile, ms)| measured.ms(*percentile) <= *ms)
}

fn line(measured: &Measured) -> String {
    let ms = BOUNDS.map(|(percentile, _)| format!("p{percentile} {:.2}", measured.ms(percentile)));
    let verdict = if holds(measured) { "holds" } else { "breaks" };
    format!(
        "{} at {} events/s: {} ms, {verdict}",
        measured.program.name(),
        measured.rate,
        ms.join(", ")
    )
}

/// What stands in the way, as far as one can tell from who was busy.
fn limit(measured: &Measured, echo: &Measured) -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let used = measured.cores;
    let busy = used.program + used.broker + used.bench;
    let shares = format!(
        "of {cores} cores huntd used {:.2}, the broker {:.2}, generator and reader {:.2}",
        used.program, used.broker, used.bench
    );
    if !holds(echo) {
        return format!(
            "the machine and its broker: the echo does not hold there either; {shares}"
        );
    }
    let hot = measured.inside.as_ref().map_or(0.0, |inside| inside.hot_cores(measured.rate));
    if hot >= BUSY {
        return format!("the hot thread, {:.0} % busy; {shares}", hot * 100.0);
    }
    if busy >= BUSY * cores {
        return format!("the cores: all are busy; {shares}");
    }
    format!("neither the echo nor a lack of cores: waits inside; {shares}")
}
