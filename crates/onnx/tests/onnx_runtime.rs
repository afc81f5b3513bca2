//! Single nodes against what ONNX Runtime computes: fused operators, those that move elements, and those that are written
//! out in many.
//! `onnx_runtime/write.py` writes the values.

mod build_onnx;

use build_onnx::{file, float, floats_of, import, int, ints, known, node, text, undeclared};
use graph::{Keep, evaluate, simplify};
use onnx::OPERATORS;
use onnx::proto::{AttributeProto, GraphProto, ModelProto, OperatorSetIdProto, TensorProto};
use std::collections::BTreeSet;
use std::sync::Arc;
use tensor::{DType, Tensor};

/// Cases that the importer refuses; ONNX Runtime computes them.
const REFUSED: &[&str] = &[
    "Attention_mask_3b_causal0",
    "Attention_mask_3b_causal1",
    "FusedGemm_Elu_given",
    "FusedGemm_ParametricSoftplus_given",
    "FusedGemm_ScaledTanh_given",
    "FusedGemm_Softplus",
    "FusedGemm_Softsign",
    "FusedGemm_ThresholdedRelu_given",
    "GroupQueryAttention_not_causal",
    "MultiHeadAttention_fewer_keys_causal1",
    "MultiHeadAttention_mask_3b_causal0",
    "MultiHeadAttention_mask_3b_causal1",
    "MultiHeadAttention_more_keys_causal1",
];

struct Case<'a> {
    name: &'a str,
    operator: &'a str,
    model: ModelProto,
    inputs: Vec<Arc<Tensor>>,
    expected: Vec<Tensor>,
}

fn numbers<T: std::str::FromStr>(words: &[&str]) -> Vec<T> {
    let number = |w: &&str| w.parse().unwrap_or_else(|_| panic!("{w} is no number"));
    words.iter().map(number).collect()
}

fn tensor(words: &[&str]) -> Tensor {
    let dtype: DType = words[0].parse().unwrap();
    let shape: Vec<usize> = match words[1] {
        "-" => vec![],
        shape => numbers(&shape.split('x').collect::<Vec<_>>()),
    };
    let mut t = Tensor::zeros(dtype, &shape);
    let values: Vec<f64> = numbers(&words[2..]);
    assert_eq!(values.len(), t.len());
    for (i, v) in values.into_iter().enumerate() {
        t.set_f64(i, v);
    }
    t
}

fn elem_type(dtype: DType) -> i32 {
    match dtype {
        DType::F32 => 1,
        DType::U8 => 2,
        DType::I8 => 3,
        DType::I16 => 5,
        DType::I32 => 6,
        DType::I64 => 7,
        DType::Bool => 9,
        other => panic!("{other} in the file of values"),
    }
}

fn attribute(words: &[&str]) -> AttributeProto {
    let (name, values) = (words[0], &words[2..]);
    match words[1] {
        "i" => int(name, numbers(values)[0]),
        "f" => float(name, numbers(values)[0]),
        "s" => text(name, values[0]),
        "is" => ints(name, &numbers(values)),
        "fs" => AttributeProto {
            name: Some(name.into()),
            floats: numbers(values),
            r#type: Some(6),
            ..Default::default()
        },
        other => panic!("an attribute of kind {other}"),
    }
}

fn shape(t: &Tensor) -> Vec<i64> {
    t.shape().iter().map(|n| *n as i64).collect()
}

fn case(text: &'static str) -> Case<'static> {
    let mut lines = text.lines().map(|l| l.split(' ').collect::<Vec<_>>());
    let head = lines.next().unwrap();
    let (name, operator) = (head[0], head[2]);
    let opset = head.get(3).map_or(17, |v| v.parse().unwrap());
    let mut node = node(operator, &[], &[], vec![]);
    let mut graph = GraphProto::default();
    let (mut inputs, mut expected) = (Vec::new(), Vec::new());
    let mut results = false;
    for line in lines {
        match line[0] {
            "attr" => node.attribute.push(attribute(&line[1..])),
            "skip" if results => node.output.push(String::new()),
            "skip" => node.input.push(String::new()),
            kind => {
                let (name, t) = (line[1], tensor(&line[2..]));
                let dtype = elem_type(t.dtype());
                match kind {
                    "in" => {
                        graph.input.push(known(name, dtype, &shape(&t)));
                        inputs.push(Arc::new(t));
                        node.input.push(name.into());
                    }
                    "const" => {
                        graph.initializer.push(TensorProto {
                            name: Some(name.into()),
                            dims: shape(&t),
                            data_type: Some(dtype),
                            raw_data: Some(t.bytes().to_vec().into()),
                            ..Default::default()
                        });
                        node.input.push(name.into());
                    }
                    "out" => {
                        results = true;
                        graph.output.push(undeclared(name));
                        expected.push(t);
                        node.output.push(name.into());
                    }
                    other => panic!("a line `{other}`"),
                }
            }
        }
    }
    if head[1] != "ai.onnx" {
        node.domain = Some(head[1].into());
    }
    graph.node = vec![node];
    let mut model = file(opset, graph);
    model.opset_import.push(OperatorSetIdProto {
        domain: Some("com.microsoft".into()),
        version: Some(1),
    });
    model.opset_import.push(OperatorSetIdProto {
        domain: Some("ai.onnx.ml".into()),
        version: Some(3),
    });
    Case {
        name,
        operator,
        model,
        inputs,
        expected,
    }
}

fn cases() -> Vec<Case<'static>> {
    let texts = [
        include_str!("onnx_runtime/contributed.txt"),
        include_str!("onnx_runtime/fused.txt"),
        include_str!("onnx_runtime/movement.txt"),
        include_str!("onnx_runtime/older.txt"),
        include_str!("onnx_runtime/written_out.txt"),
    ];
    let cases = texts.iter().flat_map(|t| t.split("case ").skip(1));
    cases.map(case).collect()
}

/// How a result differs from the expected one, if it does.
fn difference(actual: &Tensor, expected: &Tensor) -> Option<String> {
    if actual.dtype() != expected.dtype() || actual.shape() != expected.shape() {
        return Some(format!("{actual:?}, not {expected:?}"));
    }
    let exact = !expected.dtype().is_float();
    let pairs = floats_of(actual).into_iter().zip(floats_of(expected));
    for (i, (a, e)) in pairs.enumerate() {
        let tolerance = if exact { 0.0 } else { 2e-5 * (1.0 + e.abs()) };
        let fits = a == e || e.is_nan() || (a - e).abs() <= tolerance;
        if !fits {
            return Some(format!("element {i} is {a}, not {e}"));
        }
    }
    None
}

fn failure(case: &Case<'_>) -> Option<String> {
    let refused = REFUSED.contains(&case.name);
    let model = match import(&case.model) {
        Ok(_) if refused => return Some("imported, though it is listed as refused".into()),
        Err(_) if refused => return None,
        Err(e) => return Some(e.to_string()),
        Ok(model) => model,
    };
    let simplified = simplify(&model);
    [("", &model), ("simplified, ", &simplified)]
        .into_iter()
        .find_map(|(form, model)| {
            model.verify().unwrap();
            let results = evaluate(model, &case.inputs, Keep::Outputs).unwrap();
            let mut pairs = results.outputs().into_iter().zip(&case.expected);
            let found = pairs.find_map(|(a, e)| difference(&a, e));
            found.map(|text| format!("{form}{text}"))
        })
}

#[test]
fn results_are_those_of_onnx_runtime() {
    let cases = cases();
    let failures: Vec<String> = cases
        .iter()
        .filter_map(|c| Some(format!("{}: {}", c.name, failure(c)?)))
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The runtime takes its own operators from files that import no set of them.
#[test]
fn the_set_of_the_runtime_needs_no_import() {
    let mut ranges = cases();
    ranges.retain(|c| c.operator == "Range");
    assert!(!ranges.is_empty());
    for case in &mut ranges {
        let sets = &mut case.model.opset_import;
        sets.retain(|s| s.domain() != "com.microsoft");
        assert_eq!(failure(case), None, "{}", case.name);
    }
}

#[test]
fn every_operator_of_the_runtime_has_cases() {
    let covered: BTreeSet<&str> = cases().iter().map(|c| c.operator).collect();
    for operator in OPERATORS.iter().filter(|o| !o.domain.is_empty()) {
        assert!(covered.contains(operator.name), "{}", operator.name);
    }
}
