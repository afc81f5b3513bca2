//! Pooling of regions, its inverse, and statistics of a batch, against values of ONNX Runtime
//! 1.32 where it defines them.

mod build_onnx;

use build_onnx::{float, floats, floats_of, import, int, ints, node, one_node, text};
use graph::{Keep, evaluate};
use onnx::proto::{AttributeProto, TensorProto};
use std::sync::Arc;
use tensor::Tensor;

fn int64s(name: &str, shape: &[i64], values: &[i64]) -> TensorProto {
    TensorProto {
        dims: shape.to_vec(),
        ..build_onnx::int64s(name, values)
    }
}

/// The outputs of an operator of an image of 4 x 4 pixels, and of constants.
fn of_image(
    op: &str,
    outputs: &[&str],
    attributes: Vec<AttributeProto>,
    constants: Vec<TensorProto>,
) -> Vec<Vec<f64>> {
    let names = constants.iter().map(|t| t.name.as_deref().unwrap());
    let inputs: Vec<&str> = std::iter::once("x").chain(names).collect();
    let node = node(op, &inputs, outputs, attributes);
    let model = import(&one_node(17, &[1, 1, 4, 4], node, constants.clone())).unwrap();
    model.verify().unwrap();
    let x: Vec<f32> = (0..16).map(|i| (i * 7 % 16 - 8) as f32).collect();
    let x = Arc::new(Tensor::from_slice(&[1, 1, 4, 4], &x));
    let results = evaluate(&model, &[x], Keep::Outputs).unwrap().outputs();
    results.iter().map(|t| floats_of(t)).collect()
}

fn near(actual: &[f64], expected: &[f64]) {
    assert_eq!(actual.len(), expected.len());
    let apart = |(a, e): (&f64, &f64)| (a - e).abs() > 1e-5;
    let wrong = actual.iter().zip(expected).any(apart);
    assert!(!wrong, "{actual:?}, not {expected:?}");
}

#[test]
fn the_largest_pixel_of_each_part_of_a_region() {
    let regions = [0., 0., 0., 3., 2., 0., 2.6, 1., 9., 1., 0., 8., 8., 9., 9.];
    let regions = floats("regions", &[3, 5], &regions);
    let shape = vec![ints("pooled_shape", &[2, 2])];
    let y = of_image("MaxRoiPool", &["y"], shape, vec![regions]);
    // Nothing of the last region is in the image.
    let expected = [4., 6., 7., 5., -7., 0., -7., 0., 0., 0., 0., 0.];
    near(&y[0], &expected);
}

#[test]
fn a_region_is_sampled_by_means_or_by_largest_products() {
    let expected = [
        ("avg", [-3.375, 4.625, 0.625, 0.375, -1.5, 0.0, -1.5, 0.0]),
        (
            "max",
            [0.1875, 4.59375, 1.640625, 1.09375, 0.75, 0.0, 0.75, 0.0],
        ),
    ];
    for (mode, expected) in expected {
        let regions = [0.5, 0.0, 3.0, 2.5, 2.0, 1.0, 6.0, 2.0];
        let constants = vec![
            floats("regions", &[2, 4], &regions),
            int64s("batch", &[2], &[0, 0]),
        ];
        let attributes = vec![
            text("mode", mode),
            int("output_height", 2),
            int("output_width", 2),
            int("sampling_ratio", 1),
        ];
        near(
            &of_image("RoiAlign", &["y"], attributes, constants)[0],
            &expected,
        );
    }
}

/// Two images, regions that leave them, and one of no size. The expected values are the definition's, in f64.
#[test]
fn a_region_is_sampled_as_often_as_its_size_says() {
    let expected = [
        (
            "half_pixel",
            [
                -3.1875, 2.75, 0.625, 0.0, 4.0, 0.0, 6.0, 2.0, 0.448967, 0.0, 0.0, 0.0, 0.0, 0.0,
                0.0, 0.0,
            ],
        ),
        (
            "output_half_pixel",
            [
                -1.6875, 0.125, 2.46875, -0.1875, 5.0, 0.0, 11.0, 0.0, 0.355837, 0.0, 0.0, 0.0,
                3.75, -0.75, 1.75, -2.75,
            ],
        ),
    ];
    for (mode, expected) in expected {
        let attributes = vec![
            text("coordinate_transformation_mode", mode),
            int("output_height", 2),
            int("output_width", 2),
        ];
        let align = node("RoiAlign", &["x", "regions", "batch"], &["y"], attributes);
        let batch = int64s("batch", &[4], &[0, 1, 1, 0]);
        let mut file = one_node(16, &[2, 1, 4, 4], align, vec![batch]);
        let graph = file.graph.as_mut().unwrap();
        graph.input.push(build_onnx::known("regions", 1, &[4, 4]));
        let model = import(&file).unwrap();
        model.verify().unwrap();
        let x: Vec<f32> = (0..32i16)
            .map(|i| f32::from(i * 7 % 16 - 8 + (i - 16).max(0)))
            .collect();
        let x = Tensor::from_slice(&[2, 1, 4, 4], &x);
        let regions = [
            0.5f32, 0.0, 3.0, 2.5, 2.0, 1.0, 6.0, 2.0, -3.25, -9.0, 40.0, 31.0, 1.0, 2.0, 1.0, 2.0,
        ];
        let regions = Tensor::from_slice(&[4, 4], &regions);
        let inputs = [Arc::new(x), Arc::new(regions)];
        let results = evaluate(&model, &inputs, Keep::Outputs).unwrap();
        near(&floats_of(&results.outputs()[0]), &expected);
    }
}

/// Windows that overlap, with padding: each maximum goes back to its place, by the windows where
/// the places are known to be theirs and by scattering where they are not.
#[test]
fn maxima_go_back_to_their_places() {
    let windows = || {
        vec![
            ints("kernel_shape", &[3, 3]),
            ints("strides", &[2, 2]),
            ints("pads", &[1, 1, 0, 0]),
        ]
    };
    let pooled = of_image("MaxPool", &["y", "places"], windows(), vec![]);
    let mut expected = vec![0.0; 16];
    for (value, place) in pooled[0].iter().zip(&pooled[1]) {
        expected[*place as usize] = *value;
    }
    let mut pool = one_node(
        17,
        &[1, 1, 4, 4],
        node("MaxPool", &["x"], &["pooled", "places"], windows()),
        vec![],
    );
    let graph = pool.graph.as_mut().unwrap();
    graph
        .node
        .push(node("MaxUnpool", &["pooled", "places"], &["y"], windows()));
    graph.output = vec![build_onnx::undeclared("y")];
    let model = import(&pool).unwrap();
    let scatters = |m: &graph::Model| {
        let mut all = m.nodes();
        all.any(|(_, n)| n.op.name().starts_with("scatter"))
    };
    assert!(!scatters(&model));
    let x: Vec<f32> = (0..16).map(|i| (i * 7 % 16 - 8) as f32).collect();
    let x = Arc::new(Tensor::from_slice(&[1, 1, 4, 4], &x));
    let y = evaluate(&model, &[x], Keep::Outputs).unwrap().outputs();
    assert_eq!(y[0].shape(), [1, 1, 4, 4]);
    near(&floats_of(&y[0]), &expected);

    let unpool = |sizes: &[i64]| {
        let constants = vec![
            int64s("places", &[1, 1, 2, 2], &[5, 7, 13, 15]),
            int64s("sizes", &[4], sizes),
        ];
        let attributes = vec![ints("kernel_shape", &[2, 2]), ints("strides", &[2, 2])];
        let node = node("MaxUnpool", &["x", "places", "sizes"], &["y"], attributes);
        import(&one_node(17, &[1, 1, 2, 2], node, constants))
    };
    let model = unpool(&[1, 1, 5, 4]).unwrap();
    assert!(scatters(&model));
    let x = Arc::new(Tensor::from_slice(&[1, 1, 2, 2], &[1f32, 2., 3., 4.]));
    let y = evaluate(&model, &[x], Keep::Outputs).unwrap().outputs();
    let mut expected = vec![0.0; 20];
    for (place, value) in [(5, 1.0), (7, 2.0), (13, 3.0), (15, 4.0)] {
        expected[place] = value;
    }
    near(&floats_of(&y[0]), &expected);
    assert!(
        unpool(&[1, 1, 3, 4])
            .unwrap_err()
            .to_string()
            .contains("output shape")
    );
}

/// As weights are standardised by exporters.
#[test]
fn a_batch_is_normalised_by_its_own_statistics() {
    let one = |name: &str, value: f32| floats(name, &[1], &[value]);
    let constants = vec![
        one("scale", 2.0),
        one("shift", 1.0),
        one("mean", 10.0),
        one("variance", 20.0),
    ];
    let attributes = vec![int("training_mode", 1), float("momentum", 0.75)];
    let outputs = ["y", "means", "variances"];
    let found = of_image("BatchNormalization", &outputs, attributes, constants);
    // Every number from -8 to 7 once.
    let (mean, variance) = (-0.5, 21.25);
    let x = (0..16).map(|i| f64::from(i * 7 % 16 - 8));
    let normal = |x: f64| (x - mean) / f64::sqrt(variance + 1e-5) * 2.0 + 1.0;
    near(&found[0], &x.map(normal).collect::<Vec<_>>());
    near(&found[1], &[10.0 * 0.75 + mean * 0.25]);
    near(&found[2], &[20.0 * 0.75 + variance * 0.25]);
}
