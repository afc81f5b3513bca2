//! Sizes and numbers of iterations that the data decide, within bounds that a model sets, against the reading of the
//! operators' specifications in f64.

mod build_onnx;

use build_onnx::{
    F32, I64, file, floats, import, int, int64s, known, node, scalar, text, undeclared,
};
use graph::{Keep, evaluate, simplify};
use onnx::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto};
use std::sync::Arc;
use tensor::Tensor;

/// A model of `x` [6], and of `z`, a number that it clips to 0 to 5 and makes the size `k` [1].
fn model(nodes: Vec<NodeProto>, outputs: &[&str], constants: Vec<TensorProto>) -> ModelProto {
    let mut all = vec![
        node("Clip", &["z", "least", "most"], &["clipped"], vec![]),
        node("Cast", &["clipped"], &["k"], vec![int("to", 7)]),
        node("Squeeze", &["k", "first"], &["number"], vec![]),
        node("Less", &["places", "k"], &["below"], vec![]),
        node("Compress", &["x", "below"], &["kept"], vec![int("axis", 0)]),
    ];
    all.extend(nodes);
    let mut own = vec![
        floats("least", &[], &[0.0]),
        floats("most", &[], &[5.0]),
        int64s("first", &[0]),
        int64s("places", &[0, 1, 2, 3, 4, 5]),
    ];
    own.extend(constants);
    let graph = GraphProto {
        name: Some("g".into()),
        node: all,
        input: vec![known("x", F32, &[6]), known("z", F32, &[1])],
        output: outputs.iter().map(|o| undeclared(o)).collect(),
        initializer: own,
        ..Default::default()
    };
    file(17, graph)
}

const X: [f32; 6] = [3.0, 1.0, 4.0, 1.5, 9.0, 2.0];

/// The results, which simplifying does not change.
fn results(model: &ModelProto, z: f32) -> Vec<Arc<Tensor>> {
    let m = import(model).unwrap();
    m.verify().unwrap();
    let inputs = [Tensor::from_slice(&[6], &X), Tensor::from_slice(&[1], &[z])].map(Arc::new);
    let run = |m| evaluate(m, &inputs, Keep::Outputs).unwrap().results();
    let (plain, simple) = (run(&m), run(&simplify(&m)));
    assert_eq!(plain, simple);
    plain
}

fn is(t: &Tensor, shape: &[usize], values: &[f64]) {
    assert_eq!(t.shape(), shape);
    let own: Vec<f64> = (0..t.len()).map(|i| t.get_f64(i)).collect();
    let near = own
        .iter()
        .zip(values)
        .all(|(a, b)| (a - b).abs() < 1e-5 * (1.0 + b.abs()));
    assert!(
        near && own.len() == values.len(),
        "{own:?} is not {values:?}"
    );
}

/// What `z` stands for, with the size that comes of it.
const SIZES: [(f32, usize); 6] = [
    (-3.0, 0),
    (0.0, 0),
    (1.9, 1),
    (3.0, 3),
    (70.0, 5),
    (f32::NAN, 0),
];

fn graph(inputs: &[&str], nodes: Vec<NodeProto>, outputs: &[&str]) -> AttributeProto {
    let g = GraphProto {
        name: Some("body".into()),
        node: nodes,
        input: inputs.iter().map(|i| undeclared(i)).collect(),
        output: outputs.iter().map(|o| undeclared(o)).collect(),
        ..Default::default()
    };
    AttributeProto {
        name: Some("body".into()),
        g: Some(g),
        r#type: Some(5),
        ..Default::default()
    }
}

#[test]
fn a_clipped_number_is_a_size() {
    // 2 k - 3, which may be negative and is no size then; k + 1, as a shape of two parts.
    let nodes = vec![
        node("Mul", &["number", "two"], &["double"], vec![]),
        node("Sub", &["double", "three"], &["less"], vec![]),
        node("Range", &["zero", "less", "one"], &["range"], vec![]),
        node("Add", &["k", "row"], &["more"], vec![]),
        node("Concat", &["row", "more"], &["shape"], vec![int("axis", 0)]),
        node("Expand", &["two", "shape"], &["spread"], vec![]),
        node("ReduceSum", &["spread"], &["sum"], vec![int("keepdims", 0)]),
    ];
    let number = |name, v| scalar(name, v);
    let constants = vec![
        number("two", 2),
        number("three", 3),
        number("zero", 0),
        number("one", 1),
        int64s("row", &[1]),
    ];
    let m = model(nodes, &["range", "spread", "sum"], constants);
    for (z, k) in SIZES {
        let r = results(&m, z);
        let size = (2 * k).saturating_sub(3);
        let counted: Vec<f64> = (0..size).map(|i| i as f64).collect();
        is(&r[0], &[size], &counted);
        is(&r[1], &[1, k + 1], &vec![2.0; k + 1]);
        is(&r[2], &[], &[2.0 * (k + 1) as f64]);
    }
}

#[test]
fn a_loop_appends_as_often_as_the_data_say() {
    // Iteration i appends [x[i], i] to the state, which is [[7, 7]] at first, and adds x[i] to a number.
    let mut body = vec![
        node("Gather", &["x", "i"], &["element"], vec![]),
        node("Unsqueeze", &["element", "first"], &["a"], vec![]),
        node("Cast", &["i"], &["at"], vec![int("to", 1)]),
        node("Unsqueeze", &["at", "first"], &["b"], vec![]),
        node("Concat", &["a", "b"], &["pair"], vec![int("axis", 0)]),
        node("Unsqueeze", &["pair", "first"], &["row"], vec![]),
        node("Cast", &["rows"], &["same"], vec![int("to", 1)]),
        node("Concat", &["same", "row"], &["more"], vec![int("axis", 0)]),
        node("Add", &["total", "element"], &["sum"], vec![]),
        node("Identity", &["going"], &["on"], vec![]),
    ];
    // A body that reads the rows elsewhere, too, cannot leave the appending for later.
    for reads in [false, true] {
        if reads {
            body[8] = node("ReduceMax", &["more"], &["sum"], vec![int("keepdims", 0)]);
        }
        let attribute = graph(
            &["i", "going", "rows", "total"],
            body.clone(),
            &["on", "more", "sum", "pair"],
        );
        let nodes = vec![
            node(
                "Loop",
                &["number", "", "rows0", "total0"],
                &["all", "last", "pairs"],
                vec![attribute],
            ),
            node("Shape", &["all"], &["size"], vec![]),
        ];
        let constants = vec![
            floats("rows0", &[1, 2], &[7.0, 7.0]),
            floats("total0", &[], &[0.0]),
        ];
        let m = model(nodes, &["all", "last", "pairs", "size"], constants);
        for (z, k) in SIZES {
            let r = results(&m, z);
            let pairs = (0..k).flat_map(|i| [f64::from(X[i]), i as f64]);
            let pairs: Vec<f64> = pairs.collect();
            is(&r[0], &[k + 1, 2], &[&[7.0, 7.0], &pairs[..]].concat());
            let last = match (reads, k) {
                (_, 0) => 0.0,
                (true, _) => pairs.iter().copied().fold(7.0, f64::max),
                (false, _) => X[..k].iter().map(|x| f64::from(*x)).sum(),
            };
            is(&r[1], &[], &[last]);
            is(&r[2], &[k, 2], &pairs);
            is(&r[3], &[2], &[(k + 1) as f64, 2.0]);
        }
    }
}

#[test]
fn a_loop_ends_by_its_number_or_by_its_condition() {
    // While the sum of x[0..=i] is below 6, at most k times: after three iterations, of which the last makes 8.
    let body = vec![
        node("Gather", &["x", "i"], &["element"], vec![]),
        node("Add", &["total", "element"], &["sum"], vec![]),
        node("Less", &["sum", "six"], &["on"], vec![]),
        node("Unsqueeze", &["sum", "first"], &["row"], vec![]),
        node("Concat", &["rows", "row"], &["more"], vec![int("axis", 0)]),
    ];
    let attribute = graph(
        &["i", "going", "total", "rows"],
        body,
        &["on", "sum", "more"],
    );
    let nodes = vec![node(
        "Loop",
        &["number", "", "total0", "rows0"],
        &["last", "all"],
        vec![attribute],
    )];
    let constants = vec![
        floats("six", &[], &[6.0]),
        floats("total0", &[], &[0.0]),
        floats("rows0", &[0], &[]),
    ];
    let m = model(nodes, &["last", "all"], constants);
    let sums = [3.0, 4.0, 8.0];
    for (z, k) in SIZES {
        let ran = &sums[..k.min(3)];
        let r = results(&m, z);
        is(&r[0], &[], &[ran.last().copied().unwrap_or(0.0)]);
        is(&r[1], &[ran.len()], ran);
    }
}

#[test]
fn iterations_and_branches_that_do_not_run_do_no_harm() {
    // The bound of the number is 5. An iteration reads y[i] of three elements, and divides by 3 - i.
    let body = vec![
        node("Gather", &["y", "i"], &["element"], vec![]),
        node("Sub", &["three", "i"], &["by"], vec![]),
        node("Div", &["twelve", "by"], &["part"], vec![]),
        node("Cast", &["part"], &["number_of"], vec![int("to", 1)]),
        node("Mul", &["element", "number_of"], &["product"], vec![]),
        node("Add", &["total", "product"], &["sum"], vec![]),
        node("Identity", &["going"], &["on"], vec![]),
    ];
    let attribute = graph(&["i", "going", "total"], body, &["on", "sum"]);
    // x[10 number] where the number is 0; else x[number].
    let branch = |name: &str, index: &str| {
        let taken = node("Gather", &["x", index], &["taken"], vec![]);
        AttributeProto {
            name: Some(name.into()),
            ..graph(&[], vec![taken], &["taken"])
        }
    };
    let nodes = vec![
        node(
            "Loop",
            &["number", "", "total0"],
            &["last"],
            vec![attribute],
        ),
        node("Less", &["number", "one"], &["none"], vec![]),
        node("Mul", &["number", "ten"], &["far"], vec![]),
        node(
            "If",
            &["none"],
            &["chosen"],
            vec![
                branch("then_branch", "far"),
                branch("else_branch", "number"),
            ],
        ),
    ];
    let constants = vec![
        floats("y", &[3], &[1.0, 2.0, 4.0]),
        scalar("three", 3),
        scalar("twelve", 12),
        scalar("one", 1),
        scalar("ten", 10),
        floats("total0", &[], &[0.0]),
    ];
    let m = model(nodes, &["last", "chosen"], constants);
    // 1 * 12/3 + 2 * 12/2 + 4 * 12/1.
    let sums = [0.0, 4.0, 16.0, 64.0];
    for (z, k) in SIZES.into_iter().filter(|s| s.1 <= 3) {
        let r = results(&m, z);
        is(&r[0], &[], &[sums[k]]);
        is(&r[1], &[], &[f64::from(X[k])]);
    }
}

/// Where element `i` of `size` lies on an axis of `n`.
fn position(word: &str, i: usize, size: usize, n: usize) -> f64 {
    let (i, size, n) = (i as f64, size as f64, n as f64);
    match word {
        "half_pixel" => (i + 0.5) * n / size - 0.5,
        "pytorch_half_pixel" if size <= 1.0 => 0.0,
        "pytorch_half_pixel" => (i + 0.5) * n / size - 0.5,
        "asymmetric" => i * n / size,
        _ if size <= 1.0 => 0.0,
        _ => i * (n - 1.0) / (size - 1.0),
    }
}

fn sampled(mode: &str, rounding: &str, place: f64) -> f64 {
    let at = |i: f64| f64::from(X[i.clamp(0.0, 5.0) as usize]);
    let (floor, t) = (place.floor(), place - place.floor());
    match (mode, rounding) {
        ("linear", _) => at(floor) * (1.0 - t) + at(floor + 1.0) * t,
        ("cubic", _) => {
            // Keys' kernel with a = -0.75.
            let a = -0.75;
            let weight = |d: f64| match d.abs() {
                d if d <= 1.0 => (a + 2.0) * d.powi(3) - (a + 3.0) * d.powi(2) + 1.0,
                d => a * d.powi(3) - 5.0 * a * d.powi(2) + 8.0 * a * d - 4.0 * a,
            };
            let tap = |i: f64| at(floor + i) * weight(t - i);
            tap(-1.0) + tap(0.0) + tap(1.0) + tap(2.0)
        }
        (_, "floor") => at(floor),
        (_, "ceil") => at(place.ceil()),
        (_, "round_prefer_floor") => at((place - 0.5).ceil()),
        _ => at((place + 0.5).floor()),
    }
}

#[test]
fn sizes_of_a_resizing_may_be_computed() {
    let roundings = ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"];
    let modes = [("linear", "floor"), ("cubic", "floor")];
    let nearest = roundings.map(|r| ("nearest", r));
    for word in [
        "half_pixel",
        "pytorch_half_pixel",
        "asymmetric",
        "align_corners",
    ] {
        for (mode, rounding) in modes.iter().chain(&nearest) {
            let attributes = vec![
                text("mode", mode),
                text("nearest_mode", rounding),
                text("coordinate_transformation_mode", word),
            ];
            let nodes = vec![
                node("Unsqueeze", &["x", "outer"], &["image"], vec![]),
                node("Add", &["k", "k"], &["double"], vec![]),
                node(
                    "Concat",
                    &["ones", "double"],
                    &["sizes"],
                    vec![int("axis", 0)],
                ),
                node("Resize", &["image", "", "", "sizes"], &["y"], attributes),
                node("ReduceMax", &["y"], &["max"], vec![int("keepdims", 0)]),
            ];
            let constants = vec![int64s("outer", &[0, 1]), int64s("ones", &[1, 1])];
            let m = model(nodes, &["y", "max"], constants);
            for (z, k) in SIZES.into_iter().filter(|s| s.1 > 0) {
                let place = |i| position(word, i, 2 * k, 6);
                let right = (0..2 * k).map(|i| sampled(mode, rounding, place(i)));
                let right: Vec<f64> = right.collect();
                let r = results(&m, z);
                is(&r[0], &[1, 1, 2 * k], &right);
                is(
                    &r[1],
                    &[],
                    &[right.iter().copied().fold(f64::MIN, f64::max)],
                );
            }
        }
    }
}

#[test]
fn what_is_live_is_tiled_padded_and_split() {
    let nodes = vec![
        node("Tile", &["kept", "three"], &["thrice"], vec![]),
        node("Tile", &["kept", "k"], &["square"], vec![]),
        node("Pad", &["kept", "pads", "eight"], &["padded"], vec![]),
        node("Pad", &["kept", "cuts", "eight"], &["cut"], vec![]),
        node("Split", &["kept"], &["a", "b"], vec![int("axis", 0)]),
        node("Sub", &["six", "k"], &["rest"], vec![]),
        node("Concat", &["k", "rest"], &["sizes"], vec![int("axis", 0)]),
        node("Split", &["x", "sizes"], &["c", "d"], vec![int("axis", 0)]),
    ];
    let constants = vec![
        int64s("three", &[3]),
        int64s("pads", &[1, 2]),
        int64s("cuts", &[-1, 1]),
        floats("eight", &[], &[8.0]),
        int64s("six", &[6]),
    ];
    let outputs = ["thrice", "square", "padded", "cut", "a", "b", "c", "d"];
    let m = model(nodes, &outputs, constants);
    for (z, k) in SIZES {
        let r = results(&m, z);
        let all = X.map(f64::from);
        let kept = &all[..k];
        is(&r[0], &[3 * k], &kept.repeat(3));
        is(&r[1], &[k * k], &kept.repeat(k));
        is(&r[2], &[k + 3], &[&[8.0], kept, &[8.0, 8.0]].concat());
        if k > 0 {
            is(&r[3], &[k], &[&kept[1..], &[8.0]].concat());
        }
        // Equal parts are of an even number.
        if k % 2 == 0 {
            is(&r[4], &[k / 2], &kept[..k / 2]);
            is(&r[5], &[k / 2], &kept[k / 2..]);
        }
        is(&r[6], &[k], kept);
        is(&r[7], &[6 - k], &all[k..]);
    }
}

/// Another operand gives the type alone, also where the data decide its size; its rank may be any.
#[test]
fn a_live_operand_gives_its_type() {
    let nodes = vec![
        node("Cast", &["kept"], &["integers"], vec![int("to", 7)]),
        node("CastLike", &["half", "integers"], &["zero"], vec![]),
        node("CastLike", &["kept", "first"], &["whole"], vec![]),
    ];
    let constants = vec![floats("half", &[], &[-0.5])];
    let m = model(nodes, &["zero", "whole"], constants);
    for (z, k) in SIZES {
        let r = results(&m, z);
        is(&r[0], &[], &[0.0]);
        is(
            &r[1],
            &[k],
            &X[..k]
                .iter()
                .map(|x| f64::from(x.trunc()))
                .collect::<Vec<_>>(),
        );
    }
}

#[test]
fn live_axes_become_one() {
    // kept[i] + 10 j for j below k + 1, in a row; and the place of its largest element.
    let nodes = vec![
        node("Add", &["number", "one"], &["columns"], vec![]),
        node("Range", &["zero", "columns", "one"], &["j"], vec![]),
        node("Cast", &["j"], &["jf"], vec![int("to", 1)]),
        node("Mul", &["jf", "ten"], &["tens"], vec![]),
        node("Unsqueeze", &["kept", "last"], &["rows"], vec![]),
        node("Add", &["rows", "tens"], &["table"], vec![]),
        node("Unsqueeze", &["table", "first"], &["one_table"], vec![]),
        node("Reshape", &["one_table", "flat"], &["row"], vec![]),
    ];
    let constants = vec![
        scalar("one", 1),
        scalar("zero", 0),
        floats("ten", &[], &[10.0]),
        int64s("last", &[1]),
        int64s("flat", &[1, -1]),
    ];
    let m = model(nodes, &["row"], constants);
    for (z, k) in SIZES {
        let row = |i: usize| (0..=k).map(move |j| f64::from(X[i]) + 10.0 * j as f64);
        let right: Vec<f64> = (0..k).flat_map(row).collect();
        is(&results(&m, z)[0], &[1, k * (k + 1)], &right);
    }
}

#[test]
fn what_nothing_bounds_is_refused_with_a_way_out() {
    let graph = |elements: i64| GraphProto {
        name: Some("g".into()),
        node: vec![
            node("ReduceMax", &["image"], &["top"], vec![int("keepdims", 0)]),
            node("Cast", &["top"], &["size"], vec![int("to", 7)]),
            node("Range", &["zero", "size", "one"], &["y"], vec![]),
        ],
        input: vec![known("image", F32, &[elements])],
        output: vec![undeclared("y")],
        initializer: vec![scalar("zero", 0), scalar("one", 1)],
        ..Default::default()
    };
    let message = |elements| {
        let error = import(&file(17, graph(elements))).unwrap_err();
        error.to_string()
    };
    let of_image = message(300);
    assert!(
        of_image.contains("nothing in the model bounds it") && !of_image.contains("--const"),
        "{of_image}"
    );
    // A number may well be known.
    assert!(message(1).contains("--const image=FILE"), "{}", message(1));
    let trips = GraphProto {
        node: vec![node(
            "Loop",
            &["n", "", "x"],
            &["y"],
            vec![self::graph(
                &["i", "c", "s"],
                vec![node("Neg", &["s"], &["t"], vec![])],
                &["c", "t"],
            )],
        )],
        input: vec![known("n", I64, &[]), known("x", F32, &[2])],
        output: vec![undeclared("y")],
        ..Default::default()
    };
    let error = import(&file(17, trips)).unwrap_err().to_string();
    assert!(error.contains("--const n=FILE"), "{error}");
}
