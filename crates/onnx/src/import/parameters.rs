//! Which constants of a file are parameters: initialisers of its graph. Exporters write other constants as nodes.

use graph::{Model, Origin, ValueId};
use std::collections::{BTreeSet, HashSet};

/// The names of all other constants.
pub(super) fn others(model: &Model, parameters: &HashSet<ValueId>) -> BTreeSet<String> {
    let constants = model.values().filter(|(v, value)| {
        matches!(value.origin(), Origin::Constant(_)) && !parameters.contains(v)
    });
    constants.map(|(_, v)| v.name().to_string()).collect()
}
