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
    /// The ways, from a node to a next one, that iterations that are alike surely do not take.
    pub fn forbidden(&self, alike: &Alike) -> Vec<(usize, usize)> {
        let Some(end) = self.end(alike) else {
            return vec![];
        };
        let goes_on = self.tests.get(end + 1).copied().unwrap_or(self.then);
        let passed = self.tests[..end].iter();
        let mut ways: Vec<(usize, usize)> = passed.map(|t| (*t, self.otherwise)).collect();
        ways.push((self.tests[end], goes_on));
        ways
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
/// parts. `fixed` says whether a test surely
/// has the same result in all iterations of the loop.
pub fn chain(
    ways: &Ways,
    then: usize,
    (region, item, alike): (&Region, &Item, &[Alike]),
    fixed: impl Fn(usize) -> bool,
) -> Option<Chain> {
    let (tests, otherwise) = ways.tests(then)?;
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

/// How nodes follow each other.
pub struct Ways {
    /// The two ways from a node that may be a test.
    next: Vec<Option<[usize; 2]>>,
    /// The node before, if it is the only one.
    previous: Vec<Option<usize>>,
}

impl Ways {
    /// Of all nodes and those after each. Only some of them may be tests.
    pub fn of(next: &[Vec<usize>], may_test: impl Fn(usize) -> bool) -> Ways {
        let mut before = vec![vec![]; next.len()];
        for (from, all) in next.iter().enumerate() {
            all.iter().for_each(|to| before[*to].push(from));
        }
        let only = |all: Vec<usize>| all.first().copied().filter(|_| all.len() == 1);
        let two = |(n, all): (usize, &Vec<usize>)| match all[..] {
            [a, b] if may_test(n) => Some([a, b]),
            _ => None,
        };
        Ways {
            next: next.iter().enumerate().map(two).collect(),
            previous: before.into_iter().map(only).collect(),
        }
    }

    /// The tests that all must pass before a node runs, and where all go otherwise. `None` if there are less than two.
    fn tests(&self, then: usize) -> Option<(Vec<usize>, usize)> {
        let (mut tests, mut otherwise) = (Vec::new(), None);
        let mut at = then;
        while let Some(test) = self.previous[at] {
            let Some([a, b]) = self.next[test] else {
                break;
            };
            let other = if a == at { b } else { a };
            if *otherwise.get_or_insert(other) != other {
                break;
            }
            tests.push(test);
            at = test;
        }
        tests.reverse();
        otherwise.filter(|_| tests.len() > 1).map(|o| (tests, o))
    }
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

    fn tests(next: &[Vec<usize>], then: usize) -> Option<(Vec<usize>, usize)> {
        Ways::of(next, |_| true).tests(then)
    }

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
        // 0 may not be a test, though 1 follows it alone.
        let guarded = [vec![1, 3], vec![2, 3], vec![3], vec![]];
        assert_eq!(Ways::of(&guarded, |n| n != 0).tests(2), None);
    }

    #[test]
    fn iterations_leave_at_the_first_part_that_does_not_hold() {
        let chain = Chain {
            tests: vec![0, 1],
            then: 2,
            otherwise: 3,
            parts: vec![vec![0, 1], vec![2]],
        };
        let forbidden = |holds: [Option<bool>; 3]| chain.forbidden(&Alike::deciding(1.0, &holds));
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(forbidden([yes, no, yes]), [(0, 1)]);
        assert_eq!(forbidden([yes, yes, no]), [(0, 3), (1, 2)]);
        assert_eq!(forbidden([yes, yes, yes]), []);
        assert_eq!(forbidden([yes, None, no]), []);
    }
}
