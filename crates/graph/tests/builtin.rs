//! Built-in models and operators: their weights, their sizes, and what is said
//! of a wrong name or specification.

use graph::builtin::builtin;
use graph::{Keep, Model, evaluate};
use std::sync::Arc;
use tensor::{DType, Fill, Tensor, fill_tensor};

#[test]
fn a_seed_decides_the_weights() {
    let weights = |seed| {
        let model = builtin("squeezenet1.1", seed).unwrap();
        model
            .constants()
            .map(|(_, t)| t.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(weights(3), weights(3));
    let (a, b) = (weights(3), weights(4));
    assert!(a.iter().zip(&b).all(|(a, b)| a != b));
    let again = a.iter().enumerate().any(|(i, t)| {
        a[..i]
            .iter()
            .any(|o| o.bytes()[..64.min(o.bytes().len())] == t.bytes()[..64.min(t.bytes().len())])
    });
    assert!(!again, "two constants start alike");
}

fn random_inputs(model: &Model) -> Vec<Arc<Tensor>> {
    let value = |v: &graph::ValueId| {
        let ty = model[*v].ty();
        let fill = match ty.dtype {
            DType::F32 => Fill::Normal { std: 1.0 },
            _ => Fill::Integers { lo: 0, hi: 1 },
        };
        Arc::new(fill_tensor(ty.dtype, &ty.shape, fill, 5))
    };
    model.inputs().iter().map(value).collect()
}

#[test]
fn activations_stay_of_order_one() {
    for name in ["resnet18", "mobilenet-v2", "squeezenet1.1"] {
        let model = builtin(name, 1).unwrap();
        let result = evaluate(&model, &random_inputs(&model), Keep::All).unwrap();
        for (_, node) in model.nodes() {
            let t = result.get(node.outputs[0]).unwrap();
            let square = (0..t.len()).map(|i| t.get_f64(i).powi(2)).sum::<f64>() / t.len() as f64;
            let rms = square.sqrt();
            assert!((0.01..50.0).contains(&rms), "{name} {}: {rms}", node.name);
        }
    }
}

#[test]
fn mistakes_name_what_is_valid() {
    for (name, expected) in [
        ("resnet19", "resnet18, resnet34, resnet50"),
        ("op:conv4d", "conv2d, conv3d"),
        (
            "op:conv2d(z=1)",
            "has no argument `z`; it has n=1, c=64, h=56",
        ),
        (
            "op:conv2d(layout=chwn)",
            "layout=chwn is not valid; it takes nchw or nhwc or blocked",
        ),
        (
            "op:conv2d(c=0)",
            "c=0 is not valid; it takes a whole number from 1",
        ),
        ("op:conv2d(c=two)", "c=two is not valid"),
        ("op:conv2d(c=4", "closing parenthesis"),
        ("op:conv2d(c)", "`c` is not ARG=VALUE"),
        ("op:conv2d(c=1,c=2)", "given twice"),
        ("op:conv2d(r=9,pad=0,h=4)", "a window of 9 does not fit 4"),
        ("op:grouped_conv2d(c=8,groups=3)", "does not fit weight"),
        ("op:conv2d(c=16777216,k=16777216)", "are larger than"),
        ("op:conv2d(c=1,4)", "`4` is not ARG=VALUE"),
        ("op:contract(f=2)", "abcd,cbe->aed has no letter `f`"),
        (
            "op:contract(spec=ab,bc->ac,a=2,c=3)",
            "letter `b` of ab,bc->ac has no extent: add b=NUMBER",
        ),
        (
            "op:contract(spec=aB,Bc->ac,a=2,c=3)",
            "letter `B` of aB,Bc->ac is not one of a to z",
        ),
        (
            "op:contract(spec=ab,bc,cd->ad,a=2,b=2,c=2,d=2)",
            "`,` in ab,bc,cd->ad is no letter",
        ),
        (
            "op:contract(spec=ab->ba,a=2,b=2)",
            "is not LEFT,RIGHT->RESULT",
        ),
        (
            "op:contract(spec=ab,bc->ad,a=2,b=2,c=2)",
            "has letter `d`, which no operand has",
        ),
        (
            "op:contract(spec=ab,bc->ac,a=2,b=0,c=2)",
            "b=0 is not valid",
        ),
        (
            "op:contract(speck=ab)",
            "it has spec=abcd,cbe->aed, and the extent of each letter, such as a=32",
        ),
        ("op:transpose(perm=011)", "perm=011: an order of the axes"),
        ("op:transpose(perm=02)", "perm=02: an order of the axes"),
        ("op:transpose(perm=ab)", "perm=ab: an order of the axes"),
        (
            "op:transpose(n=2,perm=102)",
            "the axes are [c,rows,cols], without `n`",
        ),
        ("op:group_norm(c=30)", "are not a multiple of groups=32"),
    ] {
        let message = builtin(name, 1).unwrap_err().to_string();
        assert!(message.contains(expected), "{name}: {message}");
    }
}

#[test]
fn padding_keeps_the_size_unless_it_is_given() {
    let side = |spec: &str| {
        let model = builtin(spec, 1).unwrap();
        let shape = model[model.outputs()[0]].ty().shape.clone();
        (shape[2], shape[3])
    };
    for (r, s, given, expected) in [
        (3, 3, "", (6, 7)),
        (1, 1, "", (6, 7)),
        (5, 5, "", (6, 7)),
        (1, 3, "", (6, 5)),
        (1, 1, ",pad=1", (8, 9)),
        (3, 3, ",pad=0", (4, 5)),
    ] {
        for name in ["conv2d", "depthwise_conv2d"] {
            let spec = format!("op:{name}(c=4,h=6,w=7,r={r},s={s}{given})");
            assert_eq!(side(&spec), expected, "{spec}");
        }
    }
    assert_eq!(side("op:max_pool2d(c=4,h=6,w=8,r=2,s=2,stride=2)"), (3, 4));
}

#[test]
fn letters_are_axes() {
    let shapes = |spec: &str| -> Vec<Vec<usize>> {
        let model = builtin(spec, 1).unwrap();
        let values = model.inputs().iter().chain(model.outputs());
        values.map(|v| model[*v].shape().to_vec()).collect()
    };
    // Of the preset equation, the letters that are not given have extents as well.
    assert_eq!(
        shapes("op:contract(e=7)"),
        [vec![32, 32, 32, 32], vec![32, 32, 7], vec![32, 7, 32]]
    );
    assert_eq!(
        shapes("op:contract( spec = hid , hjd -> hij , h=2, i=3, j=5, d=4 )"),
        [vec![2, 3, 4], vec![2, 5, 4], vec![2, 3, 5]]
    );
    assert_eq!(
        shapes("op:transpose(n=2,c=3,rows=4,cols=5,perm=0231)"),
        [vec![2, 3, 4, 5], vec![2, 4, 5, 3]]
    );
    assert_eq!(
        shapes("op:transpose(rows=4,cols=5)"),
        [vec![4, 5], vec![5, 4]]
    );
}

/// The value of an element, or the mean square of all, of a small operator's only result.
fn result(spec: &str) -> Tensor {
    let model = builtin(spec, 1).unwrap();
    let outputs = evaluate(&model, &random_inputs(&model), Keep::Outputs).unwrap();
    (*outputs.outputs()[0]).clone()
}

#[test]
fn composed_operators_keep_their_laws() {
    // Every row of weights sums to one, so equal values are what they were.
    let model = builtin("op:attention(heads=2,n=3,d=4)", 1).unwrap();
    let [q, k] = [1, 2].map(|seed| {
        let normal = Fill::Normal { std: 1.0 };
        Arc::new(fill_tensor(DType::F32, &[2, 3, 4], normal, seed))
    });
    let sevens = Arc::new(Tensor::from_slice(&[2, 3, 4], &[7f32; 24]));
    let y = evaluate(&model, &[q, k, sevens], Keep::Outputs).unwrap();
    let y = &y.outputs()[0];
    assert!((0..24).all(|i| (y.get_f64(i) - 7.0).abs() < 1e-5));

    // exp(log sum exp) is the sum of exp.
    let model = builtin("op:log_sum_exp(rows=2,cols=3)", 1).unwrap();
    let x = Tensor::from_slice(&[2, 3], &[0f32, 1.0, 2.0, 1000.0, 1000.0, -1000.0]);
    let y = evaluate(&model, &[Arc::new(x)], Keep::Outputs).unwrap();
    let y = &y.outputs()[0];
    assert_eq!(y.shape(), [2]);
    assert!((y.get_f64(0) - 2.407_606).abs() < 1e-5);
    assert!((y.get_f64(1) - 1_000.693_1).abs() < 1e-3);

    // A group's mean square is near one, whatever the scale of its channels.
    let y = result("op:group_norm(c=8,h=16,w=16,groups=2)");
    let square = (0..y.len()).map(|i| y.get_f64(i).powi(2)).sum::<f64>() / y.len() as f64;
    assert!((0.6..1.5).contains(&square), "{square}");

    assert_eq!(
        result("op:correlation(c=3,h=2,w=4)").shape(),
        [1, 2, 4, 2, 4]
    );
    assert_eq!(
        result("op:capsule_conv2d(n=2,c=3,h=6,w=5,k=2,stride=2)").shape(),
        [2, 3, 3, 4, 4, 2]
    );
    assert_eq!(
        result("op:max_pool3d(c=2,d=4,h=6,w=8)").shape(),
        [1, 2, 2, 3, 4]
    );
    assert_eq!(
        result("op:resize2d(c=2,h=3,w=4,to_h=7,to_w=2,mode=cubic)").shape(),
        [1, 2, 7, 2]
    );
}

#[test]
fn a_cell_of_an_lstm_follows_its_equations() {
    let (n, width, hidden) = (2, 3, 2);
    let spec = format!("op:lstm_cell(n={n},x={width},hidden={hidden})");
    let model = builtin(&spec, 1).unwrap();
    let named = |name: &str| {
        let mut all = model.constants().filter(|(v, _)| model[*v].name() == name);
        all.next().unwrap().1.clone()
    };
    let (of_x, of_h, bias) = (named("weight_x"), named("weight_h"), named("bias"));
    let inputs = random_inputs(&model);
    let [x, h, c] = [0, 1, 2].map(|i| &inputs[i]);
    let found = evaluate(&model, &inputs, Keep::Outputs).unwrap();
    let names: Vec<&str> = model.outputs().iter().map(|v| model[*v].name()).collect();
    assert_eq!(names, ["next_c", "y"]);
    let sigmoid = |v: f64| 1.0 / (1.0 + (-v).exp());
    for row in 0..n {
        for unit in 0..hidden {
            // In PyTorch's order: input, forget, new, output.
            let gate = |which: usize| {
                let column = which * hidden + unit;
                let at = |k: usize| k * 4 * hidden + column;
                let from_x = (0..width).map(|k| x.get_f64(row * width + k) * of_x.get_f64(at(k)));
                let from_h = (0..hidden).map(|k| h.get_f64(row * hidden + k) * of_h.get_f64(at(k)));
                from_x.sum::<f64>() + from_h.sum::<f64>() + bias.get_f64(column)
            };
            let i = row * hidden + unit;
            let kept = sigmoid(gate(1)) * c.get_f64(i);
            let next = kept + sigmoid(gate(0)) * gate(2).tanh();
            let shown = sigmoid(gate(3)) * next.tanh();
            assert!((found.outputs()[0].get_f64(i) - next).abs() < 1e-5);
            assert!((found.outputs()[1].get_f64(i) - shown).abs() < 1e-5);
        }
    }
}

#[test]
fn capsules_are_products_of_matrices() {
    // A window of one pixel, one input capsule and one output capsule.
    let model = builtin("op:capsule_conv2d(c=1,h=1,w=1,k=1,r=1,s=1)", 1).unwrap();
    let weight = model.constants().next().unwrap().1.clone();
    let values: Vec<f32> = (0..16).map(|i| i as f32 - 5.0).collect();
    let x = Arc::new(Tensor::from_slice(&[1, 1, 1, 4, 4, 1], &values));
    let y = evaluate(&model, &[x], Keep::Outputs).unwrap();
    let y = &y.outputs()[0];
    assert_eq!(y.shape(), [1, 1, 1, 4, 4, 1]);
    for i in 0..4 {
        for j in 0..4 {
            let products = (0..4).map(|l| f64::from(values[i * 4 + l]) * weight.get_f64(j * 4 + l));
            let sum: f64 = products.sum();
            assert!((y.get_f64(i * 4 + j) - sum).abs() < 1e-5, "{i} {j}");
        }
    }
}

#[test]
fn the_rows_of_the_benchmark_are_operators() {
    let table = include_str!("../../../bench/operators.toml");
    let rows: Vec<&str> = table.lines().filter(|l| l.contains(" = ")).collect();
    assert!(rows.len() > 100, "{} rows", rows.len());
    for row in rows {
        let (_, spec) = row.split_once(" = ").unwrap();
        let spec = spec.trim_matches('"');
        builtin(spec, 1).unwrap_or_else(|e| panic!("{spec}: {e}"));
    }
}
