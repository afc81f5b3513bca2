//! ONNX files: the importer, operator sets 7 to 28, and tensor files.
//!
//! Importing is one pass over the nodes in file order. Whatever depends on
//! constants and static shapes only is computed on the way with the references,
//! so a model comes out bound: operands that decide shapes have become
//! attributes. All unsupported nodes of a model are listed in one error.

mod attributes;
mod composite;
mod declared;
mod elementwise;
mod error;
mod file;
mod import;
mod linear;
mod movement;
mod node;
mod norm;
mod operators;
pub mod proto;
mod quantized;
mod reduce;
mod shapes;
mod tensors;
mod versions;
mod windows;

pub use error::{ImportError, NeededValue, UnboundDim, UnsupportedNode};
pub use import::{ImportOptions, import_bytes, import_file};
pub use operators::{OPERATORS, Operator};
pub use tensors::{TensorError, dtype_of, read_tensor_proto, read_tensor_proto_file};
