//! Which branches test which parts of a condition.
//!
//! LLVM tests the parts of `a and b` one after the other. Each test is a block that goes on to the next test, or leaves for
//! what comes without the condition. An iteration in which `a` does not hold never reaches the test of `b`.

use crate::regions::{Alike, Item, Region};
use ir::VarId;

/// The tests of one condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    /// Nodes, in the order in which they run.
    tests: Vec<usize>,
    /// Where the last test goes if its part holds, and where each goes if its part does not.
    then: usize,
    otherwise: usize,
    /// Of each test, the conditions of the region that it tests.
    parts: Vec<Vec<usize>>,
}

impl Chain {
    /// Whether iterations that are alike surely do not go from a node to this next one.
    pub fn forbids(&self, from: usize, to: usize, alike: &Alike) -> bool {
        let (Some(at), Some(ends)) = (self.tests.iter().position(|t| *t == from), self.end(alike))
        else {
            return false;
        };
        let goes_on = self.tests.get(at + 1).copied().unwrap_or(self.then);
        to == self.otherwise && at < ends || to == goes_on && at == ends
    }

    /// The test after which the others are left out; `None` if all parts hold or data decide.
    fn end(&self, alike: &Alike) -> Option<usize> {
        for (at, part) in self.parts.iter().enumerate() {
            let mut known = true;
            for condition in part {
                match alike.holds(*condition) {
                    Some(true) => {}
                    Some(false) => return Some(at),
                    None => known = false,
                }
            }
            if !known {
                return None;
            }
        }
        None
    }
}

/// The chain of tests before a node that has a conditional item, if there are as many tests as the condition has
/// parts. `next` are the ways from each node, and none if one of them leaves the loop. `fixed` says whether a test surely
/// has the same result in all iterations of the loop.
pub fn chain(
    next: &[Vec<usize>],
    then: usize,
    (region, item, alike): (&Region, &Item, &[Alike]),
    fixed: impl Fn(usize) -> bool,
) -> Option<Chain> {
    let (tests, otherwise) = tests(next, then)?;
    let parts = parts(region, item, alike);
    let parts = parts.into_iter().find(|p| p.len() == tests.len())?;
    let fixed: Vec<bool> = tests.iter().map(|t| fixed(*t)).collect();
    Some(Chain {
        parts: in_order(region, parts, &fixed)?,
        tests,
        then,
        otherwise,
    })
}

/// The tests that all must pass before a node runs, and where all go otherwise. `None` if there are less than two.
fn tests(next: &[Vec<usize>], then: usize) -> Option<(Vec<usize>, usize)> {
    let previous = |node: usize| {
        let mut all = (0..next.len()).filter(|n| next[*n].contains(&node));
        all.next().filter(|_| all.next().is_none())
    };
    let (mut tests, mut otherwise) = (Vec::new(), None);
    let mut at = then;
    while let Some(test) = previous(at) {
        let other = match next[test][..] {
            [a, b] => a + b - at,
            _ => break,
        };
        if *otherwise.get_or_insert(other) != other {
            break;
        }
        tests.push(test);
        at = test;
    }
    tests.reverse();
    otherwise.filter(|_| tests.len() > 1).map(|o| (tests, o))
}

/// The ways to divide the condition of an item into parts, in the order of the flat code: conditions of the same
/// variables together, or each apart. What always holds needs no test.
fn parts(region: &Region, item: &Item, alike: &[Alike]) -> [Vec<Vec<usize>>; 2] {
    let always = |c: &usize| alike.iter().all(|a| a.holds(*c) == Some(true));
    let tested: Vec<usize> = item
        .needs()
        .iter()
        .copied()
        .filter(|c| !always(c))
        .collect();
    let mut together: Vec<(Vec<VarId>, Vec<usize>)> = Vec::new();
    for condition in &tested {
        let vars = region.vars_of(*condition);
        match together.iter_mut().find(|(v, _)| *v == vars) {
            Some((_, part)) => part.push(*condition),
            None => together.push((vars, vec![*condition])),
        }
    }
    let together = together.into_iter().map(|(_, part)| part);
    [
        together.collect(),
        tested.into_iter().map(|c| vec![c]).collect(),
    ]
}

/// The part of each test. LLVM tests parts in the order of the flat code, or what is fixed in the loop at another place; a
/// part that the variable of the loop decides is never fixed. `None` if no order fits.
fn in_order(region: &Region, parts: Vec<Vec<usize>>, fixed: &[bool]) -> Option<Vec<Vec<usize>>> {
    let varies = |part: &Vec<usize>| part.iter().any(|c| region.own_decides(*c));
    if parts
        .iter()
        .zip(fixed)
        .all(|(part, fixed)| !(*fixed && varies(part)))
    {
        return Some(parts);
    }
    let (varying, constant): (Vec<_>, Vec<_>) = parts.into_iter().partition(varies);
    let (mut varying, mut constant) = (varying.into_iter(), constant.into_iter());
    let each = fixed.iter().map(|fixed| match fixed {
        true => constant.next(),
        false => varying.next(),
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_leave_for_the_same_node_are_a_chain() {
        // 0 and 1 guard 2, and all go on at 3.
        let guarded = [vec![1, 3], vec![2, 3], vec![3], vec![]];
        assert_eq!(tests(&guarded, 2), Some((vec![0, 1], 3)));
        // Two statements after each other: the second has tests of its own.
        let twice = [
            vec![1, 3],
            vec![2, 3],
            vec![3],
            vec![4, 6],
            vec![5, 6],
            vec![6],
            vec![],
        ];
        assert_eq!(tests(&twice, 5), Some((vec![3, 4], 6)));
    }

    #[test]
    fn a_single_test_and_tests_with_other_ways_are_none() {
        assert_eq!(tests(&[vec![1, 2], vec![2], vec![]], 1), None);
        // 0 leaves for 4, 1 for 3.
        let elsewhere = [vec![1, 4], vec![2, 3], vec![3], vec![4], vec![]];
        assert_eq!(tests(&elsewhere, 2), None);
        // 2 runs if any of two tests passes.
        let either = [vec![1, 2], vec![2, 3], vec![3], vec![]];
        assert_eq!(tests(&either, 2), None);
    }

    #[test]
    fn iterations_leave_at_the_first_part_that_does_not_hold() {
        let chain = Chain {
            tests: vec![0, 1],
            then: 2,
            otherwise: 3,
            parts: vec![vec![0, 1], vec![2]],
        };
        let ways = [(0, 1), (0, 3), (1, 2), (1, 3), (2, 3)];
        let forbidden = |holds: [Option<bool>; 3]| {
            let alike = Alike::deciding(1.0, &holds);
            ways.map(|(from, to)| chain.forbids(from, to, &alike))
        };
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(
            forbidden([yes, no, yes]),
            [true, false, false, false, false]
        );
        assert_eq!(forbidden([yes, yes, no]), [false, true, true, false, false]);
        assert_eq!(forbidden([yes, yes, yes]), [false; 5]);
        assert_eq!(forbidden([yes, None, no]), [false; 5]);
    }
}
