//! Writes the Rust code of ONNX's messages (`../onnx.rs.in`) from the schema (`../onnx.proto`).
//! The code begins with the schema's hash, which a test of the crate `onnx` compares.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let schema = folder.join("onnx.proto");
    let out = std::env::temp_dir().join(format!("onnx-messages-{}", std::process::id()));
    std::fs::create_dir_all(&out)?;
    prost_build::Config::new()
        .bytes([".onnx.TensorProto.raw_data"])
        .out_dir(&out)
        .compile_fds(protox::compile([&schema], [&folder])?)?;
    let code = std::fs::read_to_string(out.join("onnx.rs"))?;
    std::fs::remove_dir_all(&out)?;
    let hash = xxhash_rust::xxh3::xxh3_64(&std::fs::read(&schema)?);
    std::fs::write(folder.join("onnx.rs.in"), format!("// Schema {hash:016x}.\n{code}"))?;
    Ok(())
}
