//! Sums of products of bytes become the bytes that `Requantised::Defined` promises.

mod products;

use graph::ops::Op;
use graph::{Keep, Requantised, evaluate, simplify_as};

#[test]
fn sums_of_products_are_requantised_as_promised() {
    let mut folded_apart = 0;
    for case in products::cases() {
        let apart = |how| {
            let m = simplify_as(&case.model, how);
            let integer = |op: &Op| matches!(op, Op::ConvInteger(_) | Op::MatMulInteger);
            assert!(m.nodes().any(|(_, n)| integer(&n.op)), "{}", case.what);
            let input = [case.input.clone()];
            let y = evaluate(&m, &input, Keep::Outputs).unwrap().outputs();
            assert_eq!(y[0].len(), case.expected.len());
            let found = (0..y[0].len()).map(|i| y[0].get_i64(i) as i32);
            let pairs: Vec<_> = found.zip(case.expected.iter().copied()).collect();
            assert!(
                pairs.iter().all(|(y, want)| (y - want).abs() <= 1),
                "{}",
                case.what
            );
            pairs.iter().filter(|(y, want)| y != want).count()
        };
        assert_eq!(apart(Requantised::Defined), 0, "{}", case.what);
        folded_apart += apart(Requantised::Folded);
    }
    // Else the cases would not tell the two apart.
    assert!(folded_apart > 0);
}
