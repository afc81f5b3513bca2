//! The sketch *channels*: shuffles, slices and concatenations of channels in blocks have
//! it first, and it keeps what they compute.

use graph::ops::{Concat, Conv, Op, Reshape, Split, Transpose};
use graph::{Model, ValueId};
use ir::{CpuTarget, Isa, Program, Target};
use plan::{LayoutPolicy, plan};
use search::{Accuracy, space};
use tensor::{DType, Fill, Tensor, fill_tensor};

fn filled(shape: &[usize], seed: u64) -> Tensor {
    fill_tensor(DType::F32, shape, Fill::Uniform { lo: -2.0, hi: 2.0 }, seed)
}

/// A unit as ShuffleNet has it: the second part is convolved, and the channels of both
/// parts alternate.
fn unit(batch: usize, parts: [usize; 2]) -> Model {
    let channels = parts[0] + parts[1];
    let mut m = Model::new("unit", 0);
    let conv = |m: &mut Model, x: ValueId, maps: usize| {
        let w = m.add_constant("w", filled(&[maps, m[x].shape()[1], 1, 1], 3));
        m.add("conv", Op::Conv(Conv::unit(2)), &[x, w]).unwrap()
    };
    let x = m.add_input("x", DType::F32, &[batch, 8, 3, 5]);
    let x = conv(&mut m, x, channels);
    let sizes = parts.to_vec();
    let split = Op::Split(Split { axis: 1, sizes });
    let halves = m.add_node("split", split, &[Some(x)]).unwrap();
    let y = conv(&mut m, halves[1], parts[1]);
    let concat = Op::Concat(Concat { axis: 1 });
    let x = m.add("concat", concat, &[halves[0], y]).unwrap();
    let shape = vec![batch, 2, channels / 2, 3, 5];
    let x = m
        .add("pairs", Op::Reshape(Reshape { shape }), &[x])
        .unwrap();
    let perm = vec![0, 2, 1, 3, 4];
    let x = m
        .add("swap", Op::Transpose(Transpose { perm }), &[x])
        .unwrap();
    let shape = vec![batch, channels, 3, 5];
    let x = m
        .add("image", Op::Reshape(Reshape { shape }), &[x])
        .unwrap();
    let x = conv(&mut m, x, 16);
    m.add_output(x);
    m
}

fn output(program: &Program) -> Tensor {
    let argument = |(seed, b): (usize, &ir::BufferId)| {
        let shape = program.buffer(*b).shape.iter().map(|n| *n as usize);
        filled(&shape.collect::<Vec<_>>(), seed as u64)
    };
    let mut args: Vec<Tensor> = program.params.iter().enumerate().map(argument).collect();
    ir::interpret::run(program, &mut args).unwrap();
    args.pop().expect("an output")
}

#[test]
fn channels_that_change_places_keep_their_values() {
    for (batch, parts) in [(1, [29, 29]), (2, [17, 23]), (1, [5, 21])] {
        // Without vectors there are no blocks of channels.
        let blocked = |i: &Isa| CpuTarget::generic(*i).vector_bits > 0;
        let all = Isa::ALL.into_iter().filter(blocked);
        for (isa, threads) in all.flat_map(|i| [(i, 1), (i, 2)]) {
            let target = Target::generic(isa).with_threads(threads);
            let model = unit(batch, parts);
            let plan = plan(&model, &target, &LayoutPolicy::Blocked.into()).unwrap();
            let moves: Vec<_> = plan.tasks.iter().filter(|t| t.op == "move").collect();
            assert!(moves.len() >= 2, "{plan}");
            for program in moves.iter().map(|t| &t.program) {
                let space = space(program, &target, Accuracy::Strict);
                assert!(space.refused.is_empty(), "{:?}", space.refused);
                let own = space.sketches.iter().find(|s| s.name == "channels");
                assert!(own.is_some() && space.sketches[0].name.starts_with("channels"));
                let candidate = space.candidate(program, &space.default_point()).unwrap();
                let scheduled = schedule::replay(program, &candidate.trace).unwrap();
                assert_eq!(output(&scheduled).bytes(), output(program).bytes());
            }
        }
    }
}
