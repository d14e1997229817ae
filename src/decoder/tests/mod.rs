//! What the decoder makes of each kind of record, and that its tiers agree.

mod corpus;
mod shapes;
mod tiers;
mod vectors;
