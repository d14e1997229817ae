//! Pages of metrics in Prometheus' text format 0.0.4.

use super::metrics::Histogram;
use std::fmt::{Display, Formatter, Write};

pub(crate) const COUNTER: &str = "counter";
pub(crate) const GAUGE: &str = "gauge";

/// Bytes of a page with a few zones, and of a name. Writing such a page allocates nothing else, so
/// that the serving thread's count of allocations shows what clients cost.
const PAGE_BYTES: usize = 32 * 1024;
const NAME_BYTES: usize = 64;

/// Why writing cannot fail.
const FITS: &str = "a string takes it";

/// A page that is being written, and the family that its next samples belong to.
pub(crate) struct MetricsPage {
    text: String,
    name: String,
}

impl MetricsPage {
    /// An empty page.
    pub(crate) fn new() -> MetricsPage {
        MetricsPage {
            text: String::with_capacity(PAGE_BYTES),
            name: String::with_capacity(NAME_BYTES),
        }
    }

    /// Begins a family.
    pub(crate) fn family(&mut self, name: &str, kind: &str, help: &str) -> &mut MetricsPage {
        name.clone_into(&mut self.name);
        writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}").expect(FITS);
        self
    }

    /// Writes the only sample of the family.
    pub(crate) fn value(&mut self, value: impl Display) {
        writeln!(self.text, "{} {value}", self.name).expect(FITS);
    }

    /// Writes the only sample of the family, if its value is known.
    pub(crate) fn value_if(&mut self, value: Option<impl Display>) {
        value.into_iter().for_each(|value| self.value(value));
    }

    /// Writes a sample with labels.
    pub(crate) fn labelled(&mut self, labels: impl Display, value: impl Display) {
        writeln!(self.text, "{}{{{labels}}} {value}", self.name).expect(FITS);
    }

    /// Writes cumulative buckets in seconds, the base unit. The count is the sum of the buckets
    /// read, so that a page is consistent while the writer continues.
    pub(crate) fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.family(name, "histogram", help);
        let mut count = 0;
        for (bucket, events) in histogram.counts().into_iter().enumerate() {
            count += events;
            write!(self.text, "{name}_bucket{{le=\"").expect(FITS);
            match Histogram::upper_us(bucket) {
                Some(us) => write!(self.text, "{}", Seconds { us }).expect(FITS),
                None => self.text.push_str("+Inf"),
            }
            writeln!(self.text, "\"}} {count}").expect(FITS);
        }
        let sum = Seconds { us: histogram.sum_us() };
        writeln!(self.text, "{name}_sum {sum}\n{name}_count {count}").expect(FITS);
    }

    /// The text of the page.
    pub(crate) fn into_text(self) -> String {
        self.text
    }
}

/// Microseconds, written as seconds, exactly.
pub(crate) struct Seconds {
    pub(crate) us: u64,
}

impl Display for Seconds {
    fn fmt(&self, f: &mut Formatter) -> std::fmt::Result {
        write!(f, "{}.{:06}", self.us / 1_000_000, self.us % 1_000_000)
    }
}
