//! affine
