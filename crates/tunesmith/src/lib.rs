//! tunesmith
