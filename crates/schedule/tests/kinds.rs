//! unroll, vectorize, parallel, bind, annotate, prefetch and set_scope.

mod judge;

use ir::{Annotation, LoopKind, Scope};
use judge::{judged, matmul, padded_conv, pointwise, refused, window};

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
fn axes_of_a_gpu_nest_as_its_threads_do() {
    let mut p = pointwise();
    judged(&mut p, "bind y.i block.x\nbind y.j thread.y");
    refused(&p, "bind y.k block.x", "same axis");
    refused(&p, "bind y.k block.y", "inside threads");
    refused(&p, "parallel y.k", "nested with");
    judged(&mut p, "bind y.k thread.x");
    let mut p = pointwise();
    judged(&mut p, "bind y.j block.x");
    refused(&p, "bind y.i thread.x", "inside threads");
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

#[test]
fn unrolling_has_a_limit() {
    let mut p = matmul(64, 64, 64);
    let steps = ["unroll mm.m", "unroll mm.n"];
    for step in steps {
        let step: schedule::Step = step.parse().expect("a step");
        step.apply(&mut p, &[]).expect("legal");
    }
    refused(&p, "unroll mm.k", "262144 times");
    refused(&p, "unroll mm.n", "it is unrolled");
}

#[test]
fn annotations_are_checked_and_can_be_taken_back() {
    let mut p = padded_conv();
    let annotations = |p: &ir::Program| {
        let l = p.loop_named("conv.c").expect("it exists");
        p.loop_(l).annotations.clone()
    };
    judged(
        &mut p,
        "annotate conv.c unroll_by 8\nannotate conv.c unroll_by 2",
    );
    assert_eq!(annotations(&p), [Annotation::UnrollBy(2)]);
    judged(&mut p, "annotate conv.c unroll_by 1");
    assert_eq!(annotations(&p), []);
    refused(&p, "annotate conv.c unroll_by 0", "not in 1..=1024");
    judged(&mut p, "prefetch w conv.c 3");
    let w = p.buffer_named("w").expect("it exists");
    let wanted = Annotation::Prefetch {
        buffer: w,
        distance: 3,
    };
    assert_eq!(annotations(&p), [wanted]);
    refused(&p, "prefetch w conv.c 1", "prefetches it already");
    refused(&p, "prefetch w pad.c 1", "not loaded under `pad.c`");
    refused(&p, "prefetch conv conv.c 1", "not loaded under `conv.c`");
    refused(&p, "prefetch w conv.o 0", "less than 1");
    refused(&p, "prefetch v conv.o 1", "no such buffer");
}
