//! The demo's final report, and whether the accounts match.

use super::Measured;
use super::daemon::DemoDaemon;
use crate::service::cli::DemoArgs;
use crate::telemetry::metrics::{Counter, Metrics};
use crate::tools::WhileRead;
use crate::tools::accounts::{Account, OfflineShards, fold};
use crate::tools::failure::ToolError;
use crate::tools::progress_bar::grouped;
use std::collections::BTreeMap;
use std::io::Write;

/// The accounts of a run, with everything that can differ from the offline replay.
pub(super) struct DemoReport {
    counted: Counted,
    lost: u64,
    duplicated: u64,
    events_per_second: f64,
    latency_us: BTreeMap<&'static str, u64>,
    hot_allocations: u64,
    digest: u64,
    /// A sentence per problem.
    problems: Vec<String>,
}

/// The outcome of the events, from the daemon's counters or from the offline replay.
#[derive(Debug, PartialEq, Eq)]
struct Counted {
    events: u64,
    updates: u64,
    refusals: u64,
    no_ops: u64,
    rejects: u64,
}

impl DemoReport {
    /// Compares the reader's and the daemon's results with an offline replay of the events.
    pub(super) fn new(
        measured: &Measured,
        daemon: &DemoDaemon,
        offline: &OfflineShards,
    ) -> DemoReport {
        let Measured { in_flight, verifier } = measured;
        let Metrics { applied, refusals, no_ops, rejects, .. } = &*daemon.metrics;
        let (refusals, no_ops, rejects) = (refusals.total(), no_ops.total(), rejects.total());
        let counted = Counted {
            events: applied.total() + refusals + no_ops + rejects,
            updates: verifier.positions().map(|(_, position)| position.next_update).sum(),
            refusals,
            no_ops,
            rejects,
        };
        let mut problems = Vec::new();
        let total = offline.total();
        let expected = Counted::of(&total);
        if counted != expected {
            problems.push(format!("counted {counted:?}, and the replay {expected:?}"));
        }
        let mut digest = 0;
        for (partition, position) in verifier.positions() {
            let account = offline.account(partition);
            let progress = daemon.progress.shard(partition.into());
            digest = fold(digest, progress.digest.get());
            for (what, seen, wanted) in [
                ("events", position.next_offset as u64, account.events),
                ("updates", position.next_update, account.updates),
                ("chain", position.chain.0, account.chain),
                ("digest", progress.digest.get(), account.digest),
            ] {
                if seen != wanted {
                    problems.push(format!(
                        "partition {partition}: {what} {seen:x}, and {wanted:x} in the replay"
                    ));
                }
            }
        }
        let histogram = &verifier.latency_us;
        let at = |quantile| histogram.value_at_quantile(quantile);
        DemoReport {
            lost: in_flight.uncovered(),
            duplicated: verifier.duplicated,
            events_per_second: histogram.len() as f64 / verifier.elapsed.as_secs_f64().max(1e-9),
            latency_us: BTreeMap::from([
                ("p50", at(0.5)),
                ("p95", at(0.95)),
                ("p99", at(0.99)),
                ("p999", at(0.999)),
                ("max", histogram.max()),
            ]),
            hot_allocations: daemon.metrics.get(Counter::HotAllocations),
            digest,
            counted,
            problems,
        }
    }

    /// Prints what became of the events, all numbers and the JSON object if asked for. `Err` if
    /// anything is wrong.
    pub(super) fn print(&self, args: &DemoArgs) -> Result<(), ToolError> {
        let mut out = WhileRead(std::io::stdout().lock());
        self.write_summary(&mut out, args.partitions)?;
        if args.verbose {
            self.write_table(&mut out)?;
        }
        if args.json {
            writeln!(out, "{}", self.json())?;
        }
        let mut problems = self.problems.clone();
        if self.lost > 0 {
            problems.push(format!("no frame covers {} events", self.lost));
        }
        if self.duplicated > 0 {
            problems.push(format!("{} updates were published twice", self.duplicated));
        }
        if problems.is_empty() {
            Ok(())
        } else {
            Err(ToolError::VerificationFailed(problems.join("; ")))
        }
    }

    fn write_summary(&self, out: &mut impl Write, zones: u16) -> std::io::Result<()> {
        let Counted { events, updates, refusals, no_ops, rejects } = self.counted;
        writeln!(out, "{} events in {zones} zones", grouped(events))?;
        write!(out, "{} updates; the rules refused {}", grouped(updates), grouped(refusals))?;
        for (count, what) in [(no_ops, "were repeated"), (rejects, "were no events")] {
            if count > 0 {
                write!(out, ", {} {what}", grouped(count))?;
            }
        }
        writeln!(out, "\n{} events/s", grouped(self.events_per_second as u64))?;
        match (self.lost, self.duplicated) {
            (0, 0) if self.problems.is_empty() => {
                writeln!(out, "nothing was lost, nothing came twice: a replay gives the same")?;
            }
            (lost, duplicated) => {
                let (lost, duplicated) = (grouped(lost), grouped(duplicated));
                writeln!(out, "{lost} events were LOST, {duplicated} updates came TWICE")?;
            }
        }
        writeln!(out, "digest {:016x}", self.digest)
    }

    fn write_table(&self, out: &mut impl Write) -> std::io::Result<()> {
        let Counted { events, updates, refusals, no_ops, rejects } = self.counted;
        for (what, number) in [
            ("events", events),
            ("updates", updates),
            ("refusals", refusals),
            ("no-ops", no_ops),
            ("rejects", rejects),
            ("lost", self.lost),
            ("duplicated", self.duplicated),
            ("events/s", self.events_per_second as u64),
            ("hot-thread allocations", self.hot_allocations),
        ] {
            writeln!(out, "{what:<26}{number:>16}")?;
        }
        for (what, key) in
            [("p50", "p50"), ("p95", "p95"), ("p99", "p99"), ("p99.9", "p999"), ("max", "max")]
        {
            let milliseconds = self.latency_us[key] as f64 / 1000.0;
            writeln!(out, "latency {what:<18}{milliseconds:>13.2} ms  (mock broker)")?;
        }
        Ok(())
    }

    fn json(&self) -> serde_json::Value {
        let Counted { events, updates, refusals, no_ops, rejects } = self.counted;
        serde_json::json!({
            "events": events,
            "updates": updates,
            "refusals": refusals,
            "no_ops": no_ops,
            "rejects": rejects,
            "lost": self.lost,
            "duplicated": self.duplicated,
            "events_per_second": self.events_per_second.round(),
            "latency_us": self.latency_us,
            "hot_allocations": self.hot_allocations,
            "digest": format!("{:016x}", self.digest),
        })
    }
}

impl Counted {
    fn of(account: &Account) -> Counted {
        Counted {
            events: account.events,
            updates: account.updates,
            refusals: account.refusals,
            no_ops: account.no_ops,
            rejects: account.rejects,
        }
    }
}
