//! The page at `/`: static files in the binary. It asks this server alone, as its policy says.

/// A file of the page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asset {
    /// Where it is.
    path: &'static str,
    /// What it is.
    pub content_type: &'static str,
    /// Its bytes.
    pub bytes: &'static [u8],
}

/// Headers of every file of the page.
pub(crate) const HEADERS: &str = "Content-Security-Policy: default-src 'self'; \
                           frame-ancestors 'none'; base-uri 'none'; form-action 'none'\r\n\
                           X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n";

const ASSETS: [Asset; 4] = [
    Asset {
        path: "/",
        content_type: "text/html; charset=utf-8",
        bytes: include_bytes!("index.html"),
    },
    Asset {
        path: "/page.js",
        content_type: "text/javascript; charset=utf-8",
        bytes: include_bytes!("page.js"),
    },
    Asset { path: "/icon.svg", content_type: "image/svg+xml", bytes: include_bytes!("icon.svg") },
    Asset {
        path: "/page.css",
        content_type: "text/css; charset=utf-8",
        bytes: include_bytes!("page.css"),
    },
];

/// The file at a path, if the page has it.
pub(crate) fn asset(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}
