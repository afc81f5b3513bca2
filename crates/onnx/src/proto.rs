//! The messages of `proto/onnx.proto`; `proto/generate` writes their code.

include!("../proto/onnx.rs.in");
