//! Which sketches of a task are searched, and from where.

use crate::Options;
use crate::error::{Error, Result};
use crate::source::Source;
use ir::{Program, Target};
use plan::Plan;
use search::{Allowed, Space, name_for_people};
use std::collections::BTreeSet;

/// The space of a task's search, as the options say.
pub fn searched(program: &Program, target: &Target, options: &Options, seed: u64) -> Space {
    let space = search::space(program, target, options.allowed());
    let mut space = restricted(space, &options.algorithms);
    if options.start_random {
        space.forget_defaults(seed);
    }
    space
}

/// The sketches whose names begin with one of the prefixes; all of them if none do.
fn restricted(mut space: Space, prefixes: &[String]) -> Space {
    let wanted = |name: &str| prefixes.iter().any(|p| name.starts_with(p.as_str()));
    if space.sketches.iter().any(|s| wanted(&s.name)) {
        space.sketches.retain(|s| wanted(&s.name));
    }
    space
}

/// Refuses prefixes with which no algorithm of any task begins.
pub fn check_algorithms(source: &Source, target: &Target, options: &Options) -> Result<()> {
    if options.algorithms.is_empty() {
        return Ok(());
    }
    let mut unknown: Vec<&String> = options.algorithms.iter().collect();
    for t in &source.plan(target, options.accuracy, &[])?.tasks {
        let space = search::space(&t.program, target, options.allowed());
        unknown.retain(|p| {
            space
                .sketches
                .iter()
                .all(|s| !s.name.starts_with(p.as_str()))
        });
    }
    let Some(prefix) = unknown.first() else {
        return Ok(());
    };
    let why = format!("no task has an algorithm whose name begins with `{prefix}`");
    Err(Error::new(why).help(
        "`tasks MODEL --json` lists every task's; some need --accuracy relaxed or --space all",
    ))
}

/// Algorithms that a study asks of every model, though few have a layer for each.
pub const OF_CONVOLUTIONS: [&str; 5] = ["im2row", "convgemm", "direct", "winograd2", "winograd4"];

/// Refuses prefixes of alternatives with which no algorithm of any task begins. Those of convolutions are known even
/// where a model has none.
pub(crate) fn check_alternatives(
    plan: &Plan,
    target: &Target,
    allowed: Allowed,
    prefixes: &[String],
) -> Result<()> {
    let is_new = |p: &&String| !OF_CONVOLUTIONS.contains(&p.as_str());
    if !prefixes.iter().any(|p| is_new(&p)) {
        return Ok(());
    }
    let mut known = BTreeSet::from(OF_CONVOLUTIONS.map(String::from));
    for t in &plan.tasks {
        for s in search::space(&t.program, target, allowed).sketches {
            known.insert(name_for_people(&t.program, &s.name));
            known.insert(s.name);
        }
    }
    let is_known = |p: &String| {
        known
            .iter()
            .any(|k| !p.is_empty() && k.starts_with(p.as_str()))
    };
    let Some(prefix) = prefixes.iter().find(|p| !is_known(p)) else {
        return Ok(());
    };
    let why = format!(
        "no task of {} has an algorithm whose name begins with `{prefix}`",
        plan.name
    );
    let names: Vec<String> = known.into_iter().collect();
    Err(Error::new(why).help(format!(
        "it has {}; some others need --accuracy relaxed or --space all",
        names.join(", ")
    )))
}
