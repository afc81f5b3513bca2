//! Rule: an axis of which an index takes a quotient or a remainder is split by that
//! number, so that indices become affine. Example: the channels of a grouped convolution
//! are `k / 4 * 4 + c`; with `k` split into groups and maps they are `group * 4 + c`.

use super::{Plan, lanes};
use crate::draft::{Draft, REST, Written, given};

const RULE: &str = "quotients";

pub fn split(d: &mut Draft, plan: &mut Plan) -> Written<()> {
    let lanes = lanes::choose(&plan.facts, &[]).map(|(at, _)| at).ok();
    let mut split = Vec::new();
    for (at, axis) in plan.facts.axes.iter().enumerate() {
        let Some(by) = axis.quotient else { continue };
        // Lanes read in a pattern that code generation knows.
        if Some(at) == lanes || by >= axis.extent || axis.extent % by != 0 {
            continue;
        }
        d.split(axis.id, [REST, given(by)])?;
        split.push(format!("{} by {by}", axis.name));
    }
    match split.is_empty() {
        true => plan.passed(
            RULE,
            "every index is affine, or its quotient is of the lanes",
        ),
        false => plan.applied(RULE, split.join(", ")),
    }
    plan.look_again(d);
    Ok(())
}
