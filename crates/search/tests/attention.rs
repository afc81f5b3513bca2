//! Attention is one kernel where its scores leave the caches, with the sketch
//! *attention*: its points are legal and keep the meaning of the operators, for sizes
//! that no tile divides, keys in both orders, masks, and rows that are masked whole. So
//! are those of *attention.tiles*, whose products are of bf16.

use graph::ops::{Binary, Op, Softmax, Transpose};
use graph::{Keep, Model, Narrowed, Requantised, ValueId, evaluate, products_of_bf16};
use ir::{HalfDot, Isa, Program, Target, TileDot};
use plan::{LayoutPolicy, Plan, plan};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use search::{Accuracy, Point, Space, space};
use std::sync::Arc;
use tensor::{DType, Fill, Tensor, compare, fill_tensor};

const POINTS: usize = 2;
const FILL: Fill = Fill::Uniform { lo: -2.0, hi: 2.0 };
const TOLERANCE: f64 = 1e-5;
/// Of factors rounded to bf16, and of weights rounded to the neighbouring number.
const TOLERANCE_OF_BF16: f64 = 2e-2;
const TOLERANCE_OF_WEIGHTS: f64 = 3e-3;

#[derive(Clone, Copy, Debug)]
struct Attention {
    /// Batch, heads, rows, columns of the scores, terms of the scores, columns.
    size: [usize; 6],
    transposed: bool,
    scaled: bool,
    masked: bool,
}

impl Attention {
    fn model(&self) -> Model {
        let [b, h, m, n, k, d] = self.size;
        let mut model = Model::new("attention", 0);
        let mut input = |name: &str, shape: [usize; 4]| model.add_input(name, DType::F32, &shape);
        let q = input("q", [b, h, m, k]);
        let keys = match self.transposed {
            true => input("k", [b, h, n, k]),
            false => input("k", [b, h, k, n]),
        };
        let v = input("v", [b, h, n, d]);
        let perm = vec![0, 1, 3, 2];
        let keys = match self.transposed {
            true => model
                .add("kt", Op::Transpose(Transpose { perm }), &[keys])
                .unwrap(),
            false => keys,
        };
        let mut x = model.add("scores", Op::MatMul, &[q, keys]).unwrap();
        let mut follow = |x: &mut ValueId, op, operand: Tensor| {
            let operand = model.add_constant("operand", operand);
            *x = model.add("follow", Op::Binary(op), &[*x, operand]).unwrap();
        };
        if self.scaled {
            follow(&mut x, Binary::Div, Tensor::from_slice(&[], &[1.7f32]));
        }
        if self.masked {
            // The first row is masked whole, the others behind the diagonal.
            let hidden = |i: usize| i / n == 0 || i % n > i / n;
            let mask = (0..m * n).map(|i| if hidden(i) { f32::NEG_INFINITY } else { 0.0 });
            let mask: Vec<f32> = mask.collect();
            follow(
                &mut x,
                Binary::Add,
                Tensor::from_slice(&[1, 1, m, n], &mask),
            );
        }
        let softmax = Op::Softmax(Softmax { axis: 3 });
        let weights = model.add("weights", softmax, &[x]).unwrap();
        let y = model.add("mix", Op::MatMul, &[weights, v]).unwrap();
        model.add_output(y);
        model
    }
}

const CASES: [([usize; 6], [bool; 3]); 6] = [
    ([1, 2, 9, 37, 5, 16], [true, true, false]),
    ([2, 1, 17, 33, 7, 13], [true, true, true]),
    ([1, 1, 7, 16, 4, 32], [false, false, false]),
    ([1, 3, 13, 19, 3, 5], [false, true, true]),
    ([1, 2, 24, 64, 8, 16], [true, false, false]),
    ([1, 1, 1, 40, 8, 16], [true, true, false]),
];

const CASES_IN_TILES: [([usize; 6], [bool; 3]); 5] = [
    ([1, 2, 9, 37, 16, 16], [true, true, false]),
    ([2, 1, 17, 33, 32, 13], [true, true, true]),
    ([1, 1, 70, 64, 64, 32], [false, false, false]),
    ([1, 3, 13, 19, 18, 5], [false, true, true]),
    ([1, 1, 35, 100, 48, 40], [true, false, false]),
];

fn cases() -> impl Iterator<Item = Attention> {
    of(&CASES)
}

fn of(cases: &[([usize; 6], [bool; 3])]) -> impl Iterator<Item = Attention> {
    cases
        .iter()
        .copied()
        .map(|(size, [transposed, scaled, masked])| Attention {
            size,
            transposed,
            scaled,
            masked,
        })
}

/// A target whose second-level cache holds that many bytes.
fn target(isa: Isa, threads: u32, l2_bytes: u64) -> Target {
    let Target::Cpu(mut target) = Target::generic(isa).with_threads(threads);
    target.l2_bytes = l2_bytes;
    Target::Cpu(target)
}

fn with_tiles(threads: u32) -> Target {
    let Target::Cpu(mut target) = target(TileDot::Amx.isa(), threads, 1 << 21);
    target.half_dot = Some(HalfDot::Avx512Bf16);
    target.tile_dot = Some(TileDot::Amx);
    Target::Cpu(target)
}

fn narrowed(model: &Model) -> Model {
    products_of_bf16(model, Requantised::Folded, Narrowed::All)
}

fn planned(model: &Model, target: &Target) -> Plan {
    plan(model, target, &LayoutPolicy::Plain.into()).unwrap()
}

fn filled(shape: &[usize], seed: u64) -> Tensor {
    fill_tensor(DType::F32, shape, FILL, seed)
}

fn output(program: &Program, constants: &[Tensor]) -> Tensor {
    let mut constants = constants.iter();
    let argument = |(seed, b): (usize, &ir::BufferId)| {
        let buffer = program.buffer(*b);
        let shape: Vec<usize> = buffer.shape.iter().map(|n| *n as usize).collect();
        match buffer.role {
            ir::Role::Constant => constants.next().expect("a mask").clone().reshaped(&shape),
            _ => fill_tensor(buffer.dtype, &shape, FILL, seed as u64 + 1),
        }
    };
    let mut args: Vec<Tensor> = program.params.iter().enumerate().map(argument).collect();
    ir::interpret::run(program, &mut args).unwrap_or_else(|e| panic!("{e}"));
    args.pop().expect("an output")
}

#[test]
fn one_kernel_computes_what_the_operators_do() {
    let plain = cases().map(|c| (c, planned(&c.model(), &target(Isa::X86Avx512, 1, 16))));
    let tiled = of(&CASES_IN_TILES);
    let tiled = tiled.map(|c| (c, planned(&narrowed(&c.model()), &with_tiles(1))));
    let all = plain.map(|c| (c, TOLERANCE));
    for ((case, plan), tolerance) in all.chain(tiled.map(|c| (c, TOLERANCE_OF_BF16))) {
        let model = case.model();
        let kinds = plan.tasks.iter().map(|t| t.op.as_str());
        // Inputs of f32 are rounded first.
        let kinds: Vec<&str> = kinds.filter(|k| *k != "elementwise").collect();
        assert_eq!(kinds, ["attention"], "{case:?}");
        let inputs = model.inputs().iter().enumerate();
        let inputs: Vec<Tensor> = inputs
            .map(|(i, v)| filled(model[*v].shape(), i as u64))
            .collect();
        let actual = plan.interpret(&inputs).unwrap().remove(0);
        let inputs: Vec<_> = inputs.into_iter().map(Arc::new).collect();
        let expected = evaluate(&model, &inputs, Keep::Outputs).unwrap().outputs();
        let difference = compare(&actual, &expected[0]);
        assert!(difference.within(tolerance), "{case:?}: {difference:?}");
        assert_eq!(case.masked, actual.get_f64(0).is_nan());
    }
}

#[test]
fn scores_that_fit_the_caches_have_kernels_of_their_own() {
    let model = cases().next().expect("a case").model();
    let plan = planned(&model, &target(Isa::X86Avx512, 1, 1 << 20));
    let kinds: Vec<&str> = plan.tasks.iter().map(|t| t.op.as_str()).collect();
    assert_eq!(kinds, ["batch_matmul", "softmax", "batch_matmul"]);
}

#[test]
fn weights_that_others_read_are_stored() {
    let mut model = cases().next().expect("a case").model();
    let weights = model.nodes().find(|(_, n)| n.name == "weights");
    let weights = weights.expect("a softmax").1.output();
    model.add_output(weights);
    let plan = planned(&model, &target(Isa::X86Avx512, 1, 16));
    assert!(plan.tasks.iter().all(|t| t.op != "attention"));
}

#[test]
fn points_keep_the_meaning_of_the_program() {
    for case in cases().filter(|c| c.size[2] > 1) {
        for (isa, threads) in Isa::ALL.into_iter().flat_map(|i| [(i, 1), (i, 2)]) {
            let target = target(isa, threads, 16);
            case.check_points(&case.model(), &target, ("attention", TOLERANCE));
        }
    }
    for case in of(&CASES_IN_TILES) {
        let model = narrowed(&case.model());
        for threads in [1, 2] {
            let of = ("attention.tiles", TOLERANCE_OF_WEIGHTS);
            case.check_points(&model, &with_tiles(threads), of);
        }
    }
}

impl Attention {
    /// Points of one sketch, against the program before it.
    fn check_points(&self, model: &Model, target: &Target, (sketch, tolerance): (&str, f64)) {
        let plan = planned(model, target);
        let constants = plan.constants().into_iter().flatten();
        let constants: Vec<Tensor> = constants.map(|t| Tensor::clone(&t)).collect();
        let mut tasks = plan.tasks.iter();
        let task = tasks.find(|t| t.op == "attention");
        let program = &task.unwrap_or_else(|| panic!("{self:?}")).program;
        let found = space(program, target, Accuracy::Strict);
        let refused = &found.refused;
        assert!(refused.is_empty(), "{self:?} {target}: {refused:?}");
        let own = found.sketches.into_iter().find(|s| s.name == sketch);
        let own = Space::of(vec![own.unwrap_or_else(|| panic!("{self:?} {target}"))]);
        let expected = output(program, &constants);
        let mut rng = Pcg64Mcg::seed_from_u64(self.size[3] as u64);
        let random: Vec<Point> = (0..POINTS).map(|_| own.sample(&mut rng)).collect();
        for point in [vec![own.default_point()], random].concat() {
            let candidate = own.candidate(program, &point);
            let candidate = candidate.unwrap_or_else(|why| panic!("{self:?}: {why}"));
            let scheduled = schedule::replay(program, &candidate.trace)
                .unwrap_or_else(|e| panic!("{self:?} {target}: {e}"));
            let difference = compare(&output(&scheduled, &constants), &expected);
            assert!(difference.within(tolerance), "{self:?}: {difference:?}");
        }
    }
}
