//! The game's rules as scripts: events in, updates out, one file a rule.

mod boards;
mod changing_rules;
mod crossing;
mod documents;
mod hunting;
mod items;
mod moving;
mod presence;
mod script;
mod shooting;
