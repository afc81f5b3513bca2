//! interpret
