//! What programs compute, and which are refused.

use crate::{MATMUL, f32s, matmul, matmul_inputs, output, outputs};
use ir::interpret::{InterpretError, run};
use ir::{
    Block, Buffer, BufferId, DType, Expr, Iter, IterKind, Node, Program, ProgramBuilder, Reducer,
    Reduction, Role, Scope, TensorOp, UnaryOp, VarId, View, Write,
};
use tensor::Tensor;

#[test]
fn matmul_by_hand() {
    assert_eq!(output::<f32>(&matmul(2, 2, 3), &matmul_inputs()), MATMUL);
}

#[test]
fn convolution_with_padding() {
    let mut b = ProgramBuilder::new("conv");
    let x = b.input("X", DType::F32, &[3, 3]);
    let w = b.constant("W", DType::F32, &[3, 3]);
    let y = b.reduce(
        "Y",
        &[("h", 3), ("w", 3)],
        &[("kh", 3), ("kw", 3)],
        Reducer::Sum,
        |s, r| {
            let row = &s[0] + &r[0] - 1;
            let column = &s[1] + &r[1] - 1;
            let inside = |i: &Expr| Expr::int(0).le(i).and(i.clone().lt(3));
            let load = Expr::load(x, [row.clone(), column.clone()]);
            Expr::select(inside(&row).and(inside(&column)), load, Expr::f32(0.))
                * Expr::load(w, r.to_vec())
        },
    );
    let p = b.finish(&[y]);
    let x = f32s(&[3, 3], &[1., 2., 3., 4., 5., 6., 7., 8., 9.]);
    let ones = f32s(&[3, 3], &[1.; 9]);
    let sums = [12., 21., 16., 27., 45., 33., 24., 39., 28.];
    assert_eq!(output::<f32>(&p, &[x.clone(), ones]), sums);
    // A kernel of one tap takes the element to the lower right.
    let tap = f32s(&[3, 3], &[0., 0., 0., 0., 0., 0., 0., 0., 1.]);
    let shifted = [5., 6., 0., 8., 9., 0., 0., 0., 0.];
    assert_eq!(output::<f32>(&p, &[x, tap]), shifted);
}

#[test]
fn argmax_of_rows_takes_the_first() {
    let mut b = ProgramBuilder::new("argmax");
    let x = b.input("X", DType::F32, &[2, 4]);
    let value = |i| Expr::arg(i, DType::F32);
    let index = |i| Expr::arg(i, DType::I64);
    let greater = value(0).lt(value(2));
    let reducer = Reducer::Tuple {
        combine: vec![
            Expr::select(greater.clone(), value(2), value(0)),
            Expr::select(greater, index(3), index(1)),
        ],
        identity: vec![Expr::constant(f64::NEG_INFINITY, DType::F32), Expr::int(-1)],
    };
    let out = b.block("M", &[("i", 2)], &[("k", 4)], Some(reducer), |s, r| {
        vec![
            Expr::load(x, [s[0].clone(), r[0].clone()]),
            r[0].clone() * 10,
        ]
    });
    let p = b.finish(&out);
    let x = f32s(&[2, 4], &[3., 9., 9., -1., -5., -7., -6., -2.]);
    let out = outputs(&p, &[x]).unwrap();
    assert_eq!(out[0].as_slice::<f32>(), [9., -2.]);
    assert_eq!(out[1].as_slice::<i64>(), [10, 30]);
}

#[test]
fn all_values_are_evaluated_before_any_is_stored() {
    // (a, b) becomes (b, a + b + term): each needs the other's old value.
    let mut b = ProgramBuilder::new("pair");
    let arg = |i| Expr::arg(i, DType::I32);
    let constant = |v| Expr::constant(v, DType::I32);
    let reducer = Reducer::Tuple {
        combine: vec![arg(1), arg(0) + arg(1) + arg(2)],
        identity: vec![constant(0.), constant(1.)],
    };
    let out = b.block("F", &[], &[("k", 6)], Some(reducer), |_, _| {
        vec![constant(0.), constant(0.)]
    });
    let out = outputs(&b.finish(&out), &[]).unwrap();
    assert_eq!(out[0].as_slice::<i32>(), [8]);
    assert_eq!(out[1].as_slice::<i32>(), [13]);
}

#[test]
fn maps_with_several_outputs_of_several_types() {
    let mut b = ProgramBuilder::new("divmod");
    let x = b.input("X", DType::I32, &[4]);
    let out = b.block("Q", &[("i", 4)], &[], None, |s, _| {
        let v = Expr::load(x, s.to_vec());
        let three = Expr::constant(3., DType::I32);
        vec![
            v.clone().floor_div(three.clone()),
            v.clone().floor_mod(three.clone()),
            v.clone() / three.clone(),
            v.lt(three),
        ]
    });
    let x = Tensor::from_slice(&[4], &[7i32, -7, 2, -3]);
    let out = outputs(&b.finish(&out), &[x]).unwrap();
    assert_eq!(out[0].as_slice::<i32>(), [2, -3, 0, -1]);
    assert_eq!(out[1].as_slice::<i32>(), [1, 2, 2, 0]);
    assert_eq!(out[2].as_slice::<i32>(), [2, -2, 0, -1]);
    assert_eq!(out[3].bytes(), [0, 1, 1, 1]);
}

#[test]
fn narrow_integers_wrap_unless_widened_before() {
    let sum = |widen: bool| {
        let mut b = ProgramBuilder::new("dot");
        let x = b.input("X", DType::I8, &[3]);
        let s = b.reduce("S", &[], &[("k", 3)], Reducer::Sum, |_, r| {
            let v = Expr::load(x, r.to_vec());
            let v = if widen { v.cast(DType::I32) } else { v };
            v.clone() * v
        });
        b.finish(&[s])
    };
    let x = Tensor::from_slice(&[3], &[127i8, -128, 100]);
    let exact = 127 * 127 + 128 * 128 + 100 * 100;
    assert_eq!(output::<i32>(&sum(true), std::slice::from_ref(&x)), [exact]);
    assert_eq!(output::<i8>(&sum(false), &[x]), [exact as i8]);
}

#[test]
fn floats_round_after_every_operation() {
    let sum = |dtype: DType| {
        let mut b = ProgramBuilder::new("sum");
        let x = b.input("X", dtype, &[3]);
        let s = b.reduce("S", &[], &[("k", 3)], Reducer::Sum, |_, r| {
            Expr::load(x, r.to_vec())
        });
        b.finish(&[s])
    };
    for (dtype, digits) in [
        (DType::F16, 11),
        (DType::BF16, 8),
        (DType::F32, 24),
        (DType::F64, 53),
    ] {
        // 2^digits + 1 is a tie and goes to 2^digits, twice.
        let big = 2f64.powi(digits);
        let mut x = Tensor::zeros(dtype, &[3]);
        for (i, v) in [big, 1., 1.].into_iter().enumerate() {
            x.set_f64(i, v);
        }
        let out = outputs(&sum(dtype), &[x]).unwrap();
        assert_eq!(out[0].get_f64(0), big, "{dtype}");
    }
}

fn gather() -> Program {
    let mut b = ProgramBuilder::new("gather");
    let table = b.input("T", DType::F32, &[3, 2]);
    let index = b.input("I", DType::I32, &[4]);
    let g = b.compute("G", &[("i", 4), ("j", 2)], |s| {
        let row = Expr::load(index, [s[0].clone()]).cast(DType::I64);
        Expr::load(table, [row, s[1].clone()])
    });
    b.finish(&[g])
}

#[test]
fn gather_follows_its_data() {
    let table = f32s(&[3, 2], &[0., 1., 10., 11., 20., 21.]);
    let index = |v: [i32; 4]| Tensor::from_slice(&[4], &v);
    assert_eq!(
        output::<f32>(&gather(), &[table.clone(), index([2, 0, 2, 1])]),
        [20., 21., 0., 1., 20., 21., 10., 11.]
    );
    for bad in [3, -1] {
        let e = outputs(&gather(), &[table.clone(), index([2, 0, bad, 1])]).unwrap_err();
        let expected = InterpretError::LoadOutOfRange {
            place: "block `G`".into(),
            buffer: "T".into(),
            indices: vec![bad.into(), 0],
            shape: vec![3, 2],
        };
        assert_eq!(e, expected);
    }
}

#[test]
fn linear_indices_reach_the_first_and_the_last_element() {
    let at = |index: fn(Expr) -> Expr| {
        let mut b = ProgramBuilder::new("linear");
        let x = b.input("X", DType::F32, &[2, 5]);
        let y = b.compute("Y", &[("i", 3)], |s| {
            Expr::load(x, [Expr::int(1), index(s[0].clone())])
        });
        let values: Vec<f32> = (0..10).map(|v| v as f32).collect();
        outputs(&b.finish(&[y]), &[f32s(&[2, 5], &values)])
            .map(|out| out[0].as_slice::<f32>().to_vec())
            .map_err(|e| match e {
                InterpretError::LoadOutOfRange { indices, .. } => indices,
                e => panic!("{e}"),
            })
    };
    assert_eq!(at(|i| i * 2), Ok(vec![5., 7., 9.]));
    assert_eq!(at(|i| Expr::int(4) - i * 2), Ok(vec![9., 7., 5.]));
    assert_eq!(at(|i| i + 2), Ok(vec![7., 8., 9.]));
    assert_eq!(at(|i| i + 3), Err(vec![1, 5]));
    assert_eq!(at(|i| i * 3), Err(vec![1, 6]));
    assert_eq!(at(|i| Expr::int(1) - i), Err(vec![1, -1]));
}

#[test]
fn scatter_outside_is_an_error() {
    let mut b = ProgramBuilder::new("shift");
    let x = b.input("X", DType::F32, &[4]);
    let y = b.compute("Y", &[("i", 4)], |s| Expr::load(x, s.to_vec()));
    let mut p = b.finish(&[y]);
    let block = p.block_named("Y").unwrap();
    let index = &mut p.block_mut(block).writes[0].indices[0];
    *index = index.clone() - 1;
    let e = outputs(&p, &[f32s(&[4], &[1.; 4])]).unwrap_err();
    assert!(
        matches!(&e, InterpretError::StoreOutOfRange { buffer, indices, .. }
            if buffer == "Y" && *indices == [-1]),
        "{e}"
    );
}

#[test]
fn the_side_not_chosen_is_not_evaluated() {
    let shift = |guard: fn(Expr, Expr) -> Expr| {
        let mut b = ProgramBuilder::new("lazy");
        let x = b.input("X", DType::F32, &[3]);
        let y = b.compute("Y", &[("i", 5)], |s| {
            let load = Expr::load(x, [s[0].clone() - 1]);
            guard(s[0].clone(), load)
        });
        b.finish(&[y])
    };
    let inside = |i: Expr| Expr::int(1).le(&i).and(i.lt(4));
    let one = || Expr::f32(1.);
    let zero = || Expr::f32(0.);
    let x = [f32s(&[3], &[1., 0., 1.])];
    let select = shift(|i, load| {
        let inside = Expr::int(1).le(&i).and(i.lt(4));
        Expr::select(inside, load, Expr::f32(7.))
    });
    assert_eq!(output::<f32>(&select, &x), [7., 1., 0., 1., 7.]);
    let mut b = ProgramBuilder::new("lazy");
    let buffer = b.input("X", DType::F32, &[3]);
    let out = b.block("Y", &[("i", 5)], &[], None, |s, _| {
        let set = || Expr::load(buffer, [s[0].clone() - 1]).equals(one());
        let outside = Expr::unary(UnaryOp::Not, inside(s[0].clone()));
        vec![
            Expr::select(inside(s[0].clone()).and(set()), one(), zero()),
            Expr::select(outside.or(set()), one(), zero()),
        ]
    });
    let out = outputs(&b.finish(&out), &x).unwrap();
    assert_eq!(out[0].as_slice::<f32>(), [0., 1., 0., 1., 0.]);
    assert_eq!(out[1].as_slice::<f32>(), [1., 1., 0., 1., 1.]);
    let eager = shift(|_, load| load);
    assert!(matches!(
        outputs(&eager, &x),
        Err(InterpretError::LoadOutOfRange { .. })
    ));
}

#[test]
fn arguments_must_fit_the_parameters() {
    let p = matmul(2, 2, 3);
    let [a, b] = matmul_inputs();
    let c = Tensor::zeros(DType::F32, &[2, 2]);
    let mut args = vec![a.clone(), b.clone()];
    assert!(matches!(
        run(&p, &mut args),
        Err(InterpretError::ArgumentCount {
            expected: 3,
            given: 2,
            ..
        })
    ));
    for wrong in [
        Tensor::zeros(DType::F64, &[2, 2]),
        Tensor::zeros(DType::F32, &[4]),
    ] {
        let e = run(&p, &mut [a.clone(), b.clone(), wrong]).unwrap_err();
        assert!(
            matches!(&e, InterpretError::Argument { buffer, .. } if buffer == "C"),
            "{e}"
        );
    }
    assert_eq!(run(&p, &mut [a, b, c]), Ok(()));
}

#[test]
fn views_do_not_change_what_is_computed() {
    let mut p = matmul(2, 2, 3);
    let a = p.buffer_named("A").unwrap();
    p.buffer_mut(a).view = Some(View {
        strides: vec![1, 2],
        offset: 5,
    });
    assert_eq!(output::<f32>(&p, &matmul_inputs()), MATMUL);
}

#[test]
fn reduction_loops_may_be_outermost() {
    let mut p = matmul(2, 2, 3);
    let [i, j, k] = ["C.i", "C.j", "C.k"].map(|n| p.loop_named(n).unwrap());
    let block = p.block_named("C").unwrap();
    p.body = vec![Node::Loop(k)];
    *p.children_mut(Some(k)) = vec![Node::Loop(i)];
    *p.children_mut(Some(i)) = vec![Node::Loop(j)];
    *p.children_mut(Some(j)) = vec![Node::Block(block)];
    assert_eq!(output::<f32>(&p, &matmul_inputs()), MATMUL);
    // Index 0 last: nothing has set the accumulator.
    let var = p.loop_(k).var;
    p.block_mut(block).iters[2].binding = Expr::int(2) - Expr::var(var);
    assert!(matches!(
        outputs(&p, &matmul_inputs()),
        Err(InterpretError::Undefined { .. })
    ));
}

#[test]
fn a_separate_block_may_set_the_accumulator() {
    let mut p = matmul(2, 2, 3);
    let block = p.block_named("C").unwrap();
    p.block_mut(block).reduction.as_mut().unwrap().init = false;
    assert!(matches!(
        outputs(&p, &matmul_inputs()),
        Err(InterpretError::Undefined { .. })
    ));
    let mut init = p.block(block).clone();
    init.name = "C.init".into();
    init.reduction = None;
    init.iters.truncate(2);
    init.writes[0].value = Expr::f32(100.);
    let init = p.add_block(init);
    let j = p.loop_named("C.j").unwrap();
    p.children_mut(Some(j)).insert(0, Node::Block(init));
    let expected = MATMUL.map(|v| v + 100.);
    assert_eq!(output::<f32>(&p, &matmul_inputs()), expected);
}

#[test]
fn min_max_and_product_reductions() {
    let reduced = |reducer: Reducer, dtype: DType| {
        let mut b = ProgramBuilder::new("reduce");
        let x = b.input("X", dtype, &[4]);
        let y = b.reduce("Y", &[], &[("k", 4)], reducer, |_, r| {
            Expr::load(x, r.to_vec())
        });
        b.finish(&[y])
    };
    let x = [Tensor::from_slice(&[4], &[-3i8, -7, -2, -5])];
    let of = |r| output::<i8>(&reduced(r, DType::I8), &x)[0];
    assert_eq!(of(Reducer::Min), -7);
    assert_eq!(of(Reducer::Max), -2);
    assert_eq!(of(Reducer::Prod), 210u8 as i8);
    assert_eq!(of(Reducer::Sum), -17);
    let x = [f32s(&[4], &[-3., f32::NEG_INFINITY, -2., -5.])];
    let p = reduced(Reducer::Max, DType::F32);
    assert_eq!(output::<f32>(&p, &x), [-2.]);
}

#[test]
fn predicates_cut_the_tail_of_a_split() {
    let mut b = ProgramBuilder::new("split");
    let x = b.input("X", DType::F32, &[10]);
    let y = b.compute("Y", &[("i", 10)], |s| Expr::load(x, s.to_vec()));
    let mut p = b.finish(&[y]);
    let block = p.block_named("Y").unwrap();
    let inner = p.new_loop("Y.i.1", 4, vec![Node::Block(block)]);
    let outer = p.new_loop("Y.i.0", 3, vec![Node::Loop(inner)]);
    p.body = vec![Node::Loop(outer)];
    let i = Expr::var(p.loop_(outer).var) * 4 + Expr::var(p.loop_(inner).var);
    p.block_mut(block).iters[0].binding = i.clone();
    let values: Vec<f32> = (0..10).map(|v| v as f32).collect();
    let x = [f32s(&[10], &values)];
    let e = outputs(&p, &x).unwrap_err();
    assert!(
        matches!(&e, InterpretError::OutOfDomain { var, value: 10, extent: 10, .. } if var == "i"),
        "{e}"
    );
    p.block_mut(block).predicate = Some(i.lt(10));
    assert_eq!(output::<f32>(&p, &x), values);
}

#[test]
fn an_intrinsic_runs_its_points_inside_the_block() {
    let mut p = matmul(2, 2, 3);
    let block = p.block_named("C").unwrap();
    let [i, j, k] = [0, 1, 2].map(|n| p.block(block).iters[n].var);
    let outer = p.loop_named("C.i").unwrap();
    let b = p.block_mut(block);
    b.iters.truncate(1);
    b.tensor = Some(TensorOp {
        intrinsic: "dot".into(),
        iters: vec![(k, 3, IterKind::Reduce), (j, 2, IterKind::Spatial)],
    });
    *p.children_mut(Some(outer)) = vec![Node::Block(block)];
    assert_eq!(p.block(block).iters[0].var, i);
    assert_eq!(output::<f32>(&p, &matmul_inputs()), MATMUL);
}

#[test]
fn scalars_have_no_indices() {
    let mut b = ProgramBuilder::new("scalar");
    let x = b.input("X", DType::F64, &[]);
    let y = b.compute("Y", &[], |_| Expr::unary(UnaryOp::Sqrt, Expr::load(x, [])));
    let p = b.finish(&[y]);
    assert_eq!(
        output::<f64>(&p, &[Tensor::from_slice(&[], &[2f64])]),
        [2f64.sqrt()]
    );
}

#[test]
fn ill_typed_programs_are_refused() {
    let mut b = ProgramBuilder::new("bad");
    let x = b.input("X", DType::I32, &[2]);
    let y = b.compute("Y", &[("i", 2)], |s| {
        Expr::load(x, s.to_vec()) + s[0].clone()
    });
    let e = outputs(&b.finish(&[y]), &[Tensor::zeros(DType::I32, &[2])]).unwrap_err();
    assert!(
        e.to_string().contains("block `Y`") && e.to_string().contains("applies + to i32 and i64"),
        "{e}"
    );
    let mut p = matmul(2, 2, 3);
    let block = p.block_named("C").unwrap();
    p.block_mut(block).writes[0].indices.pop();
    let e = outputs(&p, &matmul_inputs()).unwrap_err();
    assert!(matches!(e, InterpretError::IllFormed { .. }), "{e}");
    let mut p = matmul(2, 2, 3);
    let a = p.buffer_named("A").unwrap();
    p.block_mut(block).writes[0].buffer = a;
    let e = outputs(&p, &matmul_inputs()).unwrap_err();
    assert!(matches!(e, InterpretError::IllFormed { .. }), "{e}");
}

#[test]
fn buffers_beyond_memory_are_refused() {
    let mut p = Program::new("huge");
    let buffer = |name: &str, shape, role| Buffer {
        name: name.into(),
        dtype: DType::F32,
        shape,
        scope: Scope::Global,
        role,
        view: None,
    };
    let huge = p.add_buffer(buffer("H", vec![i64::MAX, 4], Role::Intermediate));
    let block = |name: &str, buffer: BufferId, indices: Vec<Expr>, var: VarId| Block {
        name: name.into(),
        iters: vec![Iter {
            var,
            extent: 1,
            kind: IterKind::Reduce,
            binding: Expr::int(0),
        }],
        predicate: None,
        writes: vec![Write {
            buffer,
            indices,
            value: Expr::f32(1.),
        }],
        reduction: Some(Reduction {
            reducer: Reducer::Sum,
            init: true,
        }),
        tensor: None,
    };
    let var = p.add_var("k");
    let b = p.add_block(block("B", huge, vec![Expr::int(0), Expr::int(0)], var));
    p.body = vec![Node::Block(b)];
    let e = outputs(&p, &[]).unwrap_err();
    assert!(
        matches!(&e, InterpretError::TooLarge { buffer, .. } if buffer == "H"),
        "{e}"
    );
}
