//! Traces: replay, decisions and the text form.

mod judge;

use ir::{Axis, Scope};
use judge::{loops_of, matmul, named};
use proptest::prelude::{BoxedStrategy, Just, Strategy, any, prop_oneof, proptest};
use proptest::{collection::vec, option, sample};
use schedule::steps::STEPS;
use schedule::{
    Arg, Decision, DecisionKind, Factor, HERE, LoopArg, Step, Trace, parse, print, replay,
};

const TILED: &str = "
; the inner tile is a vector
decision 0 tile_n perfect_tile(8, 2, max 4) = [2, 4]
decision 1 at compute_location(., mm.m.0, mm.n.0) = 1
decision 2 unroll categorical(1, 16) = 16
split mm.m [_, 2]
split mm.n $0
reorder mm.m.0 mm.n.0 mm.m.1 mm.k mm.n.1
reverse_compute_at out $1
annotate mm.k unroll_by $2
vectorize mm.n.1
";

#[test]
fn a_trace_is_replayed_with_its_decisions() {
    let program = matmul(6, 8, 5);
    let mut trace = parse(TILED).expect("a trace");
    let p = replay(&program, &trace).expect("legal");
    assert_eq!(loops_of(&p, "out"), named(&[("out.m", 2), ("out.n", 8)]));
    trace.decisions[1].value = vec![2];
    trace.decisions[0].value = vec![4, 2];
    let p = replay(&program, &trace).expect("legal");
    assert_eq!(loops_of(&p, "out"), named(&[("out.m", 2), ("out.n", 2)]));
    trace.decisions[1].value = vec![0];
    let p = replay(&program, &trace).expect("legal");
    assert_eq!(loops_of(&p, "out"), named(&[("out.m", 6), ("out.n", 8)]));
    let again = replay(&program, &parse(&print(&trace)).expect("its own text"));
    assert_eq!(again, Ok(p));
}

#[test]
fn a_refused_step_is_named() {
    let trace = parse("split mm.m [_, 2]\nparallel mm.k").expect("a trace");
    let error = replay(&matmul(6, 8, 5), &trace).expect_err("mm.k reduces");
    assert_eq!(
        (error.step_index, error.step.as_str()),
        (1, "parallel mm.k")
    );
    assert_eq!(error.illegal.at, "mm.k");
    let text = error.to_string();
    assert!(
        text.starts_with("step 1 of the trace, `parallel mm.k`, is refused"),
        "{text}"
    );
    let missing = Trace {
        steps: vec![Step::Split {
            loop_: "mm.m".into(),
            factors: vec![Factor::Rest, Factor::Arg(Arg::Decision { id: 4, part: 0 })],
        }],
        decisions: vec![],
    };
    let error = replay(&matmul(6, 8, 5), &missing).expect_err("no decision 4");
    assert!(error.illegal.reason.contains("no decision 4"));
}

#[test]
fn wrong_text_is_refused_with_its_line() {
    for (text, line, why) in [
        (
            "decision 0 t perfect_tile(8, 2, max 4) = [3, 4]",
            1,
            "not a value",
        ),
        ("decision 1 t categorical(1) = 1", 1, "decision 0, not 1"),
        ("decision 0 t lottery(1) = 1", 1, "no kind of decision"),
        ("\nsplit x $0", 2, "no perfect_tile decision 0"),
        ("split x [$0.1]", 1, "no decision 0"),
        ("splat x", 1, "no step `splat`"),
        ("split x", 1, "missing at the end, in `split LOOP"),
        ("bind x block.q", 1, "none of block.x"),
        ("unroll x y", 1, "too much"),
        ("cache_write b -1 local", 1, "negative"),
        ("unroll \"x", 1, "no end"),
        ("unroll ?", 1, "no meaning"),
        ("split x [99999999999999999999]", 1, "not an integer"),
        ("split x [$a]", 1, "not a decision"),
    ] {
        let error = parse(text).expect_err(text);
        assert_eq!(error.line, line, "{text}");
        assert!(error.message.contains(why), "{text}: {}", error.message);
    }
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z_][a-z0-9_.&~]{0,6}",
        Just("decision".to_string()),
        "[ -~\n\u{e9}]{0,5}",
    ]
}

fn arg() -> impl Strategy<Value = Arg> {
    let decision = (0..2usize, 0..3usize);
    prop_oneof![
        any::<i64>().prop_map(Arg::Lit),
        decision.prop_map(|(id, part)| Arg::Decision { id, part }),
    ]
}

fn factors() -> impl Strategy<Value = Vec<Factor>> {
    let whole = |part| Factor::Arg(Arg::Decision { id: 0, part });
    prop_oneof![
        vec(
            prop_oneof![Just(Factor::Rest), arg().prop_map(Factor::Arg)],
            0..4
        ),
        Just((0..3).map(whole).collect()),
    ]
}

fn loop_arg() -> impl Strategy<Value = LoopArg> {
    prop_oneof![
        name().prop_map(LoopArg::Name),
        (0..2usize).prop_map(LoopArg::Decision),
    ]
}

fn scope() -> impl Strategy<Value = Scope> {
    sample::select(vec![
        Scope::Global,
        Scope::Local,
        Scope::Register,
        Scope::Shared,
        Scope::Warp,
    ])
}

/// Random steps of a kind.
fn of_kind(kind: &str) -> BoxedStrategy<Step> {
    let on_loop = |step: fn(String) -> Step| name().prop_map(step).boxed();
    match kind {
        "partition" => on_loop(|loop_| Step::Partition { loop_ }),
        "unroll" => on_loop(|loop_| Step::Unroll { loop_ }),
        "vectorize" => on_loop(|loop_| Step::Vectorize { loop_ }),
        "parallel" => on_loop(|loop_| Step::Parallel { loop_ }),
        "rfactor" => on_loop(|loop_| Step::Rfactor { loop_ }),
        "split" => (name(), factors())
            .prop_map(|(loop_, factors)| Step::Split { loop_, factors })
            .boxed(),
        "fuse" => (name(), name())
            .prop_map(|(outer, inner)| Step::Fuse { outer, inner })
            .boxed(),
        "reorder" => vec(name(), 0..4)
            .prop_map(|loops| Step::Reorder { loops })
            .boxed(),
        "bind" => {
            let axis = sample::select(vec![Axis::BlockX, Axis::BlockZ, Axis::ThreadY]);
            (name(), axis)
                .prop_map(|(loop_, axis)| Step::Bind { loop_, axis })
                .boxed()
        }
        "annotate" => (name(), arg())
            .prop_map(|(loop_, unroll_by)| Step::Annotate { loop_, unroll_by })
            .boxed(),
        "pad" => (name(), arg())
            .prop_map(|(loop_, multiple)| Step::Pad { loop_, multiple })
            .boxed(),
        "tensorize" => (name(), name())
            .prop_map(|(loop_, intrinsic)| Step::Tensorize { loop_, intrinsic })
            .boxed(),
        "prefetch" => (name(), name(), arg())
            .prop_map(|(buffer, loop_, distance)| Step::Prefetch {
                buffer,
                loop_,
                distance,
            })
            .boxed(),
        _ => of_block(kind),
    }
}

fn of_block(kind: &str) -> BoxedStrategy<Step> {
    match kind {
        "compute_at" => (name(), loop_arg())
            .prop_map(|(block, loop_)| Step::ComputeAt { block, loop_ })
            .boxed(),
        "reverse_compute_at" => (name(), loop_arg())
            .prop_map(|(block, loop_)| Step::ReverseComputeAt { block, loop_ })
            .boxed(),
        "compute_inline" => name()
            .prop_map(|block| Step::ComputeInline { block })
            .boxed(),
        "reverse_compute_inline" => name()
            .prop_map(|block| Step::ReverseComputeInline { block })
            .boxed(),
        "cache_read" => (name(), name(), scope())
            .prop_map(|(block, buffer, scope)| Step::CacheRead {
                block,
                buffer,
                scope,
            })
            .boxed(),
        "cache_write" => (name(), 0..3usize, scope())
            .prop_map(|(block, index, scope)| Step::CacheWrite {
                block,
                index,
                scope,
            })
            .boxed(),
        "set_scope" => (name(), scope())
            .prop_map(|(buffer, scope)| Step::SetScope { buffer, scope })
            .boxed(),
        "widen" => name().prop_map(|buffer| Step::Widen { buffer }).boxed(),
        "decompose_reduction" => (name(), name())
            .prop_map(|(block, loop_)| Step::DecomposeReduction { block, loop_ })
            .boxed(),
        "pack" => {
            let tiles = vec((0..4usize, arg()), 0..3);
            (name(), tiles, vec(0..6usize, 0..5))
                .prop_map(|(buffer, tiles, order)| Step::Pack {
                    buffer,
                    tiles,
                    order,
                })
                .boxed()
        }
        "reindex" => (name(), name())
            .prop_map(|(block, buffer)| Step::Reindex { block, buffer })
            .boxed(),
        "surround" => (name(), name())
            .prop_map(|(block, buffer)| Step::Surround { block, buffer })
            .boxed(),
        "winograd" => (name(), arg())
            .prop_map(|(block, tile)| Step::Winograd { block, tile })
            .boxed(),
        _ => panic!("nothing here makes random steps `{kind}`"),
    }
}

/// Random steps of all kinds.
fn step() -> impl Strategy<Value = Step> {
    sample::select(STEPS).prop_flat_map(|kind| of_kind(kind.name))
}

fn kind() -> impl Strategy<Value = DecisionKind> {
    let loops = vec(option::of(name()), 1..4)
        .prop_map(|l| l.into_iter().map(|n| n.unwrap_or(HERE.into())).collect());
    prop_oneof![
        (1..200i64, 1..5i64).prop_map(|(extent, most)| DecisionKind::PerfectTile {
            extent,
            parts: 3,
            max_innermost: most,
        }),
        vec(any::<i64>(), 1..4).prop_map(|options| DecisionKind::Categorical { options }),
        loops.prop_map(|loops| DecisionKind::ComputeLocation { loops }),
    ]
}

fn decision() -> impl Strategy<Value = Decision> {
    (name(), kind(), any::<u64>()).prop_map(|(name, kind, at)| {
        let first = Decision::new(name, kind).expect("it has values");
        first
            .from_index(at % first.cardinality())
            .expect("below the cardinality")
    })
}

proptest! {
    #[test]
    fn traces_are_read_back_as_they_were(
        decisions in vec(decision(), 2..4),
        steps in vec(step(), 0..5),
    ) {
        let trace = Trace { steps, decisions };
        let text = print(&trace);
        assert_eq!(parse(&text), Ok(trace), "{text}");
    }

    #[test]
    fn steps_of_every_kind_are_read_back_as_they_were(
        steps in STEPS.iter().map(|kind| of_kind(kind.name)).collect::<Vec<_>>(),
    ) {
        for (kind, step) in STEPS.iter().zip(steps) {
            assert_eq!(step.name(), kind.name);
            let text = step.to_string();
            assert_eq!(text.parse::<Step>(), Ok(step), "{text}");
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[a-z$\\[\\](),:=.\"_0-9 \n-]{0,60}") {
        let _ = parse(&text);
    }
}
