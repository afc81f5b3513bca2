//! From scheduled programs to flat code: the ordered passes between a schedule
//! and machine code.
//!
//! `lower` is the one pipeline function. Owns memory placement, buffer
//! compaction, guard hoisting, unrolling, vector lanes and register promotion.
//! Knows nothing of LLVM: it hands over `flat::Code`.

pub mod flat;
