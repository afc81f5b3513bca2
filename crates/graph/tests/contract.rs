//! Contractions: what they compute, against a direct definition, and what is refused.

use graph::ops::{Contract, Op};
use graph::reference::apply;
use std::collections::HashMap;
use tensor::{DType, Fill, Tensor, fill_tensor};

/// Small whole numbers, so that every order of summation gives the same f32.
fn whole(dtype: DType, shape: &[usize], seed: u64) -> Tensor {
    fill_tensor(dtype, shape, Fill::Integers { lo: -4, hi: 4 }, seed)
}

fn contract(equation: &str, x: &Tensor, y: &Tensor) -> Result<Tensor, String> {
    let contract = Contract::parse(equation).map_err(|e| e.to_string())?;
    assert_eq!(contract.equation(), equation);
    let results = apply(&Op::Contract(contract), &[Some(x), Some(y)]);
    results
        .map(|mut all| all.remove(0))
        .map_err(|e| e.to_string())
}

/// The position of an element whose axes have letters with these values.
fn position(letters: &[char], shape: &[usize], at: &HashMap<char, usize>) -> usize {
    letters.iter().zip(shape).fold(0, |p, (l, n)| p * n + at[l])
}

/// Every combination of all letters' values adds one product to one element.
fn by_definition(equation: &str, x: &Tensor, y: &Tensor) -> (Vec<usize>, Vec<f64>) {
    let c = Contract::parse(equation).unwrap();
    let axes = c
        .left
        .iter()
        .zip(x.shape())
        .chain(c.right.iter().zip(y.shape()));
    let extents: HashMap<char, usize> = axes.map(|(l, n)| (*l, *n)).collect();
    let shape: Vec<usize> = c.result.iter().map(|l| extents[l]).collect();
    let mut sums = vec![0.0; shape.iter().product()];
    let letters = c.letters();
    let count: usize = letters.iter().map(|l| extents[l]).product();
    for mut index in 0..count {
        let mut at = HashMap::new();
        for l in &letters {
            at.insert(*l, index % extents[l]);
            index /= extents[l];
        }
        let left = x.get_f64(position(&c.left, x.shape(), &at));
        let right = y.get_f64(position(&c.right, y.shape(), &at));
        sums[position(&c.result, &shape, &at)] += left * right;
    }
    (shape, sums)
}

#[test]
fn sums_are_those_of_the_definition() {
    for (equation, x, y) in [
        ("mk,kn->mn", &[3, 5][..], &[5, 4][..]),
        ("km,nk->nm", &[5, 3], &[4, 5]),
        ("abcd,cbe->aed", &[2, 3, 4, 5], &[4, 3, 6]),
        ("bhid,bhjd->bhij", &[2, 3, 4, 5], &[2, 3, 6, 5]),
        ("nchw,ncuv->nhwuv", &[2, 3, 2, 4], &[2, 3, 3, 2]),
        ("i,i->", &[7], &[7]),
        ("i,j->ji", &[3], &[4]),
        ("ij,ij->ij", &[3, 4], &[3, 4]),
        // Letters of one operand alone, summed over; operands without axes.
        ("ij,k->i", &[3, 4], &[5]),
        (",ab->ba", &[], &[2, 3]),
        (",->", &[], &[]),
        ("aB,Bb->ab", &[2, 3], &[3, 4]),
    ] {
        for dtype in [DType::F32, DType::F64, DType::I32] {
            let (x, y) = (whole(dtype, x, 1), whole(dtype, y, 2));
            let (shape, sums) = by_definition(equation, &x, &y);
            let result = contract(equation, &x, &y).unwrap();
            assert_eq!(result.dtype(), dtype, "{equation}");
            assert_eq!(result.shape(), shape, "{equation}");
            let values: Vec<f64> = (0..result.len()).map(|i| result.get_f64(i)).collect();
            assert_eq!(values, sums, "{equation} of {dtype}");
        }
    }
}

#[test]
fn sums_over_nothing_are_zero() {
    let (x, y) = (
        Tensor::zeros(DType::F32, &[2, 0]),
        Tensor::zeros(DType::F32, &[0, 3]),
    );
    let result = contract("ik,kj->ij", &x, &y).unwrap();
    assert_eq!(result.as_slice::<f32>(), [0.0; 6]);
}

#[test]
fn refusals_name_the_letter() {
    let of = |shape: &[usize]| Tensor::zeros(DType::F32, shape);
    for (equation, x, y, expected) in [
        (
            "ij,jk",
            &[2, 3][..],
            &[3, 4][..],
            "is not LEFT,RIGHT->RESULT",
        ),
        ("ij->ji", &[2, 3], &[3, 4], "is not LEFT,RIGHT->RESULT"),
        (
            "ii,ij->j",
            &[2, 2],
            &[2, 3],
            "the left operand of ii,ij->j has letter `i` twice",
        ),
        (
            "ij,jj->i",
            &[2, 2],
            &[2, 2],
            "the right operand of ij,jj->i has letter `j` twice",
        ),
        (
            "ij,jk->kk",
            &[2, 2],
            &[2, 2],
            "the result of ij,jk->kk has letter `k` twice",
        ),
        (
            "ij,jk->iz",
            &[2, 2],
            &[2, 2],
            "has letter `z`, which no operand has",
        ),
        (
            "i1,1k->ik",
            &[2, 2],
            &[2, 2],
            "`1` in i1,1k->ik is no letter",
        ),
        (
            "ij,j,k->ik",
            &[2, 2],
            &[2, 2],
            "`,` in ij,j,k->ik is no letter",
        ),
        (
            "ij,jk->ik",
            &[2, 3],
            &[4, 5],
            "`j` is 3 in f32[2,3] and 4 in f32[4,5]",
        ),
        (
            "ijk,k->ij",
            &[2, 3],
            &[4],
            "f32[2,3] does not have the axes `ijk`",
        ),
    ] {
        let message = contract(equation, &of(x), &of(y)).unwrap_err();
        assert!(message.contains(expected), "{equation}: {message}");
    }
    let bools = Tensor::zeros(DType::Bool, &[2]);
    let message = contract("i,i->", &bools, &bools).unwrap_err();
    assert!(message.contains("is not defined on bool"), "{message}");
    let message = contract("i,i->", &of(&[2]), &Tensor::zeros(DType::F64, &[2])).unwrap_err();
    assert!(message.contains("of one type"), "{message}");
}
