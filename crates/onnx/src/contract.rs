//! Importer of Einsum: contractions of operands two by two, and sums and transposes of one.

use crate::node::{Imported, NodeImport, Problem};
use graph::ValueId;
use graph::ops::{Contract, Op, Reduce, ReduceKind, Slice, Transpose};
use std::collections::{HashSet, VecDeque};

/// The axes that `...` stands for are in the first places of the term.
struct Equation {
    operands: Vec<Vec<char>>,
    result: Vec<char>,
}

pub(crate) fn einsum(n: &mut NodeImport) -> Imported {
    let equation = n.attributes.text("equation", "")?;
    let inputs = n.all_inputs()?;
    let ranks: Vec<usize> = inputs.iter().map(|v| n.ty(*v).rank()).collect();
    let equation = Equation::parse(&equation, &ranks)?;
    let mut terms = Vec::new();
    for (x, letters) in inputs.into_iter().zip(equation.operands) {
        terms.push(diagonal(n, x, letters)?);
    }
    broadcast(n, &mut terms)?;
    if let [(x, letters)] = &terms[..] {
        return reordered_sum(n, *x, letters, &equation.result);
    }
    let mut terms = VecDeque::from(terms);
    // From the left, two by two. A letter that nothing after them has is summed at once.
    while let (Some((x, left)), Some((y, right))) = (terms.pop_front(), terms.pop_front()) {
        let result = match terms.is_empty() {
            true => equation.result.clone(),
            false => {
                let later: Vec<char> = terms.iter().flat_map(|t| t.1.clone()).collect();
                let wanted = |l: &char| equation.result.contains(l) || later.contains(l);
                let new = right.iter().filter(|l| !left.contains(l));
                left.iter().chain(new).copied().filter(wanted).collect()
            }
        };
        let contract = Contract {
            left,
            right,
            result: result.clone(),
        };
        let z = n.emit(Op::Contract(contract), &[x, y])?;
        if terms.is_empty() {
            return Ok(vec![z]);
        }
        terms.push_front((z, result));
    }
    Problem::unsupported("it has no operands")
}

/// Drops axes of one element whose letter stands for more elements in another operand.
fn broadcast(n: &mut NodeImport, terms: &mut [(ValueId, Vec<char>)]) -> Result<(), Problem> {
    let mut longer = HashSet::new();
    for (x, letters) in &*terms {
        let sizes = n.shape(*x);
        longer.extend(
            letters
                .iter()
                .zip(sizes)
                .filter(|(_, s)| *s != 1)
                .map(|(l, _)| *l),
        );
    }
    for (x, letters) in terms {
        let shape = n.shape(*x);
        let kept: Vec<usize> = (0..shape.len())
            .filter(|a| shape[*a] != 1 || !longer.contains(&letters[*a]))
            .collect();
        if kept.len() < shape.len() {
            *x = n.reshape(*x, kept.iter().map(|a| shape[*a]).collect())?;
            *letters = kept.iter().map(|a| letters[*a]).collect();
        }
    }
    Ok(())
}

/// An operand without letters that stand twice: of their two axes only the elements with equal indices are left.
fn diagonal(
    n: &mut NodeImport,
    mut x: ValueId,
    mut letters: Vec<char>,
) -> Result<(ValueId, Vec<char>), Problem> {
    let twice = |letters: &[char]| {
        (1..letters.len()).find_map(|j| {
            let i = letters[..j].iter().position(|l| *l == letters[j])?;
            Some((i, j))
        })
    };
    while let Some((i, j)) = twice(&letters) {
        let shape = n.shape(x);
        let size = shape[i];
        if shape[j] != size {
            return Problem::unsupported(format!(
                "letter `{}` stands for axes of {size} and {}",
                letters[i], shape[j]
            ));
        }
        let others: Vec<usize> = (0..letters.len()).filter(|a| ![i, j].contains(a)).collect();
        let perm = others.iter().copied().chain([i, j]).collect();
        let last = n.emit(Op::Transpose(Transpose { perm }), &[x])?;
        let outer: Vec<usize> = others.iter().map(|a| shape[*a]).collect();
        let square = [&outer[..], &[size * size]].concat();
        let flat = n.reshape(last, square)?;
        let mut steps = vec![1; outer.len()];
        steps.push(size as i64 + 1);
        let every = Slice {
            starts: vec![0; steps.len()],
            steps,
            sizes: [&outer[..], &[size]].concat(),
        };
        x = n.emit(Op::Slice(every), &[flat])?;
        letters = others.iter().chain([&i]).map(|a| letters[*a]).collect();
    }
    Ok((x, letters))
}

/// Sums over the letters that the result lacks, and brings the others in its order.
fn reordered_sum(n: &mut NodeImport, x: ValueId, letters: &[char], result: &[char]) -> Imported {
    let axes: Vec<usize> = (0..letters.len())
        .filter(|i| !result.contains(&letters[*i]))
        .collect();
    let kept: Vec<char> = letters
        .iter()
        .copied()
        .filter(|l| result.contains(l))
        .collect();
    let mut y = x;
    if !axes.is_empty() {
        let reduce = Reduce {
            kind: ReduceKind::Sum,
            axes,
            keepdims: false,
        };
        y = n.emit(Op::Reduce(reduce), &[y])?;
    }
    let place = |l: &char| kept.iter().position(|k| k == l);
    let perm: Vec<usize> = result.iter().filter_map(place).collect();
    if perm.len() != result.len() || perm.len() != kept.len() {
        return Problem::unsupported("its result does not have each letter of the operand once");
    }
    Ok(vec![n.emit(Op::Transpose(Transpose { perm }), &[y])?])
}

impl Equation {
    /// Reads an equation for operands of these ranks; `...` becomes letters that the
    /// equation does not use, counted from the last axis that it stands for.
    fn parse(text: &str, ranks: &[usize]) -> Result<Equation, Problem> {
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let (operands, result) = match text.split_once("->") {
            Some((operands, result)) => (operands, Some(result)),
            None => (&text[..], None),
        };
        let terms: Vec<&str> = operands.split(',').collect();
        if terms.len() != ranks.len() {
            return Problem::unsupported(format!(
                "equation `{text}` has {} operands where {} are given",
                terms.len(),
                ranks.len()
            ));
        }
        let free: Vec<char> = ('a'..='z')
            .chain('A'..='Z')
            .filter(|l| !text.contains(*l))
            .collect();
        let mut widest = 0;
        let mut expanded = Vec::new();
        for (term, rank) in terms.iter().zip(ranks) {
            let named = term.replacen("...", "", 1).chars().count();
            let Some(unnamed) = rank.checked_sub(named).filter(|n| *n <= free.len()) else {
                return Problem::unsupported(format!("`{term}` does not fit rank {rank}"));
            };
            expanded.push(expand(term, &free[..unnamed], &text)?);
            if expanded.last().is_some_and(|e| e.len() != *rank) {
                return Problem::unsupported(format!("`{term}` does not fit rank {rank}"));
            }
            if term.contains("...") {
                widest = widest.max(unnamed);
            }
        }
        let result = match result {
            Some(result) => expand(result, &free[..widest], &text)?,
            None => implicit_result(&expanded, &free[..widest]),
        };
        Ok(Equation {
            operands: expanded,
            result,
        })
    }
}

/// The letters of a term, with those of `...` in its place, the last of them first in `free`.
fn expand(term: &str, free: &[char], equation: &str) -> Result<Vec<char>, Problem> {
    let (before, unnamed, after) = match term.split_once("...") {
        Some((before, after)) => (before, free, after),
        None => (term, &[][..], ""),
    };
    let named = before.chars().chain(after.chars());
    if let Some(c) = named.into_iter().find(|c| !c.is_ascii_alphabetic()) {
        return Problem::unsupported(format!("`{c}` in equation `{equation}` is no letter"));
    }
    let unnamed = unnamed.iter().rev().copied();
    Ok(before.chars().chain(unnamed).chain(after.chars()).collect())
}

/// What `...` stands for, then in alphabetical order the letters that occur once.
fn implicit_result(operands: &[Vec<char>], unnamed: &[char]) -> Vec<char> {
    let all: Vec<char> = operands.iter().flatten().copied().collect();
    let once = |l: &&char| all.iter().filter(|o| o == l).count() == 1 && !unnamed.contains(l);
    let mut named: Vec<char> = all.iter().filter(once).copied().collect();
    named.sort_unstable();
    unnamed.iter().rev().copied().chain(named).collect()
}
