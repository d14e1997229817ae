//! What the operator sees: command line, configuration, systemd, HTTP.
