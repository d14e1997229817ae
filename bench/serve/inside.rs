//! What huntd's servers count of themselves.

use crate::generators::Ask;
use std::time::Duration;
use support::scrape::Page;

/// The counts of all servers at one moment.
pub(crate) struct Inside {
    /// Upper bounds in seconds, and how many answers took no longer.
    answers: Vec<(f64, u64)>,
    allocations: u64,
    updates: u64,
}

impl Inside {
    pub(crate) fn of(addresses: &[String], ask: Ask) -> Inside {
        let times = match ask {
            Ask::Poll | Ask::Card | Ask::Board => "huntd_serve_answer_seconds",
            Ask::Command => "huntd_serve_post_seconds",
            Ask::Stream | Ask::Socket | Ask::Sight => "huntd_serve_stream_seconds",
        };
        let mut inside = Inside { answers: Vec::new(), allocations: 0, updates: 0 };
        for address in addresses {
            let page = Page::of(address);
            let answers = page.buckets(times);
            match inside.answers.is_empty() {
                true => inside.answers = answers,
                false => {
                    for (all, (_, count)) in inside.answers.iter_mut().zip(answers) {
                        all.1 += count;
                    }
                }
            }
            let allocations = page.samples("huntd_serve_allocations_total");
            inside.allocations += allocations.map(|(_, count)| count).sum::<u64>();
            inside.updates += page.value("huntd_view_updates_total");
        }
        inside
    }

    /// What has come since: how long answers took inside, what they allocated, and what was folded
    /// meanwhile, in this time, by all servers.
    pub(crate) fn since(&self, before: &Inside, time: Duration) -> String {
        let count = |at: usize| self.answers[at].1 - before.answers.get(at).map_or(0, |of| of.1);
        let all = self.answers.len().checked_sub(1).map_or(0, count);
        let quantile = |share: f64| {
            let holds = |at: &usize| count(*at) as f64 >= share * all as f64;
            let bucket = (0..self.answers.len()).find(holds);
            bucket.map_or("?".to_owned(), |at| format!("{:.0}", self.answers[at].0 * 1e6))
        };
        let allocations = self.allocations - before.allocations;
        format!(
            "{all} answers, inside p50 <= {}, p99 <= {}, p99.9 <= {} us; {allocations} \
             allocations; {:.0} updates/s folded",
            quantile(0.5),
            quantile(0.99),
            quantile(0.999),
            (self.updates - before.updates) as f64 / time.as_secs_f64(),
        )
    }
}
