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
