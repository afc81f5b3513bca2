//! What flat code says of lanes that are not consecutive is judged: by the
//! verifier, and by the interpreter while the code runs.

use crate::hand::Hand;
use crate::judge::{judge, values};
use ir::{DType, Expr, LoopKind, Program, ProgramBuilder};
use lower::flat::interpret::{FlatError, interpret_flat};
use lower::flat::verify::verify_flat;
use lower::flat::{Code, LaneOffsets, LanePattern};

/// y[i, j] = x[i, 2 j], of 8 lanes and 34 columns.
fn strided() -> (Program, Code) {
    let mut b = ProgramBuilder::new("strided");
    let x = b.input("x", DType::F32, &[3, 34]);
    let axes = [("i", 3), ("j", 16)];
    let y = b.compute("y", &axes, |s| {
        Expr::load(x, [s[0].clone(), s[1].clone() * 2])
    });
    let raw = b.finish(&[y]);
    let mut h = Hand::of(&raw);
    let body = h.nest("i", 3, LoopKind::Serial, |h, i| {
        vec![h.nest("jo", 2, LoopKind::Serial, |h, jo| {
            vec![h.nest("ji", 8, LoopKind::Vectorized, |h, ji| {
                vec![h.block("y", &[i, jo * 8 + ji])]
            })]
        })]
    });
    let code = judge(&raw, &h.finish(vec![body]));
    (raw, code)
}

fn pattern(code: &mut Code) -> &mut LanePattern {
    let patterns = code
        .accesses
        .iter_mut()
        .filter_map(|a| match &mut a.offsets {
            LaneOffsets::Pattern(p) => Some(p),
            _ => None,
        });
    let found: Vec<&mut LanePattern> = patterns.collect();
    found.into_iter().next().expect("a pattern")
}

/// How many promises of the changed code are broken, and what running it gives.
fn changed(change: &dyn Fn(&mut LanePattern)) -> (usize, Result<(), FlatError>) {
    let (raw, mut code) = strided();
    change(pattern(&mut code));
    let ran = interpret_flat(&code, &mut values(&raw));
    (verify_flat(&code).len(), ran)
}

#[test]
fn what_is_readable_lies_in_the_buffer() {
    assert_eq!(changed(&|_| {}), (0, Ok(())));
    // 2 * 34 + 16 + 18 elements are there, 102 of them.
    let end = |end: i64| changed(&|p| p.readable = Some(0..end));
    assert_eq!(end(18).1, Ok(()));
    let (broken, ran) = end(19);
    let elements = 102;
    let outside = FlatError::OutOfBounds {
        buffer: "x".into(),
        offset: elements,
        elements,
    };
    assert_eq!((broken, ran), (1, Err(outside)));
    let (broken, ran) = changed(&|p| p.readable = Some(0..14));
    assert!(broken > 0 && matches!(ran, Err(FlatError::Malformed(_))));
}

#[test]
fn lanes_lie_where_their_pattern_says() {
    let (broken, ran) = changed(&|p| p.distances[3] += 1);
    assert!(broken > 0 && matches!(ran, Err(FlatError::Malformed(_))));
    let (broken, ran) = changed(&|p| p.base = Expr::int(0));
    assert!(broken > 0 && matches!(ran, Err(FlatError::Malformed(_))));
}
