//! The messages of `proto/onnx.proto`, generated when the crate is built.

include!(concat!(env!("OUT_DIR"), "/onnx.rs"));
