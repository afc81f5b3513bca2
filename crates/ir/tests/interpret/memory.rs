//! What may be read and written when: undefined elements and races.

use crate::{MATMUL, f32s, matmul, matmul_inputs, output, outputs, set_kind};
use ir::interpret::{Action, Checks, InterpretError, run, run_with};
use ir::{Axis, BinaryOp, DType, Expr, ExprKind, LoopKind, Node, Program, ProgramBuilder, Role};
use tensor::Tensor;

/// `X[i] + 1` by way of an intermediate `T`, both in one loop `i` if `fused`.
fn two_blocks(fused: bool) -> Program {
    let mut b = ProgramBuilder::new("two");
    let x = b.input("X", DType::F32, &[4]);
    let t = b.compute("T", &[("i", 4)], |s| Expr::load(x, s.to_vec()));
    let y = b.compute("Y", &[("i", 4)], |s| {
        Expr::load(t, s.to_vec()) + Expr::f32(1.)
    });
    let mut p = b.finish(&[y]);
    if fused {
        let (outer, inner) = (p.loop_named("T.i").unwrap(), p.loop_named("Y.i").unwrap());
        let moved = p.block_named("Y").unwrap();
        let var = p.loop_(outer).var;
        p.block_mut(moved).iters[0].binding = Expr::var(var);
        p.children_mut(Some(outer)).push(Node::Block(moved));
        p.body.retain(|n| *n != Node::Loop(inner));
    }
    p
}

fn ramp() -> [Tensor; 1] {
    [f32s(&[4], &[1., 2., 3., 4.])]
}

/// Makes block `Y` of `two_blocks` load `T` at another index.
fn load_at(p: &mut Program, index: impl Fn(Expr) -> Expr) {
    let block = p.block_named("Y").unwrap();
    p.block_mut(block).map_statement(|e| {
        e.rewrite(&mut |e| match e.kind() {
            ExprKind::Load(b, i) => Some(Expr::load(*b, [index(i[0].clone())])),
            _ => None,
        })
    });
}

#[test]
fn intermediates_pass_values() {
    for fused in [false, true] {
        assert_eq!(output::<f32>(&two_blocks(fused), &ramp()), [2., 3., 4., 5.]);
    }
}

#[test]
fn reading_what_nothing_wrote_is_an_error() {
    let undefined = |index: i64| InterpretError::Undefined {
        place: "block `Y`".into(),
        buffer: "T".into(),
        indices: vec![index],
    };
    let mut p = two_blocks(false);
    p.body.reverse();
    assert_eq!(outputs(&p, &ramp()), Err(undefined(0)));
    // A producer that leaves an element out.
    let mut p = two_blocks(false);
    let block = p.block_named("T").unwrap();
    let l = p.loop_named("T.i").unwrap();
    let var = p.loop_(l).var;
    p.block_mut(block).predicate = Some(Expr::binary(BinaryOp::Ne, Expr::var(var), Expr::int(2)));
    assert_eq!(outputs(&p, &ramp()), Err(undefined(2)));
    // Elements of the last iteration are gone: T lives inside the loop.
    let mut p = two_blocks(true);
    load_at(&mut p, |i| (i - 1).max(0));
    assert_eq!(outputs(&p, &ramp()), Err(undefined(0)));
}

#[test]
fn outputs_are_undefined_until_written() {
    let mut p = two_blocks(false);
    let t = p.buffer_named("T").unwrap();
    p.buffer_mut(t).role = Role::Output;
    p.params.push(t);
    let mut args = [
        ramp()[0].clone(),
        f32s(&[4], &[0.; 4]),
        f32s(&[4], &[9.; 4]),
    ];
    run(&p, &mut args).unwrap();
    assert_eq!(args[1].as_slice::<f32>(), [2., 3., 4., 5.]);
    assert_eq!(args[2].as_slice::<f32>(), [1., 2., 3., 4.]);
    p.body.reverse();
    assert!(matches!(
        run(&p, &mut args),
        Err(InterpretError::Undefined { .. })
    ));
}

#[test]
fn elements_of_outputs_that_nothing_writes_stay() {
    let mut p = two_blocks(false);
    let block = p.block_named("Y").unwrap();
    let l = p.loop_named("Y.i").unwrap();
    let var = p.loop_(l).var;
    p.block_mut(block).predicate = Some(Expr::var(var).lt(2));
    // Bit by bit, even a signalling NaN.
    let odd = f32::from_bits(0x7f80_0001);
    let mut args = [ramp()[0].clone(), f32s(&[4], &[9., 9., 9., odd])];
    run(&p, &mut args).unwrap();
    assert_eq!(args[1].as_slice::<f32>()[..3], [2., 3., 9.]);
    assert_eq!(args[1].bytes()[12..], 0x7f80_0001u32.to_le_bytes());
}

const CONCURRENT: [LoopKind; 3] = [
    LoopKind::Parallel,
    LoopKind::Vectorized,
    LoopKind::Bound(Axis::ThreadX),
];

fn race(p: &Program, inputs: &[Tensor]) -> (String, Action, Action, Vec<i64>) {
    match outputs(p, inputs) {
        Err(InterpretError::Race {
            name,
            access,
            earlier,
            indices,
            ..
        }) => (name, access, earlier, indices),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_reduction_may_not_run_together() {
    for kind in CONCURRENT {
        let mut p = matmul(2, 2, 3);
        set_kind(&mut p, "C.k", kind);
        let found = race(&p, &matmul_inputs());
        assert_eq!(
            found,
            ("C.k".into(), Action::Read, Action::Write, vec![0, 0])
        );
        let mut args = matmul_inputs().to_vec();
        args.push(Tensor::zeros(DType::F32, &[2, 2]));
        let options = Checks { check_races: false };
        run_with(&p, &mut args, options).unwrap();
        assert_eq!(args[2].as_slice::<f32>(), MATMUL);
    }
    for kind in [LoopKind::Serial, LoopKind::Unrolled] {
        let mut p = matmul(2, 2, 3);
        set_kind(&mut p, "C.k", kind);
        assert_eq!(output::<f32>(&p, &matmul_inputs()), MATMUL);
    }
}

#[test]
fn spatial_loops_may_run_together() {
    let mut p = matmul(2, 2, 3);
    set_kind(&mut p, "C.i", LoopKind::Bound(Axis::BlockX));
    set_kind(&mut p, "C.j", LoopKind::Bound(Axis::ThreadX));
    assert_eq!(output::<f32>(&p, &matmul_inputs()), MATMUL);
    // With the serial reduction between them.
    let [j, k] = ["C.j", "C.k"].map(|n| p.loop_named(n).unwrap());
    let i = p.loop_named("C.i").unwrap();
    let block = p.block_named("C").unwrap();
    *p.children_mut(Some(i)) = vec![Node::Loop(k)];
    *p.children_mut(Some(k)) = vec![Node::Loop(j)];
    *p.children_mut(Some(j)) = vec![Node::Block(block)];
    assert_eq!(output::<f32>(&p, &matmul_inputs()), MATMUL);
    // With the reduction round both: each step begins after the last.
    *p.children_mut(Some(i)) = vec![Node::Loop(j)];
    *p.children_mut(Some(j)) = vec![Node::Block(block)];
    *p.children_mut(Some(k)) = vec![Node::Loop(i)];
    p.body = vec![Node::Loop(k)];
    assert_eq!(output::<f32>(&p, &matmul_inputs()), MATMUL);
}

#[test]
fn a_race_of_an_outer_loop_shows_through_an_inner_one() {
    let mut p = matmul(2, 2, 3);
    let [i, j, k] = ["C.i", "C.j", "C.k"].map(|n| p.loop_named(n).unwrap());
    let block = p.block_named("C").unwrap();
    p.body = vec![Node::Loop(k)];
    *p.children_mut(Some(k)) = vec![Node::Loop(i)];
    *p.children_mut(Some(i)) = vec![Node::Loop(j)];
    *p.children_mut(Some(j)) = vec![Node::Block(block)];
    set_kind(&mut p, "C.k", LoopKind::Parallel);
    set_kind(&mut p, "C.j", LoopKind::Vectorized);
    let found = race(&p, &matmul_inputs());
    assert_eq!(
        found,
        ("C.k".into(), Action::Read, Action::Write, vec![0, 0])
    );
}

#[test]
fn iterations_may_not_write_one_element() {
    for kind in CONCURRENT {
        let mut p = two_blocks(false);
        let block = p.block_named("T").unwrap();
        let l = p.loop_named("T.i").unwrap();
        let var = p.loop_(l).var;
        p.block_mut(block).iters[0].binding = Expr::var(var).floor_div(2);
        set_kind(&mut p, "T.i", kind);
        let found = race(&p, &ramp());
        assert_eq!(found, ("T.i".into(), Action::Write, Action::Write, vec![0]));
    }
}

/// Serial loop `r` of two rounds around `two_blocks(true)`; `T` is made an
/// output, so that it is allocated outside all loops.
fn shared_rounds(kind: LoopKind) -> Program {
    let mut p = two_blocks(true);
    let t = p.buffer_named("T").unwrap();
    p.buffer_mut(t).role = Role::Output;
    p.params.push(t);
    let l = p.loop_named("T.i").unwrap();
    let rounds = p.new_loop("r", 2, vec![Node::Loop(l)]);
    p.body = vec![Node::Loop(rounds)];
    set_kind(&mut p, "T.i", kind);
    p
}

#[test]
fn iterations_may_not_read_what_another_wrote() {
    for kind in CONCURRENT {
        let mut p = shared_rounds(kind);
        assert_eq!(output::<f32>(&p, &ramp()), [2., 3., 4., 5.]);
        load_at(&mut p, |i| (i - 1).max(0));
        let found = race(&p, &ramp());
        assert_eq!(found, ("T.i".into(), Action::Read, Action::Write, vec![0]));
    }
}

#[test]
fn iterations_may_not_write_what_another_read() {
    for kind in CONCURRENT {
        // All of T is written first; then Y reads the next element before the
        // next iteration writes it.
        let mut p = shared_rounds(kind);
        let fill = {
            let mut fill = p.block(p.block_named("T").unwrap()).clone();
            fill.name = "fill".into();
            let l = p.new_loop("fill.i", 4, vec![]);
            fill.iters[0].binding = Expr::var(p.loop_(l).var);
            let fill = p.add_block(fill);
            p.children_mut(Some(l)).push(Node::Block(fill));
            l
        };
        p.body.insert(0, Node::Loop(fill));
        assert_eq!(output::<f32>(&p, &ramp()), [2., 3., 4., 5.]);
        load_at(&mut p, |i| (i + 1).min(3));
        let found = race(&p, &ramp());
        assert_eq!(found, ("T.i".into(), Action::Write, Action::Read, vec![1]));
    }
}

#[test]
fn reads_of_several_iterations_are_remembered() {
    // Iterations 0 and 1 both read T[1]; then iteration 1 writes it.
    let mut p = shared_rounds(LoopKind::Parallel);
    let l = p.loop_named("T.i").unwrap();
    p.children_mut(Some(l)).reverse();
    let fill = {
        let mut fill = p.block(p.block_named("T").unwrap()).clone();
        fill.name = "fill".into();
        let l = p.new_loop("fill.i", 4, vec![]);
        fill.iters[0].binding = Expr::var(p.loop_(l).var);
        let fill = p.add_block(fill);
        p.children_mut(Some(l)).push(Node::Block(fill));
        l
    };
    p.body.insert(0, Node::Loop(fill));
    load_at(&mut p, |i| i.max(1));
    let found = race(&p, &ramp());
    assert_eq!(found, ("T.i".into(), Action::Write, Action::Read, vec![1]));
}

#[test]
fn accumulators_outlive_their_reduction_though_nothing_reads_them() {
    let mut b = ProgramBuilder::new("dead");
    let x = b.input("X", DType::F32, &[4]);
    b.reduce("T", &[("i", 2)], &[("k", 4)], ir::Reducer::Sum, |_, r| {
        Expr::load(x, r.to_vec())
    });
    let y = b.compute("Y", &[("i", 4)], |s| Expr::load(x, s.to_vec()));
    let p = b.finish(&[y]);
    let t = p.buffer_named("T").unwrap();
    assert_eq!(p.usage()[t.index()].site, p.loop_named("T.i"));
    assert_eq!(output::<f32>(&p, &ramp()), [1., 2., 3., 4.]);
}

#[test]
fn no_read_is_forgotten_under_nested_loops() {
    // Iteration 0 of `i` reads T, so do all of `j` in iteration 1, which then
    // writes it: in order after its own reads, but not after iteration 0's.
    let text = |kind: &str| {
        format!(
            "program nested {{
               input X: f32[2]
               output Y: f32[2, 3]
               intermediate T: f32[1]
               block fill [] {{
                 T[0] = X[0]
               }}
               for i in 0..2 {kind} {{
                 for j in 0..3 vectorized {{
                   block Y [i: spatial 2 = i, j: spatial 3 = j] {{
                     Y[i, j] = T[0]
                   }}
                 }}
                 block T [i: spatial 2 = i] where (0 < i) {{
                   T[0] = X[i]
                 }}
               }}
             }}"
        )
    };
    let inputs = [f32s(&[2], &[1., 2.])];
    let serial = ir::text::parse(&text("")).unwrap();
    assert_eq!(output::<f32>(&serial, &inputs), [1.; 6]);
    let parallel = ir::text::parse(&text("parallel")).unwrap();
    let found = race(&parallel, &inputs);
    assert_eq!(found, ("i".into(), Action::Write, Action::Read, vec![0]));
}

#[test]
fn private_buffers_do_not_race() {
    for kind in CONCURRENT {
        let mut p = two_blocks(true);
        // Every iteration uses element 0 of its own T.
        let block = p.block_named("T").unwrap();
        p.block_mut(block).writes[0].indices = vec![Expr::int(0)];
        load_at(&mut p, |_| Expr::int(0));
        set_kind(&mut p, "T.i", kind);
        assert_eq!(output::<f32>(&p, &ramp()), [2., 3., 4., 5.]);
    }
}
