//! Operators on operands whose size the data decide: their results are those of operands of just that size.

mod build_onnx;

use build_onnx::{F32, file, floats, import, int, int64s, ints, known, node, text, undeclared};
use graph::{Keep, evaluate, simplify};
use onnx::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto};
use std::sync::Arc;
use tensor::Tensor;

/// Rows of two elements, of which those stay whose first one is above 0.
fn rows(nodes: Vec<NodeProto>, constants: Vec<TensorProto>, outputs: &[&str]) -> ModelProto {
    let mut all = vec![
        node("Gather", &["x", "zero"], &["first"], vec![int("axis", 1)]),
        node("Greater", &["first", "none"], &["keeps"], vec![]),
        node("Compress", &["x", "keeps"], &["rows"], vec![int("axis", 0)]),
    ];
    all.extend(nodes);
    let scalar = |t: TensorProto| TensorProto { dims: vec![], ..t };
    let mut given = vec![scalar(int64s("zero", &[0])), floats("none", &[], &[0.0])];
    given.extend(constants);
    let graph = GraphProto {
        name: Some("g".into()),
        node: all,
        input: vec![known("x", F32, &[4, 2])],
        output: outputs.iter().map(|o| undeclared(o)).collect(),
        initializer: given,
        ..Default::default()
    };
    file(18, graph)
}

/// Four rows, of which so many are kept: 1, 2, .. and their squares; the others have infinities.
fn given(keeps: usize) -> Tensor {
    let places: &[usize] = [&[][..], &[2], &[1, 3], &[0, 1, 3], &[0, 1, 2, 3]][keeps];
    let row = |i: usize| match places.iter().position(|place| *place == i) {
        Some(at) => {
            let number = at as f32 + 1.0;
            [number, number * number]
        }
        None => [-1.0, f32::INFINITY],
    };
    let values: Vec<f32> = (0..4).flat_map(row).collect();
    Tensor::from_slice(&[4, 2], &values)
}

/// The results on so many rows, which simplifying does not change.
fn results(model: &ModelProto, keeps: usize) -> Vec<Arc<Tensor>> {
    let m = import(model).unwrap();
    let run = |m: &graph::Model| {
        m.verify().unwrap();
        let inputs = [Arc::new(given(keeps))];
        evaluate(m, &inputs, Keep::Outputs).unwrap().results()
    };
    let plain = run(&m);
    assert_eq!(plain, run(&simplify(&m)));
    plain
}

fn is(t: &Tensor, shape: &[usize], values: &[f64]) {
    assert_eq!(t.shape(), shape);
    assert_eq!(t.len(), values.len());
    for (i, expected) in values.iter().enumerate() {
        let own = t.get_f64(i);
        assert!((own - expected).abs() < 1e-5, "{own} for {expected}");
    }
}

#[test]
fn rows_that_stay_apart_need_no_rule() {
    let normal = |axis| vec![int("axis", axis), int("p", 1)];
    let nodes = vec![
        node("LpNormalization", &["rows"], &["each"], normal(1)),
        node("LpNormalization", &["rows"], &["all"], normal(0)),
        node("Trilu", &["rows"], &["upper"], vec![int("upper", 1)]),
        node("Hardmax", &["rows"], &["best"], vec![int("axis", 1)]),
    ];
    let model = rows(nodes, vec![], &["each", "all", "upper", "best"]);
    for keeps in 0..=4 {
        let r = results(&model, keeps);
        let own: Vec<f64> = (1..=keeps).map(|i| i as f64).collect();
        let sums = [own.iter().sum::<f64>(), own.iter().map(|v| v * v).sum()];
        let each = own
            .iter()
            .flat_map(|v| [v / (v + v * v), v * v / (v + v * v)]);
        is(&r[0], &[keeps, 2], &each.collect::<Vec<_>>());
        let all = own.iter().flat_map(|v| [v / sums[0], v * v / sums[1]]);
        is(&r[1], &[keeps, 2], &all.collect::<Vec<_>>());
        let upper = [1.0, 1.0, 0.0, 4.0, 0.0, 0.0, 0.0, 0.0];
        is(&r[2], &[keeps, 2], &upper[..2 * keeps]);
        let best = [1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0];
        is(&r[3], &[keeps, 2], &best[..2 * keeps]);
    }
}

#[test]
fn another_operand_forces_a_size() {
    let nodes = vec![
        node("Add", &["rows", "three"], &["sum"], vec![]),
        node("MatMul", &["three_columns", "rows"], &["product"], vec![]),
        node("Expand", &["rows", "shape"], &["spread"], vec![]),
    ];
    let constants = vec![
        floats("three", &[3, 1], &[10.0, 20.0, 30.0]),
        floats("three_columns", &[1, 3], &[1.0, 2.0, 3.0]),
        int64s("shape", &[3, 2]),
    ];
    let model = |outputs: &[&str]| rows(nodes.clone(), constants.clone(), outputs);
    let r = results(&model(&["sum", "product", "spread"]), 3);
    is(&r[0], &[3, 2], &[11.0, 11.0, 22.0, 24.0, 33.0, 39.0]);
    is(&r[1], &[1, 2], &[14.0, 36.0]);
    is(&r[2], &[3, 2], &[1.0, 1.0, 2.0, 4.0, 3.0, 9.0]);
    // A single row is repeated.
    let r = results(&model(&["sum", "spread"]), 1);
    is(&r[0], &[3, 2], &[11.0, 11.0, 21.0, 21.0, 31.0, 31.0]);
    is(&r[1], &[3, 2], &[1.0; 6]);
}

#[test]
fn what_is_live_is_mirrored_and_repeated_around_it() {
    let pad = |mode: &str, y: &str| node("Pad", &["rows", "pads"], &[y], vec![text("mode", mode)]);
    let nodes = vec![pad("reflect", "a"), pad("edge", "b")];
    let constants = vec![int64s("pads", &[1, 1, 2, 0])];
    let model = rows(nodes, constants, &["a", "b"]);
    let padded = |order: &[usize]| -> Vec<f64> {
        let row = |i: &usize| [(i * i) as f64, *i as f64, (i * i) as f64];
        order.iter().flat_map(row).collect()
    };
    let r = results(&model, 3);
    is(&r[0], &[6, 3], &padded(&[2, 1, 2, 3, 2, 1]));
    is(&r[1], &[6, 3], &{
        let row = |i: f64| [i, i, i * i];
        [1.0, 1.0, 2.0, 3.0, 3.0, 3.0].map(row).concat()
    });
    let r = results(&model, 4);
    is(&r[0], &[7, 3], &padded(&[2, 1, 2, 3, 4, 3, 2]));
}

#[test]
fn different_elements_of_what_is_live_are_found() {
    let nodes = vec![
        node("Mod", &["rows", "two"], &["odd"], vec![int("fmod", 1)]),
        node(
            "Unique",
            &["odd"],
            &["values", "at", "place", "often"],
            vec![],
        ),
        node("Unique", &["odd"], &["parts"], vec![int("axis", 0)]),
    ];
    let constants = vec![floats("two", &[], &[2.0])];
    let outputs = ["values", "at", "place", "often", "parts"];
    let model = rows(nodes, constants, &outputs);
    let r = results(&model, 3);
    is(&r[0], &[2], &[0.0, 1.0]);
    is(&r[1], &[2], &[2.0, 0.0]);
    is(&r[2], &[6], &[1.0, 1.0, 0.0, 0.0, 1.0, 1.0]);
    is(&r[3], &[2], &[2.0, 4.0]);
    is(&r[4], &[2, 2], &[0.0, 0.0, 1.0, 1.0]);
    let r = results(&model, 1);
    is(&r[0], &[1], &[1.0]);
    is(&r[3], &[1], &[2.0]);
    assert!(results(&model, 0).iter().all(|t| t.is_empty()));
}

#[test]
fn means_of_images_are_over_what_is_live() {
    let nodes = vec![
        node(
            "Transpose",
            &["rows"],
            &["columns"],
            vec![ints("perm", &[1, 0])],
        ),
        node("Unsqueeze", &["columns", "front"], &["image"], vec![]),
        node("GlobalAveragePool", &["image"], &["mean"], vec![]),
        node("GlobalMaxPool", &["image"], &["most"], vec![]),
    ];
    let constants = vec![int64s("front", &[0])];
    let model = rows(nodes, constants, &["mean", "most"]);
    for keeps in 1..=4 {
        let (r, n) = (results(&model, keeps), keeps as f64);
        let squares: f64 = (1..=keeps).map(|i| (i * i) as f64).sum();
        is(&r[0], &[1, 2, 1], &[(n + 1.0) / 2.0, squares / n]);
        is(&r[1], &[1, 2, 1], &[n, n * n]);
    }
}

/// The largest number of four kept rows is 16; that of three is 9. No number lies between two levels.
#[test]
fn the_range_of_numbers_is_of_what_is_live() {
    let outputs = ["y", "scale", "zero_point"];
    let nodes = vec![node("DynamicQuantizeLinear", &["rows"], &outputs, vec![])];
    let model = rows(nodes, vec![], &outputs);
    for (keeps, most) in [(3, 9.0), (4, 16.0)] {
        let r = results(&model, keeps);
        let scale = most / 255.0;
        let row = |i: usize| [i as f64, (i * i) as f64];
        let all = (1..=keeps).flat_map(row);
        let levels: Vec<f64> = all.map(|v| (v / scale).round_ties_even()).collect();
        is(&r[0], &[keeps, 2], &levels);
        is(&r[1], &[], &[scale]);
        is(&r[2], &[], &[0.0]);
    }
}

/// A last axis of 1 is of real numbers, one of 2 of complex ones: neither is repeated.
#[test]
fn a_size_with_a_meaning_of_its_own_is_not_forced() {
    let nodes = vec![
        node(
            "Transpose",
            &["rows"],
            &["parts"],
            vec![ints("perm", &[1, 0])],
        ),
        node("Unsqueeze", &["parts", "front"], &["signal"], vec![]),
        node("DFT", &["signal"], &["y"], vec![int("axis", 1)]),
    ];
    let model = rows(nodes, vec![int64s("front", &[0])], &["y"]);
    assert!(import(&model).is_err());
}

#[test]
fn suppression_passes_over_classes_that_are_not_live() {
    let nodes = vec![
        node("Unsqueeze", &["rows", "front"], &["scores"], vec![]),
        node(
            "NonMaxSuppression",
            &["boxes", "scores", "all"],
            &["chosen"],
            vec![],
        ),
    ];
    let boxes = [0.0, 0.0, 1.0, 1.0, 5.0, 5.0, 6.0, 6.0];
    let constants = vec![
        int64s("front", &[0]),
        int64s("all", &[2]),
        floats("boxes", &[1, 2, 4], &boxes),
    ];
    let model = rows(nodes, constants, &["chosen"]);
    let r = results(&model, 2);
    let chosen = [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0];
    is(&r[0], &[4, 3], &chosen);
    is(&results(&model, 0)[0], &[0, 3], &[]);
}

#[test]
fn an_operator_that_mixes_rows_is_refused() {
    let nodes = vec![
        node("Unsqueeze", &["rows", "end"], &["signal"], vec![]),
        node("DFT", &["signal"], &["y"], vec![int("axis", 0)]),
    ];
    let model = rows(nodes, vec![int64s("end", &[-1])], &["y"]);
    let refused = import(&model).unwrap_err().to_string();
    let says = "the data decide the size of its operand `signal` (f32[4,2,1] at most)";
    assert!(refused.contains(says), "{refused}");
}

/// Numbers of the rows that a slice of 0, 1, .. 4 kept rows has.
type Sliced = [&'static [usize]; 5];

fn slice(y: &str, x: &str, places: [i64; 3]) -> (NodeProto, Vec<TensorProto>) {
    let names = ["start", "end", "axis", "step"].map(|role| format!("{y}_{role}"));
    let inputs = [x, &names[0], &names[1], &names[2], &names[3]];
    let [start, end, step] = places;
    let values = names.iter().zip([start, end, 0, step]);
    let constants = values.map(|(name, v)| int64s(name, &[v]));
    let constants = constants.collect();
    (node("Slice", &inputs, &[y], vec![]), constants)
}

#[test]
fn slices_count_from_the_end_of_what_is_live() {
    const END: i64 = i64::MAX;
    let cases: [([i64; 3], Sliced); 9] = [
        ([1, -1, 1], [&[], &[], &[], &[2], &[2, 3]]),
        ([-2, END, 1], [&[], &[1], &[1, 2], &[2, 3], &[3, 4]]),
        ([-3, -1, 1], [&[], &[], &[1], &[1, 2], &[2, 3]]),
        ([-2, 1, 1], [&[], &[1], &[1], &[], &[]]),
        ([1, END, 2], [&[], &[], &[2], &[2], &[2, 4]]),
        ([-3, END, 2], [&[], &[1], &[1], &[1, 3], &[2, 4]]),
        (
            [-1, -END, -1],
            [&[], &[1], &[2, 1], &[3, 2, 1], &[4, 3, 2, 1]],
        ),
        ([3, -END, -2], [&[], &[1], &[2], &[3, 1], &[4, 2]]),
        ([-1, 0, -1], [&[], &[], &[2], &[3, 2], &[4, 3, 2]]),
    ];
    for (places, expected) in cases {
        let (node, constants) = slice("y", "rows", places);
        let model = rows(vec![node], constants, &["y"]);
        let most = expected.iter().map(|rows| rows.len()).max();
        let bound = import(&model).unwrap();
        let bound = &bound[bound.outputs()[0]].ty().shape;
        assert_eq!(Some(bound[0]), most, "{places:?}");
        for (keeps, rows) in expected.iter().enumerate() {
            let r = results(&model, keeps);
            let row = |i: &usize| [*i as f64, (i * i) as f64];
            let values: Vec<f64> = rows.iter().flat_map(row).collect();
            is(&r[0], &[rows.len(), 2], &values);
        }
    }
}

/// The last three rows without the last one, and these from behind; and from a place that is computed from the size.
#[test]
fn slices_of_slices_and_of_computed_places() {
    let mut nodes = vec![
        node("Shape", &["rows"], &["shape"], vec![int("end", 1)]),
        node("Sub", &["shape", "three"], &["from"], vec![]),
        node("Slice", &["rows", "from", "shape", "front"], &["c"], vec![]),
    ];
    let mut constants = vec![int64s("three", &[3]), int64s("front", &[0])];
    for (y, x, places) in [
        ("last", "rows", [-3, i64::MAX, 1]),
        ("a", "last", [0, -1, 1]),
        ("b", "a", [-1, i64::MIN, -1]),
    ] {
        let (node, own) = slice(y, x, places);
        nodes.push(node);
        constants.extend(own);
    }
    let model = rows(nodes, constants, &["a", "b", "c"]);
    let expected: [Sliced; 3] = [
        [&[], &[], &[1], &[1, 2], &[2, 3]],
        [&[], &[], &[1], &[2, 1], &[3, 2]],
        // Of two rows the first place is -1: the last row.
        [&[], &[1], &[2], &[1, 2, 3], &[2, 3, 4]],
    ];
    for keeps in 0..=4 {
        for (r, rows) in results(&model, keeps).iter().zip(expected) {
            let row = |i: &usize| [*i as f64, (i * i) as f64];
            let values: Vec<f64> = rows[keeps].iter().flat_map(row).collect();
            is(r, &[rows[keeps].len(), 2], &values);
        }
    }
}

/// The first column is reversed; of the second, sequences of one element stay.
#[test]
fn a_sequence_is_reversed_up_to_what_is_live() {
    let axes = vec![int("time_axis", 0), int("batch_axis", 1)];
    let nodes = vec![
        node("Shape", &["rows"], &["length"], vec![int("end", 1)]),
        node("Min", &["length", "most"], &["lengths"], vec![]),
        node("ReverseSequence", &["rows", "lengths"], &["y"], axes),
    ];
    let model = rows(nodes, vec![int64s("most", &[9, 1])], &["y"]);
    for keeps in 0..=4 {
        let row = |i: usize| [(keeps + 1 - i) as f64, (i * i) as f64];
        let values: Vec<f64> = (1..=keeps).flat_map(row).collect();
        is(&results(&model, keeps)[0], &[keeps, 2], &values);
    }
}

/// h = 2 h + t for rows t, from 1 on: forwards and backwards.
#[test]
fn a_recurrent_network_ends_where_what_is_live_does() {
    let affine = AttributeProto {
        name: Some("activations".into()),
        strings: vec!["Affine".into(), "Affine".into()],
        r#type: Some(8),
        ..Default::default()
    };
    let directions = text("direction", "bidirectional");
    let nodes = vec![
        node("Unsqueeze", &["rows", "batch"], &["steps"], vec![]),
        node(
            "RNN",
            &["steps", "w", "r", "", "", "ones"],
            &["y", "last"],
            vec![affine, directions],
        ),
    ];
    let constants = vec![
        int64s("batch", &[1]),
        floats("w", &[2, 1, 2], &[1.0, 0.0, 1.0, 0.0]),
        floats("r", &[2, 1, 1], &[2.0, 2.0]),
        floats("ones", &[2, 1, 1], &[1.0, 1.0]),
    ];
    let model = rows(nodes, constants, &["y", "last"]);
    for keeps in 0..=4 {
        let states = |order: Vec<usize>| -> Vec<f64> {
            let mut h = 1.0;
            let mut next = |t: usize| {
                h = 2.0 * h + t as f64;
                h
            };
            order.into_iter().map(&mut next).collect()
        };
        let forward = states((1..=keeps).collect());
        let backward = states((1..=keeps).rev().collect());
        let last = |states: &[f64]| states.last().copied().unwrap_or(1.0);
        let both = forward.iter().zip(backward.iter().rev());
        let y: Vec<f64> = both.flat_map(|(a, b)| [*a, *b]).collect();
        let r = results(&model, keeps);
        is(&r[0], &[keeps, 2, 1, 1], &y);
        is(&r[1], &[2, 1, 1], &[last(&forward), last(&backward)]);
    }
}

/// As many steps as are live give what a model of just so many steps gives.
#[test]
fn cells_on_live_steps_are_those_on_so_many_steps() {
    let weights = |name: &str, shape: &[i64; 3]| {
        let count: i64 = shape.iter().product();
        let values: Vec<f32> = (0..count)
            .map(|i| (i * 7 % 11) as f32 / 11.0 - 0.4)
            .collect();
        floats(name, shape, &values)
    };
    for (cell, gates, batch_first) in [("LSTM", 4, 0), ("GRU", 3, 1), ("RNN", 1, 0), ("LSTM", 4, 1)]
    {
        let outputs = &["y", "h", "c"][..if cell == "LSTM" { 3 } else { 2 }];
        let attributes = vec![
            text("direction", "bidirectional"),
            int("layout", batch_first),
        ];
        let own = node(cell, &["steps", "w", "r"], outputs, attributes);
        let axis = 1 - batch_first;
        let constants = vec![
            int64s("batch", &[axis]),
            weights("w", &[2, gates * 3, 2]),
            weights("r", &[2, gates * 3, 3]),
        ];
        let nodes = vec![
            node("Unsqueeze", &["rows", "batch"], &["steps"], vec![]),
            own.clone(),
        ];
        let model = rows(nodes, constants.clone(), outputs);
        for keeps in 0..=4 {
            let shape = [[keeps, 1, 2], [1, keeps, 2]][batch_first as usize];
            let graph = GraphProto {
                name: Some("g".into()),
                node: vec![own.clone()],
                input: vec![known("steps", F32, &shape.map(|d| d as i64))],
                output: outputs.iter().map(|o| undeclared(o)).collect(),
                initializer: constants[1..].to_vec(),
                ..Default::default()
            };
            let row = |i: usize| [i as f32, (i * i) as f32];
            let steps: Vec<f32> = (1..=keeps).flat_map(row).collect();
            let steps = [Arc::new(Tensor::from_slice(&shape, &steps))];
            let fixed = import(&file(18, graph)).unwrap();
            let fixed = evaluate(&fixed, &steps, Keep::Outputs).unwrap().results();
            for (live, fixed) in results(&model, keeps).iter().zip(fixed) {
                let values: Vec<f64> = (0..fixed.len()).map(|i| fixed.get_f64(i)).collect();
                is(live, fixed.shape(), &values);
            }
        }
    }
}

#[test]
fn updates_are_placed_from_the_end_of_what_is_live() {
    let add =
        |y: &str, inputs: &[&str]| node("ScatterND", inputs, &[y], vec![text("reduction", "add")]);
    let nodes = vec![
        add("a", &["rows", "ends", "two"]),
        add("b", &["rows", "corner", "five"]),
        add("c", &["a", "none_at", "none_of"]),
    ];
    let at = |name: &str, shape: &[i64], values: &[i64]| TensorProto {
        dims: shape.to_vec(),
        ..int64s(name, values)
    };
    let constants = vec![
        at("ends", &[2, 1], &[0, -1]),
        floats("two", &[2, 2], &[10.0, 20.0, 30.0, 40.0]),
        at("corner", &[1, 2], &[-1, -2]),
        floats("five", &[1], &[5.0]),
        at("none_at", &[0, 1], &[]),
        floats("none_of", &[0, 2], &[]),
    ];
    let model = rows(nodes, constants, &["a", "b", "c"]);
    let r = results(&model, 3);
    is(&r[0], &[3, 2], &[11.0, 21.0, 2.0, 4.0, 33.0, 49.0]);
    is(&r[1], &[3, 2], &[1.0, 1.0, 2.0, 4.0, 8.0, 9.0]);
    assert_eq!(r[0], r[2]);
    let r = results(&model, 1);
    is(&r[0], &[1, 2], &[41.0, 61.0]);
    is(&r[1], &[1, 2], &[6.0, 1.0]);
}
