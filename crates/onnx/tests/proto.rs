//! The committed code of ONNX's messages is what the schema gives.
//!
//! With `TUNESMITH_BLESS=1` in the environment the code is replaced.

use std::path::Path;

#[test]
fn messages_are_those_of_the_schema() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let out = tempfile::tempdir().unwrap();
    let files = protox::compile([folder.join("onnx.proto")], [&folder]).unwrap();
    prost_build::Config::new()
        .bytes([".onnx.TensorProto.raw_data"])
        .out_dir(out.path())
        .compile_fds(files)
        .unwrap();
    let generated = std::fs::read_to_string(out.path().join("onnx.rs")).unwrap();
    let committed = folder.join("onnx.rs.in");
    if std::env::var_os("TUNESMITH_BLESS").is_some_and(|v| v == "1") {
        std::fs::write(&committed, generated).unwrap();
    } else {
        let hint = "run this test with TUNESMITH_BLESS=1";
        assert_eq!(std::fs::read_to_string(committed).unwrap(), generated, "{hint}");
    }
}
