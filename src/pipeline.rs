//! The whole daemon on one screen.
