//! The pages that monitoring asks every process for.

/// The media type of all of them.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// One page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    /// Everything that is measured, for Prometheus.
    Metrics,
    /// Liveness: a process that is not live has to be restarted.
    Live,
    /// Readiness: a process that is not ready should get no work.
    Ready,
}

impl Page {
    /// The page of a path.
    pub(crate) fn of(path: &str) -> Option<Page> {
        match path {
            "/metrics" => Some(Page::Metrics),
            "/livez" => Some(Page::Live),
            "/readyz" => Some(Page::Ready),
            _ => None,
        }
    }
}

/// Status and text of a probe: the word if nothing speaks against it, else each reason on a line.
pub(crate) fn probe(well: &str, reasons: impl Iterator<Item = String>) -> (&'static str, String) {
    let reasons: String = reasons.map(|reason| reason + "\n").collect();
    match reasons.is_empty() {
        true => ("200 OK", format!("{well}\n")),
        false => ("503 Service Unavailable", reasons),
    }
}
