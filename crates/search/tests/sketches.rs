//! Sketches of built-in operators of every kind: all that a space proposes is legal, its
//! optional steps are left out where they are illegal and only there, and neighbours
//! are within the limits.

use graph::Model;
use graph::ops::{Op, Softmax};
use ir::{DType, Isa, LoopKind, Node, Program, Target, interpret};
use plan::{LayoutPolicy, PlanOptions, plan};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use schedule::Step;
use search::{Accuracy, Point, SketchStep, Space, fallback, space};
use tensor::{Fill, Tensor, compare, fill_tensor};

const POINTS: usize = 4;

const OPERATORS: [&str; 23] = [
    "op:conv2d(c=32,h=14,w=14,k=32)",
    "op:conv2d(c=3,h=29,w=29,k=32,r=7,s=7,stride=2,bias=yes,activation=relu)",
    "op:conv2d(c=32,h=7,w=7,k=32,dtype=i8)",
    "op:conv2d(c=16,h=9,w=9,k=16,layout=nchw)",
    "op:depthwise_conv2d(c=32,h=14,w=14)",
    "op:dense(m=37,n=53,k=64)",
    "op:dense(m=8,n=64,k=64,dtype=i8)",
    "op:batch_matmul(b=3,m=16,n=24,k=8)",
    "op:matmul(m=64,n=1,k=64)",
    "op:softmax(rows=6,cols=100)",
    "op:max_pool2d(c=32,h=14,w=14)",
    "op:transpose(rows=96,cols=60)",
    "op:conv1d(c=32,k=32,w=20)",
    "op:conv3d(c=32,k=16,d=3,h=5,w=6)",
    "op:grouped_conv2d(c=32,k=32,groups=8,h=9,w=9)",
    "op:grouped_conv2d(c=48,k=48,groups=6,h=5,w=37)",
    "op:depthwise_conv2d(c=19,h=5,w=23)",
    "op:conv1d_transpose(c=32,k=32,w=9,stride=2)",
    "op:conv2d_transpose(c=32,k=32,h=5,w=6,stride=2,pad=1)",
    "op:cumulative_sum(outer=3,n=17,inner=40)",
    "op:cumulative_sum(outer=24,n=17,inner=1)",
    "op:scatter_add(table=10,rows=31,cols=33)",
    "op:top_k(rows=3,cols=300,k=2)",
];

/// Every task of the operators on some targets.
fn each_task(f: &mut dyn FnMut(&Program, &Target)) {
    for name in OPERATORS {
        let model = graph::builtin::builtin(name, 1).unwrap();
        let layouts = LayoutPolicy::of_builtin(name).unwrap();
        for (isa, threads) in [
            (Isa::X86Avx512, 2),
            (Isa::X86Avx2, 1),
            (Isa::AArch64Neon, 2),
        ] {
            let target = Target::generic(isa).with_threads(threads);
            let plan = plan(&model, &target, &PlanOptions::from(layouts)).unwrap();
            for task in &plan.tasks {
                f(&task.program, &target);
            }
        }
    }
}

/// The default, and random points.
fn points(own: &Space) -> Vec<Point> {
    let mut rng = Pcg64Mcg::seed_from_u64(3);
    let random = (0..POINTS).map(|_| own.sample(&mut rng));
    [own.default_point()].into_iter().chain(random).collect()
}

#[test]
fn every_template_can_be_written_and_all_it_proposes_replays() {
    let mut sketches = 0;
    each_task(&mut |program, target| {
        let all = space(program, target, Accuracy::Relaxed);
        assert_eq!(all.refused, []);
        for sketch in all.sketches {
            sketches += 1;
            let own = Space::of(vec![sketch]);
            for point in points(&own) {
                assert!(own.within_limits(&point));
                let candidate = own.candidate(program, &point).unwrap();
                if let Err(e) = schedule::replay(program, &candidate.trace) {
                    panic!("{}: {e}", candidate.algorithm);
                }
            }
        }
        fallback(program, target).unwrap();
    });
    assert!(sketches > 200, "{sketches}");
}

/// The sketches of an operator's anchor.
fn anchor_sketches(name: &str) -> Vec<String> {
    let model = graph::builtin::builtin(name, 1).unwrap();
    let target = Target::generic(Isa::X86Avx512).with_threads(1);
    let plan = plan(&model, &target, &LayoutPolicy::Blocked.into()).unwrap();
    let task = plan.tasks.iter().find(|t| t.op != "layout_transform");
    let all = space(&task.unwrap().program, &target, Accuracy::Strict);
    let names = all.sketches.into_iter().map(|s| s.name);
    names.collect()
}

#[test]
fn windows_are_of_two_spatial_axes_and_weights_that_lead_with_maps() {
    let suits = |name: &str, sketch: &str| {
        let all = anchor_sketches(name);
        all.iter().any(|s| s.starts_with(sketch))
    };
    let wide = "op:grouped_conv2d(c=32,k=32,groups=2,h=9,w=9)";
    assert!(suits(wide, "direct") && suits(wide, "convgemm"));
    let narrow = "op:grouped_conv2d(c=32,k=32,groups=8,h=9,w=9)";
    assert!(suits(narrow, "direct") && !suits(narrow, "convgemm") && !suits(narrow, "im2row"));
    for other in [
        // Five loops in `main`: x is a base and a phase.
        "op:conv1d_transpose(c=32,k=32,w=9,stride=2)",
        "op:conv2d_transpose(c=32,k=32,h=5,w=6,stride=1)",
        "op:conv2d_transpose(c=32,k=32,h=5,w=6,stride=2)",
        "op:conv1d(c=32,k=32,w=20)",
        "op:conv3d(c=32,k=32,d=3,h=5,w=6)",
    ] {
        for sketch in ["direct", "convgemm", "im2row", "winograd"] {
            assert!(!suits(other, sketch), "{other}: {sketch}");
        }
    }
}

fn output(program: &Program) -> Tensor {
    let params = program.params.iter().enumerate();
    let mut args: Vec<Tensor> = params
        .map(|(seed, b)| {
            let shape = program.buffer(*b).shape.iter().map(|n| *n as usize);
            let fill = Fill::Uniform { lo: -1.0, hi: 1.0 };
            fill_tensor(DType::F32, &shape.collect::<Vec<_>>(), fill, seed as u64)
        })
        .collect();
    interpret::run(program, &mut args).unwrap();
    args.pop().unwrap()
}

/// Plain and blocked images and matrices, of short and long rows: threads share one loop,
/// which is inside no other.
#[test]
fn data_that_changes_its_order_wakes_threads_once() {
    let mut shared = 0;
    for name in [
        "op:transpose(rows=96,cols=61)",
        "op:transpose(c=5,rows=33,cols=47,perm=102)",
        "op:transpose(c=7,rows=19,cols=37,perm=210)",
        "op:transpose(n=2,c=33,rows=9,cols=3,perm=0312)",
        "op:depthwise_conv2d(c=37,h=13,w=11,r=5,s=5)",
        "op:depthwise_conv2d(c=17,h=37,w=41,r=5,s=5)",
    ] {
        let model = graph::builtin::builtin(name, 1).unwrap();
        for threads in 1..4 {
            let target = Target::generic(Isa::X86Avx512).with_threads(threads);
            let plan = plan(&model, &target, &LayoutPolicy::Blocked.into()).unwrap();
            for program in plan.tasks.iter().map(|t| &t.program) {
                let all = space(program, &target, Accuracy::Strict).sketches;
                for sketch in all.into_iter().filter(|s| s.name.starts_with("transpose")) {
                    let own = Space::of(vec![sketch]);
                    let candidate = own.candidate(program, &own.default_point()).unwrap();
                    let scheduled = schedule::replay(program, &candidate.trace).unwrap();
                    let difference = compare(&output(&scheduled), &output(program));
                    assert!(difference.within(0.0), "{name}: {difference:?}");
                    for l in scheduled.loop_ids() {
                        if scheduled.loop_(l).kind == LoopKind::Parallel {
                            shared += 1;
                            let around = scheduled.path_to(Node::Loop(l)).unwrap();
                            assert!(around.is_empty(), "{name}: {}", candidate.algorithm);
                        }
                    }
                }
            }
        }
    }
    assert!(shared > 20, "{shared}");
}

/// The steps that every one would be tried at its place.
fn tried(program: &Program, space: &Space, point: &Point) -> Vec<Step> {
    let decisions = space.decisions(point);
    let mut scheduled = program.clone();
    let steps = space.sketches[0].steps.iter().map(SketchStep::step);
    let legal = steps.filter(|s| s.apply(&mut scheduled, &decisions).is_ok());
    legal.cloned().collect()
}

#[test]
fn candidates_have_the_steps_that_are_legal() {
    let mut left_out = 0;
    each_task(&mut |program, target| {
        for sketch in space(program, target, Accuracy::Relaxed).sketches {
            let own = Space::of(vec![sketch]);
            for point in points(&own) {
                let candidate = own.candidate(program, &point).unwrap();
                left_out += own.sketches[0].steps.len() - candidate.trace.steps.len();
                assert_eq!(candidate.trace.steps, tried(program, &own, &point));
            }
        }
    });
    assert!(left_out > 50, "{left_out}");
}

#[test]
fn mutation_moves_to_neighbours() {
    let mut rng = Pcg64Mcg::seed_from_u64(5);
    let mut moved = 0;
    each_task(&mut |program, target| {
        for sketch in space(program, target, Accuracy::Relaxed).sketches {
            let own = Space::of(vec![sketch]);
            let s = &own.sketches[0];
            let from = own.default_point();
            let to = own.mutate(&from, &mut rng);
            assert!(own.within_limits(&to));
            let pairs = from.values.iter().zip(&to.values).zip(&s.decisions);
            let changed: Vec<_> = pairs.filter(|((a, b), _)| a != b).collect();
            // One decision twice, or two once.
            let near = changed.iter().all(|((a, b), d)| {
                let near = d.kind.neighbours(**a);
                let twice = || near.iter().any(|n| d.kind.neighbours(*n).contains(b));
                near.contains(b) || changed.len() == 1 && twice()
            });
            assert!(changed.len() <= 2 && near, "{from:?} {to:?}");
            moved += usize::from(!changed.is_empty());
        }
    });
    assert!(moved > 100, "{moved}");
}

/// A softmax over an axis inside which few elements lie: no vector is shorter than that of the machine, in sums and
/// in what is done element by element.
#[test]
fn rows_shorter_than_a_vector_share_it() {
    for (outer, inner) in [(1, 8), (2, 4), (1, 2)] {
        let mut model = Model::new("softmax", 1);
        let x = model.add_input("x", DType::F32, &[outer, 256, inner]);
        let softmax = Op::Softmax(Softmax { axis: 1 });
        let y = model.add("softmax", softmax, &[x]).unwrap();
        model.add_output(y);
        for threads in 1..3 {
            let target = Target::generic(Isa::X86Avx512).with_threads(threads);
            let plan = plan(&model, &target, &LayoutPolicy::Plain.into()).unwrap();
            let program = &plan.tasks[0].program;
            for sketch in space(program, &target, Accuracy::Strict).sketches {
                let sums = sketch.name == "nest.sums";
                let own = Space::of(vec![sketch]);
                let candidate = own.candidate(program, &own.default_point()).unwrap();
                let scheduled = schedule::replay(program, &candidate.trace).unwrap();
                let difference = compare(&output(&scheduled), &output(program));
                assert!(difference.within(1e-6), "{difference:?}");
                let wide = |l: &ir::LoopId| {
                    let l = scheduled.loop_(*l);
                    l.kind == LoopKind::Vectorized && l.extent == 16
                };
                let wide = scheduled.loop_ids().into_iter().filter(wide).count();
                // `e` and `out`, and a sum and its start of `max` and of `sum`.
                assert!(!sums || wide >= 4, "{wide}");
            }
        }
    }
}
