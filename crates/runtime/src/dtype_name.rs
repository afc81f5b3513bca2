//! How an element type is written in artifacts and messages: as its name.
//!
//! Use with `#[serde(with = "runtime::dtype_name")]`; `tensor` itself stays
//! free of serde.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};
use tensor::DType;

pub fn serialize<S: Serializer>(dtype: &DType, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(dtype.name())
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DType, D::Error> {
    String::deserialize(deserializer)?
        .parse()
        .map_err(D::Error::custom)
}
