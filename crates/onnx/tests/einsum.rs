//! Einsum: every written form of a contraction, sums and transposes of one operand, and
//! what is refused.

mod build_onnx;

use build_onnx::{F32, file, import, known, node, text, undeclared};
use graph::ops::{Contract, Op};
use graph::reference::apply;
use graph::{Keep, Model, evaluate};
use onnx::ImportError;
use onnx::proto::GraphProto;
use std::sync::Arc;
use tensor::{DType, Fill, Tensor, fill_tensor};

fn einsum(equation: &str, shapes: &[&[i64]]) -> Result<Model, ImportError> {
    let names = &["x", "y", "z", "w"][..shapes.len()];
    let attributes = vec![text("equation", equation)];
    let inputs = names.iter().zip(shapes);
    import(&file(
        12,
        GraphProto {
            name: Some("g".into()),
            node: vec![node("Einsum", names, &["r"], attributes)],
            input: inputs.map(|(n, s)| known(n, F32, s)).collect(),
            output: vec![undeclared("r")],
            ..Default::default()
        },
    ))
}

fn arguments(shapes: &[&[i64]]) -> Vec<Arc<Tensor>> {
    let whole = Fill::Integers { lo: -4, hi: 4 };
    let shapes = shapes
        .iter()
        .map(|s| s.iter().map(|n| *n as usize).collect());
    let shapes = shapes.enumerate();
    shapes
        .map(|(i, s): (usize, Vec<usize>)| Arc::new(fill_tensor(DType::F32, &s, whole, i as u64)))
        .collect()
}

fn run(equation: &str, shapes: &[&[i64]]) -> Arc<Tensor> {
    let model = einsum(equation, shapes).unwrap_or_else(|e| panic!("{equation}: {e}"));
    model.verify().unwrap();
    let results = evaluate(&model, &arguments(shapes), Keep::Outputs).unwrap();
    results.outputs().remove(0)
}

#[test]
fn every_form_of_a_contraction_of_two_operands() {
    for (equation, explicit, x, y) in [
        ("ab,bc->ac", "ab,bc->ac", &[2, 3][..], &[3, 4][..]),
        (
            "abcd, cbe -> aed",
            "abcd,cbe->aed",
            &[2, 3, 4, 5],
            &[4, 3, 6],
        ),
        // Without a result: the letters that occur once, in alphabetical order.
        ("cb,ba", "cb,ba->ac", &[2, 3], &[3, 4]),
        ("i,i", "i,i->", &[5], &[5]),
        ("bB,B", "bB,B->b", &[2, 3], &[3]),
        // Axes without letters.
        (
            "...ij,...jk->...ik",
            "abij,abjk->abik",
            &[2, 3, 4, 5],
            &[2, 3, 5, 6],
        ),
        (
            "i...j,...jk->k...i",
            "iabj,bjk->kabi",
            &[4, 2, 3, 5],
            &[3, 5, 6],
        ),
        ("...i,ij", "abi,ij->abj", &[2, 3, 4], &[4, 5]),
        ("...,...", "ab,b->ab", &[2, 3], &[3]),
        ("...i,...i->...", "i,i->", &[3], &[3]),
        // Letters as such mean nothing, and nor do those that `...` might take.
        ("zy...,yx->...zx", "zya,yx->azx", &[2, 3, 4], &[3, 5]),
        ("ab...,b->a...", "abc,b->ac", &[2, 3, 4], &[3]),
    ] {
        let inputs = arguments(&[x, y]);
        let contract = Op::Contract(Contract::parse(explicit).unwrap());
        let expected = apply(&contract, &[Some(&inputs[0]), Some(&inputs[1])]).unwrap();
        assert_eq!(*run(equation, &[x, y]), expected[0], "{equation}");
    }
}

#[test]
fn one_operand_is_summed_and_transposed() {
    let x = &arguments(&[&[2, 3, 4]])[0];
    let at = |i: usize, j: usize, k: usize| x.get_f64((i * 3 + j) * 4 + k);
    type Value<'a> = &'a dyn Fn(&[usize]) -> f64;
    let checks: [(&str, &[usize], Value); 5] = [
        ("ijk->kij", &[4, 2, 3], &|p| at(p[1], p[2], p[0])),
        ("ijk->ki", &[4, 2], &|p| {
            (0..3).map(|j| at(p[1], j, p[0])).sum()
        }),
        ("kji", &[4, 3, 2], &|p| at(p[2], p[1], p[0])),
        ("i...->...", &[3, 4], &|p| {
            (0..2).map(|i| at(i, p[0], p[1])).sum()
        }),
        ("i...", &[3, 4, 2], &|p| at(p[2], p[0], p[1])),
    ];
    for (equation, shape, value) in checks {
        let y = run(equation, &[&[2, 3, 4]]);
        assert_eq!(y.shape(), shape, "{equation}");
        for e in 0..y.len() {
            let mut rest = e;
            let mut index = vec![0; shape.len()];
            for d in (0..shape.len()).rev() {
                index[d] = rest % shape[d];
                rest /= shape[d];
            }
            assert_eq!(y.get_f64(e), value(&index), "{equation} at {index:?}");
        }
    }
    let sum = run("ijk->", &[&[2, 3, 4]]);
    let all: f64 = (0..24).map(|e| x.get_f64(e)).sum();
    assert_eq!((sum.shape(), sum.get_f64(0)), (&[][..], all));
}

/// The sum that an equation with these letters stands for, written out.
fn by_definition(equation: &str, shapes: &[&[i64]]) -> Vec<f64> {
    let (operands, result) = equation.split_once("->").unwrap();
    let operands: Vec<&str> = operands.split(',').collect();
    let mut size = std::collections::BTreeMap::new();
    for (letters, shape) in operands.iter().zip(shapes) {
        size.extend(letters.chars().zip(shape.iter().map(|n| *n as usize)));
    }
    let letters: Vec<char> = size.keys().copied().collect();
    let at = |letters: &str, index: &[usize], all: &[char]| {
        letters.chars().fold(0, |at, l| {
            at * size[&l] + index[all.iter().position(|a| *a == l).unwrap()]
        })
    };
    let tensors = arguments(shapes);
    let mut sums = vec![0.0; result.chars().map(|l| size[&l]).product()];
    for i in 0..letters.iter().map(|l| size[l]).product::<usize>() {
        let mut rest = i;
        let index: Vec<usize> = letters
            .iter()
            .map(|l| {
                let own = rest % size[l];
                rest /= size[l];
                own
            })
            .collect();
        let factors = operands.iter().zip(&tensors);
        let product: f64 = factors
            .map(|(l, t)| t.get_f64(at(l, &index, &letters)))
            .product();
        sums[at(result, &index, &letters)] += product;
    }
    sums
}

#[test]
fn diagonals_and_several_operands() {
    for (equation, shapes) in [
        ("ii->i", &[&[3, 3][..]][..]),
        ("ii->", &[&[3, 3]]),
        ("ibi->bi", &[&[3, 2, 3]]),
        ("iiji->j", &[&[2, 2, 4, 2]]),
        ("ii,i->i", &[&[3, 3], &[3]]),
        ("aab,bb->ab", &[&[3, 3, 2], &[2, 2]]),
        ("ab,bc,cd->ad", &[&[2, 3], &[3, 4], &[4, 5]]),
        ("ab,cb,db->acd", &[&[2, 3], &[4, 3], &[2, 3]]),
        ("a,b,c->cab", &[&[2], &[3], &[4]]),
        ("abc,b,a,c->a", &[&[2, 3, 4], &[3], &[2], &[4]]),
    ] {
        let y = run(equation, shapes);
        let y: Vec<f64> = (0..y.len()).map(|i| y.get_f64(i)).collect();
        assert_eq!(y, by_definition(equation, shapes), "{equation}");
    }
}

#[test]
fn what_is_refused() {
    for (equation, shapes, expected) in [
        (
            "ii->i",
            &[&[3, 4][..]][..],
            "letter `i` stands for axes of 3 and 4",
        ),
        (
            "ab,bc->ad",
            &[&[2, 3], &[3, 4]],
            "has letter `d`, which no operand has",
        ),
        ("ab,bc->aa", &[&[2, 3], &[3, 4]], "has letter `a` twice"),
        ("ab->aa", &[&[2, 3]], "each letter of the operand once"),
        ("ab->ac", &[&[2, 3]], "each letter of the operand once"),
        ("ab,bc->ac", &[&[2, 3]], "has 2 operands where 1 are given"),
        ("ab,bc->ac", &[&[2, 3], &[4, 5]], "`b` is 3 in"),
        (
            "abc,bc->a",
            &[&[2, 3], &[3, 4]],
            "`abc` does not fit rank 2",
        ),
        (
            "ab...c,c->a",
            &[&[2, 3], &[3]],
            "`ab...c` does not fit rank 2",
        ),
        ("a,bc->c", &[&[2, 3], &[3, 4]], "`a` does not fit rank 2"),
        (
            "a1,bc->c",
            &[&[2, 3], &[3, 4]],
            "`1` in equation `a1,bc->c` is no letter",
        ),
        ("...,...", &[&[2], &[3]], "is 2 in"),
    ] {
        let message = einsum(equation, shapes).unwrap_err().to_string();
        assert!(message.contains(expected), "{equation}: {message}");
    }
}

#[test]
fn axes_of_one_element_are_repeated() {
    let (shapes, y): ([&[i64]; 2], _) = ([&[1, 2, 3, 4], &[5, 1, 4, 2]], [5, 2, 3, 2]);
    for equation in ["...ij,...jk->...ik", "abij,abjk->abik"] {
        let given = arguments(&shapes)
            .iter()
            .map(|t| build_onnx::floats_of(t))
            .collect::<Vec<_>>();
        let result = run(equation, &shapes);
        assert_eq!(result.shape(), y);
        for (at, value) in build_onnx::floats_of(&result).iter().enumerate() {
            let [b, a, i, k] = [at / 12, at / 6 % 2, at / 2 % 3, at % 2];
            let term = |j| given[0][(a * 3 + i) * 4 + j] * given[1][(b * 4 + j) * 2 + k];
            assert_eq!(*value, (0..4).map(term).sum::<f64>());
        }
    }
    // A sum over an axis that one operand has once.
    let shapes: [&[i64]; 2] = [&[3, 2], &[3, 1]];
    let given = arguments(&shapes)
        .iter()
        .map(|t| build_onnx::floats_of(t))
        .collect::<Vec<_>>();
    let result = run("i...,i...->...", &shapes);
    let of = |c: usize| {
        (0..3)
            .map(|i| given[0][i * 2 + c] * given[1][i])
            .sum::<f64>()
    };
    assert_eq!(build_onnx::floats_of(&result), [of(0), of(1)]);
}
