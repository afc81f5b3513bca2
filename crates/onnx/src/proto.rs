//! The messages of `proto/onnx.proto`. `tests/proto.rs` writes their code and keeps it current.

include!("../proto/onnx.rs.in");
