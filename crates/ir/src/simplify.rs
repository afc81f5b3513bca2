//! simplify
