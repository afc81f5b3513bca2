//! What sums, normalises and places the elements that the data chose: nothing else takes part.

mod build_onnx;

use build_onnx::{F32, file, floats, import, int, int64s, known, node, undeclared};
use graph::{Keep, evaluate, simplify};
use onnx::proto::{GraphProto, NodeProto};
use std::sync::Arc;
use tensor::Tensor;

const X: [f32; 6] = [3.0, 0.0, 2.0, 1.0, 5.0, -7.0];

/// Of [`X`] the elements above 1, which are 3, 2 and 5: `kept`, and `table` with rows [k, -k].
/// Places behind them hold another element of [`X`], so that they would be seen.
fn results(nodes: Vec<NodeProto>, outputs: &[&str], x: [f32; 6]) -> Vec<Arc<Tensor>> {
    let mut all = vec![
        node("Greater", &["x", "one"], &["above"], vec![]),
        node("NonZero", &["above"], &["places"], vec![]),
        node("Transpose", &["places"], &["tuples"], vec![]),
        node("GatherND", &["x", "tuples"], &["kept"], vec![]),
        node("Unsqueeze", &["kept", "end"], &["column"], vec![]),
        node("Mul", &["column", "signs"], &["table"], vec![]),
    ];
    all.extend(nodes);
    let graph = GraphProto {
        node: all,
        input: vec![known("x", F32, &[6])],
        output: outputs.iter().map(|o| undeclared(o)).collect(),
        initializer: vec![
            floats("one", &[], &[1.0]),
            floats("signs", &[1, 2], &[1.0, -1.0]),
            floats("zeros", &[6], &[0.0; 6]),
            floats("ones", &[2], &[1.0; 2]),
            int64s("end", &[-1]),
            int64s("first", &[0]),
            int64s("thrice", &[1, 3]),
        ],
        ..Default::default()
    };
    let m = import(&file(18, graph)).unwrap();
    m.verify().unwrap();
    let inputs = [Arc::new(Tensor::from_slice(&[6], &x))];
    let run = |m| evaluate(m, &inputs, Keep::Outputs).unwrap().results();
    let (plain, simple) = (run(&m), run(&simplify(&m)));
    assert_eq!(plain, simple);
    plain
}

fn is(t: &Tensor, shape: &[usize], right: &[f64]) {
    let own = build_onnx::floats_of(t);
    let near = own.len() == right.len()
        && own
            .iter()
            .zip(right)
            .all(|(a, b)| (a - b).abs() <= 1e-6 * b.abs().max(1.0));
    assert!(t.shape() == shape && near, "{:?} {own:?}", t.shape());
}

#[test]
fn sums_and_means() {
    let keepdims = || vec![int("keepdims", 0)];
    let nodes = vec![
        node("CumSum", &["kept", "first"], &["sums"], vec![]),
        node(
            "CumSum",
            &["kept", "first"],
            &["back"],
            vec![int("reverse", 1)],
        ),
        node("ReduceMean", &["kept", "first"], &["mean"], keepdims()),
        node("ReduceMean", &["table", "end"], &["rows"], keepdims()),
        node("ReduceMean", &["table"], &["all"], keepdims()),
        node("ReduceLogSum", &["kept"], &["log"], keepdims()),
        node("ReduceLogSumExp", &["kept"], &["softened"], keepdims()),
    ];
    let outputs = ["sums", "back", "mean", "rows", "all", "log", "softened"];
    let r = results(nodes, &outputs, X);
    is(&r[0], &[3], &[3.0, 5.0, 10.0]);
    is(&r[1], &[3], &[10.0, 7.0, 5.0]);
    is(&r[2], &[], &[10.0 / 3.0]);
    is(&r[3], &[3], &[0.0; 3]);
    is(&r[4], &[], &[0.0]);
    is(&r[5], &[], &[10f64.ln()]);
    let exps = [3f64, 2.0, 5.0].map(f64::exp);
    is(&r[6], &[], &[exps.iter().sum::<f64>().ln()]);
}

#[test]
fn products_over_what_is_chosen() {
    let nodes = vec![
        node("Transpose", &["table"], &["turned"], vec![]),
        node("MatMul", &["turned", "table"], &["sums"], vec![]),
        node("MatMul", &["table", "turned"], &["pairs"], vec![]),
        node(
            "Gemm",
            &["table", "table"],
            &["gemm"],
            vec![int("transA", 1)],
        ),
        node("MatMul", &["kept", "table"], &["vector"], vec![]),
        node("MatMul", &["table", "ones"], &["rows"], vec![]),
        node("Unsqueeze", &["table", "first"], &["batch"], vec![]),
        node("Softmax", &["pairs"], &["weights"], vec![]),
        node("MatMul", &["weights", "batch"], &["mixed"], vec![]),
    ];
    let outputs = ["sums", "pairs", "gemm", "vector", "rows", "mixed"];
    let r = results(nodes, &outputs, X);
    is(&r[0], &[2, 2], &[38.0, -38.0, -38.0, 38.0]);
    is(
        &r[1],
        &[3, 3],
        &[18.0, 12.0, 30.0, 12.0, 8.0, 20.0, 30.0, 20.0, 50.0],
    );
    is(&r[2], &[2, 2], &[38.0, -38.0, -38.0, 38.0]);
    is(&r[3], &[2], &[38.0, -38.0]);
    is(&r[4], &[3], &[0.0; 3]);
    // Attention of the rows to themselves.
    let kept = [3f64, 2.0, 5.0];
    let mixed = kept.map(|q| {
        let weights = kept.map(|k| (2.0 * q * k - 10.0 * q).exp());
        let sum: f64 = weights.iter().sum();
        weights
            .iter()
            .zip(kept)
            .map(|(w, k)| w * k / sum)
            .sum::<f64>()
    });
    let mixed: Vec<f64> = mixed.iter().flat_map(|m| [*m, -m]).collect();
    is(&r[5], &[1, 3, 2], &mixed);
}

#[test]
fn rows_are_normalised_repeated_and_placed() {
    let nodes = vec![
        node(
            "LayerNormalization",
            &["table", "ones"],
            &["normal"],
            vec![],
        ),
        node("Tile", &["column", "thrice"], &["wide"], vec![]),
        node("ScatterND", &["zeros", "tuples", "kept"], &["back"], vec![]),
    ];
    let outputs = ["normal", "wide", "back"];
    let r = results(nodes.clone(), &outputs, X);
    let normal = [3f64, 2.0, 5.0].map(|k| k / (k * k + 1e-5).sqrt());
    let normal: Vec<f64> = normal.iter().flat_map(|k| [*k, -k]).collect();
    is(&r[0], &[3, 2], &normal);
    is(
        &r[1],
        &[3, 3],
        &[3.0, 3.0, 3.0, 2.0, 2.0, 2.0, 5.0, 5.0, 5.0],
    );
    is(&r[2], &[6], &[3.0, 0.0, 2.0, 0.0, 5.0, 0.0]);
    let none = results(nodes, &outputs, [0.0; 6]);
    is(&none[0], &[0, 2], &[]);
    is(&none[2], &[6], &[0.0; 6]);
}
