//! Compiled operators and models against the plain references: every built-in
//! operator, in both layouts, under its fallback, its default and random
//! schedules of every sketch, with one thread and with two.
//!
//! `TUNESMITH_POINTS` sets the number of random schedules of a sketch.

#[path = "../compiled/mod.rs"]
mod compiled;
mod extreme;
mod few_bits;
mod halves;
mod judge;
mod layers;
#[path = "../../../graph/tests/products/mod.rs"]
mod products;
mod quantised;
mod requantised;

use graph::builtin::{MODELS, OPERATORS};
use ir::{Isa, Target};
use judge::{Judge, conforms};
use onnx::ImportOptions;
use plan::Task;
use search::Accuracy;
use std::collections::HashSet;
use tunesmith::load;

macro_rules! operators {
    ($($name:ident: [$($arguments:literal),* $(,)?],)*) => {
        const COVERED: &[&str] = &[$(stringify!($name)),*];
        $(#[test]
        fn $name() {
            for arguments in [$($arguments),*] {
                conforms(&format!("op:{}({arguments})", stringify!($name)));
            }
        })*
    };
}

// Sizes are small, and few of them are multiples of vectors or tiles.
operators! {
    conv1d: [
        "n=2,c=6,w=19,k=10,s=3,bias=yes,activation=relu",
        "c=32,w=20,k=32,s=4,stride=2,pad=2,dilation=2",
        "c=6,w=19,k=10,s=3,bias=yes,layout=nchw",
        "c=24,w=13,k=40,s=3,layout=nhwc",
    ],
    conv2d: [
        "c=3,h=11,w=13,k=32,r=3,s=3,stride=2,bias=yes,activation=relu",
        "n=2,c=32,h=7,w=6,k=48,r=3,s=3,bias=yes,activation=relu",
        "c=16,h=5,w=8,k=32,r=1,s=1,pad=0,activation=sigmoid",
        "c=32,h=9,w=9,k=16,r=5,s=3,stride=2,pad=2,dilation=2",
        "c=10,h=6,w=7,k=9,r=3,s=3,bias=yes,layout=nchw",
        "n=2,c=5,h=6,w=16,k=16,r=3,s=2,stride=2,activation=gelu,layout=nhwc",
        "c=32,h=4,w=4,k=32,r=1,s=1,pad=1,bias=yes,layout=nhwc",
        // Tiles of several rows, of which the last is cut; blocks of channels that are not full.
        "c=32,h=7,w=7,k=32,r=1,s=1,pad=0,activation=relu",
        "c=24,h=13,w=13,k=40,r=3,s=3,bias=yes",
        "c=16,h=29,w=31,k=24,r=3,s=3,stride=2,activation=relu",
        "dtype=i8,c=32,h=9,w=14,k=48,r=3,s=3",
        "dtype=i8,n=2,c=20,h=7,w=6,k=24,r=3,s=1,stride=2",
        "dtype=i8,c=6,h=5,w=7,k=9,r=1,s=3,pad=0,layout=nhwc",
    ],
    conv3d: [
        "c=4,d=3,h=5,w=6,k=6,q=2,r=3,s=3,bias=yes,activation=relu",
        "c=16,d=4,h=4,w=5,k=16,q=3,r=1,s=2,stride=2",
        "c=20,d=3,h=4,w=5,k=24,layout=nchw",
        "c=3,d=3,h=5,w=6,k=20,stride=2,bias=yes,layout=blocked",
    ],
    grouped_conv2d: [
        "c=16,h=5,w=6,k=24,r=3,s=3,groups=4,bias=yes,activation=relu",
        "c=32,h=5,w=6,k=64,r=3,s=3,groups=2,stride=2",
        "c=12,h=5,w=5,k=6,r=2,s=3,groups=3,layout=nchw",
        "c=12,h=5,w=5,k=24,r=3,s=3,groups=3,layout=nhwc",
        // Groups that blocks hold several of, and part of one.
        "c=32,h=6,w=7,k=32,r=3,s=3,groups=8,bias=yes,activation=relu",
        "c=40,h=5,w=6,k=20,r=3,s=3,groups=20,stride=2",
        "c=24,h=5,w=6,k=48,r=3,s=3,groups=6",
        // Rows of several tiles, of which the last is cut; blocks that groups do not fill;
        // more channels in a group than one body has.
        "c=28,h=4,w=53,k=28,r=3,s=3,groups=7,bias=yes",
        "c=24,h=5,w=37,k=24,r=3,s=5,groups=3,stride=2,pad=2",
        "c=48,h=4,w=31,k=48,r=3,s=3,groups=6,dilation=2,pad=2",
        "c=20,h=4,w=43,k=40,r=3,s=3,groups=20",
        "c=155,h=4,w=5,k=155,r=3,s=3,groups=5",
    ],
    depthwise_conv2d: [
        "c=32,h=9,w=7,r=3,s=3,bias=yes,activation=relu",
        "n=2,c=16,h=9,w=9,r=3,s=5,stride=2,pad=2,dilation=2",
        "c=19,h=5,w=53,r=3,s=3",
        "c=16,h=5,w=47,r=3,s=7,stride=2,pad=3",
        "c=9,h=8,w=16,r=3,s=3,layout=nchw",
        "c=17,h=6,w=5,r=3,s=3,stride=2,bias=yes,layout=nhwc",
    ],
    conv1d_transpose: [
        "c=6,w=9,k=7,s=4,stride=2,bias=yes",
        "n=2,c=8,w=6,k=16,s=3,groups=2,stride=3,output_pad=1,activation=relu",
        "c=32,w=9,k=24,s=4,stride=2,pad=1,activation=relu",
    ],
    conv2d_transpose: [
        "c=6,h=5,w=4,k=7,r=4,s=3,stride=2,bias=yes,activation=relu",
        "c=16,h=4,w=5,k=16,r=3,s=3,dilation=2,pad=0",
        "c=16,h=4,w=5,k=32,r=4,s=4,stride=2,pad=1,bias=yes",
        "c=24,h=5,w=4,k=16,r=3,s=3,stride=2,pad=1",
        "c=32,h=3,w=4,k=32,r=2,s=2,stride=2,pad=0,groups=2,layout=nhwc",
        "c=16,h=4,w=3,k=20,r=3,s=3,stride=3,pad=0,layout=nchw",
        // Phases with different numbers of taps, or none, and results that end in a phase.
        "c=32,h=9,w=8,k=40,r=5,s=3,stride=2,pad=1,output_pad=1,bias=yes,activation=relu",
        "c=16,h=5,w=6,k=16,r=4,s=5,stride=3,pad=2,bias=yes",
        "c=16,h=5,w=4,k=24,r=3,s=4,stride=2,pad=1,dilation=2,bias=yes",
        "c=16,h=5,w=4,k=16,r=3,s=3,stride=2,pad=2,dilation=3,activation=relu",
        "c=8,h=6,w=5,k=3,r=3,s=3,stride=2,pad=1,output_pad=1,activation=relu",
    ],
    conv3d_transpose: [
        "c=3,d=2,h=3,w=4,k=5,q=2,r=3,s=3,stride=2,bias=yes",
        "c=16,d=2,h=3,w=2,k=24,stride=2",
    ],
    matmul: [
        "m=7,n=9,k=5,activation=relu",
        "m=33,n=64,k=24",
        "m=1,n=48,k=17",
    ],
    batch_matmul: [
        "b=3,m=5,n=7,k=6",
        "b=2,m=16,n=32,k=8,activation=gelu",
    ],
    dense: [
        "m=1,n=40,k=33,bias=yes,activation=relu",
        "m=13,n=64,k=32,bias=yes,activation=gelu",
        "m=6,n=10,k=8",
        "dtype=i8,m=13,n=72,k=36",
        "dtype=i8,m=1,n=40,k=64",
        "dtype=i8,m=7,n=5,k=33",
    ],
    contract: [
        "a=3,b=4,c=5,d=17,e=6",
        "spec=km,kn->mn,k=19,m=9,n=33",
        "spec=hic,jhc->jhi,c=16,h=3,i=7,j=5",
        "spec=ab,cd->cabd,a=3,b=5,c=2,d=9",
    ],
    correlation: ["n=2,c=5,h=3,w=4"],
    capsule_conv2d: ["n=2,c=3,h=5,w=6,k=5,stride=2"],
    attention: ["heads=2,n=9,d=5", "heads=3,n=16,d=8"],
    lstm_cell: ["n=3,x=7,hidden=5", "n=1,x=32,hidden=48"],
    softmax: [
        "rows=5,cols=7",
        "rows=6,cols=64",
        "rows=1,cols=33",
        "rows=7,cols=150",
        "rows=1,cols=512,inner=8",
        "rows=3,cols=50,inner=5",
    ],
    layer_norm: ["rows=5,cols=7", "rows=3,cols=96", "rows=4,cols=141"],
    group_norm: ["n=2,c=6,h=3,w=5,groups=3", "c=32,h=4,w=4,groups=4"],
    log_sum_exp: ["rows=5,cols=7", "rows=3,cols=64"],
    max_pool2d: [
        "c=32,h=9,w=8",
        "n=2,c=5,h=8,w=7,r=2,s=3,stride=1,pad=0",
        "c=16,h=9,w=9,r=3,s=2,stride=2,pad=1,dilation=2",
    ],
    max_pool3d: ["c=3,d=4,h=5,w=6", "n=2,c=16,d=3,h=4,w=7,q=1,s=2,stride=1"],
    avg_pool2d: [
        "c=32,h=9,w=8",
        "n=2,c=5,h=8,w=7,r=2,s=3,stride=1,pad=1",
    ],
    global_avg_pool2d: ["n=2,c=32,h=5,w=3", "c=5,h=4,w=4"],
    resize2d: [
        "c=19,h=6,w=9,to_h=12,to_w=18",
        "n=2,c=3,h=7,w=40,to_h=11,to_w=57,coordinates=align_corners",
        "c=5,h=9,w=33,to_h=4,to_w=17",
        "c=4,h=5,w=8,to_h=20,to_w=30,mode=cubic,coordinates=asymmetric",
        "c=4,h=5,w=34,to_h=10,to_w=68,mode=nearest",
    ],
    reduce_sum: ["rows=9,cols=50", "rows=1,cols=64", "rows=33,cols=32"],
    transpose: [
        "rows=9,cols=50",
        "rows=32,cols=16",
        "rows=1,cols=5",
        "rows=96,cols=160",
        "c=3,rows=7,cols=18,perm=102",
        "c=5,rows=16,cols=9,perm=021",
        "n=2,c=3,rows=5,cols=16,perm=0231",
    ],
    add: ["rows=9,cols=11,activation=sigmoid", "rows=4,cols=32", "rows=1,cols=1"],
    concat: ["n=2,c=5,h=3,w=4", "c=32,h=4,w=4"],
    gather: ["table=10,rows=7,cols=33", "table=12,rows=1,cols=5"],
    scatter_add: ["table=10,rows=31,cols=33", "table=12,rows=5,cols=1"],
    cumulative_sum: [
        "outer=3,n=17,inner=40",
        "outer=19,n=33,inner=1",
        "outer=1,n=9,inner=64",
        "outer=2,n=1,inner=3",
    ],
    top_k: [
        "rows=3,cols=40,k=7",
        "rows=2,cols=130,k=3",
        "rows=3,cols=700,k=9",
        "rows=5,cols=300,k=300",
        "rows=20,cols=70,k=2",
        "rows=1,cols=1000,k=400",
        "rows=2,cols=2300,k=140",
    ],
    suppress: [
        "classes=3,boxes=40,most=7",
        "classes=1,boxes=300,most=20",
        "classes=5,boxes=17,most=17",
        "classes=2,boxes=1,most=1",
    ],
}

#[test]
fn every_operator_is_covered() {
    let names: Vec<_> = OPERATORS.iter().map(|o| o.name).collect();
    assert_eq!(names, COVERED);
}

#[test]
fn squeezenet_gives_the_references_outputs() {
    let judge = Judge::new("squeezenet1.1");
    for setting in judge::settings() {
        judge.defaults(&setting);
    }
}

/// Every model for every instruction set, the numbers of threads in turns; all of them where
/// `TUNESMITH_POINTS` asks for more points.
#[test]
fn every_sketch_of_every_model_has_a_legal_default() {
    let (mut illegal, mut seen) = (Vec::new(), HashSet::new());
    for (m, info) in MODELS.iter().enumerate() {
        let source = load(info.name, &ImportOptions::default()).unwrap();
        for (i, isa) in Isa::ALL.into_iter().enumerate() {
            let every = judge::asks_for_more_points();
            let in_turn = |threads: &u32| every || (m + i) % 2 == *threads as usize % 2;
            for threads in [1, 2].into_iter().filter(in_turn) {
                let target = Target::generic(isa).with_threads(threads);
                let plan = source.plan(&target, Accuracy::Relaxed, &[]).unwrap();
                // Models have tasks in common.
                let seen_first = |t: &&Task| seen.insert((t.key.clone(), target.clone()));
                for task in plan.tasks.iter().filter(seen_first) {
                    illegal.extend(judge::space_of(task, &target).1);
                }
            }
        }
    }
    assert!(illegal.is_empty(), "{}", illegal.join("\n"));
}
