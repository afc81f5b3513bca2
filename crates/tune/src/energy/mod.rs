//! The joules of a run: what they were used for, and what they cost.
//!
//! An [`Account`] reads the meters ([`measure::energy`]) once a second and whenever the run enters
//! another [`Stage`]. What an idle machine draws is kept apart. The rest of a stage is one
//! phase, except in the search, whose phases overlap: there it is divided by CPU time. So the idle
//! part and the phases sum to what the meter says.

mod account;
mod attribution;

pub use account::{Account, JoulesSoFar, Stage};
pub use attribution::{Energy, Metered, Money};
