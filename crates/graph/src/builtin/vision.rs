//! AlexNet, VGG-16 and SqueezeNet 1.1.

use super::net::{Layer, Net};
use crate::model::ValueId;
use crate::ops::{Concat, Dropout, Op};

/// Krizhevsky 2014, the one-column variant.
pub(super) fn alexnet(net: &mut Net) {
    let mut x = net.image(224);
    let layers = [
        (Layer::new(64, 11, 4, 2), true),
        (Layer::new(192, 5, 1, 2), true),
        (Layer::new(384, 3, 1, 1), false),
        (Layer::new(256, 3, 1, 1), false),
        (Layer::new(256, 3, 1, 1), true),
    ];
    for (i, (layer, pool)) in layers.into_iter().enumerate() {
        let gain = if i == 0 { 1.0 } else { 2.0 };
        x = net.conv(&format!("conv{}", i + 1), x, layer, gain, true);
        x = net.relu(&format!("relu{}", i + 1), x);
        if pool {
            x = net.max_pool(&format!("pool{}", i + 1), x, 3, 2, 0, false);
        }
    }
    classifier(net, x);
}

/// Simonyan and Zisserman 2014, configuration D.
pub(super) fn vgg16(net: &mut Net) {
    let x = net.image(224);
    let x = vgg16_features(net, x);
    classifier(net, x);
}

/// For images of CIFAR-10: the same layers of convolutions, and hidden layers of 512.
pub(super) fn vgg16_cifar(net: &mut Net) {
    let x = net.image(32);
    let x = vgg16_features(net, x);
    let x = net.flatten("flatten", x);
    let x = hidden(net, x, 512);
    let x = net.linear("fc3", x, 10, 2.0);
    net.output("logits", x);
}

fn vgg16_features(net: &mut Net, mut x: ValueId) -> ValueId {
    for (stage, (maps, layers)) in [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)]
        .into_iter()
        .enumerate()
    {
        for layer in 0..layers {
            let name = format!("{}_{}", stage + 1, layer + 1);
            let gain = if stage + layer == 0 { 1.0 } else { 2.0 };
            let attributes = Layer::new(maps, 3, 1, 1);
            x = net.conv(&format!("conv{name}"), x, attributes, gain, true);
            x = net.relu(&format!("relu{name}"), x);
        }
        x = net.max_pool(&format!("pool{}", stage + 1), x, 2, 2, 0, false);
    }
    x
}

/// Two hidden layers of 4096.
fn classifier(net: &mut Net, x: ValueId) {
    let x = net.flatten("flatten", x);
    let x = hidden(net, x, 4096);
    let x = net.linear("fc3", x, 1000, 2.0);
    net.output("logits", x);
}

fn hidden(net: &mut Net, mut x: ValueId, width: usize) -> ValueId {
    for name in ["fc1", "fc2"] {
        x = net.linear(name, x, width, 2.0);
        x = net.relu(&format!("{name}.relu"), x);
        let dropout = Op::Dropout(Dropout { ratio: 0.5 });
        x = net.add(&format!("{name}.dropout"), dropout, &[x]);
    }
    x
}

/// Iandola et al. 2016, version 1.1.
pub(super) fn squeezenet(net: &mut Net) {
    let image = net.image(224);
    let x = net.conv("conv1", image, Layer::new(64, 3, 2, 0), 1.0, true);
    let x = net.relu("relu1", x);
    let mut x = net.max_pool("pool1", x, 3, 2, 0, true);
    for (i, squeeze) in [16, 16, 32, 32, 48, 48, 64, 64].into_iter().enumerate() {
        x = fire(net, &format!("fire{}", i + 2), x, squeeze);
        if i == 1 || i == 3 {
            x = net.max_pool(&format!("pool{}", i + 2), x, 3, 2, 0, true);
        }
    }
    let x = net.conv("classifier", x, Layer::new(1000, 1, 1, 0), 2.0, true);
    let x = net.relu("classifier.relu", x);
    let x = net.global_average("mean", x);
    let x = net.flatten("flatten", x);
    net.output("logits", x);
}

/// A squeezing 1x1 layer and two expanding ones, concatenated.
fn fire(net: &mut Net, name: &str, x: ValueId, squeeze: usize) -> ValueId {
    let part = |what: &str| format!("{name}.{what}");
    let layer = Layer::new(squeeze, 1, 1, 0);
    let s = net.conv(&part("squeeze"), x, layer, 2.0, true);
    let s = net.relu(&part("squeeze.relu"), s);
    let one = net.conv(
        &part("expand1"),
        s,
        Layer::new(4 * squeeze, 1, 1, 0),
        2.0,
        true,
    );
    let one = net.relu(&part("expand1.relu"), one);
    let three = net.conv(
        &part("expand3"),
        s,
        Layer::new(4 * squeeze, 3, 1, 1),
        2.0,
        true,
    );
    let three = net.relu(&part("expand3.relu"), three);
    net.add(
        &part("concat"),
        Op::Concat(Concat { axis: 1 }),
        &[one, three],
    )
}
