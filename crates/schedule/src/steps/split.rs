//! split{loop, factors}: cut a loop into a nest of loops.
//!
//! If the factors' product exceeds the extent, the blocks under the loop get a
//! predicate. An outermost iteration that would be wholly empty is refused.

use crate::illegal::Illegal;
use crate::legality::serial;
use crate::nest::live_name;
use crate::rebind::{restrict, substitute};
use crate::steps::loop_named;
use ir::{Expr, LoopId, Node, Program};

pub(crate) const STEP: &str = "split";

/// `factors` are outermost first; `None` stands for what is left, rounded up.
/// Gives the parts, outermost first.
pub(crate) fn apply(
    program: &mut Program,
    target: &str,
    factors: &[Option<i64>],
) -> Result<Vec<LoopId>, Illegal> {
    let l = loop_named(program, STEP, target)?;
    let refuse = |why: String| Illegal::new(STEP, target, why);
    serial(program, l).map_err(refuse)?;
    let extent = program.loop_(l).extent;
    let extents = extents(extent, factors).map_err(refuse)?;

    let mut body = program.loop_(l).body.clone();
    let mut value = Expr::int(0);
    let mut stride = 1;
    let mut parts = Vec::with_capacity(extents.len());
    for (i, n) in extents.iter().enumerate().rev() {
        let name = live_name(program, &format!("{target}.{i}"));
        let part = program.new_loop(name, *n, body);
        if i == extents.len() - 1 {
            program.loop_mut(part).annotations = program.loop_(l).annotations.clone();
        }
        value = Expr::var(program.loop_(part).var) * stride + value;
        stride *= n;
        body = vec![Node::Loop(part)];
        parts.push(part);
    }
    program.replace_node(Node::Loop(l), &body);
    let var = program.loop_(l).var;
    substitute(program, &body, &|v| (v == var).then(|| value.clone()));
    if stride > extent {
        restrict(program, &body, &value.lt(extent));
    }
    parts.reverse();
    Ok(parts)
}

/// The extents of the parts.
fn extents(extent: i64, factors: &[Option<i64>]) -> Result<Vec<i64>, String> {
    if factors.is_empty() {
        return Err("there are no factors".into());
    }
    if factors.iter().filter(|f| f.is_none()).count() > 1 {
        return Err("only one factor can be what is left".into());
    }
    let mut known: i64 = 1;
    for f in factors.iter().flatten() {
        if *f < 1 {
            return Err(format!("a factor of {f} is less than 1"));
        }
        known = known.checked_mul(*f).ok_or("the factors overflow")?;
    }
    let rest = (extent - 1) / known + 1;
    let extents: Vec<i64> = factors.iter().map(|f| f.unwrap_or(rest)).collect();
    let product = extents.iter().try_fold(1i64, |n, f| n.checked_mul(*f));
    let product = product.ok_or("the factors overflow")?;
    if product < extent {
        return Err(format!("{product} iterations do not cover {extent}"));
    }
    if product - product / extents[0] >= extent {
        return Err(format!(
            "the last of {} outermost iterations would be empty",
            extents[0]
        ));
    }
    Ok(extents)
}
