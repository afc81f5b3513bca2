//! Candidates whose loops move much data are slow.

use super::{Filter, Verdict};
use crate::trial::{Form, Trial};
use analysis::Score;
use search::Context;

/// Of the candidates of a batch, keeps the half whose loops cost least, by the cache lines that they
/// move and the threads that they wake ([`analysis::loops`]). Reading the loops takes a tenth of
/// what building takes. They tell nothing of instructions, so the best candidates of operators that
/// compute much and move little may be dropped.
#[derive(Debug, Default)]
pub struct Loops;

/// Positions of the half with the least costs, the larger half of an odd number. Of equal costs
/// the first ones.
fn better_half(costs: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..costs.len()).collect();
    order.sort_by(|a, b| costs[*a].total_cmp(&costs[*b]));
    order.truncate(costs.len().div_ceil(2));
    order
}

impl Loops {
    pub const NAME: &str = "loops";
}

impl Filter for Loops {
    fn name(&self) -> &'static str {
        Loops::NAME
    }

    fn form(&self) -> Form {
        Form::Schedule
    }

    fn judge(&mut self, context: &Context<'_>, trials: &[Trial]) -> Vec<Verdict> {
        // Candidates of a recorded table have no loops.
        let (Some(program), Some(target)) = (context.program, context.target) else {
            return vec![Verdict::Keep { score: 0.0 }; trials.len()];
        };
        let cost = |t: &Trial| {
            let candidate = t.candidate.as_ref()?;
            let read = build::read_loops(program, &candidate.trace, target);
            Some(Score::USUAL.cycles(&read.ok()?))
        };
        // What cannot be lowered cannot be built.
        let costs = trials.iter().map(|t| cost(t).unwrap_or(f64::INFINITY));
        let costs: Vec<f64> = costs.collect();
        let why = |cost: &f64| Verdict::Drop {
            why: format!("its loops cost {cost:.3e}, more than half of its batch"),
        };
        let mut verdicts: Vec<Verdict> = costs.iter().map(why).collect();
        for kept in better_half(&costs) {
            verdicts[kept] = Verdict::Keep { score: costs[kept] };
        }
        verdicts
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::trial;
    use super::*;
    use ir::{DType, Expr, Isa, Program, ProgramBuilder, Reducer, Target};
    use search::{Accuracy, Candidate, space};

    /// Rows of B are no power of two apart, so that a tile of them has all sets of a cache.
    fn product() -> Program {
        let mut b = ProgramBuilder::new("product");
        let x = b.input("A", DType::F32, &[512, 512]);
        let w = b.input("B", DType::F32, &[512, 520]);
        let axes = [("m", 512), ("n", 520)];
        let main = b.reduce("main", &axes, &[("k", 512)], Reducer::Sum, |o, t| {
            let a = Expr::load(x, [o[0].clone(), t[0].clone()]);
            a * Expr::load(w, [t[0].clone(), o[1].clone()])
        });
        b.finish(&[main])
    }

    fn scheduled(number: u64, steps: &str) -> Trial {
        let trace = schedule::parse(steps).expect("a trace");
        Trial {
            candidate: Some(Candidate {
                algorithm: "test".into(),
                trace,
            }),
            ..trial(number, [0, 0])
        }
    }

    #[test]
    fn the_half_that_moves_less_is_kept_in_its_order() {
        let program = product();
        let target = Target::generic(Isa::X86Avx2);
        let space = space(&program, &target, Accuracy::Strict);
        let context = Context {
            program: Some(&program),
            target: Some(&target),
            ..super::super::tests::context(&space)
        };
        let trials = [
            // Columns of B, one after the other.
            scheduled(0, ""),
            // Rows of B.
            scheduled(1, "reorder main.k main.n"),
            // There is no such loop.
            scheduled(2, "split main.z [8, 64]"),
            // Rows of B, 65 columns at a time, which stay in the cache.
            scheduled(
                3,
                "split main.n [8, 65]\nreorder main.n.0 main.m main.k main.n.1",
            ),
        ];
        let verdicts = Loops.judge(&context, &trials);
        let cost = |v: &Verdict| match v {
            Verdict::Keep { score } => Some(*score),
            Verdict::Drop { .. } => None,
        };
        let costs: Vec<Option<f64>> = verdicts.iter().map(cost).collect();
        let [None, Some(rows), None, Some(tiles)] = costs[..] else {
            panic!("{costs:?}");
        };
        assert!(0.0 < tiles && tiles < rows, "{costs:?}");
    }

    #[test]
    fn the_larger_half_of_an_odd_number_is_kept() {
        assert_eq!(better_half(&[3.0, 1.0, 2.0]), [1, 2]);
        assert_eq!(better_half(&[1.0, 1.0]), [0]);
        assert_eq!(better_half(&[5.0]), [0]);
        assert!(better_half(&[]).is_empty());
    }

    #[test]
    fn candidates_of_a_table_are_kept() {
        let space = super::super::tests::space();
        let context = super::super::tests::context(&space);
        let trials = [trial(0, [1, 2]), trial(1, [3, 4])];
        let verdicts = Loops.judge(&context, &trials);
        assert_eq!(verdicts, vec![Verdict::Keep { score: 0.0 }; 2]);
    }
}
