//! Concatenations of many parts become trees of concatenations.
//!
//! A kernel selects among the parts for every element, and its expression is as
//! deep as there are parts. Values stay the same.

use graph::ops::{Concat, Op};
use graph::{Model, ValueId};
use std::convert::Infallible;

/// The most parts of one concatenation.
const MAX_PARTS: usize = 32;

/// The model without concatenations of more than [`MAX_PARTS`] parts.
pub(crate) fn bound_parts(model: &Model) -> Model {
    let bounded = model.rewrite(|r, _, node| {
        let Op::Concat(c) = &node.op else {
            return Ok::<_, Infallible>(r.copy(node));
        };
        if node.inputs.len() <= MAX_PARTS {
            return Ok(r.copy(node));
        }
        let mut parts: Vec<ValueId> = r.operands(node).into_iter().flatten().collect();
        while parts.len() > 1 {
            parts = parts
                .chunks(MAX_PARTS)
                .map(|some| joined(&mut r.target, &node.name, *c, some))
                .collect();
        }
        Ok(parts)
    });
    let Ok(model) = bounded;
    model
}

fn joined(model: &mut Model, name: &str, c: Concat, parts: &[ValueId]) -> ValueId {
    match parts {
        [one] => *one,
        _ => model
            .add(name, Op::Concat(c), parts)
            .expect("some of the parts fit as all of them did"),
    }
}
