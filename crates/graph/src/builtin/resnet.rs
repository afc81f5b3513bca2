//! Residual networks (He et al. 2015, table 1).

use super::net::{Layer, Net};
use crate::model::ValueId;
use crate::ops::Binary;

/// Scale of the last normalisation of a residual branch, so that sums of many
/// branches stay of order 1.
const BRANCH_SCALE: f64 = 0.3;

pub(super) fn resnet18(net: &mut Net) {
    resnet(net, [2, 2, 2, 2], false);
}

pub(super) fn resnet34(net: &mut Net) {
    resnet(net, [3, 4, 6, 3], false);
}

pub(super) fn resnet50(net: &mut Net) {
    resnet(net, [3, 4, 6, 3], true);
}

/// For images of CIFAR-10: the first layer keeps their size, and no pool follows it.
pub(super) fn resnet34_cifar(net: &mut Net) {
    let image = net.image(32);
    let x = normalised(net, "conv1", image, Layer::new(64, 3, 1, 1), 1.0, 1.0);
    let x = net.relu("relu1", x);
    stages(net, x, [3, 4, 6, 3], false, 10);
}

fn resnet(net: &mut Net, blocks: [usize; 4], bottleneck: bool) {
    let image = net.image(224);
    let x = normalised(net, "conv1", image, Layer::new(64, 7, 2, 3), 1.0, 1.0);
    let x = net.relu("relu1", x);
    let x = net.max_pool("pool1", x, 3, 2, 1, false);
    stages(net, x, blocks, bottleneck, 1000);
}

fn stages(net: &mut Net, mut x: ValueId, blocks: [usize; 4], bottleneck: bool, classes: usize) {
    for (stage, count) in blocks.into_iter().enumerate() {
        let width = 64 << stage;
        for i in 0..count {
            let stride = if stage > 0 && i == 0 { 2 } else { 1 };
            let name = format!("layer{}.{i}", stage + 1);
            x = block(net, &name, x, width, stride, bottleneck);
        }
    }
    let x = net.global_average("mean", x);
    let x = net.flatten("flatten", x);
    let x = net.linear("fc", x, classes, 2.0);
    net.output("logits", x);
}

/// Two 3x3 layers, or 1x1, 3x3, 1x1; the shortcut is projected where shapes change.
fn block(
    net: &mut Net,
    name: &str,
    x: ValueId,
    width: usize,
    stride: usize,
    bottleneck: bool,
) -> ValueId {
    let part = |what: &str| format!("{name}.{what}");
    let maps = if bottleneck { 4 * width } else { width };
    let layers = if bottleneck {
        vec![
            Layer::new(width, 1, 1, 0),
            Layer::new(width, 3, stride, 1),
            Layer::new(maps, 1, 1, 0),
        ]
    } else {
        vec![Layer::new(width, 3, stride, 1), Layer::new(width, 3, 1, 1)]
    };
    let mut y = x;
    let last = layers.len() - 1;
    for (i, layer) in layers.into_iter().enumerate() {
        let scale = if i == last { BRANCH_SCALE } else { 1.0 };
        y = normalised(net, &part(&format!("conv{}", i + 1)), y, layer, 2.0, scale);
        if i < last {
            y = net.relu(&part(&format!("relu{}", i + 1)), y);
        }
    }
    let shortcut = if stride > 1 || net.model[x].shape()[1] != maps {
        let layer = Layer::new(maps, 1, stride, 0);
        normalised(net, &part("project"), x, layer, 2.0, 1.0)
    } else {
        x
    };
    let sum = net.binary(&part("add"), Binary::Add, y, shortcut);
    net.relu(&part("relu"), sum)
}

/// A convolution without bias and its batch normalisation.
pub(super) fn normalised(
    net: &mut Net,
    name: &str,
    x: ValueId,
    layer: Layer,
    gain: f64,
    scale: f64,
) -> ValueId {
    let x = net.conv(name, x, layer, gain, false);
    net.batch_norm(&format!("{name}.bn"), x, scale)
}
