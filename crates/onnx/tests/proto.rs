//! The committed code of ONNX's messages is that of the schema beside it.

#[test]
fn messages_are_those_of_the_schema() {
    let schema = include_bytes!("../proto/onnx.proto");
    let code = include_str!("../proto/onnx.rs.in");
    let hash = xxhash_rust::xxh3::xxh3_64(schema);
    let first = format!("// Schema {hash:016x}.");
    let hint = "the schema changed: `cargo run` in crates/onnx/proto/generate";
    assert_eq!(code.lines().next(), Some(&*first), "{hint}");
}
