//! Shows what the decoder makes of each kind of record, and that its tiers agree.

pub(crate) mod corpus;
mod shapes;
mod tiers;
mod vectors;
