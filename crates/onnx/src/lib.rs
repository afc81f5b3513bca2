//! ONNX files: the importer of models ([`import_file`], operator sets 7 to 28),
//! the exporter ([`export()`], operator set 17), tensor files, and the cases of
//! ONNX's own node tests ([`node_tests`]).
//!
//! Importing is one pass over the nodes in file order. Whatever depends on
//! constants and static shapes only is computed on the way with the references,
//! so a model comes out bound: operands that decide shapes have become
//! attributes. All unsupported nodes of a model are listed in one error. Leaves
//! what a model computes, and simplifying it, to crate `graph`.

mod attention;
mod attributes;
mod bits;
mod bnb;
mod bounds;
mod composite;
mod contract;
mod cumulative;
mod declared;
mod decoding;
mod diffusion;
mod elementwise;
mod error;
mod experts;
mod export;
mod features;
mod file;
mod fused;
mod gates;
mod grouped;
mod image;
mod import;
mod indexing;
mod linear;
mod linear_attention;
mod live;
mod losses;
mod movement;
mod moving;
mod narrow;
mod narrowing;
mod node;
pub mod node_tests;
mod norm;
mod operators;
mod positions;
pub mod proto;
mod qlinear;
mod quantized;
mod recurrent;
mod reduce;
mod regions;
mod resize;
mod select;
mod sequence;
mod shapes;
mod spectrum;
mod summary;
mod tensors;
mod versions;
mod windows;
mod wrapping;

pub use error::{Declared, ImportError, NeededValue, UnboundDim, UnsupportedNode};
pub use export::{ExportError, Inexpressible, export};
pub use import::{BoundModel, ImportOptions, ModelFile, import_bytes, import_file};
pub use operators::{OPERATORS, Operator};
pub use summary::{DeclaredTensor, FileSummary};
pub use tensors::{TensorError, dtype_of, read_tensor_proto, read_tensor_proto_file};
