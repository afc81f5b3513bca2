//! unroll, vectorize, parallel, bind and set_scope.

mod judge;

use ir::{LoopKind, Scope};
use judge::{judged, matmul, pointwise, refused, window};

#[test]
fn loops_over_outputs_get_any_kind() {
    let mut p = pointwise();
    judged(
        &mut p,
        "parallel y.i\nunroll y.j\nsplit y.k [_, 4]\nvectorize y.k.1",
    );
    let kind = |n: &str| p.loop_(p.loop_named(n).expect("it exists")).kind;
    assert_eq!(kind("y.i"), LoopKind::Parallel);
    assert_eq!(kind("y.j"), LoopKind::Unrolled);
    assert_eq!(kind("y.k.1"), LoopKind::Vectorized);
    refused(&p, "vectorize y.k.1", "it is vectorized");
    refused(&p, "parallel y.k.0", "nested with the parallel loop `y.i`");
    refused(
        &p,
        "bind y.k.0 thread.x",
        "nested with the parallel loop `y.i`",
    );
}

#[test]
fn reductions_and_overlaps_do_not_run_at_once() {
    let p = matmul(4, 4, 4);
    refused(&p, "parallel mm.k", "reduction loop of `mm`");
    refused(&p, "vectorize mm.k", "reduction loop of `mm`");
    let mut p = matmul(4, 4, 4);
    judged(&mut p, "fuse mm.n mm.k");
    refused(&p, "bind mm.n&mm.k thread.x", "reduction loop of `mm`");

    // Two iterations compute a part of `t` for themselves: `t` lives inside.
    let mut p = window();
    judged(&mut p, "split z.i [_, 4]\ncompute_at t z.i.0");
    refused(&p, "vectorize z.i.0", "encloses the loop `t.i`");
    judged(&mut p, "parallel z.i.0");
}

#[test]
fn iterations_that_touch_common_elements_do_not_run_at_once() {
    let text = "
program shared {
  input x: f32[9]
  output t: f32[8]
  output u: f32[8]
  for again in 0..2 {
    for i in 0..8 {
      block t [i: spatial 8 = i] {
        t[i] = x[i]
      }
      block u [i: spatial 8 = 7 - i] {
        u[i] = t[7 - i]
      }
    }
  }
}";
    let mut p = ir::text::parse(text).expect("a program");
    refused(&p, "parallel again", "several iterations may write");
    judged(&mut p, "parallel i");
    let shifted = text.replace("u[i] = t[7 - i]", "u[i] = select(i < 7, t[6 - i], x[i])");
    let p = ir::text::parse(&shifted).expect("a program");
    refused(
        &p,
        "parallel i",
        "`u` may touch elements of `t` that `t` writes",
    );
    refused(
        &p,
        "vectorize i",
        "`u` may touch elements of `t` that `t` writes",
    );
}

#[test]
fn tiles_and_fused_loops_are_recognised_as_disjoint() {
    let mut p = matmul(6, 8, 3);
    judged(
        &mut p,
        "split mm.m [_, 2]
         split mm.n [_, 4]
         reorder mm.m.0 mm.n.0 mm.k mm.m.1 mm.n.1
         fuse mm.m.0 mm.n.0
         reverse_compute_at out mm.m.0&mm.n.0
         parallel mm.m.0&mm.n.0
         vectorize mm.n.1
         vectorize out.n",
    );
    let mut p = matmul(7, 10, 3);
    judged(
        &mut p,
        "fuse mm.m mm.n
         split mm.m&mm.n [_, 9]
         parallel mm.m&mm.n.0
         fuse out.m out.n
         parallel out.m&out.n",
    );
}

#[test]
fn vectorized_loops_hold_blocks_only() {
    let p = pointwise();
    refused(&p, "vectorize y.j", "encloses the loop `y.k`");
    let mut p = window();
    judged(&mut p, "compute_at t z.i\ncompute_inline t\nvectorize z.i");
}

#[test]
fn private_memory_is_not_shared_by_workers() {
    let p = matmul(4, 4, 4);
    refused(&p, "set_scope a local", "parameter");
    let mut shared = p.clone();
    judged(&mut shared, "set_scope mm local");
    refused(&shared, "parallel mm.m", "private memory");
    let mut p = p;
    judged(&mut p, "parallel mm.m");
    refused(&p, "set_scope mm local", "iterations of `mm.m` share it");
    judged(&mut p, "reverse_compute_at out mm.m\nset_scope mm local");
    let mm = p.buffer_named("mm").expect("it exists");
    assert_eq!(p.buffer(mm).scope, Scope::Local);

    let mut p = matmul(4, 4, 4);
    judged(
        &mut p,
        "reverse_compute_at out mm.m\nset_scope mm shared\nbind mm.n thread.x",
    );
    refused(&p, "set_scope mm register", "iterations of `mm.n` share it");
    judged(&mut p, "bind out.n thread.x\nbind mm.m block.x");
}
