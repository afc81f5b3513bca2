//! Importers of sums and products along an axis up to each element.

use crate::node::{Imported, NodeImport, Problem};
use graph::ops::{Cumulative, CumulativeKind, Op};

pub(crate) fn sum(n: &mut NodeImport) -> Imported {
    cumulative(n, CumulativeKind::Sum)
}

pub(crate) fn prod(n: &mut NodeImport) -> Imported {
    cumulative(n, CumulativeKind::Prod)
}

fn cumulative(n: &mut NodeImport, kind: CumulativeKind) -> Imported {
    let x = n.input(0)?;
    let rank = n.ty(x).rank();
    let is_computed = n.optional(1).is_some_and(|v| n.model.constant(v).is_none());
    let axis = match is_computed && rank == 1 {
        true => 0,
        false => match n.constant_ints(1, "axis")?.as_deref() {
            Some([axis]) => n.axis(*axis, rank)?,
            _ => return Problem::unsupported("its axis is not one number"),
        },
    };
    let cumulative = Cumulative {
        kind,
        axis,
        exclusive: n.attributes.flag("exclusive", false)?,
        reverse: n.attributes.flag("reverse", false)?,
    };
    Ok(vec![n.emit(Op::Cumulative(cumulative), &[x])?])
}
