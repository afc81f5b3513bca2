//! Built-in models: standard architectures with seeded weights, and single
//! operators by a specification (`op:conv2d(c=64,h=56,w=56)`).
//!
//! Promises that a name and a seed give the same model on every machine, and
//! that activations stay of order 1 on inputs of order 1. Weights are random:
//! the models are for speed and correctness, not for predictions.

mod bert;
mod composed;
mod mobilenet;
mod net;
mod operators;
mod ordered;
mod resize;
mod resnet;
mod spec;
mod vision;

pub use operators::{OPERATORS, OperatorInfo, Parameter, Preset};
pub use spec::describe;

use crate::model::{Model, ModelError};
use net::Net;
use thiserror::Error;

/// A built-in model.
pub struct ModelInfo {
    pub name: &'static str,
    /// One line for people.
    pub doc: &'static str,
    build: fn(&mut Net),
}

/// By name. Images are f32 [N,3,224,224], those of CIFAR-10 [N,3,32,32].
pub const MODELS: &[ModelInfo] = &[
    ModelInfo {
        name: "alexnet",
        doc: "AlexNet as in torchvision, 1000 classes",
        build: vision::alexnet,
    },
    ModelInfo {
        name: "vgg16",
        doc: "VGG-16 without batch normalisation, 1000 classes",
        build: vision::vgg16,
    },
    ModelInfo {
        name: "resnet18",
        doc: "ResNet-18 (basic blocks), 1000 classes",
        build: resnet::resnet18,
    },
    ModelInfo {
        name: "resnet34",
        doc: "ResNet-34 (basic blocks), 1000 classes",
        build: resnet::resnet34,
    },
    ModelInfo {
        name: "resnet50",
        doc: "ResNet-50 (bottlenecks, stride in the 3x3), 1000 classes",
        build: resnet::resnet50,
    },
    ModelInfo {
        name: "vgg16-cifar",
        doc: "VGG-16 for images of 32 x 32, hidden layers of 512, 10 classes",
        build: vision::vgg16_cifar,
    },
    ModelInfo {
        name: "resnet34-cifar",
        doc: "ResNet-34 for images of 32 x 32, 10 classes",
        build: resnet::resnet34_cifar,
    },
    ModelInfo {
        name: "squeezenet1.1",
        doc: "SqueezeNet 1.1, 1000 classes",
        build: vision::squeezenet,
    },
    ModelInfo {
        name: "mobilenet-v1",
        doc: "MobileNet 1.0 (depthwise separable), 1000 classes",
        build: mobilenet::v1,
    },
    ModelInfo {
        name: "mobilenet-v2",
        doc: "MobileNet-V2 1.0 (inverted residuals), 1000 classes",
        build: mobilenet::v2,
    },
    ModelInfo {
        name: "bert-base",
        doc: "BERT-base, 12 layers, one sequence of 128 tokens",
        build: bert::base,
    },
];

/// Why there is no such built-in model.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum BuiltinError {
    #[error(
        "there is no built-in model `{name}`; there are {}, and op:NAME(ARG=VALUE,...)",
        models()
    )]
    Model { name: String },
    #[error("there is no built-in operator `{name}`; there are {}", operators())]
    Operator { name: String },
    #[error("the batch of {name} is fixed")]
    Batch { name: String },
    #[error("`{spec}` is not op:NAME(ARG=VALUE,...): {problem}")]
    Syntax { spec: String, problem: String },
    #[error("operator `{operator}` has no argument `{argument}`; it has {valid}")]
    Argument {
        operator: &'static str,
        argument: String,
        valid: String,
    },
    #[error("operator `{operator}`: {argument}={value} is not valid; it takes {valid}")]
    Value {
        operator: &'static str,
        argument: &'static str,
        value: String,
        valid: String,
    },
    #[error("operator `{operator}` with these arguments: {problem}")]
    Arguments {
        operator: &'static str,
        problem: String,
    },
}

fn models() -> String {
    let names: Vec<_> = MODELS.iter().map(|m| m.name).collect();
    names.join(", ")
}

fn operators() -> String {
    let names: Vec<_> = OPERATORS.iter().map(|o| o.name).collect();
    names.join(", ")
}

/// The built-in model of this name for one image, or the operator of this specification,
/// with weights drawn from `seed`.
///
/// # Errors
/// If there is no such model or operator, or its arguments are not valid; the
/// message lists what there is.
pub fn builtin(name: &str, seed: u64) -> Result<Model, BuiltinError> {
    builtin_batch(name, seed, 1)
}

/// As [`builtin`], for a batch of so many images. An operator has its batch among its arguments.
///
/// # Errors
/// As [`builtin`]; and if it is no model of images, and the batch is not 1.
pub fn builtin_batch(name: &str, seed: u64, batch: usize) -> Result<Model, BuiltinError> {
    let fixed = || BuiltinError::Batch {
        name: name.to_string(),
    };
    if let Some(spec) = name.strip_prefix("op:") {
        if batch != 1 {
            return Err(fixed());
        }
        let (operator, arguments) = spec::parse(spec)?;
        let mut net = Net::new(name, seed, batch);
        let refused = |e: ModelError| BuiltinError::Arguments {
            operator: operator.name,
            problem: e.to_string(),
        };
        operators::build(operator, &arguments, &mut net).map_err(refused)?;
        return Ok(net.finish());
    }
    let unknown = || BuiltinError::Model {
        name: name.to_string(),
    };
    let info = MODELS.iter().find(|m| m.name == name).ok_or_else(unknown)?;
    let mut net = Net::new(name, seed, batch);
    (info.build)(&mut net);
    let model = net.finish();
    let of_images = |v: &crate::ValueId| model[*v].shape()[0] == batch;
    match model.inputs().iter().all(of_images) {
        true => Ok(model),
        false => Err(fixed()),
    }
}

/// Whether a built-in model asks for activations in plain layouts: an operator
/// with `layout=nchw` or `layout=nhwc` does, anything else leaves layouts open.
///
/// # Errors
/// If `name` is a specification that is not valid.
pub fn wants_plain_layouts(name: &str) -> Result<bool, BuiltinError> {
    let Some(spec) = name.strip_prefix("op:") else {
        return Ok(false);
    };
    let (operator, arguments) = spec::parse(spec)?;
    Ok(operators::is_plain(operator, &arguments))
}
