//! Importing never panics: every number of a node is replaced by extreme ones.
//!
//! Long: `subjects` is one table of nodes.

mod build_onnx;

use build_onnx::{F32, float, import, int, int64s, ints, node, one_node, text};
use graph::{Keep, evaluate, simplify};
use onnx::proto::{ModelProto, NodeProto, TensorProto};
use std::sync::Arc;
use tensor::Tensor;

/// Around the sizes, and beyond every limit.
const EXTREMES: [i64; 12] = [
    0,
    1,
    -1,
    2,
    3,
    -3,
    7,
    1 << 31,
    1 << 40,
    1 << 62,
    i64::MIN,
    i64::MAX,
];

/// Nodes with all the numbers that their importers read.
fn subjects() -> Vec<(i64, NodeProto)> {
    let window = || {
        vec![
            ints("kernel_shape", &[2, 2]),
            ints("strides", &[2, 1]),
            ints("dilations", &[1, 2]),
            ints("pads", &[1, 0, 0, 1]),
        ]
    };
    let with = |more: Vec<_>| [window(), more].concat();
    let x = &["x"][..];
    let y = &["y"][..];
    vec![
        (
            19,
            node("Conv", &["x", "w"], y, with(vec![int("group", 1)])),
        ),
        (
            19,
            node(
                "ConvTranspose",
                &["x", "w"],
                y,
                with(vec![ints("output_padding", &[0, 0])]),
            ),
        ),
        (
            19,
            node(
                "ConvTranspose",
                &["x", "w"],
                y,
                vec![ints("output_shape", &[8, 8])],
            ),
        ),
        (
            19,
            node("MaxPool", x, &["y", "i"], with(vec![int("ceil_mode", 1)])),
        ),
        (
            19,
            node("AveragePool", x, y, with(vec![int("count_include_pad", 1)])),
        ),
        (
            19,
            node(
                "MaxPool",
                x,
                y,
                vec![
                    ints("kernel_shape", &[3, 3]),
                    text("auto_pad", "SAME_UPPER"),
                ],
            ),
        ),
        (19, node("Softmax", x, y, vec![int("axis", 1)])),
        (11, node("Softmax", x, y, vec![int("axis", 1)])),
        (
            19,
            node("LRN", x, y, vec![int("size", 3), float("beta", 1.0)]),
        ),
        (
            19,
            node("LayerNormalization", &["x", "one"], y, vec![int("axis", 2)]),
        ),
        (19, node("Concat", &["x", "x"], y, vec![int("axis", 1)])),
        (
            12,
            node(
                "Split",
                x,
                &["y", "z"],
                vec![int("axis", 1), ints("split", &[1, 1])],
            ),
        ),
        (
            19,
            node(
                "Split",
                x,
                &["y", "z"],
                vec![int("axis", 1), int("num_outputs", 2)],
            ),
        ),
        (
            9,
            node(
                "Slice",
                x,
                y,
                vec![ints("starts", &[1]), ints("ends", &[3]), ints("axes", &[2])],
            ),
        ),
        (19, node("Slice", &["x", "s4", "s1", "s2", "s3"], y, vec![])),
        (
            19,
            node("Pad", &["x", "pads"], y, vec![text("mode", "reflect")]),
        ),
        (
            19,
            node("Pad", &["x", "pads"], y, vec![text("mode", "wrap")]),
        ),
        (19, node("Pad", &["x", "pads"], y, vec![])),
        (
            19,
            node("Reshape", &["x", "shape"], y, vec![int("allowzero", 0)]),
        ),
        (19, node("Expand", &["x", "shape"], y, vec![])),
        (19, node("Tile", &["x", "shape"], y, vec![])),
        (19, node("ConstantOfShape", &["shape"], y, vec![])),
        (19, node("Range", &["s1", "s2", "s3"], y, vec![])),
        (19, node("Flatten", x, y, vec![int("axis", 2)])),
        (12, node("Squeeze", x, y, vec![ints("axes", &[0])])),
        (12, node("Unsqueeze", x, y, vec![ints("axes", &[0, 2])])),
        (
            19,
            node("Transpose", x, y, vec![ints("perm", &[0, 2, 3, 1])]),
        ),
        (19, node("Gather", &["x", "s1"], y, vec![int("axis", 2)])),
        (
            19,
            node("ReduceSum", &["x", "s1"], y, vec![int("keepdims", 0)]),
        ),
        (19, node("ArgMax", x, y, vec![int("axis", 2)])),
        (
            19,
            node("Shape", x, y, vec![int("start", 1), int("end", 3)]),
        ),
        (19, node("DepthToSpace", x, y, vec![int("blocksize", 1)])),
        (
            21,
            node(
                "GroupNormalization",
                &["x", "two", "two"],
                y,
                vec![int("num_groups", 1)],
            ),
        ),
        (19, node("Cast", x, y, vec![int("to", 7)])),
    ]
}

fn constants() -> Vec<TensorProto> {
    let floats = |name: &str, dims: &[i64]| TensorProto {
        name: Some(name.into()),
        dims: dims.to_vec(),
        data_type: Some(F32),
        float_data: vec![1.0; dims.iter().product::<i64>() as usize],
        ..Default::default()
    };
    vec![
        int64s("s1", &[1]),
        int64s("s2", &[2]),
        int64s("s3", &[3]),
        int64s("s4", &[0]),
        int64s("pads", &[0, 0, 1, 1, 0, 0, 1, 1]),
        int64s("shape", &[1, 2, 4, 4]),
        floats("w", &[2, 2, 2, 2]),
        floats("one", &[1]),
        floats("two", &[2]),
    ]
}

/// Imports and, if that works, simplifies and runs; true if it worked.
fn works(model: &ModelProto) -> bool {
    let Ok(m) = import(model) else { return false };
    m.verify().unwrap();
    let s = simplify(&m);
    s.verify().unwrap();
    let elements: usize = s.values().map(|(_, v)| v.ty().len()).sum();
    if elements < 1 << 20 {
        let inputs: Vec<_> = s
            .inputs()
            .iter()
            .map(|v| Arc::new(Tensor::zeros(s[*v].dtype(), s[*v].shape())))
            .collect();
        // Values may be refused (an index out of range); shapes may not.
        let _ = evaluate(&s, &inputs, Keep::Outputs);
    }
    true
}

#[test]
fn extreme_attributes_and_operands() {
    let mut worked = 0;
    for (opset, node) in subjects() {
        let model = one_node(opset, &[1, 2, 4, 4], node, constants());
        assert!(works(&model), "{:?}", import(&model));
        let graph = model.graph.as_ref().unwrap();
        for extreme in EXTREMES {
            for (a, attribute) in graph.node[0].attribute.iter().enumerate() {
                for i in 0..attribute.ints.len().max(1) {
                    let mut changed = model.clone();
                    let target = &mut changed.graph.as_mut().unwrap().node[0].attribute[a];
                    match (target.i.as_mut(), target.f.as_mut(), target.ints.get_mut(i)) {
                        (Some(v), _, _) | (_, _, Some(v)) => *v = extreme,
                        (_, Some(v), _) => *v = extreme as f32,
                        _ => continue,
                    }
                    worked += usize::from(works(&changed));
                }
            }
            let read = |t: &TensorProto| graph.node[0].input.iter().any(|i| i == t.name());
            for (c, constant) in graph
                .initializer
                .iter()
                .enumerate()
                .filter(|(_, t)| read(t))
            {
                for i in 0..constant.int64_data.len() {
                    let mut changed = model.clone();
                    changed.graph.as_mut().unwrap().initializer[c].int64_data[i] = extreme;
                    worked += usize::from(works(&changed));
                }
            }
            for d in 0..4 {
                let mut changed = model.clone();
                let shape = [1, 2, 4, 4]
                    .iter()
                    .enumerate()
                    .map(|(i, n)| if i == d { extreme } else { *n });
                let shape: Vec<i64> = shape.collect();
                changed.graph.as_mut().unwrap().input[0] = build_onnx::known("x", F32, &shape);
                worked += usize::from(works(&changed));
            }
        }
    }
    assert!(worked > 500, "{worked} variants worked");
}

#[test]
fn sums_of_attributes_that_overflow() {
    // Wrapped, the sizes are those of the axis, and the pads leave all but one element.
    let sizes = [i64::MAX, i64::MAX, 4];
    let pads = [0, 0, 0, i64::MIN, 0, 0, 0, i64::MAX];
    let split = node(
        "Split",
        &["x"],
        &["y", "z", "w"],
        vec![int("axis", 1), ints("split", &sizes)],
    );
    let pad = node("Pad", &["x"], &["y"], vec![ints("pads", &pads)]);
    for (opset, node) in [(11, split), (2, pad)] {
        assert!(!works(&one_node(opset, &[1, 2, 4, 4], node, vec![])));
    }
}
