//! The verifier: clean programs have nothing broken, and every promise is
//! missed when one edit breaks it.

mod support;

use ir::text::parse;
use ir::verify::{Broken, verify};
use ir::{
    Annotation, BlockId, BufferId, DType, Expr, ExprKind, LoopId, Node, Program, ProgramBuilder,
    Reducer, Role, Scope, UnaryOp, VarId, View,
};
use support::{ORDERED, TEXTS};

/// What is broken, as the messages say it.
fn messages(p: &Program) -> Vec<String> {
    verify(p).iter().map(Broken::to_string).collect()
}

#[test]
fn sound_programs_break_nothing() {
    for text in TEXTS {
        assert_eq!(messages(&parse(text).unwrap()), Vec::<String>::new());
    }
}

#[test]
fn built_programs_break_nothing() {
    let mut b = ProgramBuilder::new("p");
    let x = b.input("x", DType::F32, &[3, 5]);
    let sum = b.reduce("sum", &[("i", 3)], &[("j", 5)], Reducer::Sum, |s, r| {
        Expr::load(x, [s[0].clone(), r[0].clone()])
    });
    let y = b.compute("y", &[("i", 3), ("j", 5)], |s| {
        Expr::load(x, s.to_vec()) / Expr::load(sum, [s[0].clone()])
    });
    assert_eq!(messages(&b.finish(&[y])), Vec::<String>::new());
}

/// Two blocks, the second reading the first.
const BASE: &str = "\
program base {
  input X: f32[8, 6]
  constant W: f32[6]
  output Y: f32[8]
  intermediate T: f32[8, 6]
  for T.i in 0..8 {
    for T.j in 0..6 {
      block T [i: spatial 8 = T.i, j: spatial 6 = T.j] {
        T[i, j] = X[i, j] * W[j]
      }
    }
  }
  for Y.i in 0..8 {
    for Y.j in 0..6 {
      block Y [i: spatial 8 = Y.i, j: reduce 6 = Y.j] {
        Y[i] sum init = T[i, j]
      }
    }
  }
}
";

/// Old and new text, and what is broken then.
type TextEdit = (&'static str, &'static str, &'static [&'static str]);

const EDITS: &[TextEdit] = &[
    // Names and extents.
    (
        "for Y.i in 0..8 {\n    for Y.j in 0..6 {\n      block Y [i: spatial 8 = Y.i",
        "for T.i in 0..8 { for Y.j in 0..6 { block Y [i: spatial 8 = T.i",
        &["two loops are named `T.i`"],
    ),
    ("block Y", "block T", &["two blocks are named `T`"]),
    (
        "T.j in 0..6",
        "T.j in 0..0",
        &["loop `T.j` has extent 0; extents are at least 1"],
    ),
    (
        "j: spatial 6 = T.j",
        "j: spatial -1 = T.j",
        &["variable `j` of block `T` has extent -1; extents are at least 1"],
    ),
    (
        "W: f32[6]",
        "W: f32[0]",
        &["dimension 0 of `W` has extent 0; extents are at least 1"],
    ),
    (
        "W: f32[6]",
        "W: f32[4611686018427387904]",
        &["buffer `W` has more bytes than an i64 counts"],
    ),
    // Views and parameters.
    (
        "X: f32[8, 6]",
        "X: f32[8, 6] strides [6] offset 0",
        &["view of `X`: it has not one stride a dimension"],
    ),
    (
        "X: f32[8, 6]",
        "X: f32[8, 6] strides [-6, 1] offset 41",
        &["view of `X`: it starts before its allocation"],
    ),
    (
        "X: f32[8, 6]",
        "X: f32[8, 6] strides [-6, 1] offset 42",
        &[],
    ),
    (
        "T: f32[8, 6]",
        "T: f32[8, 6] strides [6, 1] offset 0",
        &["view of `T`: only parameters have one"],
    ),
    (
        "W: f32[6]",
        "W: f32[6] local",
        &["parameter `W` is not in global memory"],
    ),
    // Scopes of variables.
    (
        "i: spatial 8 = Y.i",
        "i: spatial 8 = i32(Y.i)",
        &["a binding of block `Y`: `i32(Y.i)` is i32, expected i64"],
    ),
    (
        "j: spatial 6 = T.j",
        "j: spatial 6 = X[0, 0]",
        &[
            "binding of `j` in block `T` holds a load or a reducer's argument; only loop variables may occur",
            "a binding of block `T`: `X[0, 0]` is f32, expected i64",
        ],
    ),
    // Types.
    (
        "X[i, j] * W[j]",
        "X[i, j] * 2",
        &["the statement of block `T`: `2` is i64, expected f32"],
    ),
    (
        "X[i, j] * W[j]",
        "i * j",
        &["the statement of block `T`: `i * j` is i64, expected f32"],
    ),
    (
        "X[i, j] * W[j]",
        "X[i, f32(j)]",
        &["the statement of block `T`: `f32(j)` is f32, expected i64"],
    ),
    (
        "X[i, j] * W[j]",
        "select(i, 0.0, 1.0)",
        &["the statement of block `T`: `i` is i64, expected bool"],
    ),
    (
        "X[i, j] * W[j]",
        "f32(exp(i))",
        &["the statement of block `T`: `i` is i64, expected a float"],
    ),
    (
        "X[i, j] * W[j]",
        "f32(i < j and not(j) or i == 1.0)",
        &[
            "the statement of block `T`: `j` is i64, expected bool",
            "the statement of block `T`: `1.0` is f32, expected i64",
        ],
    ),
    (
        "X[i, j] * W[j]",
        "f32(i < j + true)",
        &["the statement of block `T`: `true` is bool, expected i64"],
    ),
    (
        "X[i, j] * W[j]",
        "f32(-(i < j))",
        &["the statement of block `T`: `i < j` is bool, expected a number"],
    ),
    (
        "X[i, j] * W[j]",
        "X[i] + W[]",
        &[
            "the statement of block `T`: `X` of rank 2 has 1 indices",
            "the statement of block `T`: `W` of rank 1 has 0 indices",
        ],
    ),
    (
        "X[i, j] * W[j]",
        "bits(0x3fb999999999999a, f32)",
        &[
            "the statement of block `T`: the constant `bits(0x3fb999999999999a, f32)` is not a value of its type",
        ],
    ),
    ("X[i, j] * W[j]", "bits(0x7ff8000000000001, f32)", &[]),
    (
        "X[i, j] * W[j]",
        "$0_f32",
        &["the statement of block `T`: `$0_f32` is not an argument of the block's tuple reducer"],
    ),
    // Reducers.
    (
        "sum init = T[i, j]",
        "tuple init = T[i, j] combine $0 + $1 from 0.0 combine $0 from 0.0",
        &["block `Y` has 1 writes, but 2 combined and 2 start values"],
    ),
    (
        "sum init = T[i, j]",
        "tuple init = T[i, j] combine $0 + $2 from W[0]",
        &[
            "the reducer of block `Y` uses variables or buffers; a reducer is closed",
            "the reducer of block `Y`: `$2_f32` is not an argument of the block's tuple reducer",
        ],
    ),
    (
        "sum init = T[i, j]",
        "tuple init = T[i, j] combine $0 + $1_i64 from 0",
        &[
            "the reducer of block `Y`: `0` is i64, expected f32",
            "the reducer of block `Y`: `$1_i64` is not an argument of the block's tuple reducer",
            "the reducer of block `Y`: `$1_i64` is i64, expected f32",
        ],
    ),
    // Statements.
    (
        "Y[i] sum init = T[i, j]",
        "",
        &[
            "block `Y` writes nothing",
            "no block writes the output `Y`",
            "block `Y` has no reducer for its reduce variable `j`",
        ],
    ),
    (
        "T[i, j] = X[i, j] * W[j]",
        "T[i, j] = X[i, j] T[7 - i, j] = 0.0",
        &["block `T` has several writes to `T`"],
    ),
    (
        "T[i, j] = X[i, j] * W[j]",
        "T[i, j] = 0.0 X[i, j] = 0.0",
        &["block `T` writes the parameter `X`, which is not an output"],
    ),
    (
        "W: f32[6]\n",
        "W: f32[6] output Z: f32[1]\n",
        &["no block writes the output `Z`"],
    ),
    (
        "Y[i] sum",
        "Y[i + j] sum",
        &[
            "block `Y` reduces over `j`, which is in an index of its write",
            "block `Y` writes 0..=12 in dimension 0 of `Y`, which has 8",
        ],
    ),
    (
        "Y[i] sum init",
        "Y[i]",
        &["block `Y` has no reducer for its reduce variable `j`"],
    ),
    (
        "T[i, j] = X",
        "T[i, 0] = X",
        &["block `T` writes the same element of `T` for all values of the spatial `j`"],
    ),
    (
        "X[i, j] * W[j]",
        "X[i, j] * T[i, 0]",
        &["block `T` loads `T`, which it writes"],
    ),
    (
        "= T[i, j]",
        "= T[i, j] + Y[i]",
        &["block `Y` loads `Y`, which it writes"],
    ),
    (
        "sum init",
        "sum",
        &["block `Y` does not initialise `Y`, nor does an earlier block"],
    ),
    (
        "X[i, j] * W[j]",
        "Y[i]",
        &["block `T` loads `Y`, which no earlier block writes"],
    ),
    (
        "T[i, j] = X",
        "T[i, j + 1] = X",
        &["block `T` writes 1..=6 in dimension 1 of `T`, which has 6"],
    ),
    (
        "T[i, j] = X",
        "T[i - 1, j // 1] = X",
        &["block `T` writes -1..=6 in dimension 0 of `T`, which has 8"],
    ),
    (
        "i: spatial 8 = Y.i",
        "i: spatial 8 = Y.i * 2 + 1",
        &["block `Y` binds `i` to 1..=15 without a predicate; its extent is 8"],
    ),
    (
        "i: spatial 8 = Y.i, j: reduce 6 = Y.j]",
        "i: spatial 8 = Y.i * 2, j: reduce 6 = Y.j] where (Y.i < 4)",
        &[],
    ),
    (
        "i: spatial 8 = Y.i, j: reduce 6 = Y.j]",
        "i: spatial 8 = Y.i, j: reduce 6 = Y.j] where (Y.i)",
        &["the predicate of block `Y`: `Y.i` is i64, expected bool"],
    ),
    // Loops.
    (
        "for T.i in 0..8 {",
        "for e in 0..1 {} for T.i in 0..8 {",
        &["loop `e` is empty"],
    ),
    (
        "T.i in 0..8",
        "T.i in 0..8 vectorized",
        &["vectorized loop `T.i` holds loop `T.j`; it may hold blocks only"],
    ),
    ("T.j in 0..6", "T.j in 0..6 vectorized", &[]),
    ("T.i in 0..8", "T.i in 0..8 parallel", &[]),
    (
        "T.i in 0..8 {\n    for T.j in 0..6",
        "T.i in 0..8 parallel { for T.j in 0..6 parallel",
        &["parallel loop `T.j` is inside parallel loop `T.i`"],
    ),
    (
        "T.i in 0..8 {\n    for T.j in 0..6",
        "T.i in 0..8 bound thread.x { for T.j in 0..6 bound thread.x",
        &["loops `T.i` and `T.j`, one inside the other, are bound to one axis"],
    ),
    (
        "T.i in 0..8 {\n    for T.j in 0..6",
        "T.i in 0..8 bound block.x { for T.j in 0..6 bound thread.x",
        &[],
    ),
    (
        "Y.j in 0..6",
        "Y.j in 0..6 vectorized",
        &[
            "loop `Y.j` runs its iterations together, but block `Y` reduces over it, or goes on, in `j`",
            "iterations of loop `Y.j` run together, and block `Y` writes the same elements of `Y` in all",
        ],
    ),
    (
        "for T.i in 0..8",
        "for again in 0..2 parallel { for T.i in 0..8 {} } for T.i in 0..8",
        &["two loops are named `T.i`", "loop `T.i` is empty"],
    ),
    (
        "T.i in 0..8",
        "T.i in 0..8 unroll_by 0 prefetch X 0",
        &[
            "annotation of loop `T.i`: the unroll factor is not positive",
            "annotation of loop `T.i`: the prefetch distance is not positive",
        ],
    ),
];

#[test]
fn each_edit_of_the_text_breaks_its_promise() {
    edits(BASE, EDITS);
}

/// Replaces the first `old` of a text by `new`, for each edit.
fn edits(base: &str, cases: &[TextEdit]) {
    let mut wrong = String::new();
    for (old, new, expected) in cases {
        let text = base.replacen(old, new, 1);
        assert_ne!(text, base, "{old}");
        let p = parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let found = messages(&p);
        if found != *expected {
            wrong += &format!("{old} -> {new}\nexpected {expected:#?}\nfound {found:#?}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// A producer inside a loop of its consumer.
const NESTED: &str = "\
program nested {
  input X: f32[8]
  output Y: f32[8]
  intermediate T: f32[8] local
  for Y.i.0 in 0..2 {
    for T.i in 0..4 {
      block T [i: spatial 8 = Y.i.0 * 4 + T.i] {
        T[i] = X[i]
      }
    }
    for Y.i.1 in 0..4 {
      block Y [i: spatial 8 = Y.i.0 * 4 + Y.i.1] {
        Y[i] = T[i]
      }
    }
  }
}
";

#[test]
fn private_buffers_are_not_shared_and_shared_ones_written_apart() {
    let cases: &[TextEdit] = &[
        ("Y.i.0 in 0..2", "Y.i.0 in 0..2 parallel", &[]),
        (
            "T.i in 0..4",
            "T.i in 0..4 parallel",
            &["`T` is private to a worker, but shared by the iterations of parallel loop `T.i`"],
        ),
        // Private to an iteration: may be the same elements in all.
        (
            "Y.i.0 in 0..2 {\n    for T.i in 0..4 {\n      block T [i: spatial 8 = Y.i.0 * 4 + T.i]",
            "Y.i.0 in 0..2 parallel { for T.i in 0..8 { block T [i: spatial 8 = T.i]",
            &[],
        ),
        // Allocated outside: must not.
        (
            "for T.i in 0..4 {\n      block T [i: spatial 8 = Y.i.0 * 4 + T.i]",
            "for T.p in 0..2 vectorized { block T [i: spatial 8 = Y.i.0 * 4]",
            &[
                "iterations of loop `T.p` run together, and block `T` writes the same elements of `T` in all",
            ],
        ),
        (
            "for T.i in 0..4 {\n      block T [i: spatial 8 = Y.i.0 * 4 + T.i]",
            "for T.p in 0..2 vectorized { block T [i: spatial 8 = Y.i.0 * 4] where (T.p < 1)",
            &[],
        ),
        (
            "for T.i in 0..4 {\n      block T [i: spatial 8 = Y.i.0 * 4 + T.i]",
            "for T.p in 0..2 vectorized { block T [i: spatial 8 = Y.i.0 * 4] where (false)",
            &[],
        ),
        (
            "for T.i in 0..4 {\n      block T [i: spatial 8 = Y.i.0 * 4 + T.i]",
            "for T.p in 0..1 vectorized { block T [i: spatial 8 = Y.i.0 * 4]",
            &[],
        ),
    ];
    edits(NESTED, cases);
}

#[test]
fn ordered_blocks_keep_what_they_promise() {
    let cases: &[TextEdit] = &[
        // What goes on is written before.
        (
            "S[0, j] = X[0, j]",
            "U[0, j] = X[0, j]",
            &["block `S` loads `S`, which no earlier block writes"],
        ),
        // Only an ordered block loads what it writes.
        (
            "i: ordered 4 = S.i",
            "i: spatial 4 = S.i",
            &["block `S` loads `S`, which it writes"],
        ),
        // Values of a spatial variable are apart in every access.
        (
            "S[i, j] + X",
            "S[i, 0] + X",
            &[
                "block `S` runs in order, but its accesses to `S` are not apart for all values of the spatial `j`",
            ],
        ),
        (
            "U[I[k] + l, j] = U[I[k] + l, j]",
            "U[I[j], k] = U[I[j], k]",
            &[
                "block `U` runs in order, but its accesses to `U` are not apart for all values of the spatial `j`",
            ],
        ),
        // Its iterations do not run together.
        (
            "S.j in 0..8 parallel {\n    for S.i in 0..4",
            "S.j in 0..8 {\n    for S.i in 0..4 vectorized",
            &[
                "loop `S.i` runs its iterations together, but block `S` reduces over it, or goes on, in `i`",
                "iterations of loop `S.i` run together, and block `S` writes the same elements of `S` in all",
            ],
        ),
        (
            "U.k in 0..7",
            "U.k in 0..7 parallel",
            &[
                "loop `U.k` runs its iterations together, but block `U` reduces over it, or goes on, in `k`",
                "iterations of loop `U.k` run together, and block `U` writes the same elements of `U` in all",
            ],
        ),
    ];
    edits(ORDERED, cases);
}

fn base() -> Program {
    parse(BASE).unwrap()
}

fn block(p: &Program, name: &str) -> BlockId {
    p.block_named(name).unwrap()
}

/// What the text form cannot say is broken in place.
type Edit = fn(&mut Program);

const IN_PLACE: &[(Edit, &[&str])] = &[
    (
        |p| p.buffer_mut(BufferId(1)).name = "X".into(),
        &["two buffers are named `X`"],
    ),
    (
        |p| p.loop_mut(LoopId(0)).name = "other".into(),
        &["loop `other` has a variable named `T.i`; they share one name"],
    ),
    (
        |p| {
            let y = block(p, "Y");
            let i = p.block(y).iters[0].clone();
            p.block_mut(y).iters[1].var = i.var;
            p.block_mut(y).writes[0].value = Expr::f32(1.0);
        },
        &[
            "variable `i` belongs to two loops, or to a loop and a block, or twice to a block",
            "two iteration variables are named `i`",
            "block `Y` reduces over `i`, which is in an index of its write",
        ],
    ),
    (
        |p| {
            let v = p.loop_(p.loop_named("Y.j").unwrap()).var;
            let w = &mut p.block_mut(BlockId(0)).writes[0];
            w.value = Expr::var(v).cast(DType::F32);
        },
        &["block `T` uses `Y.j`, which is not a variable there"],
    ),
    (
        |p| {
            let v = p.loop_(p.loop_named("T.i").unwrap()).var;
            p.block_mut(BlockId(1)).iters[0].binding = Expr::var(v);
        },
        &["binding of `i` in block `Y` uses `T.i`, which is not a variable there"],
    ),
    (
        |p| p.params.push(BufferId(0)),
        &["parameter list: `X` is listed twice"],
    ),
    (
        |p| {
            p.params.remove(1);
        },
        &["parameter list: `W` is a parameter, but is not listed"],
    ),
    (
        |p| p.params.push(BufferId(3)),
        &["parameter list: `T` is listed, but is an intermediate"],
    ),
    (
        |p| {
            let value = ExprKind::Int(200, DType::I8);
            p.block_mut(BlockId(0)).writes[0].value = Expr::from(value).cast(DType::F32);
        },
        &["the statement of block `T`: the constant `200_i8` is not a value of its type"],
    ),
    (
        |p| p.body.push(p.body[0]),
        &["loop `T.i` occurs more than once in the body"],
    ),
    (
        |p| p.loop_mut(LoopId(1)).body.push(Node::Loop(LoopId(0))),
        &["loop `T.i` occurs more than once in the body"],
    ),
    (
        |p| p.loop_mut(LoopId(1)).body.push(Node::Block(BlockId(0))),
        &["block `T` occurs more than once in the body"],
    ),
    (
        |p| p.body.push(Node::Block(BlockId(9))),
        &["the body mentions block 9, but there are only 2"],
    ),
    (
        |p| p.params.push(BufferId(9)),
        &["the parameter list mentions buffer 9, but there are only 4"],
    ),
    (
        |p| p.block_mut(BlockId(1)).predicate = Some(Expr::var(VarId(99))),
        &["block `Y` mentions variable 99, but there are only 8"],
    ),
    (
        |p| {
            p.loop_mut(LoopId(2)).annotations = vec![Annotation::Prefetch {
                buffer: BufferId(5),
                distance: 1,
            }];
        },
        &["loop `Y.i` mentions buffer 5, but there are only 4"],
    ),
];

#[test]
fn each_edit_of_the_program_breaks_its_promise() {
    for (i, (edit, expected)) in IN_PLACE.iter().enumerate() {
        let mut p = base();
        edit(&mut p);
        assert_eq!(messages(&p), *expected, "edit {i}");
    }
}

/// Entries that left the body promise nothing.
#[test]
fn dead_arena_entries_are_not_looked_at() {
    let mut p = base();
    p.new_loop("T.i", 0, vec![Node::Loop(LoopId(77))]);
    let mut dead = p.buffer(BufferId(3)).clone();
    dead.view = Some(View {
        strides: vec![],
        offset: -1,
    });
    dead.scope = Scope::Local;
    assert_eq!(dead.role, Role::Intermediate);
    p.add_buffer(dead);
    assert_eq!(verify(&p), vec![]);
}

/// Reducers over bool have no sum.
#[test]
fn sums_are_of_numbers() {
    let mut b = ProgramBuilder::new("any");
    let x = b.input("x", DType::F32, &[4]);
    let sound =
        |s: &[Expr]| Expr::unary(UnaryOp::Abs, Expr::load(x, s.to_vec())).lt(Expr::f32(1.0));
    let any = b.reduce("any", &[], &[("i", 4)], Reducer::Max, |_, r| sound(r));
    let mut p = b.finish(&[any]);
    assert_eq!(messages(&p), Vec::<String>::new());
    let block = p.block_named("any").unwrap();
    p.block_mut(block).reduction.as_mut().unwrap().reducer = Reducer::Sum;
    let message = "the reducer of block `any`: `abs(x[i]) < 1.0` is bool, expected a number";
    assert_eq!(messages(&p), [message]);
}
