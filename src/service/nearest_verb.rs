//! Finds the verb that was most likely meant by an unknown one.

use super::cli::Cli;
use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Letters that a verb may differ in from what was meant.
const VERB_TYPOS_MAX: usize = 2;

/// Adds the verb that was most likely meant, where clap finds none: it takes swapped letters of
/// short words for other words.
pub(super) fn with_nearest_verb(mut error: clap::Error) -> clap::Error {
    let is_verb = error.kind() == ErrorKind::InvalidSubcommand;
    let wrong = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(wrong)) if is_verb => wrong.clone(),
        _ => return error,
    };
    let is_helped = error
        .get(ContextKind::SuggestedSubcommand)
        .is_some_and(|verbs| !matches!(verbs, ContextValue::Strings(verbs) if verbs.is_empty()));
    let command = Cli::command();
    let nearest = command
        .get_subcommands()
        .map(|verb| (strsim::damerau_levenshtein(&wrong, verb.get_name()), verb.get_name()))
        .filter(|(typos, _)| *typos <= VERB_TYPOS_MAX)
        .min();
    if let Some((_, verb)) = nearest.filter(|_| !is_helped) {
        let verbs = ContextValue::Strings(vec![verb.to_owned()]);
        error.insert(ContextKind::SuggestedSubcommand, verbs);
    }
    error
}
