//! Traces: replay, decisions and the text form.

mod judge;

use ir::{Axis, Scope};
use judge::{loops_of, matmul, named};
use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
use proptest::{collection::vec, option, sample};
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

fn step() -> impl Strategy<Value = Step> {
    let axis = sample::select(vec![Axis::BlockX, Axis::BlockZ, Axis::ThreadY]);
    let loop_step = (0..6usize, name()).prop_map(|(kind, loop_)| match kind {
        0 => Step::Partition { loop_ },
        1 => Step::Unroll { loop_ },
        2 => Step::Vectorize { loop_ },
        3 => Step::Parallel { loop_ },
        4 => Step::Rfactor { loop_ },
        _ => Step::ComputeInline { block: loop_ },
    });
    let tiles = vec((0..4usize, arg()), 0..3);
    let pack = (name(), tiles, vec(0..6usize, 0..5));
    let annotate =
        (name(), arg()).prop_map(|(loop_, unroll_by)| Step::Annotate { loop_, unroll_by });
    let prefetch = (name(), name(), arg()).prop_map(|(buffer, loop_, distance)| Step::Prefetch {
        buffer,
        loop_,
        distance,
    });
    prop_oneof![
        (name(), factors()).prop_map(|(loop_, factors)| Step::Split { loop_, factors }),
        (name(), name()).prop_map(|(outer, inner)| Step::Fuse { outer, inner }),
        vec(name(), 0..4).prop_map(|loops| Step::Reorder { loops }),
        loop_step,
        (name(), axis).prop_map(|(loop_, axis)| Step::Bind { loop_, axis }),
        (name(), loop_arg()).prop_map(|(block, loop_)| Step::ComputeAt { block, loop_ }),
        (name(), loop_arg()).prop_map(|(block, loop_)| Step::ReverseComputeAt { block, loop_ }),
        name().prop_map(|block| Step::ReverseComputeInline { block }),
        data_step(),
        pack.prop_map(|(buffer, tiles, order)| Step::Pack {
            buffer,
            tiles,
            order
        }),
        prefetch,
        annotate,
        (name(), arg()).prop_map(|(block, tile)| Step::Winograd { block, tile }),
        (name(), name()).prop_map(|(block, buffer)| Step::Reindex { block, buffer }),
        (name(), arg()).prop_map(|(loop_, multiple)| Step::Pad { loop_, multiple }),
    ]
}

fn data_step() -> impl Strategy<Value = Step> {
    (0..5usize, name(), name(), 0..3usize, scope()).prop_map(
        |(kind, a, b, index, scope)| match kind {
            0 => Step::CacheRead {
                block: a,
                buffer: b,
                scope,
            },
            1 => Step::CacheWrite {
                block: a,
                index,
                scope,
            },
            2 => Step::SetScope { buffer: a, scope },
            3 => Step::DecomposeReduction { block: a, loop_: b },
            _ => Step::Tensorize {
                loop_: a,
                intrinsic: b,
            },
        },
    )
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
    fn steps_are_read_back_as_they_were(step in step()) {
        let text = step.to_string();
        assert_eq!(text.parse::<Step>(), Ok(step), "{text}");
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[a-z$\\[\\](),:=.\"_0-9 \n-]{0,60}") {
        let _ = parse(&text);
    }
}
