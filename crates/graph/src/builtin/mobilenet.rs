//! MobileNet 1.0 (Howard et al. 2017) and MobileNet-V2 (Sandler et al. 2018).

use super::net::{Layer, Net};
use super::resnet::normalised;
use crate::model::ValueId;
use crate::ops::{Binary, Op, Unary};

fn relu6(net: &mut Net, name: &str, x: ValueId) -> ValueId {
    let clip = Unary::Clip {
        min: Some(0.0),
        max: Some(6.0),
    };
    net.add(name, Op::Unary(clip), &[x])
}

/// Convolution, normalisation, ReLU6.
fn layer(net: &mut Net, name: &str, x: ValueId, layer: Layer, gain: f64) -> ValueId {
    let x = normalised(net, name, x, layer, gain, 1.0);
    relu6(net, &format!("{name}.relu"), x)
}

fn depthwise(net: &mut Net, name: &str, x: ValueId, stride: usize) -> ValueId {
    let channels = net.model[x].shape()[1];
    let attributes = Layer {
        groups: channels,
        ..Layer::new(channels, 3, stride, 1)
    };
    layer(net, name, x, attributes, 2.0)
}

fn classifier(net: &mut Net, x: ValueId) {
    let x = net.global_average("mean", x);
    let x = net.flatten("flatten", x);
    let x = net.linear("fc", x, 1000, 2.0);
    net.output("logits", x);
}

pub(super) fn v1(net: &mut Net) {
    let image = net.image(224);
    let mut x = layer(net, "conv1", image, Layer::new(32, 3, 2, 1), 1.0);
    let blocks = [
        (64, 1),
        (128, 2),
        (128, 1),
        (256, 2),
        (256, 1),
        (512, 2),
        (512, 1),
        (512, 1),
        (512, 1),
        (512, 1),
        (512, 1),
        (1024, 2),
        (1024, 1),
    ];
    for (i, (maps, stride)) in blocks.into_iter().enumerate() {
        x = depthwise(net, &format!("block{}.depthwise", i + 1), x, stride);
        let name = format!("block{}.pointwise", i + 1);
        x = layer(net, &name, x, Layer::new(maps, 1, 1, 0), 2.0);
    }
    classifier(net, x);
}

/// Table 2: expansion, channels, repeats, stride.
const STAGES: [(usize, usize, usize, usize); 7] = [
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
];

pub(super) fn v2(net: &mut Net) {
    let image = net.image(224);
    let mut x = layer(net, "conv1", image, Layer::new(32, 3, 2, 1), 1.0);
    for (stage, (expansion, maps, repeats, stride)) in STAGES.into_iter().enumerate() {
        for i in 0..repeats {
            let stride = if i == 0 { stride } else { 1 };
            let name = format!("block{}.{i}", stage + 1);
            x = inverted_residual(net, &name, x, expansion, maps, stride);
        }
    }
    // What comes in is not rectified.
    let x = layer(net, "conv2", x, Layer::new(1280, 1, 1, 0), 1.0);
    classifier(net, x);
}

fn inverted_residual(
    net: &mut Net,
    name: &str,
    x: ValueId,
    expansion: usize,
    maps: usize,
    stride: usize,
) -> ValueId {
    let part = |what: &str| format!("{name}.{what}");
    let channels = net.model[x].shape()[1];
    let mut y = x;
    if expansion > 1 {
        let attributes = Layer::new(channels * expansion, 1, 1, 0);
        y = layer(net, &part("expand"), y, attributes, 1.0);
    }
    y = depthwise(net, &part("depthwise"), y, stride);
    let residual = stride == 1 && channels == maps;
    let scale = if residual { 0.5 } else { 1.0 };
    let attributes = Layer::new(maps, 1, 1, 0);
    y = normalised(net, &part("project"), y, attributes, 2.0, scale);
    if residual {
        y = net.binary(&part("add"), Binary::Add, y, x);
    }
    y
}
